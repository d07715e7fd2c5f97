"""The end of a run whose producer cannot write it: because it died, or because the run was cancelled while it had none.

This is the one part that reads a log as events without being asked to: what is open in it is closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from ..core.engine import Engine
from ..errors import SourceTimeoutError, StoredDataError
from ..events import Event, StreamEnd, StreamException
from ..protocols import codec
from .cursors import Cursor, Entry, place_of

if TYPE_CHECKING:
    from .interface import Control, Relay, Status

__all__ = ["end_abandoned_run", "entries_up_to"]

_PATIENCE = 5.0  # seconds without a sign of what the record says is there


def end_abandoned_run(relay: Relay, run_id: str, why: str = "") -> bool:
    """End a run that has no producer: as cancelled if it was, else as lost. False if another did, or it has a producer."""
    while True:
        writer = relay.take_over(run_id, control=_ignore)
        record = None if writer is None else relay.get(run_id)
        if writer is None or record is None:
            return False
        engine = Engine()
        try:
            for entry in entries_up_to(relay, run_id, record.cursor):
                _feed(engine, entry.data, is_snapshot=entry.snapshot)
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
    events = _cancelled(engine) if cancelled else _lost(engine, error)
    writer.append([codec.encode_event(event) for event in events], urgent=True)
    return writer.end(status, None if cancelled else error)


def entries_up_to(relay: Relay, run_id: str, cursor: Cursor | None) -> Iterator[Entry]:
    """What the log has up to a cursor, which was that of its newest event; nothing for None.

    Raises:
        SourceTimeoutError: the log does not have that event any more, nor any later one.
    """
    if cursor is None:
        return
    newest = place_of(cursor, run_id)
    with closing(relay.read(run_id, timeout=_PATIENCE)) as reading:
        for entries in reading:
            yield from entries
            if place_of(entries[-1].cursor, run_id) >= newest:
                return


def _feed(engine: Engine, line: bytes, *, is_snapshot: bool) -> None:
    try:
        event = codec.snapshot_from(line) if is_snapshot else codec.decode_event(line)
    except ValueError:
        return  # an application's own, that this process does not know
    for _ in engine.complete([event]):
        pass


def _cancelled(engine: Engine) -> Iterator[Event]:
    yield from engine.end("cancelled")
    yield StreamEnd(status="cancelled")


def _lost(engine: Engine, error: dict[str, str]) -> Iterator[Event]:
    yield from engine.end("incomplete", error)
    yield StreamException(error["type"], error["message"], {"code": error["code"]})
    yield StreamEnd(status="failed")


def _ignore(control: Control) -> None:
    """What could reach this producer is in the record."""
