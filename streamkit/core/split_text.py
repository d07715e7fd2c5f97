"""Text that was cut between the two halves of a surrogate pair, as servers do that cut UTF-16.

A decoder wraps such a delta as a `SplitDelta`. The engine holds the first half until the second one comes, and emits them
as one character. A half that stays alone becomes U+FFFD, as does each half in any event but a delta.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from ..events import Delta, Event
from ..messages import Message
from ..messages.json_text import has_surrogates, is_nested_too_deep, well_formed

__all__ = ["SplitDelta", "split_deltas", "split_or_whole", "whole_event", "with_text"]

S = TypeVar("S", bound=msgspec.Struct)


class SplitDelta(Event, kw_only=False):
    """A delta whose text begins or ends with half of a surrogate pair. It is not an event of streams.

    Attributes:
        delta: the delta.
        text: its text with the halves.
    """

    delta: Delta
    text: str


def split_deltas(events: Iterable[Event], halves: Mapping[str, str]) -> list[Event]:
    """Return the events of an item, with the deltas wrapped that have one of these texts, which are in
    `Lenient.halves`."""
    return [
        SplitDelta(event, halves[event.value])
        if isinstance(event, Delta) and event.value in halves and not event.replace
        else event
        for event in events
    ]


def with_text(event: SplitDelta, text: str) -> Delta:
    """Return the delta with this text, which has no halves, for code that reads single deltas."""
    return msgspec.structs.replace(
        event.delta,
        value=text,
        position=event.position,
        raw_item=event.raw_item,
        item_index=event.item_index,
    )


def split_or_whole(event: Event) -> Event:
    """Return an event that was made in this process as a decoder would report it: halves in a delta's text may be
    joined."""
    if not isinstance(event, Delta):
        return whole_event(event)
    return SplitDelta(event, event.value, position=event.position) if has_surrogates(event.value) else event


def whole_event(event: Event) -> Event:
    """Return an event that is not a delta; a copy with U+FFFD if a text in it has half of a surrogate pair."""
    return _whole_struct(event)


# What stays as it is: ids, by which deltas find their messages, and what no encoder writes.
_LEFT = frozenset(
    ("id", "message_id", "raw_item", "item_index", "position", "snapshot", "exception", "pieces", "answer_slot", "raw")
)


def _whole(value: Any) -> Any:
    """Return the value; a copy with U+FFFD if a text in it has half of a surrogate pair."""
    match value:
        case str():
            return well_formed(value).value if has_surrogates(value) else value
        case Message():
            return _whole_message(value)
        case msgspec.Struct():
            return _whole_struct(value)
        case list() | Mapping() if value and not is_nested_too_deep(value):
            return _whole_values(value)  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return value


def _whole_struct(value: S) -> S:
    changes = _changes(value, value.__struct_fields__)
    return msgspec.structs.replace(value, **changes) if changes else value


def _whole_message(message: Message) -> Message:
    slots = [key for kind in type(message).__mro__ for key in getattr(kind, "__slots__", ()) if key[0] != "_"]
    changes = _changes(message, slots)
    content = _whole(message.content)
    if not changes and content is message.content:
        return message
    copy = message.copy()
    for key, value in changes.items():
        setattr(copy, key, value)
    copy.replace_content(content)
    return copy


def _changes(value: Any, keys: Iterable[str]) -> dict[str, Any]:
    """Return the attributes of a value that have to be replaced."""
    values = ((key, getattr(value, key)) for key in keys if key not in _LEFT)
    return {key: clean for key, one in values if (clean := _whole(one)) is not one}


def _whole_values(values: Any) -> Any:
    """As `_whole`, for parsed JSON, or a list of structs."""
    structs: list[Any] = [_whole(one) if isinstance(one, msgspec.Struct) else one for one in values]
    if [*map(id, structs)] != [*map(id, values)]:  # so `values` is a list: the keys of an object are not structs
        return structs
    clean = well_formed(values)
    return clean.value if clean.lost or clean.halves else values
