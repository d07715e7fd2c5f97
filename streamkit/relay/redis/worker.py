"""A thread that does one job after another."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

__all__ = ["Worker"]

_log = logging.getLogger("streamkit.relay")


class Worker:
    """Calls functions in a thread of its own, which starts with the first one. `put` takes no lock, so that the garbage
    collector may call it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._is_stopped = False

    def put(self, job: Callable[[], object]) -> None:
        """Call this soon."""
        self._jobs.put(job)
        if self._thread is None and self._starting.acquire(blocking=False):
            self._thread = threading.Thread(target=self._work, name=f"streamkit redis {self._name}", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None and not self._is_stopped:
            try:
                job()
            except Exception:
                if not self._is_stopped:
                    _log.exception("a job of the relay failed")

    def finish(self) -> None:
        """End the thread after all that it was to do, in a few seconds."""
        self._jobs.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5)

    def stop(self) -> None:
        """End the thread after what it does at present."""
        self._is_stopped = True
        self._jobs.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5)
