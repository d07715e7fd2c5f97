"""Text that was cut between the two halves of a surrogate pair, as servers do that cut UTF-16.

A decoder wraps such a delta as a `SplitDelta`. The engine holds the first half until the second one comes, and emits them
as one character. A half that stays alone is U+FFFD.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ..events import Delta, Event

__all__ = ["SplitDelta", "split_deltas", "without_split_deltas"]


class SplitDelta(Event, kw_only=False):
    """Not an event of streams: a delta whose text begins or ends with half of a surrogate pair.

    Attributes:
        delta: the delta.
        text: its text with the halves.
    """

    delta: Delta
    text: str


def split_deltas(events: Iterable[Event], halves: Mapping[str, str]) -> list[Event]:
    """Events of an item, with the deltas wrapped that have one of these texts. `Lenient.halves` says how they were."""
    return [
        SplitDelta(event, halves[event.value])
        if isinstance(event, Delta) and event.value in halves and not event.replace
        else event
        for event in events
    ]


def without_split_deltas(events: Iterable[Event]) -> list[Event]:
    """Events with U+FFFD for each half, for those who read single deltas."""
    return [_delta(event) if isinstance(event, SplitDelta) else event for event in events]


def _delta(event: SplitDelta) -> Delta:
    return msgspec.structs.replace(
        event.delta,
        value=event.text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"),
        position=event.position,
        raw_item=event.raw_item,
        item_index=event.item_index,
    )
