"""Resuming after a cursor: what comes before it rebuilds the state silently, then what is open is emitted again.

The run and its step are emitted again, an open message as created plus one delta with all of its content so far, and
each pending confirmation. What ended before the cursor is in `messages`, and is not emitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..errors import UsageError
from ..events import (
    ActiveLine,
    AnnotationAdded,
    ConfirmationCreated,
    Created,
    Delta,
    Done,
    Event,
    RunCreated,
    RunDone,
    RunStepCreated,
    StreamRetry,
    StreamWarning,
)
from .engine import Engine
from .snapshot import Snapshot, events_so_far

# Import `Snapshot` from here where an engine completes it: this module registers how.
__all__ = ["Resumption", "Snapshot"]


class ResumePoint(Event):
    """Makes the engine emit again what is open. It is not an event of streams."""


def _emit_open(engine: Engine, event: Event) -> Iterator[Event]:
    """Yield the events that re-create what is open: the run, its step, its messages and confirmations. Nothing of a run
    whose end was delivered."""
    position = event.position
    engine.ends_before = frozenset(engine.source_ends)
    if RunDone in engine.ends_before:
        return
    if engine.runs.run is not None:
        yield RunCreated(engine.runs.run, position=position)
    if engine.runs.step is not None:
        yield RunStepCreated(engine.runs.step, position=position)
    for message in engine.messages.open:
        yield from events_so_far(message, position)
    for confirmation in engine.pending.undecided:
        yield ConfirmationCreated(confirmation, position=position)


def _catch_up(engine: Engine, snapshot: Snapshot) -> Iterator[Event]:
    """Yield the events that are missing between an engine's state and that of a snapshot."""
    for event in snapshot.events:
        event.position = snapshot.position
        match event:
            case Delta():
                yield from _extend(engine, event.message_id, event.value, snapshot)
                continue
            case Done(message=message):
                yield from _extend(engine, message.id, message.content, snapshot)
            case _ if _has(engine, event):
                continue
            case _:
                pass
        yield from engine.complete_event(event)
    if snapshot.dropped:
        fault = f"the log has dropped its oldest events: {snapshot.dropped} messages and other events are missing"
        yield engine.warning_list.add_checked(StreamWarning("dropped", fault, position=snapshot.position))


def _has(engine: Engine, event: Event) -> bool:
    match event:
        case Created(message=message):
            return engine.messages.get(message.id) is not None
        case ConfirmationCreated(confirmation=confirmation):
            return any(confirmation.id == one.id for one in engine.pending.confirmations)
        case StreamRetry():  # whoever has none of its messages has nothing to take back
            engine.messages.note_retry(event)
            return not any(message.id in event.withdrawn for message in engine.messages.all)
        case StreamWarning():
            return engine.warning_list.has_fault(event.fault)
        case AnnotationAdded() | ActiveLine():
            return engine.messages.open_by_id.get(event.message_id) is None
        case _:
            return False


def _extend(engine: Engine, id: str, content: str, cause: Event) -> Iterator[Event]:
    """Yield what a snapshot has of an open message beyond its content here."""
    message = engine.messages.open_by_id.get(id)
    if message is None or message.content == content:
        return
    adds = content.startswith(message.content)
    value = content[len(message.content) :] if adds else content
    yield from engine.complete_event(message.delta_event(id, value, not adds, position=cause.position))


Engine.completions[ResumePoint] = _emit_open
Engine.completions[Snapshot] = _catch_up


class Resumption:
    """Drops the events of a source up to a cursor, from which the engine rebuilds its state."""

    def __init__(self, after: str, engine: Engine) -> None:
        self._after = after
        self._engine = engine
        self._over = False

    def feed(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return the events that are still to be delivered. Those up to the cursor go into the engine alone."""
        if self._over:
            return events
        start = max((number for number, event in enumerate(events, 1) if event.cursor == self._after), default=None)
        if start is None:
            gaps = (number for number, event in enumerate(events) if type(event) is Snapshot and event.is_gap)
            start = next(gaps, None)
        for _ in self._engine.complete(events if start is None else events[:start]):
            pass  # silently
        if start is None:
            return []
        self._over = True
        return [ResumePoint(position=self._after), *events[start:]]

    def finish(self) -> None:
        """Check that the cursor came before the source's end.

        Raises:
            UsageError: the cursor was not in it.
        """
        if not self._over:
            raise UsageError(
                f"the source has ended, and nothing in it had the cursor {self._after!r}; with `after=` a source is read from "
                "its beginning, so do not ask a server to leave that out, as by Last-Event-ID"
            )
