"""Pulls an async source from code that cannot await: it gets the items that are there at once, without sleeping."""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from ..core.steps import END
from .awaiting import gives_coroutines

__all__ = ["PulledItems"]


class PulledItems:
    """Pulls the items of an async source, both for an `ItemRow` and for the task that reads the stream.

    A row takes the items that are there at once. If the task has to sleep for the next one, the row stores what the source
    yielded for the event loop in `signal`, and ends. The task then awaits this object, which continues the same pull.

    Args:
        pull: returns an awaitable of the next item, which raises `StopAsyncIteration` at the end.

    Attributes:
        values: a generator of the items. While a pull is under way, what it yields is no item, but for the event loop.
        signal: what `values` yielded last, if a row has left a pull under way.
        has_slept: whether the task had to sleep for the newest item.
        is_stopped: whether the stream was cancelled, so that no further item is needed.
    """

    __slots__ = ("has_slept", "is_stopped", "signal", "values")

    def __init__(self, pull: Callable[[], Awaitable[Any]]) -> None:
        begin: Any = pull if gives_coroutines(pull) else lambda: pull().__await__()
        self.values: Any = self._pull_each(begin)  # Any: its type does not show that it is a generator
        self.signal: Any = None
        self.has_slept = self.is_stopped = False

    @types.coroutine
    def _pull_each(self, begin: Callable[[], Generator[Any, Any, Any]]) -> Generator[Any, Any, None]:
        try:
            while True:
                item = yield from begin()
                if self.is_stopped:
                    return
                yield item
                item = None  # it may be large, and the next one may be long in coming
        except StopAsyncIteration:
            return

    def end(self) -> None:
        """Pull no more. Closing `values` breaks the reference cycle between it and this object."""
        if not (self.values.gi_running or self.is_under_way):
            self.values.close()

    @property
    def is_under_way(self) -> bool:
        """Whether a pull has begun, and the task has to sleep for it."""
        return self.values.gi_yieldfrom is not None

    def next(self) -> Awaitable[Any]:
        """Awaited, it pulls an item, or goes on with the pull that is under way. `END` at the end."""
        return self

    def __await__(self) -> Generator[Any, Any, Any]:
        values = self.values
        try:
            value = self.signal if values.gi_yieldfrom is not None else next(values)
            self.signal, self.has_slept = None, False
            while values.gi_yieldfrom is not None:
                self.has_slept = True
                sent: Any = None
                error: BaseException | None = None
                try:
                    sent = yield value
                except GeneratorExit:  # nobody awaits this any more
                    values.close()
                    raise
                except BaseException as raised:
                    error = raised
                try:
                    value = values.send(sent) if error is None else values.throw(error)
                finally:
                    sent = error = None  # an error's traceback refers to this frame
        except StopIteration:
            return END
        return value
