"""The event loop of the main thread, in which code awaits, and in which its tasks go on between two runs.

Code without an `await` at its top runs beside the loop: `asyncio.get_running_loop()` and `create_task` find it, as in any
notebook, but it waits; so `asyncio.run(main())` and `loop.run_until_complete(main())` work, as in any script.
"""

from __future__ import annotations

import asyncio
import contextlib

# They are made for event loops, and documented in spite of their names.
from asyncio import _get_running_loop, _set_running_loop  # pyright: ignore[reportPrivateUsage]
from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from typing import Any

__all__ = ["EventLoop"]


class EventLoop:
    """Runs coroutines in one loop for all runs. Where code closed that loop, a new one takes its place.

    Attributes:
        cancel: cancels what the code awaits; None while it awaits nothing.
    """

    def __init__(self) -> None:
        self.cancel: Callable[[], object] | None = None
        self._loop = asyncio.new_event_loop()
        for owner, name in (
            (asyncio.BaseEventLoop, "run_forever"),
            (asyncio.BaseEventLoop, "run_until_complete"),
            (asyncio.Runner, "run"),
        ):
            setattr(owner, name, self._aside(getattr(owner, name)))
        asyncio.run = asyncio.runners.run = self._aside(asyncio.run)

    def _aside(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method that runs a loop, changed so that it may be called by code that runs in or beside this
        loop."""

        @wraps(run)
        def call(*arguments: Any, **named: Any) -> Any:
            loop = _get_running_loop()
            if loop is not self._loop:
                return run(*arguments, **named)
            _set_running_loop(None)
            try:
                return run(*arguments, **named)
            finally:
                _set_running_loop(loop)

        return call

    def open(self) -> None:
        """Make the loop the main thread's own, again: earlier code may have closed or replaced it."""
        if self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)

    def wake(self) -> None:
        """Make `run_until_woken` return. From any thread."""
        with contextlib.suppress(RuntimeError):  # closed: then it does not run, and is about to be replaced
            self._loop.call_soon_threadsafe(self._loop.stop)

    def run_until_woken(self) -> None:
        """Run what earlier code has left in the loop."""
        with contextlib.suppress(SystemExit, KeyboardInterrupt):  # raised in a task that nobody awaits
            self._loop.run_forever()

    @contextlib.contextmanager
    def beside(self) -> Generator[None]:
        """While this is open, code finds the loop as the one that runs."""
        _set_running_loop(self._loop)
        try:
            yield
        finally:
            _set_running_loop(None)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to its end, even if it stops the loop; returns its result."""
        loop = self._loop
        task = loop.create_task(coroutine)
        task.add_done_callback(lambda _: loop.stop())
        self.cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            while not task.done():
                loop.run_forever()
        finally:
            self.cancel = None
        return task.result()
