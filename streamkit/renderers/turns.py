"""Decides which message is shown, where several grow at the same time.

One message is current. What the others receive meanwhile waits until the current one is done or has fallen silent; then
another becomes current, and the first may be resumed later. So texts never run into each other, whatever the order of
their pieces.

Calls come whole, in the order in which they were created. A call is over as soon as its arguments are complete and another
message goes on: some protocols report the ends of all calls together, at the end of the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from ..core.json_fields import JsonFields
from ..messages import Message, ToolCallMessage

__all__ = ["Action", "ReadingOrder", "WaitingMessage"]

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


class _Arguments:
    """The arguments of a call, as far as they are shown."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._reader = JsonFields()

    def append(self, text: str) -> None:
        """Take a piece."""
        self._pieces.append(text)

    @property
    def complete(self) -> bool:
        """Whether nothing can follow."""
        if self._pieces:
            self._reader.feed("".join(self._pieces))
            self._pieces.clear()
        return self._reader.complete


class ReadingOrder:
    """Puts the changes of messages into an order that can be read from top to bottom.

    Each method returns the actions to do now; the iterator has to be used up.

    Attributes:
        current: the message that is shown; None if there is none.
        waiting: the messages that wait, by id, in the order in which they were created.
    """

    def __init__(self) -> None:
        self.current: Message | None = None
        self.waiting: dict[str, WaitingMessage] = {}
        self._silent = 0  # pieces of other messages since the current one grew
        self._arguments: dict[str, _Arguments] = {}  # of calls that were begun, by the message's id
        self._over: set[str] = set()  # calls that were ended before they were done

    def create(self, message: Message) -> Iterator[Action]:
        """A message was created."""
        yield from self._end_complete_call()
        if self.current is None:
            self.current, self._silent = message, 0
            yield Action("begin", message)
        else:
            self.waiting[message.id] = WaitingMessage(message, begun=False)

    def append(self, message: Message, text: str, *, replace: bool = False, stream: str = "") -> Iterator[Action]:
        """A message received a piece, or with `replace` a new text in place of all."""
        if message.id in self._over and (replace or text.strip()):  # more follows what seemed to be complete
            self._over.remove(message.id)
            self.waiting[message.id] = WaitingMessage(message, begun=True)
        elif message.id in self._over:
            return
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
            yield self._shown(message, text, stream, replace=replace)
            return
        if replace:
            waiting.pieces.clear()
            waiting.replaced = waiting.begun
        waiting.pieces.append((text, stream))
        self._silent += 1
        yield from self._end_complete_call()
        if message.id in self.waiting and self._may_become_current(waiting):
            yield from self._switch_to(self._next(waiting))

    def finish(self, message: Message) -> Iterator[Action]:
        """A message is complete."""
        waiting = self.waiting.get(message.id)
        if waiting is not None:
            waiting.done = True
            yield from self._end_complete_call()
            is_cut = isinstance(self.current, ToolCallMessage)
            is_next = waiting.current_silent and not is_cut and self._is_of_one_agent(waiting)
            if message.id in self.waiting and (self.current is None or is_next):
                yield from self._switch_to(self._next(waiting))
        elif message is self.current:
            yield Action("end", message)
            self.current = None
        elif message.id in self._over:
            self._over.remove(message.id)
        else:  # its creation was not seen
            yield Action("begin", message)
            yield Action("end", message)
        self._arguments.pop(message.id, None)
        yield from self._continue()

    def flush(self) -> Iterator[Action]:
        """Show everything that waits, and pause the current message: something else is to be shown now."""
        for waiting in list(self.waiting.values()):
            if waiting.pieces or waiting.done:
                yield from self._switch_to(waiting)
        if self.current is not None:
            yield from self._pause()

    def _may_become_current(self, waiting: WaitingMessage) -> bool:
        if self.current is None:
            return True
        if isinstance(self.current, ToolCallMessage):  # it is not complete, and not to be cut in two by another call
            return self._silent >= _SILENT_AFTER and not isinstance(waiting.message, ToolCallMessage)
        if self._silent >= _SILENT_AFTER:
            return True
        # Calls side by side come one after the other; but text that follows reasoning need not wait for its end.
        is_next = waiting.current_silent and waiting.message.type != self.current.type
        return is_next and self._is_of_one_agent(waiting)

    def _is_of_one_agent(self, waiting: WaitingMessage) -> bool:
        """Whether a message is of the same agent as the current one: agents beside each other do not cut each other's texts."""
        return self.current is None or waiting.message.parent_id == self.current.parent_id

    def _next(self, waiting: WaitingMessage) -> WaitingMessage:
        """The message to show where this one may be: in place of a call, the oldest call that waits."""
        if not isinstance(waiting.message, ToolCallMessage):
            return waiting
        return next(one for one in self.waiting.values() if isinstance(one.message, ToolCallMessage))

    def _shown(self, message: Message, text: str, stream: str, *, replace: bool) -> Action:
        """A piece of the current message."""
        if isinstance(message, ToolCallMessage):
            if replace or message.id not in self._arguments:
                self._arguments[message.id] = _Arguments()
            self._arguments[message.id].append(text)
        return Action("replace" if replace else "append", message, text, stream)

    def _end_complete_call(self) -> Iterator[Action]:
        """Another message goes on, so the current one is over if it is a call with complete arguments."""
        call = self.current
        if call is not None and call.id in self._arguments and self._arguments[call.id].complete:
            self._over.add(call.id)
            self.current = None
            yield Action("end", call)
            yield from self._continue()

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
            yield self._shown(waiting.message, text, stream, replace=waiting.replaced and number == 0)
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
            yield from self._make_current(self._next(waiting))
