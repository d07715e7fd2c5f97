"""What takes the events of an async stream: how each way of reading picks what it wants, and the loops over them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

from ..events import Event

__all__ = ["DRAIN", "PLAIN", "AsyncEvents", "AsyncTexts", "Reader"]


def _do_nothing() -> None:
    """At the end of steps that nobody iterates over."""


class Reader(NamedTuple):
    """What takes the events of steps.

    Attributes:
        pick: makes of an event what is wanted, None of one that is not; without it every event is wanted.
        at_end: called when there are no more steps; may raise.
        drains: whether it is one task's until then, that makes all of it interruptible.
    """

    pick: Callable[[Event], Any] | None = None
    at_end: Callable[[], None] = _do_nothing
    drains: bool = False


PLAIN = Reader()
"""Wants every event."""

DRAIN = Reader(drains=True)
"""Runs the steps to their end."""


class _Iteration:
    """A loop over a stream's events. It may be left at any time: the stream stays open.

    Args:
        advance: gives what comes next; at the end of the stream it raises `StopAsyncIteration`, or the error that the stream
            ended with.
    """

    def __init__(self, advance: Callable[[], Awaitable[Any]]) -> None:
        self._advance = advance

    # No coroutine of its own: there is one for each delta already.
    def __anext__(self) -> Awaitable[Any]:
        return self._advance()


class AsyncEvents(_Iteration, AsyncIterator[Event]):
    """All events."""


class AsyncTexts(_Iteration, AsyncIterator[str]):
    """The assistant's text."""
