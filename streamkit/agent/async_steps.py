"""Opens the steps of a turn as sources, for tasks: on asyncio and on trio. `sync_steps.py` does the same for threads.

Functions run side by side: each `async def` in a task, each other one in a worker thread. Their tasks run outside of the
stream's own, because a stream may be iterated where no task group is open. Closing the source cancels the tasks and
waits for them, and for the threads.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from ..core.steps import ChosenSource, RepeatableSource
from ..errors import SourceError, UsageError
from ..events import StreamWarning
from ..sources.interrupt import Interruptible
from ..sources.open_async import open_async
from ..sources.source import AsyncSource, Batch, Source, close_nothing
from ..sources.threads import direct, threaded_code
from ..streams.tasks import scheduler, start_task
from .calls import Mailbox, PendingCall
from .model_request import prepared_async
from .steps import (
    OWN_EVENTS,
    CallModel,
    CallTools,
    EmitEvents,
    ListTools,
    OwnStep,
    RunCode,
    SendRequest,
    Step,
)
from .sync_steps import CodeSource

__all__ = ["first_async_source"]


def first_async_source(course: Iterator[Step]) -> ChosenSource:
    """Return the source of the first step. Each source chooses the one after it."""

    async def opened(step: OwnStep | SendRequest) -> AsyncSource:
        source = await _source_of(step)
        source.traits = msgspec.structs.replace(source.traits, next_source=next_source)
        return source

    async def model_call(step: CallModel, attempt: int, fallback: int) -> Callable[[], Awaitable[AsyncSource]]:
        """Return what sends the request of an attempt."""
        request = await prepared_async(step.request(attempt, fallback), step.before)
        return partial(opened, step.sending(request))

    def next_source() -> Callable[[], Awaitable[AsyncSource]] | RepeatableSource | None:
        """Take the next step, and return what opens it; None after the last."""
        step = next(course, None)
        if isinstance(step, CallModel):
            return RepeatableSource(partial(model_call, step), step.fallbacks)
        return None if step is None else partial(opened, step)

    return ChosenSource(next_source)


async def _source_of(step: OwnStep | SendRequest) -> AsyncSource:
    match step:
        case SendRequest(protocol, send):
            source = await open_async(send)
            source.traits = msgspec.structs.replace(source.traits, protocol=protocol)
            return source
        case EmitEvents(events):
            return direct(Source(iter([events]), close_nothing, OWN_EVENTS))
        case RunCode(run):
            return threaded_code(CodeSource(run))
        case CallTools():
            return _AsyncToolCalls(step).source
        case ListTools():
            return _source_of_listing(step)


def _source_of_listing(step: ListTools) -> AsyncSource:
    """Return a source without events that lists the servers' tools when it is pulled."""

    asks = [step.ask]

    async def pull() -> Batch | None:
        if not asks:
            return None
        try:
            await asks.pop()()
        except (SourceError, UsageError) as error:
            if not step.may_fail:
                raise
            return [StreamWarning("tools-not-listed", f"the tools stay as they were: {error}", kind="tool_call")]
        return None

    async def close() -> None:
        pass

    return AsyncSource(pull, close, OWN_EVENTS)


class _AsyncToolCalls:
    """Functions that run side by side; `source` has their outputs.

    Their task starts at the first pull. `_finished` is None before that, and set when the task has ended.
    """

    def __init__(self, step: CallTools) -> None:
        self._step = step
        self._mailbox = Mailbox()
        self._wakeup = anyio.Event()
        self._scope = anyio.CancelScope()
        self._finished: anyio.Event | None = None
        self._stopped = False
        self._calls_in_threads: list[Interruptible] = []
        self.source = AsyncSource(self._pull, self._close, OWN_EVENTS)

    async def _pull(self) -> Batch | None:
        if self._finished is None:
            self._finished = anyio.Event()
            schedule = scheduler()
            self._mailbox.wake = lambda: schedule(lambda: self._wakeup.set())
            start_task(self._work, partial(self._end, self._finished))
        while True:
            self._wakeup = anyio.Event()
            batch = self._mailbox.take()
            if batch is not None:
                return batch or None
            await self._wakeup.wait()

    async def _close(self) -> None:
        self._stopped = True
        for interruptible in self._calls_in_threads:
            interruptible.cancel()
        self._scope.cancel()
        if self._finished is not None:
            with anyio.CancelScope(shield=True):
                await self._finished.wait()

    async def _work(self) -> None:
        with self._scope:
            if self._step.before is not None:
                try:
                    await anyio.to_thread.run_sync(self._step.before, limiter=anyio.CapacityLimiter(1))
                except Exception as error:
                    self._mailbox.end(error)
                    return
            self._mailbox.running = [*self._step.calls]
            async with anyio.create_task_group() as tasks:
                for call in self._step.calls:
                    tasks.start_soon(self._call, call)

    def _end(self, finished: anyio.Event) -> None:
        self._mailbox.end()
        finished.set()

    async def _call(self, pending: PendingCall) -> None:
        pending.prepare(self._mailbox, lambda: self._stopped)
        try:
            value: Any = None
            with anyio.move_on_after(pending.tool.timeout) as scope:
                if pending.tool.is_async:
                    with pending.around():
                        value = await _result_of(pending, pending.run())
                else:
                    value = await _result_of(pending, await self._call_in_thread(pending))
            if scope.cancelled_caught:
                pending.time_out()
        except (Exception, SystemExit) as error:
            pending.fail(error)
        except anyio.get_cancelled_exc_class() as error:
            if _is_cancelled():
                raise
            pending.fail(error)  # the tool's own: its task goes on
        except asyncio.CancelledError as error:  # on trio, where it means nothing
            pending.fail(error)
        except BaseException as error:  # KeyboardInterrupt: raised again in the stream's own task
            self._mailbox.end(error)
            self._scope.cancel()
        else:
            pending.succeed(value)
        self._mailbox.end_call(pending)

    async def _call_in_thread(self, pending: PendingCall) -> Any:
        interruptible = Interruptible()
        self._calls_in_threads.append(interruptible)
        values: list[Any] = []  # because trio forbids a thread's function to return an awaitable
        over = threading.Event()

        def work() -> None:
            try:
                with pending.around():
                    values.append(interruptible.call_user(pending.run))
            finally:
                over.set()

        left_behind = pending.tool.timeout is not None
        try:
            await anyio.to_thread.run_sync(work, limiter=anyio.CapacityLimiter(1), abandon_on_cancel=left_behind)
        except anyio.get_cancelled_exc_class():
            interruptible.cancel()
            if pending.tool.agent is not None:  # it stops, and what it had begun ends before its output comes
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(over.wait, limiter=anyio.CapacityLimiter(1))
            raise
        return values[0]


async def _result_of(pending: PendingCall, value: Any) -> Any:
    """Return what a function has returned, once it is there."""
    return await pending.collect(await value if inspect.isawaitable(value) else value)


def _is_cancelled() -> bool:
    """Whether the present task is being cancelled, where it has caught a cancellation."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # trio, whose cancellations are always its own
        return True
    return task is None or task.cancelling() > 0
