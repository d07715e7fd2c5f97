"""The events of AG-UI's calls, of their results, and of the questions about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ... import events as e
from ... import messages as m
from ...answers import Confirmation
from ...core.json_fields import JsonFields
from ...messages import Message
from ..ui_parts import message_fields
from ..values import WireObject, as_object, as_text, is_list, json_text, parse_json, text_or_none
from .wire import extra_of, others_of

__all__ = ["CallIn", "IncomingCalls"]


class CallIn:
    """One call.

    Attributes:
        message: the call, or the code, without its content; what is done has it.
        pieces: its arguments so far, as JSON text.
        code: reads the code in the arguments; None if it is not code of ours.
    """

    def __init__(self, message: Message) -> None:
        self.message = message
        self.pieces: list[str] = []
        self.code = JsonFields("code") if isinstance(message, m.CodeMessage) else None


class IncomingCalls:
    """The calls of one stream.

    Args:
        unused_id: makes a message id of a wanted one.
        warn: makes a warning of a code, a fault and the type of the event.

    Attributes:
        growing: by toolCallId, calls whose arguments are streamed.
        open: the calls that have no end yet, by toolCallId.
        pending: the questions that have no answer, by their ids.
    """

    def __init__(self, unused_id: Callable[[str], str], warn: Callable[..., e.StreamWarning]) -> None:
        self._unused_id = unused_id
        self._warn = warn
        self._all: dict[str, CallIn] = {}
        self.growing: dict[str, CallIn] = {}
        self.open: dict[str, CallIn] = {}
        self.pending: dict[str, Confirmation] = {}

    def start(self, wire: WireObject) -> Iterator[e.Event]:
        """Begin a call."""
        id = as_text(wire.get("toolCallId"))
        if id in self.open:
            yield self._warn("duplicate-start", f"tool call {id!r} is open already; it was skipped", "TOOL_CALL_START")
            return
        extra = extra_of(wire)
        fields = message_fields(extra, id)
        fields.pop("status", None)
        metadata = {**fields.pop("metadata", {}), **others_of(wire)}
        message_id = self._unused_id(as_text(extra.get("id")) or id)
        if extra.get("type") == "code":
            message: Message = m.CodeMessage(message_id, metadata=metadata, **fields)
        else:
            fields.setdefault("name", as_text(wire.get("toolCallName")) or None)
            if "group" not in extra:
                fields["group"] = text_or_none(wire.get("parentMessageId"))
            executed = extra.get("provider_executed") is True
            message = m.ToolCallMessage(message_id, provider_executed=executed, metadata=metadata, **fields)
        call = self._all[id] = self.open[id] = CallIn(message)
        if call.code is None:
            self.growing[id] = call
        yield e.MessageCreated(message)

    def args(self, wire: WireObject) -> Iterator[e.Event]:
        """Yield the events of a piece of the arguments."""
        id, piece = as_text(wire.get("toolCallId")), wire.get("delta")
        call = self.open.get(id)
        if call is None:
            yield self._warn(
                "stray-delta", f"there is no open tool call {id!r}; the piece was skipped", "TOOL_CALL_ARGS"
            )
        elif not isinstance(piece, str):
            yield self._warn("bad-delta", "its delta is not text, and was skipped", "TOOL_CALL_ARGS")
        elif piece:
            call.pieces.append(piece)
            if call.code is None:
                yield e.ToolCallDelta(call.message.id, piece)
            else:
                texts = [found.text for found in call.code.feed(piece) if found.text]
                yield from [e.CodeDelta(call.message.id, text) for text in texts]

    def end(self, wire: WireObject) -> Iterator[e.Event]:
        """Complete the arguments."""
        id = as_text(wire.get("toolCallId"))
        call = self.open.pop(id, None)
        self.growing.pop(id, None)
        if call is None:
            yield self._warn("stray-end", f"there is no open tool call {id!r}", "TOOL_CALL_END")
            return
        begun, text = call.message, "".join(call.pieces)
        fields = message_fields(extra_of(wire), begun.call_id)
        metadata = {**begun.metadata, **fields.pop("metadata", {}), **others_of(wire)}
        if isinstance(begun, m.ToolCallMessage):
            fields["provider_executed"] = begun.provider_executed
            fields.setdefault("name", begun.name)
        else:
            arguments = as_object(parse_json(text))
            fields["format"] = text_or_none(arguments.get("language")) or begun.format
            text = as_text(arguments.get("code"))
        call.message = type(begun)(begun.id, content=text, metadata=metadata, **fields)
        yield e.MessageDone(type(begun)(begun.id, metadata=metadata, **fields))

    # -- results

    def result(self, wire: WireObject) -> Iterator[e.Event]:
        """Yield the events of the result of a call. A result that only repeats a console's output has none."""
        extra = extra_of(wire)
        if extra.get("type") == "none":
            return
        id, value = as_text(wire.get("toolCallId")), wire.get("content")
        call = self._all.get(id)
        fields = message_fields(extra, (call.message.call_id if call else None) or id)
        fields.setdefault("name", call.message.name if call else None)
        metadata = {**fields.pop("metadata", {}), **others_of(wire), **({"error": True} if extra.get("error") else {})}
        parts = [as_object(part) for part in value] if is_list(value) else []
        texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
        content = "".join(texts) if parts else value if isinstance(value, str) else json_text(value or "")
        if len(texts) < len(parts):
            metadata["content"] = value  # images and files among them
        stem = call.message.id if call else id
        message_id = self._unused_id(as_text(wire.get("messageId")) or f"{stem}.output")
        yield e.ToolOutputDone(m.ToolOutputMessage(message_id, content=content, metadata=metadata, **fields))

    # -- questions

    def ask(self, id: str, call_id: str, expires_at: float | None = None) -> Iterator[e.Event]:
        """Ask for the approval of a call. It is not asked for again."""
        call = self._all.get(call_id)
        if id and call is not None and id not in self.pending:
            self.pending[id] = Confirmation(id, call.message)
            yield e.ConfirmationCreated(Confirmation(id, call.message, expires_at=expires_at))

    def decide(self, id: str, outcome: WireObject) -> Iterator[e.Event]:
        """Settle the question about a call, which was answered."""
        question = self.pending.pop(id, None)
        status: Any = outcome.get("status")
        if question is not None and status in ("approved", "declined"):
            reason, edited = text_or_none(outcome.get("reason")), text_or_none(outcome.get("edited"))
            yield e.ConfirmationDone(Confirmation(id, question.subject, status=status, reason=reason, edited=edited))
