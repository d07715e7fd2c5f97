"""Bytes to frames and back: Server-Sent Events (WHATWG HTML, section 9.2) and newline-delimited JSON.

However the bytes are cut, the frames are the same. Blocks as every provider sends them (`id:`, `event:`, one
`data:`, LF) are taken by columns, a chunk at a time; any other block is read line by line, by the letter, to the same
result. Nothing is parsed here: a frame's data stays bytes.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TypeAlias

__all__ = ["Frame", "Framer", "Frames", "NdjsonFramer", "SseFramer", "as_data", "as_frame", "framer_for", "sse_frame"]


Frame: TypeAlias = tuple[bytes, bytes, bytes]
"""One item on the wire: the SSE `id` and `event` fields (b"" where absent) and its data."""

Frames: TypeAlias = Sequence[Frame | bytes]
"""Frames, some of which are their data alone: those without an id, whose name means nothing to who reads them."""


def as_frame(frame: Frame | bytes) -> Frame:
    """A frame with its id and its name, which are empty where it is its data alone."""
    return (b"", b"", frame) if isinstance(frame, bytes) else frame


def as_data(frames: Frames, names: Container[bytes]) -> Frames:
    """These frames, each as its data alone where it has no id and none of these names."""
    return [frame[2] if not frame[0] and frame[1] not in names else frame for frame in map(as_frame, frames)]


class Framer:
    """Takes bytes in, gives frames out."""

    def expect_names(self, names: Container[bytes] | None) -> None:
        """Which SSE event names mean something to who reads the frames; None if any may, as at the beginning. Frames
        without an id and without such a name may then be given as their data alone."""

    def feed(self, chunk: bytes) -> Frames:
        """The frames that this chunk completes."""
        raise NotImplementedError  # the two below

    def finish(self) -> Frames:
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
        self._within = False  # what is pending is the data of a block that began as expected
        self._expected_names: Container[bytes] | None = None
        self._expect(b"", b"data: ")

    def expect_names(self, names: Container[bytes] | None) -> None:
        self._expected_names = names
        self._bare = names is not None and self._name not in names

    def _expect(self, name: bytes, head: bytes) -> None:
        """Blocks are expected to begin like this, up to their data, and to end after one line of it."""
        self._name = name
        self._head = head
        self._begin = len(head)
        self._separator = b"\n\n" + head
        self.expect_names(self._expected_names)

    def feed(self, chunk: bytes) -> Frames:
        pending, head, begin = self._pending, self._head, self._begin
        if not pending and self._plain and chunk[:begin] == head and chunk[-1] == _LF and chunk[-2] == _LF:
            data = chunk[begin:-2]  # one block alone: what a server sends that flushes each event
            if _LF not in data and _CR not in data:
                return [data if self._bare else (b"", self._name, data)]
        pieces = []
        if self._within and _CR not in chunk:
            if _LF not in chunk:
                pending.append(chunk)
                return []
            pieces = chunk.split(self._separator)
            pieces[0] = b"".join((*pending, pieces[0]))
        elif self._plain and _CR not in chunk and len(pending) < 2 and (not pending or len(pending[0]) < begin):
            text = pending[0] + chunk if pending else chunk
            if text[:begin] == head:
                pieces = text[begin:].split(self._separator)
        if pieces:
            rest = pieces.pop()
            if _LF not in b"".join(pieces):
                if _LF not in rest:
                    self._within = True
                    self._pending = [rest]
                    return pieces if self._bare else self._framed(pieces)
                if self._is_followed(rest, pieces):
                    return self._framed(pieces)
        return self._feed(chunk)

    def _is_followed(self, rest: bytes, pieces: list[bytes]) -> bool:
        """Whether the data of a block is followed by the beginning of one like it, if by anything. If so, the data
        joins the pieces before it as far as it is over, and what is unfinished is pending."""
        end = rest.find(b"\n")
        after = rest[end:]
        if not self._separator.startswith(after):
            return False
        self._within = False
        if len(after) == 1:
            self._pending = [self._head, rest]
        else:
            pieces.append(rest[:end])
            self._pending = [after[2:]] if len(after) > 2 else []
        return True

    def _framed(self, pieces: list[bytes]) -> Frames:
        return pieces if self._bare else [(b"", self._name, piece) for piece in pieces]

    def _feed(self, chunk: bytes) -> Frames:
        """The same for any chunk."""
        pending = self._raw()
        if not self._plain or _CR in chunk:
            chunk = self._prepare(chunk)
        end = chunk.rfind(b"\n\n") if _LF in chunk else -1
        if end < 0 and not (chunk.startswith(b"\n") and pending and pending[-1].endswith(b"\n")):
            if chunk:
                pending.append(chunk)
            frames: Frames = []
        else:
            text = b"".join((*pending, chunk[: max(end, 0)]))
            rest = chunk[end + 2 :]
            pending[:] = (rest,) if rest else ()
            lines = text.split(b"\n")
            lines.append(b"")
            frames = self._regular(lines) or self._by_lines(lines)
        if self._plain and len(pending) == 1 and pending[0].startswith(self._head):
            data = pending[0][self._begin :]
            if _LF not in data:
                pending[0], self._within = data, True
        return frames

    def _raw(self) -> list[bytes]:
        """What is pending, with the beginning of its block."""
        if self._within:
            self._pending.insert(0, self._head)
            self._within = False
        return self._pending

    def _regular(self, lines: list[bytes]) -> Frames:
        """The frames of blocks that all have the same fields in the same order, one line each; none if they have not.

        Taken by columns: the lines of a field are every second, third or fourth.
        """
        first = lines[0]
        period = _PERIODS.get(first[:4])
        if period is None or len(lines) % period or any(lines[period - 1 :: period]):
            return []
        if period == 4:
            frames: Frames = [
                (id[4:], name[7:], data[6:])
                for id, name, data in zip(lines[::4], lines[1::4], lines[2::4], strict=False)
                if data[:6] == b"data: " and name[:7] == b"event: " and id[:4] == b"id: " and 0 not in id
            ]
            return frames if len(frames) * 4 == len(lines) else []
        data = [line[6:] for line in lines[period - 2 :: period] if line[:6] == b"data: "]
        names = [line[7:] for line in lines[::3] if line[:7] == b"event: "] if period == 3 else [b""] * len(data)
        if len(data) + len(names) < 2 * len(lines) // period:
            return []
        if period == 3:  # the next ones may well be as the last one
            self._expect(names[-1], lines[-3] + b"\ndata: ")
        if self._expected_names is None or any(name in self._expected_names for name in names):
            return [(b"", name, piece) for name, piece in zip(names, data, strict=True)]
        return data

    def finish(self) -> list[Frame]:
        lines = b"".join(self._raw()).split(b"\n")
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

    def _by_lines(self, lines: list[bytes]) -> list[Frame]:
        """The frames of whole blocks, by the letter."""
        frames: list[Frame] = []
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

    def feed(self, chunk: bytes) -> Frames:
        head, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            if chunk:
                self._pending.append(chunk)
            return []
        head = self._take(head)
        if rest:
            self._pending.append(rest)
        return [(b"", b"", line) for line in head.split(b"\n") if line.strip()]

    def finish(self) -> list[Frame]:
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
