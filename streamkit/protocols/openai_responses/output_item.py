"""One output item while it is sent: its wire form so far, and the events about it and about its parts."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from ...events import Delta
from ...messages import Annotation, Message, TextMessage
from ..request_content import image_url
from ..values import without_keys
from .item_types import OUTPUT_KEYS, PARTS
from .part_ids import PartIds
from .received_items import received_item, restore
from .wire import STEMS, TEXT_STREAMS, json_or_text
from .wire_items import (
    annotation_object,
    call_arguments,
    content_part,
    item_type_of,
    new_item,
    own_metadata,
)

__all__ = ["OutputItem"]

_TYPES_WITH_PROGRESS = {
    "code_interpreter_call",
    "mcp_call",
    "web_search_call",
    "file_search_call",
    "image_generation_call",
}
# Items that are done when their message is. The others may get another part, or what they gave.
_SINGLE_MESSAGE_TYPES = {
    *("function_call", "custom_tool_call", "mcp_approval_request", "image_generation_call", "program"),
    *("computer_call", "local_shell_call", "apply_patch_call"),
    *OUTPUT_KEYS,
}


class OutputItem:
    """An output item that begins with this message, a part of this kind.

    Attributes:
        wire: its wire form as far as it was sent.
        type: its type.
        output_index: its place in the response.
        group: the group of its messages.
        parts: the ids that a decoder will give to its messages.
        open_ids: the ids of its messages that are not done.
        status: how it ends: as its last message that was not completed.
        is_done: whether its end was sent.
        messages: its messages that are done.
        call_ids: the ids by which the output of a call or of code names it.
        waits_for_answer: whether a question about it was sent.
    """

    def __init__(self, message: Message, kind: str, output_index: int) -> None:
        self.type = item_type_of(message, kind)
        self.wire = new_item(message, self.type)
        self.output_index = output_index
        self.group = message.group
        self.parts = PartIds(message.id)
        self.open_ids: set[str] = set()
        self.status = "completed"
        self.is_done = False
        self.messages: list[Message] = []
        self.waits_for_answer = False
        self._counts: dict[str, int] = {}  # of its parts, by kind
        self._printed: dict[tuple[int, str], list[str]] = {}  # by part and stream
        self._unbegun: set[tuple[str, int]] = set()  # the parts that began without an event
        self.call_ids = {message.id, self.wire.get("call_id")}
        if self.type == "code_interpreter_call":
            self.call_ids.add(message.call_id)  # its wire form has no call_id

    @property
    def has_single_message(self) -> bool:
        """Whether it is done when its first message is."""
        return self.type in _SINGLE_MESSAGE_TYPES

    def count_of(self, kind: str) -> int:
        """Return how many parts of this kind it has."""
        return self._counts.get(kind, 0)

    def next_id(self, kind: str) -> str:
        """Return the id that a decoder would give to a further part of this kind. Texts and refusals are counted
        together."""
        counted = ("text", "refusal") if kind in ("text", "refusal") else (kind,)
        return self.parts.id_for(kind, sum(map(self.count_of, counted)))

    def _event(self, type: str, kind: str = "", index: int = 0, **fields: Any) -> dict[str, Any]:
        """Return an event about the item, or about a part of this kind."""
        event: dict[str, Any] = {"type": type, "item_id": self.wire["id"], "output_index": self.output_index}
        if kind in STEMS and (index_key := TEXT_STREAMS[STEMS[kind]].index_key):
            event[index_key] = index
        return {**event, **fields}

    # -- the item

    def begin(self) -> Iterator[dict[str, Any]]:
        """Yield the events of its beginning."""
        item = copy.deepcopy(self.wire)
        yield {"type": "response.output_item.added", "output_index": self.output_index, "item": item}
        if self.type in _TYPES_WITH_PROGRESS:
            yield self._event(f"response.{self.type}.in_progress")

    def finish(self) -> Iterator[dict[str, Any]]:
        """Yield the events of its end."""
        self.is_done = True
        if self.waits_for_answer and self.type == "mcp_call" and self.wire["output"] is self.wire["error"] is None:
            self.status = "incomplete"  # nobody ran it
        self.wire["status"] = self.status
        forms = [form for message in self.messages if (form := received_item(message)).get("type") == self.type]
        if forms:  # it came from this API
            # Its ids stay those that it began with; clients refuse others.
            ids: dict[str, Any] = {key: self.wire[key] for key in ("id", "call_id") if key in self.wire}
            self.wire = {**without_keys(restore(forms[-1], self.messages), "id", "call_id"), **ids}
        if self.type in _TYPES_WITH_PROGRESS:
            phase = "failed" if self.type == "mcp_call" and self.status == "failed" else "completed"
            yield self._event(f"response.{self.type}.{phase}")
        item = copy.deepcopy(self.wire)
        yield {"type": "response.output_item.done", "output_index": self.output_index, "item": item}

    # -- its parts

    def part_of(self, id: str) -> tuple[str, int]:
        """Return the kind and the index of the part that the message with this id is."""
        _, kind, index = self.parts.by_id[id]
        return kind, index

    def add_part(self, message: Message, kind: str, index: int) -> None:
        """Count a message among the item's parts."""
        self.open_ids.add(message.id)
        if (kind, index) not in self.parts.by_part:
            self._counts[kind] = self.count_of(kind) + 1
        self.parts.assign(kind, index, message.id)

    def next_index(self, kind: str) -> int:
        """Return the index that a further part of this kind has in its list."""
        if kind == "command":
            return len(self.wire["action"]["commands"])
        list_key = PARTS[kind].list_key
        return len(self.wire[list_key]) if list_key else 0

    def begin_part(self, kind: str, index: int) -> Iterator[dict[str, Any]]:
        """Yield the events of a part's beginning. Reasoning may end without a text, so its part begins with its first
        delta."""
        if kind in ("reasoning", "summary"):
            self._unbegun.add((kind, index))
        else:
            yield from self._begin_part(kind, index)

    def _begin_part(self, kind: str, index: int) -> Iterator[dict[str, Any]]:
        self._unbegun.discard((kind, index))
        if part_type := PARTS[kind].content_type:
            self.wire[PARTS[kind].list_key].append(content_part(part_type, ""))
            yield self._event(f"{_part_stem(kind)}.added", kind, index, part=content_part(part_type, ""))
        elif kind == "command":
            self.wire["action"]["commands"].append("")
            yield self._event("response.shell_call_command.added", kind, index, command="")
        elif kind == "console":
            self.wire["output"].append({"stdout": "", "stderr": ""})

    def extend_part(self, delta: Delta) -> Iterator[dict[str, Any]]:
        """Yield the event of a part's delta: none for parts that are sent when they are done."""
        kind, index = self.part_of(delta.message_id)
        if (kind, index) in self._unbegun:
            yield from self._begin_part(kind, index)
        stem = STEMS.get(self.type if kind == "call" else kind)
        metadata = delta.metadata or {}
        if kind == "console":
            stream = "stderr" if metadata.get("stream") == "stderr" else "stdout"
            self._printed.setdefault((index, stream), []).append(delta.value)
            type = "response.shell_call_output_content.delta"
            yield self._event(type, command_index=index, delta={stream: delta.value})
        elif stem is not None:
            logprobs = {"logprobs": metadata.get("logprobs", [])} if kind == "text" else {}
            yield self._event(f"{stem}.delta", kind, index, delta=delta.value, **logprobs)

    def add_annotation(self, annotation: Annotation, index: int) -> dict[str, Any]:
        """Return the event of a citation in the text at this index."""
        wire, sent = annotation_object(annotation), self.wire["content"][index]["annotations"]
        event = self._event("response.output_text.annotation.added", "text", index, annotation_index=len(sent))
        sent.append(wire)
        return {**event, "annotation": wire}

    def finish_part(self, message: Message) -> Iterator[dict[str, Any]]:
        """Yield the events of a part's end."""
        kind, index = self.part_of(message.id)
        if (kind, index) in self._unbegun and not message.content:
            self._add_encrypted_content(message)
        else:
            yield from self._finish_content(message, kind, index)
        self.messages.append(message)
        self.open_ids.discard(message.id)
        if message.status != "completed":
            self.status = message.status
        self.wire |= own_metadata(self.type, message)

    def _finish_content(self, message: Message, kind: str, index: int) -> Iterator[dict[str, Any]]:
        wire, content = self.wire, message.content
        match kind:
            case "text" | "refusal" | "reasoning" | "summary":
                yield from self._finish_text(message, kind, index)
            case "redacted":
                self._add_encrypted_content(message)
            case "call":
                yield from self._finish_call(message)
            case "code":
                wire["code"] = content
                if message.status == "completed":  # these events would state that it is complete
                    yield self._event("response.code_interpreter_call_code.done", code=content)
                    yield self._event("response.code_interpreter_call.interpreting")
            case "program":
                wire["code"] = content
            case "command":
                wire["action"]["commands"][index] = content
                if message.status == "completed":
                    yield self._event("response.shell_call_command.done", kind, index, command=content)
            case "console":
                yield self._finish_console(message, index)
            case "logs":
                wire["outputs"].append({"type": "logs", "logs": content})
            case "plot":
                wire["outputs"].append({"type": "image", "url": image_url(message)})
            case "output" if self.type == "mcp_call":
                wire["error" if message.metadata.get("error") else "output"] = content
            case "output":
                wire["results"] = json_or_text(content)
            case "result":
                key = OUTPUT_KEYS[self.type]
                wire[key] = json_or_text(content) if key == "tools" else content
            case "image":
                wire["result"] = content
            case _:
                pass

    def _finish_text(self, message: Message, kind: str, index: int) -> Iterator[dict[str, Any]]:
        part = content_part(PARTS[kind].content_type, message.content)
        fields: dict[str, Any] = {TEXT_STREAMS[STEMS[kind]].text_key: message.content}
        if isinstance(message, TextMessage):
            fields["logprobs"] = part["logprobs"] = message.metadata.get("logprobs", [])
            part["annotations"] = [annotation_object(annotation) for annotation in message.annotations]
        self.wire[PARTS[kind].list_key][index] = part
        yield self._event(f"{STEMS[kind]}.done", kind, index, **fields)
        yield self._event(f"{_part_stem(kind)}.done", kind, index, part=copy.deepcopy(part))
        self._add_encrypted_content(message)

    def _add_encrypted_content(self, message: Message) -> None:
        if (encrypted := message.metadata.get("encrypted_content")) is not None:
            self.wire["encrypted_content"] = encrypted

    def _finish_call(self, message: Message) -> Iterator[dict[str, Any]]:
        if self.type in STEMS:
            stem = STEMS[self.type]
            final_text = {TEXT_STREAMS[stem].text_key: message.content}
            self.wire |= final_text
            yield {**self._event(f"{stem}.done"), **final_text}
        elif self.type == "mcp_approval_request":
            self.wire["arguments"] = message.content
        else:
            self.wire |= call_arguments(self.type, message)
        if message.name and "name" in self.wire:
            self.wire["name"] = message.name

    def _finish_console(self, message: Message, index: int) -> dict[str, Any]:
        printed = self.wire["output"][index]
        for stream in printed:
            printed[stream] = "".join(self._printed.pop((index, stream), ()))
        if (outcome := message.metadata.get("outcome")) is not None:
            printed["outcome"] = outcome
        type = "response.shell_call_output_content.done"
        return self._event(type, command_index=index, output=[dict(printed)])


def _part_stem(kind: str) -> str:
    """Return the stem of the events with which a content part begins and ends."""
    return "response.reasoning_summary_part" if kind == "summary" else "response.content_part"
