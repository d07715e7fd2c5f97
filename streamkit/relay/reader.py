"""Reading a run in a relay: as a source of streams, and in loops over the events in its log.

A `Reader` can be read any number of times; each time it begins a `Reading`, which has one place in the log.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import anyio.lowlevel

from ..events import Event
from ..sources.source import AsyncSource, Readable, Source, SourceTraits
from .wakers import TaskWaker, ThreadWaker, task_waker

if TYPE_CHECKING:
    from .interface import Relay

__all__ = ["Reader", "Reading"]


class Reading(ABC):
    """One place in a run, from which one thread or one task reads on."""

    def __init__(self) -> None:
        self._is_over = False
        self._waker: ThreadWaker | TaskWaker | None = None
        self._has_waited = True

    @property
    def is_over(self) -> bool:
        """Whether it was cancelled or closed."""
        return self._is_over

    @abstractmethod
    def resume(self, after: str | None) -> str | None:
        """Read from the run's beginning, in place of after the cursor: a stream that goes on after a cursor takes in all
        that comes before, to have its messages. Returns the cursor up to which its handlers receive nothing, None if
        they receive everything.

        Raises:
            UsageError: the cursor is not one of this run, or is not the one that the reader has.
        """

    @abstractmethod
    def take(self, waker: ThreadWaker | TaskWaker) -> list[Event] | float:
        """The next events; an empty list at the end. If there are none yet: for how many seconds to wait before this is
        called again. The relay wakes `waker` when there are some. Each call says that all events before are handled.

        Raises:
            SourceTimeoutError: the producer has been silent for too long.
            SourceError: the next events were dropped, because this reader was too slow: `status_code` is 410.
        """

    def pull(self) -> list[Event] | None:
        """The next events, as soon as there are any; None at the end. Raises as `take`."""
        waker = self._waker
        if not isinstance(waker, ThreadWaker):
            waker = self._waker = ThreadWaker()
        while not self._is_over:
            waker.reset()
            events = self.take(waker)
            if isinstance(events, list):
                return events or None
            waker.wait(events)
        return None

    async def apull(self) -> list[Event] | None:
        """As `pull`, for tasks on asyncio and trio."""
        if not self._has_waited:  # other tasks of this event loop run, however much there is to read
            await anyio.lowlevel.checkpoint()
        waker = self._waker
        if not isinstance(waker, TaskWaker):
            waker = self._waker = task_waker()
        self._has_waited = False
        while not self._is_over:
            waker.reset()
            events = self.take(waker)
            if isinstance(events, list):
                return events or None
            self._has_waited = True
            await waker.wait(events)
        return None

    def cancel(self) -> None:
        """End a `pull` that waits, from any thread."""
        self._is_over = True
        if self._waker is not None:
            self._waker.wake()

    def close(self) -> None:
        """Stop reading. The producer goes on. It takes no lock: the garbage collector may call it."""
        self._is_over = True
        if self._waker is not None:
            self._waker.close()


class Reader(Readable):
    """A run to read, from a cursor on. Each stream and each loop over it reads for itself."""

    def __init__(self, relay: Relay, run_id: str, after: str | None = None, timeout: float | None = None) -> None:
        self.relay = relay
        self.run_id = run_id
        self.after = after
        self.timeout = timeout
        self._reading().close()  # raises now where there is no such run or cursor

    def _reading(self) -> Reading:
        return self.relay.reading(self.run_id, self.after, self.timeout)

    def __iter__(self) -> Iterator[Event]:
        """The events in the log: canonical, each with its cursor, without snapshots."""
        reading = self._reading()
        try:
            while (batch := reading.pull()) is not None:
                yield from batch
        finally:
            reading.close()

    def __aiter__(self) -> AsyncIterator[Event]:
        """As `__iter__`, for tasks."""
        return _Events(self._reading())

    def for_stream(self) -> Reader:
        """Itself: a stream reads it when it starts."""
        return self

    def source(self) -> Source:
        """The run as a source that a thread pulls."""
        reading = self._reading()
        batches = iter(reading.pull, None)
        return Source(batches, reading.close, _traits(reading), upstream=reading)

    def async_source(self) -> AsyncSource:
        """The run as a source that a task pulls."""
        reading = self._reading()

        async def close() -> None:
            reading.close()

        return AsyncSource(reading.apull, close, _traits(reading))

    def __repr__(self) -> str:
        return f"<Reader of {self.run_id!r}{f' after {self.after}' if self.after else ''}>"


def _traits(reading: Reading) -> SourceTraits:
    return SourceTraits(protocol="streamkit", read_to_end=True, resume=reading.resume)


class _Events(AsyncIterator[Event]):
    """The events of a reading. Not an async generator, which a loop that is left early would leave open."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._ready: deque[Event] = deque()

    async def __anext__(self) -> Event:
        while not self._ready:
            batch = await self._reading.apull()
            if batch is None:
                self._reading.close()
                raise StopAsyncIteration
            self._ready.extend(batch)
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Stop reading."""
        self._reading.close()
