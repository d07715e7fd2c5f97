"""The content blocks of an answer, and the messages that tell of them.

A block that grows is one message, from its start to its stop. One that comes whole, as what a server tool gave, is
told at once: it may be several messages, beside the call's own, whose ids are made from the call's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ... import messages as m
from ...core.json_fields import JsonFields
from ...events import AnnotationAdded, Event, MessageCreated, MessageDone
from ..values import is_object
from .wire import CODE, Wire, annotation_of, items_of, json_text, mapping, parsed, text, without

__all__ = ["BLOCK_OF", "CALLS", "KEPT", "PIECES", "Block", "Held", "Place", "tell_whole"]

# The blocks that grow: the type of their deltas, and the key of the text in delta and block.
PIECES = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
    "server_tool_use": ("input_json_delta", "partial_json"),
    "mcp_tool_use": ("input_json_delta", "partial_json"),
    "compaction": ("compaction_delta", "content"),
}
# The type of the block that a delta belongs to which nothing began.
BLOCK_OF = {
    "text_delta": "text",
    "citations_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
    "compaction_delta": "compaction",
}
CALLS = {"tool_use": False, "server_tool_use": True, "mcp_tool_use": True}  # whether the provider executes them
# Blocks without any text, kept as messages of their own type, so that they can be sent back.
KEPT = ("fallback", "mcp_tool_listing")


class Place:
    """Where a block stands: in which of the provider's messages, at which index, and its message's id."""

    def __init__(self, id: str, group: str | None, index: int) -> None:
        self.id = id
        self.fields: dict[str, Any] = {"group": group, "index": index}


class Block:
    """A block that grows.

    Attributes:
        id: its message's.
        delta: the type of its deltas.
        make: its message's class. A code block's pieces are JSON that the code is in: they are not told as they come.
    """

    def __init__(self, wire: Wire, type: str, place: Place) -> None:
        self.type = type
        self.id = place.id
        self.delta = PIECES[type][0]
        self.metadata: dict[str, Any] = {}
        self.grown = False
        self._fields = place.fields
        self._json = bytearray()  # what a call has of its arguments
        self._reader: JsonFields | None = None  # of the code in them
        self._read = False  # all of it is
        self._code = ""
        self.make = self._kind(wire)
        self._input: Any = wire.get("input")

    def _kind(self, wire: Wire) -> type[m.Message]:
        match self.type:
            case "text":
                return m.TextMessage
            case "thinking":
                self.metadata = {"signature": wire["signature"]} if text(wire.get("signature")) else {}
                return m.ReasoningMessage
            case "compaction":
                self.metadata = without(wire, "type", "content")
                self._fields["type"] = "compaction"
                return m.Message
            case _:
                return self._call(wire)

    def _call(self, wire: Wire) -> type[m.Message]:
        name = text(wire.get("name"))
        self.metadata = without(wire, "type", "id", "name", "input")
        self._fields |= {"name": name or None, "call_id": text(wire.get("id")) or None}
        if self.type == "server_tool_use" and name in CODE:
            language, self._code = CODE[name]
            self._fields["format"] = language
            self._reader = JsonFields(self._code)
            return m.CodeMessage
        if CALLS[self.type]:
            self.metadata["block_type"] = self.type
            self._fields["provider_executed"] = True
        return m.ToolCallMessage

    def takes(self, delta: str) -> bool:
        """Whether a block of its type can have deltas of this one."""
        return delta in (self.delta, "signature_delta") or BLOCK_OF[delta] == self.type

    @property
    def plain(self) -> bool:
        """Whether its pieces are its message's."""
        return self._reader is None and self.type != "compaction"

    @property
    def maker(self) -> Any:
        """What makes the event of a plain piece, of the message's id, the piece and its raw item."""
        return self._piece if self.type in CALLS else self.make.delta_event

    def _piece(self, id: str, value: str, *, raw_item: Any = None) -> Event:
        self._json += value.encode(errors="surrogatepass")
        make: Any = self.make.delta_event
        event: Event = make(id, value, raw_item=raw_item)
        return event

    @property
    def half(self) -> bool:
        """Whether it is a call whose arguments have begun and are no whole JSON object."""
        return self.type in CALLS and self.grown and not is_object(parsed(self._json))

    @property
    def bare(self) -> bool:
        """Whether it is a call of ours without any arguments: it needs none, or was cut before them."""
        return self.type == "tool_use" and not self.grown and self._input in (None, {}, "")

    def _message(self, content: str | None = None, status: m.Status = "in_progress") -> m.Message:
        return self.make(self.id, content=content, status=status, metadata=dict(self.metadata), **self._fields)

    def begin(self, wire: Wire) -> Iterator[Event]:
        """Its start. Some servers give its first text with it."""
        yield MessageCreated(self._message())
        for citation in items_of(wire.get("citations")):
            yield from self.cite(mapping(citation))
        key = PIECES[self.type][1]
        if first := text(wire.get(key)):
            yield from self.grow({key: first})

    def grow(self, delta: Wire) -> Iterator[Event]:
        """A delta of its own type."""
        value = text(delta.get(PIECES[self.type][1]))
        if self.type == "compaction":
            self.metadata |= without(delta, "type", "content")
        if not value:
            return
        replaces = self.grown and self.type == "compaction"  # each one is the whole summary
        self.grown = True
        if self.type in CALLS:
            self._json += value.encode(errors="surrogatepass")
        if self._reader is not None:
            value = self._code_in(self._reader, value)
        if value:
            make: Any = self.make.delta_event
            yield make(self.id, value, replaces)

    def _code_in(self, reader: JsonFields, piece: str) -> str:
        """What a piece of the JSON adds to the code. Another text at the same key is told with the block's end."""
        parts: list[str] = []
        for told in [] if self._read else reader.feed(piece):
            parts.append(told.text)
            if told.done:
                self._read = True
                break
        return "".join(parts)

    def cite(self, citation: Wire) -> Iterator[Event]:
        if citation:
            yield AnnotationAdded(self.id, annotation_of(citation))

    def end(self, status: m.Status) -> Iterator[Event]:
        """Its stop. What came with its start and was never streamed is told here."""
        content: str | None = None
        if self._reader is not None:
            given = mapping(parsed(self._json) if self.grown else self._input)
            content = text(given.get(self._code)) or None
            if more := {key: given[key] for key in given if key != self._code or content is None}:
                self.metadata["input"] = more
        elif self.type in CALLS and not self.grown and self._input not in (None, {}, ""):
            content = self._input if isinstance(self._input, str) else json_text(self._input)
        yield MessageDone(self._message(content, status))


class Held:
    """The blocks that stopped while it is not known whether they were cut short.

    The last text, thinking, or call that came with all its input is until another block follows. A call without whole
    arguments is until the message ends: no block after it says that it is whole.
    """

    def __init__(self) -> None:
        self._blocks: list[tuple[Block, str]] = []  # each with what is in doubt: "half" or "bare" arguments

    @property
    def half(self) -> bool:
        """Whether there is a call with half its arguments."""
        return any(doubt == "half" for _, doubt in self._blocks)

    def stop(self, block: Block) -> Iterator[Event]:
        """A block stops. One that is whole is done."""
        doubt = "half" if block.half else "bare" if block.bare else ""
        if doubt or block.type in ("text", "thinking") or (block.type == "tool_use" and not block.grown):
            self._blocks.append((block, doubt))
        else:
            yield from block.end("completed")

    def go_on(self) -> Iterator[Event]:
        """Another block follows."""
        held, self._blocks = self._blocks, []
        for block, doubt in held:
            if doubt:
                self._blocks.append((block, doubt))
            else:
                yield from block.end("completed")

    def release(self, status: m.Status, **others: m.Status) -> Iterator[Event]:
        """All are done. `half` and `bare` say how calls with such arguments end, where that is otherwise."""
        held, self._blocks = self._blocks, []
        for block, doubt in held:
            yield from block.end(others.get(doubt, status))


def tell_whole(wire: Wire, type: str, place: Place, names: Mapping[str, str]) -> Iterator[Event] | None:
    """A block that comes whole; None if it is of no type that is known. `names` are the called tools' by call id."""
    match type:
        case "redacted_thinking":
            metadata = without(wire, "type")
            return iter(
                [MessageDone(m.ReasoningMessage(place.id, format="redacted", metadata=metadata, **place.fields))]
            )
        case "container_upload":
            file = m.FileMessage(
                place.id,
                format="file_id",
                content=text(wire.get("file_id")),
                metadata={"block_type": type},
                **place.fields,
            )
            return iter([MessageDone(file)])
        case _ if type in KEPT:
            return iter([MessageDone(m.Message(place.id, type=type, metadata=without(wire, "type"), **place.fields))])
        case _ if type.endswith("_tool_result") and text(wire.get("tool_use_id")):
            return _tell_result(wire, type, place, names)
        case _:
            return None


def _tell_result(wire: Wire, type: str, place: Place, names: Mapping[str, str]) -> Iterator[Event]:
    """What a tool gave that the provider ran."""
    call_id = text(wire.get("tool_use_id"))
    tool = type.removesuffix("_tool_result")
    metadata = {"block_type": type, **without(wire, "type", "tool_use_id", "content", "is_error")}
    fields: dict[str, Any] = {
        **place.fields,
        "call_id": call_id,
        "name": names.get(call_id) or (None if tool == "mcp" else tool),
    }
    content = wire.get("content")
    if tool in CODE and mapping(content):
        yield from _tell_console(mapping(content), fields, metadata)
        return
    told, rest, failed = _readable(content)
    if rest is not None:
        metadata["result"] = rest
    if failed or wire.get("is_error") is True:
        metadata["error"] = True
    status: m.Status = "failed" if failed else "completed"
    yield MessageDone(
        m.ToolOutputMessage(f"{call_id}.output", content=told, metadata=metadata, status=status, **fields)
    )


def _readable(content: Any) -> tuple[str, Any, bool]:
    """The text of a result, what it has beside the text (None: the text is all of it, as JSON), whether it failed."""
    if isinstance(content, str):
        return content, {"text": True}, False
    if failure := _failure(mapping(content)):
        return failure, content, True
    if isinstance(found := mapping(content).get("text"), str):
        return found, without(mapping(content), "text"), False
    parts = [mapping(part) for part in items_of(content)]
    if parts and all(part.get("type") == "text" and isinstance(part.get("text"), str) for part in parts):
        return "".join(part["text"] for part in parts), {"parts": [len(part["text"]) for part in parts]}, False
    return json_text(content), None, False


def _failure(content: Wire) -> str:
    """The text of an error, "" if it is none."""
    if not text(content.get("type")).endswith("_error"):
        return ""
    return text(content.get("error_message")) or text(content.get("error_code")) or text(content.get("type"))


def _tell_console(content: Wire, fields: dict[str, Any], metadata: dict[str, Any]) -> Iterator[Event]:
    """What code printed, and the files that it wrote."""
    call_id = fields["call_id"]
    id = f"{call_id}.console"
    failure = _failure(content)
    streams = {"stdout": text(content.get("stdout")), "stderr": failure or text(content.get("stderr"))}
    metadata["result"] = without(content, "stdout", "stderr")
    if failure:
        metadata["error"] = True
    elif isinstance(content.get("return_code"), int):
        metadata["return_code"] = content["return_code"]
    if all(streams.values()):
        metadata["stderr"] = streams["stderr"]
    elif streams["stderr"]:
        metadata["stream"] = "stderr"
    yield MessageCreated(m.ConsoleMessage(id, **fields))
    for stream, printed in streams.items():
        if printed:
            yield m.ConsoleMessage.delta_event(id, printed, False, {"stream": stream})
    for number, file in enumerate(items_of(content.get("content"))):
        if file_id := text(mapping(file).get("file_id")):
            written = m.FileMessage(
                f"{call_id}.file.{number}", role="computer", format="file_id", content=file_id, **fields
            )
            yield MessageDone(written)
    status: m.Status = "failed" if failure else "completed"
    yield MessageDone(m.ConsoleMessage(id, status=status, metadata=metadata, **fields))
