"""The loops over a stream that can be continued after an error."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from typing import Any

from ..errors import IncompleteStreamError

__all__ = ["AsyncGeneratorLoop", "GeneratorLoop", "Loop"]


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


class GeneratorLoop(Generator[Any, Any, None]):
    """A generator that raises each time that it is continued after an error, or after Ctrl-C in a wait.

    One of Python's own has ended then, and who goes on with it takes a part for the whole.

    Args:
        generator: gives the values. Closing this closes it.
    """

    def __init__(self, generator: Generator[Any, Any, None]) -> None:
        self._generator = generator
        self._error: Exception | None = None

    def send(self, value: Any, /) -> Any:
        return self._step(self._generator.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._generator.throw, *error)

    def close(self) -> None:
        self._error = None
        self._generator.close()

    def _step(self, step: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return step(*arguments)
        except StopIteration:
            if self._error is not None:
                raise self._error from None
            raise
        except BaseException as error:
            self._error = _error_when_continued(error)
            raise


class AsyncGeneratorLoop(AsyncGenerator[Any, Any]):
    """As `GeneratorLoop`, for an async generator: also after a wait that was cancelled."""

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
        except BaseException as error:
            self._error = _error_when_continued(error)
            raise


def _error_when_continued(error: BaseException) -> Exception:
    """Return what a loop raises when it is continued after this error."""
    if isinstance(error, Exception):
        return error
    return IncompleteStreamError(f"the loop was interrupted while it was read ({type(error).__name__}), and has ended")


async def _nothing() -> None:
    raise StopAsyncIteration
