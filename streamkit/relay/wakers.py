"""Wakers: one thread or task waits, any thread wakes it. One that was woken before it waits does not wait at all.

Waking takes no lock: the garbage collector may end a reader, which wakes others, in the middle of any code.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel

_LONGEST = threading.TIMEOUT_MAX  # seconds
# How many threads are woken at once. They wake the others; there are two in case the system does not run one of them.
_AT_ONCE = 2

__all__ = [
    "TaskWaker",
    "ThreadWaker",
    "WaitingReaders",
    "Watch",
    "async_wait_until",
    "in_event_loop",
    "task_waker",
    "wait_until",
    "wake_next",
]

Watch: TypeAlias = Callable[[Callable[[], None]], Callable[[], None]]
"""Registers a function to be called at each change; returns the function that unregisters it."""


class ThreadWaker:
    """Wakes one thread.

    Attributes:
        waits: whether the thread waits now.
        line: the queue that this was taken from (see `wake_next`): once awake, the thread wakes the next one in it.
    """

    def __init__(self) -> None:
        self._asleep = threading.Lock()
        self._asleep.acquire()
        self.waits = False
        self.line = _NO_LINE

    def wake(self) -> None:
        """End the present or the next `wait`; from any thread."""
        try:  # noqa: SIM105 - `suppress` costs more than waking
            self._asleep.release()
        except RuntimeError:
            pass  # it was woken already

    def reset(self) -> None:
        """Forget that it was woken."""
        self._asleep.acquire(blocking=False)

    def wait(self, seconds: float) -> None:
        """Wait until woken, for at most so many seconds. The next call waits again. In any case the next thread in the line is
        woken afterwards."""
        self.waits = True
        try:
            self._asleep.acquire(True, seconds if seconds < _LONGEST else _LONGEST)
        finally:
            self.waits = False
            if self.line:
                wake_next(self.line)

    def close(self) -> None:
        """Release what waiting has used."""


_NO_LINE: deque[ThreadWaker] = deque()  # nothing is added to it


def wake_next(line: deque[ThreadWaker]) -> None:
    """Wake the first thread in a line that waits. That thread wakes the next one.

    Threads are not woken all at once: while one runs, the others would only go to sleep again, until the interpreter is free.
    Threads that do not wait, because they have something to read already, are taken out of the line on the way.
    """
    waits = False
    while line and not waits:
        try:
            waker = line.popleft()
        except IndexError:
            return  # another thread woke the last one
        waker.wake()
        waits = waker.waits  # if so, its `wait` goes on with the line


class TaskWaker(ABC):
    """Wakes one task of the event loop in which it was made. `task_waker` makes the one for the running loop."""

    def __init__(self, calls: _LoopCalls) -> None:
        self._calls = calls
        self._thread = threading.get_ident()
        self._woken = False

    def wake(self) -> None:
        """End the present or the next `wait`; from any thread."""
        if self._woken:
            return
        self._woken = True
        if threading.get_ident() == self._thread:
            try:  # noqa: SIM105 - `suppress` costs as much as waking
                self._wake_here()
            except RuntimeError:
                pass  # the event loop is closed
        else:
            self._calls.call(self._wake_here)

    @abstractmethod
    def _wake_here(self) -> None:
        """End the wait, called in the event loop."""

    def reset(self) -> None:
        """Forget that it was woken."""
        self._woken = False

    @abstractmethod
    def wait(self, seconds: float) -> Awaitable[None]:
        """Wait until woken, for at most about so many seconds; it may return earlier. The next call waits again. The result has
        to be awaited at once."""

    @abstractmethod
    def close(self) -> None:
        """Release what waiting has used."""


class _AsyncioWaker(TaskWaker):
    """On asyncio: a bare future and one timer that is kept between waits. A cancel scope with a timer of its own for
    each wait would cost more than reading the events."""

    def __init__(self, calls: _LoopCalls, loop: Any) -> None:
        super().__init__(calls)
        self._loop = loop
        self._future: Any = None
        self._timer: Any = None
        self._seconds = 0.0  # that the timer was set to

    def wake(self) -> None:
        """As `TaskWaker.wake`; in its own thread a task that waits is woken without another call."""
        future = self._future
        if future is None or threading.get_ident() != self._thread:
            super().wake()
            return
        self._future = None
        try:
            future.set_result(None)
        except (asyncio.InvalidStateError, RuntimeError):  # its task was cancelled, or the event loop is closed
            self._woken = True

    def _wake_here(self) -> None:
        future, self._future = self._future, None
        if future is not None and not future.done():
            self._woken = False
            future.set_result(None)

    def _ring(self) -> None:
        self._timer = None
        self._wake_here()

    def wait(self, seconds: float) -> Awaitable[None]:
        future: Awaitable[None] = self._loop.create_future()
        self._future = future
        if self._woken:
            self._wake_here()
        elif self._timer is None or seconds < self._seconds:
            self.close()
            self._seconds = seconds
            self._timer = self._loop.call_later(seconds, self._ring)
        return future

    def close(self) -> None:
        if self._timer is not None and threading.get_ident() == self._thread:
            self._timer.cancel()
            self._timer = None


class _TrioWaker(TaskWaker):
    """On trio."""

    _event: anyio.Event | None = None

    def _wake_here(self) -> None:
        if self._event is not None:
            self._event.set()

    async def wait(self, seconds: float) -> None:
        if not self._woken:
            self._event = anyio.Event()
            with anyio.move_on_after(seconds):
                await self._event.wait()
        self._woken = False

    def close(self) -> None:
        self._event = None


class WaitingReaders(dict[ThreadWaker | TaskWaker, None]):
    """The wakers of readers that wait for the next event, in the order they came."""

    def __init__(self) -> None:
        super().__init__()
        self._line: deque[ThreadWaker] = deque()  # that are to be woken, each by the one before it

    def wake(self) -> None:
        """Wake them all: tasks at once, more than two threads one after the other."""
        line = self._line if len(self) > _AT_ONCE else None
        with contextlib.suppress(KeyError):  # another thread woke the last one
            while self:
                waker, _ = self.popitem()
                if line is not None and isinstance(waker, ThreadWaker):
                    waker.line = line
                    line.append(waker)
                else:
                    waker.wake()
        if line:
            for _ in range(_AT_ONCE):
                wake_next(line)


class _LoopCalls:
    """Calls functions in one event loop, from any thread. Calls that arrive together cross into the loop at once:
    crossing costs a system call, so waking ten tasks should not cost ten."""

    def __init__(self, token: Any, schedule: str) -> None:
        self._token = weakref.ref(token)  # a loop that has ended is freed
        self._schedule = schedule
        self._waiting: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def call(self, function: Callable[[], None]) -> None:
        """Call this in the event loop, soon."""
        self._waiting.append(function)
        if not self._scheduled:
            self._scheduled = True
            try:
                getattr(self._token(), self._schedule)(self._run)
            except (RuntimeError, AttributeError):  # the event loop has ended, and with it the tasks that waited
                self._waiting.clear()

    def _run(self) -> None:
        self._scheduled = False
        with contextlib.suppress(IndexError):
            while True:
                self._waiting.popleft()()


_loop_calls: weakref.WeakKeyDictionary[Any, _LoopCalls] = weakref.WeakKeyDictionary()


def task_waker() -> TaskWaker:
    """Return a waker for a task of the running event loop, of asyncio or trio."""
    token: Any = anyio.lowlevel.current_token().native_token
    on_trio = hasattr(token, "run_sync_soon")
    calls = _loop_calls.get(token)
    if calls is None:
        calls = _loop_calls[token] = _LoopCalls(token, "run_sync_soon" if on_trio else "call_soon_threadsafe")
    return _TrioWaker(calls) if on_trio else _AsyncioWaker(calls, token)


def in_event_loop() -> bool:
    """Whether waiting in this thread would block an event loop."""
    try:
        anyio.lowlevel.current_token()
    except RuntimeError:  # which library's it is differs
        return False
    return True


def wait_until(done: Callable[[], bool], watch: Watch, pause: Callable[[], float]) -> None:
    """Block this thread until `done()`, which is called again at each change that `watch` reports, and after
    `pause()` seconds without one."""
    waker = ThreadWaker()
    unwatch = watch(waker.wake)
    try:
        while not done():
            waker.wait(pause())
            waker.reset()
    finally:
        unwatch()


async def async_wait_until(done: Callable[[], Awaitable[bool]], watch: Watch, pause: Callable[[], float]) -> None:
    """As `wait_until`, for tasks."""
    waker = task_waker()
    unwatch = watch(waker.wake)
    try:
        while not await done():
            await waker.wait(pause())
            waker.reset()
    finally:
        unwatch()
        waker.close()
