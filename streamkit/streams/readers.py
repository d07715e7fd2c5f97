"""The loops over an async stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

from ..errors import IncompleteStreamError

__all__ = ["GeneratorLoop", "Loop"]


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


class GeneratorLoop(AsyncGenerator[Any, Any]):
    """An async generator that raises each time that it is continued after an error, or after a wait that was cancelled.

    One of Python's own has ended then, and who goes on with it takes a part for the whole.

    Args:
        generator: gives the values. Closing this closes it.
    """

    def __init__(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generator = generator
        self._error: Exception | None = None

    async def asend(self, value: Any, /) -> Any:
        return await self._step(self._generator.asend(value))

    async def athrow(self, *error: Any) -> Any:
        return await self._step(self._generator.athrow(*error))

    async def aclose(self) -> None:
        self._error = None
        await self._generator.aclose()

    async def _step(self, step: Awaitable[Any]) -> Any:
        try:
            return await step
        except StopAsyncIteration:
            if self._error is not None:
                raise self._error from None
            raise
        except Exception as error:
            self._error = error
            raise
        except BaseException as error:
            kind = type(error).__name__
            self._error = IncompleteStreamError(f"the loop was interrupted while it was read ({kind}), and has ended")
            raise


async def _nothing() -> None:
    raise StopAsyncIteration
