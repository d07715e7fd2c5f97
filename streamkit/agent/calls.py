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
from .progress import current_progress
from .tools import Tool

__all__ = ["PendingCall", "call_id_of", "declined_output", "failure_events"]


class PendingCall:
    """A call of a function, and what became of it.

    Its events are: created and deltas with progress, if the tool reports any; a delta that replaces the progress; done.

    Args:
        call: the model's call.
        tool: what it calls.

    Attributes:
        began: whether the function was called.
        output: its output once it has ended, whether the stream still emits it or not; None before that.
    """

    def __init__(self, call: ToolCallMessage, tool: Tool[..., Any]) -> None:
        self.call = call
        self.tool = tool
        self.began = False
        self.output: ToolOutputMessage | None = None
        self._progress: list[str] = []
        self._lock = threading.Lock()

    def prepare(self, mailbox: Mailbox, is_stopped: Callable[[], bool]) -> None:
        """Get ready to be called, in the context of the call.

        Args:
            mailbox: where the call's events go.
            is_stopped: whether the stream was closed or cancelled; `progress` then raises.
        """
        self._mailbox = mailbox
        self._is_stopped = is_stopped
        current_progress.set(self.report_progress)

    def run(self) -> Any:
        """Call the function, and return what it returns. Raises what it raises."""
        self.began = True
        return self.tool.call(self.call.content)

    @property
    def progress(self) -> str:
        """What the function has reported so far."""
        with self._lock:
            return "".join(self._progress)

    def report_progress(self, text: str) -> None:
        """Emit a piece of progress. Ignored once the call has its output: a tool may leave a thread behind.

        Raises:
            Stopped: the stream was closed or cancelled.
        """
        if self._is_stopped():
            raise Stopped
        with self._lock:
            if self.output is not None:
                return
            if not self._progress:
                self._mailbox.put([ToolOutputCreated(_output(self.call))])
            self._progress.append(str(text))
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
            self._emit_done(_output(self.call, text))

    def fail(self, error: BaseException) -> None:
        """Emit the error as the output, and a warning."""
        fault = str(error) if isinstance(error, (ArgumentsError, UsageError)) else f"{type(error).__name__}: {error}"
        output = _failed_output(self.call, f"Error: {fault}")
        self._emit_done(output, StreamWarning("tool-failed", f"tool {self.call.name}: {fault}", kind="tool_call"))

    def _emit_done(self, output: ToolOutputMessage, *before: Event) -> None:
        with self._lock:
            self.output = output
            replacing = [ToolOutputDelta(output.id, output.content, True)] if self._progress else []
            self._mailbox.put([*replacing, *before, ToolOutputDone(output)])


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
    return [StreamWarning(code, fault, kind="tool_call"), ToolOutputDone(_failed_output(call, output))]


def declined_output(call: ToolCallMessage, text: str, reason: str | None) -> ToolOutputDone:
    """The output of a call that the user declined with a reason. `text` is what the model reads."""
    return ToolOutputDone(_output(call, text, metadata={"declined": reason}))


def _output_id(call: ToolCallMessage) -> str:
    return f"{call.id}.output"


def _failed_output(call: ToolCallMessage, text: str) -> ToolOutputMessage:
    return _output(call, text, status="failed", metadata={"error": True})


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
