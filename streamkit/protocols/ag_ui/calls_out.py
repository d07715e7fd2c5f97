"""The AG-UI events of calls, of code, and of their results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from ... import messages as m
from ...answers import Confirmation
from ...core.unique_ids import UniqueIds
from ...messages import Message
from ..dates import date_of
from ..ui_parts import CODE_TOOL, DENIED, CodeArguments, HeldText, extra_call_id, extra_fields
from .parents import Parents

__all__ = ["CallOut", "OutgoingCalls"]

Item = dict[str, Any]


class CallOut:
    """One call that was sent.

    Attributes:
        id: its toolCallId.
        message: the call or the code.
        name: its toolCallName.
        held: its arguments that were not sent.
        code: writes the arguments of the call that stands for code; None for a call.
        is_done: whether its end was sent.
        has_result: whether its result was sent.
        has_question: whether a question about it is open.
        is_denied: whether it was declined.
        printed: the consoles of it that are done.
    """

    def __init__(self, id: str, message: Message) -> None:
        self.id = id
        self.message = message
        self.name = CODE_TOOL if isinstance(message, m.CodeMessage) else message.name or "tool"
        self.held = HeldText()
        self.code = CodeArguments(message.format) if isinstance(message, m.CodeMessage) else None
        self.is_done = False
        self.has_result = False
        self.has_question = False
        self.is_denied = False
        self.printed: list[Message] = []


class OutgoingCalls:
    """The calls of one stream.

    Args:
        parents: knows which message a call belongs to.
        extra: makes the metadata of an event of a message from its extra fields.
    """

    def __init__(self, parents: Parents, extra: Callable[..., Item]) -> None:
        self._parents = parents
        self._extra = extra
        self._calls: dict[str, CallOut] = {}  # by toolCallId
        self._ids = UniqueIds(self._calls)
        self._newest_code: CallOut | None = None
        self._due: dict[str, CallOut] = {}  # what may have its result at the end of the step
        self._by_call: dict[str, CallOut] = {}  # the newest with this call id
        self.by_message: dict[str, CallOut] = {}
        self._result_ids = UniqueIds()

    def find(self, message: Message) -> CallOut | None:
        """Return the call that this call or code was sent as."""
        return self._by_call.get(message.call_id or message.id) or self.by_message.get(message.id)

    def part_of(self, message: Message) -> CallOut | None:
        """Return the call that a message is about: its own, or for what has no call_id, the newest code's."""
        if message.call_id is not None:
            return self._by_call.get(message.call_id)
        return self._newest_code if isinstance(message, m.ConsoleMessage) else None

    def pending(self) -> list[str]:
        """Return the ids of calls that wait for an output of the client's."""
        return [
            call.id
            for call in self._calls.values()
            if isinstance(call.message, m.ToolCallMessage)
            and not (call.has_result or call.message.provider_executed)
            and call.is_done
            and call.message.status == "completed"
        ]

    def withdraw(self, message_ids: Collection[str]) -> None:
        """The client has the calls of these messages no more: they get no result."""
        for id in message_ids:
            if (call := self.by_message.get(id)) is not None:
                call.has_result = True
                self._due.pop(call.id, None)

    def interrupt(self, confirmation: Confirmation) -> Item:
        """Return the interrupt of a question with which the run ends."""
        subject, part = confirmation.subject, self.find(confirmation.subject)
        properties: Item = {"approved": {"type": "boolean"}, "reason": {"type": "string"}}
        if confirmation.editable:
            properties["editedArgs"] = {"type": "object"}
        return {
            "id": confirmation.id,
            "reason": "tool_call",
            "message": f"May {part.name if part else subject.name or subject.type} run?",
            **({"toolCallId": part.id} if part else {}),
            **({} if confirmation.expires_at is None else {"expiresAt": date_of(confirmation.expires_at)}),
            "responseSchema": {"type": "object", "properties": properties, "required": ["approved"]},
        }

    # -- arguments

    def begin(self, message: Message) -> Iterator[Item]:
        """Begin a call or code."""
        call_id = message.call_id or message.id
        call = CallOut(self._ids.free(call_id), message)
        if call.code is not None:
            self._newest_code = call
        self._calls[call.id] = self._by_call[call_id] = self.by_message[message.id] = call
        parent = self._parents.call(call.id)
        yield {
            "type": "TOOL_CALL_START",
            "toolCallId": call.id,
            "toolCallName": call.name,
            **({"parentMessageId": parent} if parent else {}),
            **self._extra(message, **{**({"group": ""} if parent else {}), **self._fields(call)}),
        }
        if call.code is not None:
            yield from self._send(call, call.code.begin())

    def _fields(self, call: CallOut) -> Item:
        """Return the fields to keep of a call."""
        message = call.message
        expressed = ("name",) if call.code is None and message.name == call.name else ()
        extra = {**extra_fields(message, *expressed, id=call.id), **extra_call_id(message, call.id)}
        if call.code is not None:
            extra["type"] = "code"
        elif message.metadata.get("custom") is True:
            extra["custom"] = True
        if isinstance(message, m.ToolCallMessage) and message.provider_executed:
            extra["provider_executed"] = True
        return extra

    def _send(self, call: CallOut, text: str, *, all: bool = False) -> Iterator[Item]:
        now = call.held.add(text) + (call.held.take() if all else "")
        if now:
            yield {"type": "TOOL_CALL_ARGS", "toolCallId": call.id, "delta": now}

    def delta(self, call: CallOut, value: str) -> Iterator[Item]:
        """Yield the items of a piece of a call's arguments, or of code."""
        yield from self._send(call, value if call.code is None else call.code.piece(value))

    def flush(self, call: CallOut) -> Iterator[Item]:
        """Yield the pieces that were held back: they are in order before an event that changes the arguments."""
        yield from self._send(call, "", all=True)

    def done(self, message: Message) -> Iterator[Item]:
        """End a call or code that is complete, or will never be."""
        call = self.by_message[message.id]
        call.message = message
        call.is_done = True
        self._by_call[message.call_id or message.id] = call  # it may have come only now
        end = call.code.end(message.format) if call.code is not None and message.status == "completed" else ""
        yield from self._send(call, end, all=True)
        yield {"type": "TOOL_CALL_END", "toolCallId": call.id, **self._extra(message, **self._fields(call))}

    def whole(self, message: Message) -> Iterator[Item]:
        """Yield the items of a call that was not sent when it came."""
        yield from self.begin(message)
        if message.content:
            yield from self.delta(self.by_message[message.id], message.content)
        yield from self.done(message)

    # -- results

    def output(self, message: Message) -> Iterator[Item]:
        """Yield what a tool gave."""
        call = self.part_of(message)
        if call is not None:
            call.has_result = True
        call_id = (message.call_id or message.id) if call is None else call.id
        extra = extra_fields(message, id=message.id, default_role="computer")
        if call is not None and message.name == call.message.name:
            extra.pop("name", None)
        extra |= extra_call_id(message, call_id if call is None else call.message.call_id or call.id)
        if message.metadata.get("error") is True:
            extra["error"] = True
        yield self._result(message.id, call_id, message.content, self._extra(message, **extra))

    def _result(self, id: str, call_id: str, content: str, metadata: Item) -> Item:
        id = self._result_ids.unused(id)
        self._parents.other()
        return {
            "type": "TOOL_CALL_RESULT",
            "messageId": id,
            "toolCallId": call_id,
            "content": content,
            "role": "tool",
            **metadata,
        }

    def printed(self, console: Message) -> None:
        """A console is done: it is the result of its call, if there comes no other before the step's end."""
        call = self.part_of(console)
        if call is not None:
            call.printed.append(console)
            self._due[call.id] = call

    def deny(self, call: CallOut) -> None:
        """A call was declined: that is its result, if there comes no other before the step's end."""
        call.is_denied = True
        self._due[call.id] = call

    def results(self, *, is_end: bool = False) -> Iterator[Item]:
        """Yield the results of calls that gave nothing but what they printed, or were declined; at the run's end, of
        code that printed nothing."""
        due, self._due = (self._calls if is_end else self._due), {}
        for call in due.values():
            if call.has_result or call.has_question or not call.is_done:
                continue
            ran = is_end and call.code is not None and call.message.status == "completed"
            if call.is_denied or call.printed or ran:
                call.has_result = True
                content = "".join(console.content for console in call.printed)
                text = DENIED if call.is_denied and not content else content
                yield self._result(f"{call.id}.result", call.id, text, self._extra(call.message, type="none"))
