"""Reads a run from Redis: batches as they are published, and from the log where some of those are missing."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

from ...errors import SourceTimeoutError, StoredDataError
from ..reading import Gap, Reading, events_missing
from ..run_record import EMPTY, Entry, LogPosition, cursor_of, position_of, run_name
from ..wakers import TaskWaker, ThreadWaker
from .record import Keys, State, StoredQuestion, questions_of

__all__ = ["Batch", "RedisReading", "RunSubscription", "has_position"]

_AT_ONCE = 1024  # events that are handed out at once, and a batch more
_QUEUED = 256  # batches that wait for a reader at most; then the log has them
_LOOKS_AT_ONCE = 3  # for what comes next, for a snapshot in its position, and for what comes after that
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 1.0  # seconds between two further looks


class Batch:
    """Events that were stored together.

    Attributes:
        before: the number of the event before them.
        last: the number of the last one.
    """

    __slots__ = ("_data", "_entries", "_name", "before", "epoch", "last")

    def __init__(self, epoch: int, before: int, last: int, data: bytes, name: str) -> None:
        self.epoch = epoch
        self.before = before
        self.last = last
        self._data = data
        self._name = name
        self._entries: list[Entry] | None = None

    @property
    def entries(self) -> list[Entry]:
        """The entries, which the readings of a process share."""
        if self._entries is None:
            prefix, name = f"{self.epoch}-", self._name
            lines = self._data.split(b"\n")
            self._entries = [Entry(f"{prefix}{n}{name}", line) for n, line in enumerate(lines, self.before + 1)]
        return self._entries


class RunSubscription:
    """The state of a run that this process follows, and the readings that receive its events.

    Attributes:
        readings: those that are open, by their ids.
        is_confirmed: whether its channel is subscribed, so that looking at the log now misses nothing.
        state: as it was found last; None before.
        tip: the highest position of an event so far.
        is_stale: whether the questions may have changed.
        questions: by their ids; None before they were looked up.
        heard: when the channel, or the record, last had something new, on the monotonic clock.
        checked: when the record was read last.
        unleased_since: since when no producer has the lease; None while one has it.
        empty_since: since when it has no readings.
    """

    def __init__(self, run_id: str, keys: Keys) -> None:
        self.run_id = run_id
        self.keys = keys
        self.name = run_name(run_id)
        self.readings: dict[int, weakref.ref[RedisReading]] = {}
        self.is_confirmed = False
        self.is_gone = False
        self.was_deleted = False
        self.state: State | None = None
        self.tip = LogPosition(0, 0)
        self.is_stale = True
        self.questions: Mapping[str, StoredQuestion] | None = None
        self.heard = self.checked = time.monotonic()
        self.unleased_since: float | None = None
        self.empty_since: float | None = None

    @property
    def has_ended(self) -> bool:
        """Whether there will be no more events than those up to the tip."""
        return self.state is not None and self.state.has_ended

    def receive(self, data: bytes) -> None:
        """Pass a published batch on to the readings."""
        head, _, events = data.partition(b"\n")
        epoch, before, last = head.split()
        batch = Batch(int(epoch), int(before), int(last), events, self.name)
        self.heard = time.monotonic()
        for reference in [*self.readings.values()]:
            if (reading := reference()) is not None:
                reading.offer(batch)
        self.tip = max(self.tip, LogPosition(batch.epoch, batch.last))

    def update(self, state: State, *, is_leased: bool, questions: Mapping[bytes, bytes] | None) -> None:
        """Take over the newest record of the run."""
        before, now = self.state, time.monotonic()
        self.state = state
        self.checked = now
        self.tip = state.tip
        if before is None or before.beat != state.beat or before.status != state.status or state.status == "paused":
            self.heard = now
        if is_leased or state.status != "in_progress":
            self.unleased_since = None
        elif self.unleased_since is None:
            self.unleased_since = now
        if questions is not None:
            self.questions = questions_of(questions)

    def fail(self, error: Exception) -> None:
        """Make the readings fail."""
        for reference in [*self.readings.values()]:
            if (reading := reference()) is not None:
                reading.fail(error)

    def wake(self) -> None:
        """Make the readings look again."""
        for reference in [*self.readings.values()]:
            if (reading := reference()) is not None:
                reading.wake()

    def batches(self, entries: Any) -> list[Batch]:
        """Return the batches in a reply of XRANGE."""
        found: list[Batch] = []
        for id, fields in entries:
            epoch, _, last = id.partition(b"-")
            found.append(Batch(int(epoch), int(fields[b"b"]), int(last), fields[b"e"], self.name))
        return found


class LogAccess(Protocol):
    """A backend, as readings use it."""

    def has(self, run_id: str, position: LogPosition) -> bool:
        """Whether the events after a position are in the log."""
        ...

    def join(self, reading: RedisReading, run_id: str) -> RunSubscription:
        """Add a reading to its run's subscription."""
        ...

    def look(self, reading: RedisReading) -> bool:
        """Have the log read for a reading. Returns whether this call caused it."""
        ...

    def skip(self, subscription: RunSubscription, member: str, question_id: str) -> None:
        """Store that a reader goes on without an answer to a question."""
        ...

    def leave(self, subscription: RunSubscription, reading: RedisReading) -> None:
        """Remove a reading from its subscription. It takes no lock."""
        ...


class RedisReading(Reading):
    """A position in a run's log.

    Attributes:
        position: the position of the last event that was handed out.
        has_position: whether the log had what comes after that, when the reading began.
        needs_snapshot: whether what comes next is a snapshot, as the events after the position are not in the log.
        is_looking: whether the log is about to be read for this reading.
        is_new: whether the log was never read for it.
        member: its name among the run's readers.
        subscription: where its batches come from; None before the first pull.
    """

    def __init__(
        self,
        log: LogAccess,
        run_id: str,
        position: LogPosition,
        has_position: bool,
        gap: Gap,
        timeout: float,
        limit: int,
    ) -> None:
        super().__init__()
        self._log = log
        self._run_id = run_id
        self._gap = gap
        self._timeout = timeout
        self._limit = limit
        self.subscription: RunSubscription | None = None
        self._looked: deque[Batch | Entry] = deque()  # found in the log
        self._queue: deque[Batch] = deque()  # what was published
        self._has_more = False  # whether the log had more than was read
        self._looks = 0  # how often the log was read since entries were handed out last
        self._next_look = 0.0  # on the monotonic clock
        self._is_missing = False  # whether the log lacked what comes next
        self._failure: Exception | None = None
        self._joined = 0.0
        self.position = position
        self.has_position = has_position
        self.needs_snapshot, self.is_looking = not has_position, False
        self.is_new = True
        self.member = ""

    # -- called by the backend

    def offer(self, batch: Batch) -> None:
        """Queue a batch that was published."""
        self._queue.append(batch)
        if len(self._queue) > _QUEUED or batch.last - self.position.number > self._limit:
            self._queue = deque()
            self._has_more = True
        self.wake()

    def found(self, batches: list[Batch], *, more: bool) -> None:
        """Take over what the log has after this position, all of it or a part."""
        self._looked.extend(batches)
        self._has_more = more
        self.is_looking = False

    def found_nothing(self) -> None:
        """Note that the log has no events after this position, though there were some."""
        self._is_missing = True
        self.is_looking = False

    def snapshot(self, at: bytes | None, data: bytes | None, first: Batch | None, newest: int) -> None:
        """Take over the snapshot in place of events that the log no longer has; None if it has all of them.

        Args:
            first: the first batch in the log, as it was before the snapshot was read; None if there is none.
            newest: the number of the newest event.
        """
        if self._gap == "error":
            self.fail(events_missing(self._run_id))
            return
        name = self.subscription.name if self.subscription is not None else ""
        if at is None or data is None:
            entry, position = Entry(cursor_of(1, 0, name), EMPTY, snapshot=True), LogPosition(0, 0)
        else:
            epoch, _, number = at.partition(b"-")
            position = LogPosition(int(epoch), int(number))
            entry = Entry(cursor_of(*position, name), data, snapshot=True)
        if position.number < newest and (first is None or first.before > position.number):
            self.fail(lost(self._run_id, position.number))
            return
        self._looked.clear()
        if position != self.position or position.number == 0:
            self._looked.append(entry)
        self.position = position
        self.needs_snapshot = False
        self._has_more = True
        self.is_looking = False

    def fail(self, error: Exception) -> None:
        """Make the next pull fail."""
        self._failure = error
        self.is_looking = False
        self.wake()

    # -- called by the reader

    def rewind(self, after: str) -> bool:
        """Read from the run's beginning."""
        position = position_of(after, self._run_id)
        has = self.has_position if position == self.position else self._log.has(self._run_id, position)
        self.position = LogPosition(0, 0)
        self.needs_snapshot = not has
        return has

    def take(self, waker: ThreadWaker | TaskWaker) -> list[Entry] | float | None:
        """Return the next entries, or for how many seconds to wait for them."""
        subscription = self.subscription
        if subscription is None:
            self._joined = time.monotonic()
            subscription = self._log.join(self, self._run_id)
        entries: list[Entry] = []
        while not self.needs_snapshot and len(entries) < _AT_ONCE:
            new = self._next(self._looked) or self._next(self._queue)
            if new is None:
                break
            entries += new
        if entries:
            self._is_missing, self._looks = False, 0
            return entries
        if self._is_missing or (self._looked and self._is_after_hole(self._looked[0])):
            self._looked.clear()  # and what was published did not fill the hole
            self.needs_snapshot, self._is_missing = True, False
        if self._failure is not None:
            raise self._failure
        if subscription.has_ended and self.position == subscription.tip and not self.needs_snapshot:
            return None
        patience = self._patience(subscription)
        if self.needs_snapshot or self._has_more or self._queue or self._has_hole(subscription):
            return min(patience, self._look())
        return patience

    def _look(self) -> float:
        """Have the log read. After a few times in vain there is a pause before each next one; returns the seconds until then."""
        now = time.monotonic()
        if now < self._next_look:
            return self._next_look - now
        if self._log.look(self):
            self._looks += 1
            if self._looks > _LOOKS_AT_ONCE:
                self._next_look = now + min(_FIRST_PAUSE * 2 ** (self._looks - _LOOKS_AT_ONCE), _LONGEST_PAUSE)
        return _LONGEST_PAUSE

    def _next(self, queue: deque[Batch] | deque[Batch | Entry]) -> list[Entry] | None:
        """Return the next entries of a queue; None where it has none, or events are missing before them."""
        while queue:
            batch = queue[0]
            if isinstance(batch, Entry):
                queue.popleft()
                return [batch]
            epoch, number = self.position
            if batch.before > number:
                return None
            if batch.before < number and batch.epoch > epoch:
                self.needs_snapshot = True  # another producer wrote these numbers again: the tail that was read is lost
                return None
            queue.popleft()
            if batch.last > number:
                self.position = LogPosition(batch.epoch, batch.last)
                return batch.entries[number - batch.before :] if number > batch.before else batch.entries
        return None

    def _is_after_hole(self, found: Batch | Entry) -> bool:
        return isinstance(found, Batch) and found.before > self.position.number

    def _has_hole(self, subscription: RunSubscription) -> bool:
        """Whether the log has events that were not published here; or this position is not in it."""
        return subscription.tip > self.position if not subscription.has_ended else subscription.tip != self.position

    def _patience(self, subscription: RunSubscription) -> float:
        if subscription.state is not None and subscription.state.status == "paused":
            return 60.0
        silence = time.monotonic() - max(self._joined, subscription.heard)
        if silence >= self._timeout:
            raise SourceTimeoutError(
                f"the producer of run {self._run_id!r} was silent for {silence:.1f} seconds: it emitted nothing and sent no "
                "heartbeat"
            )
        return max(0.001, min(self._timeout - silence, 60.0))

    def skip(self, question_id: str) -> None:
        """Report that this reader goes on without an answer to a question."""
        if self.subscription is not None:
            self._log.skip(self.subscription, self.member, question_id)

    def close(self) -> None:
        """Stop reading, without taking a lock."""
        super().close()
        if self.subscription is not None:
            self._log.leave(self.subscription, self)


def has_position(position: LogPosition, entries: Any, at: bytes | None) -> bool:
    """Whether all events after a position are there, from the first batch that is not before it, and the snapshot's position."""
    if position.number == 0:
        return at is None
    if at == b"%d-%d" % position:
        return True
    if not entries:
        return False
    id, fields = entries[0]
    epoch, _, last = id.partition(b"-")
    return int(epoch) == position.epoch and int(fields[b"b"]) < position.number <= int(last)


def lost(run_id: str, number: int) -> StoredDataError:
    """Return the error of a log that lacks events which no snapshot replaces."""
    return StoredDataError(
        f"run {run_id!r}: events are missing: its log in Redis does not go on after event {number}. Something else removed them; "
        "Redis does so itself where its `maxmemory-policy` is not `noeviction`"
    )
