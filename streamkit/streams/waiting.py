"""Waits that can be ended early, and work beside a stream, without a scope or a task group that stays open.

A stream hands out its events between its waits, to loops and generators that may be left at any time and in any task.
There no cancel scope and no task group may be open, or unrelated code is cancelled. So a scope is open only while the
task sleeps, and work runs in tasks that belong to no group.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

from ..answers import Answer
from ..errors import UsageError

__all__ = ["Work", "close_unused", "interruptible", "is_cancellation", "scheduler", "start_task", "task_finder"]

_T = TypeVar("_T")


@types.coroutine
def interruptible(
    awaitable: Awaitable[_T], new_scope: Callable[[], anyio.CancelScope | None]
) -> Generator[Any, Any, _T]:
    """Await something so that it can be interrupted while the task sleeps.

    Then, and only then, a scope is open: the one that `new_scope` makes for this sleep, if it makes one. None of the
    awaitable's own code runs in it, so whatever that enters and leaves is nested as it would be without. An awaitable that
    need not sleep costs no scope.

    Raises:
        BaseException: what the awaitable raises; the event loop's cancellation where such a scope was cancelled.
    """
    steps: Any = awaitable.__await__()
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            signal = steps.throw(error) if error is not None else next(steps) if value is None else steps.send(value)
        except StopIteration as end:
            result: _T = end.value
            return result
        finally:
            value = error = None  # an error's traceback refers to this frame
        scope = new_scope()
        if scope is not None:
            scope.__enter__()
        try:
            value = yield signal
        except GeneratorExit:  # nobody awaits this any more; there is no task that could leave the scope
            steps.close()
            raise
        except BaseException as raised:
            error = raised
        if scope is not None:
            cause: BaseException | None = error or getattr(value, "error", None)  # trio sends exceptions as values
            if cause is None:
                scope.__exit__(None, None, None)
            else:
                scope.__exit__(type(cause), cause, cause.__traceback__)
            cause = None


def is_cancellation(error: BaseException) -> bool:
    """Whether an error is nothing but the event loop's cancellation of a task."""
    group: Any = error
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_cancellation, group.exceptions))
    return isinstance(error, anyio.get_cancelled_exc_class())


def scheduler() -> Callable[[Callable[[], object]], object]:
    """A function that runs another one in the current event loop, soon, from any thread."""
    token: Any = anyio.lowlevel.current_token().native_token
    soon: Callable[[Callable[[], object]], object] = getattr(token, "run_sync_soon", None) or token.call_soon_threadsafe
    return soon


def task_finder() -> Callable[[], object]:
    """A function that returns the current task of the present event loop, in much less time than anyio's."""
    if hasattr(anyio.lowlevel.current_token().native_token, "create_task"):
        return asyncio.current_task
    import trio.lowlevel  # only here, where trio runs already

    return trio.lowlevel.current_task


_tasks: set[asyncio.Task[None]] = set()  # asyncio itself holds its tasks weakly: unreferenced ones can vanish


def start_task(function: Callable[[], Coroutine[Any, Any, None]], done: Callable[[], object]) -> None:
    """Run a function that does not raise in a task of the present event loop that belongs to no task group.

    `done` is called when the task is over, even if it was cancelled before its first step.
    """
    token: Any = anyio.lowlevel.current_token().native_token
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


class Work:
    """The awaitables that tool calls were answered with, each in a task of its own beside the stream."""

    def __init__(self) -> None:
        self._scopes: dict[Answer, anyio.CancelScope] = {}
        self._tasks: set[int] = set()  # their ids
        self._change: anyio.Event | None = None  # while somebody waits until they are over

    def start(self, answer: Answer) -> None:
        """Await an answer's awaitable, unless that is under way. The stream's own task raises its error."""
        if answer not in self._scopes:
            scope = self._scopes[answer] = anyio.CancelScope()
            start_task(partial(self._run, answer, scope), partial(self._done, answer))

    async def stop(self) -> None:
        """Cancel them all, and return when they are over. One that calls this itself is not waited for."""
        for scope in [*self._scopes.values()]:
            scope.cancel()
        while self._scopes and len(self._scopes) > (anyio.get_current_task().id in self._tasks):
            self._change = anyio.Event()
            await self._change.wait()

    async def _run(self, answer: Answer, scope: anyio.CancelScope) -> None:
        awaitable: Any = answer.value
        task = anyio.get_current_task().id
        self._tasks.add(task)
        try:
            with scope:
                if not scope.cancel_called:
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
