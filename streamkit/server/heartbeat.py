"""A thread for the runs of this process. It sends their heartbeats, pauses those that wait for too long, and sees to it that
runs of other processes go on that were answered here."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from ..relay import Relay
from ..stores import Store
from .client_conversations import ClientConversations
from .publisher import Publisher
from .records import Context

__all__ = ["Heartbeat", "ProcessRuns", "WatchedExecution"]

log = logging.getLogger("streamkit.server")

_INTERVAL = 5.0  # seconds between two heartbeats
_FIRST_LOOK, _LONGEST_PAUSE = 1.0, 15.0  # seconds between two looks at a run of another process


class _Watched:
    """A run of another process that was answered here.

    Args:
        go_on: takes the run over, in an event loop of this process.
    """

    def __init__(self, go_on: Callable[[], object]) -> None:
        self.go_on = go_on
        self._since = time.monotonic()
        self.next_look = self._since + _FIRST_LOOK

    def look_later(self, now: float) -> None:
        """Look again after half of the time for which it has been watched."""
        self.next_look = now + max(_FIRST_LOOK, min((now - self._since) / 2, _LONGEST_PAUSE))


class WatchedExecution(Protocol):
    """An execution of this process, as the heartbeat uses it."""

    publisher: Publisher | None
    waits_since: float | None
    pause_after: float | None

    @property
    def run_id(self) -> str:
        """The run's id."""
        ...

    def pause(self) -> None:
        """Leave the run to the process that takes it over."""
        ...


class WatchedRuns(Protocol):
    """The runs of this process, as the heartbeat uses them."""

    @property
    def active(self) -> Mapping[str, WatchedExecution]:
        """The executions that have not ended, by their runs' ids."""
        ...

    @property
    def relay(self) -> Relay:
        """The relay that has the runs."""
        ...


class Heartbeat:
    """The thread, which lives as long as there is something to do."""

    def __init__(self, runs: WatchedRuns) -> None:
        self._lock = threading.Lock()
        self._changed = changed = threading.Event()
        self._runs = weakref.ref(runs, lambda _: changed.set())
        self._watched: dict[str, _Watched] = {}
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Look at the runs again; something about them has changed."""
        with self._lock:
            self._changed.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="streamkit-server-heartbeat", daemon=True)
                self._thread.start()

    def rest(self) -> None:
        """No run is left: the thread ends now, and not when it next looks."""
        self._changed.set()

    def watch(self, run_id: str, go_on: Callable[[], object]) -> None:
        """Call `go_on` if the producer of a run turns out to have died, or has left the run paused. Until then the run is looked
        at from time to time, at most every second and at least every 15 seconds, as long as it is open."""
        self._watched.setdefault(run_id, _Watched(go_on))
        self.wake()

    def _work(self) -> None:
        wait = 0.0
        while True:
            self._changed.wait(wait)
            self._changed.clear()
            runs = self._runs()
            with self._lock:
                if runs is None or not (runs.active or self._watched):
                    self._thread = None
                    return
            now = time.monotonic()
            wait = min(_INTERVAL, self._look_at_active(runs, now), self._look_at_watched(runs, now))
            del runs

    # Each of these returns the seconds until the next look.

    def _look_at_active(self, runs: WatchedRuns, now: float) -> float:
        """Send heartbeats, and pause runs that have waited for too long."""
        wait = _INTERVAL
        for execution in [*runs.active.values()]:
            try:
                wait = min(wait, self._look_at(execution, now))
            except Exception as error:  # of the relay: it is tried again, and other runs must not be affected
                log.error("run %s: no heartbeat: %s", execution.run_id, error, exc_info=error)
        return wait

    def _look_at(self, execution: WatchedExecution, now: float) -> float:
        if execution.publisher is not None:
            execution.publisher.log.heartbeat()
        since, limit = execution.waits_since, execution.pause_after
        if since is None or limit is None:
            return _INTERVAL
        if now < since + limit:
            return since + limit - now
        execution.pause()
        return _INTERVAL

    def _look_at_watched(self, runs: WatchedRuns, now: float) -> float:
        """Take over runs whose producer is gone."""
        for run_id, watched in [*self._watched.items()]:
            if now < watched.next_look:
                continue
            watched.look_later(now)
            try:
                if self._is_over(runs, run_id, watched):
                    del self._watched[run_id]
            except Exception as error:  # of the relay: as above
                log.error("run %s cannot be watched: %s", run_id, error, exc_info=error)
        return min((watched.next_look for watched in self._watched.values()), default=now + _INTERVAL) - now

    def _is_over(self, runs: WatchedRuns, run_id: str, watched: _Watched) -> bool:
        """Whether a run needs to be watched no more: it has ended, or is this process's own."""
        record = runs.relay.get(run_id)
        if record is None or record.has_ended or run_id in runs.active:
            return True
        if record.status == "paused":
            watched.go_on()
        return False


class ProcessRuns(Protocol):
    """The runs of this process, as one of its executions uses them."""

    factory: Callable[[Context], Any]
    relay: Relay
    store: Store
    client_conversations: ClientConversations
    heartbeat: Heartbeat

    def pause_of(self, agent: Any) -> float | None:
        """Return for how many seconds this agent waits before its run is paused; None for no limit."""
        ...

    def tools_of(self, context: Context) -> Iterable[Mapping[str, Any]]:
        """Return the tools that the client itself runs."""
        ...

    def take_over_soon(self, run_id: str, token: Any) -> None:
        """Take a paused run over, from any thread."""
        ...

    def remove(self, execution: WatchedExecution) -> None:
        """Forget an execution that has ended or is paused."""
        ...
