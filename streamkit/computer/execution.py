"""One run of code, read as it happens: what `Computer.run` returns.

Its life: `waiting` until it is first read; `running` in a thread of its own, which fills the output queue; then one of
the final states. Closing a run that waits makes it `interrupted` without ever running it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

import anyio
import anyio.to_thread

from ..errors import SourceError
from ..events import Event, StreamEnd
from ..messages import Status
from ..sources.source import AsyncSource, Readable, Source, SourceTraits
from .end_notes import end_notes
from .events import RunEvents
from .request import RunRequest, RunResult, StopReason
from .runner import Runner

__all__ = ["CodeError", "Execution", "ExecutionStatus"]

ExecutionStatus = Literal["waiting", "running", "completed", "failed", "interrupted", "timed_out", "limit", "died"]
"""The state of an `Execution`; see there."""

_STATUS_OF_REASON: dict[StopReason, ExecutionStatus] = {
    "interrupted": "interrupted",
    "closed": "interrupted",
    "timed_out": "timed_out",
    "output_limit": "limit",
    "memory_limit": "limit",
    "process_limit": "limit",
}
# The status of the console message that is open when the run ends; `incomplete` for all others.
_MESSAGE_STATUS: dict[ExecutionStatus, Status] = {
    "completed": "completed",
    "failed": "completed",
    "interrupted": "cancelled",
}


class CodeError(NamedTuple):
    """The error that code raised.

    Attributes:
        name: its class, as `ZeroDivisionError`.
        value: its text, as `division by zero`.
        traceback: its traceback as plain text, without colours.
    """

    name: str
    value: str
    traceback: str


class Execution(Readable):
    """One run of code. It begins when it is first read, and it is read once.

    Read it as an iterable of events, sync or async, or give it to `stream` or `astream` as the source. Leaving a loop
    over it only pauses the reading: a later loop continues where it stopped, and meanwhile the code runs until about a
    megabyte of output waits. To stop the code call `interrupt` or `close`, or use the run as a context manager, sync
    or async, which closes it:

        with computer.run("shell", "make test") as execution:
            for event in execution:
                if isinstance(event, sk.ConsoleDelta) and "FAILED" in event.value:
                    break
        print(execution.status)  # "interrupted"

    Attributes:
        language: the language's name, not an alias; of an unsupported language the name that was passed.
        code: the source code.
        id: the id of its first message. Further messages have it with a number.
        call_id: the id of the tool call that the code came from; None without one.
        status: `waiting` until it is first read, then `running`, and at the end one of: `completed`; `failed` (the code
            raised an error or ended with an exit status other than 0, the language is not supported, or its process
            could not be started); `interrupted`, by `interrupt` or `close`; `timed_out`; `limit` (of output, memory or
            processes); `died` (its process ended unexpectedly, or `Runner.run` raised an error).
        exit_code: of the shell's last command, of Python's `exit`, or of a process that ended, negative for a signal;
            None where there is none.
        error: the error that the code raised, as `CodeError`; None without one.
        state_lost: whether variables and other state of the language are gone with its process, in this run or since
            the run before it. The console says so too.
    """

    def __init__(
        self,
        language: str,
        request: RunRequest,
        id: str,
        call_id: str | None,
        runner: Runner | None,
        *,
        claim: Callable[[Execution], None],
        free: Callable[[Execution], None],
    ) -> None:
        self.language = language
        self.id = id
        self.call_id = call_id
        self.status: ExecutionStatus = "waiting"
        self.exit_code: int | None = None
        self.error: CodeError | None = None
        self.state_lost = False
        self._request = request
        self._runner = runner
        self._claim = claim
        self._free = free
        self._run_events = RunEvents(id, call_id)
        self._lock = threading.Lock()  # of `status` and `_thread`
        self._reading = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._batches = self._read_batches()
        self._pending: deque[Event] = deque()  # converted, and not read yet

    def __repr__(self) -> str:
        return f"<Execution {self.id} {self.language} {self.status}>"

    @property
    def code(self) -> str:
        """The source code."""
        return self._request.code

    # -- reading

    def __iter__(self) -> Iterator[Event]:
        """The events as they happen. Each event is returned once: another loop continues after it.

        Raises:
            UsageError: another run of the language has not ended, or the computer is closed.
            Exception: whatever `input` raised, after the last event.
        """
        while self._pending or self._fill_pending():
            yield self._pending.popleft()

    def next_batch(self) -> list[Event]:
        """Wait for events and return all that are there; [] at the end. Raises as iterating does. For the source."""
        if not self._pending and not self._fill_pending():
            return []
        return [self._pending.popleft() for _ in range(len(self._pending))]

    def _fill_pending(self) -> bool:
        """Wait for more events; False at the end."""
        with self._reading:  # a cancelled task leaves its thread waiting here, while the next reader comes
            if self._pending:
                return True
            batch = next(self._batches, None)
            self._pending.extend(batch or ())
            return batch is not None

    def for_stream(self) -> Execution:
        """Itself: a stream reads the run directly."""
        return self

    def source(self) -> Source:
        """The run as the source of a sync stream. Closing the source closes the run."""
        return _ExecutionSource(self)

    def async_source(self) -> AsyncSource:
        """The run as the source of an async stream; a thread waits for its events."""
        source = self.source()
        pulling, closing = anyio.CapacityLimiter(1), anyio.CapacityLimiter(1)

        async def pull() -> Any:
            return await anyio.to_thread.run_sync(source.pull, limiter=pulling, abandon_on_cancel=True)

        async def close() -> None:
            with anyio.CancelScope(shield=True):  # even a cancelled task returns only when the run has ended
                await anyio.to_thread.run_sync(source.close, limiter=closing)

        return AsyncSource(pull, close, source.traits)

    def __aiter__(self) -> AsyncIterator[Event]:
        """As `__iter__`, for tasks; a thread waits for the events."""
        return self._iterate_async()

    async def _iterate_async(self) -> AsyncIterator[Event]:
        waiting = anyio.CapacityLimiter(1)
        more = True
        while more:
            while self._pending:
                yield self._pending.popleft()
            more = await anyio.to_thread.run_sync(self._fill_pending, limiter=waiting, abandon_on_cancel=True)

    # -- stopping

    def interrupt(self) -> None:
        """Stop the code as Ctrl-C in a terminal does; if it has not stopped within a second, kill its process.

        Callable from any thread. It returns at once; the reader gets the remaining output, then the end.
        """
        self._stop("interrupted")

    def discard(self) -> None:
        """As `interrupt`, and the reader gets nothing more: a read that waits in another thread ends. Returns at once."""
        self.interrupt()
        self._request.output.abandon()

    def close(self) -> None:
        """Stop the code, drop its remaining output, and return when it has ended. A second call does nothing."""
        with self._lock:
            begun = self._thread is not None
            if not begun and self.status == "waiting":
                self.status = "interrupted"
                self._ended.set()
        self._request.output.abandon()
        if begun:
            self._stop("closed")
            self._ended.wait()

    def _stop(self, reason: StopReason) -> None:
        if self._request.stop_reason is None:
            self._request.stop_reason = reason
        if self._runner is not None:
            self._runner.wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.close)

    # -- running

    @property
    def failure(self) -> BaseException | None:
        """What `input` or the runner raised; raised again where the run is read. None if neither did."""
        return self._request.failure

    def _read_batches(self) -> Iterator[list[Event]]:
        """Begin the run; then its events, as they happen."""
        if not self._begin():
            return
        request = self._request
        while (items := request.output.take()) is not None:
            if batch := [*self._run_events.convert(items)]:
                yield batch
        self._ended.wait()
        if request.output.abandoned:
            return
        ran = self._runner is not None and not request.result.start_error
        yield [*self._run_events.finish(_MESSAGE_STATUS.get(self.status, "incomplete"), ran=ran)]
        if request.failure is not None:
            raise request.failure

    def _begin(self) -> bool:
        """Begin the run if it waits; False if it was closed before."""
        with self._lock:
            if self.status != "waiting":
                return self._thread is not None
            self._claim(self)
            self.status = "running"
            self._thread = threading.Thread(target=self._work, name=f"streamkit-{self.language}", daemon=True)
        self._thread.start()
        return True

    def _work(self) -> None:
        """Run the code to its end, in the run's own thread."""
        request, runner = self._request, self._runner
        try:
            if runner is not None and not request.result.start_error:
                runner.run(request)
            self._finish(request.result)
        except BaseException as error:
            request.failure = error
            self.status = "died"
            self.state_lost = True
        finally:
            self._free(self)
            self._ended.set()
            request.output.close()

    def _finish(self, result: RunResult) -> None:
        """Set the final state, and append the notes that explain it."""
        self.status = _final_status(result)
        self.exit_code = result.exit_code
        self.state_lost = result.state_lost or result.state_lost_before
        if result.error is not None:
            self.error = CodeError(**result.error)
        for note in end_notes(self.language, result, self._request.limits):
            self._request.output.put_note(note)


def _final_status(result: RunResult) -> ExecutionStatus:
    if result.reason is not None:
        return _STATUS_OF_REASON[result.reason]
    if result.start_error:
        return "failed"
    if not result.ended and not result.exited:
        return "died"
    return "failed" if result.failed else "completed"


class _ExecutionSource(Source):
    """A run as the source of a stream."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        super().__init__(self._read_batches(), execution.close, SourceTraits(protocol="streamkit"))

    def _read_batches(self) -> Iterator[list[Event]]:
        execution = self._execution
        try:
            while batch := execution.next_batch():
                yield batch
        except Exception as error:
            if error is execution.failure:
                raise SourceError(f"`input` or the runner raised {type(error).__name__}: {error}") from error
            raise
        yield [StreamEnd()]

    def interrupt(self) -> None:
        """Stop the run, so that a pull that waits in another thread ends."""
        self._execution.discard()
