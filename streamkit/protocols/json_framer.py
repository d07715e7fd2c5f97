"""JSON values, however they are laid out: the elements of a list that is the entire body, and objects over several lines."""

from __future__ import annotations

import re
from itertools import takewhile

from ..messages.json_text import LONG
from .framer import Framer
from .frames import Frames

__all__ = ["JsonFramer"]

# The next byte that matters: between values, in an object, in a value of any other kind, in a string.
_BETWEEN = re.compile(rb"[^\s,\[\]]")
_IN_OBJECT = re.compile(rb'["{}]')
_IN_OTHER = re.compile(rb'["\s,\[\]]')
_IN_STRING = re.compile(rb'["\\]')


class JsonFramer(Framer):
    """Cuts after each value, which of an object is where its brackets are closed, so that it is returned as soon as it is complete.
    The brackets and commas of lists around the values are skipped."""

    _expected = _BETWEEN
    _depth = 0  # of brackets, in an object
    _is_escaped = False  # the next byte, in a string

    def feed(self, chunk: bytes) -> Frames:
        """The frames of the values that this chunk completes."""
        self._check_failure()
        if not self._started:
            chunk = self._begin(chunk)
        values: list[bytes] = []
        start, at = 0, int(self._is_escaped)
        while (found := self._expected.search(chunk, at)) is not None:
            byte, at = found[0], found.end()
            if self._expected is _BETWEEN:
                start = at - 1
            elif byte == b"\\":
                at += 1
            if self._ends_value(byte):
                at = at if byte == b"}" else at - 1
                values.append(b"".join((*self._pending, chunk[start:at])))
                self._pending.clear()
        self._is_escaped = at > len(chunk)
        rest = b"" if self._expected is _BETWEEN else chunk[start:]
        return self._framed(values, rest)

    def _ends_value(self, byte: bytes) -> bool:
        """Whether this byte, which is one of those that are expected, ends a value: as its last one, or after it."""
        if self._expected is _IN_STRING:
            if byte == b'"':
                self._expected = _IN_OBJECT if self._depth else _IN_OTHER
        elif byte == b'"':
            self._expected = _IN_STRING
        elif self._expected is _BETWEEN:
            self._depth = int(byte == b"{")
            self._expected = _IN_OBJECT if self._depth else _IN_OTHER
        else:
            self._depth += {b"{": 1, b"}": -1}.get(byte, 0)
            if not self._depth:
                self._expected = _BETWEEN
                return True
        return False

    def _framed(self, values: list[bytes], rest: bytes) -> Frames:
        """The frames of these values. What follows them becomes pending."""
        if not values:
            if rest:
                self._hold(rest)
            return []
        self._pending[:] = (rest,) if rest else ()
        longest = max(map(len, (*values, rest)))
        if longest > self._longest:
            values = [*takewhile(lambda value: len(value) <= self._longest, values)]
            self._fail_too_long()
        frames = values if self._heeded_names is not None else [(b"", b"", value) for value in values]
        return frames if longest < LONG else self._checked(frames)
