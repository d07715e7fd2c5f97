"""One tool call while its function runs, and the events of its output."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import UsageError
from ..events import Event, StreamWarning, ToolOutputCreated, ToolOutputDelta, ToolOutputDone
from ..messages import Status, ToolCallMessage, ToolOutputMessage, output_text
from ..sources.interrupt import Stopped
from .argument_schema import ArgumentsError
from .mailbox import Mailbox

__all__ = ["PendingCall", "call_id_of", "declined_output", "failure_events"]


class PendingCall:
    """A call whose function runs.

    Its events are: created and deltas with progress, if the tool reports any; a delta that replaces the progress; done.

    Args:
        call: the model's call.
        mailbox: where its events go.
        is_stopped: whether the stream was closed or cancelled; `progress` then raises.
    """

    def __init__(self, call: ToolCallMessage, mailbox: Mailbox, is_stopped: Callable[[], bool]) -> None:
        self.call = call
        self._mailbox = mailbox
        self._is_stopped = is_stopped
        self._is_created = False
        self._is_done = False
        self._lock = threading.Lock()

    def report_progress(self, text: str) -> None:
        """Emit a piece of progress. Ignored once the call has its output: a tool may leave a thread behind.

        Raises:
            Stopped: the stream was closed or cancelled.
        """
        if self._is_stopped():
            raise Stopped
        with self._lock:
            if self._is_done:
                return
            if not self._is_created:
                self._is_created = True
                self._mailbox.put([ToolOutputCreated(_output(self.call))])
            self._mailbox.put_progress(_output_id(self.call), str(text))

    def complete(self, value: object) -> None:
        """Emit the output. A value that cannot be written as text makes the call fail."""
        if inspect.iscoroutine(value):
            value.close()  # a sync agent cannot await it
        try:
            text = output_text(value)
        except Exception as error:  # the conversion calls methods of the value, which may raise anything
            self.fail(error)
        else:
            self._emit_done([ToolOutputDone(_output(self.call, text))])

    def fail(self, error: BaseException) -> None:
        """Emit the error as the output, and a warning."""
        fault = str(error) if isinstance(error, (ArgumentsError, UsageError)) else f"{type(error).__name__}: {error}"
        warning = f"tool {self.call.name}: {fault}"
        self._emit_done(failure_events(self.call, f"Error: {fault}", "tool-failed", warning))

    def _emit_done(self, events: list[Event]) -> None:
        with self._lock:
            self._is_done = True
            final = [event.message for event in events if isinstance(event, ToolOutputDone)]
            replacing = [ToolOutputDelta(_output_id(self.call), m.content, True) for m in final if self._is_created]
            self._mailbox.put([*replacing, *events])


def call_id_of(call: ToolCallMessage) -> str:
    """The id that ties a call to its output, its code and its console: the provider's, else the message's."""
    return call.call_id or call.id


def failure_events(call: ToolCallMessage, output: str, code: str, fault: str) -> list[Event]:
    """The events of a call that failed.

    Args:
        call: the model's call.
        output: the call's output, which the model reads.
        code: the warning's code.
        fault: the warning's text, for `on_warning`.
    """
    failed = _output(call, output, status="failed", metadata={"error": True})
    return [StreamWarning(code, fault, kind="tool_call"), ToolOutputDone(failed)]


def declined_output(call: ToolCallMessage, text: str, reason: str | None) -> ToolOutputDone:
    """The output of a call that the user declined with a reason. `text` is what the model reads."""
    return ToolOutputDone(_output(call, text, metadata={"declined": reason}))


def _output_id(call: ToolCallMessage) -> str:
    return f"{call.id}.output"


def _output(
    call: ToolCallMessage,
    content: str | None = None,
    *,
    status: Status = "completed",
    metadata: Mapping[str, Any] | None = None,
) -> ToolOutputMessage:
    return ToolOutputMessage(
        _output_id(call), name=call.name, call_id=call_id_of(call), content=content, status=status, metadata=metadata
    )
