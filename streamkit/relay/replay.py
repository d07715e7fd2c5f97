"""From the entries of a run's log to its events: decoded one by one, or replayed into an engine that has the run's state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import get_args

from ..core.engine import Engine
from ..core.snapshot import Snapshot
from ..events import Event, RunDone, RunStatus, StreamEnd, StreamException, StreamTimeout
from ..protocols import codec
from .cursors import Cursor, Entry, position_of
from .reading import RunSource

__all__ = ["Replay", "decoded", "entries_up_to"]

_PATIENCE = 5.0  # seconds without an entry, after which one that the record names is taken for lost
_STATUSES: Mapping[str, RunStatus] = {status: status for status in get_args(RunStatus)}


def decoded(line: bytes, *, is_snapshot: bool = False) -> Event:
    """Return the event of an entry's line; that of a snapshot's line is a `Snapshot`.

    Raises:
        ValueError: this process knows no such event; perhaps it is an application's own.
    """
    return codec.snapshot_from(line) if is_snapshot else codec.decode_event(line)


class Replay:
    """Completes the events of a log, from its beginning or a snapshot: messages grow, and each delta has its snapshot.

    Attributes:
        engine: the run's state after the newest event.
    """

    def __init__(self) -> None:
        self.engine = Engine()
        self.engine.pending.is_canonical = True

    def read(self, entry: Entry) -> Iterator[Event]:
        """Yield the events of one entry. An event that this process does not know is left out."""
        try:
            event = decoded(entry.data, is_snapshot=entry.snapshot)
        except ValueError:
            return
        for one in event.events if isinstance(event, Snapshot) else (event,):
            one.position = entry.cursor
            yield from self.complete(one)

    def complete(self, event: Event) -> Iterator[Event]:
        """Yield an event as the engine completes it: with its snapshot, and where entries before it are missing from the log,
        after the events that they would have made. The end of the run and of the stream have the status that was logged."""
        match event:
            case RunDone(run=run):
                for _ in self.engine.complete([event]):
                    pass
                yield from self.engine.end(run.status)
            case StreamException() | StreamTimeout():
                yield event
            case StreamEnd(status=status):
                if self.engine.runs.run is not None:  # its `RunDone` was among the entries that a snapshot has replaced
                    yield from self.engine.end(_STATUSES.get(status))
                yield event
            case _:
                yield from self.engine.complete([event])


def entries_up_to(relay: RunSource, run_id: str, cursor: Cursor | None) -> Iterator[Entry]:
    """Yield the entries of a run up to the one with this cursor, which its record had as the newest; none for None.

    Raises:
        SourceTimeoutError: the log does not have that event any more, nor any later one.
    """
    if cursor is None:
        return
    newest = position_of(cursor, run_id)
    with closing(relay.read(run_id, timeout=_PATIENCE)) as reading:
        for entries in reading:
            yield from entries
            if position_of(entries[-1].cursor, run_id) >= newest:
                return
