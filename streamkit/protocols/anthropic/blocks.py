"""The content blocks that grow, each of which becomes one message: from its start, through its deltas, to its stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from ... import messages as m
from ...core.json_fields import JsonFields
from ...events import AnnotationAdded, CodeDelta, Event, MessageCreated, MessageDone
from ..values import (
    WireObject,
    as_object,
    as_objects,
    as_text,
    is_object,
    parse_json,
    text_or_json,
    text_or_none,
    without_keys,
)
from .wire import CODE_TOOLS, annotation_of

__all__ = ["BLOCK_OF_DELTA", "CALL_BLOCKS", "GROWING_BLOCKS", "Block", "Place"]


class Growth(msgspec.Struct, frozen=True):
    """How a type of block grows: the type of its deltas, and the key of the text in the deltas and in the block."""

    delta: str
    key: str


GROWING_BLOCKS = {
    "text": Growth("text_delta", "text"),
    "thinking": Growth("thinking_delta", "thinking"),
    "tool_use": Growth("input_json_delta", "partial_json"),
    "server_tool_use": Growth("input_json_delta", "partial_json"),
    "mcp_tool_use": Growth("input_json_delta", "partial_json"),
    "compaction": Growth("compaction_delta", "content"),
}
"""The types of blocks that grow. Any other block comes complete with its start."""

BLOCK_OF_DELTA = {
    "text_delta": "text",
    "citations_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
    "compaction_delta": "compaction",
}
"""The type of the block that is begun for a delta without a fitting one."""

CALL_BLOCKS = {"tool_use": False, "server_tool_use": True, "mcp_tool_use": True}
"""The types of blocks that are calls, and whether the provider executes them."""

_NO_INPUT: tuple[Any, ...] = (None, {}, "")


class Place:
    """The place of a block: its message's id, the provider's message that it is in, and its index there."""

    def __init__(self, id: str, group: str | None, index: int) -> None:
        self.id = id
        self.fields: dict[str, Any] = {"group": group, "index": index}


class Block:
    """A block that grows, and the message that it becomes.

    The input of a server tool that runs code is JSON with the code in one of its fields. Its message is the code alone,
    which is extracted from the pieces of JSON as they come.

    Attributes:
        type: the block's type, one of `GROWING_BLOCKS`.
        id: the message's id.
        metadata: the metadata of the message, which its end reports.
        message_class: the class of the message.
    """

    __slots__ = (
        "_code_key",
        "_code_reader",
        "_fields",
        "_growth",
        "_has_summary",
        "_input",
        "_is_code_complete",
        "_json",
        "id",
        "message_class",
        "metadata",
        "type",
    )

    def __init__(self, wire: WireObject, type: str, place: Place) -> None:
        self.type = type
        self.id = place.id
        self.metadata: dict[str, Any] = {}
        self._growth = GROWING_BLOCKS[type]
        self._fields = place.fields
        self._json = bytearray()  # the arguments of a call so far
        self._has_summary = False
        self._code_key = ""
        self._code_reader: JsonFields | None = None
        self._is_code_complete = False
        self.message_class = self._message_class(wire)
        self._input: Any = wire.get("input")

    def _message_class(self, wire: WireObject) -> type[m.Message]:
        """The class of its message, whose fields and metadata are set along with it."""
        match self.type:
            case "text":
                return m.TextMessage
            case "thinking":
                self.metadata = {"signature": wire["signature"]} if as_text(wire.get("signature")) else {}
                return m.ReasoningMessage
            case "compaction":
                self.metadata = without_keys(wire, "type", "content")
                self._fields["type"] = "compaction"
                return m.Message
            case _:
                return self._call_class(wire)

    def _call_class(self, wire: WireObject) -> type[m.Message]:
        name = as_text(wire.get("name"))
        self.metadata = without_keys(wire, "type", "id", "name", "input")
        self._fields |= {"name": name or None, "call_id": text_or_none(wire.get("id"))}
        if self.type == "server_tool_use" and name in CODE_TOOLS:
            self._fields["format"], self._code_key = CODE_TOOLS[name]
            self._code_reader = JsonFields(self._code_key)
            return m.CodeMessage
        if CALL_BLOCKS[self.type]:
            self.metadata["block_type"] = self.type
            self._fields["provider_executed"] = True
        return m.ToolCallMessage

    def accepts(self, delta_type: str) -> bool:
        """Whether a block of its type can have deltas of this type."""
        return delta_type in (self._growth.delta, "signature_delta") or BLOCK_OF_DELTA[delta_type] == self.type

    @property
    def has_grown(self) -> bool:
        """Whether a delta with text came, of a call or a compaction."""
        return bool(self._json) or self._has_summary

    @property
    def is_code(self) -> bool:
        """Whether its message is code, which is a part of the text of its deltas."""
        return self._code_reader is not None

    @property
    def delta_event(self) -> Callable[..., Event]:
        """Makes the event of a plain delta. Called with the message's id, the text, and `raw_item=`."""
        return self._argument_delta if self.type in CALL_BLOCKS else self.message_class.delta_event

    def _argument_delta(self, id: str, value: str, *, raw_item: Any = None) -> Event:
        self._json += value.encode(errors="surrogatepass")
        make: Any = self.message_class.delta_event
        event: Event = make(id, value, raw_item=raw_item)
        return event

    def code_deltas(self, value: str) -> list[Event]:
        """The event of the code in a piece of its JSON, if there is any."""
        self._json += value.encode(errors="surrogatepass")
        assert self._code_reader is not None
        code = self._code_in(self._code_reader, value)
        return [CodeDelta(self.id, code)] if code else []

    @property
    def has_partial_arguments(self) -> bool:
        """Whether it is a call whose arguments have begun but are not a complete JSON object."""
        return self.type in CALL_BLOCKS and self.has_grown and not is_object(parse_json(self._json))

    @property
    def has_no_arguments(self) -> bool:
        """Whether it is a call for us without any arguments: it takes none, or was cut short before them."""
        return self.type == "tool_use" and not self.has_grown and self._input in _NO_INPUT

    @property
    def has_unstreamed_arguments(self) -> bool:
        """Whether it is a call for us whose arguments, if any, all came with its start."""
        return self.type == "tool_use" and not self.has_grown

    def _message(self, content: str | None = None, status: m.Status = "in_progress") -> m.Message:
        return self.message_class(self.id, content=content, status=status, metadata=dict(self.metadata), **self._fields)

    def begin(self, wire: WireObject) -> Iterator[Event]:
        """The events of its start, with which some servers send its first text."""
        yield MessageCreated(self._message())
        for citation in as_objects(wire.get("citations")):
            yield from self.cite(citation)
        if first := as_text(wire.get(self._growth.key)):
            yield from self.grow({self._growth.key: first})

    def text_in(self, delta: WireObject) -> Any:
        """The value of a delta of its own type where its text should be."""
        return delta.get(self._growth.key)

    def grow(self, delta: WireObject) -> Iterator[Event]:
        """The events of a delta of its own type."""
        value = as_text(self.text_in(delta))
        if self.type == "compaction":
            self.metadata |= without_keys(delta, "type", "content")
        if not value:
            return
        replaces = self._has_summary  # each delta of a compaction has the summary from its beginning
        self._has_summary = self.type == "compaction"
        if self.type in CALL_BLOCKS:
            self._json += value.encode(errors="surrogatepass")
        if self._code_reader is not None:
            value = self._code_in(self._code_reader, value)
        if value:
            make: Any = self.message_class.delta_event
            yield make(self.id, value, replaces)

    def _code_in(self, reader: JsonFields, piece: str) -> str:
        """The code in a piece of the JSON. A second field with the same key counts only at the block's end."""
        if self._is_code_complete:
            return ""
        code = ""
        for found in reader.feed(piece):
            code += found.text
            if found.done:
                self._is_code_complete = True
                break
        return code

    def cite(self, citation: WireObject) -> Iterator[Event]:
        """The event of a citation. One that is no object reads as empty, and has none."""
        if citation:
            yield AnnotationAdded(self.id, annotation_of(citation))

    def end(self, status: m.Status) -> Iterator[Event]:
        """The event of its stop, with what came with its start and was never streamed."""
        content: str | None = None
        if self._code_reader is not None:
            input = as_object(parse_json(self._json) if self.has_grown else self._input)
            content = text_or_none(input.get(self._code_key))
            if more := {key: input[key] for key in input if key != self._code_key or content is None}:
                self.metadata["input"] = more
        elif self.type in CALL_BLOCKS and not self.has_grown and self._input not in _NO_INPUT:
            content = text_or_json(self._input)
        yield MessageDone(self._message(content, status))
