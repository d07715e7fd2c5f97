"""Reading a run in memory."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Any

from ...errors import SourceError, UsageError
from ..cursors import Entry, place_of
from ..ending import end_abandoned_run
from ..interface import FINAL
from ..reading import Gap, Reading
from ..wakers import TaskWaker, ThreadWaker

if TYPE_CHECKING:
    from .relay import MemoryRelay
    from .run import MemoryRun

__all__ = ["MemoryReading"]

_EMPTY = b'{"type":"snapshot","dropped":0,"events":[]}'


class MemoryReading(Reading):
    """One reader's place in a run's log.

    Attributes:
        number: the number of the last event that was handed out; -1 if a snapshot comes first.
    """

    def __init__(self, relay: MemoryRelay, run: MemoryRun, after: str | None, gap: Gap, timeout: float | None) -> None:
        super().__init__()
        self._relay = relay
        self._run = run
        self._gap = gap
        timeout = run.timeout if timeout is None else timeout
        self._timeout = math.inf if timeout is None else timeout
        self._first_wait = run.first_wait(self._timeout)
        self._has_joined = False
        self._idle_at: int = -1  # the number at which it began to wait
        self.number = 0
        if after is not None:
            place = place_of(after, run.id)
            with run.lock:
                self.number = place.number if run.log.has(place) else -1
                if self.number < 0 and gap == "error":
                    raise self._missing()

    def rewind(self, after: str) -> bool:
        """Read from the run's beginning."""
        place = place_of(after, self._run.id)
        with self._run.lock:
            has = self._run.log.has(place)
        self.number = 0 if has else -1
        return has

    def next_batch(self) -> Awaitable[Any]:
        """As `apull`. Token by token, where the next entry is still to come and then comes alone, it costs less."""
        return self

    def __await__(self) -> Generator[Any, Any, Any]:
        """See `next_batch`."""
        run, number, waker = self._run, self.number, self._waker
        log = run.log
        if (
            number != log.newest
            or number == self._idle_at
            or waker is None  # it has not joined yet
            or waker.__class__ is ThreadWaker
            or self.attend is not None
            or self._is_over
        ):
            return (yield from self.apull().__await__())
        run.waiting[waker] = None  # before it looks again: what comes after that wakes it
        if number != log.newest or not run.has_producer:
            return (yield from self.apull().__await__())
        self._idle_at, self._has_waited = number, True
        yield from waker.wait(self._first_wait).__await__()  # type: ignore[union-attr]  # a task's
        newest, entry, delta = log.newest_entry
        if newest != number + 1 or self._is_over or run.watchers:
            return (yield from self._apull_now(None).__await__())
        self.number = newest
        run.was_read = True
        if delta is not None and self.convert_delta is not None:
            return self.convert_delta(entry[0], delta)
        return [entry] if self.convert is None else self.convert([entry])

    def take(self, waker: ThreadWaker | TaskWaker) -> list[Entry] | float | None:
        """The next entries, or for how many seconds to wait for them."""
        run = self._run
        newest, entry, _ = run.log.newest_entry
        if newest != self.number + 1 or not self._has_joined:
            return self._look(waker)
        self.number = newest
        run.was_read = True
        if run.watchers:
            run.report_progress()
        return [entry]

    def _look(self, waker: ThreadWaker | TaskWaker) -> list[Entry] | float | None:
        """As `take`, where the newest entry is not the next one."""
        run, number, log = self._run, self.number, self._run.log
        if number == log.newest and number != self._idle_at and self._has_joined:
            run.waiting[waker] = None  # before it looks again: what comes after that wakes it
            if number == log.newest and run.has_producer:
                self._idle_at = number
                return self._first_wait
        with run.lock:
            if not self._has_joined:
                self._has_joined = True
                run.join(self)
            if number < log.newest:
                if number < log.dropped:
                    return [self._snapshot()]
                entries = log.since(number)
                self.number = number + len(entries)
                run.was_read = True
                if run.watchers:
                    run.report_progress()
                return entries
            if run.status in FINAL:
                return None
            run.waiting[waker] = None
        return self._wait()

    def _snapshot(self) -> Entry:
        log = self._run.log
        if self._gap == "error":
            raise self._missing()
        self.number = log.dropped
        return log.base or Entry(log.cursor(0), _EMPTY, snapshot=True)

    def _wait(self) -> float:
        """How many seconds to wait. A run whose producer died is ended here.

        Raises:
            SourceError: the run was deleted.
            SourceTimeoutError: the producer was silent for too long.
        """
        run = self._run
        if self._relay.is_closed:
            raise UsageError(f"run {run.id!r} cannot be read: its relay is closed")
        if run.is_gone:
            error = SourceError(f"run {run.id!r} was deleted while it was open")
            error.status_code = 404
            raise error
        status = run.status_now
        if status == "lost" or (status == "paused" and run.cancel_reason is not None):
            end_abandoned_run(self._relay, run.id, "it was dropped without closing it")
            return 0.0
        return run.next_wait(self._timeout) if status == run.status else 60.0

    def _missing(self) -> SourceError:
        run = self._run
        at = run.log.cursor(run.log.dropped)
        error = SourceError(
            f"run {run.id!r}: the events after this reader's cursor are not in the log any more, which holds {run.limit} "
            f"events; read after {at!r}, or with `gap='snapshot'`"
        )
        error.status_code = 410
        return error

    def skip(self, question_id: str) -> None:
        """This reader goes on without an answer to a question."""
        self._run.skip(self, question_id)

    def close(self) -> None:
        """Stop reading, without taking a lock."""
        super().close()
        if self._waker is not None:
            self._run.waiting.pop(self._waker, None)
        self._run.leave(id(self))
