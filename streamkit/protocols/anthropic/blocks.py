"""The content blocks that grow, each of which becomes one message: from its start, through its deltas, to its stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from ... import messages as m
from ...events import AnnotationAdded, Delta, Event, MessageDone, MessageEnded, NewMessage
from ..final_forms import content_key
from ..values import (
    WireObject,
    as_objects,
    as_text,
    is_object,
    parse_json,
    text_or_json,
    without_keys,
)
from .wire import InputDelta, TextDeltaFields, ThinkingDelta, annotation_of

__all__ = [
    "BLOCK_OF_DELTA",
    "CALL_BLOCKS",
    "GROWING_BLOCKS",
    "CompactionBlock",
    "ContentBlock",
    "Doubt",
    "PlainWay",
    "RepeatedCall",
    "ToolCallBlock",
]


class Growth(msgspec.Struct, frozen=True):
    """The way in which a type of block grows.

    Attributes:
        delta: the type of its deltas.
        key: the key of the text in the deltas and in the block.
        struct: the struct of such a delta where it is a plain one; None if it never is.
    """

    delta: str
    key: str
    struct: type | None = None


_INPUT = Growth("input_json_delta", "partial_json", InputDelta)

GROWING_BLOCKS = {
    "text": Growth("text_delta", "text", TextDeltaFields),
    "thinking": Growth("thinking_delta", "thinking", ThinkingDelta),
    "tool_use": _INPUT,
    "server_tool_use": _INPUT,
    "mcp_tool_use": _INPUT,
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

_NO_INPUT: tuple[Any, ...] = (None, {}, "")  # of a call whose arguments are yet to come, or that has none

Doubt = Literal["", "partial", "empty"]
"""Why a block may be incomplete that stopped: "" as any text may be, else for its arguments, as it is a call."""

PlainWay = tuple[type, str, Callable[[str, str], Delta]]
"""How the plain deltas of a block are read: their struct, the message's id, and what makes an event of both id and text."""


_MessageClass = type[m.Message]  # inside `ContentBlock`, `type` is a field


class ContentBlock(msgspec.Struct, eq=False):
    """A block that grows, and the message that it becomes: text or thinking.

    Attributes:
        type: the block's type, one of `GROWING_BLOCKS`.
        id: the message's id.
        fields: the fields of the message that do not change.
        message_class: the class of the message.
        metadata: the metadata of the message, which its end reports.
    """

    type: str
    id: str
    fields: dict[str, Any]
    message_class: _MessageClass = m.TextMessage
    metadata: dict[str, Any] = {}

    def accepts(self, delta_type: str) -> bool:
        """Whether a block of its type can have deltas of this type."""
        return (
            delta_type in (GROWING_BLOCKS[self.type].delta, "signature_delta")
            or BLOCK_OF_DELTA[delta_type] == self.type
        )

    def plain_way(self) -> PlainWay | None:
        """Return how its plain deltas are read, None if it has none."""
        struct = GROWING_BLOCKS[self.type].struct
        return None if struct is None else (struct, self.id, self.message_class.delta_event)

    def doubt(self) -> Doubt | None:
        """Why it may be incomplete if it stops now; None if it is certainly complete."""
        return ""

    def message(self, status: m.Status, content: str | None = None) -> m.Message:
        """Return the message of this block, with this status. Without `content`, what was streamed is its content."""
        return self.message_class(self.id, content=content, status=status, metadata={**self.metadata}, **self.fields)

    # -- its course, which is added to the events of the current item

    def open(self, events: list[Event]) -> None:
        """Its message is created."""
        events.append(NewMessage(self.message("in_progress")))

    def begin(self, wire: WireObject, events: list[Event]) -> None:
        """Begin the block. Some servers send its first text with the start."""
        if citations := wire.get("citations"):
            for citation in as_objects(citations):
                self.cite(citation, events)
        key = GROWING_BLOCKS[self.type].key
        if wire.get(key):
            self.grow({key: wire[key]}, events)

    def text_in(self, delta: WireObject) -> Any:
        """Return the value of a delta of its own type where its text should be."""
        return delta.get(GROWING_BLOCKS[self.type].key)

    def grow(self, delta: WireObject, events: list[Event]) -> None:
        """A delta of its own type comes."""
        if value := as_text(self.text_in(delta)):
            events.append(self._delta(value))

    def _delta(self, value: str, *, replace: bool = False) -> Event:
        make: Any = self.message_class.delta_event
        event: Event = make(self.id, value, replace)
        return event

    def cite(self, citation: WireObject, events: list[Event]) -> None:
        """A citation comes. One that is not an object reads as empty, and has no event."""
        if citation:
            events.append(AnnotationAdded(self.id, annotation_of(citation)))

    def end(self, status: m.Status, events: list[Event]) -> None:
        """End the block."""
        events.append(MessageDone(self.message(status)) if self.metadata else MessageEnded(self.id, status))


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
        return InputDelta, self.id, self._argument_delta

    def _argument_delta(self, id: str, value: str) -> Delta:
        self.json += value.encode(errors="surrogatepass")
        make: Any = self.message_class.delta_event
        event: Delta = make(id, value)
        return event

    def grow(self, delta: WireObject, events: list[Event]) -> None:
        """A piece of its arguments comes."""
        if value := as_text(self.text_in(delta)):
            events.append(self._argument_delta(self.id, value))

    def doubt(self) -> Doubt | None:
        """Its arguments have begun but are not a complete JSON object; or it is for us, and all of them came with its start,
        if there are any."""
        if self.json:
            return None if is_object(parse_json(self.json)) else "partial"
        if self.type != "tool_use":
            return None
        return "empty" if self.input in _NO_INPUT else ""

    def end(self, status: m.Status, events: list[Event]) -> None:
        """End the block, with arguments that came with its start and were never streamed."""
        self._content = self.content
        events.append(MessageDone(self.message(status, None if self.json else self.arguments or None)))
        self.json = bytearray()


class RepeatedCall(ToolCallBlock, kw_only=True):
    """A call that has the id of another one. It gets a message when it ends, unless it is the same call again.

    Attributes:
        earlier: the other one.
        warn: adds a warning about the current item.
    """

    earlier: ToolCallBlock
    warn: Callable[[str, str], None]

    def plain_way(self) -> PlainWay | None:
        """Return None: it has no plain deltas."""
        return None

    def open(self, events: list[Event]) -> None:
        """Do nothing: it has no message yet."""

    def grow(self, delta: WireObject, events: list[Event]) -> None:
        """A piece of its arguments comes."""
        self.json += as_text(self.text_in(delta)).encode(errors="surrogatepass")

    def end(self, status: m.Status, events: list[Event]) -> None:
        """End the block."""
        if (self.name, self.content) == (self.earlier.name, self.earlier.content):
            self.warn("repeated-call", f"the call {self.fields['call_id']!r} came again; it was dropped")
        else:
            events.append(MessageDone(self.message(status, self.arguments)))


class CompactionBlock(ContentBlock):
    """A summary of the conversation so far. Each of its deltas has it from the beginning.

    Attributes:
        has_summary: whether a delta has come, which the next one replaces.
    """

    has_summary: bool = False

    def doubt(self) -> Doubt | None:
        """Do nothing: it is complete when it stops."""
        return None

    def grow(self, delta: WireObject, events: list[Event]) -> None:
        """A delta comes."""
        self.metadata |= without_keys(delta, "type", "content")
        if value := as_text(self.text_in(delta)):
            events.append(self._delta(value, replace=self.has_summary))
            self.has_summary = True
