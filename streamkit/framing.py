"""Bytes to frames and back: Server-Sent Events (WHATWG HTML, section 9.2) and newline-delimited JSON.

However the bytes are cut, the frames are the same. Blocks as every provider sends them (`id:`, `event:`, one
`data:`, LF) take one regular expression a chunk; any other block is read line by line, by the letter, to the same
result. Nothing is parsed here: a frame's data stays bytes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Frame", "Framer", "NdjsonFramer", "SseFramer", "framer_for", "sse_frame"]


class Frame(NamedTuple):
    """One item on the wire: the SSE `id` and `event` fields (b"" where absent) and its data."""

    id: bytes
    name: bytes
    data: bytes


class Framer:
    """Takes bytes in, gives frames out. Frames may be plain 3-tuples."""

    def feed(self, chunk: bytes) -> list[tuple[bytes, bytes, bytes]]:
        """The frames that this chunk completes."""
        raise NotImplementedError  # the two below

    def finish(self) -> list[tuple[bytes, bytes, bytes]]:
        """What was left unfinished at the end, as far as it makes a frame."""
        raise NotImplementedError


_REGULAR = re.compile(
    rb"(?:\A|(?<=\n\n))(?:id: ?([^\n\0]*)\n)?(?:event: ?([^\n]*)\n)?data: ?([^\n]*)\n\n",
).findall
_BOM = b"\xef\xbb\xbf"
_CR, _LF = 13, 10


class SseFramer(Framer):
    """Server-Sent Events.

    Besides the letter: a block that the end of the stream cut short is still given, if it has data, and a bare
    `error:` field (which some servers send in place of an event) is given as an event named `error`.
    """

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._begun = False
        self._careful = False  # a carriage return was seen: lines may end in three ways
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[tuple[bytes, bytes, bytes]]:
        if not chunk:
            return []
        if not self._begun:
            chunk = self._begin(chunk)
        if self._careful or _CR in chunk:
            chunk = self._normalise(chunk)
        pending = self._pending
        end = chunk.rfind(b"\n\n")
        if end < 0:
            # The blank line may lie across the cut.
            if not (chunk[:1] == b"\n" and pending and pending[-1].endswith(b"\n")):
                if chunk:
                    pending.append(chunk)
                return []
            end = -1
        end += 2
        rest = chunk[end:]
        if pending:
            pending.append(chunk[:end])
            chunk = b"".join(pending)
            pending.clear()
        elif rest:
            chunk = chunk[:end]
        if rest:
            pending.append(rest)
        frames: list[tuple[bytes, bytes, bytes]] = _REGULAR(chunk)
        if len(frames) != chunk.count(b"\n\n"):
            return self._by_lines(chunk)
        return frames

    def finish(self) -> list[tuple[bytes, bytes, bytes]]:
        rest = b"".join(self._pending)
        self._pending.clear()
        return self._by_lines(rest + b"\n\n") if rest.strip(b"\n") else []

    def _begin(self, chunk: bytes) -> bytes:
        """Drop a byte order mark, which may come in pieces, and blank lines before the first block."""
        chunk = b"".join((*self._pending, chunk))
        self._pending.clear()
        if len(chunk) < 3 and _BOM.startswith(chunk):
            self._pending.append(chunk)
            return b""
        self._begun = True
        return chunk.removeprefix(_BOM)

    def _normalise(self, chunk: bytes) -> bytes:
        """CRLF and CR to LF, with the two halves of a CRLF in different chunks taken as one."""
        self._careful = True
        if self._after_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]
            self._after_cr = False
        if chunk:
            self._after_cr = chunk[-1] == _CR
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _by_lines(self, text: bytes) -> list[tuple[bytes, bytes, bytes]]:
        frames: list[tuple[bytes, bytes, bytes]] = []
        id = name = b""
        data: list[bytes] | None = None
        for line in text.split(b"\n"):
            if not line:
                if data is not None:
                    frames.append(Frame(id, name, b"\n".join(data)))
                id = name = b""
                data = None
                continue
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            match field.strip(b" "):  # some servers indent their fields
                case b"data":
                    data = [value] if data is None else [*data, value]
                case b"event":
                    name = value
                case b"id":
                    id = value if b"\0" not in value else id
                case b"error":
                    name, data = b"error", [value]
                case _:
                    pass  # a comment, `retry`, or a field that the specification says to ignore
        return frames


class NdjsonFramer(Framer):
    """One JSON value a line; blank lines mean nothing."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []

    def feed(self, chunk: bytes) -> list[tuple[bytes, bytes, bytes]]:
        head, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            if chunk:
                self._pending.append(chunk)
            return []
        head = b"".join((*self._pending, head))
        self._pending.clear()
        if rest:
            self._pending.append(rest)
        return [(b"", b"", line) for line in head.split(b"\n") if line.strip()]

    def finish(self) -> list[tuple[bytes, bytes, bytes]]:
        line = b"".join(self._pending).strip()
        self._pending.clear()
        return [(b"", b"", line)] if line else []


def framer_for(start: bytes) -> Framer | None:
    """The framer for a body that starts like this: JSON objects a line, else SSE. None: too early to say."""
    text = start.removeprefix(_BOM).lstrip(b" \t\r\n")
    if not text or _BOM.startswith(text):
        return None
    return NdjsonFramer() if text[:1] in (b"{", b"[") else SseFramer()


def sse_frame(data: bytes, name: str | None = None, id: str | None = None) -> bytes:
    """One SSE block. `data` must be one line, as JSON text is."""
    lines = [b"id: " + id.encode() if id else b"", b"event: " + name.encode() if name else b"", b"data: " + data]
    return b"\n".join(line for line in lines if line) + b"\n\n"
