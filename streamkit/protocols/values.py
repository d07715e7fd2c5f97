"""Readers of wire values, for every protocol: JSON as it was parsed, whatever it holds.

A provider, or a server that imitates one, may send any JSON at any place. No reader here raises. A value of another
type than the wanted one reads as if it were absent: "" for a text, {} for an object, () for a list, None for a number.
A decoder that wants to warn about such a value checks its type before it reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache
from itertools import compress, filterfalse, islice
from typing import Any, TypeAlias, TypeGuard

import msgspec

from ..errors import stated_message
from ..events import Usage
from ..messages import Annotation
from ..messages.json_text import MAX_NESTING, decode_json, is_nested_too_deep

__all__ = [
    "LARGEST_COUNT",
    "WireObject",
    "annotation_of",
    "as_count",
    "as_index",
    "as_list",
    "as_object",
    "as_objects",
    "as_seconds",
    "as_text",
    "containers_in",
    "error_item",
    "error_object",
    "is_list",
    "is_object",
    "json_text",
    "parse_json",
    "text_or_json",
    "text_or_none",
    "usage_of",
    "without",
    "without_keys",
]

WireObject: TypeAlias = Mapping[str, Any]
"""A JSON object as it was parsed."""

LARGEST_COUNT = 2**53
"""No counter of a real stream exceeds what every JSON reader can hold exactly."""

_COUNTS = range(LARGEST_COUNT + 1)
_LISTS: tuple[type[Any], ...] = (list, tuple)
_NUMBERS: tuple[type[Any], ...] = (int, float)
_is_container = frozenset({dict, list}).__contains__
_OTHER_JSON_TYPES = frozenset((str, int, float, bool, list, type(None)))


@cache
def _encoder() -> Callable[[Any], str]:
    import json  # seldom needed

    return json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode


# -- values of one type


def is_object(value: Any) -> TypeGuard[WireObject]:
    """Whether a wire value is an object. Its keys are text: JSON has no others."""
    # `isinstance` with an ABC is slow, so it comes last.
    return value.__class__ is dict or (type(value) not in _OTHER_JSON_TYPES and isinstance(value, Mapping))


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Whether a wire value is a list."""
    return isinstance(value, list)


def as_text(value: Any) -> str:
    """Return the value if it is text, else ""."""
    return value if isinstance(value, str) else ""


def text_or_none(value: Any) -> str | None:
    """Return the value if it is text and not empty, else None: for the fields of events and messages that may be
    None."""
    return value if isinstance(value, str) and value else None


def containers_in(item: dict[str, Any]) -> list[Any] | None:
    """Return the objects and lists in an item, and the item itself. None if there are so many that they may be nested
    too deep."""
    found: list[Any] = [item]
    for values in islice(found, MAX_NESTING):  # `found` grows in this loop
        if values.__class__ is dict:
            values = values.values()
        found += compress(values, map(_is_container, map(type, values)))
    return found if len(found) <= MAX_NESTING else None


def as_object(value: Any) -> WireObject:
    """Return the value if it is an object, else an empty one."""
    return value if value.__class__ is dict or is_object(value) else {}


def as_list(value: Any) -> Sequence[Any]:
    """Return the value if it is a list (or a tuple, from a producer in this process), else an empty one."""
    return value if isinstance(value, _LISTS) else ()


def as_objects(value: Any) -> list[WireObject]:
    """Return the elements of a list. Those that are not objects read as empty ones, so that the others keep their
    places."""
    return [as_object(element) for element in as_list(value)]


def as_count(value: Any) -> int | None:
    """Return the value if it is a whole number from 0 to `LARGEST_COUNT`, else None. True and False are not numbers."""
    return value if value.__class__ is int and value in _COUNTS else None


def as_seconds(value: Any) -> float | None:
    """Return the value if it is a time in seconds since 1970, else None. Many servers send 0 where they have no time:
    None."""
    return float(value) if value.__class__ in _NUMBERS and 0 < value <= LARGEST_COUNT else None


def as_index(value: Any, warn: Callable[[str, str], object]) -> int | None:
    """Return the value if it is an index from 0 on, in digits or with a fraction of 0 too; None if it is null or
    anything else.

    `warn` is called with a code and a fault where the value is neither an int nor null.
    """
    index: int | None
    if value.__class__ is int and value in _COUNTS:
        index = value
        return index
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        warn("bad-index", f"the index {value!r} is a string; it was read as a number")
        return int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    index = as_count(value)
    if index is None and value is not None:
        warn("bad-index", "its index is not a whole number of 0 or more; it was ignored")
    return index


def without_keys(wire: WireObject, *keys: str) -> dict[str, Any]:
    """Return what an object has beside these keys. Nulls are left out."""
    if not keys and None not in wire.values():
        return {**wire}
    return without(wire, keys)


def without(wire: WireObject, keys: Container[str]) -> dict[str, Any]:
    """As `without_keys`, of many keys: a set of them takes less time."""
    rest: dict[str, Any] = {}
    for key in filterfalse(keys.__contains__, wire):
        if (value := wire[key]) is not None:
            rest[key] = value
    return rest


# -- JSON text


def parse_json(text: str | bytes | bytearray) -> Any:
    """Return the value that JSON text holds; None if it is not JSON, is nested too deep to be read, or is `null`."""
    try:
        return decode_json(text)
    except (ValueError, RecursionError):
        return None


def json_text(value: Any) -> str:
    """Any value as compact JSON text, objects of other types as their `str`; "" for a circular or too deep value."""
    if is_nested_too_deep(value):
        return ""
    try:
        return _encoder()(value)
    except (TypeError, ValueError, RecursionError):
        return ""


def text_or_json(value: Any) -> str:
    """Text unchanged, "" for null, any other value as JSON text: for fields that some servers send unserialised."""
    if value is None or isinstance(value, str):
        return value or ""
    return json_text(value)


# -- objects that most protocols have


def usage_of(
    wire: WireObject,
    input_key: str = "input_tokens",
    output_key: str = "output_tokens",
    *,
    leave_out: Sequence[str] = (),
) -> Usage:
    """Token counts. A missing `total_tokens` is the sum of both; `details` has the other keys, but for `leave_out`."""
    input_tokens = as_count(wire.get(input_key)) or 0
    output_tokens = as_count(wire.get(output_key)) or 0
    total = as_count(wire.get("total_tokens")) or input_tokens + output_tokens
    taken = (input_key, output_key, "total_tokens", *leave_out)
    details = {key: value for key, value in wire.items() if value is not None and key not in taken}
    return Usage(input_tokens, output_tokens, total, details)


def error_object(
    value: Any, default: str = "the run failed", *, message_keys: Sequence[str] = ("code", "type")
) -> dict[str, Any]:
    """Return an error, which may be an object, text, or anything else, as an object that has a text as its `message`: what
    the server said, wherever that stood (`errors.server_message`).

    An error without a message gets the first text that it has at one of the `message_keys`, or else `default`.
    """
    error: dict[str, Any] = dict(value) if is_object(value) else {"message": text_or_json(value)}
    texts = (as_text(error.get(key)) for key in message_keys)
    error["message"] = stated_message(error) or next(filter(None, texts), default)
    return error


def error_item(data: bytes, is_item: Callable[[WireObject], bool]) -> bytes:
    """Return the data of an SSE event named `error` as an item with the key `error`.

    Data that `is_item` accepts, or that has an `error` already, is returned unchanged; data that is not JSON is text.
    """
    value = parse_json(data)
    if is_object(value) and ("error" in value or is_item(value)):
        return data
    if value is None and data.strip() != b"null":
        value = data.decode("utf-8", "replace").strip()
    return msgspec.json.encode({"error": value or "an error event without data"})


def annotation_of(wire: WireObject) -> Annotation:
    """Return a citation in a text, in any form of OpenAI's APIs: flat, or `{"type": kind, kind: {…}}`. `raw` is a copy
    of it.

    Of the keys `title` and `filename`, and of `quote` and `content`, the first that has text counts.
    """
    kind = as_text(wire.get("type")) or "annotation"
    body = {**wire, **as_object(wire.get(kind))}
    return Annotation(
        type=kind,
        url=text_or_none(body.get("url")),
        file_id=text_or_none(body.get("file_id")),
        title=text_or_none(body.get("title")) or text_or_none(body.get("filename")),
        quote=text_or_none(body.get("quote")) or text_or_none(body.get("content")),
        start=as_count(body.get("start_index")),
        end=as_count(body.get("end_index")),
        raw=dict(wire),
    )
