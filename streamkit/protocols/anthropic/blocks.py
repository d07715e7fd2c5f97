"""The content blocks that grow, each of which becomes one message: from its start, through its deltas, to its stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from ... import messages as m
from ...core.json_fields import JsonFields
from ...events import AnnotationAdded, CodeDelta, Delta, MessageDone, MessageEnded, NewMessage
from ..final_forms import content_key
from ..output import Output
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
from .wire import CODE_TOOLS, DELTA_KEYS, PLAIN_DELTAS, annotation_of

__all__ = [
    "BLOCK_OF_DELTA",
    "CALL_BLOCKS",
    "GROWING_BLOCKS",
    "CompactionBlock",
    "ContentBlock",
    "Doubt",
    "PlainWay",
    "RepeatedCall",
    "ServerCodeBlock",
    "ToolCallBlock",
]


CALL_BLOCKS = {"tool_use": False, "server_tool_use": True, "mcp_tool_use": True}
"""The types of blocks that are calls, and whether the provider executes them."""

GROWING_BLOCKS = {
    "text": "text_delta",
    "thinking": "thinking_delta",
    **dict.fromkeys(CALL_BLOCKS, "input_json_delta"),
    "compaction": "compaction_delta",
}
"""The types of blocks that grow, and of their deltas. Any other block comes complete with its start."""

BLOCK_OF_DELTA = {
    "citations_delta": "text",
    "signature_delta": "thinking",
    **{delta: type for type, delta in reversed(GROWING_BLOCKS.items())},
}
"""The type of the block that is begun for a delta without a fitting one."""

_NO_INPUT: tuple[Any, ...] = (None, {}, "")  # of a call whose arguments are yet to come, or that has none

Doubt = Literal["", "partial", "empty"]
"""Why a block may be incomplete that stopped: "" as any text may be, else for its arguments, as it is a call."""

PlainWay = tuple[Any, str, Callable[[str, str], Delta]]
"""How the plain deltas of a block are read: their struct, the message's id, and what makes an event of both id and text."""


_MessageClass = type[m.Message]  # inside `ContentBlock`, `type` is a field


class ContentBlock(msgspec.Struct, eq=False):
    """A block that grows, and the message that it becomes: text or thinking.

    Attributes:
        output: takes the events of its course.
        type: the block's type, one of `GROWING_BLOCKS`.
        id: the message's id.
        fields: the fields of the message that do not change.
        message_class: the class of the message.
        metadata: the metadata of the message, which its end reports.
    """

    output: Output
    type: str
    id: str
    fields: dict[str, Any]
    message_class: _MessageClass = m.TextMessage
    metadata: dict[str, Any] = {}

    def accepts(self, delta_type: str) -> bool:
        """Whether a block of its type can have deltas of this type."""
        own = (GROWING_BLOCKS[self.type], "signature_delta")
        return delta_type in own or BLOCK_OF_DELTA[delta_type] == self.type

    def plain_way(self) -> PlainWay | None:
        """Return how its plain deltas are read, None if it has none."""
        struct = PLAIN_DELTAS.get(GROWING_BLOCKS[self.type])
        return None if struct is None else (struct, self.id, self.message_class.delta_event)

    def doubt(self) -> Doubt | None:
        """Why it may be incomplete if it stops now; None if it is certainly complete."""
        return ""

    def message(self, status: m.Status, content: str | None = None) -> m.Message:
        """Return the message of this block, with this status. Without `content`, what was streamed is its content."""
        return self.message_class(self.id, content=content, status=status, metadata={**self.metadata}, **self.fields)

    # -- its course

    def open(self) -> None:
        """Its message is created."""
        self.output.emit(NewMessage(self.message("in_progress")))

    def begin(self, wire: WireObject) -> None:
        """Begin the block. Some servers send its first text with the start."""
        for citation in as_objects(wire.get("citations")):
            self.cite(citation)
        if self.text_in(wire):
            self.grow(wire)

    def text_in(self, wire: WireObject) -> Any:
        """Return the value where a delta of its own type, or its start, has its text."""
        return wire.get(DELTA_KEYS[GROWING_BLOCKS[self.type]])

    def grow(self, delta: WireObject) -> None:
        """A delta of its own type comes."""
        if value := as_text(self.text_in(delta)):
            self.output.emit(self.message_class.delta_event(self.id, value))

    def cite(self, citation: WireObject) -> None:
        """A citation comes. One that is not an object reads as empty, and has no event."""
        if citation:
            self.output.emit(AnnotationAdded(self.id, annotation_of(citation)))

    def end(self, status: m.Status) -> None:
        """End the block."""
        self.output.emit(MessageDone(self.message(status)) if self.metadata else MessageEnded(self.id, status))


class ToolCallBlock(ContentBlock):
    """A block that is a tool call: pieces of the JSON of its arguments. Some servers send all of it with the start.

    Attributes:
        input: the `input` that came with the start.
        json: the pieces so far.
    """

    input: Any = None
    json: bytearray = msgspec.field(default_factory=bytearray)
    _content: int | None = None  # of a call that has ended

    @property
    def name(self) -> str:
        """The name of the tool, "" if it has none."""
        return self.fields.get("name") or ""

    @property
    def arguments(self) -> str:
        """Its arguments so far as JSON, if the server sent any."""
        if self.json:
            return self.json.decode(errors="surrogatepass")
        return "" if self.input in _NO_INPUT else text_or_json(self.input)

    @property
    def content(self) -> int:
        """A value that is equal for calls with equal arguments."""
        return content_key(self.arguments) if self._content is None else self._content

    def plain_way(self) -> PlainWay | None:
        """Return how its plain deltas are read."""
        return PLAIN_DELTAS["input_json_delta"], self.id, self._argument_delta

    def _argument_delta(self, id: str, value: str) -> Delta:
        self.json += value.encode(errors="surrogatepass")
        return self.message_class.delta_event(id, value)

    def grow(self, delta: WireObject) -> None:
        """A piece of its arguments comes."""
        if value := as_text(self.text_in(delta)):
            self.output.emit(self._argument_delta(self.id, value))

    def doubt(self) -> Doubt | None:
        """Its arguments have begun but are not a complete JSON object; or it is for us, and all of them came with its start,
        if there are any."""
        if self.json:
            return None if is_object(parse_json(self.json)) else "partial"
        if self.type != "tool_use":
            return None
        return "empty" if self.input in _NO_INPUT else ""

    def end(self, status: m.Status) -> None:
        """End the block, with arguments that came with its start and were never streamed."""
        self._content = self.content
        self.output.emit(MessageDone(self.message(status, None if self.json else self.arguments or None)))
        self.json = bytearray()


class RepeatedCall(ToolCallBlock, kw_only=True):
    """A call that has the id of another one. It gets a message when it ends, unless it is the same call again.

    Attributes:
        earlier: the other one.
    """

    earlier: ToolCallBlock

    def plain_way(self) -> PlainWay | None:
        """Return None: it has no plain deltas."""
        return None

    def open(self) -> None:
        """Do nothing: it has no message yet."""

    def grow(self, delta: WireObject) -> None:
        """A piece of its arguments comes."""
        self.json += as_text(self.text_in(delta)).encode(errors="surrogatepass")

    def end(self, status: m.Status) -> None:
        """End the block."""
        if (self.name, self.content) == (self.earlier.name, self.earlier.content):
            self.output.warn("repeated-call", f"the call {self.fields['call_id']!r} came again; it was dropped")
        else:
            self.output.emit(MessageDone(self.message(status, self.arguments)))


class ServerCodeBlock(ToolCallBlock, kw_only=True):
    """A call of a server tool that runs code, one of `CODE_TOOLS`: its input is JSON, with the code in one of its fields. Its message
    is the code alone, which is extracted from the pieces of JSON as they come.

    Attributes:
        reader: extracts the code from the pieces of the JSON.
        is_complete: whether all of the code was extracted.
    """

    reader: JsonFields
    is_complete: bool = False

    def plain_way(self) -> PlainWay | None:
        """Return None: it has no plain deltas, because a piece of JSON need not have code."""
        return None

    def grow(self, delta: WireObject) -> None:
        """A piece of its JSON comes: the event of the code in it, if there is any."""
        piece = as_text(self.text_in(delta))
        self.json += piece.encode(errors="surrogatepass")
        if code := self._code_in(piece):
            self.output.emit(CodeDelta(self.id, code))

    def _code_in(self, piece: str) -> str:
        """Return the code in a piece of the JSON. A second field with the same key counts only at the block's end."""
        if self.is_complete:
            return ""
        code = ""
        for found in self.reader.feed(piece):
            code += found.text
            if found.done:
                self.is_complete = True
                break
        return code

    def end(self, status: m.Status) -> None:
        """End the block, with the rest of its input, and with code that came with its start and was never streamed."""
        self._content, key = self.content, CODE_TOOLS[self.name][1]
        input = as_object(parse_json(self.json) if self.json else self.input)
        content = text_or_none(input.get(key))
        if more := {name: value for name, value in input.items() if name != key or content is None}:
            self.metadata["input"] = more
        self.output.emit(MessageDone(self.message(status, content)))
        self.json = bytearray()


class CompactionBlock(ContentBlock):
    """A summary of the conversation so far. Each of its deltas has it from the beginning.

    Attributes:
        has_summary: whether a delta has come, which the next one replaces.
    """

    has_summary: bool = False

    def doubt(self) -> Doubt | None:
        """Do nothing: it is complete when it stops."""
        return None

    def grow(self, delta: WireObject) -> None:
        """A delta comes."""
        self.metadata |= without_keys(delta, "type", "content")
        if value := as_text(self.text_in(delta)):
            self.output.emit(self.message_class.delta_event(self.id, value, self.has_summary))
            self.has_summary = True
