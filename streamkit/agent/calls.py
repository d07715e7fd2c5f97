"""One tool call while its function runs, the events of its output, and the mailbox through which they reach the stream."""

from __future__ import annotations

import inspect
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

from msgspec.structs import replace

from ..errors import UsageError
from ..events import Delta, Event, StreamWarning, ToolOutputCreated, ToolOutputDelta, ToolOutputDone
from ..messages import (
    AudioMessage,
    FileMessage,
    ImageMessage,
    Message,
    Status,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
    output_text,
)
from ..sources.interrupt import Stopped
from ..streams.state import StreamState
from .argument_schema import ArgumentsError
from .conversation import changed, image_of_path, image_text
from .tool_context import ToolContext, current_progress
from .tools import Tool, ToolFailure

__all__ = ["Mailbox", "PendingCall", "call_id_of", "declined_output", "failure_events"]


class ToolTimeoutError(Exception):
    """A call took longer than its tool's `timeout`."""


class PendingCall:
    """A call of a function, and its outcome.

    Its events are: created and deltas with progress, if the tool reports any; a delta that replaces the progress; done.

    Args:
        call: the model's call.
        tool: the function that it calls.
        stream: the agent's stream, for the tool's context.
        deps: the application's own object, for the same.

    Attributes:
        suspended: whether it waits for an answer that nobody gave, so that it has no output: of agents' calls.
        waits: whether it does nothing but wait for an answer: of agents' calls.
        record: writes its sub-agent's messages so far into the conversation, in the stream's own thread.
        media: the images, files and audio of its output.
        began: whether the function was called.
        output: its output once it has ended, whether the stream still emits it or not; None before that.
    """

    def __init__(self, call: ToolCallMessage, tool: Tool[..., Any], stream: StreamState, deps: object = None) -> None:
        self.call = call
        self.tool = tool
        self._stream = stream
        self._deps = deps
        self.began = self.suspended = self.waits = False
        self.record: Callable[[], object] = lambda: None
        self.output: ToolOutputMessage | None = None
        self.media: list[Message] = []
        self._timed_out = False
        self._progress: list[str] = []
        self._lock = threading.Lock()

    @property
    def inner_messages(self) -> list[Message]:
        """The conversation of the agent that it has asked, as the outer one has it; [] of a function."""
        return []

    def prepare(self, mailbox: Mailbox, is_stopped: Callable[[], bool]) -> None:
        """Get ready to be called, in the context of the call.

        Args:
            mailbox: where the call's events go.
            is_stopped: whether the stream was closed or cancelled; `progress` then raises.
        """
        self._mailbox = mailbox
        self._is_stopped = is_stopped
        current_progress.set(self.report_progress)

    def report_waiting(self) -> None:
        """Say that the stream waits for answers, and does nothing else. It is called in the stream's own thread."""
        if self._stream.on_wait is not None:
            self._stream.on_wait()

    @contextmanager
    def around(self) -> Generator[None]:
        """Enter the contexts that the stream's handlers have for this call. None of them can make an error go away."""
        failure: BaseException | None = None
        with self._stream.around_tool(self.call):
            try:
                yield
            except BaseException as error:
                failure = error
                raise
        if failure is not None:
            raise failure

    def run(self) -> Any:
        """Call the function. Returns its result, and raises its error."""
        self.began = True
        arguments = self.tool.check(self.call.content)
        value = self.tool.call(self.call.content, ToolContext(self.call, self._stream, self._deps, arguments))
        pieces = getattr(value, "text_deltas", value)
        if not isinstance(value, Generator) and (pieces is value or not isinstance(pieces, Iterator)):
            return value
        return "".join(map(self._reported, cast("Iterator[object]", pieces)))

    async def collect(self, value: Any) -> Any:
        """Return the value of an async function: of an async generator or an async stream all of its text, each piece
        of which is reported as progress."""
        pieces = getattr(value, "text_deltas", value)
        if not isinstance(pieces, AsyncIterator):
            return value
        return "".join([self._reported(piece) async for piece in cast("AsyncIterator[object]", pieces)])

    def _reported(self, piece: object) -> str:
        text = output_text(piece)
        self.report_progress(text)
        return text

    @property
    def progress(self) -> str:
        """The function's reported progress so far."""
        with self._lock:
            return "".join(self._progress)

    def report_progress(self, text: str) -> None:
        """Emit a piece of progress. Ignored once the call has its output: a tool may leave a thread behind.

        Raises:
            Stopped: the stream was closed or cancelled.
        """
        if self._timed_out or self._is_stopped():
            raise Stopped
        with self._lock:
            if self.output is not None:
                return
            if not self._progress:
                self._mailbox.put([ToolOutputCreated(_output(self.call))])
            self._progress.append(str(text))
            self._mailbox.put_progress(_output_id(self.call), str(text))

    def succeed(self, value: object) -> None:
        """Emit the output. A value that cannot be written as text makes the call fail."""
        if inspect.iscoroutine(value):
            value.close()  # a sync agent cannot await it
        try:
            output, media = self._output_and_media(value)
        except Exception as error:  # the conversion calls methods of the value, which may raise anything
            self.fail(error)
        else:
            self._emit_done(output, media=media)

    def _output_and_media(self, value: object) -> tuple[ToolOutputMessage, list[Message]]:
        """Return a function's value as the call's output, and the images, files and audio of it: those of a message or of a list
        with some. A `ToolOutputMessage` has metadata of the output."""
        is_sequence = isinstance(value, (list, tuple))
        parts = cast("Sequence[object]", value) if is_sequence else [value]  # type parameters cannot be checked
        if not any(isinstance(part, Message) for part in parts):
            return _output(self.call, output_text(value)), []
        texts: list[str] = []
        media: list[Message] = []
        metadata: dict[str, Any] = {}
        for part in parts:
            match part:
                case ImageMessage() | FileMessage() | AudioMessage():
                    media.append(self._as_result(part, len(media) + 1))
                    texts.append(image_text(part))
                case ToolOutputMessage():
                    metadata |= part.metadata
                    texts += [part.content] if part.content else []
                case _:
                    texts.append(part.content if isinstance(part, TextMessage) else output_text(part))
        return _output(self.call, "\n".join(texts), metadata=metadata), media

    def _as_result(self, part: Message, number: int) -> Message:
        """Return an image, a file or audio as a message of the computer's."""
        if isinstance(part, ImageMessage) and part.format == "path":
            part = image_of_path(part)
        id = f"{self.call.id}.{part.type}-{number}"
        return changed(part, id=id, role="computer", call_id=call_id_of(self.call), status="completed")

    def time_out(self) -> None:
        """Emit as the output that the call's time is over. A later result of the function counts for nothing."""
        self._timed_out = True
        rest = "was stopped" if self.tool.can_be_stopped else "could not be stopped, and may still run"
        self.fail(ToolTimeoutError(f"the tool took longer than {self.tool.timeout:g} seconds and {rest}"))

    def fail(self, error: BaseException) -> None:
        """Emit the error as the output, and a warning."""
        is_ours = isinstance(error, (ArgumentsError, UsageError, ToolFailure, ToolTimeoutError))
        fault = str(error) if is_ours else f"{type(error).__name__}: {error}"
        output = _failed_output(self.call, f"Error: {fault}")
        self._emit_done(output, StreamWarning("tool-failed", f"tool {self.call.name}: {fault}", kind="tool_call"))

    def _emit_done(self, output: ToolOutputMessage, *before: Event, media: Sequence[Message] = ()) -> None:
        with self._lock:
            if self.output is not None:
                return  # its time was over
            self.output, self.media = output, [*media]
            replacing = [ToolOutputDelta(output.id, output.content, True)] if self._progress else []
            self._mailbox.put([*replacing, *before, ToolOutputDone(output), *(one.done_event(one) for one in media)])


def call_id_of(call: ToolCallMessage) -> str:
    """Return the id that ties a call to its output, its code and its console: the provider's, else the message's."""
    return call.call_id or call.id


def failure_events(call: ToolCallMessage, output: str, code: str, fault: str) -> list[Event]:
    """Return the events of a call that failed.

    Args:
        call: the model's call.
        output: the call's output, which the model reads.
        code: the warning's code.
        fault: the warning's text, for `on_warning`.
    """
    return [StreamWarning(code, fault, kind="tool_call"), ToolOutputDone(_failed_output(call, output))]


def declined_output(call: ToolCallMessage, text: str, reason: str | None) -> ToolOutputDone:
    """Return the output of a call that the user declined with a reason. `text` is what the model reads."""
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


class _Pieces:
    """The deltas of one message that were not taken yet, as one."""

    def __init__(self, first: Delta) -> None:
        self.first = first
        self.values: list[str] = []

    def delta(self) -> Delta:
        return replace(self.first, value="".join(self.values))


Later: TypeAlias = Callable[[], Sequence[Event]]


class Mailbox:
    """Batches of events: tools put them, from any thread or task, and the stream's source takes them. It is bounded by the
    number of calls and of an inner agent's messages: deltas that were not taken yet are joined, so that between two other events
    there is at most one of each message.

    Attributes:
        wake: called after each `put…` and `end`, in the thread that called it.
        running: the calls that run.
    """

    def __init__(self) -> None:
        self.wake: Callable[[], object] = lambda: None
        self.running: list[PendingCall] = []
        self._batches: deque[list[Event] | _Pieces | Later] = deque()
        self._lock = threading.Lock()
        self._ended = False
        self._error: BaseException | None = None
        self._waiting = threading.Lock()  # while it is decided whether all calls wait

    def put(self, events: Sequence[Event]) -> None:
        """Add a batch."""
        with self._lock:
            self._batches.append([*events])
        self.wake()

    def put_progress(self, message_id: str, text: str) -> None:
        """Add progress of a call. It is joined to that call's earlier progress, if that was not taken yet."""
        self.put_delta(ToolOutputDelta(message_id, text, metadata={"progress": True}))

    def put_delta(self, delta: Delta) -> None:
        """Add a delta. It is joined to the earlier ones of its message that were not taken yet."""
        with self._lock:
            self._untaken(delta).values.append(delta.value)
        self.wake()

    def put_later(self, later: Later) -> None:
        """Add a function that returns events. It is called in the stream's own thread, when all that was put before it was
        delivered."""
        with self._lock:
            self._batches.append(later)
        self.wake()

    def _untaken(self, delta: Delta) -> _Pieces:
        """Return the deltas like this one at the end of the queue; new ones if another event was put after them."""
        for batch in reversed(self._batches):
            if not isinstance(batch, _Pieces) or delta.replace:
                break
            first = batch.first
            if first.message_id == delta.message_id:
                if type(first) is type(delta) and not first.replace and first.metadata == delta.metadata:
                    return batch
                break
        pieces = _Pieces(delta)
        self._batches.append(pieces)
        return pieces

    def put_wait(self) -> None:
        """Say that the stream waits, if each call that runs does so when all that was put was delivered."""
        self.put_later(self._report_waiting)

    def _report_waiting(self) -> Sequence[Event]:
        with self._waiting:
            running = [*self.running]
            if running and not self._batches and all(call.waits for call in running):
                running[0].report_waiting()
        return ()

    def goes_on(self, call: PendingCall) -> None:
        """A call that may have waited goes on."""
        if call.waits:
            with self._waiting:
                call.waits = False

    def end_call(self, call: PendingCall) -> None:
        """A call has ended: perhaps all others wait."""
        self.running.remove(call)
        if self.running:
            self.put_wait()

    def end(self, error: BaseException | None = None) -> None:
        """Say that nothing more will be put. `error` is raised in the thread that takes, after the last batch."""
        with self._lock:
            self._ended = True
            self._error = self._error or error
        self.wake()

    def take(self) -> list[Event] | None:
        """Return the next batch; None if there is none yet, [] after the last one.

        Raises:
            BaseException: the one that `end` was called with.
        """
        while True:
            with self._lock:
                if not self._batches:
                    if self._error is not None:
                        raise self._error
                    return [] if self._ended else None
                batch = self._batches.popleft()
            match batch:
                case _Pieces():
                    return [batch.delta()]
                case list():
                    return batch
                case _:
                    events = [*batch()]
            if events:
                return events
