"""Methods that may wait, for tasks on asyncio and trio."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Self, TypeVar

import anyio.to_thread

__all__ = ["Closable", "InTasks"]

_T = TypeVar("_T")


class InTasks:
    """The base of classes with `a…` methods, which call those without the `a` in a worker thread, where they may wait.

    Attributes:
        waits: whether they may. Where they return at once, they are called in the task itself.
    """

    waits: bool = True

    async def in_task(self, function: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
        """Call one of its methods, for a task."""
        call = partial(function, *arguments, **options)
        if self.waits:
            return await anyio.to_thread.run_sync(call)
        return call()


class Closable(InTasks):
    """The base of classes that are closed at the end, by `close` or by leaving `with`."""

    def close(self) -> None:
        """Release what is held. It is not used any more."""

    async def aclose(self) -> None:
        """As `close`, for tasks."""
        await self.in_task(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
