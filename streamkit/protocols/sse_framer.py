"""Server-Sent Events (WHATWG HTML, section 9.2).

Blocks in the form in which providers send them (`id:`, `event:`, one `data:` line, LF) are split a chunk at a time.
Any other block is read line by line, as the specification says, with the same result.
"""

from __future__ import annotations

from collections.abc import Set
from itertools import takewhile
from typing import Any, TypeAlias, cast

from ..errors import StreamkitError
from ..limits import Limits
from ..messages.json_text import LONG, read_json
from ..shared_names import share_names
from .framer import Framer
from .frames import Frame, Frames, as_frame

__all__ = ["SseFramer"]

_CR, _LF = 13, 10
_LINES_PER_BLOCK = {b"data": 2, b"even": 3, b"id: ": 4}  # with the empty line, by how its first line begins


_Head: TypeAlias = tuple[bytes, bytes, int, bytes, bool]
"""How a block begins up to its data: its event name, these bytes, their number, the separator that ends with them, and
whether such a block is returned as plain data."""

_LONG_LINE = 100  # bytes; no protocol has longer event names
_MOST_HEADS = 128

# The heads by their first lines, which are event names, and these by the names that the decoder heeds. They are the same for
# all streams: a protocol has few names.
_heads: dict[frozenset[bytes] | None, dict[bytes, _Head]] = {None: {}}


def _head_after(line: bytes, heeded_names: frozenset[bytes] | None) -> _Head:
    """The head of blocks with this first line, which is the event name, and not long."""
    heads = _heads[heeded_names]
    if (found := heads.get(line)) is None:
        head, name = line + b"\ndata: ", line[7:]
        found = name, head, len(head), b"\n\n" + head, heeded_names is not None and name not in heeded_names
        if len(heads) >= _MOST_HEADS:
            heads.clear()
        heads[line] = found
    return found


def _has_error(value: Any) -> bool:
    return isinstance(value, dict) and bool(cast("dict[str, Any]", value).get("error"))


class SseFramer(Framer):
    """Server-Sent Events.

    Beyond the specification: a block that the end of the body cut short is returned if it has data; an `error:` field without
    a `data:` field, which some servers send, becomes an event named `error`; and so does a JSON object with a key
    `error` that stands outside of all fields, as servers send it that fail once they have begun to stream.

    Most bodies are runs of blocks with the same head: the same event name, and no id. So the framer remembers the head of
    the newest block, and searches for the next separator with that head rather than for lines. Its state:

    - `_head` is the expected beginning of a block, up to its data, `_head_name` its event name. The framer expects
      `data: ` at first, then the head of the newest block with an event name; of blocks that come alone, a head that came
      twice. `_newest` is the newest of these. `_usual` are heads by their first lines.
    - `_is_lf_only` is False until a byte order mark was dropped, if there may be one, and for good once a carriage return
      was seen: from then on, line ends are normalised first.
    - `_pending` has the pieces of the unfinished block. While `_in_data` is True, the block began with `_head`, and the
      pieces are of its data alone. `_restore_head` puts the head back and clears the flag, when something other than
      the expected separator comes.
    - `_as_data` says that blocks with the expected head are returned as plain data.

    Args:
        has_mark: whether the body may begin with a byte order mark.
    """

    _in_data = False
    _seen_cr = False
    _after_cr = False  # the last chunk ended with a carriage return, whose newline may follow
    _head_name, _head, _head_size, _separator = b"", b"data: ", 6, b"\n\ndata: "
    _as_data = False
    _newest: _Head | None = None
    _usual = _heads[None]

    def __init__(self, longest: int = Limits().line, *, has_mark: bool = True) -> None:
        super().__init__(longest)
        self._is_lf_only = self._started = not has_mark

    def expect_names(self, names: Set[bytes] | None) -> None:
        """Set the event names that the decoder heeds."""
        super().expect_names(names)
        self._usual = _heads.setdefault(self._heeded_names, {})
        self._as_data = names is not None and self._head_name not in names

    def _expect_head(self, head: _Head) -> None:
        self._head_name, self._head, self._head_size, self._separator, self._as_data = head

    def feed(self, chunk: bytes) -> Frames:
        """The frames that this chunk completes. The paths before `_feed_any` are for one block, and for a run of them."""
        if not self._pending and self._is_lf_only and chunk.endswith(b"\n\n"):
            # One block alone, from a server that flushes each event.
            if chunk.startswith(self._head):
                data = chunk[self._head_size : -2]
                if _LF not in data and _CR not in data and len(data) < LONG:
                    return [data if self._as_data else (b"", self._head_name, data)]
            else:
                line, _, data = chunk.partition(b"\ndata: ")
                head = self._usual.get(line)
                if head is not None and len(data) < LONG and _LF not in (data := data[:-2]) and _CR not in data:
                    # It has another event name than the expected one.
                    if head is self._newest:
                        self._expect_head(head)
                    self._newest = head
                    return [data if head[4] else (b"", head[0], data)]
        pending = self._pending
        if self._in_data and _CR not in chunk:
            if _LF not in chunk:
                self._hold(chunk)
                return []
            pieces = chunk.split(self._separator)
            pieces[0] = b"".join(pending) + pieces[0]
        elif (
            self._is_lf_only
            and _CR not in chunk
            and len(pending) < 2
            and (not pending or len(pending[0]) < self._head_size)
            and (text := pending[0] + chunk if pending else chunk)[: self._head_size] == self._head
        ):
            pieces = text[self._head_size :].split(self._separator)
        else:
            return self._feed_any(chunk)
        longest = max(map(len, pieces))
        rest = pieces.pop()
        if _LF in b"".join(pieces):
            return self._feed_any(chunk)
        if _LF not in rest:
            self._in_data = True
            self._pending = [rest]
        elif not self._end_run(rest, pieces):
            return self._feed_any(chunk)
        if longest >= LONG:
            return self._long_run(pieces)
        return pieces if self._as_data else self._named(pieces)

    def _long_run(self, pieces: list[bytes]) -> Frames:
        """The frames of a run with this data, of which a piece, or what follows it, is long."""
        most = self._longest - self._head_size - 1
        if max(map(len, pieces), default=0) > most or self._pending_size() > self._longest:
            pieces = [*takewhile(lambda piece: len(piece) <= most, pieces)]
            self._fail_too_long()
        return self._checked(self._named(pieces))

    def _pending_size(self) -> int:
        return super()._pending_size() + (self._head_size if self._in_data else 0)

    def _fail(self, error: StreamkitError) -> None:
        self._in_data = self._is_lf_only = False  # so that the next chunk raises it
        super()._fail(error)

    def _end_run(self, rest: bytes, pieces: list[bytes]) -> bool:
        """Take in the data of the last block of a run, and what follows it. The data joins the pieces if its block is
        over, and what is unfinished becomes pending. False, without any change, if what follows is not the beginning of
        an expected block."""
        end = rest.find(b"\n")
        after = rest[end:]
        if not self._separator.startswith(after):
            return False
        self._in_data = False
        if len(after) == 1:
            self._pending = [self._head, rest]
            self._size = self._head_size + len(rest)
        else:
            pieces.append(rest[:end])
            self._pending = [after[2:]] if len(after) > 2 else []
        return True

    def _named(self, pieces: list[bytes]) -> Frames:
        """Frames with this data and the expected name."""
        return pieces if self._as_data else [(b"", self._head_name, piece) for piece in pieces]

    def _feed_any(self, chunk: bytes) -> Frames:
        """As `feed`, for any chunk."""
        self._check_failure()
        pending = self._restore_head()
        if not self._is_lf_only or _CR in chunk:
            chunk = self._normalise(chunk)
        if not pending:
            chunk = chunk.lstrip(b"\n")  # blank lines are no item's
        end = chunk.rfind(b"\n\n") if _LF in chunk else -1
        if end < 0 and not (chunk.startswith(b"\n") and pending and pending[-1].endswith(b"\n")):
            if chunk:
                self._hold(chunk)
            frames: Frames = []
        else:
            text = b"".join((*pending, chunk[: max(end, 0)]))
            rest = chunk[end + 2 :]
            pending[:] = (rest,) if rest else ()
            frames = self._blocks(text if max(len(text), len(rest)) < self._longest else self._within(text))
        if self._is_lf_only and len(pending) == 1 and pending[0].startswith(self._head):
            data = pending[0][self._head_size :]
            if _LF not in data:
                pending[0], self._in_data = data, True
        return frames

    def _within(self, text: bytes) -> bytes:
        """Return these blocks up to the first one that is too long."""
        start = 0
        for block in text.split(b"\n\n"):
            if len(block.strip(b"\n")) >= self._longest:
                self._fail_too_long()
                return text[:start]
            start += len(block) + 2
        if self._pending_size() > self._longest:
            self._fail_too_long()
        return text

    def _blocks(self, text: bytes) -> Frames:
        """Return the frames of complete blocks."""
        lines = text.split(b"\n")
        lines.append(b"")
        if frames := self._by_columns(lines):
            return frames if max(map(len, lines)) < LONG else self._checked(frames)
        frames = self._heeded(self._by_lines(lines))
        return frames if frames and len(text) < LONG else self._checked(frames)

    def _restore_head(self) -> list[bytes]:
        """Return the pending bytes, with the head of their block."""
        if self._in_data:
            self._pending.insert(0, self._head)
            self._size = sum(map(len, self._pending))
            self._in_data = False
        return self._pending

    def _unfinished(self) -> bytes:
        text = b"".join(self._pending)
        return self._head + text if self._in_data else text

    def _by_columns(self, lines: list[bytes]) -> Frames:
        """Return the frames of blocks that all have the same fields in the same order, one line each; none if they do not.

        The lines of one field are then every second, third or fourth line.
        """
        period = _LINES_PER_BLOCK.get(lines[0][:4])
        if period is None or len(lines) % period or any(lines[period - 1 :: period]):
            return []
        if period == 4:
            frames: Frames = [
                (id[4:], name[7:], data[6:])
                for id, name, data in zip(lines[::4], lines[1::4], lines[2::4], strict=False)
                if data[:6] == b"data: " and name[:7] == b"event: " and id[:4] == b"id: " and id[4:] and 0 not in id
            ]
            return frames if len(frames) * 4 == len(lines) else []
        data = [line[6:] for line in lines[period - 2 :: period] if line[:6] == b"data: "]
        names = [line[7:] for line in lines[::3] if line[:7] == b"event: "] if period == 3 else [b""] * len(data)
        if len(data) + len(names) < 2 * len(lines) // period:
            return []
        if period == 3 and len(lines[-3]) < _LONG_LINE:  # the next blocks are likely to be like the last one
            self._expect_head(_head_after(lines[-3], self._heeded_names))
        if self._heeded_names is None or any(name in self._heeded_names for name in names):
            return self._heeded([(b"", name, piece) for name, piece in zip(names, data, strict=True)])
        return data

    def finish(self) -> list[Frame]:
        """The frame of the unfinished block, if it has data."""
        self._check_failure()
        if not self._pending:
            return []
        lines = b"".join(self._restore_head()).split(b"\n")
        self._pending.clear()
        return [as_frame(frame) for frame in self._checked(self._by_lines([*lines, b""]))]

    def _normalise(self, chunk: bytes) -> bytes:
        """Drop a byte order mark, and turn CRLF and CR into LF. The two halves of a CRLF may come in different chunks."""
        if not self._started and not (chunk := self._begin(chunk)):
            return b""
        self._seen_cr = self._seen_cr or _CR in chunk
        self._is_lf_only = not self._seen_cr
        if self._is_lf_only:
            return chunk
        if self._after_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]
            self._after_cr = False
        if chunk:
            self._after_cr = chunk[-1] == _CR
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _by_lines(self, lines: list[bytes]) -> list[Frame]:
        """The frames of complete blocks, read as the specification says."""
        frames: list[Frame] = []
        id = name = b""
        data: list[bytes] = []
        bare: list[bytes] = []  # an object outside of any field
        for line in lines:
            if not line:
                if data:
                    frames.append((id, name, b"\n".join(data)))
                if bare and _has_error(read_json(b"\n".join(bare))):
                    frames.append((id, b"error", b"\n".join(bare)))
                id = name = b""
                data, bare = [], []
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
                case b"error" if value not in (b"", b"null"):
                    name, data = b"error", [value]
                case _:  # a comment, `retry`, or a field that the specification says to ignore
                    if bare or line[:1] == b"{":
                        bare.append(line)
        return frames


share_names(
    SseFramer,
    """_longest _pending _size _heeded_names sizes is_question _in_data _is_lf_only _started _head_name _head _head_size _separator
    _as_data _newest _usual""",
)
