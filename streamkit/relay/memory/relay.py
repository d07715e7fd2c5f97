"""The relay in this process: for threads and for tasks of any event loop, all at once."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, islice
from typing import Any, TypeAlias, get_args

from ...arguments import check_kind, check_page
from ...errors import UsageError
from ..interface import Relay, check_options, check_producer
from ..reading import Gap, check_reading, run_not_found
from ..replay import end_abandoned_run
from ..run_record import FINAL, Control, RunRecord
from .ends import MemoryReading, MemoryWriter
from .run import MemoryRun, Overflow

__all__ = ["MemoryRelay", "Overflow"]

_PURGE_INTERVAL = 1.0  # seconds between two searches for expired runs
_MOST_ENDED = 10_000  # runs that have ended, beyond which the oldest are deleted


class _RunList:
    """Runs in the order in which they were opened."""

    def __init__(self) -> None:
        self._runs: list[MemoryRun] = []

    def add(self, run: MemoryRun) -> None:
        self._runs.append(run)

    def remove(self, run: MemoryRun) -> bool:
        """Remove a run, if it is there. Returns whether others are left."""
        index = self._index_of(run)
        if index < len(self._runs) and self._runs[index] is run:
            del self._runs[index]
        return bool(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def newest_first(self, before: MemoryRun | None) -> Iterator[MemoryRun]:
        end = len(self._runs) if before is None else self._index_of(before)
        return (self._runs[index] for index in range(end - 1, -1, -1))

    def _index_of(self, run: MemoryRun) -> int:
        return bisect_left(self._runs, run.number, key=lambda one: one.number)


_ListName: TypeAlias = tuple[str | None, str | None, bool]  # conversation, owner, whether it has open runs only


class MemoryRelay(Relay):
    """The default relay, in this process. `overflow` says what happens when a run has more than `limit` events:

        drop_oldest   The writer never waits; the oldest events are replaced by a snapshot. A reader that is too slow, or
                      comes later, receives the snapshot in their place, and a warning if messages are missing.
        block         The writer waits while a reader is `limit` events behind, or while no reader has come yet. Only what
                      every reader has received is dropped.
        error         As `block`, but the writer gets a `UsageError` in place of waiting.

    Args:
        limit: how many events the log of a run holds.
        overflow: `drop_oldest`, `block` or `error`.
        timeout: seconds of silence after which readers fail with a `SourceTimeoutError`; None for no limit.
        ttl_running: seconds until a run expires after its producer's last heartbeat.
        ttl_paused: seconds until a run expires that has no producer and waits for answers.
        ttl_ended: seconds until a run expires after it has ended.

    Raises:
        UsageError: an argument is wrong.

    Attributes:
        is_closed: whether it was closed.
    """

    waits = False

    def __init__(
        self,
        *,
        limit: int = 65_536,
        overflow: Overflow = "drop_oldest",
        timeout: float | None = 600.0,
        ttl_running: float = 3600.0,
        ttl_paused: float = 7 * 86_400.0,
        ttl_ended: float = 600.0,
    ) -> None:
        check_options(limit, timeout, ttl_running=ttl_running, ttl_paused=ttl_paused, ttl_ended=ttl_ended)
        if overflow not in get_args(Overflow):
            raise UsageError(f"`overflow` is one of {', '.join(map(repr, get_args(Overflow)))}, not {overflow!r}")
        self.limit = self._limit = limit
        self._overflow: Overflow = overflow
        self._timeout = timeout
        self._ttl_running = ttl_running
        self._ttl_ended = ttl_ended
        self._ttl_paused = ttl_paused
        self._runs: dict[str, MemoryRun] = {}  # read and written in single steps, so without a lock
        self._next_purge = 0.0  # on the monotonic clock
        self._lists: dict[_ListName, _RunList] = {}
        self._numbers = count(1)
        self._listing = threading.RLock()  # guards `_lists`
        self.is_closed = False

    # -- for producers

    def open(
        self, run_id: str, info: Mapping[str, Any] | None = None, *, control: Callable[[Control], None]
    ) -> MemoryWriter:
        """Begin a run. Raises `UsageError` if there is one already."""
        check_producer(run_id, info, control)
        self._check_open(run_id, "written")
        if self._find(run_id) is None:
            run = MemoryRun(run_id, info or {}, self._limit, self._overflow, self._timeout)
            writer = self._writer(run, control)
            writer.claim()
            if self._runs.setdefault(run_id, run) is run:
                self._enlist(run)
                return writer
        raise UsageError(f"run {run_id!r} is in this relay already: use another id")

    def take_over(self, run_id: str, *, control: Callable[[Control], None]) -> MemoryWriter | None:
        """Become the producer of a run that has none."""
        check_producer(run_id, None, control)
        self._check_open(run_id, "written")
        run = self._find(run_id)
        if run is None or not (writer := self._writer(run, control)).claim():
            return None
        writer.receive_missed()
        return writer

    def _writer(self, run: MemoryRun, control: Callable[[Control], None]) -> MemoryWriter:
        ended = partial(self._unlist, run, open_only=True)
        return MemoryWriter(run, control, ended, bounded=self._overflow != "drop_oldest")

    # -- for everyone

    def get(self, run_id: str) -> RunRecord | None:
        """Return the record of a run; None if there is no such run."""
        run = self._find(run_id)
        return None if run is None else run.record()

    def question(self, run_id: str, question_id: str) -> dict[str, Any] | None:
        """Return one of a run's questions; None if there is none."""
        run = self._find(run_id)
        question = None if run is None else run.questions.get(question_id)
        return None if question is None else question.record

    def list(
        self,
        *,
        conversation: str | None = None,
        owner: str | None = None,
        open_only: bool = False,
        limit: int = 50,
        before: str | None = None,
    ) -> Sequence[RunRecord]:
        """Return the records of runs, the newest first."""
        check_page(limit, conversation=conversation, owner=owner, before=before)
        self._purge_if_due()
        last = None if before is None else self._runs.get(before)
        if before is not None and (last is None or (conversation, owner) not in last.lists):
            return []
        with self._listing:
            runs = self._lists.get((conversation, owner, open_only))
            newest = iter(()) if runs is None else runs.newest_first(last)
            page = [*islice((run for run in newest if self._is_listed(run, open_only=open_only)), limit)]
        return [run.record() for run in page]

    def _is_listed(self, run: MemoryRun, *, open_only: bool) -> bool:
        return not self._has_expired(run, time.monotonic()) and not (open_only and run.status_now in FINAL)

    def count_open(self, owner: str) -> int:
        """Return how many runs of an owner have not ended."""
        with self._listing:
            runs = self._lists.get((None, owner, True))
            return 0 if runs is None else len(runs)

    def answer(self, run_id: str, question_id: str, answer: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
        """Answer a question. The first answer counts."""
        return self._existing(run_id).answer(question_id, answer)

    def cancel(self, run_id: str, reason: str | None = None) -> bool:
        """Stop a run."""
        check_kind("reason", reason, str)
        run = self._find(run_id)
        if run is None or not run.cancel(reason or ""):
            return False
        if run.status_now in ("paused", "lost"):
            end_abandoned_run(self, run_id)
        return True

    def delete(self, run_id: str) -> None:
        """Remove a run."""
        if (run := self._runs.pop(run_id, None)) is not None:
            self._unlist(run)
            run.delete()

    def read(
        self, run_id: str, after: str | None = None, *, gap: Gap = "snapshot", timeout: float | None = None
    ) -> MemoryReading:
        """Read a run from its beginning, or after a cursor."""
        check_reading(gap, timeout)
        end_abandoned = partial(end_abandoned_run, self, run_id, "it was dropped without closing it")
        return MemoryReading(self._existing(run_id), after, gap, timeout, end_abandoned)

    def close(self) -> None:
        """Make the readers fail. It cannot be used afterwards."""
        self.is_closed = True
        for run in [*self._runs.values()]:
            run.close()

    # -- its runs

    def _check_open(self, run_id: str, done: str) -> None:
        if self.is_closed:
            raise UsageError(f"run {run_id!r} cannot be {done}: its relay is closed")

    def _find(self, run_id: str) -> MemoryRun | None:
        self._purge_if_due()
        return self._runs.get(run_id)

    def _existing(self, run_id: str) -> MemoryRun:
        if (run := self._find(run_id)) is not None:
            return run
        raise run_not_found(run_id)

    def _enlist(self, run: MemoryRun) -> None:
        with self._listing:
            run.number = next(self._numbers)
            for conversation, owner in run.lists:
                for open_only in (False, True):
                    self._lists.setdefault((conversation, owner, open_only), _RunList()).add(run)

    def _unlist(self, run: MemoryRun, *, open_only: bool = False) -> None:
        """Remove a run from its lists; with `open_only`, from those of open runs."""
        with self._listing:
            for conversation, owner in run.lists:
                for name in ((conversation, owner, True), (conversation, owner, False))[: 1 if open_only else 2]:
                    if (runs := self._lists.get(name)) is not None and not runs.remove(run):
                        del self._lists[name]

    def _purge_if_due(self) -> None:
        """Delete what has expired, from time to time."""
        now = time.monotonic()
        if now < self._next_purge:
            return
        self._next_purge = now + min(_PURGE_INTERVAL, self._ttl_running, self._ttl_paused, self._ttl_ended)
        for run in [*self._runs.values()]:
            if self._has_expired(run, now):
                self.delete(run.id)
        ended = [run.id for run in [*self._runs.values()] if run.status in FINAL]
        for run_id in ended[: max(0, len(ended) - _MOST_ENDED)]:
            self.delete(run_id)

    def _has_expired(self, run: MemoryRun, now: float) -> bool:
        return now - run.last_active >= self._lifetime(run)

    def _lifetime(self, run: MemoryRun) -> float:
        if run.status in FINAL:
            return self._ttl_ended
        return self._ttl_paused if run.status_now == "paused" else self._ttl_running
