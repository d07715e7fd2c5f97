"""The loops over an async stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

__all__ = ["Loop"]


class Loop(AsyncIterator[Any]):
    """A loop over a stream. It holds nothing of it, so it may be left at any time, and another one goes on from there.

    Not an async generator: one that raised has ended, and would take a stream that failed for one that is complete; and an
    event loop closes those that are left.

    Args:
        take: returns the next value. It raises `StopAsyncIteration` at the end, each time that it is called.
    """

    __slots__ = ("_take",)

    def __init__(self, take: Callable[[], Awaitable[Any]]) -> None:
        self._take = take

    def __anext__(self) -> Awaitable[Any]:
        return self._take()

    async def aclose(self) -> None:
        """End this loop, not the stream."""
        self._take = _nothing


async def _nothing() -> None:
    raise StopAsyncIteration
