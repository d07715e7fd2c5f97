"""Drives awaitable code step by step, so that each sleep of the task can be prepared, and interrupted.

A task sleeps when the code that it runs yields a signal to the event loop. A cancel scope around an entire pull would cost
more than the pull, and would enclose code that is not ours: a generator or a context manager may enter its own scopes and task
groups in one pull, and leave them in another. So scopes of ours are open only while the task sleeps.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import types
from collections.abc import Awaitable, Callable, Generator
from types import AsyncGeneratorType
from typing import Any

import anyio

from ..events import Event

__all__ = [
    "Sleeps",
    "TimedSleeps",
    "as_coroutines",
    "await_with",
    "finish",
    "gives_coroutines",
    "innermost_scope",
    "is_cancellation",
]


class Sleeps:
    """Called before and after each sleep of a task. This class does nothing then."""

    __slots__ = ()

    def begin(self, signal: Any) -> Any:
        """Note that the task is about to sleep, and yields this signal to the event loop. The return value is passed to
        `end`."""

    def end(self, begun: Any, value: Any, error: BaseException | None) -> BaseException | None:
        """Note that the task was woken with this value, or with this error. Returns the error to raise where the code
        slept; None to go on with the value."""
        return error


@types.coroutine
def finish(steps: Any, signal: Any, sleeps: Sleeps) -> Generator[Any, Any, Any]:
    """Run steps on, which have yielded this signal, until they yield an event or end. Returns the event, or what they return.

    Args:
        steps: a generator that yields signals for the event loop, and perhaps events.
        signal: what it has yielded last.
        sleeps: is called before and after each sleep.
    """
    while not isinstance(signal, Event):
        value: Any = None
        error: BaseException | None = None
        begun = sleeps.begin(signal)
        try:
            value = yield signal
        except GeneratorExit:  # nobody awaits this any more; there is no task that could leave a scope
            steps.close()
            raise
        except BaseException as raised:
            error = raised
        try:
            error = sleeps.end(begun, value, error)
            signal = steps.send(value) if error is None else steps.throw(error)
        except StopIteration as end:
            return end.value
        finally:
            value = error = None  # an error's traceback refers to this frame
    return signal


async def await_with(function: Callable[[], Awaitable[Any]], sleeps: Sleeps) -> Any:
    """Return the result of an awaitable that a function returns."""
    steps: Any = as_coroutines(function)()
    try:
        signal = steps.send(None)
    except StopIteration as end:  # nothing has slept
        return end.value
    return await finish(steps, signal, sleeps)


class TimedSleeps(Sleeps):
    """Sleeps that are over after so many seconds. The one that lasts longer is interrupted, once, and what cleans up then
    sleeps undisturbed.

    Attributes:
        are_over: whether one was interrupted.
        was_cancelled: whether a later one was: not by this.
    """

    def __init__(self, seconds: float) -> None:
        self._deadline = anyio.current_time() + seconds
        self.are_over = self.was_cancelled = False

    def begin(self, signal: Any) -> anyio.CancelScope | None:
        if self.are_over:
            return None
        scope = anyio.CancelScope(deadline=self._deadline)
        scope.__enter__()
        return scope

    def end(self, begun: Any, value: Any, error: BaseException | None) -> BaseException | None:
        raised: Any = error or getattr(value, "error", None)  # trio sends errors as values
        if begun is None:
            self.was_cancelled = raised is not None and is_cancellation(raised)
        else:
            begun.__exit__(raised and type(raised), raised, raised and raised.__traceback__)
            self.are_over = begun.cancelled_caught
        return error


def is_cancellation(error: BaseException) -> bool:
    """Whether an error is nothing but the event loop's cancellation of a task."""
    group: Any = error
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_cancellation, group.exceptions))
    return isinstance(error, anyio.get_cancelled_exc_class())


def innermost_scope() -> object:
    """Return an object that is another one once the present task has entered or left a cancel scope; None where that
    cannot be seen. No public function shows it."""
    try:
        task: Any = asyncio.current_task()
    except RuntimeError:
        task = None
    if task is not None:
        states = getattr(sys.modules.get("anyio._backends._asyncio"), "_task_states", {})
        return getattr(states.get(task), "cancel_scope", None)
    if "trio" not in sys.modules:
        return None
    import trio.lowlevel  # which runs already

    try:
        return getattr(trio.lowlevel.current_task(), "_cancel_status", None)
    except RuntimeError:
        return None  # nothing runs


def gives_coroutines(pull: Any) -> bool:
    """Whether `yield from` takes what it returns directly. Calling `__await__` would cost as much as the rest of a pull.

    Exact classes are compared, because an object that wraps a function, such as a tracer's, may have that function's attributes.
    """
    if type(pull) is types.MethodWrapperType:
        return type(pull.__self__) is AsyncGeneratorType
    function = pull.__func__ if type(pull) is types.MethodType else pull
    return type(function) is types.FunctionType and bool(function.__code__.co_flags & inspect.CO_COROUTINE)


def as_coroutines(pull: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    """Return the same function, where what it returns has all that an awaitable may lack: a generator that
    `types.coroutine` made one has no `__await__`, and that of a class need not give a generator."""
    if gives_coroutines(pull):
        return pull

    async def awaited() -> Any:
        return await pull()

    return awaited
