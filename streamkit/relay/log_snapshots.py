"""Snapshots of what a producer writes, for readers that come when the oldest events of its log were dropped."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..core.engine import Engine
from ..core.snapshot import SnapshotMaker
from ..events import Created, Delta, Event, RawEvent
from ..protocols import codec
from .interface import LogWriter

__all__ = ["LogSnapshots", "encoded"]

_LARGEST = 1 << 20  # bytes of a snapshot, beyond which messages that have ended are left out
_NEVER = 1 << 62  # events: more than any run has


class LogSnapshots:
    """Makes snapshots of what one producer writes.

    Args:
        engine: completes the events, before they are written.
        log: what the run is written with.
        limit: of the relay; None where nothing is ever dropped.

    Attributes:
        left: how many events may be written before the next one is due. Who writes counts them down.
    """

    def __init__(self, engine: Engine, log: LogWriter, limit: int | None) -> None:
        self._interval = _NEVER if limit is None else (limit + 1) // 2
        self.left = self._interval
        self._count = 0  # messages, and events that no message has, that were written
        self._engine = engine
        self._log = log
        self._maker = SnapshotMaker(engine, encoded, limit or 0, _LARGEST)

    def resume(self, past: Iterable[Event]) -> None:
        """Earlier producers have written these events."""
        for event in past:
            self.note(event)

    def note(self, event: Event) -> None:
        """Record an event that is about to be appended, so that the next snapshot says what it leaves out."""
        if isinstance(event, Created) or _is_apart(event):
            self._count += 1

    def make(self) -> None:
        """Store a snapshot of the state at the newest event."""
        self.left = self._interval
        events, message_count = self._maker.lines()
        self._log.snapshot(codec.encode_snapshot(events, self._count - message_count))


def _is_apart(event: Event) -> bool:
    """Whether it is an event that a snapshot does not have: a raw one, or an application's own."""
    return isinstance(event, RawEvent) or type(event).__module__ != RawEvent.__module__


def encoded(event: Event) -> bytes:
    """An event as a line of the log, which has the cursors."""
    if isinstance(event, Delta):
        return codec.encode_delta(type(event)(event.message_id, event.value, event.replace, event.metadata))
    return codec.encode_event(event if event.position is None else msgspec.structs.replace(event, position=None))
