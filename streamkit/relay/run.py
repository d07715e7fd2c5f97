"""One run in memory: its log, who reads it, and the signs of life of who writes it."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from ..errors import SourceError
from ..events import Delta, Event, StreamEnd, StreamException, StreamTimeout
from .log import Log
from .wakers import TaskWaker, ThreadWaker

if TYPE_CHECKING:
    from .reader import MemoryReading

__all__ = ["Overflow", "Run", "failure"]

Overflow = Literal["drop_oldest", "block", "error"]

GRACE = 5.0  # seconds of silence after which a producer whose threads have all ended is taken for lost


class Run:
    """One run's log, who reads it, and the signs of life of who writes it.

    Attributes:
        told: the number up to which some reader was told.
        abandoned: why nobody writes any more, though the run is open; "" while somebody may.
    """

    def __init__(self, run_id: str, limit: int, overflow: Overflow) -> None:
        self.id = run_id
        self.lock = threading.Lock()
        self.log = Log(limit)
        self.limit = limit
        self.overflow = overflow
        self.closed = False
        self.abandoned = ""
        self.told = 0
        self.alive = time.monotonic()
        self._readings: dict[int, weakref.ref[MemoryReading]] = {}
        self.watchers: set[Callable[[], None]] = set()
        self._waiting: dict[ThreadWaker | TaskWaker, None] = {}
        self._thread: threading.Thread | None = None
        self._threads: list[threading.Thread] = []

    # -- the writer's

    def sign(self) -> None:
        """A sign of life, from the thread that gives it."""
        self.alive = time.monotonic()
        thread = threading.current_thread()
        if thread is not self._thread:
            self._thread = thread
            self._threads = [known for known in self._threads if known.is_alive() and known is not thread] + [thread]

    def append(self, events: list[Event]) -> list[str]:
        """Write what was made to be kept. With the lock held."""
        log = self.log
        cursors = [log.grow(event) if isinstance(event, Delta) else log.append(event) for event in events]
        while (ripe := log.ripe) and self.is_past(ripe):
            log.seal()
        if log.held > self.limit:
            self._shrink()
        return cursors

    def _shrink(self) -> None:
        log = self.log
        waits = self.overflow != "drop_oldest"
        while log.held > self.limit and log.ripe and not (waits and not self.is_past(log.ripe)):
            log.seal()
        while log.held > self.limit and log.oldest and not (waits and not self.is_past(log.oldest)):
            log.drop()

    def is_past(self, number: int) -> bool:
        """Whether nobody needs the events up to this one one by one."""
        if self.overflow != "drop_oldest" and not self.told:
            return False  # the one to come does
        return all(reading.number >= number for reading in self.readings)

    @property
    def has_room(self) -> bool:
        if self.overflow == "drop_oldest" or self.closed:
            return True
        readings = self.readings
        if not readings and self.told:
            return True
        return self.log.newest - min((reading.number for reading in readings), default=0) < self.limit

    def wake(self) -> None:
        """Wake who waits for more."""
        waiting = self._waiting
        while waiting:
            try:
                waker, _ = waiting.popitem()
            except KeyError:
                return  # another thread woke the last
            waker.wake()

    def give_up(self) -> None:
        """Close what was abandoned. With the lock held."""
        self.append(failure(SourceError(f"the producer of run {self.id!r} is gone: {self.abandoned}")))
        self.closed = True
        self.wake()

    # -- the readers'; nothing of it takes a lock, for the garbage collector may close a reading

    @property
    def readings(self) -> list[MemoryReading]:
        """The live ones."""
        found = [known() for known in [*self._readings.values()]]
        return [reading for reading in found if reading is not None]

    def join(self, reading: MemoryReading) -> None:
        known = self._readings
        key = id(reading)
        known[key] = weakref.ref(reading, lambda _: known.pop(key, None) and None)

    def leave(self, reading: MemoryReading) -> None:
        self._readings.pop(id(reading), None)
        self.reader_went_on()

    def wait_with(self, waker: ThreadWaker | TaskWaker) -> None:
        self._waiting[waker] = None

    def wait_no_more(self, waker: ThreadWaker | TaskWaker) -> None:
        self._waiting.pop(waker, None)

    def reader_went_on(self) -> None:
        """A reader went on, or left."""
        for wake in [*self.watchers]:
            wake()

    def is_lost(self, silence: float) -> str:
        """Why the producer is taken for gone, though it has not closed; "" if it is not."""
        if self._threads and silence >= GRACE and not any(thread.is_alive() for thread in self._threads):
            names = ", ".join(repr(thread.name) for thread in self._threads)
            return f"its thread {names} has ended without closing it"
        return ""


def failure(error: BaseException) -> list[Event]:
    """How a stream fails whose writer says no more than that."""
    told: list[Event] = [StreamTimeout()] if isinstance(error, TimeoutError) else []
    return [*told, StreamException(type(error).__name__, str(error)), StreamEnd(status="failed")]
