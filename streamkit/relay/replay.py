"""Replaying a run's log: into an engine that has the run's state, and up to the end, where its producer cannot write that.

A producer cannot because it died, or because the run was cancelled while it had none: then what is open in the log is closed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import get_args

from ..core.engine import Engine
from ..core.snapshot import Snapshot
from ..errors import SourceTimeoutError, StoredDataError
from ..events import Event, RunDone, RunStatus, StreamEnd, StreamException, StreamTimeout
from ..protocols import codec
from .interface import Relay
from .reader import decoded
from .run_record import Control, Cursor, Entry, Status, position_of

__all__ = ["Replay", "end_abandoned_run", "entries_up_to"]

_PATIENCE = 5.0  # seconds without an entry, after which one that the record names is taken for lost
_STATUSES: Mapping[str, RunStatus] = {status: status for status in get_args(RunStatus)}


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


def entries_up_to(relay: Relay, run_id: str, cursor: Cursor | None) -> Iterator[Entry]:
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


def end_abandoned_run(relay: Relay, run_id: str, why: str = "") -> bool:
    """End a run that has no producer: as cancelled if it was, else as lost. False if another did, or it has a producer."""
    while True:
        writer = relay.take_over(run_id, control=_ignore)
        record = None if writer is None else relay.get(run_id)
        if writer is None or record is None:
            return False
        replay = Replay()
        try:
            for entry in entries_up_to(relay, run_id, record.cursor):
                for _ in replay.read(entry):
                    pass
            break
        except StoredDataError:  # events are missing: what came before them is ended
            break
        except SourceTimeoutError:  # the log has lost its end since: another epoch begins where it ends now
            writer.abandon()
            writer.flush()
    cancelled = record.cancel is not None
    status: Status = "cancelled" if cancelled else "lost"
    error = {
        "type": "SourceError",
        "code": "producer_lost",
        "message": f"the producer of run {run_id!r} is gone{': ' if why else ''}{why}",
    }
    events = _cancelled(replay.engine) if cancelled else _lost(replay.engine, error)
    writer.append([codec.encode_event(event) for event in events])
    return writer.end(status, None if cancelled else error)


def _cancelled(engine: Engine) -> Iterator[Event]:
    yield from engine.end("cancelled")
    yield StreamEnd(status="cancelled")


def _lost(engine: Engine, error: dict[str, str]) -> Iterator[Event]:
    yield from engine.end("incomplete", error)
    yield StreamException(error["type"], error["message"], {"code": error["code"]})
    yield StreamEnd(status="failed")


def _ignore(control: Control) -> None:
    """Do nothing: the record has all answers."""
