"""Nested streams: a further stream of the same run that is read inside the one before it.

`submit_tool_outputs_stream` in a hook, or in a loop over the handler, opens such a stream. While it is open, it is the
innermost of `Dispatcher.nested`, and iterating the handler returns its events. Closing it restores the stream before.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio

from ...errors import UsageError
from ...events import Event
from ...streams.aio import AsyncStreamManager
from ...streams.manager import is_answer_text
from ...streams.readers import AsyncGeneratorLoop, GeneratorLoop
from ...streams.sync import StreamManager
from .dispatch import Dispatcher

__all__ = ["AsyncNestedStream", "NestedStream"]


class _Nested:
    """The base of both kinds.

    Attributes:
        reader: The id of the thread or task that reads it; None before it was read.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.reader: int | None = None
        self._dispatcher = dispatcher
        self._is_running = False
        self._outer_unread, dispatcher.unread = dispatcher.unread, None
        dispatcher.nested = [*dispatcher.nested, self]

    def _leave(self) -> None:
        """Make the stream before it the innermost one again."""
        dispatcher = self._dispatcher
        if self in dispatcher.nested:
            dispatcher.nested = [nested for nested in dispatcher.nested if nested is not self]
            dispatcher.unread = self._outer_unread

    def _check_not_running(self) -> None:
        if self._is_running:
            raise UsageError("the stream runs already: a hook cannot run it to its end, or read it")


class NestedStream(_Nested):
    """A nested stream of a sync handler: an iterator of its events, each after its hooks were called."""

    def __init__(self, dispatcher: Dispatcher, manager: StreamManager, source: Any) -> None:
        super().__init__(dispatcher)
        self._events = GeneratorLoop(manager.read_nested(source))

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        self.reader = threading.get_ident()
        self._check_not_running()
        self._is_running = True
        try:
            event: Event = next(self._events)
            return event
        finally:
            self._is_running = False

    def until_done(self) -> None:
        """Read it to its end.

        Raises:
            UsageError: It is being read already.
            StreamkitError: The stream failed.
        """
        self._check_not_running()
        for _ in self:
            pass

    @property
    def text_deltas(self) -> Iterator[str]:
        """The assistant's text as it arrives."""
        return GeneratorLoop(event.value for event in self if is_answer_text(event))

    def close(self) -> None:
        """Close its source, unless it is being read; then it ends where it is read."""
        self._leave()
        if not self._is_running:
            self._is_running = True
            try:
                self._events.close()
            finally:
                self._is_running = False


class AsyncNestedStream(_Nested):
    """A nested stream of an async handler; the rest is as `NestedStream`."""

    def __init__(self, dispatcher: Dispatcher, manager: AsyncStreamManager, source: Any) -> None:
        super().__init__(dispatcher)
        self._events = AsyncGeneratorLoop(manager.read_nested(source))

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        self.reader = anyio.get_current_task().id
        self._check_not_running()
        self._is_running = True
        try:
            return await anext(self._events)
        finally:
            self._is_running = False

    async def until_done(self) -> None:
        """As `NestedStream.until_done`."""
        self._check_not_running()
        async for _ in self:
            pass

    @property
    def text_deltas(self) -> AsyncIterator[str]:
        """The assistant's text as it arrives."""
        return AsyncGeneratorLoop(event.value async for event in self if is_answer_text(event))

    async def close(self) -> None:
        """As `NestedStream.close`."""
        self._leave()
        if not self._is_running:
            self._is_running = True
            try:
                await self._events.aclose()
            finally:
                self._is_running = False
