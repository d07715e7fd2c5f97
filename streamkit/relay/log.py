"""The numbered events of one run, in little memory.

Numbers begin at 1; a cursor is `1-17` (the first number counts producers that took a run over, of which memory has
none). New events are the tail. Once nobody needs them one by one, the oldest of the tail are sealed: consecutive deltas
of one message become one, with the length of each, so that every cursor stays valid. What is too much even so is dropped
from the front, segment by segment, and `Beginning` knows what it led to.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from ..events import Delta, Event, MessageDelta
from .stored import asks, for_reader
from .truncation import Beginning

__all__ = ["Log", "cursor_of", "number_of"]

_LONGEST = 255  # characters of a delta that is joined: its length is one byte
_MOST = 1024  # events that are sealed together

_is_cursor = re.compile(r"1-(0|[1-9][0-9]{0,17})").fullmatch


def cursor_of(number: int) -> str:
    return f"1-{number}"


def number_of(cursor: object) -> int | None:
    """The number that a cursor stands for, None if it is none."""
    found = _is_cursor(cursor) if isinstance(cursor, str) else None
    return None if found is None else int(found[1])


class _Piece(NamedTuple):
    """One event, or consecutive deltas joined to one: then `lengths` has the length of each."""

    event: Event
    many: int
    lengths: bytes


class Log:
    """The events of one run. Not thread-safe: its owner locks.

    Attributes:
        newest: the number of the newest event, 0 before the first.
        held: how many entries are held; deltas that are joined count as one.
    """

    def __init__(self, limit: int) -> None:
        self.newest = 0
        self.beginning = Beginning()
        self._size = max(1, min(_MOST, limit // 8))  # of a segment
        self._sealed: deque[list[_Piece]] = deque()
        self._pieces = 0
        self._tail: list[Event] = []
        self._asks: list[int] = []

    @property
    def held(self) -> int:
        return self._pieces + len(self._tail)

    @property
    def first(self) -> int:
        """The number of the oldest event that is held."""
        return self.beginning.dropped + 1

    def append(self, event: Event) -> str:
        """Number an event that was made to be kept."""
        self.newest += 1
        event.position = cursor = cursor_of(self.newest)
        self._tail.append(event)
        if asks(event):
            self._asks.append(self.newest)
        return cursor

    def grow(self, event: Event) -> str:
        """As `append`, for what asks nothing."""
        self.newest = newest = self.newest + 1
        event.position = cursor = f"1-{newest}"
        self._tail.append(event)
        return cursor

    @property
    def ripe(self) -> int:
        """The number up to which the next segment would be sealed; 0 if the tail is too short."""
        short = len(self._tail) < 2 * self._size
        return 0 if short else self.newest - len(self._tail) + self._size

    def seal(self) -> None:
        """Join the oldest of the tail."""
        size = min(self._size, len(self._tail))
        if size < self._size:
            return
        segment = _join(self._tail[:size])
        del self._tail[:size]
        self._sealed.append(segment)
        self._pieces += len(segment)

    @property
    def oldest(self) -> int:
        """The number up to which `drop` would drop; 0 if nothing is sealed."""
        return self.beginning.dropped + self._size if self._sealed else 0

    def drop(self) -> None:
        """Drop the oldest segment."""
        segment = self._sealed.popleft()
        self._pieces -= len(segment)
        for piece in segment:
            self.beginning.take(piece.event, piece.many)
        del self._asks[: bisect_right(self._asks, self.beginning.dropped)]

    def take(self, after: int, until: int | None = None) -> tuple[list[Event], int]:
        """Some events after a number that is held or the last that was dropped, at most until another one, and the
        number of the last of them; [] if there are none."""
        stop = self.newest if until is None else min(until, self.newest)
        if after >= stop:
            return [], after
        sealed_to = self.newest - len(self._tail)
        if after >= sealed_to:
            stop = min(stop, after + _MOST)
            events = self._tail[after - sealed_to : stop - sealed_to]
        else:
            which, place = divmod(after - self.beginning.dropped, self._size)
            start = after - place
            stop = min(stop, start + self._size)
            events = list(_cut(self._sealed[which], start, place, stop - start))
        if self._asks and bisect_right(self._asks, after) < bisect_right(self._asks, stop):
            events = [for_reader(event) for event in events]
        return events, stop


def _join(events: Sequence[Event]) -> list[_Piece]:
    pieces: list[_Piece] = []
    run: list[Delta] = []
    for event in events:
        if isinstance(event, Delta) and _joins(event):
            if run and not _continues(run[-1], event):
                pieces.append(_joined(run))
                run = []
            run.append(event)
            continue
        if run:
            pieces.append(_joined(run))
            run = []
        pieces.append(_Piece(event, 1, b""))
    if run:
        pieces.append(_joined(run))
    return pieces


def _joins(event: Delta) -> bool:
    # A plain MessageDelta may be a piece of base64, which has padding of its own.
    return not event.replace and type(event) is not MessageDelta and len(event.value) <= _LONGEST


def _continues(before: Delta, event: Delta) -> bool:
    same = type(before) is type(event) and before.message_id == event.message_id
    return same and before.metadata == event.metadata


def _joined(run: list[Delta]) -> _Piece:
    if len(run) == 1:
        return _Piece(run[0], 1, b"")
    event = msgspec.structs.replace(run[-1], value="".join([delta.value for delta in run]))
    return _Piece(event, len(run), bytes([len(delta.value) for delta in run]))


def _cut(segment: list[_Piece], start: int, first: int, last: int) -> Iterator[Event]:
    """The events of a segment from its place `first` to `last`; before it are `start` events."""
    place = 0
    for piece in segment:
        begin, end = max(first - place, 0), min(last - place, piece.many)
        if begin < end:
            yield piece.event if end - begin == piece.many else _part(piece, begin, end, start + place + end)
        place += piece.many


def _part(piece: _Piece, begin: int, end: int, number: int) -> Event:
    event = piece.event
    assert isinstance(event, Delta)
    before = sum(piece.lengths[:begin])
    value = event.value[before : before + sum(piece.lengths[begin:end])]
    return msgspec.structs.replace(event, value=value, position=cursor_of(number))
