"""One reading of a run in memory."""

from __future__ import annotations

import math
import time

import anyio.lowlevel

from ..errors import SourceError, SourceTimeoutError, UsageError
from ..events import Event
from .interface import Reading
from .log import cursor_of, number_of
from .run import GRACE, Run
from .stored import for_reader
from .wakers import TaskWaker, ThreadWaker, task_waker

__all__ = ["MemoryReading"]


class MemoryReading(Reading):
    """A place in a run's log.

    Attributes:
        number: of the last event that was handed out.
        went_on: the number up to which all has been handled: what came after it was asked for.
    """

    def __init__(self, run: Run, after: str | None, timeout: float | None) -> None:
        self._run = run
        self._after = after
        self._timeout = math.inf if timeout is None else timeout
        self.number = self._place(after)
        self.went_on = self.number
        self._until: int | None = None  # read up to here first, so that a batch ends where a stream goes on
        self._began = False
        self._first: list[Event] = []  # told before what the log has
        self._over = False
        self._waker: ThreadWaker | TaskWaker | None = None
        self._waited = True

    def _place(self, cursor: str | None) -> int:
        if cursor is None:
            return 0
        number = number_of(cursor)
        if number is None:
            raise UsageError(f"{cursor!r} is no cursor of run {self._run.id!r}: they are like '1-17'")
        if number > self._run.log.newest:
            newest = cursor_of(self._run.log.newest)
            raise UsageError(f"cursor {cursor!r} is after the newest event of run {self._run.id!r}, {newest!r}")
        return number

    def resume(self, after: str | None) -> str | None:
        if after is not None and self._after is not None and after != self._after:
            raise UsageError(f"the stream is to go on after {after!r}, and its reader after {self._after!r}")
        until = self._place(after if after is not None else self._after)
        run = self._run
        with run.lock:  # what is dropped from here on, this reading has seen or misses
            self._until = until or None
            self.number = self.went_on = 0
            self._join()
            first = self.number
        return cursor_of(max(until, first)) if until and (until > first or self._first) else None

    def pull(self) -> list[Event] | None:
        waker = self._waker
        if not isinstance(waker, ThreadWaker):
            waker = self._waker = ThreadWaker()
        self._go_on()
        while not self._over:
            waker.reset()
            if (batch := self._take(waker)) is not None:
                return batch or None
            try:
                waker.wait(self._patience())
            finally:
                self._run.wait_no_more(waker)
        return None

    async def apull(self) -> list[Event] | None:
        if not self._waited:  # others in this event loop have their turn, however much there is to read
            await anyio.lowlevel.checkpoint()
        waker = self._waker
        if not isinstance(waker, TaskWaker):
            waker = self._waker = task_waker()
        self._go_on()
        self._waited = False
        while not self._over:
            waker.reset()
            if (batch := self._take(waker)) is not None:
                return batch or None
            self._waited = True
            try:
                await waker.wait(self._patience())
            finally:
                self._run.wait_no_more(waker)
        return None

    def _go_on(self) -> None:
        self.went_on = self.number
        if self._run.watchers:
            self._run.reader_went_on()

    def _take(self, waker: ThreadWaker | TaskWaker) -> list[Event] | None:
        """What is there: [] at the end, None where it has to be waited for; then the waker is told."""
        run = self._run
        with run.lock:
            if not self._began:
                self._join()
            if self._first:
                batch, self._first = self._first, []
                return batch
            if self.number < run.log.beginning.dropped:
                raise self._overtaken()
            if self._until is not None and self.number >= self._until:
                self._until = None
            batch, self.number = run.log.take(self.number, self._until)
            run.told = max(run.told, self.number)
            if batch or run.closed:
                return batch
            if run.abandoned:
                run.give_up()
                batch, self.number = run.log.take(self.number)
                return batch
            run.wait_with(waker)
            return None

    def _join(self) -> None:
        """Become one of the run's readers, with what is told in place of what is gone already. With the lock held."""
        run, beginning = self._run, self._run.log.beginning
        self._began = True
        run.join(self)
        if self.number >= beginning.dropped:
            return
        known = self._until is not None and self._until >= beginning.dropped
        self.number = beginning.dropped
        run.told = max(run.told, self.number)
        events = [for_reader(event) for event in beginning.events(cursor_of(self.number))]
        self._first = events if known else [*events, beginning.warning(run.id)]

    def _overtaken(self) -> SourceError:
        run = self._run
        error = SourceError(
            f"this reader of run {run.id!r} was too slow: what comes after {cursor_of(self.number)!r} was dropped up to "
            f"{cursor_of(run.log.beginning.dropped)!r}, as the log holds {run.limit} entries; read anew after that cursor"
        )
        error.status_code = 410
        return error

    def _patience(self) -> float:
        """Seconds to wait before this is asked again."""
        run = self._run
        silence = time.monotonic() - run.alive
        why = run.is_lost(silence)
        if why or silence >= self._timeout:
            what = f"the producer of run {run.id!r} has told nothing for {silence:.1f} seconds"
            raise SourceTimeoutError(what + (f": {why}" if why else ", and gave no sign of life"))
        return max(0.001, min(self._timeout - silence, GRACE - silence if silence < GRACE else GRACE))

    def cancel(self) -> None:
        self._over = True
        if self._waker is not None:
            self._waker.wake()

    def close(self) -> None:
        self._over = True
        if self._waker is not None:
            self._waker.close()
        self._run.leave(self)
