"""The relay in this process: for threads and for tasks of any event loop, all at once."""

from __future__ import annotations

import time
from typing import get_args

from ..errors import UsageError
from .interface import Relay
from .memory_run import MemoryRun, Overflow

__all__ = ["MemoryRelay", "Overflow"]

_PURGE_INTERVAL = 1.0  # seconds between two searches for expired runs


class MemoryRelay(Relay):
    """The default relay, in this process. What it does beyond `limit` is named by `overflow`:

        drop_oldest   The writer never waits; the oldest events are dropped. A reader that was slower than that fails
                      with a `SourceError`; one that comes later begins with a snapshot (the run, its step, each open
                      message as created plus one delta) and a warning.
        block         The writer waits while a reader is `limit` events behind; before the first reader came, it waits
                      for that one. What every reader has received may be dropped.
        error         As `block`, but the writer gets a `UsageError` in place of waiting.

    Args:
        limit: how many entries the log of a run holds. Up to 512 consecutive deltas of a message that every
            reader has received count as one entry.
        overflow: `drop_oldest`, `block` or `error`.
        timeout: seconds of silence after which readers fail with a `SourceTimeoutError`; None for no limit.
        ttl: seconds for which a run is kept after it was closed.
        ttl_open: seconds of silence after which an open run is deleted.

    Raises:
        UsageError: the limit is less than 1, or there is no such policy.
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
        self._runs: dict[str, MemoryRun] = {}  # read and written in single steps, so without a lock
        self._next_purge = 0.0  # on the monotonic clock

    def open(self, run_id: str) -> MemoryRun:
        """Begin the log of a run. Raises `UsageError` if there is one already."""
        if self.find(run_id) is None:
            run = MemoryRun(run_id, self._limit, self._overflow, self._timeout)
            if self._runs.setdefault(run_id, run) is run:
                return run
        raise UsageError(f"run {run_id!r} is in this relay already")

    def find(self, run_id: str) -> MemoryRun | None:
        """The log of a run, None where there is no such run (any more)."""
        if time.monotonic() >= self._next_purge:
            self._purge()
        return self._runs.get(run_id)

    def delete(self, run_id: str) -> None:
        """Remove a run. Readers that have begun go on; for them, an open one fails."""
        if (run := self._runs.pop(run_id, None)) is not None:
            run.abandon("it was deleted while it was open")

    def _purge(self) -> None:
        """Delete what has expired."""
        now = time.monotonic()
        self._next_purge = now + min(_PURGE_INTERVAL, self._ttl, self._ttl_open)
        for run in [*self._runs.values()]:
            if now - run.last_sign >= (self._ttl if run.closed else self._ttl_open):
                self.delete(run.id)
