"""An agent's events in Open Interpreter's order: one message after the other, and only of the types that it has.

Messages that grow side by side are separated. A text ends where another message begins; what begins while code or output
is open waits until that is done. Tool calls, the outputs of functions and reasoning are left out. If code could not run,
the reason becomes console output.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ...events import ConsoleCreated, ConsoleDelta, ConsoleDone, Created, Delta, Done, Event, TextCreated, TextDone
from ...messages import (
    ConsoleMessage,
    Message,
    ReasoningMessage,
    RefusalMessage,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
)

__all__ = ["MessageSequencer"]

_LEFT_OUT = (ToolCallMessage, ToolOutputMessage, ReasoningMessage)


class MessageSequencer:
    """Reorders the events of one stream, so that at most one message is open.

    States, by the open message: none; a text or refusal, which ends early when another message is created; code, console
    or another message, during which all events of other messages are held back.

    Args:
        code_tool: the name of the tool that runs code.
    """

    def __init__(self, code_tool: str) -> None:
        self._code_tool = code_tool
        self._open: Message | None = None
        self._held_back: deque[Event] = deque()
        self._ended_early: set[str] = set()  # ids of texts that may still grow

    def feed(self, event: Event) -> Iterator[Event]:
        """The events that follow from the stream's next one."""
        message = getattr(event, "snapshot", None)
        if isinstance(message, _LEFT_OUT):
            if isinstance(event, Done) and isinstance(message, ToolOutputMessage) and message.name == self._code_tool:
                yield from self._console_with_failure(message)
        elif isinstance(message, Message):
            yield from self._feed_message(message, event)
        else:
            yield event

    def _feed_message(self, message: Message, event: Event) -> Iterator[Event]:
        if self._open is not None and self._open is not message:
            if not isinstance(self._open, (TextMessage, RefusalMessage)) or not isinstance(event, Created):
                self._held_back.append(event)
                return
            yield from self._end_early(self._open)
        yield from self._emit(message, event)

    def _end_early(self, text: Message) -> Iterator[Event]:
        self._ended_early.add(text.id)
        self._open = None
        yield TextDone(TextMessage(text.id))

    def _emit(self, message: Message, event: Event) -> Iterator[Event]:
        """An event of the open message, or of any while none is open."""
        match event:
            case Created():
                self._open = message
                yield event
            case Done() if message.id in self._ended_early:
                self._ended_early.discard(message.id)
            case Done():
                yield event
                self._open = None
                yield from self._release()
            case Delta() if message.id in self._ended_early:  # the text continues as a second message
                self._ended_early.discard(message.id)
                self._open = message
                yield TextCreated(message)
                yield event
            case _:
                yield event

    def _release(self) -> Iterator[Event]:
        events, self._held_back = self._held_back, deque()
        for event in events:
            yield from self.feed(event)

    def _console_with_failure(self, output: ToolOutputMessage) -> Iterator[Event]:
        """The output of a call whose code did not run, as console output."""
        console = ConsoleMessage(output.id, content=output.content)
        yield ConsoleCreated(console)
        yield ConsoleDelta(console.id, output.content)
        yield ConsoleDone(console)
