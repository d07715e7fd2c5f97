"""The clock of the runs in this process: it sends their heartbeats, and pauses those that wait for too long."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .execution import Execution
    from .runs import Runs

__all__ = ["Clock"]

log = logging.getLogger("streamkit.server")

_HEARTBEAT = 5.0  # seconds


class Clock:
    """A thread that lives as long as there are runs."""

    def __init__(self, runs: Runs) -> None:
        self._lock = threading.Lock()
        self._changed = changed = threading.Event()
        self._runs = weakref.ref(runs, lambda _: changed.set())
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Look at the runs again; something about them has changed."""
        with self._lock:
            self._changed.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._tick, name="streamkit-server-clock", daemon=True)
                self._thread.start()

    def rest(self) -> None:
        """No run is left: the thread ends now, and not when it next looks."""
        self._changed.set()

    def _tick(self) -> None:
        wait = 0.0
        while True:
            self._changed.wait(wait)
            self._changed.clear()
            runs = self._runs()
            with self._lock:
                if runs is None or not runs.active:
                    self._thread = None
                    return
            wait = self._look(runs)
            del runs

    def _look(self, runs: Runs) -> float:
        """Send heartbeats, and pause runs that have waited for too long. Returns the seconds until the next look."""
        wait, now = _HEARTBEAT, time.monotonic()
        for execution in [*runs.active.values()]:
            try:
                wait = min(wait, self._look_at(execution, now))
            except Exception as error:  # of the relay: it is tried again, and other runs must not be affected
                log.error("run %s: no heartbeat: %s", execution.run_id, error, exc_info=error)
        return wait

    def _look_at(self, execution: Execution, now: float) -> float:
        if execution.publisher is not None:
            execution.publisher.log.heartbeat()
        since, limit = execution.waits_since, execution.pause_after
        if since is None or limit is None:
            return _HEARTBEAT
        if now < since + limit:
            return since + limit - now
        execution.pause()
        return _HEARTBEAT
