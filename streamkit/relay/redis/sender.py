"""Sends what the producers of a process write, in one thread and in pipelines. It also reports that they are alive.

An event is sent at once if nothing is on its way, else with all that is written until the reply is there. So a batch is as large as
the round trip makes it, and no event waits for a clock.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Protocol, TypeAlias

from ...errors import SourceError, StreamkitError
from ...redis_link import Away, Link
from .threads import PipelineThread
from .write_buffer import Command, Write, WriteBuffer

__all__ = ["Sender", "WriteJob"]

_log = logging.getLogger("streamkit.relay")

_AT_ONCE = 256  # commands in one pipeline
_EACH = 16  # of one producer
_LOOK = 5.0  # seconds between two looks at which readers may answer a producer's questions
_LAST_FLUSH = 5.0  # seconds that the end of the relay waits until all events are stored

WriteJob: TypeAlias = WriteBuffer | Callable[[], object]
"""A buffer, the events of which are to be sent; or a function to call, which puts something into one."""


class Producers(Protocol):
    """The producers of one server, as the sender uses them."""

    @property
    def lease(self) -> float:
        """The seconds without a heartbeat after which a producer counts as dead."""
        ...

    def buffers(self) -> Sequence[WriteBuffer]:
        """Return the buffers of the producers."""
        ...

    def call_later(self, call: Callable[[], object]) -> None:
        """Call a function that may wait, in another thread."""
        ...

    def try_again(self) -> None:
        """Try again what could not be stored."""
        ...


class Sender(PipelineThread[WriteJob]):
    """Sends what producers write, and reports that they are alive."""

    def __init__(self, backend: Producers, link: Link) -> None:
        super().__init__("sender")
        self._backend = backend
        self._link = link
        self._due: dict[WriteBuffer, None] = {}

    def stop(self) -> None:
        """Send all events, and end the thread."""
        end = time.monotonic() + _LAST_FLUSH
        buffers = self._backend.buffers()
        for buffer in buffers:
            buffer.abandon()
            try:
                buffer.flush(max(0.0, end - time.monotonic()))
            except StreamkitError:
                _log.warning("run %r: the last events of its producer were not stored", buffer.run_id)
        for buffer in (*buffers, *self._backend.buffers()):
            buffer.fence("closed")
        self.finish()

    # -- the thread

    def _take(self, job: WriteJob) -> None:
        if isinstance(job, WriteBuffer):
            self._due[job] = None
        else:
            job()

    def _has_work(self) -> bool:
        return bool(self._due)

    def _do(self) -> bool:
        due, self._due = deque(self._due), {}
        is_away = False
        while due:
            sent: list[tuple[WriteBuffer, Sequence[Write]]] = []
            commands: list[Sequence[Any]] = []
            while due and len(commands) < _AT_ONCE:
                buffer = due.popleft()
                work = buffer.take(_EACH)
                sent.append((buffer, work))
                commands += map(buffer.words_of, work)
            replies = iter(self._link.send(commands) if commands else [])
            for buffer, work in sent:
                is_away = self._replied(buffer, work, [*islice(replies, len(work))]) or is_away
        return is_away

    def _replied(self, buffer: WriteBuffer, work: Sequence[Write], replies: Sequence[Any]) -> bool:
        """Pass the replies of Redis on to a buffer. Returns whether it was away."""
        try:
            if buffer.replied(work, [*map(self._checked, work, replies)]):
                self._due[buffer] = None
        except Away:
            buffer.failed(time.monotonic())
            if buffer.fenced is None:
                self._due[buffer] = None
            return True
        except Exception as error:  # whatever it is, the other runs go on
            refused = "Redis refuses" if isinstance(error, SourceError) else "Redis may not have stored"
            _log.exception("run %r: %s events of its producer", buffer.run_id, refused)
            buffer.fence("unreachable")
        return False

    def _checked(self, work: Write, reply: Any) -> Any:
        """Return a reply, if it is not an error. A run that cannot be entered in a list is written and read nevertheless."""
        try:
            return self._link.check(reply)
        except SourceError as error:
            if not (isinstance(work, Command) and work.is_listing):
                raise
            _log.warning("a run is missing in a list: %s", error)
            return b""

    def _tick(self) -> bool:
        """Renew the leases of producers that have nothing to write, and the entries of all in the lists of runs; look which readers
        may answer those that wait; and try again what could not be stored."""
        now = time.monotonic()
        for buffer in self._backend.buffers():
            if buffer.has_left or buffer.is_abandoned:
                continue
            if buffer.is_empty and now - buffer.contact >= self._backend.lease / 3:
                buffer.put()
            if now - buffer.listed >= buffer.lifetimes.renewal:
                buffer.renew()
            if buffer.controls.has_questions and now - buffer.controls.looked >= _LOOK:
                self._backend.call_later(buffer.controls.look)
        self._backend.try_again()
        return False
