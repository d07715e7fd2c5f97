"""Bytes to frames: Server-Sent Events, newline-delimited JSON, JSON in any other layout, and Amazon's binary messages.

However the bytes are cut into chunks, the frames are the same. Nothing is parsed here: a frame's data stays bytes.
"""

from __future__ import annotations

from itertools import takewhile

from ..limits import Limits
from ..messages.json_text import LONG
from .framer import BYTE_ORDER_MARK, SPACE, Framer
from .frames import Frame, Frames, as_data, as_frame, is_frame, sse_frame
from .json_framer import JsonFramer
from .sse_framer import SseFramer

__all__ = [
    "Frame",
    "Framer",
    "Frames",
    "JsonFramer",
    "NdjsonFramer",
    "SseFramer",
    "as_data",
    "as_frame",
    "framer_for",
    "is_frame",
    "sse_frame",
    "without_leading_space",
]


class NdjsonFramer(Framer):
    """One JSON value on each line. Blank lines are skipped."""

    def feed(self, chunk: bytes) -> Frames:
        """The frames of the lines that this chunk completes."""
        self._check_failure()
        if not self._started:
            chunk = self._begin(chunk)
        text, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            if chunk:
                self._hold(chunk)
            return []
        lines = b"".join((*self._pending, text)).split(b"\n")
        self._pending[:] = (rest,) if rest else ()
        longest = max(map(len, lines))
        if max(longest, len(rest)) > self._longest:
            lines = [*takewhile(lambda line: len(line) <= self._longest, lines)]
            self._fail_too_long()
        found = [line for line in lines if line.strip()]
        frames = found if self._heeded_names is not None else [(b"", b"", line) for line in found]
        return frames if max(longest, len(rest)) < LONG else self._checked(frames)


def without_leading_space(start: bytes) -> bytes:
    """Return the beginning of a body without the white space before its first item. A byte order mark stays."""
    text = start.lstrip(SPACE)
    return BYTE_ORDER_MARK + text[3:].lstrip(SPACE) if text.startswith(BYTE_ORDER_MARK) else text


def framer_for(start: bytes, longest: int = Limits().line) -> Framer | None:
    """The framer for a body that starts like this: a list of values if it starts with one, a value over several lines if a line
    ends after its first bracket, newline-delimited JSON if it starts with any other object or with `[DONE…]`, Amazon's messages if it
    starts with the zero of a length, else SSE. None if these bytes are too few to decide."""
    text = start.removeprefix(BYTE_ORDER_MARK).lstrip(SPACE)
    if text in (b"", b"{", b"[") or BYTE_ORDER_MARK.startswith(text):
        return None
    if text.startswith(b"\0"):
        from .amazon_framer import AmazonFramer  # few bodies are binary

        return AmazonFramer(longest)
    if text.startswith((b"{\n", b"{\r")) or (text.startswith(b"[") and not text.startswith(b"[D")):
        return JsonFramer(longest)
    if text.startswith((b"{", b"[")):
        return NdjsonFramer(longest)
    return SseFramer(longest, has_mark=start.startswith(BYTE_ORDER_MARK))
