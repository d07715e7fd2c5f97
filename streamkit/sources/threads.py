"""Sync callables and sources on an async stream: worker threads call and pull them, so the event loop stays free.

A cancelled task does not wait for such a thread. Its network connection is shut down if it waits for one (`interrupt.py`),
and what it still returns is closed by the thread itself.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from ..core.steps import END
from ..errors import UsageError
from .interrupt import Interruptible
from .source import AsyncSource, Batch, Source, call_source

__all__ = ["call_off_loop", "direct", "in_thread", "threaded", "threaded_code"]

_T = TypeVar("_T")


async def call_off_loop(function: Callable[[], Any]) -> Any:
    """Call a function and return its result. One that may block is called in a worker thread.

    Raises:
        SourceError: the function raised.
        UsageError: it needs the event loop.
    """
    if _returns_at_once(function):
        return call_source(function)
    try:
        return await in_thread(partial(call_source, function))
    except UsageError as error:
        if isinstance(error.__cause__, RuntimeError):
            error.add_note(
                "a plain callable is called in a worker thread; one that needs the event loop is `async def`"
            )
        raise


def _returns_at_once(function: Callable[[], Any]) -> bool:
    """Whether calling this only makes a coroutine or a generator. Any other function may send a sync client's request."""
    kinds = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)
    return any(kind(one) for kind in kinds for one in (function, getattr(function, "__call__", None)))  # noqa: B004


async def in_thread(function: Callable[[], _T]) -> _T:
    """Call a function in a worker thread and return its result.

    A cancelled task does not wait for the thread: its network connection is shut down, and a result that still comes is
    closed.
    """
    calls = Interruptible()
    lock = threading.Lock()
    is_abandoned = False
    results: list[_T] = []

    def work() -> None:
        value = calls.call(function)
        with lock:
            results.append(value)
            drops = is_abandoned
        if drops:
            _drop(value)

    try:
        await anyio.to_thread.run_sync(work, limiter=anyio.CapacityLimiter(1), abandon_on_cancel=True)
    except BaseException:
        with lock:
            is_abandoned, late = True, [*results]
        calls.cancel()
        for value in late:
            _drop(value)
        raise
    return results[0]


def _drop(value: Any) -> None:
    """Close a result that came after the task had been cancelled."""
    if callable(close := getattr(value, "close", None)):
        with contextlib.suppress(Exception):
            close()


def direct(source: Source) -> AsyncSource:
    """Return an async source over a sync source that never blocks."""

    async def pull() -> Batch:
        return source.pull()

    async def close() -> None:
        source.close()

    return AsyncSource(pull, close, source.traits, items=source.items)


def threaded_code(source: Source) -> AsyncSource:
    """As `threaded`, of a source whose code has to end: closing it ends a pull that waits, and returns when the code has ended, even
    in a cancelled task."""
    pulling, closing = anyio.CapacityLimiter(1), anyio.CapacityLimiter(1)

    async def pull() -> Batch:
        return await anyio.to_thread.run_sync(source.pull, limiter=pulling, abandon_on_cancel=True)

    async def close() -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(source.close, limiter=closing)

    return AsyncSource(pull, close, source.traits)


def threaded(source: Source) -> AsyncSource:
    """Return an async source over a sync source that worker threads pull.

    Closing interrupts a pull that waits. If the pull cannot be interrupted, closing does not wait for it: its thread
    closes the source when the pull returns.
    """
    limiter = anyio.CapacityLimiter(1)
    lock = threading.Lock()
    is_closed = is_abandoned = False
    is_pulling = False

    def work() -> Batch:
        nonlocal is_pulling
        with lock:
            if is_closed:  # the thread began only after its task was cancelled
                return END
            is_pulling = True
        try:
            return source.pull()
        finally:
            with lock:
                is_pulling = False
                must_close = is_abandoned
            if must_close:
                source.close()

    async def pull() -> Batch:
        return await anyio.to_thread.run_sync(work, limiter=limiter, abandon_on_cancel=True)

    async def close() -> None:
        nonlocal is_closed, is_abandoned
        with lock:
            is_closed, is_abandoned = True, is_abandoned or is_pulling
        if is_abandoned:
            source.interrupt()
        else:
            await anyio.to_thread.run_sync(source.close)

    return AsyncSource(pull, close, source.traits, items=source.items)
