"""The end of a run whose producer cannot write it: because it died, or because the run was cancelled while it had none.

This is the one part that reads a log as events without being asked to: what is open in it is closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..core.engine import Engine
from ..events import Event, StreamEnd, StreamException
from ..protocols import codec

if TYPE_CHECKING:
    from .interface import Control, Relay, Status

__all__ = ["end_abandoned_run"]


def end_abandoned_run(relay: Relay, run_id: str, why: str = "") -> bool:
    """End a run that has no producer: as cancelled if it was, else as lost. False if another did, or it has a producer."""
    writer = relay.take_over(run_id, control=_ignore)
    record = None if writer is None else relay.get(run_id)
    if writer is None or record is None:
        return False
    engine = Engine()
    if record.cursor is not None:
        reading = relay.read(run_id)
        for entries in reading:
            for entry in entries:
                _feed(engine, entry.data, is_snapshot=entry.snapshot)
            if entries[-1].cursor == record.cursor:
                break
        reading.close()
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
