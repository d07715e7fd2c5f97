"""Reads JSON text that others wrote: bounded in its nesting, and what is not quite JSON as far as it can be read.

- JSON that is nested deeper than `MAX_NESTING` is not decoded. The decoders recurse in C for each level: they would raise
  RecursionError, or overflow a thread's stack.
- A surrogate that is not half of a pair (`"\\ud83d"`) is JSON, but no text that can be encoded. Others of the same kind are
  NaN and Infinity, raw control characters and bytes that are not UTF-8: `json.loads` reads them, msgspec does not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, TypeGuard

import msgspec

from .typed_json import decoder

__all__ = [
    "LONG",
    "MAX_NESTING",
    "NOT_JSON",
    "TOO_DEEP",
    "Lenient",
    "bounded",
    "damaged",
    "decode_json",
    "decode_request",
    "has_surrogates",
    "held_size",
    "is_nested_too_deep",
    "is_too_deep",
    "join_surrogates",
    "json_key",
    "read_json",
    "read_leniently",
    "shallow",
    "well_formed",
]

MAX_NESTING = 200
"""How deep objects and lists may be nested: the text of an answer seldom has more than ten levels."""

LONG = 2 * MAX_NESTING
"""The size of the shortest JSON text that may be nested deeper: each level has two brackets."""

TOO_DEEP = f"it is nested more than {MAX_NESTING} levels deep"

NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors that a decoder of msgspec raises for bytes that are not JSON, or not of its type."""

_TOO_DEEP_MARK, _DAMAGED_MARK = b"nested too deep: ", b"damaged: "
_MARKS = {
    _TOO_DEEP_MARK: TOO_DEEP,
    _DAMAGED_MARK: "it is a damaged line of a recording",
}
_decode = decoder().decode
_CONTAINERS = (dict, list)
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_not_brackets = bytes(code for code in range(256) if code not in b"[]{}")
_MOST_BITS = 14_000  # of a number with 4,200 digits; Python writes 4,300
_STEPS = {code: 1 if code in b"[{" else -1 for code in b"[]{}"}


def is_too_deep(text: bytes | bytearray | str, limit: int = MAX_NESTING) -> bool:
    """Whether JSON text is nested deeper than `limit`. It need not be JSON."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if data.count(b"[") + data.count(b"{") <= limit:
        return False
    brackets = re.sub(_STRING, b"", data, flags=re.DOTALL).translate(None, _not_brackets)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > limit


def shallow(data: bytes) -> bytes:
    """JSON text as it is if it may be decoded. Else it is marked, so that every decoder refuses it at its first byte."""
    return _TOO_DEEP_MARK + data if is_too_deep(data) else data


def damaged(data: bytes) -> bytes:
    """Return a line of a recording that cannot be read, marked in the same way."""
    return _DAMAGED_MARK + data


def is_nested_too_deep(value: Any) -> bool:
    """As `is_too_deep`, of a value of parsed JSON. One that contains itself is too deep as well."""
    level: list[Any] = [value]
    for _ in range(MAX_NESTING + 1):
        inner: list[Any] = []
        for outer in level:
            for one in outer.values() if _is_object(outer) else outer if _is_list(outer) else ():
                if type(one) in _CONTAINERS:
                    inner.append(one)
        if not inner:
            return False
        # The same one at several places is looked at once: values that share parts would take forever.
        level = inner if len(inner) < 8 else [*{id(one): one for one in inner}.values()]
    return True


def bounded(value: Any) -> Any:
    """Return a value of parsed JSON as every reader takes it: None in place of what is nested too deep or contains
    itself, and of numbers with more digits than Python reads; and text in place of other keys."""
    around: set[int] = set()

    def copy(value: Any) -> Any:
        if not (_is_object(value) or _is_list(value)):
            return None if isinstance(value, int) and value.bit_length() > _MOST_BITS else value
        if len(around) == MAX_NESTING - 1 or id(value) in around:
            return None
        around.add(id(value))
        inside = {_key(key): copy(one) for key, one in value.items()} if _is_object(value) else [*map(copy, value)]
        around.remove(id(value))
        return inside

    return copy(value)


def _key(key: object) -> str:
    return key if isinstance(key, str) else str(key)


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def decode_json(text: bytes | bytearray | str) -> Any:
    """Return the value of JSON text.

    Raises:
        ValueError: it is not JSON, or nested too deep.
    """
    if len(text) >= LONG and is_too_deep(text):
        raise ValueError(TOO_DEEP)
    try:
        return _decode(text)
    except msgspec.DecodeError:
        for mark, fault in _MARKS.items():
            if isinstance(text, bytes) and text.startswith(mark):
                raise ValueError(fault) from None
        raise


def decode_request(text: bytes | bytearray | str) -> Any:
    """As `decode_json`, for JSON that a client sent. Half of a surrogate pair, as JavaScript sends where it cut a text there, is
    U+FFFD.

    Raises:
        ValueError: it is not JSON, or nested too deep.
    """
    try:
        return decode_json(text)
    except ValueError:
        lenient = read_leniently(text)
        if lenient is None:
            raise
        if lenient.fault:
            raise ValueError(f"it has {lenient.fault}") from None
        return lenient.value


class Lenient(msgspec.Struct, frozen=True):
    """JSON text as far as it could be read.

    Attributes:
        value: the value, whose strings have no lone surrogates.
        fault: why the text is not JSON; "" if that is lone surrogates alone.
        halves: strings that begin or end with half of a surrogate pair, by the form that they have in `value`. The other
            half may stand in the next item.
        lost: whether other lone surrogates were replaced.
    """

    value: Any
    fault: str
    halves: dict[str, str]
    lost: bool


def read_leniently(text: bytes | bytearray | str) -> Lenient | None:
    """Return what `decode_json` refused, as `json.loads` would read it; None if that refuses it too, or it is nested
    too deep."""
    if is_too_deep(text):
        return None
    faults: list[str] = []
    if not isinstance(text, str):
        data = bytes(text)
        try:
            text = data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            text = data.decode("utf-8", "replace")
            faults.append("bytes that are not UTF-8")
    try:
        value = _loads(text, faults)
    except (ValueError, RecursionError):
        return None
    return _without_surrogates(value, "; ".join(faults))


def read_json(text: bytes | bytearray | str) -> Any:
    """Return the value of JSON text, or of what is not quite JSON; None where it cannot be read."""
    try:
        return decode_json(text)
    except (ValueError, RecursionError):
        lenient = read_leniently(text)
        return None if lenient is None else lenient.value


def well_formed(value: Any) -> Lenient:
    """Return a value of parsed JSON, without lone surrogates. Other objects inside it are left as they are."""
    return _without_surrogates(value, "")


def _loads(text: str, faults: list[str]) -> Any:
    """`json.loads`, which notes each deviation from JSON that it accepts."""
    import json  # only for text that msgspec refuses

    constants: set[str] = set()

    def constant(name: str) -> float:
        constants.add(name)
        return float(name.replace("Infinity", "inf"))

    try:
        value = json.loads(text, parse_constant=constant)
    except json.JSONDecodeError:
        value = json.loads(text, parse_constant=constant, strict=False)
        faults.append("control characters that are not escaped")
    if constants:
        faults.append(" and ".join(sorted(constants)))
    return value


def json_key(value: Any) -> bytes:
    """JSON text that is equal for equal values, whatever they hold: to compare them."""
    try:
        return msgspec.json.encode(value, enc_hook=repr)
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        return repr(bounded(value)).encode("utf-8", "backslashreplace")  # of huge numbers there is no `repr`


def held_size(value: Any) -> int:
    """Return how much a value takes in memory, about: the characters of its JSON text. Log probabilities are objects of
    a few numbers, which take five to seven times their text."""
    text = json_key(value)
    size = len(text)
    if (value.__class__ is dict or isinstance(value, Mapping)) and "logprobs" in value:
        size += _OBJECT_SIZE * (text.count(b"{") - 1) + _LIST_SIZE * text.count(b"[")
    return size


_OBJECT_SIZE, _LIST_SIZE = 220, 72  # bytes, with what is in them: measured, see tests/test_limits.py


# -- surrogates


def has_surrogates(text: str) -> bool:
    """Whether text has half of a surrogate pair, so that it cannot be encoded."""
    if text.isascii():
        return False
    try:
        text.encode()  # a regular expression with a class for them would take milliseconds of each import
    except UnicodeEncodeError:
        return True
    return False


def join_surrogates(text: str) -> str:
    """Text with its surrogate pairs joined; a half that is at the very end stays, every other half is U+FFFD."""
    half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
    return text[: len(text) - len(half)].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") + half


def _without_surrogates(value: Any, fault: str) -> Lenient:
    halves: dict[str, str] = {}
    lost: list[str] = []

    def clean(value: Any) -> Any:
        match value:
            case str():
                return clean_text(value) if has_surrogates(value) else value
            case Mapping():
                return {clean(key): clean(one) for key, one in value.items()}  # pyright: ignore[reportUnknownVariableType]
            case list():
                return [clean(one) for one in value]  # pyright: ignore[reportUnknownVariableType]
            case _:
                return value

    def clean_text(text: str) -> str:
        first, last = text[0], text[-1]
        joined = join_surrogates(text)
        whole = joined[:-1] + "\ufffd" if "\ud800" <= joined[-1:] <= "\udbff" else joined
        if "\udc00" <= first <= "\udfff" or "\ud800" <= last <= "\udbff":
            halves[whole] = text
        elif "\ufffd" in whole:
            lost.append(text)
        return whole

    return Lenient(clean(value), fault, halves, bool(lost))
