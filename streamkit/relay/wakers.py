"""Waking one thread or task that waits, from any thread. Woken before it waits, it does not wait.

Between threads an event loop is crossed once for all its tasks that are to be woken, and not once for each.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel

__all__ = ["TaskWaker", "ThreadWaker", "in_event_loop", "task_waker"]


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

    def wait(self, seconds: float) -> None:
        """Wait until woken, at most so long."""
        self._asleep.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))

    def close(self) -> None:
        """It is not waited with any more."""


class TaskWaker(ABC):
    """Wakes a task; made in its event loop."""

    def __init__(self, crossing: _Crossing) -> None:
        self._crossing = crossing
        self._thread = threading.get_ident()
        self._woken = False

    def wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._crossing.call(self._wake_here)

    @abstractmethod
    def _wake_here(self) -> None:
        """In the event loop."""

    @abstractmethod
    def reset(self) -> None: ...

    @abstractmethod
    async def wait(self, seconds: float) -> None:
        """Wait until woken, at most about so long: it may be less."""

    @abstractmethod
    def close(self) -> None:
        """It is not waited with any more."""


class _AsyncioWaker(TaskWaker):
    """On asyncio. It waits for a bare future, and keeps one timer, which is set anew when it has rung: a scope with a
    timer of its own for each wait would cost more than all else."""

    def __init__(self, loop: Any, crossing: _Crossing) -> None:
        super().__init__(crossing)
        self._loop = loop
        self._future: Any = None
        self._timer: Any = None

    def wake(self) -> None:
        if self._woken or threading.get_ident() != self._thread:
            super().wake()
        else:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the event loop is over
                self._wake_here()

    def _wake_here(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def _ring(self) -> None:
        self._timer = None
        self._wake_here()

    def reset(self) -> None:
        self._woken = False

    async def wait(self, seconds: float) -> None:
        if self._woken:
            return
        self._future = self._loop.create_future()
        try:
            end = self._loop.time() + seconds
            if self._timer is None or self._timer.when() > end:
                self.close()
                self._timer = self._loop.call_at(end, self._ring)
            await self._future
        finally:
            self._future = None

    def close(self) -> None:
        if self._timer is not None and threading.get_ident() == self._thread:
            self._timer.cancel()
            self._timer = None


class _TrioWaker(TaskWaker):
    """On trio."""

    def __init__(self, crossing: _Crossing) -> None:
        super().__init__(crossing)
        self._event = anyio.Event()

    def _wake_here(self) -> None:
        self._event.set()

    def reset(self) -> None:
        if self._woken:
            self._event = anyio.Event()
            self._woken = False

    async def wait(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._event.wait()

    def close(self) -> None:
        pass


class _Crossing:
    """Into an event loop, from any thread."""

    def __init__(self, token: Any, soon: str) -> None:
        self._token = weakref.ref(token)
        self._soon = soon
        self._calls: deque[Callable[[], None]] = deque()
        self._crosses = False

    def call(self, function: Callable[[], None]) -> None:
        """Call this in the event loop, soon."""
        self._calls.append(function)
        if not self._crosses:
            self._crosses = True
            try:
                getattr(self._token(), self._soon)(self._arrive)
            except (RuntimeError, AttributeError):  # the event loop is over, and so is who waited in it
                self._calls.clear()

    def _arrive(self) -> None:
        self._crosses = False
        with contextlib.suppress(IndexError):
            while True:
                self._calls.popleft()()


_crossings: weakref.WeakKeyDictionary[Any, _Crossing] = weakref.WeakKeyDictionary()


def task_waker() -> TaskWaker:
    """What wakes tasks of this event loop, of asyncio or trio."""
    token: Any = anyio.lowlevel.current_token().native_token
    on_trio = hasattr(token, "run_sync_soon")
    crossing = _crossings.get(token)
    if crossing is None:
        crossing = _crossings[token] = _Crossing(token, "run_sync_soon" if on_trio else "call_soon_threadsafe")
    return _TrioWaker(crossing) if on_trio else _AsyncioWaker(token, crossing)


def in_event_loop() -> bool:
    """Whether waiting here would block an event loop."""
    try:
        anyio.lowlevel.current_token()
    except RuntimeError:  # of whichever library looks for it
        return False
    return True
