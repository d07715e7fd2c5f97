"""One call of a tool: what it tells while it runs, and what comes of it.

Events go through a mailbox, from whatever threads and tasks the tools run in to the one that pulls. It is bounded by the
calls: what nobody has read yet is joined, so that there is at most one delta of each call between two outputs.
"""

from __future__ import annotations

import inspect
import threading
from collections import deque
from collections.abc import Callable, Sequence

from ..errors import UsageError
from ..events import Event, StreamWarning, ToolOutputCreated, ToolOutputDelta, ToolOutputDone
from ..messages import ToolCallMessage, ToolOutputMessage, output_text
from ..sources.interrupt import Stopped
from .tools import ArgumentsError

__all__ = ["Called", "Mailbox", "refused"]


class _Progress:
    """Pieces of one call's progress that nobody has read yet."""

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        self.pieces: list[str] = []

    def delta(self) -> ToolOutputDelta:
        return ToolOutputDelta(self.message_id, "".join(self.pieces), metadata={"progress": True})


class Mailbox:
    """Batches of events, put by any thread, taken by one. `wake` is called after each that was put."""

    def __init__(self) -> None:
        self.wake: Callable[[], object] = lambda: None
        self._batches: deque[list[Event] | _Progress] = deque()
        self._lock = threading.Lock()
        self._over = False
        self._raised: BaseException | None = None

    def put(self, events: Sequence[Event]) -> None:
        with self._lock:
            self._batches.append([*events])
        self.wake()

    def put_progress(self, message_id: str, text: str) -> None:
        """A piece of a call's progress, which is joined to the one before it, if that was not read yet."""
        with self._lock:
            self._unread(message_id).pieces.append(text)
        self.wake()

    def _unread(self, message_id: str) -> _Progress:
        for batch in reversed(self._batches):
            if not isinstance(batch, _Progress):
                break
            if batch.message_id == message_id:
                return batch
        progress = _Progress(message_id)
        self._batches.append(progress)
        return progress

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more comes; with an error, whoever takes has it raised."""
        with self._lock:
            self._over = True
            self._raised = self._raised or error
        self.wake()

    def take(self) -> list[Event] | None:
        """The next batch; None if there is none yet, [] at the end."""
        with self._lock:
            if self._batches:
                batch = self._batches.popleft()
                return [batch.delta()] if isinstance(batch, _Progress) else batch
            if self._raised is not None:
                raise self._raised
            return [] if self._over else None


class Called:
    """One call.

    Args:
        stopped: whether its stream is over, so that nobody hears what it tells.
    """

    def __init__(self, call: ToolCallMessage, box: Mailbox, stopped: Callable[[], bool]) -> None:
        self.call = call
        self._box = box
        self._stopped = stopped
        self._begun = False
        self._over = False
        self._lock = threading.Lock()

    def progress(self, text: str) -> None:
        """A piece of the output, until there is one.

        Raises:
            Stopped: the stream is over.
        """
        if self._stopped():
            raise Stopped
        with self._lock:
            if self._over:
                return  # a thread that the tool left behind
            if not self._begun:
                self._begun = True
                self._box.put([ToolOutputCreated(_output(self.call))])
            self._box.put_progress(_id(self.call), str(text))

    def give(self, value: object) -> None:
        """The output, as the model is told it."""
        if inspect.iscoroutine(value):
            value.close()
        try:
            text = output_text(value)
        except Exception as error:  # an object's own, where it says what it is
            self.fail(error)
        else:
            self._done(ToolOutputDone(_output(self.call, text)))

    def fail(self, error: BaseException) -> None:
        """The tool raised: the model is told, and the hooks are."""
        what = str(error) if isinstance(error, (ArgumentsError, UsageError)) else f"{type(error).__name__}: {error}"
        self._done(*refused(self.call, f"Error: {what}", "tool-failed", f"tool {self.call.name}: {what}"))

    def _done(self, *events: Event) -> None:
        with self._lock:
            self._over = True
            final = [event.message for event in events if isinstance(event, ToolOutputDone)]
            replaced = [ToolOutputDelta(_id(self.call), m.content, True) for m in final if self._begun]
            self._box.put([*replaced, *events])


def refused(call: ToolCallMessage, output: str, code: str, fault: str) -> list[Event]:
    """A call of which nothing came: what the model is told, and the hooks."""
    failed = _output(call, output, failed=True)
    return [StreamWarning(code, fault, kind="tool_call"), ToolOutputDone(failed)]


def _id(call: ToolCallMessage) -> str:
    return f"{call.id}.output"


def _output(call: ToolCallMessage, content: str | None = None, *, failed: bool = False) -> ToolOutputMessage:
    return ToolOutputMessage(
        _id(call),
        name=call.name,
        call_id=call.call_id or call.id,
        content=content,
        status="failed" if failed else "completed",
        metadata={"error": True} if failed else None,
    )
