"""One run in memory: its log, its readers, and the signs of life of its producer."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

import anyio.lowlevel

from ..errors import SourceTimeoutError, UsageError
from ..events import Event, StreamEnd, StreamException, StreamTimeout
from .interface import RunLog
from .log import Log, name_in_cursors, number_of
from .memory_reading import MemoryReading
from .stored import stored
from .wakers import TaskWaker, ThreadWaker, async_wait_until, in_event_loop, wait_until

__all__ = ["MemoryRun", "Overflow"]

Overflow: TypeAlias = Literal["drop_oldest", "block", "error"]

GRACE = 5.0  # seconds of silence after which a producer whose threads have all ended counts as gone


class MemoryRun(RunLog):
    """One run. `lock` guards its log, and its closing.

    Attributes:
        delivered: the number of the newest event that some reader has received.
        passed: the number of the newest event after which some reader has gone on.
        lost: why the producer cannot write any more although the run is open; "" while it can.
        last_sign: when the producer gave its last sign of life, on the monotonic clock.
        watchers: called whenever a reader goes on or leaves.
        waiting: the wakers of readers that wait for the next event, in the order they came.
    """

    def __init__(self, run_id: str, limit: int, overflow: Overflow, timeout: float | None) -> None:
        self.id = run_id
        self.lock = threading.Lock()
        self.log = Log(limit, name_in_cursors(run_id))
        self.limit = limit
        self.delivered = self.passed = 0
        self.lost = ""
        self.last_sign = time.monotonic()
        self._overflow = overflow
        self._timeout = timeout
        self.watchers: set[Callable[[], None]] = set()
        self.waiting: dict[ThreadWaker | TaskWaker, None] = {}
        self._readings: dict[int, weakref.ref[MemoryReading]] = {}
        self._last_left = 0.0  # when a reader left, on the monotonic clock
        self._threads: list[threading.Thread] = []  # of the producer; the newest is the last

    # -- writing

    def append(self, events: Iterable[Event]) -> list[str]:
        """Write events; returns the cursor of each."""
        new: list[Event] = []
        try:
            new.extend(map(stored, events))
        finally:  # what was emitted before an error is written
            with self.lock:
                if self.closed or self.lost:
                    why = self.lost or "it is closed: nothing more can be written"
                    raise UsageError(f"run {self.id!r} cannot be written: {why}")
                cursors = self._append(new)
            self.heartbeat()
            if self.waiting:
                self.wake()
        return cursors

    def _append(self, events: list[Event]) -> list[str]:
        log = self.log
        cursors = [log.append(event) for event in events]
        while (number := log.joinable) and self._is_past(number):
            log.join()
        if log.entries > self.limit:
            self._shrink()
        return cursors

    def _shrink(self) -> None:
        """Join and drop the oldest entries. A run that blocks its writer drops nothing that a reader still needs."""
        log, is_free = self.log, self._overflow == "drop_oldest"
        while log.entries > self.limit and (number := log.joinable) and (is_free or self._is_past(number)):
            log.join()
        while log.entries > self.limit and (number := log.droppable) and (is_free or self._is_past(number)):
            log.drop()

    def _is_past(self, number: int) -> bool:
        """Whether no reader needs the events up to this one singly. Before the first reader, a blocking run waits."""
        if self._overflow != "drop_oldest" and not self.delivered:
            return False
        return all(reading.number >= number for reading in self.readings)

    def close(self, error: BaseException | None = None) -> bool:
        """Close the run, with an error as failed. Returns whether this call closed it."""
        with self.lock:
            if self.closed:
                return False
            self.finish(error)
        self.report_progress()
        return True

    def finish(self, error: BaseException | None) -> None:
        """Close the run, with the lock held."""
        if error is not None:
            timeout: list[Event] = [StreamTimeout()] if isinstance(error, TimeoutError) else []
            self._append([*timeout, StreamException(type(error).__name__, str(error)), StreamEnd(status="failed")])
        self.closed = True
        self.last_sign = time.monotonic()
        self.wake()

    # -- room for more

    def drain(self) -> None:
        """Wait in this thread until the readers have made room."""
        if self._has_room():
            return
        if in_event_loop():
            raise UsageError(
                f"the readers of run {self.id!r} are {self.limit} events behind, and waiting here would block the "
                "event loop: `await emitter.drain()` between what is emitted"
            )
        wait_until(self._has_room, self.watch, lambda: 1.0)

    async def adrain(self) -> None:
        """As `drain`, for tasks. Other tasks run meanwhile, even where there is room."""
        if self._has_room():
            await anyio.lowlevel.checkpoint()
        else:
            await async_wait_until(self._has_room, self.watch, lambda: 1.0)

    def _has_room(self) -> bool:
        if self._overflow == "drop_oldest" or self.closed or self.lost:
            return True
        readings = self.readings
        if not readings and self.delivered:
            return True
        if self.log.newest - min((reading.number for reading in readings), default=0) < self.limit:
            return True
        if self._overflow == "error":
            raise UsageError(f"the readers of run {self.id!r} are {self.limit} events behind, the relay's limit")
        self.heartbeat()  # a producer that waits is alive
        return False

    # -- the producer's life

    def heartbeat(self) -> None:
        """Report that the producer is alive. The thread that calls this counts as one of the producer's."""
        self.last_sign = time.monotonic()
        thread, threads = threading.current_thread(), self._threads
        if not threads or threads[-1] is not thread:
            self._threads = [one for one in threads if one.is_alive() and one is not thread] + [thread]

    def patience(self, timeout: float) -> float:
        """For how many seconds the producer may be silent on, before this is called again.

        Raises:
            SourceTimeoutError: it was silent for `timeout` seconds, or its threads have ended.
        """
        silence, threads = time.monotonic() - self.last_sign, self._threads
        reason = "it gave no sign of life" if silence >= timeout else ""
        if threads and silence >= GRACE and not any(thread.is_alive() for thread in threads):
            names = ", ".join(repr(thread.name) for thread in threads)
            reason = f"its thread {names} has ended without closing it"
        if reason:
            raise SourceTimeoutError(f"the producer of run {self.id!r} was silent for {silence:.1f} seconds: {reason}")
        return max(0.001, min(timeout - silence, GRACE - silence if silence < GRACE else GRACE))

    def abandon(self, reason: str = "its emitter was dropped without closing it") -> None:
        """Report that the producer is gone. The next reader that has nothing to read closes the run as failed."""
        if not self.closed:
            self.lost = reason
            self.wake()
        self.report_progress()

    # -- readers. None of this takes a lock: the garbage collector may close a reading.

    def reading(self, after: str | None, timeout: float | None) -> MemoryReading:
        """Begin to read, after a cursor."""
        return MemoryReading(self, after, self._timeout if timeout is None else timeout)

    @property
    def readings(self) -> list[MemoryReading]:
        """The readings that are open. One that was dropped without closing it does not count."""
        readings = [reference() for reference in [*self._readings.values()]]
        return [reading for reading in readings if reading is not None]

    def join(self, reading: MemoryReading) -> None:
        """A reading begins."""
        key = id(reading)
        self._readings[key] = weakref.ref(reading, lambda _: self._leave(key))

    def leave(self, reading: MemoryReading) -> None:
        """A reading has ended."""
        self._leave(id(reading))
        self.report_progress()

    def _leave(self, key: int) -> None:
        if self._readings.pop(key, None) is not None:
            self._last_left = time.monotonic()

    def unattended(self) -> float:
        """For how many seconds there has been no reader; 0 before the first came."""
        return 0.0 if self._readings or not self.delivered else time.monotonic() - self._last_left

    def all_passed(self, cursor: str) -> bool:
        """Whether some reader has gone on after this event, and all that are reading. True where the run is gone."""
        number = number_of(cursor, self.log.name)
        if number is None or (self.lost and not self.closed):
            return True
        return self.passed >= number and all(reading.passed >= number for reading in self.readings)

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever a reader goes on or leaves; returns the function that ends that."""
        self.watchers.add(wake)
        return lambda: self.watchers.discard(wake)

    def report_progress(self) -> None:
        """A reader went on or left."""
        for wake in [*self.watchers]:
            wake()

    def wake(self) -> None:
        """Wake all readers that wait for an event."""
        waiting = self.waiting
        while waiting:
            try:
                waker, _ = waiting.popitem()
            except KeyError:
                return  # another thread woke the last one
            waker.wake()
