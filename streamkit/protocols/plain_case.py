"""Readers of the plain case: of a protocol's commonest item, as bytes, as a dict, or as a typed object of an SDK.

All three go through the same struct. A reader raises for any other item; what it raises is of no interest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeAlias, get_args

import msgspec

from ..messages.sdk_objects import Nesting, fields_of, open_model
from ..messages.typed_json import converter, decoder

__all__ = ["NO_PLAIN_ITEM", "PlainReaders", "plain_readers"]


class PlainReaders(NamedTuple):
    """What reads the plain items of a protocol.

    Attributes:
        text: reads the JSON text of an item without an event name.
        named: what reads the JSON text of an item, by its event name.
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
    if isinstance(kind, tuple):
        named = {name.encode(): decoder(struct).decode for name, struct in kind}
        return PlainReaders(_no_plain_item, named, _wrapped_reader(dict(kind)))
    text = decoder(kind).decode
    return PlainReaders(text, {b"": text}, _item_reader(kind))


def _item_reader(struct: _Struct) -> Callable[[Any], Any]:
    """Return a function that reads an item as this struct: a dict, or a typed object of an SDK.

    It raises where the reader of the item's JSON text would: also for half of a surrogate pair, which no bytes have. (An object
    in it that is a mapping but no dict is read by the names of the struct's attributes as well: these are to be names that no
    provider has.)
    """
    convert, nesting = converter(struct), _nesting(struct)

    def read(item: Any) -> Any:
        found = convert(item if item.__class__ is dict else _opened(item, nesting))
        _check_encodable(found)
        return found

    return read


def _wrapped_reader(structs: Mapping[str, _Struct]) -> Callable[[Any], Any]:
    """As `_item_reader`, of items `{"event": name, "data": …}`: reads the data as the struct of the name."""
    readers = {name: _item_reader(struct) for name, struct in structs.items()}

    def read(item: Any) -> Any:
        is_dict = item.__class__ is dict
        fields = item if is_dict else fields_of(item)
        data = fields["data"]
        if is_dict and data.__class__ is not dict:
            raise TypeError("an object in a dict is opened first")
        return readers[fields["event"]](data)

    return read


def _nesting(struct: _Struct) -> Nesting:
    """Return the fields of a struct that hold further structs, or tuples of them, each with the nesting of these."""
    found: dict[str, dict[str, Any]] = {}
    for field in (field for kind in _structs_in(struct) for field in msgspec.structs.fields(kind)):
        if inner := _structs_in(field.type):
            found[field.encode_name] = {key: value for one in inner for key, value in _nesting(one).items()}
    return found


def _structs_in(kind: Any) -> list[_Struct]:
    if isinstance(kind, type):
        return [kind] if issubclass(kind, msgspec.Struct) else []
    return [found for argument in get_args(kind) for found in _structs_in(argument)]


def _opened(item: Any, nesting: Nesting) -> dict[str, Any]:
    fields = open_model(item, nesting)
    if fields.__class__ is dict:
        return fields
    raise TypeError("expected a JSON object")
