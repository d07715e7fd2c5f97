"""A body that comes in pieces, or in lines that have lost their ends, as one body.

    response.iter_text(), file.read(100) …      pieces: cut anywhere; together they are the body
    response.iter_lines(), websocket …          lines: none has its newline, an empty one is a blank line

The rule: an item that has a newline in it is a piece, and so are all after it. Until one has, an item ends the line
before it where that line cannot go on: it is a whole JSON object or array (after `data:`, or by itself), or it is
another SSE field and the item begins one. From there on all items are lines. So pieces tell what their
body tells however they are cut; only a comment or an event's name that is the body's first line, and is cut just
before something like `data:`, is taken for a line.

A live producer goes on when it is pulled, which may be taken for an answer. So what is a whole question ends its line,
and its event, although their ends may come with the next item: `asks` says what is one. Half a question is none yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["BodyJoiner"]

_field = re.compile(rb"(data|event|id|retry|error)? ?:").match
_tokens = re.compile(rb'\\.|["{}\[\]\\]', re.DOTALL).findall
_HEAD = 32  # bytes that tell what a line is


class BodyJoiner:
    """The items of one body, to be joined in order.

    Args:
        asks: whether a line without its end is a whole question; None for a body that goes on by itself.

    Attributes:
        as_is: whether every further item stands for itself: it need not be fed.
    """

    def __init__(self, asks: Callable[[bytes], bool] | None = None) -> None:
        self._asks = asks
        self.as_is = False
        self._line: list[bytes] = []  # the unfinished line, where it matters
        self._plain = False  # the next item is a piece, and begins a line
        self._lines: bool | None = None  # whether they are lines, once that is known
        self._empty = 0  # items so far without anything: blank lines, if they are lines
        self._head = b""  # how the line begins that the items so far are
        self._json = _Json()

    def feed(self, item: bytes) -> bytes:
        """The body's bytes that an item stands for."""
        if self._plain and (item[-2:] == b"\n\n" or self._asks is None):
            return item
        given = self._first(item) if self._lines is None else item + b"\n" if self._lines else item
        if self._asks is not None:
            given = self._watched(given, self._asks)
        self._plain = self._lines is False and not self._line
        self.as_is = self._plain and self._asks is None
        return given

    def _watched(self, given: bytes, asks: Callable[[bytes], bool]) -> bytes:
        """The same, with the end of what is a whole question."""
        text = given.rstrip(b"\n")
        begin = text.rfind(b"\n") + 1
        if begin:
            self._line.clear()
        rest = text[begin:]
        self._line.append(rest)
        if rest.rstrip(b" \t\r")[-1:] == b"}" and asks(b"".join(self._line)):
            self._line.clear()
            return given + b"\n\n"
        if given[-1:] == b"\n":
            self._line.clear()
        return given

    def _first(self, item: bytes) -> bytes:
        if b"\n" in item or b"\r" in item:
            self._lines = False
            return item
        if self._is_over(item):
            self._lines = True
            return b"\n" * (1 + self._empty) + item + b"\n"
        if not item:
            self._empty += 1
            return item
        self._json.feed(item)
        if len(self._head) < _HEAD:
            self._head = (self._head + item[:_HEAD]).removeprefix(b"\xef\xbb\xbf").lstrip(b" \t")
        # A newline after a whole object means nothing where the body has one, too.
        return item + b"\n" if self._head[:1] in (b"{", b"[") and self._json.whole else item

    def _is_over(self, item: bytes) -> bool:
        """Whether the line so far cannot go on with this item."""
        head = self._head
        field = _field(head)
        value = head[field.end() :].lstrip(b" ") if field and field[1] == b"data" else head
        if value[:1] in (b"{", b"["):
            return self._json.whole and (item[:1] not in (b"", b" ", b"\t") or (not item and field is not None))
        return field is not None and _field(item) is not None


class _Json:
    """A JSON value that comes in pieces; `whole` once it is all there."""

    def __init__(self) -> None:
        self.whole = False
        self._depth = 0
        self._quoted = False
        self._escaped = False  # by a backslash that ends the piece before

    def feed(self, piece: bytes) -> None:
        if self._escaped and piece:
            piece, self._escaped = piece[1:], False
        for token in _tokens(piece):
            if token == b"\\":
                self._escaped = True
            elif token == b'"':
                self._quoted = not self._quoted
            elif not self._quoted:
                self._depth += (token in b"{[") - (token in b"}]")
                self.whole = self._depth == 0
