"""Sends what the producers of a process have written, in one thread and one pipeline.

An event is sent at once if nothing is on its way, else with all that is written until the reply is there. So a batch is as
large as the round trip makes it, and no event waits for a clock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from ...errors import SourceError, StreamkitError
from ...redis_link import FIRST_PAUSE, LONGEST_PAUSE, Away
from .work import Listing, Work

if TYPE_CHECKING:
    from .hub import Hub
    from .outbox import Outbox

__all__ = ["Flusher"]

_log = logging.getLogger("streamkit.relay")

_AT_ONCE = 256  # commands in one pipeline
_EACH = 16  # of one producer
_TICK = 0.5
_LOOK = 5.0  # seconds between two looks at which readers may answer a producer's questions
_LAST_FLUSH = 5.0  # seconds for which the end of the relay waits for what was written


class Flusher:
    """One thread for all producers of a relay. `put` takes no lock."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._due: SimpleQueue[Outbox | Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._is_stopped = False

    def put(self, work: Outbox | Callable[[], object]) -> None:
        """A producer has something to send; or a function is to be called in the thread."""
        self._due.put(work)
        self.start()

    def start(self) -> None:
        """Start the thread, which sends heartbeats from now on, if it has not started yet."""
        if self._thread is None and self._starting.acquire(blocking=False):
            self._thread = threading.Thread(target=self._work, name="streamkit redis flusher", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Send what was written, and end the thread."""
        end = time.monotonic() + _LAST_FLUSH
        outboxes = self._hub.outboxes()
        for outbox in outboxes:
            outbox.give_up()
            try:
                outbox.flush(max(0.0, end - time.monotonic()))
            except StreamkitError:
                _log.warning("run %r: what its producer wrote last was not stored", outbox.run_id)
        self._is_stopped = True
        for outbox in (*outboxes, *self._hub.outboxes()):
            outbox.fence("closed")
        self._due.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5)

    # -- its thread

    def _work(self) -> None:
        due: dict[Outbox, None] = {}
        pause = FIRST_PAUSE
        next_beat = time.monotonic() + _TICK
        while not self._is_stopped:
            self._gather(due, 0.0 if due else max(0.0, next_beat - time.monotonic()))
            due, is_away = self._send([*due])
            if is_away:
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                pause = FIRST_PAUSE
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + _TICK
                self._beat()

    def _gather(self, due: dict[Outbox, None], seconds: float) -> None:
        """Add the producers that have written something; wait for the first one if `seconds` is not 0."""
        try:
            one = self._due.get(timeout=seconds) if seconds else self._due.get_nowait()
            while True:
                if callable(one):
                    one()
                elif one is not None:
                    due[one] = None
                one = self._due.get_nowait()
        except Empty:
            return

    def _beat(self) -> None:
        """Renew the leases of producers that have nothing to write, and the entries of all in the lists of runs, and look which
        readers may answer those that wait."""
        now, hub = time.monotonic(), self._hub
        for outbox in hub.outboxes():
            if outbox.has_left or outbox.is_abandoned:
                continue
            if outbox.is_empty and now - outbox.contact >= hub.lease / 3:
                outbox.put()
            if now - outbox.listed >= outbox.lifetimes.renewal:
                outbox.renew()
            if outbox.inbox.has_questions and now - outbox.inbox.looked >= _LOOK:
                hub.controls.put(outbox.inbox.look)

    def _checked(self, work: Work, reply: Any) -> Any:
        """Return a reply, if it is no error. A run that cannot be entered in a list is written and read nevertheless."""
        try:
            return self._hub.link.check(reply)
        except SourceError as error:
            if not isinstance(work, Listing):
                raise
            _log.warning("a run is missing in a list: %s", error)
            return b""

    def _send(self, due: Sequence[Outbox]) -> tuple[dict[Outbox, None], bool]:
        """Send what they have; returns those that have more, and whether Redis was away for one of them."""
        more: dict[Outbox, None] = {}
        is_away = False
        place = 0
        while place < len(due):
            sent: list[tuple[Outbox, Sequence[Any]]] = []
            commands: list[Sequence[Any]] = []
            while place < len(due) and len(commands) < _AT_ONCE:
                outbox = due[place]
                work = outbox.take(_EACH)
                sent.append((outbox, work))
                commands += [one.command(outbox) for one in work]
                place += 1
            replies = self._hub.link.send(commands) if commands else []
            done = 0
            for outbox, work in sent:
                mine = replies[done : done + len(work)]
                done += len(work)
                try:
                    if outbox.replied(work, [*map(self._checked, work, mine)]):
                        more[outbox] = None
                except Away:
                    outbox.failed(time.monotonic())
                    is_away = True
                    if outbox.fenced is None:
                        more[outbox] = None
                except Exception as error:  # whatever it is, the other runs go on
                    refused = "Redis refuses" if isinstance(error, SourceError) else "it is not known what became of"
                    _log.exception("run %r: %s what its producer wrote", outbox.run_id, refused)
                    outbox.fence("unreachable")
        return more, is_away
