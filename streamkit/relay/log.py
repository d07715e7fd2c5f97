"""The numbered events of one run, in little memory.

Numbers begin at 1; the cursor of event 17 is `1-17.9c0a3f21`: the first number counts the run's producers, and what stands
after the dot names the run. The log has three parts, newest first, and its owner says when events move from one to the
next:

    tail       the newest events, one by one
    joined     `join` makes one entry of consecutive deltas of a message. The length of each is kept, so that every cursor
               stays valid
    snapshot   `drop` folds the oldest entries into what they led to
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from itertools import groupby
from typing import TYPE_CHECKING
from zlib import crc32

from msgspec.structs import replace

from ..errors import UsageError
from ..events import Delta, Event, MessageDelta
from .snapshot import Snapshot
from .stored import for_reader, is_question

if TYPE_CHECKING:
    from .reader import Reading

__all__ = ["Log", "cursor_of", "name_in_cursors", "number_of"]

_LONGEST = 255  # characters of a delta that can be joined: its length is kept in one byte
_MOST = 1024  # events that are read at once
_JOINED = 512  # events that are joined at once

_match_cursor = re.compile(r"1-(0|[1-9][0-9]{0,17})(\.[0-9a-f]{8})?").fullmatch


def name_in_cursors(run_id: str) -> str:
    """What names a run in its cursors."""
    return f".{crc32(run_id.encode('utf-8', 'surrogatepass')):08x}"


def cursor_of(number: int, name: str = "") -> str:
    """The cursor of the event with this number, in the run with this name."""
    return f"1-{number}{name}"


def number_of(cursor: object, name: str = "") -> int | None:
    """The number of a cursor's event, None if it is not a cursor. One that names no run is taken for one of this.

    Raises:
        UsageError: it is a cursor of another run than the one with this name.
    """
    match = _match_cursor(cursor) if isinstance(cursor, str) else None
    if match is None:
        return None
    if match[2] not in (None, name):
        raise UsageError(f"cursor {cursor!r} is one of another run: here they end in {name!r}")
    return int(match[1])


class Log:
    """The events of one run. Not thread-safe: its owner locks.

    Attributes:
        newest: the number of the newest event, 0 before the first.
        name: what names the run in its cursors.
        snapshot: what the events led to that were dropped.
    """

    def __init__(self, limit: int, name: str = "") -> None:
        self.newest = 0
        self.name = name
        self.snapshot = Snapshot()
        self._step = max(1, min(_JOINED, limit // 8))  # entries that are joined or dropped at once
        self._joined: list[Event] = []
        self._numbers: list[int] = []  # of each joined entry, or of the last delta in it
        self._lengths: dict[int, bytes] = {}  # of the deltas in a joined entry, by its number
        self._tail: list[Event] = []
        self._questions: list[int] = []  # numbers of the events that wait for an answer

    @property
    def entries(self) -> int:
        """How many entries are held; joined deltas count as one."""
        return len(self._joined) + len(self._tail)

    def append(self, event: Event) -> str:
        """Number a stored event; returns its cursor."""
        self.newest = number = self.newest + 1
        event.position = cursor = f"1-{number}{self.name}"
        if not isinstance(event, Delta) and is_question(event):
            self._questions.append(number)
        self._tail.append(event)
        return cursor

    def events(self, after: int, until: int | None = None, reading: Reading | None = None) -> tuple[list[Event], int]:
        """Some of the events after a number that was not dropped, none of them after `until`; and the number of the
        last one. At the end: no events, and `after`."""
        stop = self.newest if until is None or until > self.newest else until
        if after >= stop:
            return [], after
        tail_start = self.newest - len(self._tail)
        if after >= tail_start:
            if stop - after > _MOST:
                stop = after + _MOST
            events = self._tail[after - tail_start : stop - tail_start]
        else:
            events, stop = self._joined_events(after, min(stop, tail_start))
        if self._questions and bisect_right(self._questions, after) < bisect_right(self._questions, stop):
            events = [for_reader(event, reading) for event in events]
        return events, stop

    def _joined_events(self, after: int, until: int) -> tuple[list[Event], int]:
        first = bisect_right(self._numbers, after)
        last = min(bisect_left(self._numbers, until), first + _MOST - 1)
        until = min(until, self._numbers[last])
        events = self._joined[first : last + 1]
        for index in {first, last}:
            if self._numbers[index] in self._lengths:
                events[index - first] = self._part(index, after, until)
        return events, until

    def _part(self, index: int, after: int, until: int) -> Event:
        """The deltas of a joined entry between two numbers, as one."""
        event, number = self._joined[index], self._numbers[index]
        lengths = self._lengths[number]
        start = number - len(lengths)
        begin, end = max(after - start, 0), min(until - start, len(lengths))
        if not isinstance(event, Delta) or end - begin == len(lengths):
            return event
        skipped = sum(lengths[:begin])
        value = event.value[skipped : skipped + sum(lengths[begin:end])]
        return replace(event, value=value, position=cursor_of(start + end, self.name))

    @property
    def joinable(self) -> int:
        """The number of the last event that `join` would join; 0 where there are too few."""
        return 0 if len(self._tail) < 2 * self._step else self.newest - len(self._tail) + self._step

    def join(self) -> None:
        """Move the oldest of the tail to the joined entries."""
        number = self.newest - len(self._tail)
        for key, group in groupby(self._tail[: self._step], _join_key):
            events = list(group)
            if key is not None and len(events) > 1:
                values = [event.value for event in events if isinstance(event, Delta)]
                self._lengths[number + len(events)] = bytes(map(len, values))
                number += len(events) - 1
                events = [replace(events[-1], value="".join(values))]
            for event in events:
                number += 1
                self._joined.append(event)
                self._numbers.append(number)
        del self._tail[: self._step]

    @property
    def droppable(self) -> int:
        """The number of the last event that `drop` would drop; 0 where there are too few."""
        return 0 if len(self._numbers) < self._step else self._numbers[self._step - 1]

    def drop(self) -> None:
        """Fold the oldest joined entries into the snapshot."""
        oldest = slice(self._step)
        for event, number in zip(self._joined[oldest], self._numbers[oldest], strict=True):
            self.snapshot.fold(event, number)
            self._lengths.pop(number, None)
        del self._joined[oldest], self._numbers[oldest]
        del self._questions[: bisect_right(self._questions, self.snapshot.dropped)]


def _join_key(event: Event) -> tuple[object, ...] | None:
    """What deltas must have in common to be joined; None for an event that stays alone."""
    # The pieces of a plain MessageDelta may be base64, each with padding of its own.
    if not isinstance(event, Delta) or event.replace or type(event) is MessageDelta or len(event.value) > _LONGEST:
        return None
    return type(event), event.message_id, event.metadata
