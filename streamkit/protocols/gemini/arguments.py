"""The arguments of a call that come value by value, each with its path (`partialArgs`, which Vertex AI streams)."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, TypeAlias

import msgspec

from ..values import WireObject, as_text, json_text

__all__ = ["PartialArguments"]

_Path: TypeAlias = list[str | int]

# RFC 9535: `$.a.b[0]['odd key']`.
_STEP = re.compile(r"""\.([^.\[\]'"]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")


class _Container(msgspec.Struct, gc=False):
    """An open object or list in the text.

    Attributes:
        key: its own key in the one around it.
        is_list: whether it is a list.
        used: the keys that it has; of a list their number.
    """

    key: str | int
    is_list: bool
    used: dict[str | int, None]

    def takes(self, key: str | int) -> bool:
        """Whether a value at this key can be written next."""
        return key == len(self.used) if self.is_list else isinstance(key, str) and key not in self.used

    def entry(self, key: str | int) -> str:
        """Return what stands before the value at this key, and note the key."""
        separator = "," if self.used else ""
        self.used[key] = None
        return separator if self.is_list else f"{separator}{json_text(key)}:"

    @property
    def end(self) -> str:
        """The bracket that closes it."""
        return "]" if self.is_list else "}"


class PartialArguments:
    """Writes arguments as JSON text while they come, which is in the order of the text."""

    def __init__(self) -> None:
        self._open: list[_Container] = []  # from the outermost
        self._string: _Path | None = None  # the path of the string that is open

    def add(self, wire: WireObject) -> str | None:
        """Return the text that a value adds. None if the value or its path cannot be read, or the text has passed its place."""
        path, keys = _path_of(as_text(wire.get("jsonPath"))), [key for key in _VALUES if key in wire]
        goes_on = wire.get("willContinue") is True
        if not path or not (keys or goes_on):
            return None
        value = _plain(wire[keys[0]]) if keys and keys[0] != "nullValue" else None if keys else ""
        if isinstance(value, str) and path == self._string:
            text = json_text(value)[1:]
        elif (before := self._begin(path)) is not None:
            text = before + json_text(value)
        else:
            return None
        self._string = path if goes_on and isinstance(value, str) else None
        return text[:-1] if self._string else text

    def end(self) -> str:
        """Return the text that the end adds."""
        string = "" if self._string is None else '"'
        return string + "".join(container.end for container in reversed(self._open))

    def _begin(self, path: _Path) -> str | None:
        """Return the text between the newest value and one at this path; None if it cannot stand there."""
        opened = self._open or [_Container("", False, {})]
        depth = 0
        while depth + 1 < min(len(opened), len(path)) and opened[depth + 1].key == path[depth]:
            depth += 1
        inner = path[depth + 1 :]
        if not opened[depth].takes(path[depth]) or any(isinstance(key, int) and key for key in inner):
            return None
        text = "" if self._open else "{"
        text += '"' if self._string is not None else ""
        text += "".join(container.end for container in reversed(opened[depth + 1 :]))
        self._open = opened[: depth + 1]
        for key, following in pairwise(path[depth:]):
            text += self._open[-1].entry(key) + ("[" if isinstance(following, int) else "{")
            self._open.append(_Container(key, isinstance(following, int), {}))
        return text + self._open[-1].entry(path[-1])


def _path_of(text: str) -> _Path | None:
    """Return the keys of a path, None if it is none."""
    keys: _Path = []
    end = 1
    while text.startswith("$") and end < len(text) and (step := _STEP.match(text, end)) is not None:
        name, index, quoted, other = step.groups()
        keys.append(int(index) if index else name or _ESCAPE.sub(r"\1", quoted if other is None else other))
        end = step.end()
    return keys if end == len(text) and keys and isinstance(keys[0], str) else None


def _plain(value: Any) -> Any:
    """Return a value; a number without a fraction as a whole one, because Gemini has no others than doubles."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
