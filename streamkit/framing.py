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
        self._pending: list[bytes] = []  # pieces of the block that is not over yet
        self._begun = False
        self._plain = False  # begun, and no carriage return was seen; after one, lines may end in three ways
        self._returns = False
        self._after_cr = False
        self._expect(b"", b"data: ")

    def _expect(self, name: bytes, head: bytes) -> None:
        """Blocks are expected to begin like this, up to their data, and to end after one line of it."""
        self._name = name
        self._head = head
        self._begin = len(head)
        self._separator = b"\n\n" + head

    def feed(self, chunk: bytes) -> list[tuple[bytes, bytes, bytes]]:
        head, pending = self._head, self._pending
        begin, end = self._begin, len(chunk) - 2
        if (  # one block alone, as the newest ones were: what a server sends that flushes each event
            chunk.find(b"\n", begin) == end
            and chunk[-1] == _LF
            and chunk.startswith(head)
            and not pending
            and self._plain
            and _CR not in chunk
        ):
            return [(b"", self._name, chunk[begin:end])]
        if not self._plain or _CR in chunk:
            chunk = self._prepare(chunk)
        end = chunk.rfind(b"\n\n")
        if end < 0 and not (chunk.startswith(b"\n") and pending and pending[-1].endswith(b"\n")):
            if chunk:
                pending.append(chunk)
            return []
        if pending:
            pending.append(chunk[: max(end, 0)])
            text = b"".join(pending)
            pending.clear()
        else:
            text = chunk[:end]
        if rest := chunk[end + 2 :]:
            pending.append(rest)
        if text.startswith(head):
            pieces = text.split(self._separator)
            pieces[0] = pieces[0][begin:]
            name = self._name
            frames = [(b"", name, piece) for piece in pieces if _LF not in piece]
            if len(frames) == len(pieces):
                return frames
        lines = text.split(b"\n")
        lines.append(b"")
        return self._regular(lines) or self._by_lines(lines)

    def _regular(self, lines: list[bytes]) -> list[tuple[bytes, bytes, bytes]]:
        """The frames of blocks that all have the same fields in the same order, one line each; none if they have not.

        Taken by columns: the lines of a field are every second, third or fourth.
        """
        first = lines[0]
        period = _PERIODS.get(first[:4])
        if period is None or len(lines) % period or any(lines[period - 1 :: period]):
            return []
        if period == 2:
            frames = [(b"", b"", data[6:]) for data in lines[::2] if data.startswith(b"data: ")]
        elif period == 3:
            frames = self._named(lines[::3], lines[1::3])
        else:
            frames = [
                (id[4:], name[7:], data[6:])
                for id, name, data in zip(lines[::4], lines[1::4], lines[2::4], strict=False)
                if data.startswith(b"data: ") and name.startswith(b"event: ") and id.startswith(b"id: ") and 0 not in id
            ]
        return frames if len(frames) * period == len(lines) else []

    def _named(self, names: list[bytes], data: list[bytes]) -> list[tuple[bytes, bytes, bytes]]:
        frames = [
            (b"", name[7:], line[6:])
            for name, line in zip(names, data, strict=False)
            if line.startswith(b"data: ") and name.startswith(b"event: ")
        ]
        if len(frames) == len(names):  # the next ones may well be as the last one
            self._expect(names[-1][7:], names[-1] + b"\ndata: ")
        return frames

    def finish(self) -> list[tuple[bytes, bytes, bytes]]:
        lines = b"".join(self._pending).split(b"\n")
        self._pending.clear()
        return self._by_lines([*lines, b""])

    def _prepare(self, chunk: bytes) -> bytes:
        """Drop a byte order mark, which may come in pieces; CRLF and CR to LF, with the two halves of a CRLF in
        different chunks taken as one."""
        if not self._begun:
            chunk = b"".join((*self._pending, chunk))
            self._pending.clear()
            if len(chunk) < 3 and _BOM.startswith(chunk):
                self._pending.append(chunk)
                return b""
            self._begun = True
            chunk = chunk.removeprefix(_BOM)
        self._returns = self._returns or _CR in chunk
        self._plain = not self._returns
        if self._plain:
            return chunk
        if self._after_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]
            self._after_cr = False
        if chunk:
            self._after_cr = chunk[-1] == _CR
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _by_lines(self, lines: list[bytes]) -> list[tuple[bytes, bytes, bytes]]:
        """The frames of whole blocks, by the letter."""
        frames: list[tuple[bytes, bytes, bytes]] = []
        id = name = b""
        data: list[bytes] = []
        for line in lines:
            if not line:
                if data:
                    frames.append((id, name, b"\n".join(data)))
                id = name = b""
                data = []
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
