"""The answer to a question that every reader of a run may answer: the first answer counts, for all of them.

The producer waits for a `SharedAnswer`. Each reader has a `ReaderAnswer` of its own, which forwards what it is given. One
that comes after the question was decided is dropped without an error: its reader receives the outcome, as every other one
does. A reader that leaves closes only its own answer, and takes its deferral back.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..messages.answer import Answer

if TYPE_CHECKING:
    from .reader import Reading

__all__ = ["ReaderAnswer", "SharedAnswer"]


class _Deferrable(Answer):
    """An answer whose question stays open when the time of its deferral is over: others may have deferred it, too."""

    __slots__ = ()

    def expire(self, deferral: int) -> None:
        with self._lock:
            if self.deferrals == deferral:
                self.deferred = False
        self.changes.append(self)


class SharedAnswer(_Deferrable):
    """The producer's answer."""

    __slots__ = ("_holders",)

    def __init__(
        self,
        what: str,
        wake: Callable[[], None],
        *,
        awaitables: bool = False,
        changes: deque[Answer] | None = None,
    ) -> None:
        super().__init__(what, wake, awaitables=awaitables, changes=changes)
        self._holders: list[ReaderAnswer] = []

    def hold(self, reader: ReaderAnswer) -> None:
        """A reader has deferred the question."""
        with self._lock:
            if reader not in self._holders:
                self._holders.append(reader)
        self.wake()

    @property
    def deferred_answers(self) -> list[SharedAnswer | ReaderAnswer]:
        """The answers that are deferred: those of readers, and this one."""
        answers: list[SharedAnswer | ReaderAnswer] = [self, *self._holders]
        return [answer for answer in answers if answer.deferred]


class ReaderAnswer(_Deferrable):
    """One reader's answer."""

    __slots__ = ("_forwarded", "_producers", "_reading")

    def __init__(self, producers: Answer, reading: Reading | None) -> None:
        super().__init__(producers.what, self._forward, awaitables=producers.awaitables)
        self._producers = producers
        self._reading = None if reading is None else weakref.ref(reading)
        self._forwarded = 0  # deferrals

    @property
    def open(self) -> bool:
        return super().open and self._producers.open

    @property
    def present(self) -> bool:
        """Whether its reader is still there."""
        if self._reading is None:
            return True
        reading = self._reading()
        return reading is not None and not reading.is_over

    def _forward(self) -> None:
        if self.given:
            self._producers.offer(self.value)
        elif self.deferrals == self._forwarded or not self._producers.open:
            return
        elif isinstance(self._producers, SharedAnswer):
            self._producers.hold(self)
        else:  # of another stream, which was written into the log
            self._producers.defer(self.timeout)
        self._forwarded = self.deferrals
