"""The items of an iterable, converted to batches that a decoder takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from ..events import EVENTS, Event
from ..messages.sdk_objects import as_item, is_helper_event, is_plain_model, without_helper
from ..protocols.frameworks.shape import framework_of
from .body import BodyJoiner, Piece, is_piece

__all__ = ["Batch", "Items", "batches_of", "is_parsed"]

Batch = Any  # bytes, a piece of a body, or a list of items; a tuple if all of them are dicts or plain models

_EVENTS = frozenset(EVENTS.values())
_TOGETHER = (
    256  # items of a list that are decoded at once: what is made of more would not stay in the processor's cache
)


@lru_cache(maxsize=1000)
def is_parsed(kind: type) -> bool:
    """Whether items of this class are objects of JSON that a decoder takes as they are."""
    return kind is dict or is_plain_model(kind)


def _item(value: Any) -> Any:
    """Return an item of an iterable in the form that a decoder takes: bytes, a mapping, an event or a plain model."""
    item: Any = value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(item)
    if isinstance(value, tuple):
        return list(item)  # only frames may be tuples; the decoder reports that a list is not an object
    if isinstance(value, Event) or is_plain_model(value.__class__) or framework_of(value) is not None:
        return item
    return as_item(item)  # of what has no dict the decoder reports that it is not an object


class Items(BodyJoiner):
    """Converts the items of one iterable for a decoder. Items of bytes or text together form one body, which it joins."""

    __slots__ = ()

    def _piece(self, item: bytes) -> bytes | Piece:
        body = self.feed(item)
        return body if body == item else Piece(item, body)

    def batch(self, value: Any) -> Batch:
        """Return the item as a batch of its own: bytes, a piece of the body, or a tuple or list of one object."""
        kind = value.__class__
        if is_parsed(kind):
            return (value,)
        if kind is bytes:
            return self._piece(value)
        if kind in _EVENTS:
            return [value]
        if is_helper_event(kind):
            return next((self.batch(chunk) for chunk in without_helper((value,))), ())
        if isinstance(value, str):
            return Piece(value, self.feed(value.encode("utf-8", "surrogatepass")))
        item = _item(value)
        return self._piece(item) if isinstance(item, bytes) else [item]


def batches_of(values: Sequence[Any]) -> Iterator[Batch]:
    """Return the batches of a list or tuple, whose items all exist already: few large ones, where all items are objects."""
    kinds = {*map(type, values)}
    if kinds and all(map(is_parsed, kinds)):
        taken = tuple(values)
        return (taken[start : start + _TOGETHER] for start in range(0, len(taken), _TOGETHER))
    if kinds and kinds <= _EVENTS:
        return iter([[*values]])
    if kinds == {bytes} and is_piece(values[0]):
        return iter([*values])  # pieces of a body, and nothing to be joined
    return map(Items().batch, values)
