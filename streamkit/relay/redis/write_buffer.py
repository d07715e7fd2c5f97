"""The buffer of events that a producer has written and Redis has not stored yet, and of the last seconds' events, which
a crash of Redis may lose."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any, Protocol

from ...errors import SourceError
from ...redis_link import Link
from ..run_record import FINAL, Control, Fenced, Status, fenced_error
from .commands import (
    BATCH_BYTES,
    BATCH_EVENTS,
    Append,
    Finish,
    Lifetimes,
    Listing,
    ProducerCommands,
    Settle,
    StoreSnapshot,
    Write,
)
from .control_channel import ControlChannel
from .record import Keys, ListKeys

__all__ = ["Backend", "WriteBuffer"]

_REPEATABLE = 5.0  # seconds for which batches that were stored stay here, to be sent again
_MOST_BYTES = 8 << 20  # of events that wait while Redis cannot be reached
_LONGEST = 60.0  # seconds for which they wait


class Backend(Protocol):
    """The backend of a server, as the buffers of its producers use it."""

    @property
    def link(self) -> Link:
        """The connections."""
        ...

    def keys(self, run_id: str) -> Keys:
        """Return the keys of a run."""
        ...

    def send(self, buffer: WriteBuffer) -> None:
        """Send a buffer's events."""
        ...

    def send_later(self, write: Callable[[], object]) -> None:
        """Call a function that puts something into a buffer. It takes no lock."""
        ...

    def notify(self, call: Callable[[], object]) -> None:
        """Call a function that passes something on to a producer, in a thread of its own."""
        ...

    def store_answer(self, call: Callable[[], object]) -> None:
        """Call a function that stores an answer, in a thread where it may wait."""
        ...

    def remove(self, buffer: WriteBuffer) -> None:
        """Remove a producer that has left."""
        ...


class WriteBuffer(ProducerCommands):
    """Holds one producer's events until Redis has stored them. Any thread may call it; the sender alone takes from it.

    Attributes:
        fenced: why nothing can be written any more; None if it can.
        has_left: whether the producer ended the run, or paused it.
        is_abandoned: whether it is gone without a word.
        number: of the newest event that was written.
        wrote: the epoch of the newest event.
        contact: when Redis last stored something of it, on the monotonic clock.
        blocked_since: since when Redis has stored none of its events; None while it does, or there are none.
        controls: passes on messages to the producer.
        backend: the parts that all producers of a server share.
        created: when the run was opened.
        lists: the keys of the lists that have the run.
        listed: when its entries in them were renewed, on the monotonic clock.
    """

    def __init__(
        self, backend: Backend, run_id: str, owner: str, lifetimes: Lifetimes, control: Callable[[Control], None]
    ) -> None:
        super().__init__(run_id, backend.keys(run_id), owner, lifetimes)
        self.number = self.wrote = 0
        self.fenced: str | None = None
        self.has_left = self.is_abandoned = self.busy = False
        self.contact = time.monotonic()
        self.blocked_since: float | None = None
        self.controls = ControlChannel(
            self.keys, backend.link, control, lambda: self.is_held, partial(self.fence, "gone")
        )
        self.backend = backend
        self.created = 0.0
        self.lists: Sequence[ListKeys] = ()
        self.listed = self.contact
        self._control = control
        self._changed = threading.Condition()
        self._waiting: deque[Write] = deque()
        self._stored: deque[Append] = deque()
        self._size = 0
        self._is_due = False
        self._counter = 0  # of the newest event
        self._done = 0  # of the newest event that is stored
        self._news = ""

    # -- for the producer

    def check(self) -> None:
        """Raise `ProducerFenced` if nothing can be written any more."""
        reason = self.fenced or ("closed" if self.has_left else None)
        if reason is not None:
            raise fenced_error(self.run_id, reason)

    def append(self, events: Sequence[bytes]) -> int:
        """Number events, and have them sent. Returns the number before them."""
        with self._changed:
            if self.fenced is not None or self.has_left:
                self.check()
            first = number = self.number
            waiting = self._waiting
            batch = waiting[-1] if waiting else None
            if not isinstance(batch, Append) or batch.is_sealed:
                batch = None
            for data in events:
                if batch is None or len(batch.lines) >= BATCH_EVENTS or batch.size + len(data) > BATCH_BYTES:
                    batch = Append(number, self.busy)
                    waiting.append(batch)
                    self._counter += 1
                number += 1
                batch.lines.append(data)
                batch.size += len(data)
                batch.last = number
                self._size += len(data)
            if events:
                self.number = number
                self.wrote = self.epoch
            due, self._is_due = not self._is_due, True
        if due:
            self.backend.send(self)
        return first

    def ask(self, question_id: str, question: bytes, events: Sequence[bytes]) -> int:
        """As `append`, with a question. The last batch of the events has it."""
        with self._changed:
            self.check()
            first = number = self.number
            groups = [[*events[start : start + BATCH_EVENTS]] for start in range(0, len(events), BATCH_EVENTS)] or [[]]
            for lines in groups:
                batch = Append(number, self.busy)
                batch.lines = lines
                batch.size = sum(map(len, lines))
                number = batch.last = number + len(lines)
                self._put(batch)
                if number == first + len(events):
                    batch.question_id, batch.question, batch.is_sealed = question_id, question, True
            self.number = number
            if events:
                self.wrote = self.epoch
        self.backend.send(self)
        return first

    def put(self, work: StoreSnapshot | Finish | Settle | Listing | None = None) -> None:
        """Send work after the events that were written; None is a heartbeat."""
        with self._changed:
            if self.fenced is not None:
                return
            self._put(Append(self.number, self.busy) if work is None else work)
        self.backend.send(self)

    def _put(self, work: Write) -> None:
        self._waiting.append(work)
        self._counter += 1
        self._size += work.size

    def leave(self, status: Status, error: bytes, info: bytes = b"") -> bool:
        """End or pause the run. False if the producer has left it already."""
        with self._changed:
            if self.fenced is not None or self.has_left:
                return False
            self.has_left = True
            self._put(Finish(self.number, status, error, info))
        self.backend.send(self)
        return True

    def abandon(self) -> None:
        """Leave the run without ending it: the lease is not renewed, and another producer may take the run over."""
        with self._changed:
            if self.fenced is not None or self.has_left or self.is_abandoned:
                return
            self.is_abandoned = True
            self._put(Finish(self.number, "in_progress", b""))
        self.backend.send(self)

    def listings(self, *, is_open: bool) -> Sequence[Listing]:
        """Return the commands that enter the run in its lists."""
        return [Listing(keys, self.created, is_open=is_open) for keys in self.lists]

    def renew(self) -> None:
        """Renew the entries of the run in its lists."""
        self.listed = time.monotonic()
        for one in self.listings(is_open=True):
            self.put(one)

    def drop(self) -> None:
        """As `abandon`, but later: it takes no lock."""
        self.backend.send_later(self.abandon)

    def flush(self, timeout: float) -> None:
        """Wait until all that was written is stored.

        Raises:
            ProducerFenced: it cannot be.
            SourceError: it was not within so many seconds.
        """
        with self._changed:
            target = self._counter
            stored = self._changed.wait_for(lambda: self._done >= target or self.fenced is not None, timeout)
            reason = self.fenced
        if reason is not None:
            raise fenced_error(self.run_id, reason)
        if not stored:
            raise SourceError(f"run {self.run_id!r}: Redis did not store the events within {timeout:g} seconds")

    @property
    def is_held(self) -> bool:
        """Whether the run belongs to this producer, as far as this process has heard."""
        return not self.has_left and not self.is_abandoned and self.fenced is None

    @property
    def is_empty(self) -> bool:
        """Whether all that was written is stored."""
        return not self._waiting

    # -- for the sender

    def take(self, most: int) -> Sequence[Write]:
        """Return the commands to send next."""
        with self._changed:
            self._is_due = False
            work = [*islice(self._waiting, most)]
            for one in work:
                if isinstance(one, Append):
                    one.is_sealed = True
            return work

    def replied(self, work: Sequence[Write], replies: Sequence[Any]) -> bool:
        """Take in the replies of Redis. Returns whether there is more to send."""
        now = time.monotonic()
        news = self._news
        reason: str | None = None
        with self._changed:
            if self.fenced is not None:
                return False  # meanwhile, by another thread: nothing waits any more
            for one, reply in zip(work, replies, strict=True):
                if isinstance(one, (Settle, Listing)):
                    self._store(one, now)
                elif reply.startswith(b"ok"):
                    self._store(one, now)
                    news = reply[3:].decode()
                elif reply.startswith(b"at ") and isinstance(one, Append) and int(reply[3:]) > one.before:
                    self._store(one, now)  # it was stored, and perhaps more after it: the replies were lost
                elif reply.startswith(b"at "):
                    reason = self._go_back(int(reply[3:]))
                    break
                else:
                    reason = {b"fenced": "epoch"}.get(reply, reply.decode())
                    break
            while self._stored and now - self._stored[0].stored_at > _REPEATABLE:
                self._stored.popleft()
            more = bool(self._waiting)
            self._changed.notify_all()
        if reason is not None:
            self.fence(reason)
            return False
        self.contact, self.blocked_since = now, None
        if news != self._news:
            self._news = news
            self.backend.notify(self.controls.look)
        if (self.has_left or self.is_abandoned) and not more:
            self.backend.remove(self)
        return more

    def _store(self, work: Write, now: float) -> None:
        self._waiting.popleft()
        self._done += 1
        self._size -= work.size
        if isinstance(work, Append) and work.lines:
            work.stored_at = now
            self._stored.append(work)
        elif isinstance(work, Finish) and work.status in FINAL:  # now it is known that it has ended
            for listing in self.listings(is_open=False):
                self._put(listing)

    def _go_back(self, last: int) -> str | None:
        """Send the events after `last` again, which Redis has lost. Returns why that is not possible, else None."""
        lost: list[Append] = []
        while self._stored and self._stored[-1].last > last:
            lost.append(self._stored.pop())
        if not lost:
            return "gone"  # what was lost is no longer here; where a part of it is, Redis refuses that, and then none is left
        self._waiting.extendleft(lost)
        self._done -= len(lost)
        self._size += sum(batch.size for batch in lost)
        return None

    def failed(self, now: float) -> None:
        """Note that Redis cannot be reached; after too long, or with too much to hold, stop."""
        if not self._waiting:
            return
        self.blocked_since = self.blocked_since or now
        if self._size > _MOST_BYTES or now - self.blocked_since > _LONGEST:
            self.fence("unreachable")

    def fence(self, reason: str) -> None:
        """Refuse everything from here on, and report it to the producer."""
        with self._changed:
            if self.fenced is not None:
                return
            self.fenced = reason
            self._waiting.clear()
            self._stored.clear()
            self._size = 0
            self._changed.notify_all()
        self.backend.remove(self)
        if not self.has_left and not self.is_abandoned:
            self.backend.notify(partial(self._control, Fenced(reason)))
