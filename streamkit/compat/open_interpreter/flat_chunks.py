"""A stream of an agent as Open Interpreter tells it: one message after the other, and of those types that it knows.

Messages that grow side by side are told one at a time: a text ends where another message begins; what begins while code
or output is open waits for its end. Calls of tools and what functions gave are left out, as is reasoning; a call of code
that could not run says so in the console.
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

__all__ = ["Flat"]

_LEFT_OUT = (ToolCallMessage, ToolOutputMessage, ReasoningMessage)


class Flat:
    """The events of one stream, in that order."""

    def __init__(self, code_tool: str) -> None:
        self._code_tool = code_tool
        self._open: Message | None = None
        self._held: deque[Event] = deque()
        self._ended: set[str] = set()  # texts that were ended before their time

    def feed(self, event: Event) -> Iterator[Event]:
        message = getattr(event, "snapshot", None)
        if isinstance(message, _LEFT_OUT):
            if isinstance(event, Done) and isinstance(message, ToolOutputMessage) and message.name == self._code_tool:
                yield from self._refused(message)
        elif isinstance(message, Message):
            yield from self._of(message, event)
        else:
            yield event

    def _of(self, message: Message, event: Event) -> Iterator[Event]:
        if self._open is not None and self._open is not message:
            if not isinstance(self._open, (TextMessage, RefusalMessage)) or not isinstance(event, Created):
                self._held.append(event)
                return
            yield from self._end_text(self._open)
        yield from self._tell(message, event)

    def _end_text(self, text: Message) -> Iterator[Event]:
        self._ended.add(text.id)
        self._open = None
        yield TextDone(TextMessage(text.id))

    def _tell(self, message: Message, event: Event) -> Iterator[Event]:
        match event:
            case Created():
                self._open = message
                yield event
            case Done() if message.id in self._ended:
                self._ended.discard(message.id)
            case Done():
                yield event
                self._open = None
                yield from self._release()
            case Delta() if message.id in self._ended:
                self._ended.discard(message.id)  # it goes on after all
                self._open = message
                yield TextCreated(message)
                yield event
            case _:
                yield event

    def _release(self) -> Iterator[Event]:
        held, self._held = self._held, deque()
        for event in held:
            yield from self.feed(event)

    def _refused(self, output: ToolOutputMessage) -> Iterator[Event]:
        """A call of code that came to nothing."""
        console = ConsoleMessage(output.id, content=output.content)
        yield ConsoleCreated(console)
        yield ConsoleDelta(console.id, output.content)
        yield ConsoleDone(console)
