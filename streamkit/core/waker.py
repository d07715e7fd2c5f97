"""What wakes the manager of a stream that waits for answers."""

from __future__ import annotations

from typing import Protocol

__all__ = ["NoWaker", "Waker"]


class Waker(Protocol):
    """Wakes the thread or task that waits for answers. Not a function, which would be one more object in each stream."""

    def answer_came(self) -> None:
        """Note that something was answered or deferred, perhaps in another thread."""
        ...


class NoWaker:
    """The waker of an engine where nothing waits for answers."""

    def answer_came(self) -> None:
        """Do nothing."""
