"""The snapshots of a run's log, for readers that come when its oldest events were dropped: when one is due, and how its producer
makes it."""

from __future__ import annotations

import math

import msgspec

from ..core.engine import Engine
from ..core.snapshot import SnapshotMaker
from ..events import Created, Delta, Event, RawEvent
from ..protocols import codec
from .interface import LogWriter

__all__ = ["LogSnapshots", "encoded"]

_LARGEST = 1 << 20  # bytes of a snapshot, beyond which messages that have ended are left out


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
        self._interval: float = math.inf if limit is None else limit / 2
        self.left = self._interval
        self._count = 0  # messages, and events that no message has, that were written
        self._log = log
        self._maker = SnapshotMaker(engine, encoded, limit or 0, _LARGEST)

    def count(self, event: Event) -> None:
        """An event that is no delta was written: what a snapshot leaves out of them is missing in it."""
        if isinstance(event, (Created, RawEvent)) or type(event).__module__ != RawEvent.__module__:
            self._count += 1

    def make(self) -> None:
        """Store a snapshot of the state at the newest event."""
        self.left = self._interval
        events, message_count = self._maker.lines()
        self._log.snapshot(codec.encode_snapshot(events, self._count - message_count))


def encoded(event: Event) -> bytes:
    """An event as a line of the log, which has the cursors."""
    if isinstance(event, Delta):
        return codec.encode_delta(type(event)(event.message_id, event.value, event.replace, event.metadata))
    return codec.encode_event(event if event.position is None else msgspec.structs.replace(event, position=None))
