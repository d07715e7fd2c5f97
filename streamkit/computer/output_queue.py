"""What a run tells, on its way from the thread that reads it to whoever pulls it: in order, and never more than so much.

Text that waits is joined, so that a slow reader gets few large pieces. When there is no room the reading thread stops
reading, and the running code waits in its next write.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Feed", "Piece", "Told"]

ROOM = 1 << 20  # characters that may wait
PIECE = 1 << 16  # characters of one piece, about


class Piece:
    """Console output of one stream, in the parts that it came in."""

    __slots__ = ("parts", "size", "stream")

    def __init__(self, stream: str, text: str) -> None:
        self.stream = stream
        self.parts = [text]
        self.size = len(text)


class Told:
    """Anything else: `kind` is `line`, `display` or `note`."""

    __slots__ = ("data", "kind")

    def __init__(self, kind: str, data: Any) -> None:
        self.kind = kind
        self.data = data


class Feed:
    """A queue of what was told, with one reader.

    Attributes:
        left: whether its reader is gone for good.

    Args:
        room: called when there is room again.
    """

    def __init__(self, room: Callable[[], None]) -> None:
        self._room = room
        self._items: deque[Piece | Told] = deque()
        self._size = 0
        self._changed = threading.Condition()
        self._ended = False
        self.left = False

    @property
    def full(self) -> bool:
        return self._size >= ROOM and not self.left

    def text(self, stream: str, text: str) -> None:
        with self._changed:
            if self.left or not text:
                return
            last = self._items[-1] if self._items else None
            if isinstance(last, Piece) and last.stream == stream and last.size < PIECE:
                last.parts.append(text)
                last.size += len(text)
            else:
                self._items.append(Piece(stream, text))
            self._size += len(text)
            self._changed.notify()

    def tell(self, kind: str, data: Any) -> None:
        with self._changed:
            last = self._items[-1] if self._items else None
            if kind == "line" and isinstance(last, Told) and last.kind == "line":
                last.data = data  # nobody was told of the one before
                return
            if self.left:
                return
            self._items.append(Told(kind, data))
            self._size += _size_of(data)
            self._changed.notify()

    def leave(self) -> None:
        """Nobody takes anything any more; who waits for it does so no longer."""
        with self._changed:
            self.left = True
            self._items.clear()
            self._size = 0
            self._changed.notify_all()
        self._room()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def take(self) -> list[Piece | Told] | None:
        """What is there, once there is any; None at the end."""
        with self._changed:
            while not self._items and not self._ended and not self.left:
                self._changed.wait()
            taken = list(self._items)
            self._items.clear()
            was_full = self._size >= ROOM
            self._size = 0
        if was_full:
            self._room()
        return taken or None


def _size_of(data: Any) -> int:
    if isinstance(data, str):
        return len(data)
    if isinstance(data, Mapping):
        return sum(map(_size_of, data.values()))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return 1
