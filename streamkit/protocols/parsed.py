"""Items that are parsed already, read as the typed structs that plain cases have for bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

import msgspec

from ..messages.sdk_objects import Nesting, open_model
from ..messages.typed_json import converter

__all__ = ["item_reader"]


def item_reader(struct: type[msgspec.Struct] | Mapping[str, type[msgspec.Struct]]) -> Callable[[Any], Any]:
    """A function that reads an item as this struct: a dict, or a typed object of an SDK.

    It raises where `msgspec.json.decode` would for the item's JSON text. Beyond that it accepts text with half of a
    surrogate pair. (An object in it that is a mapping but no dict is read by the names of the struct's attributes as well:
    these are to be names that no provider has.)

    Args:
        struct: the struct; or a dict of structs by the `type` of an item, in place of a union, which msgspec would build anew
            for each item.
    """
    if isinstance(struct, Mapping):
        by_type, nesting = {name: converter(one) for name, one in struct.items()}, _nesting([*struct.values()])

        def read_by_type(item: Any) -> Any:
            fields = item if item.__class__ is dict else _opened(item, nesting)
            return by_type[fields["type"]](fields)

        return read_by_type
    convert, nesting = converter(struct), _nesting([struct])
    return lambda item: convert(item if item.__class__ is dict else _opened(item, nesting))


def _nesting(structs: list[Any]) -> Nesting:
    """The fields of structs that hold further structs, or tuples of them, each with the nesting of these."""
    fields = [field for struct in structs for field in msgspec.structs.fields(struct)]
    inner = {field.encode_name: _structs_in(field.type) for field in fields}
    return {name: _nesting(found) for name, found in inner.items() if found}


def _structs_in(kind: Any) -> list[Any]:
    if isinstance(kind, type):
        return [kind] if issubclass(kind, msgspec.Struct) else []
    return [found for argument in get_args(kind) for found in _structs_in(argument)]


def _opened(item: Any, nesting: Nesting) -> dict[str, Any]:
    fields = open_model(item, nesting)
    if fields.__class__ is dict:
        return fields
    raise msgspec.ValidationError("it is no object of JSON")
