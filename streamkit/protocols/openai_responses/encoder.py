"""Canonical events as a Responses stream, for clients of that API.

Items are told as OpenAI tells them: added, their parts grown and done, done; then the whole response. A message's item
has the message's id; messages that this protocol's decoder gave go back into the item that they came from.
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ...answers import Confirmation
from ...events import (
    AnnotationAdded,
    ConfirmationCreated,
    Created,
    Delta,
    Done,
    Event,
    Run,
    RunCreated,
    RunDone,
    StreamException,
    Usage,
)
from ...messages import (
    Annotation,
    AudioMessage,
    CodeMessage,
    ConsoleMessage,
    ImageMessage,
    Message,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
)
from .. import base
from .input import parsed
from .items import OUTPUTS, Item
from .output import (
    EXTRAS,
    REASONS,
    begun,
    cited,
    content_part,
    item_type,
    kind_of,
    public,
    seal,
    searched,
    url_of,
    usage_of,
)

__all__ = ["Encoder"]

# Which events tell of a part: their stem, their key for the index, their key for the final text.
_STREAMS = {
    "text": ("response.output_text", "content_index", "text"),
    "refusal": ("response.refusal", "content_index", "refusal"),
    "reasoning": ("response.reasoning_text", "content_index", "text"),
    "summary": ("response.reasoning_summary_text", "summary_index", "text"),
    "code": ("response.code_interpreter_call_code", "", "code"),
    "command": ("response.shell_call_command", "command_index", "command"),
    "function_call": ("response.function_call_arguments", "", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input", "", "input"),
    "mcp_call": ("response.mcp_call_arguments", "", "arguments"),
}
_PARTS = {
    "text": ("response.content_part", "output_text"),
    "refusal": ("response.content_part", "refusal"),
    "reasoning": ("response.content_part", "reasoning_text"),
    "summary": ("response.reasoning_summary_part", "summary_text"),
}
_TOLD_OF = {"code_interpreter_call", "mcp_call", "web_search_call", "file_search_call", "image_generation_call"}
# Items that are over with their message; the others may get another part, or what they gave, before they are done.
_SINGLE = {"function_call", "custom_tool_call", "mcp_approval_request", "image_generation_call"} | {
    "computer_call",
    "local_shell_call",
    "apply_patch_call",
    *OUTPUTS,
}
_ENDS = {"completed": "completed", "requires_action": "completed", "failed": "failed", "expired": "failed"}


class _Entry:
    """An item that was begun. `item` is how a decoder will see it."""

    def __init__(self, wire: dict[str, Any], place: int, group: str | None) -> None:
        self.wire = wire
        self.place = place
        self.group = group
        self.item = Item(wire["id"], wire["type"], place)
        self.live: set[str] = set()
        self.status = "completed"
        self.over = False


class Encoder(base.Encoder):
    """Canonical events to Responses events.

    What a Responses stream cannot express, and what is told in its place:

    | canonical | here |
    |---|---|
    | run steps, active lines, warnings, raw events, the outcome of a confirmation | nothing |
    | a confirmation of anything but an MCP call | an `mcp_approval_request` of its own, beside its subject |
    | a run that is `expired`; one that requires action | `failed`; `completed` |
    | `finish_reason` of a run that is not incomplete | nothing |
    | that of one that is: Chat's `length`; what this API has no word for | `max_output_tokens`; null |
    | a delta with `replace`, a preview of an image | the final content alone |
    | code in a language other than Python and shell | a `code_interpreter_call`, which is Python |
    | code's own `call_id`; which of its streams a code interpreter printed to | the item's id; nothing |
    | a code interpreter's image as base64 | its data URL |
    | a call whose arguments are an object, and not text (searches, computer, patches) | its JSON, without its spacing |
    | a tool call that its provider executed, of no type of this API | an `mcp_call` |
    | redacted reasoning without `encrypted_content` | an empty reasoning item, which is no message |
    | the statuses of a call, or of code, and of what it gave, where they differ | the one that is not completed |
    | the `index` of parts that are not counted from 0 | counted from 0 |
    | console output without code that it came from | a `shell_call_output` |
    | a file; an image that is a path or a file id; messages of other types | nothing |
    | choices but the first | nothing |
    | metadata that the item has no place for; `step_id`, `recipient`, `created_at`, `name` of no call | nothing |
    """

    name = "openai_responses"
    choices = False

    def __init__(self) -> None:
        self._sequence = 0
        self._response: dict[str, Any] = {}
        self._entries: list[_Entry] = []
        self._told: dict[str, tuple[_Entry, str, int]] = {}  # by message id: its item, its kind, its index
        self._annotations: dict[str, int] = {}
        self._usage: dict[str, Any] | None = None
        self._ended = False

    def event_name(self, item: Mapping[str, Any]) -> str | None:
        name: str = item["type"]
        return name

    def feed(self, event: Event) -> Iterable[dict[str, Any]]:
        for item in self._feed(event):
            yield {"type": item.pop("type"), "sequence_number": self._sequence, **item}
            self._sequence += 1

    def _feed(self, event: Event) -> Iterator[dict[str, Any]]:
        match event:
            case RunCreated(run=run):
                yield from self._begin(run)
            case Created(message=message):
                yield from self._created(message)
            case Delta():
                yield from self._delta(event)
            case Done(message=message):
                yield from self._done(message)
            case AnnotationAdded(annotation=annotation):
                yield from self._annotation(event.message_id, annotation)
            case ConfirmationCreated(confirmation=confirmation):
                yield from self._confirmation(confirmation)
            case Usage():
                self._usage = usage_of(event)
            case RunDone(run=run):
                yield from self._end(run)
            case StreamException() if not self._ended:
                self._ended = True
                yield {"type": "error", "code": event.error, "message": event.message, "param": None}
            case _:
                pass

    # -- the response

    def _begin(self, run: Run) -> Iterator[dict[str, Any]]:
        self._response = {
            "id": run.id,
            "object": "response",
            "created_at": run.created_at or 0,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "model": run.model or "",
            "output": [],
            "parallel_tool_calls": True,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "usage": None,
        }
        for phase in ("created", "in_progress"):
            yield {"type": f"response.{phase}", "response": copy.deepcopy(self._response)}

    def _end(self, run: Run) -> Iterator[dict[str, Any]]:
        if self._ended:
            return
        if not self._response:
            yield from self._begin(run)
        yield from self._close_idle(also_waiting=True)
        self._ended = True
        status = _ENDS.get(run.status, run.status if run.status in ("incomplete", "cancelled") else "completed")
        if run.error is not None and status == "incomplete":
            status = "failed"  # cut off, not cut short
        if run.usage is not None:
            self._usage = usage_of(run.usage)
        self._response |= {"status": status, "usage": self._usage, "output": [entry.wire for entry in self._entries]}
        # The first id was what was known when the response began; clients refuse another.
        if run.model:
            self._response["model"] = run.model
        if run.completed_at is not None:
            self._response["completed_at"] = run.completed_at
        if status == "failed":
            error = dict(run.error or {})
            self._response["error"] = {"code": "server_error", "message": "the run failed", **error}
        if status == "incomplete":
            self._response["incomplete_details"] = {"reason": REASONS.get(run.finish_reason or "")}
        # There is no event for a cancelled response: the response in it says so.
        name = "incomplete" if status == "cancelled" else status
        yield {"type": f"response.{name}", "response": self._response}

    # -- messages

    def _created(self, message: Message) -> Iterator[dict[str, Any]]:
        if isinstance(message, AudioMessage) or message.metadata.get("audio_transcript"):
            return
        if (maker := self._maker(message)) is not None:
            beside = "plot" if isinstance(message, ImageMessage) else "output"
            beside = "logs" if isinstance(message, ConsoleMessage) else beside
            index = sum(kind == beside for kind, _ in maker.item.parts)
            self._tell(maker, message, beside, index)
            return
        kind = kind_of(message)
        if not kind:
            return
        entry = self._joined(message, kind)
        if entry is None:
            yield from self._close_idle()
            entry = yield from self._open(message, kind)
        parts = entry.wire.get({"summary": "summary", "command": "", "console": "output"}.get(kind, "content"), [])
        index = len(entry.wire["action"]["commands"]) if kind == "command" else len(parts)
        self._tell(entry, message, kind, index)
        if kind in _PARTS:
            stem, part_type = _PARTS[kind]
            part = content_part(part_type, "")
            parts.append(part)
            at = self._at(entry, kind, index)
            yield {"type": f"{stem}.added", **at, "part": dict(part)}
        elif kind == "command":
            entry.wire["action"]["commands"].append("")
            yield {"type": "response.shell_call_command.added", **self._at(entry, kind, index), "command": ""}
        elif kind == "console":
            parts.append({"stdout": "", "stderr": ""})

    def _tell(self, entry: _Entry, message: Message, kind: str, index: int) -> None:
        entry.live.add(message.id)
        entry.item.tell(kind, index, message.id)
        self._told[message.id] = (entry, kind, index)

    def _joined(self, message: Message, kind: str) -> _Entry | None:
        """The item that this message is a further part of: the one whose next part has this very id."""
        for entry in reversed(self._entries):
            if not entry.over and entry.group is not None and entry.group == message.group:
                index = sum(part == kind or {part, kind} == {"text", "refusal"} for part, _ in entry.item.parts)
                same = entry.wire["type"] == item_type(message, kind)
                if same and entry.item.id_for(kind, index) == message.id:
                    return entry
        return None

    def _maker(self, message: Message) -> _Entry | None:
        """The item of the call or code that this message came out of."""
        if not isinstance(message, (ConsoleMessage, ImageMessage, ToolOutputMessage)):
            return None
        if isinstance(message, ImageMessage) and message.role != "computer":
            return None
        if message.metadata.get("item_type") in OUTPUTS:
            return None
        wanted = "call" if isinstance(message, ToolOutputMessage) else "code"
        for entry, kind, _ in reversed([*self._told.values()]):
            ids = (entry.wire["id"], entry.wire.get("call_id"), entry.wire.get("_call_id"))
            ties = kind == "code" if message.call_id is None else message.call_id in ids
            if kind == wanted and ties and not entry.over and entry.wire["type"] not in _SINGLE:
                return entry
        return None

    def _open(self, message: Message, kind: str) -> Generator[dict[str, Any], None, _Entry]:
        """A new item. Gives its entry."""
        wire = begun(message, item_type(message, kind))
        entry = _Entry(wire, len(self._entries), message.group)
        self._entries.append(entry)
        yield {"type": "response.output_item.added", "output_index": entry.place, "item": copy.deepcopy(public(wire))}
        if wire["type"] in _TOLD_OF:
            yield {"type": f"response.{wire['type']}.in_progress", **self._at(entry)}
        return entry

    def _at(self, entry: _Entry, kind: str = "", index: int = 0) -> dict[str, Any]:
        at: dict[str, Any] = {"item_id": entry.wire["id"], "output_index": entry.place}
        if kind in _STREAMS and (key := _STREAMS[kind][1]):
            at[key] = index
        return at

    def _delta(self, delta: Delta) -> Iterator[dict[str, Any]]:
        message = delta.snapshot
        if isinstance(message, AudioMessage):
            yield {"type": "response.audio.delta", "delta": delta.value}
        elif isinstance(message, TextMessage) and message.metadata.get("audio_transcript"):
            yield {"type": "response.audio.transcript.delta", "delta": delta.value}
        elif (told := self._told.get(delta.message_id)) is not None and not delta.replace and delta.value:
            entry, kind, index = told
            stream = kind if kind != "call" else entry.wire["type"]
            if kind == "console":
                name = "stderr" if (delta.metadata or {}).get("stream") == "stderr" else "stdout"
                entry.wire["output"][index][name] += delta.value
                at = {**self._at(entry), "command_index": index}
                yield {"type": "response.shell_call_output_content.delta", **at, "delta": {name: delta.value}}
            elif stream in _STREAMS:
                item = {"type": f"{_STREAMS[stream][0]}.delta", **self._at(entry, kind, index), "delta": delta.value}
                if kind == "text":
                    item["logprobs"] = (delta.metadata or {}).get("logprobs", [])
                yield item

    def _annotation(self, id: str, annotation: Annotation) -> Iterator[dict[str, Any]]:
        told = self._told.get(id)
        if told is not None and told[1] == "text":
            entry, kind, index = told
            number = self._annotations[id] = self._annotations.get(id, -1) + 1
            at = {**self._at(entry, kind, index), "annotation_index": number}
            yield {"type": "response.output_text.annotation.added", **at, "annotation": cited(annotation)}

    def _done(self, message: Message) -> Iterator[dict[str, Any]]:
        if isinstance(message, AudioMessage):
            yield {"type": "response.audio.done"}
        elif isinstance(message, TextMessage) and message.metadata.get("audio_transcript"):
            yield {"type": "response.audio.transcript.done"}
        elif (told := self._told.get(message.id)) is not None:
            entry, kind, index = told
            yield from self._part_done(entry, kind, index, message)
            entry.live.discard(message.id)
            if message.status != "completed":
                entry.status = message.status
            wire = entry.wire
            wire |= {key: message.metadata[key] for key in EXTRAS.get(wire["type"], ()) if key in message.metadata}
            if wire["type"] in _SINGLE or (kind == "output" and not entry.live):
                yield from self._close(entry)

    def _part_done(self, entry: _Entry, kind: str, index: int, message: Message) -> Iterator[dict[str, Any]]:
        wire, at, content = entry.wire, self._at(entry, kind, index), message.content
        match kind:
            case "text" | "refusal" | "reasoning" | "summary":
                stem, type = _PARTS[kind]
                part = content_part(type, content)
                extra: dict[str, Any] = {}
                if isinstance(message, TextMessage):
                    extra["logprobs"] = part["logprobs"] = message.metadata.get("logprobs", [])
                    part["annotations"] = [cited(annotation) for annotation in message.annotations]
                wire["summary" if kind == "summary" else "content"][index] = part
                yield {"type": f"{_STREAMS[kind][0]}.done", **at, _STREAMS[kind][2]: content, **extra}
                yield {"type": f"{stem}.done", **at, "part": copy.deepcopy(part)}
                seal(wire, message)
            case "redacted":
                seal(wire, message)
            case "call":
                yield from self._call_done(entry, message, at)
            case "code":
                wire["code"] = content
                if message.status != "completed":
                    return  # its end would say that it is whole
                yield {"type": "response.code_interpreter_call_code.done", **at, "code": content}
                yield {"type": "response.code_interpreter_call.interpreting", **at}
            case "command":
                wire["action"]["commands"][index] = content
                if message.status != "completed":
                    return
                yield {"type": "response.shell_call_command.done", **at, "command": content}
            case "console":
                printed = wire["output"][index]
                if (outcome := message.metadata.get("outcome")) is not None:
                    printed["outcome"] = outcome
                at = {**at, "command_index": index}
                yield {"type": "response.shell_call_output_content.done", **at, "output": [dict(printed)]}
            case "logs":
                wire["outputs"].append({"type": "logs", "logs": content})
            case "plot":
                wire["outputs"].append({"type": "image", "url": url_of(message)})
            case "output" if wire["type"] == "mcp_call":
                wire["error" if message.metadata.get("error") else "output"] = content
            case "output":
                wire["results"] = parsed(content)
            case "result":
                key = OUTPUTS[wire["type"]]
                wire[key] = parsed(content) if key == "tools" else content
            case "image":
                wire["result"] = content
            case _:
                pass

    def _call_done(self, entry: _Entry, message: Message, at: dict[str, Any]) -> Iterator[dict[str, Any]]:
        wire = entry.wire
        type = wire["type"]
        if type in _STREAMS:
            stem, _, key = _STREAMS[type]
            wire[key] = message.content
            yield {"type": f"{stem}.done", **at, key: message.content}
        elif type == "mcp_approval_request":
            wire["arguments"] = message.content
        else:
            wire |= searched(type, message)
        wire["name"] = message.name if message.name and "name" in wire else wire.get("name")
        if wire["name"] is None:
            del wire["name"]

    # -- the end of an item

    def _close_idle(self, *, also_waiting: bool = False) -> Iterator[dict[str, Any]]:
        """Items all of whose messages are done are over when something else begins; an MCP call's output may come
        after the next call."""
        for entry in self._entries:
            if not entry.over and not entry.live and (also_waiting or entry.wire["type"] != "mcp_call"):
                yield from self._close(entry)

    def _close(self, entry: _Entry) -> Iterator[dict[str, Any]]:
        entry.over = True
        wire, type = entry.wire, entry.wire["type"]
        wire.pop("_call_id", None)
        if "status" in wire:
            wire["status"] = entry.status
        if type in _TOLD_OF:
            phase = "failed" if type == "mcp_call" and entry.status == "failed" else "completed"
            yield {"type": f"response.{type}.{phase}", **self._at(entry)}
        yield {"type": "response.output_item.done", "output_index": entry.place, "item": copy.deepcopy(wire)}

    def _confirmation(self, confirmation: Confirmation) -> Iterator[dict[str, Any]]:
        """A question, as the API's own for MCP calls; if its subject is such a one, it was told already."""
        subject = confirmation.subject
        told = self._told.get(subject.id)
        if told is not None and told[0].wire["type"] == "mcp_approval_request":
            return
        asked = ToolCallMessage(
            confirmation.id,
            name=subject.name or ("execute" if isinstance(subject, CodeMessage) else subject.type),
            content=subject.content
            if isinstance(subject, ToolCallMessage)
            else msgspec.json.encode({"code": subject.content, "language": subject.format}).decode(),
            provider_executed=True,
            metadata={"item_type": "mcp_approval_request"},
        )
        yield from self._close_idle()
        entry = yield from self._open(asked, "call")
        yield from self._call_done(entry, asked, self._at(entry))
        yield from self._close(entry)
