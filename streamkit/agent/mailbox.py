"""A mailbox for events: tools put them, from any thread or task, and the stream's source takes them.

It is bounded by the number of calls: progress that was not taken yet is joined, so that between two outputs there is at
most one delta of each call.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from ..events import Event, ToolOutputDelta

__all__ = ["Mailbox"]


class _Progress:
    """The progress of one call that was not taken yet."""

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        self.pieces: list[str] = []

    def delta(self) -> ToolOutputDelta:
        return ToolOutputDelta(self.message_id, "".join(self.pieces), metadata={"progress": True})


class Mailbox:
    """Batches of events, put by any thread and taken by one.

    Attributes:
        wake: called after each `put`, `put_progress` and `end`, in the thread that called it.
    """

    def __init__(self) -> None:
        self.wake: Callable[[], object] = lambda: None
        self._batches: deque[list[Event] | _Progress] = deque()
        self._lock = threading.Lock()
        self._ended = False
        self._error: BaseException | None = None

    def put(self, events: Sequence[Event]) -> None:
        """Add a batch."""
        with self._lock:
            self._batches.append([*events])
        self.wake()

    def put_progress(self, message_id: str, text: str) -> None:
        """Add progress of a call. It is joined to that call's earlier progress, if that was not taken yet."""
        with self._lock:
            self._untaken_progress(message_id).pieces.append(text)
        self.wake()

    def _untaken_progress(self, message_id: str) -> _Progress:
        """Return the call's progress at the end of the queue; a new one if an output was put after it."""
        for batch in reversed(self._batches):
            if not isinstance(batch, _Progress):
                break
            if batch.message_id == message_id:
                return batch
        progress = _Progress(message_id)
        self._batches.append(progress)
        return progress

    def end(self, error: BaseException | None = None) -> None:
        """Say that nothing more will be put. `error` is raised in the thread that takes, after the last batch."""
        with self._lock:
            self._ended = True
            self._error = self._error or error
        self.wake()

    def take(self) -> list[Event] | None:
        """Return the next batch; None if there is none yet, [] after the last one.

        Raises:
            BaseException: what `end` was called with.
        """
        with self._lock:
            if self._batches:
                batch = self._batches.popleft()
                return [batch.delta()] if isinstance(batch, _Progress) else batch
            if self._error is not None:
                raise self._error
            return [] if self._ended else None
