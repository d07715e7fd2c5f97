"""The chunks of tool parts: of calls, of code, of their outputs, and of the questions about them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ... import events as e
from ... import messages as m
from ...answers import Confirmation
from ...core.unique_ids import UniqueIds
from ...messages import Message
from ..ui_parts import (
    CODE_TOOL,
    DENIED,
    EXTRA_KEY,
    MALFORMED,
    UNFINISHED,
    CodeArguments,
    HeldText,
    call_input,
    extra_call_id,
    extra_fields,
    output_value,
    static_form,
)
from ..values import as_object, without_keys
from .wire import KEY, Version

__all__ = ["OutgoingToolParts", "ToolPart", "provider_metadata"]

Chunk = dict[str, Any]

_CUT = "The call was cut off."
_WITHOUT_DYNAMIC = ("tool-input-delta", "tool-approval-request", "tool-output-denied")


def provider_metadata(message: Message, extra: dict[str, Any] | None = None) -> Chunk:
    """Return the `providerMetadata` of a message's chunk: what came with it from such a stream, and the fields to
    keep."""
    found = {**as_object(message.metadata.get(KEY)), **({EXTRA_KEY: extra} if extra else {})}
    return {"providerMetadata": found} if found else {}


class ToolPart:
    """One tool part, of a call or of code.

    Attributes:
        id: its toolCallId.
        message: the call or the code.
        held: its arguments that were not sent.
        is_dynamic: whether a client knows no type for the tool.
        code: writes the arguments of the call that stands for code; None for a call.
        is_done: whether its arguments are complete.
        has_output: whether an output was sent.
        is_denied: whether it was declined.
        has_question: whether a question about it was sent that has no answer.
        is_approved: whether such a question was answered with yes.
        outputs: its outputs that came before its arguments were complete.
        printed: its console output, by stream.
    """

    def __init__(self, id: str, message: Message) -> None:
        self.id = id
        self.message = message
        self.held = HeldText()
        self.code = CodeArguments(message.format) if isinstance(message, m.CodeMessage) else None
        self.is_dynamic = self.code is not None
        self.is_done = False
        self.has_output = False
        self.is_denied = False
        self.has_question = False
        self.is_approved = False
        self.outputs: list[Chunk] = []
        self.printed: dict[str, list[str]] = {"stdout": [], "stderr": []}

    def chunk(self, type: str, **fields: Any) -> Chunk:
        """Return a chunk of this part. Version 5 finds a dynamic part only where it is called so."""
        dynamic = {"dynamic": True} if self.is_dynamic and type not in _WITHOUT_DYNAMIC else {}
        return {"type": type, "toolCallId": self.id, **fields, **dynamic}

    def console_output(self, *, is_final: bool) -> Chunk:
        """Return its console output so far, as its output."""
        output = {stream: "".join(pieces) for stream, pieces in self.printed.items()}
        return self.chunk("tool-output-available", output=output, **({} if is_final else {"preliminary": True}))


class OutgoingToolParts:
    """The tool parts of one stream.

    Args:
        version: the `ai` package that reads the stream.
    """

    def __init__(self, version: Version) -> None:
        self._version = version
        self._parts: dict[str, ToolPart] = {}  # by toolCallId
        self._ids = UniqueIds(self._parts)
        self._newest_code: ToolPart | None = None
        self._by_call: dict[str, ToolPart] = {}  # the newest with this call id
        self.by_message: dict[str, ToolPart] = {}  # by the id of the call's, or the code's, message

    def part_of(self, message: Message) -> ToolPart | None:
        """Return the part that a message belongs to: the call's, or without a call_id, the newest code's."""
        if message.call_id is not None:
            return self._by_call.get(message.call_id)
        return self._newest_code if isinstance(message, m.ConsoleMessage) else None

    def add_earlier(self, earlier: Message | Confirmation) -> None:
        """Note that the client has this from an earlier stream: a call, code, an output, or a question."""
        if isinstance(earlier, m.ToolCallMessage | m.CodeMessage):
            self._add(earlier).is_done = True
        elif isinstance(earlier, Confirmation):
            if (part := self._subject(earlier)) is not None:
                part.is_approved = earlier.status == "approved"
        elif (part := self.part_of(earlier)) is not None:
            part.has_output = True

    def _subject(self, confirmation: Confirmation) -> ToolPart | None:
        """Return the part of a question's subject."""
        subject = confirmation.subject
        return self._by_call.get(subject.call_id or subject.id) or self.by_message.get(subject.id)

    def withdraw(self, message_id: str) -> str:
        """The client takes the part of this message back. Returns the part's id."""
        part = self.by_message.get(message_id)
        if part is None:
            return message_id
        part.has_output = True  # it gets none
        return part.id

    # -- arguments

    def _add(self, message: Message) -> ToolPart:
        call_id = message.call_id or message.id
        part = ToolPart(self._ids.free(call_id), message)
        if part.code is not None:
            self._newest_code = part
        self._parts[part.id] = self._by_call[call_id] = self.by_message[message.id] = part
        return part

    def _name(self, message: Message) -> str:
        return CODE_TOOL if isinstance(message, m.CodeMessage) else message.name or "tool"

    def _extra(self, part: ToolPart) -> Chunk:
        """Return the fields to keep of a call. In version 5 no chunk that begins one takes them."""
        message = part.message
        expressed = ("name",) if part.code is None else ()
        extra = {**extra_fields(message, *expressed, id=part.id), **extra_call_id(message, part.id)}
        if part.code is not None:
            extra["type"] = "code"
        if message.metadata.get("custom") is True:
            extra["custom"] = True
        return provider_metadata(message, extra)

    def _begin(self, part: ToolPart) -> Chunk:
        message = part.message
        executed = isinstance(message, m.ToolCallMessage) and message.provider_executed
        fields: Chunk = {"toolName": self._name(message)}
        if executed:
            fields["providerExecuted"] = True
        return part.chunk("tool-input-start", **fields, **(self._extra(part) if self._version >= 6 else {}))

    def begin(self, message: Message) -> Iterator[Chunk]:
        """Begin a call or code."""
        part = self._add(message)
        yield self._begin(part)
        if part.code is not None:
            yield from self._send(part, part.code.begin())

    def _send(self, part: ToolPart, text: str, *, all: bool = False) -> Iterator[Chunk]:
        now = part.held.add(text) + (part.held.take() if all else "")
        if now:
            yield part.chunk("tool-input-delta", inputTextDelta=now)

    def delta(self, part: ToolPart, delta: e.Delta) -> Iterator[Chunk]:
        """Yield the items of a piece of a call's arguments, or of code."""
        if delta.replace:
            part.held = HeldText()
            yield self._begin(part)  # its arguments begin again
            if part.code is not None:
                yield from self._send(part, part.code.begin())
        yield from self._send(part, delta.value if part.code is None else part.code.piece(delta.value))

    def done(self, message: Message) -> Iterator[Chunk]:
        """End a call or code that is complete, or will never be."""
        part = self.by_message[message.id]
        part.message = message
        part.is_done = True
        call_id = message.call_id or message.id
        self._by_call[call_id] = part  # it may have come only now
        end = part.code.end(message.format) if part.code is not None and message.status == "completed" else ""
        yield from self._send(part, end, all=True)
        yield self._available(part)
        yield from part.outputs
        if part.code is not None:
            data = {"callId": part.id, "language": message.format, "code": message.content, "status": message.status}
            yield {"type": "data-code", "id": message.id, "data": without_keys(data)}

    def _available(self, part: ToolPart) -> Chunk:
        message = part.message
        value: Any
        if isinstance(message, m.ToolCallMessage):
            value = call_input(message)
        else:
            value = without_keys({"language": message.format, "code": message.content})
        fields: Chunk = {"toolName": self._name(message), "input": message.content if value is None else value}
        if isinstance(message, m.ToolCallMessage) and message.provider_executed:
            fields["providerExecuted"] = True
        metadata = self._extra(part)
        if message.status == "completed" and value is not None:
            return part.chunk("tool-input-available", **fields, **metadata)
        error = MALFORMED if message.status == "completed" else _CUT
        return part.chunk("tool-input-error", **fields, **metadata, errorText=error)

    # -- outputs

    def output(self, message: Message) -> Iterator[Chunk]:
        """Yield a tool's output. That of a declined call is not output here."""
        part = self.part_of(message)
        if part is None:
            part = self._add(message)
            part.is_done = part.is_dynamic = True
            fields: Chunk = {"toolName": message.name or "tool", "input": {}}
            yield part.chunk("tool-input-available", **fields, providerMetadata={EXTRA_KEY: {"type": "none"}})
        if part.is_denied:
            yield {"type": "data-message", "id": message.id, "data": static_form(message)}
            return
        metadata: Chunk = {}
        if self._version >= 7:  # the first releases of 6 throw at it
            extra = extra_fields(message, id=f"{part.message.id}.output", default_role="computer")
            if part.message is not message and message.name == part.message.name:
                extra.pop("name", None)
            extra |= extra_call_id(message, part.message.call_id or part.id)
            metadata = provider_metadata(message, extra)
        if message.metadata.get("error") is True or message.status == "failed":
            chunk = part.chunk("tool-output-error", errorText=message.content or "The tool failed.", **metadata)
        else:
            chunk = part.chunk("tool-output-available", output=output_value(message.content), **metadata)
        yield from self._send_result(part, chunk)

    def _send_result(self, part: ToolPart, chunk: Chunk) -> Iterator[Chunk]:
        """Send an output, or hold it until the arguments are complete: they would take its place."""
        part.has_output = True
        if part.is_done:
            yield chunk
        else:
            part.outputs.append(chunk)

    def printed(self, message: Message, *, is_final: bool) -> Iterator[Chunk]:
        """Yield a call's console output, as its output, if it has no other."""
        part = self.part_of(message)
        if part is not None and part.is_done and not part.is_denied and (is_final or not part.has_output):
            part.has_output = part.has_output or is_final
            yield part.console_output(is_final=is_final)

    def finish(self, status: e.RunStatus) -> Iterator[Chunk]:
        """Code that ran and printed nothing has an output too; and what was approved and gave none gives none any more. (A
        client sends an approval again where it finds one without an output at the end.)"""
        for part in self._parts.values():
            if not part.is_done or part.has_output or part.is_denied or part.has_question:
                continue
            if status == "completed" and part.code is not None and part.message.status == "completed":
                part.has_output = True
                yield part.console_output(is_final=True)
            elif part.is_approved and status != "requires_action":
                part.has_output = True
                yield part.chunk("tool-output-error", errorText=UNFINISHED)

    # -- questions

    def ask(self, confirmation: Confirmation) -> Iterator[Chunk]:
        """Ask for the answer to a call."""
        subject, part = confirmation.subject, self._subject(confirmation)
        if part is None:
            yield from self.begin(subject)
            part = self.by_message[subject.id]
            if subject.content:
                kind = m.CodeMessage.delta_event if part.code is not None else m.ToolCallMessage.delta_event
                yield from self.delta(part, kind(subject.id, subject.content))
            yield from self.done(subject)
        part.has_question = True
        if self._version >= 6:
            yield part.chunk("tool-approval-request", approvalId=confirmation.id)
        else:
            data = {"status": "pending", "toolCallId": part.id}
            yield {"type": "data-confirmation", "id": confirmation.id, "data": data}

    def decide(self, confirmation: Confirmation) -> Iterator[Chunk]:
        """Settle a question. One without an answer stays open: the answer comes with the next request."""
        part = self._subject(confirmation)
        if part is None or not confirmation.answered:
            return
        part.has_question = False
        part.is_approved = approved = confirmation.status == "approved"
        reason = without_keys({"reason": confirmation.reason})
        if self._version < 7 or confirmation.edited is not None:
            yield _confirmation(confirmation, toolCallId=part.id, **({"transient": True} if self._version > 5 else {}))
        else:
            chunk = {"type": "tool-approval-response", "approvalId": confirmation.id, "approved": approved, **reason}
            yield chunk
        if not approved:
            part.is_denied = True
            if self._version >= 6:
                yield part.chunk("tool-output-denied")
            else:
                yield part.chunk("tool-output-error", errorText=confirmation.reason or DENIED)


def _confirmation(confirmation: Confirmation, *, transient: bool = False, **data: Any) -> Chunk:
    values = {"status": confirmation.status, "edited": confirmation.edited, "reason": confirmation.reason, **data}
    part: Chunk = {"type": "data-confirmation", "id": confirmation.id, "data": without_keys(values)}
    return {**part, "transient": True} if transient else part
