"""Resuming after a cursor: what comes before it rebuilds the state silently, then what is open is emitted again.

The run and its step are emitted again, an open message as created plus one delta with all of its content so far, and
each pending confirmation. What ended before the cursor is in `messages`, and is not emitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..errors import UsageError
from ..events import ActiveLine, AnnotationAdded, ConfirmationCreated, Event, RunCreated, RunDone, RunStepCreated
from ..messages import Annotation, ConsoleMessage, Message, TextMessage
from .engine import Engine

__all__ = ["Resumption", "events_so_far"]


class Retell(Event):
    """Not an event of streams: it makes the engine emit again what is open."""


def _emit_open(engine: Engine, event: Event) -> Iterator[Event]:
    """The events that re-create what is open: the run, its step, its messages and confirmations. Nothing of a run whose
    end was delivered."""
    position = event.position
    engine.ends_before = frozenset(engine.source_ends)
    if RunDone in engine.ends_before:
        return
    if engine.runs.run is not None:
        yield RunCreated(engine.runs.run, position=position)
    if engine.runs.step is not None:
        yield RunStepCreated(engine.runs.step, position=position)
    for message in [message for message in engine.messages if message.status == "in_progress"]:
        yield from events_so_far(message, position)
    for confirmation in engine.pending_confirmations:
        yield ConfirmationCreated(confirmation, position=position)


Engine.completions[Retell] = _emit_open


def events_so_far(message: Message, position: int | str | None) -> Iterator[Event]:
    """The events that re-create an open message. It is emptied first, and has its content again after the last one."""
    content = message.content
    message.replace_content("")
    annotations: list[Annotation] = []
    line = message.active_line if isinstance(message, ConsoleMessage) else None
    if isinstance(message, TextMessage):
        annotations, message.annotations = [*message.annotations], []
    if isinstance(message, ConsoleMessage):
        message.active_line = None
    yield message.created_event(message, position=position)
    if content:
        message.pieces.append(content)
        yield message.delta_event(message.id, content, snapshot=message, position=position)
    if isinstance(message, TextMessage):
        for annotation in annotations:
            message.annotations.append(annotation)
            yield AnnotationAdded(message.id, annotation, message, position=position)
    if isinstance(message, ConsoleMessage) and line is not None:
        message.active_line = line
        yield ActiveLine(message.id, line, message, position=position)


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
        place = max((number for number, event in enumerate(events, 1) if event.cursor == self._after), default=0)
        for _ in self._engine.complete(events[:place] if place else events):
            pass  # silently
        if not place:
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
