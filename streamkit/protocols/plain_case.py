"""Readers of the plain case: of a protocol's commonest item, as bytes, as a dict, or as a typed object of an SDK.

All three go through the same struct. A reader raises for any other item; what it raises is of no interest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, reduce
from typing import Any, NamedTuple, TypeAlias

import msgspec

from ..messages.sdk_objects import json_writer
from ..messages.typed_json import converter, decoder

__all__ = ["NO_PLAIN_ITEM", "PlainReaders", "plain_readers"]


class PlainReaders(NamedTuple):
    """The readers of a protocol's plain items.

    Attributes:
        text: reads the JSON text of an item without an event name.
        named: read the JSON text of an item, by its event name.
        item: reads an item that is parsed already.
    """

    text: Callable[[bytes], Any]
    named: Mapping[bytes, Callable[[bytes], Any]]
    item: Callable[[Any], Any]


_Struct: TypeAlias = type[msgspec.Struct]


def plain_readers(plain_item: _Struct | Mapping[str, _Struct] | None) -> PlainReaders:
    """Return the readers of a decoder with this `plain_item`."""
    return _readers(tuple(plain_item.items()) if isinstance(plain_item, Mapping) else plain_item)


def _no_plain_item(item: Any) -> Any:
    raise LookupError("there is no plain case of such items")


NO_PLAIN_ITEM = PlainReaders(_no_plain_item, {}, _no_plain_item)
"""The readers of a protocol without a plain case."""

_check_encodable = msgspec.json.Encoder().encode


@cache
def _readers(kind: _Struct | tuple[tuple[str, _Struct], ...] | None) -> PlainReaders:
    if kind is None:
        return NO_PLAIN_ITEM
    if not isinstance(kind, tuple):
        text = decoder(kind).decode
        return PlainReaders(text, {b"": text}, _item_reader(kind))
    named = {name.encode(): decoder(struct).decode for name, struct in kind}
    return PlainReaders(_no_plain_item, named, _wrapped_reader(kind))


def _wrapped_reader(kinds: Iterable[tuple[str, _Struct]]) -> Callable[[Any], Any]:
    """As `_item_reader`, of items `{"event": name, "data": …}`: reads the data as the struct of the name."""
    wrapped: list[Any] = [
        msgspec.defstruct("Wrapped", [("data", struct)], tag_field="event", tag=name, gc=False)
        for name, struct in kinds
    ]
    read = _item_reader(reduce(lambda one, other: one | other, wrapped))
    return lambda item: read(item).data


def _item_reader(struct: Any) -> Callable[[Any], Any]:
    """Return a function that reads an item as this struct: a dict, or a typed object of an SDK as its JSON text.

    It raises where the reader of the item's JSON text would: also for half of a surrogate pair, which no bytes have. (An object
    in a dict that is a mapping but no dict is read by the names of the struct's attributes as well: these are to be names that
    no provider has.)
    """
    # msgspec looks through the structs of a union at each conversion, but through those of a field once.
    holder: Any = msgspec.defstruct("Holder", [("item", struct)])
    convert, decode = converter(holder), decoder(struct).decode

    def read(item: Any) -> Any:
        if item.__class__ is not dict:
            return decode(json_writer(item.__class__)(item, by_alias=True, exclude_none=True, warnings=False))
        found = convert({"item": item}).item
        _check_encodable(found)
        return found

    return read
