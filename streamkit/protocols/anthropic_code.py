"""The code in a server tool's input, read while its JSON still streams.

Each character is looked at once: the cost is linear, however the JSON is cut into pieces.
"""

from __future__ import annotations

import re

__all__ = ["CodeReader"]

_MARK = re.compile(r'["{}\[\],:]').search
_TEXT = re.compile(r'[^"\\]*').match
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/"}
_REPLACEMENT = "�"  # for half of a surrogate pair, which is no character


class CodeReader:
    """Reads one text field of a JSON object that comes in pieces: its first value, if that is text."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._depth = 0
        self._in_string = False
        self._names = False  # whether the string that is being read, or comes next, is a key of the object
        self._name: list[str] = []
        self._wanted = False  # the next value of the object is the field's
        self._taking = False
        self._done = False
        self._rest = ""  # an escape that is not all there

    def feed(self, piece: str) -> str:
        """What this piece adds to the field."""
        if self._done:
            return ""
        piece, self._rest = self._rest + piece, ""
        out: list[str] = []
        at = 0
        while at < len(piece) and not self._done:
            at = self._string(piece, at, out) if self._in_string else self._between(piece, at)
        return "".join(out)

    def _between(self, piece: str, at: int) -> int:
        """Go on to the next string."""
        found = _MARK(piece, at)
        if found is None:
            return len(piece)
        mark = found[0]
        if mark == '"':
            self._in_string = True
            self._taking = self._wanted and self._depth == 1
            self._name.clear()
        elif mark in "{[":
            self._depth += 1
            self._names = self._depth == 1 and mark == "{"
        elif mark in "}]":
            self._depth -= 1
        elif self._depth == 1:
            self._names = mark == ","
            self._wanted = mark == ":" and self._wanted
        return found.end()

    def _string(self, piece: str, at: int, out: list[str]) -> int:
        """Go on to the end of a string, or to its next escape and beyond."""
        found = _TEXT(piece, at)
        end = found.end() if found is not None else at
        self._take(piece[at:end], out)
        if end == len(piece):
            return end
        if piece[end] == '"':
            self._end()
            return end + 1
        return self._escape(piece, end, out)

    def _take(self, value: str, out: list[str]) -> None:
        if self._taking:
            out.append(value)
        elif self._names and self._depth == 1:
            self._name.append(value)

    def _end(self) -> None:
        self._in_string = False
        self._done = self._taking
        if self._names and self._depth == 1:
            self._wanted = "".join(self._name) == self._key

    def _escape(self, piece: str, at: int, out: list[str]) -> int:
        if piece[at + 1 : at + 2] != "u":
            if at + 1 == len(piece):
                self._rest = piece[at:]
            else:
                self._take(_ESCAPES.get(piece[at + 1], ""), out)
            return at + 2
        unit = _unit(piece, at)
        if unit is None:
            return self._wait(piece, at, 6)
        if not 0xD800 <= unit < 0xE000:
            self._take(chr(unit), out)
            return at + 6
        low = _unit(piece, at + 6)
        if low is None and unit < 0xDC00 and "\\u".startswith(piece[at + 6 : at + 8]) and len(piece) < at + 12:
            return self._wait(piece, at, 12)
        if unit >= 0xDC00 or low is None or not 0xDC00 <= low < 0xE000:
            self._take(_REPLACEMENT, out)
            return at + 6
        self._take(chr(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)), out)
        return at + 12

    def _wait(self, piece: str, at: int, length: int) -> int:
        """Keep an escape until all of it is there; one that never will be is skipped."""
        if len(piece) - at < length:
            self._rest = piece[at:]
            return len(piece)
        return at + 2


def _unit(piece: str, at: int) -> int | None:
    """The code unit of a `\\uXXXX` escape, None if there is none."""
    digits = piece[at + 2 : at + 6]
    if piece[at : at + 2] != "\\u" or len(digits) < 4:
        return None
    try:
        return int(digits, 16)
    except ValueError:
        return None
