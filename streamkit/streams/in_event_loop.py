"""The part of an async stream that the event loop has a hand in: what the task sleeps in, what runs beside it, and its end
where it is dropped."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextvars import Context, copy_context
from types import AsyncGeneratorType
from typing import Any

import anyio
import anyio.lowlevel

from ..errors import UsageError
from ..handlers import Handler
from .lifecycle import NO_STEPS
from .manager import Manager
from .options import StreamOptions
from .sleeps import TaskSleeps, sleeps_on
from .tasks import Work, close_unused, in_context, scheduler

__all__ = ["EventLoopManager"]


class EventLoopManager(Manager):
    """The base of the async manager, which performs the steps."""

    _course: Any  # the steps, as they are performed

    def __init__(self, source: Any, handlers: tuple[Handler, ...], options: StreamOptions, *, awaitables: bool) -> None:
        self._work: Work | None = None  # what runs beside it, once something does
        self._sleeps: TaskSleeps | None = None  # of the task that performs steps
        self._wakeup: anyio.Event | None = None  # while it waits for an answer
        self._token: Any = None  # the event loop's own
        # That of the task that began to read it there; awaitables that answer calls run in it.
        self._context: Context | None = None
        self._guard: AsyncGeneratorType[None, None] | None = None  # closes it where it is dropped
        super().__init__(source, handlers, options, awaitables=awaitables)

    async def close(self) -> None:
        """As `StreamManager.close`."""
        raise NotImplementedError("the managers implement it")

    # -- cancellation, and answers from other threads

    def may_interrupt(self) -> bool:
        """Whether `cancel` ends what the task sleeps in: no hook is cut short, and some sources end a pull themselves. For
        streamkit itself."""
        if not self._pulling:
            return self._sleeps is not None and self._sleeps.is_opening
        if (cancel := self._source.cancel) is not None and self._closing:
            cancel()
        return cancel is None

    def _is_interruption(self, error: BaseException) -> bool:
        return self._sleeps is not None and self._sleeps.is_interruption(error)

    def _stop_waiting(self) -> None:
        self._wake()
        if self._sleeps is not None:
            self._sleeps.stop()
        if self._source is not None and self._source.cancel is not None:
            self._source.cancel()

    def _wake(self) -> None:
        if self._wakeup is not None:
            self._wakeup.set()

    def answer_came(self) -> None:
        """As `Manager.answer_came`."""
        self._in_loop(self._take_answers)

    def _take_answers(self) -> None:
        """Start the awaitables that tool calls were answered with, beside the stream, and end its wait."""
        if not self._closing and not self._ending:
            for answer in self.engine.pending.take_awaitables():
                self._work = self._work or Work()
                self._work.start(answer, self._token)
        self._wake()

    def _in_loop(self, function: Callable[[], object]) -> None:
        if self._token is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is over, and so is everything that could wait
                scheduler(self._token, self._context)(function)

    def _enter_loop(self) -> TaskSleeps:
        """Get what depends on the event loop. After that `cancel` reaches it, so a stream looks whether it was cancelled
        before it begins."""
        self._token = token = anyio.lowlevel.current_token().native_token
        self._context = copy_context()
        sleeps = sleeps_on(token, self)
        if not self._ended:
            self._sleeps = sleeps
        return sleeps

    def _note_driver(self) -> None:
        self.driver = id((self._sleeps or self._enter_loop()).find_task())

    async def _open_in(self, opening: Awaitable[Any]) -> Any:
        """Await something that `cancel` interrupts as it interrupts a pull."""
        sleeps = self._sleeps or self._enter_loop()
        sleeps.is_opening = True
        try:
            return await opening
        finally:
            sleeps.is_opening = False

    async def wait_for(self, event: anyio.Event, seconds: float | None = None, *, for_answers: bool = False) -> None:
        """As `StreamManager.wait_for`."""
        self._wakeup = event  # before the changes are looked at: none is missed
        if not self._closing and not (for_answers and self.engine.pending.changes):
            with anyio.move_on_after(seconds):
                await event.wait()
        self._wakeup = None

    async def _pause_for(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            while not self._closing:
                await self.wait_for(anyio.Event())

    # -- a stream that is dropped

    def _finish(self) -> None:
        for answer in self.engine.pending.take_awaitables():  # the stream ended before them
            close_unused(answer)
        super()._finish()
        if not self._course.gi_running:  # the steps were garbage collected before what drives them
            self._course = NO_STEPS
            if not self._ended:  # then the event loop closes the guard: only a task can await the source's end
                return
        guard, self._guard = self._guard, None
        if guard is not None and not guard.ag_running:
            with contextlib.suppress(StopIteration):
                guard.aclose().__await__().send(None)

    async def _start_guard(self) -> None:
        if self._guard is None:
            guard: Any = self._end_when_dropped()
            self._guard = guard
            await anext(guard)

    async def _end_when_dropped(self) -> AsyncGenerator[None, None]:
        """The event loop closes async generators that were dropped, and those that are left when it ends. This one ends the
        stream then."""
        context = copy_context()
        try:
            yield
        finally:
            if not self._ended:
                # The closing task has the context of the thread that collected the stream, maybe in another kind of loop.
                await in_context(context, self.close())
                self._error = self._error or UsageError(
                    "the event loop in which the stream was opened has ended, and closed the stream: read it to its end in "
                    "one event loop, for example in one `asyncio.run`"
                )
