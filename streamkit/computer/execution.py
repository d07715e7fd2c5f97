"""One run of code, read as it happens: what `Computer.run` returns.

Its life: `waiting` until it is first read; `running` in a thread of its own, which fills the output queue; then one of
the final states. Closing a run that waits makes it `interrupted` without ever running it. One that nobody refers to any
more is closed, too.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Iterator
from functools import partial
from types import TracebackType
from typing import Self

import anyio
import anyio.to_thread

from ..errors import SourceError
from ..events import Event, StreamEnd
from ..messages import Status
from ..sources.source import AsyncSource, Readable, Source, SourceTraits
from ..sources.threads import threaded_code
from ..streams.readers import Loop
from .background_run import BackgroundRun, CodeError, ExecutionStatus
from .events import RunEvents

__all__ = ["CodeError", "Execution", "ExecutionStatus"]

# The status of the console message that is open when the run ends; `incomplete` for all others.
_MESSAGE_STATUS: dict[ExecutionStatus, Status] = {
    "completed": "completed",
    "failed": "completed",
    "interrupted": "cancelled",
}


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

    def __init__(self, run: BackgroundRun, call_id: str | None, computer: object) -> None:
        self.language = run.language
        self.id = run.id
        self.call_id = call_id
        self._run = run
        self._request = run.request
        self._computer = computer  # which must live for as long as its runs are read
        self._run_events = RunEvents(run.id, call_id)
        self._reading = threading.Lock()
        self._pending: deque[Event] = deque()  # converted, and not read yet
        self._last_converted = self._failure_raised = False
        weakref.finalize(self, run.drop).atexit = False

    def __repr__(self) -> str:
        return repr(self._run)

    @property
    def code(self) -> str:
        """The source code."""
        return self._request.code

    @property
    def status(self) -> ExecutionStatus:
        """The run's state."""
        return self._run.status

    @property
    def exit_code(self) -> int | None:
        """The exit status, where there is one."""
        return self._run.exit_code

    @property
    def error(self) -> CodeError | None:
        """The error that the code raised."""
        return self._run.error

    @property
    def state_lost(self) -> bool:
        """Whether the language lost its state."""
        return self._run.state_lost

    # -- reading

    def __iter__(self) -> Iterator[Event]:
        """Yield the events as they happen. Each event is returned once: another loop continues after it.

        Raises:
            UsageError: another run of the language has not ended, or the computer is closed.
            Exception: whatever `input` raised, after the last event.
        """
        while self._pending or self._fill_pending():
            yield self._take()

    def next_batch(self) -> list[Event]:
        """Wait for events and return all that are there; [] at the end. Raises as iterating does. For the source."""
        if not self._pending and not self._fill_pending():
            return []
        return [self._take() for _ in range(len(self._pending))]

    def _fill_pending(self) -> bool:
        """Wait for more events; False at the end."""
        with self._reading:  # a cancelled task leaves its thread waiting here, while the next reader comes
            if self._pending:
                return True
            batch = self._next_events()
            self._pending.extend(batch or ())
            return batch is not None

    def _next_events(self) -> list[Event] | None:
        """Begin the run if it waits, and wait for its next events; None at the end."""
        run, request = self._run, self._request
        if not run.begin():
            return None
        while (items := request.output.take()) is not None:
            if batch := [*self._run_events.convert(items)]:
                return batch
        run.ended.wait()
        if request.output.abandoned:
            return None
        if not self._last_converted:
            self._last_converted = True
            ran = run.runner is not None and not request.result.start_error
            message_status = _MESSAGE_STATUS.get(self.status, "incomplete")
            return [*self._run_events.finish(message_status, self.status, ran=ran)]
        if request.failure is not None and not self._failure_raised:
            self._failure_raised = True
            raise request.failure
        return None

    def _take(self) -> Event:
        """Return the next event, of those that are there."""
        event = self._pending.popleft()
        if self._last_converted and not self._pending:
            self._request.read_to_end = True
        return event

    def for_stream(self) -> Execution:
        """Itself: a stream reads the run directly."""
        return self

    def source(self) -> Source:
        """Return the run as the source of a sync stream. Closing the source closes the run."""
        return _ExecutionSource(self)

    def async_source(self) -> AsyncSource:
        """Return the run as the source of an async stream; a thread waits for its events."""
        return threaded_code(self.source())

    def __aiter__(self) -> AsyncIterator[Event]:
        """As `__iter__`, for tasks; a thread waits for the events. One that is cancelled loses none of them."""
        return Loop(partial(self._next_in_task, anyio.CapacityLimiter(1)))

    async def _next_in_task(self, waiting: anyio.CapacityLimiter) -> Event:
        fill = self._fill_pending
        if not self._pending and not await anyio.to_thread.run_sync(fill, limiter=waiting, abandon_on_cancel=True):
            raise StopAsyncIteration
        return self._take()

    # -- stopping

    def interrupt(self) -> None:
        """Stop the code as Ctrl-C in a terminal does; if it has not stopped within a second, kill its process.

        Callable from any thread. It returns at once; the reader gets the remaining output, then the end.
        """
        self._run.stop("interrupted")

    def discard(self) -> None:
        """As `interrupt`, and the reader gets nothing more: a read that waits in another thread ends. Returns at once."""
        self.interrupt()
        self._request.output.abandon()

    def repeat_loss(self) -> None:
        """Have the next run say that this one cost the language its state, if it did: whoever read the rest of its output
        showed it to nobody."""
        self._request.read_to_end = False

    def close(self) -> None:
        """Stop the code, drop its remaining output, and return when it has ended. A second call does nothing."""
        self._run.close()

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

    @property
    def failure(self) -> BaseException | None:
        """The error that `input` or the runner raised; raised again where the run is read. None if there was none."""
        return self._request.failure


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
