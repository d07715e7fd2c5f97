"""Joins a body that arrives in pieces, or in lines without their newlines.

    response.iter_text(), file.read(100) …      pieces: cut anywhere; concatenated they are the body
    response.iter_lines(), websocket …          lines: none has its newline, and an empty one is a blank line

Which of the two it is shows only after some items. An item with a newline in it is a piece, and so are all after it. As
long as there was none, an item starts a new line if the line before it cannot continue with it: that line is a complete
JSON object or array (after `data:` or by itself), or both begin with an SSE field's name. From then on all items are
lines. So pieces decode to the same events wherever they are cut. Two exceptions, both in the body's first
line: a comment, an event's name or data that is no JSON, cut just before something like `data:`, is taken for a line; and so is
complete JSON that is cut just before whatever else there is on its line, where a newline should be.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["BodyJoiner", "Piece", "is_piece"]

_NAMED_FIELD = rb"(?:data|event|id|retry|error) ?:"
_FIELD = rb"(data|event|id|retry|error)? ?:"
_TOKEN = rb'\\.|["{}\[\]\\]'
_HEAD = 32  # the first bytes of a line, enough to see its SSE field


def is_piece(item: bytes) -> bool:
    """Whether an item is not a line without its newline, so that all items are pieces from then on."""
    return b"\n" in item or b"\r" in item


class Piece:
    """A piece of a body that is not bytes of it as it is.

    Attributes:
        raw: the item as it came.
        body: the bytes of the body that it stands for.
    """

    __slots__ = ("body", "raw")

    def __init__(self, raw: str | bytes, body: bytes) -> None:
        self.raw: Any = raw
        self.body = body

    def joined(self, other: Piece) -> Piece:
        """Return this piece with another one after it, which is text or bytes as well."""
        return Piece(self.raw + other.raw, self.body + other.body)

    def as_text(self) -> Any:
        """Return it as a batch of plain text: bytes, or an item."""
        return self.raw if isinstance(self.raw, bytes) else [{"text": self.raw}]


class BodyJoiner:
    """Joins the items of one body, in order.

    States: undecided between pieces and lines (`_are_lines` is None), then pieces (False) or lines (True).

    """

    __slots__ = ("_are_lines", "_empty", "_head", "_made_json")

    def __init__(self) -> None:
        self._are_lines: bool | None = None
        self._empty = 0  # empty items so far: blank lines, if the items are lines
        self._head = b""  # the beginning of the line that the undecided items form
        self._made_json: _Json | None = None

    @property
    def is_plain(self) -> bool:
        """Whether every further item is a piece that needs no feeding."""
        return self._are_lines is False

    @property
    def _json(self) -> _Json:
        """Follows a JSON body whose items are undecided."""
        if self._made_json is None:
            self._made_json = _Json()
        return self._made_json

    def feed(self, item: bytes) -> bytes:
        """Return the bytes of the body that an item stands for."""
        if self._are_lines is None:
            return self._undecided(item)
        return item + b"\n" if self._are_lines else item

    def _undecided(self, item: bytes) -> bytes:
        """Return the bytes of an item that comes before it is known whether the items are lines. It may decide that."""
        if is_piece(item):
            self._are_lines = False
            return item
        starts_line = self._starts_line(item)
        if not item:  # it decides nothing: one of several pieces may be empty as well, and blank lines may be many
            self._empty += 1
            return b"\n\n" if starts_line else item
        if starts_line:
            self._are_lines = True
            return b"\n" * (1 + self._empty) + item + b"\n"
        self._json.feed(item)
        if len(self._head) < _HEAD:
            self._head = (self._head + item[:_HEAD]).removeprefix(b"\xef\xbb\xbf").lstrip(b" \t")
        # If the body has its own newline after a complete object, one more changes nothing.
        return item + b"\n" if self._head[:1] in (b"{", b"[") and self._json.is_closed else item

    def _starts_line(self, item: bytes) -> bool:
        """Whether the line so far cannot continue with this item."""
        head = self._head
        field = re.match(_FIELD, head)
        value = head[field.end() :].lstrip(b" ") if field and field[1] == b"data" else head
        if value[:1] in (b"{", b"["):
            return self._json.is_closed and (item[:1] not in (b"", b" ", b"\t") or (not item and field is not None))
        if field is None or field[1] in (
            None,
            b"data",
        ):  # a comment, or text, may hold anything but the name of a field
            return field is not None and re.match(_NAMED_FIELD, item) is not None
        return re.match(_NAMED_FIELD, item) is not None or item.startswith(b": ")


class _Json:
    """Follows a JSON object or array that arrives in pieces. `is_closed` is true while all its brackets are closed and nothing
    follows them."""

    __slots__ = ("_depth", "_escaped", "_quoted", "is_closed")

    def __init__(self) -> None:
        self.is_closed = False
        self._depth = 0
        self._quoted = False
        self._escaped = False  # whether the piece before ended with a backslash

    def feed(self, piece: bytes) -> None:
        """Take the next piece."""
        if self._escaped and piece:
            piece, self._escaped = piece[1:], False
        end = 0  # of the last bracket
        for token in re.finditer(_TOKEN, piece, re.DOTALL):
            match token[0]:
                case b"\\":
                    self._escaped = True
                case b'"':
                    self._quoted = not self._quoted
                case b"{" | b"[" | b"}" | b"]" if not self._quoted:
                    self._depth += 1 if token[0] in (b"{", b"[") else -1
                    self.is_closed, end = self._depth == 0, token.end()
                case _:
                    pass  # an escape, or a bracket in a string
        if piece[end:].strip(b" \t"):
            self.is_closed = False
