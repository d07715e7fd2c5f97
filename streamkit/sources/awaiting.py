"""Waiting for an async source so that it can be interrupted, without a cancel scope around its code.

A scope around a pull would cost more than the pull, and would enclose code that is not ours: a generator or a context
manager may enter its own scopes and task groups in one pull, and leave them in another.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

import anyio

__all__ = ["finish", "interruptible", "is_cancellation"]

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
    result: _T
    try:
        signal = next(steps)
    except StopIteration as end:
        result = end.value
    else:
        result = yield from _rest(steps, signal, new_scope)
    return result


def _rest(steps: Any, signal: Any, new_scope: Callable[[], anyio.CancelScope | None]) -> Generator[Any, Any, Any]:
    """What `interruptible` does once an awaitable's first step was made and has yielded this signal."""
    while True:
        value: Any = None
        error: BaseException | None = None
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
            _leave(scope, error or getattr(value, "error", None))  # trio sends exceptions as values
        try:
            signal = steps.throw(error) if error is not None else next(steps) if value is None else steps.send(value)
        except StopIteration as end:
            return end.value
        finally:
            value = error = None  # an error's traceback refers to this frame


finish = types.coroutine(_rest)  # to be awaited


def _leave(scope: anyio.CancelScope, error: BaseException | None) -> None:
    if error is None:
        scope.__exit__(None, None, None)
    else:
        scope.__exit__(type(error), error, error.__traceback__)


def is_cancellation(error: BaseException) -> bool:
    """Whether an error is nothing but the event loop's cancellation of a task."""
    group: Any = error
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_cancellation, group.exceptions))
    return isinstance(error, anyio.get_cancelled_exc_class())
