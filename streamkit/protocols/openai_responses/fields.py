"""Reads the plain fields of an event, an item or a response: ids, indexes, statuses and times.

One call of msgspec reads all of them. If a value has the wrong type, they are read one by one instead, and that value counts as
absent.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

from ...messages.typed_json import converter
from ..values import LARGEST_COUNT, WireObject, as_count

__all__ = ["NO_FIELDS", "EventFields", "ObjectFields", "index_reader", "read_event", "read_object"]

Text: TypeAlias = str | None
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_COUNT)] | None
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=LARGEST_COUNT)] | None  # 0 where a server has no time


class EventFields(msgspec.Struct, gc=False):
    """The type of an event, and the part of the item that it is about."""

    type: Text = None
    sequence_number: Count = None
    item_id: Text = None
    output_index: Count = None
    content_index: Count = None
    summary_index: Count = None
    command_index: Count = None


class ObjectFields(msgspec.Struct, gc=False):
    """The fields that an item, or a response, has of its own."""

    id: Text = None
    type: Text = None
    status: Text = None
    role: Text = None
    name: Text = None
    call_id: Text = None
    model: Text = None
    created_at: Seconds = None
    completed_at: Seconds = None


NO_FIELDS = ObjectFields()
"""The fields of an item about which nothing was stated."""


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _seconds(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and 0 <= value < LARGEST_COUNT else None


_READERS: dict[str, Callable[[Any], Any]] = {"Text": _text, "Count": as_count, "Seconds": _seconds}

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def _reader(struct: type[_Struct]) -> Callable[[WireObject], _Struct]:
    """Return a function that reads the fields of this struct from an object. It never raises."""
    readers = {name: _READERS[kind] for name, kind in struct.__annotations__.items()}
    convert = converter(struct)

    def read(wire: WireObject) -> _Struct:
        try:
            return convert(wire)
        except Exception:  # a value of another type, or one in which looking fails
            return struct(**{name: read_value(wire.get(name)) for name, read_value in readers.items()})

    return read


def index_reader(key: str) -> Callable[[EventFields], int | None]:
    """Return a function that returns an event's index at this key; None if the key is ""."""
    return attrgetter(key) if key else lambda fields: None


read_event = _reader(EventFields)
read_object = _reader(ObjectFields)
