"""Items that are parsed already: they are read as the typed structs that the fast paths have for bytes, or encoded as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ..messages.sdk_objects import Nesting, open_model
from .values import containers_in

__all__ = ["item_reader", "plain_json"]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_are_text = frozenset({str}).issuperset
# Whether all of some classes are those of JSON values; the exact ones leave out float, for it may be NaN.
_are_exact = frozenset({str, int, bool, type(None), dict, list}).issuperset
_are_plain = frozenset({str, int, bool, type(None), dict, list, float}).issuperset

_NO_NESTING: Nesting = {}


def item_reader(struct: Any, nesting: Nesting = _NO_NESTING) -> Callable[[Any], Any]:
    """A function that reads an item as this struct: a dict, or a typed object of an SDK.

    It raises where `msgspec.json.decode` would for the item's JSON text. Beyond that it accepts text with half of a
    surrogate pair. (An object in it that is a mapping but no dict is read by the names of the struct's attributes as well:
    these are to be names that no provider has.)

    Args:
        struct: the struct; or a dict of structs by the `type` of an item, in place of a union, which msgspec would build anew
            for each item.
        nesting: where the struct has structs in it.
    """
    convert = msgspec.convert

    def read(item: Any) -> Any:
        if item.__class__ is not dict:
            item = _opened(item, nesting)
        return convert(item, struct)

    def read_tagged(item: Any) -> Any:
        if item.__class__ is not dict:
            item = _opened(item, nesting)
        return convert(item, struct[item["type"]])

    return read_tagged if isinstance(struct, dict) else read


def _opened(item: Any, nesting: Nesting) -> dict[str, Any]:
    fields = open_model(item, nesting)
    if fields.__class__ is dict:
        return fields
    raise msgspec.ValidationError("it is no object of JSON")


def plain_json(item: Any) -> bytes | None:
    """The JSON text of an item; decoding it gives equal values of the same classes. None if there is no such text, or if the
    item has so many objects and lists that it may be nested too deep."""
    containers = containers_in(item) if item.__class__ is dict else None
    if containers is None:
        return None
    has_floats = False
    for values in containers:
        if values.__class__ is dict:
            if not _are_text(map(type, values)):
                return None
            values = values.values()
        if not _are_exact(map(type, values)):
            if not _are_plain(map(type, values)):
                return None
            has_floats = True
    try:
        text = _encode(item)
    except ValueError:  # half of a surrogate pair, or a number that is too large
        return None
    return None if has_floats and _decode(text) != item else text  # NaN and infinities are encoded as null
