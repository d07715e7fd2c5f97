"""A snapshot of a run: the events that re-create what was open at one point of its log.

It is made by folding the events up to that point, one after the other. It holds the run, its step, its usage, what still
waits for an answer, and the messages that are open, each as created plus one delta. A message that has ended is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..core.resume import events_so_far
from ..events import (
    ActiveLine,
    AnnotationAdded,
    ConfirmationCreated,
    ConfirmationDone,
    Created,
    Delta,
    Done,
    Event,
    RunCreated,
    RunStepCreated,
    RunStepDone,
    StreamWarning,
    Usage,
)
from ..messages import ConsoleMessage, Message, TextMessage
from .stored import for_reader, is_question, stored

if TYPE_CHECKING:
    from .reader import Reading

__all__ = ["Snapshot"]


class Snapshot:
    """What the first `dropped` events of a run led to.

    Attributes:
        dropped: the number of the last event that was folded.
        ended: how many messages have ended, and are gone.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self.ended = 0
        self._run: dict[type[Event], Event] = {}  # the newest of each: the run, its step, its usage
        self._messages: dict[str, Message] = {}
        self._calls: dict[str, Event] = {}
        self._confirmations: dict[str, Event] = {}

    def fold(self, event: Event, number: int) -> None:
        """Take in the next stored event."""
        self.dropped = number
        match event:
            case Delta() | AnnotationAdded() | ActiveLine():
                if (message := self._messages.get(event.message_id)) is not None:
                    _update(message, event)
            case Created(message=message):
                self._messages[message.id] = message.header()
                if message.call_id is not None and message.role == "computer":  # it answers the call
                    self._calls.pop(message.call_id, None)
            case Done(message=message):
                self._messages.pop(message.id, None)
                self.ended += 1
                if is_question(event):
                    self._calls[message.call_id or message.id] = event
            case RunCreated() | RunStepCreated() | Usage():
                self._run[type(event)] = event
            case RunStepDone():
                self._run.pop(RunStepCreated, None)
            case ConfirmationCreated(confirmation=confirmation):
                self._confirmations[confirmation.id] = event
            case ConfirmationDone(confirmation=confirmation):
                self._confirmations.pop(confirmation.id, None)
            case _:
                pass

    def events(self, position: str, reading: Reading | None = None) -> list[Event]:
        """The events that re-create what was open, all with the cursor `position`."""
        return [for_reader(replace(event, position=position), reading) for event in self._events()]

    def _events(self) -> Iterator[Event]:
        yield from (self._run[kind] for kind in (RunCreated, RunStepCreated) if kind in self._run)
        yield from self._calls.values()
        for message in self._messages.values():
            yield from map(stored, events_so_far(message.copy(), None))
        yield from self._confirmations.values()
        yield from (self._run[kind] for kind in (Usage,) if kind in self._run)

    def warning(self, run_id: str) -> StreamWarning:
        """The warning that events are missing; a strict stream raises it."""
        fault = (
            f"the log of run {run_id!r} has dropped its first {self.dropped} events; {self.ended} messages that ended "
            "in them are missing"
        )
        return StreamWarning("dropped", fault)


def _update(message: Message, event: Delta | AnnotationAdded | ActiveLine) -> None:
    """Apply an event to an open message."""
    match event:
        case Delta(replace=True):
            message.replace_content(event.value)
        case Delta():
            message.pieces.append(event.value)
            message.compact()
        case AnnotationAdded() if isinstance(message, TextMessage):
            message.annotations.append(event.annotation)
        case ActiveLine() if isinstance(message, ConsoleMessage):
            message.active_line = event.line
        case _:
            pass
