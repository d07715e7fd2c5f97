"""Going on after a cursor: what comes before it is taken in silently, then what is open is told as if it began there.

The run and its step are told again, a message that is open as created plus one delta of all so far, a confirmation that
waits as asked. What ended before the cursor is in `messages`, and is not told.
"""

# pyright: reportPrivateUsage=false
# Messages are emptied and filled here, as the engine does; their underscores keep users from writing.

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..answers import Confirmation
from ..errors import UsageError
from ..events import ActiveLine, AnnotationAdded, ConfirmationCreated, Event, RunCreated, RunStepCreated
from ..messages import Annotation, ConsoleMessage, Message, TextMessage, append_piece, replace_content
from .engine import Engine

__all__ = ["ResumableEngine", "Resumption", "events_so_far"]


class ResumableEngine(Engine):
    """An engine that can tell again what is open. A bare `Event` asks for it."""

    def complete_event(self, event: Event) -> Iterator[Event]:
        return self._retold(event.position) if type(event) is Event else super().complete_event(event)

    def _retold(self, position: int | str | None) -> Iterator[Event]:
        if self.runs.run is not None:
            yield RunCreated(self.runs.run, position=position)
        if self.runs.step is not None:
            yield RunStepCreated(self.runs.step, position=position)
        for message in [one for one in self.messages if one.status == "in_progress"]:
            yield from events_so_far(message, position)
        for asked in [one for one in self.pending.values() if isinstance(one, Confirmation)]:
            yield ConfirmationCreated(asked, position=position)


def events_so_far(message: Message, position: int | str | None) -> Iterator[Event]:
    """The events that re-create an open message. It is emptied first, and has its content again after the last one."""
    content = message.content
    replace_content(message, "")
    annotations: list[Annotation] = []
    line = message.active_line if isinstance(message, ConsoleMessage) else None
    if isinstance(message, TextMessage):
        annotations, message.annotations = [*message.annotations], []
    if isinstance(message, ConsoleMessage):
        message.active_line = None
    yield message.created_event(message, position=position)
    if content:
        append_piece(message, content)
        yield message.delta_event(message.id, content, snapshot=message, position=position)
    if isinstance(message, TextMessage):
        for annotation in annotations:
            message.annotations.append(annotation)
            yield AnnotationAdded(message.id, annotation, message, position=position)
    if isinstance(message, ConsoleMessage) and line is not None:
        message.active_line = line
        yield ActiveLine(message.id, line, message, position=position)


class Resumption:
    """What is left of a source after a cursor."""

    def __init__(self, after: str, engine: Engine) -> None:
        self._after = after
        self._engine = engine
        self._over = False

    def feed(self, events: Sequence[Event]) -> Sequence[Event]:
        """What an engine is still to be told of these events. What comes before the cursor, it has taken in."""
        if self._over:
            return events
        place = max((n for n, event in enumerate(events, 1) if event.cursor == self._after), default=0)
        for _ in self._engine.complete(events[:place] if place else events):
            pass  # silently
        if not place:
            return []
        self._over = True
        return [Event(position=self._after), *events[place:]]

    def finish(self) -> None:
        """The source is at its end.

        Raises:
            UsageError: the cursor was not in it.
        """
        if not self._over:
            raise UsageError(f"the source has ended, and nothing in it had the cursor {self._after!r}")
