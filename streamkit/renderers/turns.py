"""Decides which message is shown, where several grow at the same time.

One message is current. What the others receive meanwhile waits until the current one is done or has fallen silent; then
another becomes current, and the first may be resumed later. So texts never run into each other, whatever the order of
their pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from ..messages import Message, ToolCallMessage

__all__ = ["Action", "Turns", "WaitingMessage"]

_SILENT_AFTER = 20  # pieces of other messages, after which a current message that did not grow has fallen silent


class Action(NamedTuple):
    """One thing for a renderer to do.

    Attributes:
        kind: `begin` a message; `resume` one that was paused; `replace` all its text by a new one; `append` a piece;
            `pause` it, for another one follows; `end` it.
        message: the message.
        text: the piece, or the new text.
        stream: the stream that console output came from, `stdout` or `stderr`; "" for others.
    """

    kind: Literal["begin", "resume", "replace", "append", "pause", "end"]
    message: Message
    text: str = ""
    stream: str = ""


class WaitingMessage:
    """A message that waits to become current, with the pieces that came meanwhile.

    Attributes:
        pieces: each with the stream that it came from.
        begun: whether it was current before.
        replaced: whether the pieces replace what was shown of it.
        done: whether it is complete.
        current_silent: whether the current message did not grow since this one waits.
    """

    def __init__(self, message: Message, *, begun: bool) -> None:
        self.message = message
        self.pieces: list[tuple[str, str]] = []
        self.begun = begun
        self.replaced = False
        self.done = False
        self.current_silent = True


class Turns:
    """Puts what messages receive in an order that can be read from top to bottom.

    Each method returns what to do now; the iterator has to be used up.

    Attributes:
        current: the message that is shown; None if there is none.
        waiting: the messages that wait, by id, in the order in which they were created.
    """

    def __init__(self) -> None:
        self.current: Message | None = None
        self.waiting: dict[str, WaitingMessage] = {}
        self._silent = 0  # pieces of other messages since the current one grew

    def create(self, message: Message) -> Iterator[Action]:
        """A message was created."""
        if self.current is None:
            self.current, self._silent = message, 0
            yield Action("begin", message)
        else:
            self.waiting[message.id] = WaitingMessage(message, begun=False)

    def append(self, message: Message, text: str, *, replace: bool = False, stream: str = "") -> Iterator[Action]:
        """A message received a piece, or with `replace` a new text in place of all."""
        waiting = self.waiting.get(message.id)
        if waiting is None:
            if message is not self.current:  # its creation was not seen
                yield from self.create(message)
                if message is not self.current:
                    yield from self.append(message, text, replace=replace, stream=stream)
                    return
            self._silent = 0
            for other in self.waiting.values():
                other.current_silent = False
            yield Action("replace" if replace else "append", message, text, stream)
            return
        if replace:
            waiting.pieces.clear()
            waiting.replaced = waiting.begun
        waiting.pieces.append((text, stream))
        self._silent += 1
        if self._may_become_current(waiting):
            yield from self._switch_to(waiting)

    def finish(self, message: Message) -> Iterator[Action]:
        """A message is complete."""
        waiting = self.waiting.get(message.id)
        if waiting is not None:
            waiting.done = True
            if waiting.current_silent or self.current is None:
                yield from self._switch_to(waiting)
        elif message is self.current:
            yield Action("end", message)
            self.current = None
        else:  # its creation was not seen
            yield Action("begin", message)
            yield Action("end", message)
        yield from self._continue()

    def flush(self) -> Iterator[Action]:
        """Show everything that waits, and pause the current message: something else is to be shown now."""
        for waiting in list(self.waiting.values()):
            if waiting.pieces or waiting.done:
                yield from self._switch_to(waiting)
        if self.current is not None:
            yield from self._pause()

    def _may_become_current(self, waiting: WaitingMessage) -> bool:
        if self.current is None or self._silent >= _SILENT_AFTER:
            return True
        # Calls side by side come one after the other; but text that follows reasoning need not wait for its end.
        return waiting.current_silent and waiting.message.type != self.current.type

    def _switch_to(self, waiting: WaitingMessage) -> Iterator[Action]:
        """Make a message current; those that are complete and older come before it."""
        if self.current is not None:
            yield from self._pause()
        for other in list(self.waiting.values()):
            if other is waiting:
                break
            if other.done:
                yield from self._make_current(other)
        yield from self._make_current(waiting)

    def _pause(self) -> Iterator[Action]:
        assert self.current is not None
        yield Action("pause", self.current)
        self.waiting = {self.current.id: WaitingMessage(self.current, begun=True), **self.waiting}
        self.current = None

    def _make_current(self, waiting: WaitingMessage) -> Iterator[Action]:
        del self.waiting[waiting.message.id]
        self.current, self._silent = waiting.message, 0
        # Of a call that was begun at least the closing bracket has to be shown.
        has_more = waiting.pieces or isinstance(waiting.message, ToolCallMessage)
        if not waiting.replaced and (has_more or not waiting.begun):
            yield Action("resume" if waiting.begun else "begin", waiting.message)
        for number, (text, stream) in enumerate(waiting.pieces):
            yield Action("replace" if waiting.replaced and number == 0 else "append", waiting.message, text, stream)
        for other in self.waiting.values():
            other.current_silent = not waiting.pieces
        if waiting.done:
            yield Action("end", waiting.message)
            self.current = None

    def _continue(self) -> Iterator[Action]:
        """After an end: make the oldest message current that has anything to show."""
        while self.current is None:
            waiting = next((one for one in self.waiting.values() if one.pieces or one.done), None)
            if waiting is None:
                return
            yield from self._make_current(waiting)
