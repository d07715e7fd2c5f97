"""Events in Open Interpreter's order: one message after the other, as its readers build a message from a start and an end.

Messages that grow side by side are separated. A text ends where another message begins, and what it goes on with is a
message of its own; what begins while code, output or another message is open waits until that is done. A call has no place
beside its own code: it waits until it is done, and is left out if its code is a message. If that code could not run, the
output of the call becomes console output.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from ...events import ConsoleCreated, ConsoleDelta, ConsoleDone, Created, Delta, Done, Event, TextCreated, TextDone
from ...messages import (
    CodeMessage,
    ConsoleMessage,
    Message,
    RefusalMessage,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
)

__all__ = ["MessageSequencer"]

_TEXTS = (TextMessage, RefusalMessage)


class MessageSequencer:
    """Reorders the events of one stream, so that at most one message is open.

    States, by the open message: none; a text or refusal, which ends early when another message is created; a call, whose
    events are held until it is done or its code begins; code, console or another message. During the last two, all events of
    other messages are held back.

    Args:
        left_out: the classes of messages that are left out.
    """

    def __init__(self, left_out: tuple[type[Message], ...] = ()) -> None:
        self._left_out = left_out
        self._open: Message | None = None
        self._call: list[Event] = []  # the events of an open call
        self._held_back: OrderedDict[str, list[Event]] = OrderedDict()  # by their message's id
        self._ended_early: set[str] = set()  # ids of texts that may still grow
        self._with_code: set[str] = set()  # ids of the calls with a message of code

    def feed(self, event: Event) -> Iterator[Event]:
        """Yield the events that follow from the stream's next one."""
        yield from self._take(event)
        while (held := self._next_held()) is not None:
            for one in held:
                yield from self._take(one)

    def _next_held(self) -> list[Event] | None:
        """Return the events of the message that was held back first, if they may follow now."""
        if not self._held_back:
            return None
        events = next(iter(self._held_back.values()))
        may_follow = self._open is None or (isinstance(self._open, _TEXTS) and isinstance(events[0], Created))
        return self._held_back.popitem(last=False)[1] if may_follow else None

    def _take(self, event: Event) -> Iterator[Event]:
        message = getattr(event, "snapshot", None)
        if not isinstance(message, Message):
            yield event
            return
        if isinstance(message, CodeMessage) and isinstance(event, Created) and message.call_id:
            self._code_begins(message.call_id)
        if isinstance(message, (ToolCallMessage, ToolOutputMessage)) and message.call_id in self._with_code:
            if isinstance(message, ToolOutputMessage) and isinstance(event, Done):
                yield from self._failure_in_console(message)
        elif not isinstance(message, self._left_out):
            yield from self._feed_message(message, event)

    def _code_begins(self, call_id: str) -> None:
        """Leave out the call that this code is of."""
        self._with_code.add(call_id)
        if isinstance(self._open, ToolCallMessage) and self._open.call_id == call_id:
            self._open, self._call = None, []

    def _feed_message(self, message: Message, event: Event) -> Iterator[Event]:
        if self._open is not None and self._open is not message:
            if not isinstance(self._open, _TEXTS) or not isinstance(event, Created):
                self._held_back.setdefault(message.id, []).append(event)
                return
            yield from self._end_early(self._open)
        yield from self._emit(message, event)

    def _end_early(self, text: Message) -> Iterator[Event]:
        self._ended_early.add(text.id)
        self._open = None
        yield TextDone(TextMessage(text.id))

    def _emit(self, message: Message, event: Event) -> Iterator[Event]:
        """Yield the events of an event of the open message, or of any while none is open."""
        match event:
            case Created():
                self._open = message
                yield from self._unless_call(message, event)
            case Done() if message.id in self._ended_early:
                self._ended_early.discard(message.id)
            case Done():
                yield from self._call
                yield event
                self._open, self._call = None, []
            case Delta() if message.id in self._ended_early:  # the text continues as a second message
                self._ended_early.discard(message.id)
                self._open = message
                yield TextCreated(message)
                yield event
            case _:
                yield from self._unless_call(message, event)

    def _unless_call(self, message: Message, event: Event) -> Iterator[Event]:
        """Yield the event; it is held if it is of a call that is not done."""
        if isinstance(message, ToolCallMessage):
            self._call.append(event)
        else:
            yield event

    def _failure_in_console(self, output: ToolOutputMessage) -> Iterator[Event]:
        """Yield the output of a call without a run of code, as console output."""
        console = ConsoleMessage(output.id, content=output.content)
        yield ConsoleCreated(console)
        yield ConsoleDelta(console.id, output.content)
        yield ConsoleDone(console)
