"""What a producer adds to the log of a run besides events: snapshots, for readers that come when its oldest events were
dropped, and which events are those of one message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ..core.engine import Engine
from ..core.snapshot import SnapshotMaker
from ..events import Created, Delta, Done, Event, RawEvent
from ..protocols import codec
from .interface import LogWriter
from .message_spans import MessageSpans

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
        self._due = self._interval  # how many events will have been written by this producer when none are left
        self._count = 0  # messages, and events that no message has, that were written
        self._engine = engine
        self._log = log
        self._maker = SnapshotMaker(engine, encoded, limit or 0, _LARGEST)
        self._spans = MessageSpans(log)

    def resume(self, past: Iterable[Event]) -> None:
        """Earlier producers have written these events."""
        self._count += sum(1 for event in past if isinstance(event, Created) or _is_apart(event))
        self._spans.resume(self._engine.open_messages)

    def note(self, event: Event, lines: Sequence[bytes]) -> None:
        """An event that is no delta is about to be written, as the last one of these lines: what a snapshot leaves out of
        them is missing in it."""
        if isinstance(event, Created):
            self._count += 1
            written = self._due - self.left
            self._spans.begin(event.message, written + len(lines), written)
        elif isinstance(event, Done):
            self._spans.end(event.message, self._due - self.left + len(lines))
        else:
            self._spans.interrupt()
            if _is_apart(event):
                self._count += 1

    def make(self) -> None:
        """Store a snapshot of the state at the newest event."""
        self._due += self._interval - self.left
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
