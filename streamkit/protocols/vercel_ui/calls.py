"""The events of the tool parts of a UI message stream: calls, code, their outputs, and the questions about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ... import events as e
from ... import messages as m
from ...answers import Confirmation
from ...core.json_fields import JsonFields
from ...messages import Message, output_text
from ..ui_parts import DENIED, EXTRA_KEY, JSON_BLANKS, MALFORMED, UNFINISHED, message_fields
from ..values import WireObject, as_object, as_text, is_object, json_text, parse_json, text_or_json, text_or_none
from .wire import KEY, extra_of

__all__ = ["IncomingToolParts", "UiCall", "provider_metadata"]


class UiCall:
    """One tool part.

    Attributes:
        id: its toolCallId.
        message: the call, or the code, without its content; what is done has it.
        pieces: its arguments so far, as JSON text.
        code: reads the code in the arguments; None if it is not code of ours.
        is_done: whether its arguments are complete.
        is_ours: False for a part that only holds an output without a call.
        approval: the pending question about it.
    """

    def __init__(self, id: str, message: Message) -> None:
        self.id = id
        self.message = message
        self.pieces: list[str] = []
        self.code = JsonFields("code") if isinstance(message, m.CodeMessage) else None
        self.is_done = False
        self.is_ours = True
        self.approval: Confirmation | None = None

    def add(self, piece: str) -> Iterator[e.Event]:
        """Yield the events of a piece of the arguments."""
        self.pieces.append(piece)
        if self.code is None:
            yield e.ToolCallDelta(self.message.id, piece)
            return
        for found in self.code.feed(piece):
            if found.text:
                yield e.CodeDelta(self.message.id, found.text)

    def restart(self) -> Iterator[e.Event]:
        """Yield the events of a part that begins again: its arguments are replaced."""
        if self.pieces:
            self.pieces.clear()
            if self.code is not None:
                self.code = JsonFields("code")
            yield self.message.delta_event(self.message.id, "", replace=True)

    def final_content(self, value: Any) -> str | None:
        """Return the content that the call has with this input; None if that is what was streamed."""
        streamed = "".join(self.pieces)
        if self.code is not None:
            return as_text(as_object(value).get("code"))
        if isinstance(value, str):
            return value
        if (value == {} or value is None) and not streamed.strip(JSON_BLANKS):
            return None  # no arguments
        return None if parse_json(streamed) == value else json_text(value)


class IncomingToolParts:
    """The tool parts of one stream.

    Args:
        unused_id: makes a message id of a wanted one.
        warn: makes a warning of a code, a fault and the type of the chunk.

    Attributes:
        growing: by toolCallId, the message ids of calls with streamed arguments.
        consoles: the ids of calls with a separate part of console output.
        pending: the questions that have no answer, by their ids.
    """

    def __init__(self, unused_id: Callable[[str], str], warn: Callable[..., e.StreamWarning]) -> None:
        self._unused_id = unused_id
        self._warn = warn
        self._calls: dict[str, UiCall] = {}
        self._call_ids: set[str | None] = set()
        self.growing: dict[str, UiCall] = {}
        self.consoles: set[str] = set()
        self._growing_outputs: set[str] = set()  # the ids of outputs that began with a preliminary one
        self.pending: dict[str, Confirmation] = {}

    def has(self, id: str) -> bool:
        """Whether there is a part with this toolCallId, or of a call with this id."""
        return id in self._calls or id in self._call_ids

    def _find(self, wire: WireObject) -> UiCall | None:
        return self._calls.get(as_text(wire.get("toolCallId")))

    # -- arguments

    def start(self, wire: WireObject) -> Iterator[e.Event]:
        """Begin a call, perhaps once more."""
        call = self._find(wire)
        if call is not None and not call.is_done:
            yield from call.restart()
        else:
            yield from self._begin(wire)

    def _begin(self, wire: WireObject) -> Iterator[e.Event]:
        extra = extra_of(wire)
        id = as_text(wire.get("toolCallId"))
        fields = message_fields(extra, id)
        fields.pop("status", None)
        metadata = {**fields.pop("metadata", {}), **provider_metadata(wire)}
        message_id = self._unused_id(as_text(extra.get("id")) or id)
        if extra.get("type") == "code":
            message: Message = m.CodeMessage(message_id, metadata=metadata, **fields)
        else:
            fields["name"] = as_text(wire.get("toolName")) or fields.get("name")
            executed = wire.get("providerExecuted") is True
            message = m.ToolCallMessage(message_id, provider_executed=executed, metadata=metadata, **fields)
        call = self._calls[id] = UiCall(id, message)
        self._call_ids.add(message.call_id)
        call.is_ours = extra.get("type") != "none"
        if call.is_ours:
            if call.code is None:
                self.growing[id] = call
            yield e.MessageCreated(message)

    def delta(self, wire: WireObject) -> Iterator[e.Event]:
        """Yield the events of a piece of the arguments."""
        call, piece = self._find(wire), wire.get("inputTextDelta")
        if call is None or call.is_done:
            fault = f"there is no open tool call {as_text(wire.get('toolCallId'))!r}; the piece was skipped"
            yield self._warn("stray-delta", fault, "tool-input-delta")
        elif not isinstance(piece, str):
            yield self._warn("bad-delta", "its inputTextDelta is not text, and was skipped", "tool-input-delta")
        elif piece:
            yield from call.add(piece)

    def available(self, wire: WireObject, status: m.Status = "completed") -> Iterator[e.Event]:
        """Complete the arguments. A call that is done already is not done again: the engine compares its arguments."""
        call = self._find(wire)
        if call is None:
            yield from self._begin(wire)
            call = self._find(wire)
        if call is None:
            return
        if call.is_done:
            if call.is_ours and (content := call.final_content(wire.get("input"))):
                yield e.MessageDone(type(call.message)(call.message.id, content=content))
            return
        call.is_done = True
        self.growing.pop(call.id, None)
        if not call.is_ours:
            return
        yield from self._done(call, wire, status)

    def _done(self, call: UiCall, wire: WireObject, status: m.Status) -> Iterator[e.Event]:
        value, begun = wire.get("input"), call.message
        content = call.final_content(value)
        fields = message_fields(extra_of(wire), begun.call_id)
        metadata = {**begun.metadata, **fields.pop("metadata", {}), **provider_metadata(wire)}
        fields |= {"status": status, "metadata": metadata}
        if isinstance(value, str) and status == "completed":
            metadata["custom"] = True
        shown = content if content is not None else "".join(call.pieces)
        if isinstance(begun, m.ToolCallMessage):
            executed = begun.provider_executed or wire.get("providerExecuted") is True
            name = as_text(wire.get("toolName")) or begun.name
            fields |= {"name": name, "provider_executed": executed}
        else:
            fields["format"] = text_or_none(as_object(value).get("language")) or begun.format
        call.message = type(begun)(begun.id, content=shown, **fields)
        yield e.MessageDone(type(begun)(begun.id, content=content, **fields))

    def failed(self, wire: WireObject) -> Iterator[e.Event]:
        """End a call with arguments that are not a JSON object, or were cut off."""
        call = self._find(wire)
        if call is None:
            yield from self._begin(wire)
            call = self._find(wire)
        if call is None or call.is_done:
            return
        call.is_done = True
        self.growing.pop(call.id, None)
        status: Any = as_text(extra_of(wire).get("status"))
        metadata = {**call.message.metadata, **provider_metadata(wire)}
        if status not in ("incomplete", "cancelled", "failed"):
            status = "completed"
            error = as_text(wire.get("errorText"))
            metadata |= {} if error == MALFORMED else {"input_error": error}
        value = wire.get("input")
        content = None if call.pieces or value in (None, {}) else text_or_json(value)
        yield e.MessageDone(type(call.message)(call.message.id, content=content, status=status, metadata=metadata))

    # -- outputs

    def output(self, wire: WireObject) -> Iterator[e.Event]:
        """Yield the events of an output, or as much of it as there is."""
        call, value = self._find(wire), wire.get("output")
        id = call.id if call else as_text(wire.get("toolCallId"))
        is_console = is_object(value) and set(value) == {"stdout", "stderr"}
        if is_console and (id in self.consoles or (call is not None and call.code is not None)):
            return  # what was printed is a message of its own
        content = "" if value is None else output_text(value) if isinstance(value, str) else json_text(value)
        output = self._output(call, id, content, wire)
        if wire.get("preliminary") is not True:
            yield e.ToolOutputDone(output)
            return
        if output.id not in self._growing_outputs:
            self._growing_outputs.add(output.id)
            yield e.ToolOutputCreated(output)
        yield e.ToolOutputDelta(output.id, content, replace=True)

    def output_error(self, wire: WireObject) -> Iterator[e.Event]:
        """Yield the error of a tool, in place of its output. That of a call which only did not finish is none."""
        call = self._find(wire)
        if wire.get("errorText") == UNFINISHED:
            return
        id = call.id if call else as_text(wire.get("toolCallId"))
        yield e.ToolOutputDone(self._output(call, id, as_text(wire.get("errorText")), wire, error=True))

    def _stem(self, call: UiCall | None, id: str) -> str:
        return call.message.id if call else id

    def _output(self, call: UiCall | None, id: str, content: str, wire: WireObject, *, error: bool = False) -> Message:
        extra = extra_of(wire)
        fields = message_fields(extra, (call.message.call_id if call else None) or id)
        metadata = {**fields.pop("metadata", {}), **provider_metadata(wire), **({"error": True} if error else {})}
        fields["name"] = fields.get("name") or (call.message.name if call and call.is_ours else None)
        message_id = as_text(extra.get("id")) or f"{self._stem(call, id)}.output"
        return m.ToolOutputMessage(message_id, content=content, metadata=metadata, **fields)

    # -- questions

    def ask(self, wire: WireObject) -> Iterator[e.Event]:
        """Ask for the approval of a call."""
        call, id = self._find(wire), as_text(wire.get("approvalId"))
        if call is None or not id:
            fault = f"there is no tool call {as_text(wire.get('toolCallId'))!r}, or no approvalId; it was skipped"
            yield self._warn("stray-approval", fault, "tool-approval-request")
            return
        call.approval = self.pending[id] = Confirmation(id, call.message)
        yield e.ConfirmationCreated(Confirmation(id, call.message))

    def decide(
        self, id: str, *, approved: bool, reason: str | None = None, edited: str | None = None
    ) -> Iterator[e.Event]:
        """Settle the question about a call, which was answered."""
        question = self.pending.pop(id, None)
        if question is not None:
            outcome = Confirmation(
                id, question.subject, status="approved" if approved else "declined", reason=reason, edited=edited
            )
            yield e.ConfirmationDone(outcome)

    def respond(self, wire: WireObject) -> Iterator[e.Event]:
        """Yield the answer to a question. Only the JSON boolean `true` approves."""
        approved = wire.get("approved")
        if not isinstance(approved, bool):
            fault = "its `approved` is neither true nor false; it was skipped"
            yield self._warn("bad-approval", fault, "tool-approval-response")
            return
        id = as_text(wire.get("approvalId"))
        yield from self.decide(id, approved=approved, reason=text_or_none(wire.get("reason")))

    def deny(self, wire: WireObject) -> Iterator[e.Event]:
        """Decline a call."""
        call = self._find(wire)
        if call is not None and call.approval is not None:
            reason = text_or_none(extra_of(wire).get("reason"))
            yield from self.decide(call.approval.id, approved=False, reason=None if reason == DENIED else reason)


def provider_metadata(wire: WireObject) -> dict[str, Any]:
    """Return what another server sends along, as a message's metadata."""
    found = {key: value for key, value in as_object(wire.get("providerMetadata")).items() if key != EXTRA_KEY}
    return {KEY: found} if found else {}
