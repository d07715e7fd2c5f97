"""Bytes to frames and back: Server-Sent Events (WHATWG HTML, section 9.2) and newline-delimited JSON.

However the bytes are cut, the frames are the same. Blocks as every provider sends them (`id:`, `event:`, one
`data:`, LF) take one regular expression a chunk; any other block is read line by line, by the letter, to the same
result. Nothing is parsed here: a frame's data stays bytes.
"""

from __future__ import annotations

import re
from itertools import repeat
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


_BOM = b"\xef\xbb\xbf"
_CR, _LF = 13, 10
_NONE = repeat(b"")
_NAMED = re.compile(rb"event: (.*)\ndata: (.*)\n\n").findall
_NUMBERED = re.compile(rb"id: ([^\n\0]*)\nevent: (.*)\ndata: (.*)\n\n").findall


class SseFramer(Framer):
    """Server-Sent Events.

    Besides the letter: a block that the end of the stream cut short is still given, if it has data, and a bare
    `error:` field (which some servers send in place of an event) is given as an event named `error`.
    """

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._begun = False
        self._plain = True  # no carriage return was seen; after one, lines may end in three ways
        self._quick = False  # plain, and begun
        self._after_cr = False
        self._line = self._name = b""  # the event line of the newest chunk, and its name
        self._head = b"data: "  # how a block begins that has this line
        self._find = _NAMED  # finds the data after such lines

    def feed(self, chunk: bytes) -> list[tuple[bytes, bytes, bytes]]:
        # One block alone, headed as the one before it: what a server that flushes each event sends.
        head, end = self._head, len(chunk) - 2
        if (
            chunk.startswith(head)
            and chunk.find(b"\n", len(head)) == end
            and chunk[-1] == _LF
            and self._quick
            and not self._pending
            and _CR not in chunk
        ):
            return [(b"", self._name, chunk[len(head) : end])]
        if not self._begun:
            chunk = self._begin(chunk)
        if not self._plain or _CR in chunk:
            chunk = self._normalise(chunk)
        if self._pending or not chunk.endswith(b"\n\n"):
            chunk = self._whole_blocks(chunk)
            if not chunk:
                return []
        return self._regular(chunk) or self._by_lines(chunk)

    def _regular(self, chunk: bytes) -> list[tuple[bytes, bytes, bytes]] | None:
        """The frames of blocks that all have the same fields in the same order; None if they have not.

        What the expressions find is all there is if the lengths of their matches add up to the chunk's.
        """
        if chunk.startswith(b"data: "):
            lines = chunk.split(b"\n")
            frames = [(b"", b"", line[6:]) for line in lines[::2] if line.startswith(b"data: ")]
            return frames if len(frames) * 2 + 1 == len(lines) and not any(lines[1::2]) else None
        if chunk.startswith(b"event: "):
            line = chunk[: chunk.find(b"\n")]
            if line != self._line:
                self._line, self._name, self._head = line, line[7:], line + b"\ndata: "
                self._find = re.compile(re.escape(line) + rb"\ndata: (.*)\n\n").findall
            data = self._find(chunk)
            if sum(map(len, data)) + (len(line) + 9) * len(data) == len(chunk):
                return list(zip(_NONE, repeat(self._name), data, strict=False))
            named = _NAMED(chunk)
            size = sum(len(name) + len(data) + 16 for name, data in named)
            return [(b"", name, data) for name, data in named] if size == len(chunk) else None
        if chunk.startswith(b"id: "):
            numbered: list[tuple[bytes, bytes, bytes]] = _NUMBERED(chunk)
            size = sum(len(id) + len(name) + len(data) + 21 for id, name, data in numbered)
            return numbered if size == len(chunk) else None
        return None

    def _whole_blocks(self, chunk: bytes) -> bytes:
        """What was pending and this chunk, up to the last blank line; what comes after it is pending."""
        pending = self._pending
        end = chunk.rfind(b"\n\n")
        if end < 0:
            # The blank line may lie across the cut.
            if not (chunk[:1] == b"\n" and pending and pending[-1].endswith(b"\n")):
                if chunk:
                    pending.append(chunk)
                return b""
            end = -1
        rest = chunk[end + 2 :]
        pending.append(chunk[: end + 2])
        whole = b"".join(pending)
        pending.clear()
        if rest:
            pending.append(rest)
        return whole

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
        self._quick = self._plain
        return chunk.removeprefix(_BOM)

    def _normalise(self, chunk: bytes) -> bytes:
        """CRLF and CR to LF, with the two halves of a CRLF in different chunks taken as one."""
        self._plain = self._quick = False
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
        self._begun = False

    def feed(self, chunk: bytes) -> list[tuple[bytes, bytes, bytes]]:
        head, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            if chunk:
                self._pending.append(chunk)
            return []
        head = self._take(head)
        if rest:
            self._pending.append(rest)
        return [(b"", b"", line) for line in head.split(b"\n") if line.strip()]

    def finish(self) -> list[tuple[bytes, bytes, bytes]]:
        line = self._take(b"").strip()
        return [(b"", b"", line)] if line else []

    def _take(self, more: bytes) -> bytes:
        """What is pending, with this; without the byte order mark at the start of the body."""
        text = b"".join((*self._pending, more))
        self._pending.clear()
        if not self._begun:
            self._begun = True
            text = text.removeprefix(_BOM)
        return text


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
