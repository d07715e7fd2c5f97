"""The relay in this process: for threads and for tasks of any event loop, all at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, get_args

from ...arguments import check_count, check_seconds
from ...errors import SourceError, UsageError
from ..ending import end_abandoned_run
from ..interface import FINAL, Control, Gap, Relay, RunRecord
from .reading import MemoryReading
from .run import MemoryRun, Overflow
from .writer import MemoryWriter

__all__ = ["MemoryRelay", "Overflow"]

_PURGE_INTERVAL = 1.0  # seconds between two searches for expired runs


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
        ttl: seconds for which a run is kept after it has ended.
        ttl_open: seconds of silence after which a run that has not ended is deleted.
        ttl_paused: seconds for which a run is kept that has no producer and waits for answers.

    Raises:
        UsageError: an argument is wrong.
    """

    waits = False

    def __init__(
        self,
        *,
        limit: int = 65_536,
        overflow: Overflow = "drop_oldest",
        timeout: float | None = 600.0,
        ttl: float = 600.0,
        ttl_open: float = 3600.0,
        ttl_paused: float = 7 * 86_400.0,
    ) -> None:
        check_count("limit", limit)
        check_seconds("timeout", timeout, or_none=True)
        for name, seconds in {"ttl": ttl, "ttl_open": ttl_open, "ttl_paused": ttl_paused}.items():
            check_seconds(name, seconds)
        if overflow not in get_args(Overflow):
            raise UsageError(f"`overflow` is one of {', '.join(map(repr, get_args(Overflow)))}, not {overflow!r}")
        self.limit = self._limit = limit
        self._overflow: Overflow = overflow
        self._timeout = timeout
        self._ttl = ttl
        self._ttl_open = ttl_open
        self._ttl_paused = ttl_paused
        self._runs: dict[str, MemoryRun] = {}  # read and written in single steps, so without a lock
        self._next_purge = 0.0  # on the monotonic clock

    # -- for producers

    def open(
        self, run_id: str, info: Mapping[str, Any] | None = None, *, control: Callable[[Control], None]
    ) -> MemoryWriter:
        """Begin a run. Raises `UsageError` if there is one already."""
        if self._find(run_id) is None:
            run = MemoryRun(run_id, info or {}, self._limit, self._overflow, self._timeout)
            writer = self._writer(run, control)
            writer.claim()
            if self._runs.setdefault(run_id, run) is run:
                return writer
        raise UsageError(f"run {run_id!r} is in this relay already: use another id")

    def take_over(self, run_id: str, *, control: Callable[[Control], None]) -> MemoryWriter | None:
        """Become the producer of a run that has none."""
        run = self._find(run_id)
        if run is None or not (writer := self._writer(run, control)).claim():
            return None
        writer.receive_missed()
        return writer

    def _writer(self, run: MemoryRun, control: Callable[[Control], None]) -> MemoryWriter:
        return MemoryWriter(run, control, bounded=self._overflow != "drop_oldest")

    # -- for everyone

    def get(self, run_id: str) -> RunRecord | None:
        """What is known of a run."""
        run = self._find(run_id)
        return None if run is None else run.record()

    def question(self, run_id: str, question_id: str) -> dict[str, Any] | None:
        """One of a run's questions."""
        run = self._find(run_id)
        question = None if run is None else run.questions.get(question_id)
        return None if question is None else question.record

    def list(self, *, conversation: str | None = None, limit: int = 50, before: str | None = None) -> Sequence[str]:
        """The ids of runs, the newest first."""
        self._purge()
        runs = [run for run in [*self._runs.values()] if conversation is None or run.conversation == conversation]
        newest_first = iter(reversed([run.id for run in runs]))
        if before is not None:
            for one in newest_first:
                if one == before:
                    break
        return [*islice(newest_first, limit)]

    def answer(self, run_id: str, question_id: str, answer: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
        """Answer a question. The first answer counts."""
        return self._existing(run_id).answer(question_id, answer)

    def cancel(self, run_id: str, reason: str | None = None) -> bool:
        """Stop a run."""
        run = self._find(run_id)
        if run is None or not run.cancel(reason or ""):
            return False
        if run.status_now in ("paused", "lost"):
            end_abandoned_run(self, run_id)
        return True

    def delete(self, run_id: str) -> None:
        """Remove a run."""
        if (run := self._runs.pop(run_id, None)) is not None:
            run.delete()

    def read(
        self, run_id: str, after: str | None = None, *, gap: Gap = "snapshot", timeout: float | None = None
    ) -> MemoryReading:
        """Read a run from its beginning, or after a cursor."""
        return MemoryReading(self, self._existing(run_id), after, gap, timeout)

    # -- its runs

    def _find(self, run_id: str) -> MemoryRun | None:
        if time.monotonic() >= self._next_purge:
            self._purge()
        return self._runs.get(run_id)

    def _existing(self, run_id: str) -> MemoryRun:
        if (run := self._find(run_id)) is not None:
            return run
        error = SourceError(f"there is no run {run_id!r} in this relay: it never was, or it has expired")
        error.status_code = 404
        raise error

    def _purge(self) -> None:
        """Delete what has expired."""
        now = time.monotonic()
        self._next_purge = now + min(_PURGE_INTERVAL, self._ttl, self._ttl_open, self._ttl_paused)
        for run in [*self._runs.values()]:
            if now - run.last_active >= self._lifetime(run):
                self.delete(run.id)

    def _lifetime(self, run: MemoryRun) -> float:
        if run.status in FINAL:
            return self._ttl
        return self._ttl_paused if run.status_now == "paused" else self._ttl_open
