"""Methods that may wait, for tasks on asyncio and trio."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import anyio.to_thread

__all__ = ["InTasks"]

_T = TypeVar("_T")


class InTasks:
    """What has `a…` forms: methods that are called in a worker thread, where they may wait.

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
