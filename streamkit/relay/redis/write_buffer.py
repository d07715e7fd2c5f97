"""The buffer of events that a producer has written and Redis has not stored yet, and of the last seconds' events, which
a crash of Redis may lose."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeAlias

from ...errors import SourceError
from ...redis_link import Link
from ..run_record import FINAL, Control, Fenced, Status, fenced_error
from .control_channel import ControlChannel
from .record import Keys, Lifetimes, ListKeys, listing
from .scripts import APPEND, END

__all__ = ["Append", "Command", "Write", "WriteBuffer"]

BATCH_EVENTS, BATCH_BYTES = 128, 1 << 16  # of one batch at most

_REPEATABLE = 5.0  # seconds for which batches that were stored stay here, to be sent again
_MOST_BYTES = 8 << 20  # of events that wait while Redis cannot be reached
_LONGEST = 60.0  # seconds for which they wait


class Append:
    """Stores events together, with a question that they show; without events it is a heartbeat."""

    __slots__ = ("before", "busy", "is_sealed", "last", "lines", "question", "question_id", "size", "stored_at")

    def __init__(self, before: int, busy: bool) -> None:
        self.before = self.last = before
        self.lines: list[bytes] = []
        self.size = 0
        self.busy = busy
        self.question_id: str = ""
        self.question = b""
        self.stored_at = 0.0
        self.is_sealed = False  # it may have been sent, so that nothing is added to it


class Command(NamedTuple):
    """Another command, which is sent after the events that were written before it.

    Attributes:
        is_guarded: whether Redis refuses it where the run is not the producer's any more.
        is_listing: whether it enters the run in a list, without which the run can be written nevertheless.
        is_end: whether it ends the run.
    """

    words: Sequence[Any]
    is_guarded: bool = True
    is_listing: bool = False
    is_end: bool = False


Write: TypeAlias = Append | Command


class Backend(Protocol):
    """The backend of a server, as the buffers of its producers use it."""

    @property
    def link(self) -> Link:
        """The connections."""
        ...

    def put(self, job: WriteBuffer | Callable[[], object]) -> None:
        """Send a buffer's events, or call a function that puts something into one, in the sender. It takes no lock."""
        ...

    def call_later(self, call: Callable[[], object]) -> None:
        """Call a function that may wait, in another thread."""
        ...

    def remove(self, buffer: WriteBuffer) -> None:
        """Remove a producer that has left."""
        ...


class WriteBuffer:
    """Holds one producer's events until Redis has stored them. Any thread may call it; the sender alone takes from it.

    Attributes:
        owner: a random text of the producer's own.
        epoch: its number.
        beat: how many heartbeats it sent by itself.
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
        self,
        backend: Backend,
        run_id: str,
        keys: Keys,
        owner: str,
        lifetimes: Lifetimes,
        control: Callable[[Control], None],
    ) -> None:
        self.run_id = run_id
        self.keys = keys
        self.owner = owner
        self.lifetimes = lifetimes
        self.epoch = self.beat = self.number = self.wrote = 0
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
            self.backend.put(self)
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
        self.backend.put(self)
        return first

    def put(self, work: Command | None = None) -> None:
        """Send work after the events that were written; None is a heartbeat."""
        with self._changed:
            if self.fenced is not None:
                return
            self._put(Append(self.number, self.busy) if work is None else work)
        self.backend.put(self)

    def _put(self, work: Write) -> None:
        self._waiting.append(work)
        self._counter += 1
        if isinstance(work, Append):
            self._size += work.size

    def leave(self, status: Status, error: bytes, info: bytes = b"") -> bool:
        """End or pause the run. False if the producer has left it already."""
        with self._changed:
            if self.fenced is not None or self.has_left:
                return False
            self.has_left = True
            self._put(self._end(status, error, info))
        self.backend.put(self)
        return True

    def abandon(self) -> None:
        """Leave the run without ending it: the lease is not renewed, and another producer may take the run over."""
        with self._changed:
            if self.fenced is not None or self.has_left or self.is_abandoned:
                return
            self.is_abandoned = True
            self._put(self._end("in_progress"))
        self.backend.put(self)

    def _end(self, status: Status, error: bytes = b"", info: bytes = b"") -> Command:
        """Return the command with which the producer leaves; with `in_progress` it leaves the run unfinished."""
        keys, lifetime = self.keys, self.lifetimes.of(status)
        arguments = (self.epoch, self.owner, self.number, status, error, lifetime, info)
        words = END(keys.run, keys.log, keys.lease, keys.questions, keys.snapshot, *arguments)
        return Command(words, is_end=status in FINAL)

    def listings(self, *, is_open: bool) -> Sequence[Command]:
        """Return the commands that enter the run in its lists, or renew its entries."""
        return [
            Command(
                listing(keys, self.run_id, self.created, self.lifetimes, is_open=is_open),
                is_guarded=False,
                is_listing=True,
            )
            for keys in self.lists
        ]

    def renew(self) -> None:
        """Renew the entries of the run in its lists."""
        self.listed = time.monotonic()
        for one in self.listings(is_open=True):
            self.put(one)

    def drop(self) -> None:
        """As `abandon`, but later: it takes no lock."""
        self.backend.put(self.abandon)

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

    def words_of(self, work: Write) -> Sequence[Any]:
        """Return the words of a command."""
        if isinstance(work, Command):
            return work.words
        keys, lifetimes = self.keys, self.lifetimes
        return APPEND(
            *(keys.run, keys.log, keys.lease, keys.questions, keys.snapshot),
            *(self.epoch, self.owner, work.before, work.last, b"\n".join(work.lines)),
            *(lifetimes.lease, lifetimes.running, int(work.busy), self.beat),
            *(work.question_id, work.question),
        )

    def replied(self, work: Sequence[Write], replies: Sequence[Any]) -> bool:
        """Take in the replies of Redis. Returns whether there is more to send."""
        now = time.monotonic()
        news = self._news
        reason: str | None = None
        with self._changed:
            if self.fenced is not None:
                return False  # meanwhile, by another thread: nothing waits any more
            for one, reply in zip(work, replies, strict=True):
                if isinstance(one, Command) and not one.is_guarded:
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
            self.backend.call_later(self.controls.look)
        if (self.has_left or self.is_abandoned) and not more:
            self.backend.remove(self)
        return more

    def _store(self, work: Write, now: float) -> None:
        self._waiting.popleft()
        self._done += 1
        if isinstance(work, Append):
            self._size -= work.size
            if work.lines:
                work.stored_at = now
                self._stored.append(work)
        elif work.is_end:  # now it is known that it has ended
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
            self.backend.call_later(partial(self._control, Fenced(reason)))
