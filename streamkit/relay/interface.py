"""What a relay is: the numbered log of runs, each written by one producer and read by any number of consumers.

An event's number is its cursor. A reader goes on from any cursor, reads what is there, and waits for more until the
run is closed, which happens exactly once. Where the log is kept is the relay's: in memory, or on a server. Each reader
keeps its own place, so that one that is slow, late or gone changes nothing for the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator

from ..events import Event
from ..sources.source import AsyncSource, Readable, Source

__all__ = ["Reader", "Reading", "Relay"]


class Relay(ABC):
    """The log of runs. All of it is thread-safe.

    Attributes:
        bounded: whether a writer has to ask `drain` for room.
        limit: how many entries the log of a run holds, None for any number. A writer keeps as many messages.
    """

    bounded: bool = False
    limit: int | None = None

    @abstractmethod
    def open(self, run_id: str) -> None:
        """Begin the log of a run.

        Raises:
            UsageError: there is one already.
        """

    @abstractmethod
    def append(self, run_id: str, events: Iterable[Event], *, wait: bool = True) -> list[str]:
        """Write events as an engine told them, and give the cursor of each. What is live in them is kept as it is now.
        With `wait`, `drain` is asked first.

        Raises:
            UsageError: there is no such run, or it is closed.
        """

    @abstractmethod
    def close(self, run_id: str, error: BaseException | None = None) -> bool:
        """Say that nothing more comes. The first call closes; any other changes nothing and gives False. An error is
        told to readers as the end of a failed stream."""

    @abstractmethod
    def reading(self, run_id: str, after: str | None = None, timeout: float | None = None) -> Reading:
        """One reading of a run, for a `Reader`."""

    @abstractmethod
    def status(self, run_id: str) -> str | None:
        """`open`, `closed`, or None where there is no such run (any more)."""

    @abstractmethod
    def delete(self, run_id: str) -> None:
        """Forget a run. Readings of it that have begun go on; an open one is told to them as lost."""

    @abstractmethod
    def heartbeat(self, run_id: str) -> None:
        """A sign of life of the producer, who has nothing to tell."""

    @abstractmethod
    def drain(self, run_id: str) -> None:
        """Return when there is room for more, where the log is bounded by waiting.

        Raises:
            UsageError: there is no room, and the log is bounded by refusing; or an event loop would be blocked.
        """

    @abstractmethod
    async def adrain(self, run_id: str) -> None:
        """As `drain`, for tasks."""

    @abstractmethod
    def abandon(self, run_id: str) -> None:
        """The producer is gone, and did not close. It takes no lock and never waits: the garbage collector may call it
        at any moment."""

    def passed(self, run_id: str, cursor: str) -> bool:
        """Whether somebody was told of this event, and every reader that is here has gone on after it. False where a
        relay cannot know."""
        return False

    def watch(self, run_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever a reader went on or left, until the function that this gives is called."""
        return lambda: None

    def reader(self, run_id: str, after: str | None = None, *, timeout: float | None = None) -> Reader:
        """A reader of a run: a source for `stream` and `astream`, and an iterable of the log's own events.

        Args:
            after: the cursor to go on from; where it is not given, from the beginning.
            timeout: seconds of silence after which the producer is told as timed out; None for the relay's own limit,
                `math.inf` for none.

        Raises:
            UsageError: the cursor is none of this run's.
            SourceError: there is no such run (any more): `status_code` is 404.
        """
        return Reader(self, run_id, after, timeout)

    def read(self, run_id: str, after: str | None = None) -> Iterator[Event]:
        """The events after a cursor, waiting for more until the run is closed. Raises as `reader`."""
        return iter(self.reader(run_id, after))

    def aread(self, run_id: str, after: str | None = None) -> AsyncIterator[Event]:
        """As `read`, for tasks."""
        return aiter(self.reader(run_id, after))


class Reading(ABC):
    """One reading of a run, with its own place in it: by one thread, or by one task."""

    @abstractmethod
    def resume(self, after: str | None) -> str | None:
        """Read from the run's beginning, as a stream does that goes on after a cursor, to know all snapshots. Gives
        the cursor up to which nothing is to be told; None if all is.

        Raises:
            UsageError: the cursor is none of this run's, or another than the reader was given.
        """

    @abstractmethod
    def pull(self) -> list[Event] | None:
        """What comes next, as soon as there is any; None at the end.

        Raises:
            SourceTimeoutError: the producer has been silent for too long.
            SourceError: what comes next was dropped, for this reader was too slow: `status_code` is 410.
        """

    @abstractmethod
    async def apull(self) -> list[Event] | None:
        """As `pull`, for tasks on asyncio and trio."""

    @abstractmethod
    def cancel(self) -> None:
        """Make a `pull` that waits end soon, from any thread."""

    @abstractmethod
    def close(self) -> None:
        """Leave. The producer goes on."""


class _Events(AsyncIterator[Event]):
    """A reading's events, as an iterator that a loop may leave at any time."""

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
        self._reading.close()


class Reader(Readable):
    """A run to be read, from a cursor on. Each stream and each iteration over it is a reading of its own."""

    def __init__(self, relay: Relay, run_id: str, after: str | None = None, timeout: float | None = None) -> None:
        self.relay = relay
        self.run_id = run_id
        self.after = after
        self.timeout = timeout
        self._reading().close()  # who asks for a run that is not there is told so now

    def _reading(self) -> Reading:
        return self.relay.reading(self.run_id, self.after, self.timeout)

    def __iter__(self) -> Iterator[Event]:
        """The log's own events: canonical, each with its cursor, without snapshots."""
        reading = self._reading()
        try:
            while (batch := reading.pull()) is not None:
                yield from batch
        finally:
            reading.close()

    def __aiter__(self) -> AsyncIterator[Event]:
        """As `__iter__`."""
        return _Events(self._reading())

    def for_stream(self) -> Reader:
        return self

    def source(self) -> Source:
        reading = self._reading()
        batches = iter(reading.pull, None)
        return Source(batches, reading.close, protocol="streamkit", whole=True, inner=reading, resume=reading.resume)

    def async_source(self) -> AsyncSource:
        reading = self._reading()

        async def close() -> None:
            reading.close()

        return AsyncSource(reading.apull, close, protocol="streamkit", whole=True, resume=reading.resume)

    def __repr__(self) -> str:
        return f"<Reader of {self.run_id!r}{f' after {self.after}' if self.after else ''}>"
