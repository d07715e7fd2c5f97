"""Encodes events as a Responses stream, for clients of that API.

Items come as OpenAI sends them: they are added, their parts receive deltas and are done, they are done; at the end
comes the entire response. A message's item has the message's id; messages that this protocol's decoder made go back
into the item that they came from.
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ...answers import Confirmation
from ...events import (
    OPEN_MESSAGE_STATUS,
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
from ..values import as_text
from .item_types import OUTPUT_KEYS
from .output_item import OutputItem
from .received_items import received_item
from .wire_items import item_type_of, part_kind_of, usage_object

__all__ = ["Encoder"]

# Why a response is incomplete: this API's words, and what other protocols and servers call them.
_INCOMPLETE_REASONS = {
    "max_output_tokens": "max_output_tokens",
    "max_messages": "max_messages",
    "content_filter": "content_filter",
    "steered": "steered",
    "length": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "model_length": "max_output_tokens",
}


class Encoder(base.Encoder):
    """Canonical events as Responses events.

    What a Responses stream cannot express, and what is sent in its place:

    | canonical | here |
    |---|---|
    | run steps, active lines, warnings, raw events, the outcome of a confirmation | nothing |
    | a confirmation of anything but an MCP call | an `mcp_approval_request` of its own, beside its subject |
    | a run that is `expired`; one that requires action | `failed`; `completed`, with what it waits for |
    | a call for which its provider wants an approval | an `mcp_approval_request`; once it ran, an `mcp_call` as well |
    | a call that turned out to want one after it was sent | `incomplete`, beside an `mcp_approval_request` |
    | `finish_reason` of a run that is not incomplete | nothing |
    | that of one that is: Chat's `length`; what this API has no word for | `max_output_tokens`; null |
    | a delta with `replace`, a preview of an image | the final content alone |
    | code in a language other than Python and shell | a `code_interpreter_call`, which is Python |
    | code's own `call_id`; which of its streams a code interpreter printed to | the item's id; nothing |
    | a code interpreter's image as base64 | its data URL |
    | a call whose arguments are an object, and not text (searches, computer, patches) | its JSON, without its spacing |
    | a tool call that its provider executed, of no type of this API | an `mcp_call` |
    | redacted reasoning without `encrypted_content` | an empty reasoning item, which is not a message |
    | the statuses of a call, or of code, and of what it gave, where they differ | the one that is not completed |
    | the `index` of parts that are not counted from 0 | counted from 0 |
    | console output without code that it came from | a `shell_call_output` |
    | a file; an image that is a path or a file id; messages of other types | nothing |
    | choices but the first | nothing |
    | metadata that the item has no place for; `step_id`, `recipient`, `created_at`, `name` of no call | nothing |
    """

    name = "openai_responses"
    sse_ids = False
    choices = False

    def __init__(self) -> None:
        self._sequence_number = 0
        self._response: dict[str, Any] = {}
        self._items: list[OutputItem] = []
        self._idle: dict[int, OutputItem] = {}  # those that end before another one begins, by their index
        self._origins: dict[tuple[str, str | None], list[OutputItem]] = {}  # of calls and of code, by the ids of calls
        self._requests: dict[str | None, OutputItem] = {}  # for approval, by the ids of calls
        self._sent: dict[str, OutputItem] = {}  # those that messages were sent in, by message id
        self._usage: dict[str, Any] | None = None
        self._has_ended = False

    def event_name(self, item: Mapping[str, Any]) -> str | None:
        """Return the item's type: each event of the API is named after its type."""
        name: str = item["type"]
        return name

    def feed(self, event: Event) -> Iterable[dict[str, Any]]:
        """Yield the events of the API for one event, numbered: none for what the API cannot express."""
        for item in self._encode(event):
            yield {"type": item.pop("type"), "sequence_number": self._sequence_number, **item}
            self._sequence_number += 1

    def _encode(self, event: Event) -> Iterator[dict[str, Any]]:
        match event:
            case RunCreated(run=run):
                yield from self._begin(run)
            case Created(message=message):
                yield from self._create(message)
            case Delta():
                yield from self._delta(event)
            case Done(message=message):
                yield from self._done(message)
            case AnnotationAdded():
                yield from self._annotation(event)
            case ConfirmationCreated(confirmation=confirmation):
                yield from self._confirmation(confirmation)
            case Usage():
                self._usage = usage_object(event)
            case RunDone(run=run):
                yield from self._end(run)
            case StreamException() if not self._has_ended:
                self._has_ended = True
                yield {"type": "error", "code": event.error, "message": event.message, "param": None}
            case _:
                pass

    # -- the response

    def _begin(self, run: Run) -> Iterator[dict[str, Any]]:
        self._response = {
            "id": run.id,
            "object": "response",
            "created_at": _timestamp(run.created_at or 0),
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
        if self._has_ended:
            return
        if not self._response:
            yield from self._begin(run)
        for item in self._items:
            if not (item.is_done or item.open_ids):
                yield from self._finish(item)
        self._has_ended = True
        status = OPEN_MESSAGE_STATUS[run.status]  # a response has the statuses of messages
        if run.error is not None and status == "incomplete":
            status = "failed"  # a stream that was cut off, not one that the provider cut short
        if run.usage is not None:
            self._usage = usage_object(run.usage)
        # The id stays the one with which the response began, because clients refuse another.
        self._response |= {"status": status, "usage": self._usage, "output": [item.wire for item in self._items]}
        if run.model:
            self._response["model"] = run.model
        if run.completed_at is not None:
            self._response["completed_at"] = _timestamp(run.completed_at)
        if status == "failed":
            self._response["error"] = {"code": "server_error", "message": "the run failed", **(run.error or {})}
        if status == "incomplete":
            self._response["incomplete_details"] = {"reason": _INCOMPLETE_REASONS.get(run.finish_reason or "")}
        # The API has no event for a cancelled response: the response in the event has the status.
        phase = "incomplete" if status == "cancelled" else status
        yield {"type": f"response.{phase}", "response": self._response}

    # -- messages

    def _create(self, message: Message) -> Iterator[dict[str, Any]]:
        """Begin a message: in the item of its call or code, as a further part of an item, or as a new item."""
        if _speech_stem(message) is not None:
            return
        if (item := self._item_of_origin(message)) is not None:
            kind = _output_kind(message)
            self._add_part(item, message, kind, item.count_of(kind))
            return
        kind = part_kind_of(message)
        if not kind:
            return
        if kind == "result" and (call := self._approved_call(message)) is not None:
            yield from self._run_approved(call, message)
            return
        item = self._item_to_join(message, kind)
        if item is None:
            yield from self._finish_idle_items()
            item = self._add_item(message, kind)
            yield from item.begin()
        index = item.next_index(kind)
        self._add_part(item, message, kind, index)
        yield from item.begin_part(kind, index)

    def _approved_call(self, output: Message) -> Message | None:
        """Return the call that was sent as a question, if this is its output."""
        request = self._requests.get(output.call_id or "")
        return request.messages[-1] if request is not None and request.messages else None

    def _run_approved(self, request: Message, output: Message) -> Iterator[dict[str, Any]]:
        """Yield the item of a call that was approved and ran. It begins where its output does, for which it waits."""
        fields = {"name": request.name, "content": request.content, "call_id": request.call_id or request.id}
        call = ToolCallMessage(f"{request.id}.call", provider_executed=True, group=f"{request.id}.call", **fields)
        item = yield from self._send_at_once(call, "call", approval_request_id=request.id)
        self._add_origin(item, "call")
        self._add_part(item, output, "output", 0)

    def _add_item(self, message: Message, kind: str) -> OutputItem:
        item = OutputItem(message, kind, len(self._items))
        self._items.append(item)
        if item.type == "mcp_approval_request":
            self._requests |= dict.fromkeys(item.call_ids, item)
        return item

    def _add_part(self, item: OutputItem, message: Message, kind: str, index: int) -> None:
        item.add_part(message, kind, index)
        self._sent[message.id] = item
        self._idle.pop(item.output_index, None)
        self._add_origin(item, kind)

    def _add_origin(self, item: OutputItem, kind: str) -> None:
        if kind in ("call", "code") and not item.has_single_message:
            call_ids: set[str | None] = {*item.call_ids, None}  # without one, an output belongs to the latest code
            for call_id in call_ids if kind == "code" else call_ids - {None}:
                self._origins.setdefault((kind, call_id), []).append(item)

    def _finish(self, item: OutputItem) -> Iterator[dict[str, Any]]:
        self._idle.pop(item.output_index, None)
        yield from item.finish()

    def _item_to_join(self, message: Message, kind: str) -> OutputItem | None:
        """Return the item that a message is a further part of: its next part would get the message's id."""
        type, id = item_type_of(message, kind), message.id
        while id := id.rpartition(".")[0]:  # the ids of further parts begin with that of the first one
            item = self._sent.get(id)
            if item is None or item.is_done or item.group is None or item.group != message.group:
                continue
            if item.type == type and item.next_id(kind) == message.id:
                return item
        return None

    def _item_of_origin(self, message: Message) -> OutputItem | None:
        """Return the item of the call or the code that gave this message."""
        if not isinstance(message, (ConsoleMessage, ImageMessage, ToolOutputMessage)):
            return None
        if isinstance(message, ImageMessage) and message.role != "computer":
            return None
        if as_text(message.metadata.get("item_type")) in OUTPUT_KEYS:
            return None  # it is an item of its own
        origin = "call" if isinstance(message, ToolOutputMessage) else "code"
        items = self._origins.get((origin, message.call_id), [])
        while items and items[-1].is_done:
            items.pop()
        return items[-1] if items else None

    def _delta(self, delta: Delta) -> Iterator[dict[str, Any]]:
        stem = _speech_stem(delta.snapshot)
        if stem is not None:
            yield {"type": f"{stem}.delta", "delta": delta.value}
        elif (item := self._sent.get(delta.message_id)) is not None and not delta.replace and delta.value:
            yield from item.extend_part(delta)

    def _annotation(self, event: AnnotationAdded) -> Iterator[dict[str, Any]]:
        if (item := self._sent.get(event.message_id)) is not None:
            kind, index = item.part_of(event.message_id)
            if kind == "text":
                yield item.add_annotation(event.annotation, index)

    def _done(self, message: Message) -> Iterator[dict[str, Any]]:
        stem = _speech_stem(message)
        if stem is not None:
            yield {"type": f"{stem}.done"}
        elif (item := self._sent.get(message.id)) is not None:
            yield from item.finish_part(message)
            kind, _ = item.part_of(message.id)
            if item.has_single_message or (kind == "output" and not item.open_ids):
                yield from self._finish(item)
            elif not item.open_ids and item.type != "mcp_call":
                self._idle[item.output_index] = item
        elif received_item(message):  # of a type that has no content here
            item = yield from self._send_at_once(message, "other")
            yield from self._finish(item)

    def _send_at_once(self, message: Message, kind: str, **fields: Any) -> Generator[dict[str, Any], None, OutputItem]:
        """Yield the events of an item with one message, which is done, but for the item's end. Returns the item, which has
        these fields, too."""
        yield from self._finish_idle_items()
        item = self._add_item(message, kind)
        item.wire |= fields
        item.add_part(message, kind, 0)
        yield from item.begin()
        yield from item.finish_part(message)
        return item

    def _finish_idle_items(self) -> Iterator[dict[str, Any]]:
        """Items all messages of which are done end when another item begins. MCP calls do not: their output may come
        after the next call."""
        for _, item in sorted(self._idle.items()):
            yield from self._finish(item)

    def _confirmation(self, confirmation: Confirmation) -> Iterator[dict[str, Any]]:
        """Yield the items of a question, in the form that the API has for MCP calls. One about such a request was sent
        with the request."""
        subject = confirmation.subject
        if (sent := self._sent.get(subject.id)) is not None:
            sent.waits_for_answer = True
            if sent.type == "mcp_approval_request":
                return
        content = subject.content
        if not isinstance(subject, ToolCallMessage):
            content = msgspec.json.encode({"code": content, "language": subject.format}).decode()
        request = ToolCallMessage(
            confirmation.id,
            name=subject.name or ("execute" if isinstance(subject, CodeMessage) else subject.type),
            content=content,
            provider_executed=True,
            metadata={"item_type": "mcp_approval_request"},
        )
        item = yield from self._send_at_once(request, "call")
        yield from self._finish(item)


def _speech_stem(message: Any) -> str | None:
    """Return the stem of the events of the response's speech and its transcript, None for other messages."""
    if isinstance(message, AudioMessage):
        return "response.audio"
    if isinstance(message, TextMessage) and message.metadata.get("audio_transcript"):
        return "response.audio.transcript"
    return None


def _output_kind(message: Message) -> str:
    """Return the kind of part that a message is in the item of its call or code."""
    match message:
        case ImageMessage():
            return "plot"
        case ConsoleMessage():
            return "logs"
        case _:
            return "output"


def _timestamp(seconds: float) -> float:
    """Seconds as an integer if they have no fraction, for clients that read integers."""
    return int(seconds) if seconds == int(seconds) else seconds
