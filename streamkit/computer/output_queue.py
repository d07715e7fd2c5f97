"""The output of one run within its limit, on its way from the thread that reads it to the reader of the run.

The rule: order is kept and memory is bounded. Text that waits is joined, so a slow reader gets few large chunks. While
the queue is full its writer stops reading the pipes, and the running code blocks in its next write.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from .pipes import Stream

__all__ = [
    "ActiveLineOutput",
    "DisplayOutput",
    "LimitedOutput",
    "NoteOutput",
    "OutputItem",
    "OutputQueue",
    "TextOutput",
]

CAPACITY = 1 << 20  # characters that may wait before the writer has to pause
CHUNK = 1 << 16  # characters from which on a chunk of text is not extended any more


class TextOutput:
    """Text written to one stream (`stdout` or `stderr`), in the parts that arrived."""

    __slots__ = ("parts", "size", "stream")

    def __init__(self, stream: str, text: str) -> None:
        self.stream = stream
        self.parts = [text]
        self.size = len(text)


class ActiveLineOutput:
    """The number of the line that runs now, counted from 1, and whether a statement of the run begins there."""

    __slots__ = ("line", "step")

    def __init__(self, line: int, step: bool) -> None:
        self.line = line
        self.step = step


class DisplayOutput:
    """A value that the code displayed: its representations by MIME type."""

    __slots__ = ("data",)

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data


class NoteOutput:
    """Text for the console that the computer adds itself, such as why a run was stopped."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


OutputItem = TextOutput | ActiveLineOutput | DisplayOutput | NoteOutput


class OutputQueue:
    """A bounded queue of output with one writer and one reader, each in a thread of its own.

    Args:
        on_room: called by the reader's thread when a full queue has room again.

    Attributes:
        abandoned: whether the reader has gone for good; whatever is put then is dropped.
    """

    def __init__(self, on_room: Callable[[], None]) -> None:
        self._on_room = on_room
        self._items: deque[OutputItem] = deque()
        self._size = 0
        self._changed = threading.Condition()
        self._closed = False
        self.abandoned = False

    @property
    def full(self) -> bool:
        """Whether the writer should pause. A full queue still accepts and delivers output."""
        return self._size >= CAPACITY and not self.abandoned

    def put_text(self, stream: str, text: str) -> None:
        """Add console output of `stdout` or `stderr`; joined with the chunk before it if that is of the same stream."""
        with self._changed:
            if self.abandoned or not text:
                return
            last = self._items[-1] if self._items else None
            if isinstance(last, TextOutput) and last.stream == stream and last.size < CHUNK:
                last.parts.append(text)
                last.size += len(text)
            else:
                self._items.append(TextOutput(stream, text))
            self._size += len(text)
            self._changed.notify()

    def put_active_line(self, line: int, *, step: bool = True) -> None:
        """Add the line that runs now. It replaces one that the reader has not taken yet, unless that is a step.

        Args:
            line: its number, from 1.
            step: whether a statement of the run begins there, of which each is reported.
        """
        with self._changed:
            last = self._items[-1] if self._items else None
            if isinstance(last, ActiveLineOutput) and not last.step and not step:
                last.line = line
            else:
                self._append(ActiveLineOutput(line, step), 1)

    def put_display(self, data: Mapping[str, Any]) -> None:
        """Add a displayed value, its representations by MIME type."""
        with self._changed:
            self._append(DisplayOutput(data), _characters_in(data))

    def put_note(self, text: str) -> None:
        """Add text of the computer's own."""
        with self._changed:
            self._append(NoteOutput(text), len(text))

    def _append(self, item: OutputItem, size: int) -> None:
        """Add an item; the caller holds the lock."""
        if not self.abandoned:
            self._items.append(item)
            self._size += size
            self._changed.notify()

    def abandon(self) -> None:
        """The reader goes for good: drop what waits, and end a `take` that waits in another thread."""
        with self._changed:
            self.abandoned = True
            self._items.clear()
            self._size = 0
            self._changed.notify_all()
        self._on_room()

    def close(self) -> None:
        """The writer is done. The reader still gets what waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self) -> list[OutputItem] | None:
        """Wait for output and return all that is there; None once the queue is closed and empty, or abandoned."""
        with self._changed:
            while not self._items and not self._closed and not self.abandoned:
                self._changed.wait()
            taken = list(self._items)
            self._items.clear()
            was_full = self._size >= CAPACITY
            self._size = 0
        if was_full:
            self._on_room()
        return taken or None


class LimitedOutput:
    """Writes a run's output to its queue, up to a number of characters.

    Args:
        queue: where the output goes.
        limit: how many characters may be written; None for no limit.
        on_limit: called once the limit is reached.

    Attributes:
        at_line_start: whether the output so far ends with a line end, or with a display.
        stopping: set when the run is to stop. If the queue is full then, the rest of the output is dropped, for the
            end of the run must not wait for its reader.
    """

    def __init__(self, queue: OutputQueue, limit: int | None, on_limit: Callable[[], None]) -> None:
        self._queue = queue
        self._remaining = limit
        self._on_limit = on_limit
        self._dropping = False
        self.at_line_start = True
        self.stopping = False

    def write(self, stream: Stream, text: str) -> None:
        """Write console output."""
        if not text:
            return
        queue = self._queue
        if self.stopping and queue.full:
            self._dropping = True
        if self._remaining is not None:
            text = text[: max(0, self._remaining)]
            self._count(len(text))
        if text and not self._dropping:
            queue.put_text(stream, text)
            self.at_line_start = text.endswith("\n")

    def display(self, data: Mapping[str, Any]) -> None:
        """Write a displayed value. One that passes the limit is still displayed, for a part of it would be useless."""
        if self._dropping:
            return
        if self._remaining is None or self._remaining > 0:
            self._queue.put_display(data)
            self.at_line_start = True
            self._count(sum(len(value) for value in data.values() if isinstance(value, str)))

    def _count(self, size: int) -> None:
        if self._remaining is not None:
            self._remaining -= size
            if self._remaining <= 0:
                self._on_limit()


def _characters_in(data: Any) -> int:
    """Return the size of a displayed value: the characters of its strings, 1 for anything else."""
    if isinstance(data, str):
        return len(data)
    if isinstance(data, Mapping):
        return sum(map(_characters_in, data.values()))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]  # JSON
    return 1
