"""What a relay is: the numbered log of runs, each written by one producer and read by any number of readers.

An event's number is its cursor. A reader goes on after any cursor, receives what is there, and waits for more until the
run is closed, which happens exactly once. Where the log is kept is the relay's own matter: in memory, or on a server.
Each reader keeps its own place, so that one that is slow, late or gone changes nothing for the others.

A relay of another kind implements the abstract methods of `Relay`, `RunLog` and `Reading`. What else a `RunLog` has is
for relays that can do it: slow a writer down, and see their readers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator

import anyio.lowlevel

from ..errors import SourceError, UsageError
from ..events import Event
from .reader import Reader, Reading

__all__ = ["Relay", "RunLog"]


class RunLog(ABC):
    """The log of one run. All of it is thread-safe.

    Attributes:
        closed: whether nothing more can be written.
    """

    closed: bool = False

    @abstractmethod
    def append(self, events: Iterable[Event]) -> list[str]:
        """Write canonical events; returns the cursor of each. Each is stored as it is at that moment: it may change
        afterwards. What `events` gave before it raised an error is written, too.

        Raises:
            UsageError: the run is closed or deleted.
        """

    @abstractmethod
    def close(self, error: BaseException | None = None) -> bool:
        """Close the run. Returns whether this call closed it; a later one changes nothing. With an error, readers
        receive the end of a stream that failed with it."""

    @abstractmethod
    def heartbeat(self) -> None:
        """Report that the producer is alive, although it has nothing to write."""

    @abstractmethod
    def reading(self, after: str | None, timeout: float | None) -> Reading:
        """Begin to read. Arguments and errors are those of `Relay.reader`."""

    def abandon(self) -> None:  # noqa: B027 - a relay may ignore it, and find out by the producer's silence
        """Report that the producer is gone and did not close the run. It must neither take a lock nor wait: the garbage
        collector may call it at any moment."""

    def drain(self) -> None:  # noqa: B027 - there is room in a log that is not bounded
        """Wait in this thread until the readers have made room.

        Raises:
            UsageError: there is no room, and the relay refuses to wait; or waiting would block an event loop.
        """

    async def adrain(self) -> None:
        """As `drain`, for tasks. Other tasks run meanwhile, even where there is room."""
        await anyio.lowlevel.checkpoint()

    def all_passed(self, cursor: str) -> bool:
        """Whether some reader has gone on after this event, and all that are reading. A question that all have passed is
        not answered. False where a relay cannot know."""
        return False

    def unattended(self) -> float:
        """For how many seconds there has been no reader; 0 before the first came, and where a relay cannot know."""
        return 0.0

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever a reader goes on or leaves; returns the function that ends that."""
        return lambda: None


class Relay(ABC):
    """The logs of runs, by their ids. All of it is thread-safe.

    Attributes:
        bounded: whether a writer has to wait for room, with `drain`, before it writes.
        limit: how many entries the log of a run holds, None for any number. A writer keeps as many messages.
    """

    bounded: bool = False
    limit: int | None = None

    @abstractmethod
    def open(self, run_id: str) -> RunLog:
        """Begin the log of a run.

        Raises:
            UsageError: there is one already.
        """

    @abstractmethod
    def find(self, run_id: str) -> RunLog | None:
        """The log of a run, None where there is no such run (any more)."""

    @abstractmethod
    def delete(self, run_id: str) -> None:
        """Remove a run. Readers that have begun go on; for them, an open one fails."""

    # -- writing

    def append(self, run_id: str, events: Iterable[Event], *, wait: bool = True) -> list[str]:
        """Write canonical events; returns the cursor of each. With `wait`, a bounded relay waits for room first.

        Raises:
            UsageError: there is no such run, or it is closed.
        """
        run = self._run_to_write(run_id)
        if wait and self.bounded:
            run.drain()
        return run.append(events)

    def close(self, run_id: str, error: BaseException | None = None) -> bool:
        """Close a run, with an error as failed. Returns whether this call closed it."""
        run = self.find(run_id)
        return run is not None and run.close(error)

    def heartbeat(self, run_id: str) -> None:
        """Report that the producer is alive, although it has nothing to write."""
        if (run := self.find(run_id)) is not None:
            run.heartbeat()

    async def adrain(self, run_id: str) -> None:
        """Wait until the readers have made room, in a task."""
        await self._run_to_write(run_id).adrain()

    def _run_to_write(self, run_id: str) -> RunLog:
        run = self.find(run_id)
        if run is None or run.closed:
            why = "is closed" if run is not None else "is not in this relay: it was never opened, or it has expired"
            raise UsageError(f"run {run_id!r} {why}")
        return run

    # -- reading

    def status(self, run_id: str) -> str | None:
        """`open`, `closed`, or None where there is no such run (any more)."""
        run = self.find(run_id)
        return None if run is None else "closed" if run.closed else "open"

    def reading(self, run_id: str, after: str | None = None, timeout: float | None = None) -> Reading:
        """Begin to read a run. Arguments and errors are those of `reader`."""
        run = self.find(run_id)
        if run is None:
            error = SourceError(f"there is no run {run_id!r} in this relay: it never was, or it has expired")
            error.status_code = 404
            raise error
        return run.reading(after, timeout)

    def reader(self, run_id: str, after: str | None = None, *, timeout: float | None = None) -> Reader:
        """A reader of a run: a source for `stream` and `astream`, and an iterable of the events in the log.

        Args:
            after: the cursor to go on after; None for the beginning.
            timeout: seconds of silence after which the producer counts as gone; None for the relay's own limit,
                `math.inf` for none.

        Raises:
            UsageError: the cursor is not one of this run.
            SourceError: there is no such run (any more): `status_code` is 404.
        """
        return Reader(self, run_id, after, timeout)

    def read(self, run_id: str, after: str | None = None) -> Iterator[Event]:
        """The events after a cursor, waiting for more until the run is closed. Raises as `reader`."""
        return iter(self.reader(run_id, after))

    def aread(self, run_id: str, after: str | None = None) -> AsyncIterator[Event]:
        """As `read`, for tasks."""
        return aiter(self.reader(run_id, after))
