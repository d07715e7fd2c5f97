"""Waking one thread or task that waits, from any thread. Woken before it waits, it does not wait."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel

__all__ = ["TaskWaker", "ThreadWaker", "in_event_loop"]


class ThreadWaker:
    """Wakes a thread. No lock is held meanwhile: the garbage collector may wake, in whatever its thread was doing."""

    def __init__(self) -> None:
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # it was woken already
            self._asleep.release()

    def reset(self) -> None:
        self._asleep.acquire(blocking=False)

    def wait(self, seconds: float | None) -> None:
        """Wait until woken, at most so long."""
        self._asleep.acquire(timeout=-1 if seconds is None else min(seconds, threading.TIMEOUT_MAX))


class TaskWaker:
    """Wakes a task of asyncio or trio; made in its event loop. That is crossed once, however often it is woken."""

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._woken = False
        token: Any = anyio.lowlevel.current_token().native_token
        self._soon: Callable[[Callable[[], object]], object] = (
            getattr(token, "run_sync_soon", None) or token.call_soon_threadsafe
        )

    def wake(self) -> None:
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the event loop is over, and so is who waited in it
                self._soon(self._event.set)

    def reset(self) -> None:
        if self._woken:
            self._event = anyio.Event()
            self._woken = False

    async def wait(self, seconds: float | None) -> None:
        """Wait until woken, at most so long."""
        with anyio.move_on_after(seconds):
            await self._event.wait()


def in_event_loop() -> bool:
    """Whether waiting here would block an event loop."""
    try:
        anyio.lowlevel.current_token()
    except RuntimeError:  # of whichever library looks for it
        return False
    return True
