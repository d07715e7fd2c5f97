"""Bytes to frames and back: Server-Sent Events (WHATWG HTML, section 9.2) and newline-delimited JSON.

However the bytes are cut, the frames are the same. Blocks as every provider sends them (`id:`, `event:`, one
`data:`, LF) are taken by columns, a chunk at a time; any other block is read line by line, by the letter, to the same
result. Nothing is parsed here: a frame's data stays bytes.
"""

from __future__ import annotations

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
_PERIODS = {b"data": 2, b"even": 3, b"id: ": 4}  # lines a block, by how its first line begins


class SseFramer(Framer):
    """Server-Sent Events.

    Besides the letter: a block that the end of the stream cut short is still given, if it has data, and a bare
    `error:` field (which some servers send in place of an event) is given as an event named `error`.
    """

    def __init__(self) -> None:
        self._lines: list[bytes] = []  # of the block that is not over yet
        self._partial: list[bytes] = []  # pieces of the line that is not over yet
        self._begun = False
        self._plain = True  # no carriage return was seen; after one, lines may end in three ways
        self._after_cr = False
        self._head = b"data: "  # how the newest blocks begin, up to their data; b"" where it is not to be used
        self._name: bytes = b""

    def feed(self, chunk: bytes) -> list[tuple[bytes, bytes, bytes]]:
        # One block alone, headed as the one before it: what a server that flushes each event sends.
        head, end = self._head, len(chunk) - 2
        if (
            not self._partial
            and chunk.startswith(head)
            and chunk.find(b"\n", len(head)) == end
            and chunk[-1] == _LF
            and self._plain
            and self._begun
            and not self._lines
            and _CR not in chunk
        ):
            return [(b"", self._name, chunk[len(head) : end])]
        if not self._begun:
            chunk = self._begin(chunk)
        if not self._plain or _CR in chunk:
            chunk = self._normalise(chunk)
        lines = chunk.split(b"\n")
        if self._partial:
            self._partial.append(lines[0])
            if len(lines) == 1:
                return []
            lines[0] = b"".join(self._partial)
            self._partial.clear()
        if rest := lines.pop():
            self._partial.append(rest)
        if b"" not in lines:  # no block ends here
            self._lines += lines
            return []
        if self._lines:
            lines = self._lines + lines
        return self._regular(lines) or self._by_lines(lines)

    def _regular(self, lines: list[bytes]) -> list[tuple[bytes, bytes, bytes]]:
        """The frames of blocks that all have the same fields in the same order, one line each; none if they have not.

        Taken by columns: the lines of a field are every second, third or fourth.
        """
        first = lines[0]
        period = _PERIODS.get(first[:4])
        if period is None:
            return []
        whole = len(lines) // period
        size = whole * period
        rest = lines[size:]
        if rest:
            lines = lines[:size]
        if not whole or b"" in rest or any(lines[period - 1 :: period]):
            return []
        if period == 2:
            frames = [(b"", b"", data[6:]) for data in lines[::2] if data.startswith(b"data: ")]
        elif period == 3:
            frames = self._named(first, lines[::3], lines[1::3])
        else:
            frames = [
                (id[4:], name[7:], data[6:])
                for id, name, data in zip(lines[::4], lines[1::4], lines[2::4], strict=False)
                if data.startswith(b"data: ") and name.startswith(b"event: ") and id.startswith(b"id: ") and 0 not in id
            ]
        if len(frames) < whole:
            return []
        self._lines = rest
        return frames

    def _named(self, first: bytes, names: list[bytes], data: list[bytes]) -> list[tuple[bytes, bytes, bytes]]:
        if names.count(first) == len(names):  # as the deltas of one message are
            name = first[7:]
            if name != self._name:
                self._name, self._head = name, first + b"\ndata: "
            return [(b"", name, line[6:]) for line in data if line.startswith(b"data: ")]
        return [
            (b"", name[7:], line[6:])
            for name, line in zip(names, data, strict=False)
            if line.startswith(b"data: ") and name.startswith(b"event: ")
        ]

    def finish(self) -> list[tuple[bytes, bytes, bytes]]:
        lines = [*self._lines, b"".join(self._partial), b""]
        self._partial.clear()
        return self._by_lines(lines)

    def _begin(self, chunk: bytes) -> bytes:
        """Drop a byte order mark, which may come in pieces."""
        chunk = b"".join((*self._partial, chunk))
        self._partial.clear()
        if len(chunk) < 3 and _BOM.startswith(chunk):
            self._partial.append(chunk)
            return b""
        self._begun = True
        return chunk.removeprefix(_BOM)

    def _normalise(self, chunk: bytes) -> bytes:
        """CRLF and CR to LF, with the two halves of a CRLF in different chunks taken as one."""
        self._plain = False
        if self._after_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]
            self._after_cr = False
        if chunk:
            self._after_cr = chunk[-1] == _CR
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _by_lines(self, lines: list[bytes]) -> list[tuple[bytes, bytes, bytes]]:
        """The frames of whole lines, by the letter. The lines after the last blank one are kept."""
        frames: list[tuple[bytes, bytes, bytes]] = []
        id = name = b""
        data: list[bytes] = []
        begin = 0  # where the block begins that is being read
        for number, line in enumerate(lines):
            if not line:
                if data:
                    frames.append((id, name, b"\n".join(data)))
                id = name = b""
                data = []
                begin = number + 1
                continue
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            match field.strip(b" "):  # some servers indent their fields
                case b"data":
                    data.append(value)
                case b"event":
                    name = value
                case b"id":
                    id = value if b"\0" not in value else id
                case b"error":
                    name, data = b"error", [value]
                case _:
                    pass  # a comment, `retry`, or a field that the specification says to ignore
        self._lines = lines[begin:]
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
