"""The base of what cuts a body into frames: what is unfinished, and how large an item may be."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Protocol

from ..errors import LimitError, StreamkitError
from ..limits import Limits
from ..messages.json_text import LONG, shallow
from .frames import Frame, Frames, as_data, as_frame

__all__ = ["BYTE_ORDER_MARK", "SPACE", "Framer"]

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
SPACE = b" \t\r\n"


class _Sizes(Protocol):
    def long_item_came(self, size: int) -> None: ...


class Framer:
    """Cuts the bytes of one body into frames. Data that is nested too deep is marked, so that no decoder reads it.

    Args:
        longest: the bytes that one item may have, at least 1,000: an event with all its lines, each with a newline of one byte, or
            a line of JSON. One that has more raises `LimitError`.

    Attributes:
        sizes: counts long items: its `long_item_came` is called with the size of each. None if nobody counts them.
        is_question: returns whether a line without its newline is a complete question. None for a body that is not live.
    """

    _size = 0  # the bytes of the unfinished item, where `_pending` has several pieces
    _started = False  # a byte order mark was dropped, if there was one
    _failure: StreamkitError | None = None
    _heeded_names: frozenset[bytes] | None = None
    sizes: _Sizes | None = None  # and no method of it, which would be an object more in each stream
    is_question: Callable[[bytes], bool] | None = None

    def __init__(self, longest: int = Limits().line) -> None:
        self._longest = longest
        self._pending: list[bytes] = []  # pieces of what is unfinished

    def _begin(self, chunk: bytes) -> bytes:
        """Return the first bytes of the body without a byte order mark, which may come in pieces; b"" until that is certain."""
        chunk = self._unfinished() + chunk
        self._pending.clear()
        if len(chunk) < 3 and BYTE_ORDER_MARK.startswith(chunk):
            if chunk:
                self._pending.append(chunk)
            return b""
        self._started = True
        return chunk.removeprefix(BYTE_ORDER_MARK)

    def _hold(self, piece: bytes) -> None:
        """Add a piece to what is unfinished.

        Raises:
            LimitError: that is too long.
        """
        self._size = len(piece) + (self._size if len(self._pending) > 1 else self._pending_size())
        self._pending.append(piece)
        if self._size > self._longest:
            self._fail_too_long()
            self._check_failure()

    def _pending_size(self) -> int:
        """The bytes of the unfinished item."""
        return sum(map(len, self._pending))

    def _checked(self, frames: Frames) -> Frames:
        """Frames, of which some may be long: those that are nested too deep are marked.

        Raises:
            LimitError: there are none, and what follows is too long. If there are some, the next call raises it.
        """
        if not frames:
            self._check_failure()
        return [self._marked(frame) for frame in frames]

    def _marked(self, frame: Frame | bytes) -> Frame | bytes:
        """Return a frame. Its data is marked if it is nested too deep."""
        id, name, data = as_frame(frame)
        if len(data) < LONG:
            return frame
        if self.sizes is not None:
            try:
                self.sizes.long_item_came(len(data))
            except LimitError as error:
                self._fail(error)
        data = shallow(data)
        return data if isinstance(frame, bytes) else (id, name, data)

    def _fail_too_long(self) -> None:
        """An item is too long."""
        self._pending.clear()
        self._fail(LimitError("line", self._longest))

    def _fail(self, error: StreamkitError) -> None:
        """All calls that follow raise this error."""
        self._failure = error

    def _check_failure(self) -> None:
        """Raise the error, if there is one."""
        if self._failure is not None:
            raise self._failure

    def expect_names(self, names: Set[bytes] | None) -> None:
        """Set the SSE event names that the decoder heeds, None (as at the beginning) for all. Frames without an id and
        without such a name may then be returned as plain data."""
        self._heeded_names = None if names is None else frozenset(names)

    def _heeded(self, frames: Frames) -> Frames:
        """Return these frames, as plain data where they may be."""
        return frames if self._heeded_names is None else as_data(frames, self._heeded_names)

    def feed(self, chunk: bytes) -> Frames:
        """The frames that this chunk completes. Raises `LimitError` where an item is too long, from then on: after the frames
        that came before it in the same chunk were returned."""
        raise NotImplementedError(f"{type(self).__name__}.feed")

    def feed_live(self, chunk: bytes) -> Frames:
        """As `feed`, for a live producer, which may take the next pull for an answer to its question. So the frame of a complete
        question is returned at once, although the end of its line and of its block may come only with the next chunk."""
        frames = self.feed(chunk)
        if chunk.endswith(b"\n\n") or chunk.rstrip(SPACE)[-1:] != b"}" or self._failure is not None:
            return frames
        line = self._unfinished().rstrip(b"\n").rpartition(b"\n")[2]
        if self.is_question is None or not self.is_question(line):
            return frames
        return [*frames, *self.feed(b"\n\n")]

    def _unfinished(self) -> bytes:
        """The bytes of the item that has no end yet."""
        return b"".join(self._pending)

    def finish(self) -> list[Frame]:
        """The frame of an item that the end of the body cut short, if it makes one."""
        self._check_failure()
        rest = self._unfinished().strip()
        self._pending.clear()
        return [as_frame(self._marked(rest))] if rest else []
