"""Interrupts the sleep of a task that waits for an async source: so `cancel` ends the wait without cancelling the task.

Only a sleep is interrupted, and only while the stream waits for its source. The code that sleeps gets the event loop's
cancellation error there, once; while it cleans up, it is not interrupted again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

from ..sources.awaiting import Sleeps, is_cancellation

__all__ = ["TaskSleeps", "sleeps_on"]


class _SleepingReader(Protocol):
    def may_interrupt(self) -> bool:
        """Whether its task waits for the source, and may be interrupted while it does."""
        ...


class TaskSleeps(Sleeps):
    """The sleeps of the task that reads a stream.

    Args:
        reader: the stream. (A bound method of it would be one more object in each stream.)

    Attributes:
        find_task: returns the current task, in much less time than anyio does.
        is_opening: whether the task waits for a source that is being opened.
    """

    __slots__ = ("_is_stopped", "_reader", "is_opening")
    find_task: Callable[[], Any]

    def __init__(self, reader: _SleepingReader) -> None:
        self._reader = reader
        self.is_opening = False
        self._is_stopped = False  # `stop` was called: the present or the next sleep is interrupted

    def enter(self) -> None:
        """Note that the current task reads the stream from here on."""

    def stop(self) -> None:
        """Interrupt the sleep, or the next, in which the task waits for its source. For the event loop's thread."""
        raise NotImplementedError

    def is_interruption(self, error: BaseException) -> bool:
        """Whether an error is what an interrupted sleep raised, and the task itself is not cancelled."""
        raise NotImplementedError


def sleeps_on(native_token: Any, reader: _SleepingReader) -> TaskSleeps:
    """Return those of a task that reads this stream, on the event loop that has this token."""
    return FutureSleeps(reader) if hasattr(native_token, "create_task") else ScopedSleeps(reader)


_AWAKE: Final = object()


class FutureSleeps(TaskSleeps):
    """On asyncio. A task sleeps until a future is done, and cancelling that wakes it as `Task.cancel` would, which does the
    same and no more. A cancel scope for each sleep would cost ten times as much."""

    __slots__ = ("_is_interrupted", "_requests", "_signal", "_task", "_was_interrupted")
    find_task = staticmethod(asyncio.current_task)
    _task: Any
    _requests: int  # `Task.cancelling()` when it began to read; if it is greater, the task itself was cancelled

    def __init__(self, reader: _SleepingReader) -> None:
        super().__init__(reader)
        self._signal: Any = _AWAKE  # that future; None while the task sleeps until the loop's next round
        self._is_interrupted = False  # `stop` has interrupted the present sleep
        self._was_interrupted = False  # it has interrupted a sleep, and the source cleans up

    def enter(self) -> None:
        self._task = self.find_task()
        self._requests = self._task.cancelling()

    def begin(self, signal: Any) -> None:
        self._signal = signal
        if self._is_stopped:
            self._interrupt()

    def end(self, begun: Any, value: Any, error: BaseException | None) -> BaseException | None:
        signal, self._signal = self._signal, _AWAKE
        if self._is_interrupted:
            self._is_interrupted = False
            if error is None and signal is None:
                return asyncio.CancelledError()
            self._was_interrupted = error is not None  # None: what it waited for has ignored the cancellation
        return error

    def stop(self) -> None:
        self._is_stopped = True
        if self._signal is not _AWAKE:
            self._interrupt()

    def _interrupt(self) -> None:
        if self._was_interrupted or self._task.cancelling() > self._requests or not self._reader.may_interrupt():
            return
        if self._signal is None or self._signal.cancel():
            self._is_interrupted = self._was_interrupted = True

    def is_interruption(self, error: BaseException) -> bool:
        was_interrupted, self._was_interrupted = self._was_interrupted, False
        return was_interrupted and is_cancellation(error) and self._task.cancelling() <= self._requests


class ScopedSleeps(TaskSleeps):
    """On trio, where nothing but a cancel scope wakes a task. One is open while the task sleeps, and encloses no code."""

    __slots__ = ("_new_scope", "_scope", "find_task")

    def __init__(self, reader: _SleepingReader) -> None:
        super().__init__(reader)
        import trio.lowlevel  # only here, where trio runs already

        self._scope: Any = None  # the newest
        self.find_task = trio.lowlevel.current_task
        self._new_scope: Callable[[], Any] = trio.CancelScope  # anyio's costs a fifth more

    def begin(self, signal: Any) -> Any:
        if self._scope is not None and self._scope.cancelled_caught:
            return None  # the source cleans up
        if not self._reader.may_interrupt():
            return None
        self._scope = scope = self._new_scope()
        scope.__enter__()
        if self._is_stopped:
            scope.cancel()
        return scope

    def end(self, begun: Any, value: Any, error: BaseException | None) -> BaseException | None:
        if begun is not None:
            raised = error or getattr(value, "error", None)  # trio sends errors as values
            begun.__exit__(raised and type(raised), raised, raised and raised.__traceback__)
        return error

    def stop(self) -> None:
        self._is_stopped = True
        if self._scope is not None:
            self._scope.cancel()

    def is_interruption(self, error: BaseException) -> bool:
        if self._scope is None or not self._scope.cancelled_caught or not is_cancellation(error):
            return False
        self._scope = None
        return True
