"""One reading of a run in memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..errors import SourceError, UsageError
from ..events import Event
from .log import cursor_of, number_of
from .reader import Reading
from .wakers import TaskWaker, ThreadWaker

if TYPE_CHECKING:
    from .memory_run import MemoryRun

__all__ = ["MemoryReading"]


class MemoryReading(Reading):
    """A place in a run's log. Where the events after it were dropped already, it begins with the log's snapshot.

    Attributes:
        number: of the last event that was handed out.
        passed: the number up to which all events are handled, since the next ones were requested.
    """

    def __init__(self, run: MemoryRun, after: str | None, timeout: float | None) -> None:
        super().__init__()
        self._run = run
        self._after = after
        self._timeout = math.inf if timeout is None else timeout
        self.number = self.passed = self._number_of(after)
        self._silent_until = 0  # a batch ends with this event, after which a resumed stream's handlers receive events
        self._has_joined = False
        self._snapshot: list[Event] = []  # handed out first

    def _number_of(self, cursor: str | None) -> int:
        if cursor is None:
            return 0
        run, name = self._run, self._run.log.name
        try:
            number = number_of(cursor, name)
        except UsageError as error:
            raise UsageError(f"run {run.id!r}: {error}") from None
        if number is None:
            raise UsageError(f"{cursor!r} is no cursor of run {run.id!r}: they are like {cursor_of(17, name)!r}")
        if number > run.log.newest:
            newest = cursor_of(run.log.newest, name)
            raise UsageError(f"cursor {cursor!r} is after the newest event of run {run.id!r}, {newest!r}")
        return number

    def resume(self, after: str | None) -> str | None:
        """Read from the run's beginning; returns the cursor up to which handlers receive nothing."""
        if after is not None and self._after is not None and self._number_of(after) != self._number_of(self._after):
            raise UsageError(f"the stream is to go on after {after!r}, and its reader after {self._after!r}")
        until = self._number_of(after if after is not None else self._after)
        with self._run.lock:  # from here on, this reading receives what is dropped, or fails
            self._silent_until, self.number, self.passed = until, 0, 0
            self._join()
            first = self.number
        return cursor_of(max(until, first), self._run.log.name) if until and (until > first or self._snapshot) else None

    def _join(self) -> None:
        """Count as one of the run's readers, and begin with the snapshot if events are missing. With the lock held."""
        run, snapshot = self._run, self._run.log.snapshot
        self._has_joined = True
        run.join(self)
        if self.number >= snapshot.dropped:
            return
        self.number = snapshot.dropped
        run.delivered = max(run.delivered, self.number)
        self._snapshot = snapshot.events(cursor_of(self.number, run.log.name), self)
        if self._silent_until < snapshot.dropped:
            self._snapshot.append(snapshot.warning(run.id))

    def take(self, waker: ThreadWaker | TaskWaker) -> list[Event] | float:
        """The next events, or for how many seconds to wait for them."""
        run, log = self._run, self._run.log
        self.passed = self.number
        if self.passed > run.passed:
            run.passed = self.passed
        if run.watchers:
            run.report_progress()
        with run.lock:
            if not self._has_joined:
                self._join()
            if self._snapshot:
                events, self._snapshot = self._snapshot, []
                return events
            if self.number < log.snapshot.dropped:
                raise self._too_slow()
            if run.lost and not run.closed and self.number >= log.newest:
                run.finish(SourceError(f"the producer of run {run.id!r} is gone: {run.lost}"))
            silent_until = self._silent_until if self._silent_until > self.number else None
            events, self.number = log.events(self.number, silent_until, self)
            if self.number > run.delivered:
                run.delivered = self.number
            if events or run.closed:
                return events
            run.waiting[waker] = None
        return run.patience(self._timeout)

    def _too_slow(self) -> SourceError:
        run, name = self._run, self._run.log.name
        error = SourceError(
            f"this reader of run {run.id!r} was too slow: the events after {cursor_of(self.number, name)!r} were dropped "
            f"up to {cursor_of(run.log.snapshot.dropped, name)!r}, as the log holds {run.limit} entries; read anew after that"
        )
        error.status_code = 410
        return error

    def close(self) -> None:
        """Stop reading, without taking a lock."""
        super().close()
        if self._waker is not None:
            self._run.waiting.pop(self._waker, None)
        self._run.leave(self)
