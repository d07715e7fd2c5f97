"""The items of an iterable, converted to batches that a decoder takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..events import EVENTS, Event
from ..messages.sdk_objects import as_item, is_plain_model
from .body import BodyJoiner
from .live import ends_with_question
from .source import Batch

__all__ = ["Items", "batches_of"]


# What a decoder takes as it is. Most items are of these classes; the others are looked at one by one.
_TAKEN = frozenset((dict, *EVENTS.values()))


def _item(value: Any) -> Any:
    """An item of an iterable in the form that a decoder takes: bytes, a mapping, an event or a plain model."""
    item: Any = value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(item)
    if isinstance(value, tuple):
        return list(item)  # only frames may be tuples; the decoder reports that a list is no object
    if isinstance(value, Event) or is_plain_model(value.__class__):
        return item
    return as_item(item)  # of what has no dict the decoder reports that it is no object


class Items:
    """Converts the items of one iterable for a decoder. Items of bytes or text together form one body.

    Args:
        live: whether the iterable is a producer that continues only when it is pulled.

    Attributes:
        body: joins the items of bytes and text.
    """

    __slots__ = ("body",)

    def __init__(self, *, live: bool = False) -> None:
        self.body = BodyJoiner(ends_with_question if live else None)

    def item(self, value: Any) -> Any:
        """The item for a decoder: bytes of the body, or an object."""
        item = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else _item(value)
        return self.body.feed(item) if isinstance(item, bytes) else item

    def batch(self, value: Any) -> Batch:
        """The item as a batch of its own: bytes, or a list of one object."""
        if type(value) is bytes and self.body.is_plain:
            return value
        if type(value) in _TAKEN or is_plain_model(value.__class__):
            return [value]
        item = self.item(value)
        return item if isinstance(item, bytes) else [item]


def batches_of(values: Iterable[Any], *, live: bool = False) -> Iterator[Batch]:
    """The batches of an iterable: one for each item; few large ones of a list or tuple, whose items all exist already."""
    items = Items(live=live)
    if not isinstance(values, (list, tuple)):
        yield from map(items.batch, values)
        return
    kinds = {*map(type, values)}
    if values and all(kind in _TAKEN or is_plain_model(kind) for kind in kinds):
        yield [*values]
        return
    together: list[Any] = []
    only_bytes = kinds == {bytes}
    for place, value in enumerate(values):
        if only_bytes and items.body.is_plain:
            yield from values[place:]
            return
        item = items.item(value)
        if isinstance(item, bytes):
            if together:
                yield together
                together = []
            yield item
        else:
            together.append(item)
    if together:
        yield together
