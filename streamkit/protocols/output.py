"""The output of a decoder for one item: its events, then the warnings about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..events import Event, MetadataHeld, RawEvent, StreamWarning
from ..messages.json_text import held_size

__all__ = ["Output"]

_REPORTED_SIZE = 4096  # characters


class Output:
    """Takes the events and the warnings of the present item. The parts of a decoder share one, so that none of them refers to the
    decoder itself.

    Args:
        kind: the item's type, as warnings have it; None for none.

    Attributes:
        item: the present item, for raw events.
        events: those of the present item so far.
        emit: reports an event.
        reports: warnings, and sizes of what is held, which come after the events.
    """

    __slots__ = ("_held", "_kind", "emit", "events", "item", "reports")

    def __init__(self, kind: str | None) -> None:
        self.item: Any = None
        self.events: list[Event] = []
        self.emit: Callable[[Event], None] = self.events.append
        self._kind = kind
        self.reports: list[Event] = []
        self._held = 0

    def begin(self, item: Any) -> None:
        """Begin with an item. What there is of one that could not be read to its end is dropped."""
        self.item = item
        self.events.clear()

    def warn(self, code: str, fault: str) -> None:
        """Report a fault of the present item, as `Decoder.warn` does."""
        self.reports.append(StreamWarning(code, fault, None, self._kind))

    @property
    def has_warnings(self) -> bool:
        """Whether there are warnings about the present item."""
        return any(isinstance(event, StreamWarning) for event in self.reports)

    def hold(self, message_id: str | None, value: object) -> None:
        """Count a value that is held until this message is done; None for one of no open message. Sizes are reported together,
        some kilobytes at a time."""
        self._held += held_size(value)
        if self._held > _REPORTED_SIZE:
            self.reports.append(MetadataHeld(message_id, self._held))
            self._held = 0

    def emit_raw(self, name: str) -> None:
        """Report that no event expresses what stands at a place of the present item."""
        self.events.append(RawEvent(name, self.item))

    def take(self, index: int) -> list[Event]:
        """Everything about the present item, which has this index."""
        self.item = None
        events = [*self.events]
        self.events.clear()
        if self.reports:
            for event in self.reports:
                if isinstance(event, StreamWarning):
                    event.index = index
            events += self.reports
            self.reports = []
        return events
