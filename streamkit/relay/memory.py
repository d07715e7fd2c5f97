"""The relay in this process: for threads and for tasks of any event loop, all at once.

What a reader is told of, and how a writer is bounded, is named by `overflow`:

    drop_oldest   the writer never waits. Beyond `limit` entries, consecutive deltas of a message are joined, then the
                  oldest events are dropped: a reader who was slower than that is told a `SourceError`, one who comes
                  later begins with what was open (each message as created plus one delta) and a warning
    block         the writer waits as long as a reader is `limit` events behind: before the first one came, the one to
                  come. What all that are here have read may be joined, and dropped
    error         as `block`, but the writer gets a `UsageError` in place of waiting
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import get_args

from ..errors import SourceError, UsageError
from ..events import Event
from .interface import Relay
from .log import number_of
from .reader import MemoryReading
from .run import Overflow, Run, failure
from .stored import kept
from .wakers import ThreadWaker, in_event_loop, task_waker

__all__ = ["MemoryRelay", "Overflow"]

_PURGE = 1.0  # seconds between two looks for what has expired


class MemoryRelay(Relay):
    """The default relay.

    Args:
        limit: how many entries the log of a run holds; consecutive deltas of a message that all readers have read
            count as one (for each thousand).
        overflow: what happens beyond: `drop_oldest`, `block` or `error`.
        timeout: seconds of silence after which readers are told that the producer timed out, None for no limit.
        ttl: seconds that a run is kept after it was closed.
        ttl_open: seconds of silence after which an open run is given up.

    Raises:
        UsageError: a limit that is none, or no such policy.
    """

    def __init__(
        self,
        *,
        limit: int = 65_536,
        overflow: Overflow = "drop_oldest",
        timeout: float | None = 600.0,
        ttl: float = 600.0,
        ttl_open: float = 3600.0,
    ) -> None:
        if limit < 1:
            raise UsageError(f"a relay's limit is at least 1, not {limit!r}")
        if overflow not in get_args(Overflow):
            raise UsageError(f"there is no overflow policy {overflow!r}; there are: {', '.join(get_args(Overflow))}")
        self.bounded = overflow != "drop_oldest"
        self.limit = self._limit = limit
        self._overflow: Overflow = overflow
        self._timeout = timeout
        self._ttl = ttl
        self._ttl_open = ttl_open
        self._lock = threading.Lock()
        self._runs: dict[str, Run] = {}
        self._purged = time.monotonic()

    # -- writing

    def open(self, run_id: str) -> None:
        self._purge()
        with self._lock:
            if run_id in self._runs:
                raise UsageError(f"run {run_id!r} is in this relay already")
            self._runs[run_id] = Run(run_id, self._limit, self._overflow)

    def append(self, run_id: str, events: Iterable[Event], *, wait: bool = True) -> list[str]:
        run = self._open_run(run_id)
        if wait and self.bounded:
            self.drain(run_id)
        new: list[Event] = []
        try:
            new.extend(map(kept, events))
        finally:  # what was told before an error was told
            with run.lock:
                if run.closed:
                    raise UsageError(f"run {run_id!r} is closed: nothing more can be written")
                cursors = run.append(new)
            run.sign()
            run.wake()
        return cursors

    def heartbeat(self, run_id: str) -> None:
        run = self._runs.get(run_id)
        if run is not None:
            run.sign()

    def close(self, run_id: str, error: BaseException | None = None) -> bool:
        run = self._runs.get(run_id)
        if run is None:
            return False
        with run.lock:
            if run.closed:
                return False
            if error is not None:
                run.append(failure(error))
            run.closed = True
            run.alive = time.monotonic()
        run.wake()
        run.reader_went_on()
        return True

    def abandon(self, run_id: str) -> None:
        run = self._runs.get(run_id)
        if run is not None and not run.closed:
            run.abandoned = "its emitter was dropped without closing it"
            run.wake()

    def drain(self, run_id: str) -> None:
        run = self._open_run(run_id)
        if run.has_room:
            return
        self._refuse(run)
        if in_event_loop():
            raise UsageError(
                f"the readers of run {run_id!r} are {run.limit} events behind, and waiting here would block the event "
                "loop: `await emitter.drain()` between what is emitted"
            )
        waker = ThreadWaker()
        unwatch = self.watch(run_id, waker.wake)
        try:
            while not run.has_room:
                run.sign()
                waker.wait(1.0)
                waker.reset()
        finally:
            unwatch()

    async def adrain(self, run_id: str) -> None:
        run = self._open_run(run_id)
        if run.has_room:
            return
        self._refuse(run)
        waker = task_waker()
        unwatch = self.watch(run_id, waker.wake)
        try:
            while not run.has_room:
                run.sign()
                await waker.wait(1.0)
                waker.reset()
        finally:
            unwatch()
            waker.close()

    def _refuse(self, run: Run) -> None:
        if run.overflow == "error":
            raise UsageError(f"the readers of run {run.id!r} are {run.limit} events behind, the relay's limit")

    # -- reading

    def reading(self, run_id: str, after: str | None = None, timeout: float | None = None) -> MemoryReading:
        self._purge()
        run = self._runs.get(run_id)
        if run is None:
            error = SourceError(f"there is no run {run_id!r} in this relay: it never was, or it has expired")
            error.status_code = 404
            raise error
        return MemoryReading(run, after, self._timeout if timeout is None else timeout)

    def status(self, run_id: str) -> str | None:
        self._purge()
        run = self._runs.get(run_id)
        return None if run is None else "closed" if run.closed else "open"

    def passed(self, run_id: str, cursor: str) -> bool:
        run, number = self._runs.get(run_id), number_of(cursor)
        if run is None or number is None:
            return True  # nobody can come any more
        return run.told >= number and all(reading.went_on >= number for reading in run.readings)

    def watch(self, run_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        run = self._runs.get(run_id)
        if run is None:
            return lambda: None
        run.watchers.add(wake)
        return lambda: run.watchers.discard(wake)

    # -- forgetting

    def delete(self, run_id: str) -> None:
        with self._lock:
            run = self._runs.pop(run_id, None)
        if run is not None and not run.closed:
            run.abandoned = "it was deleted while it was open"
            run.wake()
            run.reader_went_on()

    def _purge(self) -> None:
        now = time.monotonic()
        if now - self._purged < min(_PURGE, self._ttl, self._ttl_open):
            return
        self._purged = now
        for run in [*self._runs.values()]:
            if now - run.alive >= (self._ttl if run.closed else self._ttl_open):
                self.delete(run.id)

    def _open_run(self, run_id: str) -> Run:
        run = self._runs.get(run_id)
        if run is None or run.closed:
            why = "is closed" if run is not None else "is not in this relay: it was never opened, or it has expired"
            raise UsageError(f"run {run_id!r} {why}")
        return run
