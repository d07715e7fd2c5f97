"""Sync things on an async stream: called and pulled in worker threads, so that the event loop stays free.

A task that is cancelled does not wait for them. What they wait for is broken where that can be (`interrupts.py`), and
what they still give is closed by their own thread.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from ..errors import SourceError
from .interrupt import Interruptible
from .source import AsyncSource, Batch, Source, call_source

__all__ = ["call_off_loop", "direct", "in_thread", "known_of", "threaded"]

_T = TypeVar("_T")


async def call_off_loop(function: Callable[[], Any]) -> Any:
    """What a callable gives; one that may block is called in a worker thread."""
    if _returns_at_once(function):
        return call_source(function)
    try:
        return await in_thread(partial(call_source, function))
    except SourceError as error:
        cause = error.__cause__
        if isinstance(cause, RuntimeError) and re.search("event loop|async context", str(cause)):
            error.add_note(
                "a plain callable is called in a worker thread; one that needs the event loop is `async def`"
            )
        raise


def _returns_at_once(function: Callable[[], Any]) -> bool:
    """Whether calling this only makes a coroutine or a generator. Any other may send a request of a sync client."""
    kinds = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)
    return any(kind(one) for kind in kinds for one in (function, getattr(function, "__call__", None)))  # noqa: B004


async def in_thread(function: Callable[[], _T]) -> _T:
    """What this gives, called in a worker thread: the event loop stays free. A cancelled task does not wait for it;
    its request is broken, and what it still gives is closed."""
    calls = Interruptible()
    lock = threading.Lock()
    left = False
    given: list[_T] = []

    def work() -> None:
        value = calls.call(function)
        with lock:
            given.append(value)
            closes = left
        if closes:
            _drop(value)

    try:
        await anyio.to_thread.run_sync(work, limiter=anyio.CapacityLimiter(1), abandon_on_cancel=True)
    except BaseException:
        with lock:
            left, late = True, [*given]
        calls.stop()
        for value in late:
            _drop(value)
        raise
    return given[0]


def _drop(value: Any) -> None:
    """Close what was opened for nobody."""
    if callable(close := getattr(value, "close", None)):
        with contextlib.suppress(Exception):
            close()


def known_of(source: Source | AsyncSource) -> dict[str, Any]:
    """What one source hands on to another that wraps it."""
    keys = ("protocol", "live", "edits", "whole", "following", "same_step", "chunks", "resume", "fields")
    return {key: getattr(source, key) for key in keys}


def direct(source: Source) -> AsyncSource:
    """A sync source that never blocks."""

    async def pull() -> Batch | None:
        return source.pull()

    async def close() -> None:
        source.close()

    return AsyncSource(pull, close, **known_of(source))


def threaded(source: Source) -> AsyncSource:
    """A sync source, pulled in a worker thread. Closing interrupts a pull that waits; one that cannot be interrupted
    is left behind, and its thread closes the source when it comes back."""
    limiter = anyio.CapacityLimiter(1)
    lock = threading.Lock()
    left = False
    pulling = False

    def work() -> Batch | None:
        nonlocal pulling
        with lock:
            if left:
                return None
            pulling = True
        try:
            return source.pull()
        finally:
            with lock:
                pulling = False
                closes = left
            if closes:
                source.close()

    async def pull() -> Batch | None:
        return await anyio.to_thread.run_sync(work, limiter=limiter, abandon_on_cancel=True)

    async def close() -> None:
        nonlocal left
        with lock:
            left = left or pulling
        if left:
            source.interrupt()
        else:
            await anyio.to_thread.run_sync(source.close)

    return AsyncSource(pull, close, **known_of(source))
