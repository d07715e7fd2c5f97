"""Whose turn it is, where several messages grow side by side.

One message speaks. What the others say meanwhile is kept until it is done, or until it has fallen silent: then
another one speaks, and it may go on later. So texts never run into each other, whatever the order of their pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from ..messages import Message, ToolCallMessage

__all__ = ["Said", "Turns", "Waiting"]

_PATIENCE = 20  # pieces of others until a message that says nothing has fallen silent


class Said(NamedTuple):
    """One thing to show. `begin` starts a message, `again` goes on with one that was interrupted, `replace` begins it
    anew; `end` is its end, `pause` the end of its turn. `text` has the next piece; `mark` came with the piece."""

    what: Literal["begin", "again", "replace", "text", "pause", "end"]
    message: Message
    text: str = ""
    mark: str = ""


class Waiting:
    """A message that waits for its turn, with what it has said meanwhile."""

    def __init__(self, message: Message, *, begun: bool) -> None:
        self.message = message
        self.pieces: list[tuple[str, str]] = []
        self.begun = begun
        self.replaced = False
        self.done = False
        self.silence = True  # whether the speaker has said nothing since this one waits


class Turns:
    """Puts what messages say in an order that can be read from top to bottom."""

    def __init__(self) -> None:
        self.speaker: Message | None = None
        self.waiting: dict[str, Waiting] = {}  # by id, in the order of their creation
        self._silent = 0  # pieces of others since the speaker's last

    def created(self, message: Message) -> Iterator[Said]:
        if self.speaker is None:
            self.speaker, self._silent = message, 0
            yield Said("begin", message)
        else:
            self.waiting[message.id] = Waiting(message, begun=False)

    def grew(self, message: Message, text: str, *, replace: bool = False, mark: str = "") -> Iterator[Said]:
        held = self.waiting.get(message.id)
        if held is None:
            if message is not self.speaker:
                yield from self.created(message)
                if message is not self.speaker:
                    yield from self.grew(message, text, replace=replace, mark=mark)
                    return
            self._silent = 0
            for other in self.waiting.values():
                other.silence = False
            yield Said("replace" if replace else "text", message, text, mark)
            return
        if replace:
            held.pieces.clear()
            held.replaced = held.begun
        held.pieces.append((text, mark))
        self._silent += 1
        if self._may_speak(held):
            yield from self._give_turn(held)

    def done(self, message: Message) -> Iterator[Said]:
        held = self.waiting.get(message.id)
        if held is not None:
            held.done = True
            if held.silence or self.speaker is None:
                yield from self._give_turn(held)
        elif message is self.speaker:
            yield Said("end", message)
            self.speaker = None
        else:  # never heard of it: it was created before we listened
            yield Said("begin", message)
            yield Said("end", message)
        yield from self._next()

    def flush(self) -> Iterator[Said]:
        """All that was kept, and who spoke pauses: something else is to be shown here."""
        for held in list(self.waiting.values()):
            if held.pieces or held.done:
                yield from self._give_turn(held)
        if self.speaker is not None:
            yield from self._pause()

    def _may_speak(self, held: Waiting) -> bool:
        if self.speaker is None or self._silent >= _PATIENCE:
            return True
        # Calls side by side are told one after the other; text that follows thoughts need not wait for their end.
        return held.silence and held.message.type != self.speaker.type

    def _give_turn(self, held: Waiting) -> Iterator[Said]:
        """Those that are done and came before it speak first."""
        if self.speaker is not None:
            yield from self._pause()
        for other in list(self.waiting.values()):
            if other is held:
                break
            if other.done:
                yield from self._speak(other)
        yield from self._speak(held)

    def _pause(self) -> Iterator[Said]:
        assert self.speaker is not None
        yield Said("pause", self.speaker)
        self.waiting = {self.speaker.id: Waiting(self.speaker, begun=True), **self.waiting}
        self.speaker = None

    def _speak(self, held: Waiting) -> Iterator[Said]:
        del self.waiting[held.message.id]
        self.speaker, self._silent = held.message, 0
        resumed = held.pieces or isinstance(held.message, ToolCallMessage)  # of a call, what closes it
        if not held.replaced and (resumed or not held.begun):
            yield Said("again" if held.begun else "begin", held.message)
        for number, (text, mark) in enumerate(held.pieces):
            yield Said("replace" if held.replaced and number == 0 else "text", held.message, text, mark)
        for other in self.waiting.values():
            other.silence = not held.pieces
        if held.done:
            yield Said("end", held.message)
            self.speaker = None

    def _next(self) -> Iterator[Said]:
        """After an end: the oldest that has something to say."""
        while self.speaker is None:
            held = next((one for one in self.waiting.values() if one.pieces or one.done), None)
            if held is None:
                return
            yield from self._speak(held)
