"""Reads the body of a request that a client sent to a server of ours. Nothing in it can be trusted.

Every value is read by its own type. A wrong one is a `RequestError` that says where it stands, what is wrong with it, and
that the client is at fault. A key that is null counts as absent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from ..errors import RequestError
from ..messages.json_text import decode_request, has_surrogates, is_nested_too_deep
from .values import WireObject, is_list, is_object, without_keys

__all__ = ["Fields", "read_body"]

_NAMES = {
    "dict": "an object",
    "list": "a list",
    "str": "text",
    "bool": "a boolean",
    "int": "a number",
    "float": "a number",
}
MAX_SHOWN = 40  # characters of a client's text in an error


def read_body(body: bytes | bytearray | str | WireObject) -> Fields:
    """Return a request's body: JSON text, or what it was parsed to.

    Raises:
        RequestError: it is not JSON, is nested too deep, or is not an object.
    """
    value: Any = body
    if isinstance(body, (bytes, bytearray, str)):
        try:
            value = decode_request(body)
        except (ValueError, RecursionError) as error:
            raise RequestError("", f"is not JSON: {error}", "bad-json") from None
    elif is_nested_too_deep(body):
        raise RequestError("", "is nested too deep")
    return Fields(value, "")


class Fields:
    """An object in a request's body, and where it stands.

    Attributes:
        wire: the object.
        path: its path, "" for the body.

    Raises:
        RequestError: the value is not an object.
    """

    def __init__(self, value: Any, path: str) -> None:
        if not is_object(value):
            raise RequestError(path, f"is {_kind(value)}, not an object")
        self.wire: WireObject = value
        self.path = path

    def at(self, key: str) -> str:
        """Return the path of the value with this key."""
        return f"{self.path}.{key}" if self.path else key

    def fail(self, key: str, fault: str) -> RequestError:
        """Return the error about the value with this key."""
        return RequestError(self.at(key), fault)

    def value(self, key: str) -> Any:
        """Any value, which must be there."""
        if key not in self.wire:
            raise self.fail(key, "is missing")
        return self.wire[key]

    def text(self, key: str, *, empty: bool = True) -> str:
        """Text, which must be there."""
        text = self.optional_text(key)
        if text is None:
            raise self.fail(key, "is missing")
        if not (text or empty):
            raise self.fail(key, "is empty")
        return text

    def optional_text(self, key: str) -> str | None:
        """Text, None where it is absent."""
        value = self.wire.get(key)
        if value is not None and not isinstance(value, str):
            raise self.fail(key, f"is {_kind(value)}, not text")
        if value is not None and has_surrogates(value):
            raise self.fail(key, "has half of a surrogate pair, which is not text")
        return value

    def one_of(self, key: str, allowed: Collection[str]) -> str:
        """Return one of these words, which must be there."""
        text = self.text(key)
        if text not in allowed:
            raise self.fail(key, f"is {text[:MAX_SHOWN]!r}, not one of {', '.join(sorted(allowed))}")
        return text

    def flag(self, key: str) -> bool:
        """Return a JSON boolean, which must be there: nothing else counts as true or false."""
        value = self.value(key)
        if not isinstance(value, bool):
            raise self.fail(key, f"is {_kind(value)}, not true or false")
        return value

    def is_set(self, key: str) -> bool:
        """Return a JSON boolean, False where it is absent."""
        return self.wire.get(key) is not None and self.flag(key)

    def inner(self, key: str) -> Fields:
        """Return an object, an empty one where it is absent."""
        return Fields({} if self.wire.get(key) is None else self.wire[key], self.at(key))

    def list(self, key: str) -> list[Any]:
        """Return a list, an empty one where it is absent."""
        value = self.wire.get(key)
        if value is None:
            return []
        if not is_list(value):
            raise self.fail(key, f"is {_kind(value)}, not a list")
        return value

    def objects(self, key: str) -> Iterator[Fields]:
        """Yield the objects of a list, none where it is absent."""
        for position, value in enumerate(self.list(key)):
            yield Fields(value, f"{self.at(key)}[{position}]")

    def rest(self, *keys: str) -> dict[str, Any]:
        """Return what the object has beside these keys. Nulls are left out."""
        return without_keys(self.wire, *keys)


def _kind(value: Any) -> str:
    name: str = value.__class__.__name__
    return "null" if value is None else _NAMES.get(name, f"a {name}")
