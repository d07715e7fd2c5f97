"""The parts of one candidate, and the messages that they become.

Parts have neither a beginning nor an end. Texts that follow each other are one message, and so are thoughts, and sounds of one
media type; anything else ends it, and comes complete, but for a call whose arguments are streamed (`willContinue`). What a
part has beside its content stands in its message's `metadata["gemini"]`, from which `parts` restores it: signatures, ids, media
types. A text that is not a single plain part has its parts there, each with the number of its characters as its `text`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ... import messages as m
from ...events import AnnotationAdded, MessageDone, MessageEnded, NewMessage
from ..message_ids import MessageIds
from ..output import Output
from ..values import (
    WireObject,
    as_list,
    as_object,
    as_objects,
    as_text,
    is_object,
    text_or_json,
    text_or_none,
    without,
    without_keys,
)
from .arguments import PartialArguments
from .grounding import ByteOffsets, annotations_of
from .wire import AUDIO_TYPES, PAYLOADS, enum_of, is_failure, output_text_of, standard_base64, updated

__all__ = ["Candidate"]

_M = TypeVar("_M", bound=m.Message)
_CANDIDATE_KEYS = frozenset(("content", "index", "finishReason"))


class Candidate:
    """One candidate of an answer: `choice` of its messages.

    Args:
        choice: its index.
        group: the provider's id of the answer, None if it has none.
        ids: the ids of the stream's messages.
        output: takes the events.

    Attributes:
        finish_reason: why it ended, None until then.
        metadata: what it has beside its content.
    """

    def __init__(self, choice: int, group: str | None, ids: MessageIds, output: Output) -> None:
        self.finish_reason: str | None = None
        self.metadata: dict[str, Any] = {}
        self._choice = choice
        self._group = group
        self._ids = ids
        self._output = output
        self._count = 0  # of its messages
        self._growing: m.Message | None = None  # a text, a thought or a sound: without its content
        self._parts: list[dict[str, Any]] = []  # of the text that grows
        self._offsets = ByteOffsets(0)
        self._call: m.ToolCallMessage | None = None  # whose arguments are streamed
        self._arguments = PartialArguments()
        self._calls: dict[str, str] = {}  # the ids of the newest calls, by name
        self._code = ""  # the call_id of the newest code

    def feed(self, wire: WireObject) -> None:
        """Read what a chunk has of it."""
        for part in as_list(as_object(wire.get("content")).get("parts")):
            if is_object(part):
                self._read(part)
            else:
                self._output.warn("bad-part", "one of its parts is not an object; it was skipped")
        if changed := updated(self.metadata, without(wire, _CANDIDATE_KEYS)):
            self._output.hold(None, changed)
        if reason := enum_of(wire, "finishReason"):
            self.finish_reason = reason

    def end(self, status: m.Status) -> None:
        """Nothing more comes: what is open ends with this status."""
        self._end_call(status)
        self._end_growing(status)

    @property
    def failure(self) -> dict[str, Any] | None:
        """The error that its finish_reason means, None if it means none."""
        if not is_failure(self.finish_reason):
            return None
        default = f"the model ended its answer with {self.finish_reason}"
        return {"message": text_or_none(self.metadata.get("finishMessage")) or default, "code": self.finish_reason}

    # -- parts

    def _read(self, part: WireObject) -> None:
        key = next((key for key in PAYLOADS if is_object(part.get(key))), None)
        text = part.get("text")
        if key is not None:
            self._readers[key](self, part[key], without_keys(part, "text"))
        elif text is not None and not isinstance(text, str):
            self._output.warn("bad-text", "the text of a part is not text; it was skipped")
        elif text or (text == "" and self._grows(_text_class(part)) and len(part) > 1):
            self._add_text(text, part)
        elif without_keys(part, "text", "thought"):  # a signature, or what no version so far has
            self._add_complete(m.Message, type="part", metadata={"gemini": without_keys(part)})

    def _new(self, kind: type[_M], id: str = "", **fields: Any) -> _M:
        """Return the next message. Without an id of the provider's it gets one that is made from the answer's."""
        group, choice, index = self._group, self._choice, self._count
        self._count += 1
        own = f"{group}.{choice}.{index}" if choice else f"{group}.{index}" if index else group
        id = self._ids.unused(id, own if group and own else "")
        return kind(id, group=group, choice=choice, index=index, **fields)

    def _add_complete(self, kind: type[m.Message], id: str = "", **fields: Any) -> None:
        """Report a message that comes complete."""
        self.end("completed")
        self._emit_complete(self._new(kind, id, **fields))

    def _emit_complete(self, message: m.Message) -> None:
        """A message comes. It begins first, so that it is none that came before with its id, as servers give some ids twice."""
        self._output.emit(NewMessage(message.header()))
        self._output.emit(MessageDone(message))

    # -- what grows

    def _grows(self, kind: type[m.Message], metadata: WireObject | None = None) -> bool:
        """Whether a message of this kind grows."""
        growing = self._growing
        return isinstance(growing, kind) and (metadata is None or metadata == growing.metadata)

    def _grow(self, kind: type[m.Message], **fields: Any) -> str:
        """Return the id of the message of this kind that grows. If none does, one begins."""
        growing = self._growing
        if growing is None or not self._grows(kind, fields.get("metadata")):
            self.end("completed")
            self._growing = growing = self._new(kind, **fields)
            self._parts, self._offsets = [], ByteOffsets(self._offsets.end)
            self._output.emit(NewMessage(growing.header()))
        return growing.id

    def _add_text(self, text: str, part: WireObject) -> None:
        kind = _text_class(part)
        id = self._grow(kind, format="summary") if kind is m.ReasoningMessage else self._grow(kind)
        beside = without_keys(part, "text", "thought")
        if beside or not self._parts or len(self._parts[-1]) > 1:
            self._parts.append({"text": len(text), **beside})
        else:
            self._parts[-1]["text"] += len(text)
        if beside:
            self._output.hold(id, beside)
        if text:
            make: Any = kind.delta_event
            self._output.emit(make(id, text))
        if kind is m.TextMessage:
            self._offsets.add(text)

    def _end_growing(self, status: m.Status) -> None:
        if (message := self._growing) is None:
            return
        self._growing = None
        if isinstance(message, m.TextMessage):
            for annotation in annotations_of(self.metadata, self._offsets):
                self._output.emit(AnnotationAdded(message.id, annotation))
        if any(len(part) > 1 for part in self._parts):
            message.metadata, message.status = {"gemini": {"parts": self._parts}}, status
            self._output.emit(MessageDone(message))
        else:
            self._output.emit(MessageEnded(message.id, status))
        self._parts = []

    # -- calls

    def _add_call(self, wire: WireObject, part: WireObject) -> None:
        name, id = as_text(wire.get("name")), as_text(wire.get("id"))
        goes_on = wire.get("willContinue") is True
        if name or id:
            self.end("completed")
            is_complete = not goes_on and "partialArgs" not in wire
            call = self._new(
                m.ToolCallMessage,
                id,
                name=name or None,
                call_id=id or None,
                content=text_or_json(wire.get("args")) if is_complete else None,
                metadata=_beside(part, "functionCall", "name", "args", "partialArgs", "willContinue"),
            )
            self._calls[name] = call.id
            if is_complete:
                self._emit_complete(call)
                return
            self._call, self._arguments = call, PartialArguments()
            self._output.emit(NewMessage(call.header()))
        for argument in as_objects(wire.get("partialArgs")):
            self._add_argument(argument)
        if self._call is not None and not goes_on:
            self._call.metadata = {"gemini": {**self._call.metadata["gemini"], **without_keys(part, "functionCall")}}
            self._end_call("completed")

    def _add_argument(self, wire: WireObject) -> None:
        if self._call is None:
            fault = "a value came for the arguments of a call that never began, or has ended; it was skipped"
            self._output.warn("stray-argument", fault)
        elif (text := self._arguments.add(wire)) is None:
            fault = "the path or the value of an argument cannot be read, or its place has passed; it was skipped"
            self._output.warn("bad-argument", fault)
        elif text:
            self._output.emit(m.ToolCallMessage.delta_event(self._call.id, text))

    def _end_call(self, status: m.Status) -> None:
        if (call := self._call) is None:
            return
        self._call = None
        if text := self._arguments.end():
            self._output.emit(m.ToolCallMessage.delta_event(call.id, text))
        call.status = status
        self._output.emit(MessageDone(call))

    # -- what comes complete

    def _add_output(self, wire: WireObject, part: WireObject) -> None:
        """An output of ours, as Google's client yields it where it calls functions itself."""
        name, id = text_or_none(wire.get("name")), as_text(wire.get("id"))
        call_id = id or self._calls.get(name or "")
        self._add_complete(
            m.ToolOutputMessage, name=name, call_id=call_id, content=output_text_of(wire.get("response"))
        )

    def _add_code(self, wire: WireObject, part: WireObject) -> None:
        self.end("completed")
        language, id = enum_of(wire, "language").lower() or "python", as_text(wire.get("id"))
        metadata = _beside(part, "executableCode", "code")
        code = self._new(m.CodeMessage, id, format=language, content=as_text(wire.get("code")), metadata=metadata)
        self._code = code.call_id = code.id
        self._emit_complete(code)

    def _add_result(self, wire: WireObject, part: WireObject) -> None:
        status: m.Status = "completed" if enum_of(wire, "outcome") in ("OUTCOME_OK", "") else "failed"
        call_id = as_text(wire.get("id")) or self._code or None
        metadata = _beside(part, "codeExecutionResult", "output")
        content = as_text(wire.get("output"))
        self._add_complete(m.ConsoleMessage, call_id=call_id, content=content, status=status, metadata=metadata)

    def _add_tool_call(self, wire: WireObject, part: WireObject) -> None:
        fields = _tool_fields(wire, "args", _beside(part, "toolCall", "toolType", "args"))
        self._add_complete(m.ToolCallMessage, as_text(wire.get("id")), provider_executed=True, **fields)

    def _add_tool_response(self, wire: WireObject, part: WireObject) -> None:
        fields = _tool_fields(wire, "response", _beside(part, "toolResponse", "toolType", "response"))
        self._add_complete(m.ToolOutputMessage, **fields)

    def _add_data(self, wire: WireObject, part: WireObject) -> None:
        """An image, or a sound, which may come in several parts."""
        kind, _, subtype = as_text(wire.get("mimeType")).partition(";")[0].lower().partition("/")
        data, metadata = standard_base64(as_text(wire.get("data"))), _beside(part, "inlineData", "data")
        match kind:
            case "image":
                self._add_complete(m.ImageMessage, format=f"base64.{subtype}", content=data, metadata=metadata)
            case "audio":
                id = self._grow(m.AudioMessage, format=AUDIO_TYPES.get(subtype, subtype), metadata=metadata)
                self._output.emit(m.AudioMessage.delta_event(id, data))
            case _:
                self._add_complete(m.Message, type="part", metadata={"gemini": part})

    def _add_file(self, wire: WireObject, part: WireObject) -> None:
        uri, metadata = as_text(wire.get("fileUri")), _beside(part, "fileData", "fileUri")
        self._add_complete(m.FileMessage, format="file_id", content=uri, metadata=metadata)

    _readers: Mapping[str, Callable[[Any, WireObject, WireObject], None]] = {
        "functionCall": _add_call,
        "functionResponse": _add_output,
        "executableCode": _add_code,
        "codeExecutionResult": _add_result,
        "toolCall": _add_tool_call,
        "toolResponse": _add_tool_response,
        "inlineData": _add_data,
        "fileData": _add_file,
    }


def _text_class(part: WireObject) -> type[m.Message]:
    return m.ReasoningMessage if part.get("thought") is True else m.TextMessage


def _beside(part: WireObject, key: str, *content: str) -> dict[str, Any]:
    """Return the metadata of a message: its part without its content."""
    return {"gemini": {**part, key: without_keys(part[key], *content)}}


def _tool_fields(wire: WireObject, key: str, metadata: WireObject) -> dict[str, Any]:
    """Return the fields of a message about a tool that the provider ran."""
    name, call_id = text_or_none(wire.get("toolType")), text_or_none(wire.get("id"))
    return {"name": name, "call_id": call_id, "content": text_or_json(wire.get(key)), "metadata": metadata}
