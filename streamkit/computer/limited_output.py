"""The output of one run within its limit, on the way into the output queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .output_queue import OutputQueue
from .pipes import Stream

__all__ = ["LimitedOutput"]


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
