"""The end of a run whose producer cannot write it: because it died, or because the run was cancelled while it had none.

The log is replayed, and what is open in it is closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..core.engine import Engine
from ..errors import SourceTimeoutError, StoredDataError
from ..events import Event, StreamEnd, StreamException
from ..protocols import codec
from .replay import Replay, entries_up_to

if TYPE_CHECKING:
    from .interface import Relay
    from .run_record import Control, Status

__all__ = ["end_abandoned_run"]


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
