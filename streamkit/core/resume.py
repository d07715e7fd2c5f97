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
    StreamWarning,
)
from .engine import Engine
from .snapshot import Snapshot, events_so_far

__all__ = ["ResumableEngine", "Resumption"]


class Retell(Event):
    """Not an event of streams: it makes the engine emit again what is open."""


class ResumableEngine(Engine):
    """An engine that emits again what is open, where `Retell` stands among the events, and catches up with a `Snapshot`."""

    def complete_event(self, event: Event) -> Iterator[Event]:
        """As `Engine.complete_event`; in place of `Retell` come the events of what is open, in place of a `Snapshot` those
        that are missing here."""
        if type(event) is Retell:
            return self.emit_open(event.position)
        return self.catch_up(event) if type(event) is Snapshot else super().complete_event(event)

    def catch_up(self, snapshot: Snapshot) -> Iterator[Event]:
        """The events that are missing between this state and that of a snapshot."""
        for event in snapshot.events:
            event.position = snapshot.position
            match event:
                case Delta():
                    yield from self._extend(event.message_id, event.value, snapshot)
                    continue
                case Done(message=message):
                    yield from self._extend(message.id, message.content, snapshot)
                case _ if self._is_known(event):
                    continue
                case _:
                    pass
            yield from super().complete_event(event)
        if snapshot.dropped:
            fault = f"the log has dropped its oldest events: {snapshot.dropped} messages and other events are missing"
            yield self._warn("dropped", fault, snapshot)

    def _is_known(self, event: Event) -> bool:
        match event:
            case Created(message=message):
                return message.id in self._by_id
            case ConfirmationCreated(confirmation=confirmation):
                return any(confirmation.id == one.id for one in self.confirmations)
            case StreamWarning():
                return self.warning_list.has_fault(event.fault)
            case AnnotationAdded() | ActiveLine():
                return self.find_open(event.message_id) is None
            case _:
                return False

    def _extend(self, id: str, content: str, cause: Event) -> Iterator[Event]:
        """What an open message has more in a snapshot."""
        message = self.find_open(id)
        if message is None or message.content == content:
            return
        adds = content.startswith(message.content)
        value = content[len(message.content) :] if adds else content
        message_delta = message.delta_event(id, value, not adds, position=cause.position)
        yield from super().complete_event(message_delta)

    def emit_open(self, position: int | str | None) -> Iterator[Event]:
        """The events that re-create what is open: the run, its step, its messages and confirmations. Nothing of a run
        whose end was delivered."""
        self.ends_before = frozenset(self.source_ends)
        if RunDone in self.ends_before:
            return
        if self.runs.run is not None:
            yield RunCreated(self.runs.run, position=position)
        if self.runs.step is not None:
            yield RunStepCreated(self.runs.step, position=position)
        for message in [message for message in self.messages if message.status == "in_progress"]:
            yield from events_so_far(message, position)
        for confirmation in self.pending_confirmations:
            yield ConfirmationCreated(confirmation, position=position)


class Resumption:
    """What a source still has after a cursor."""

    def __init__(self, after: str, engine: Engine) -> None:
        self._after = after
        self._engine = engine
        self._over = False

    def feed(self, events: Sequence[Event]) -> Sequence[Event]:
        """The events that are still to be delivered. Those up to the cursor go into the engine alone."""
        if self._over:
            return events
        place = max((number for number, event in enumerate(events, 1) if event.cursor == self._after), default=None)
        if place is None:
            gaps = (number for number, event in enumerate(events) if type(event) is Snapshot and event.is_gap)
            place = next(gaps, None)
        for _ in self._engine.complete(events if place is None else events[:place]):
            pass  # silently
        if place is None:
            return []
        self._over = True
        return [Retell(position=self._after), *events[place:]]

    def finish(self) -> None:
        """The source is at its end.

        Raises:
            UsageError: the cursor was not in it.
        """
        if not self._over:
            raise UsageError(f"the source has ended, and nothing in it had the cursor {self._after!r}")
