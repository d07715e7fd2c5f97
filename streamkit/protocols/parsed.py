"""Items that are parsed already, read by the typed structs that the fast paths of bytes have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ..messages.sdk_objects import Nesting, open_model

__all__ = ["item_reader"]

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
