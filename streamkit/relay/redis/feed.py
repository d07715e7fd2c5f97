"""A run that this process follows: the readings that receive its events, and its state as last heard."""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..cursors import Entry, Place, run_name
from .keys import Keys
from .record import Question, State, questions_of

if TYPE_CHECKING:
    from .reading import RedisReading

__all__ = ["Batch", "Feed"]


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
        """The events; the readings of a process share them."""
        if self._entries is None:
            prefix, name = f"{self.epoch}-", self._name
            lines = self._data.split(b"\n")
            self._entries = [Entry(f"{prefix}{n}{name}", line) for n, line in enumerate(lines, self.before + 1)]
        return self._entries


class Feed:
    """One run, as the readings of this process follow it.

    Attributes:
        readings: those that are open, by their ids.
        is_confirmed: whether its channel is subscribed, so that looking at the log now misses nothing.
        state: as it was found last; None before.
        tip: the place of the newest event that is known of.
        is_stale: whether the questions may have changed.
        questions: by their ids; None before they were looked up.
        heard: when the channel, or the record, last said something new, on the monotonic clock.
        checked: when the record was asked for last.
        unleased_since: since when nobody has the lease; None while somebody has it.
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
        self.tip = Place(0, 0)
        self.is_stale = True
        self.questions: Mapping[str, Question] | None = None
        self.heard = self.checked = time.monotonic()
        self.unleased_since: float | None = None
        self.empty_since: float | None = None

    @property
    def has_ended(self) -> bool:
        """Whether there will be no more events than those up to the tip."""
        return self.state is not None and self.state.has_ended

    def receive(self, data: bytes) -> None:
        """A batch of the channel."""
        head, _, events = data.partition(b"\n")
        epoch, before, last = head.split()
        batch = Batch(int(epoch), int(before), int(last), events, self.name)
        self.heard = time.monotonic()
        for reference in [*self.readings.values()]:
            if (reading := reference()) is not None:
                reading.offer(batch)
        self.tip = max(self.tip, Place(batch.epoch, batch.last))

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
        """The run cannot be read on."""
        for reference in [*self.readings.values()]:
            if (reading := reference()) is not None:
                reading.fail(error)

    def wake(self) -> None:
        """Make the readings look again."""
        for reference in [*self.readings.values()]:
            if (reading := reference()) is not None:
                reading.wake()

    def batches(self, entries: Any) -> list[Batch]:
        """The batches in a reply of XRANGE."""
        found: list[Batch] = []
        for id, fields in entries:
            epoch, _, last = id.partition(b"-")
            found.append(Batch(int(epoch), int(fields[b"b"]), int(last), fields[b"e"], self.name))
        return found
