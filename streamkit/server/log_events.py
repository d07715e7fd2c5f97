"""The lines of a run's log as completed events: messages grow again, and each delta has its snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import get_args

from ..core.engine import Engine
from ..events import Event, RunDone, RunStatus, StreamEnd, StreamException, StreamTimeout
from ..protocols import codec

__all__ = ["LogEvents"]

_STATUSES: Mapping[str, RunStatus] = {status: status for status in get_args(RunStatus)}


class LogEvents:
    """Follows a log, from its beginning or from a snapshot.

    Attributes:
        engine: what the events have led to so far.
    """

    def __init__(self) -> None:
        self.engine = Engine()
        self.engine.is_canonical = True

    def read(self, line: bytes, cursor: str | None = None, *, is_snapshot: bool = False) -> Iterator[Event]:
        """The events of one entry. An application's own event whose class this process has not declared is left out."""
        try:
            events = codec.snapshot_from(line).events if is_snapshot else [codec.decode_event(line)]
        except ValueError:
            return
        for event in events:
            event.position = cursor
            yield from self.complete(event)

    def complete(self, event: Event) -> Iterator[Event]:
        """An event of a complete stream, and what belongs before it where an entry is missing."""
        match event:
            case RunDone(run=run):
                for _ in self.engine.complete([event]):
                    pass
                yield from self.engine.end(run.status)
            case StreamException() | StreamTimeout():
                yield event
            case StreamEnd(status=status):
                if self.engine.runs.run is not None:  # a snapshot that stands for the run's end does not have it
                    yield from self.engine.end(_STATUSES.get(status))
                yield event
            case _:
                yield from self.engine.complete([event])
