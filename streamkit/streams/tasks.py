"""Tasks beside an async stream, on asyncio and trio. They belong to no task group.

A stream hands out its events to loops and generators that may be left at any time, and in any task, so no task group can be
open meanwhile. Instead, the stream itself cancels the tasks beside it, and waits for their end.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from types import coroutine
from typing import Any

import anyio
import anyio.lowlevel

from ..answers import Answer
from ..errors import UsageError

__all__ = ["Work", "close_unused", "in_context", "scheduler", "shielded", "start_soon", "start_task"]


def scheduler(
    token: Any = None, context: contextvars.Context | None = None
) -> Callable[[Callable[[], object]], object]:
    """Return a function that schedules another one in an event loop, from any thread.

    Args:
        token: the event loop's own, from `anyio.lowlevel.current_token`; None for the running loop.
        context: in which the functions run; without it, in an empty one. It is never that of the thread that schedules
            them, which may run another kind of event loop, and whose context says so.
    """
    token = token or anyio.lowlevel.current_token().native_token
    soon: Callable[..., object] = getattr(token, "run_sync_soon", None) or token.call_soon_threadsafe
    return partial(soon, (context or contextvars.Context()).run)


async def shielded(awaitable: Awaitable[Any]) -> Any:
    """Await what an early end still awaits: no cancellation cuts it short."""
    with anyio.CancelScope(shield=True):
        return await awaitable


@coroutine
def in_context(context: contextvars.Context, work: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
    """Await a coroutine in this context, in place of the task's own."""
    resume: Callable[[], Any] = partial(work.send, None)
    while True:
        try:
            signal = context.run(resume)
        except StopIteration:
            return
        try:
            resume = partial(work.send, (yield signal))
        except BaseException as error:
            resume = partial(work.throw, error)


_tasks: set[asyncio.Task[None]] = set()  # asyncio itself holds its tasks weakly: unreferenced ones can vanish


def start_task(
    function: Callable[[], Coroutine[Any, Any, None]], done: Callable[[], object], token: Any = None
) -> None:
    """Run a function that does not raise in a task that belongs to no task group.

    Args:
        function: is run.
        done: is called when the task is over, even if it was cancelled before its first step.
        token: the event loop's own, from `current_token`; without it, the caller is a task of that loop.
    """
    token = token or anyio.lowlevel.current_token().native_token
    if hasattr(token, "create_task"):
        task: asyncio.Task[None] = token.create_task(function())
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
        task.add_done_callback(lambda _: done())
        return
    import trio.lowlevel

    async def run() -> None:
        try:
            await function()
        finally:
            done()

    trio.lowlevel.spawn_system_task(run, context=contextvars.copy_context())


def start_soon(function: Callable[[], Coroutine[Any, Any, None]], token: Any) -> None:
    """As `start_task`, from any thread: the token, of the event loop, is not optional."""
    scheduler(token)(partial(start_task, function, _nothing, token))


def _nothing() -> None:
    """Nothing is to be done when the task is over."""


class Work:
    """The awaitables that tool calls were answered with, each in a task of its own beside the stream."""

    def __init__(self) -> None:
        self._scopes: dict[Answer, anyio.CancelScope | None] = {}  # None before its task runs
        self._tasks: set[int] = set()  # their ids
        self._stopped = False
        self._change: anyio.Event | None = None  # while their end is awaited

    def start(self, answer: Answer, token: Any) -> None:
        """Await an answer's awaitable; the token is `start_task`'s. The stream's own task raises its error."""
        self._scopes[answer] = None
        start_task(partial(self._run, answer), partial(self._done, answer), token)

    async def stop(self) -> None:
        """Cancel them all, and return when they are over. One that calls this itself is not waited for."""
        self._stopped = True
        for scope in [*self._scopes.values()]:
            if scope is not None:
                scope.cancel()
        while self._scopes and len(self._scopes) > (anyio.get_current_task().id in self._tasks):
            self._change = anyio.Event()
            await self._change.wait()

    async def _run(self, answer: Answer) -> None:
        if self._stopped:
            return
        awaitable: Any = answer.value
        task = anyio.get_current_task().id
        self._tasks.add(task)
        try:
            with anyio.CancelScope() as self._scopes[answer]:
                answer.resolve(await awaitable)
        except anyio.get_cancelled_exc_class():  # by something else: the event loop ends, or it was its own idea
            answer.resolve(None, UsageError(f"{answer.what}: the awaitable that answers it was cancelled"))
            raise
        except BaseException as error:
            answer.resolve(None, error)
        finally:
            self._tasks.discard(task)

    def _done(self, answer: Answer) -> None:
        del self._scopes[answer]
        close_unused(answer)
        if self._change is not None:
            self._change.set()


def close_unused(answer: Answer) -> None:
    """Close an answer's coroutine that never ran, so that Python does not warn of it."""
    if inspect.iscoroutine(answer.value) and inspect.getcoroutinestate(answer.value) == inspect.CORO_CREATED:
        answer.value.close()
