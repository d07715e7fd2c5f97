"""One run of code: events as they happen, and how it ended."""

# pyright: reportPrivateUsage=false
# A run and its source are one thing, seen from two sides.

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
from ..sources.source import AsyncSource, Readable, Source
from .end_notes import notes_of
from .events import Telling
from .request import Outcome, Reason, RunRequest
from .runner import Runner

__all__ = ["CodeError", "Execution", "ExecutionStatus"]

ExecutionStatus = Literal["waiting", "running", "completed", "failed", "interrupted", "timed_out", "limit", "died"]

_OF_REASON: dict[Reason, ExecutionStatus] = {
    "interrupted": "interrupted",
    "closed": "interrupted",
    "timed_out": "timed_out",
    "output_limit": "limit",
    "memory_limit": "limit",
    "process_limit": "limit",
}
_OF_MESSAGE: dict[ExecutionStatus, Status] = {
    "completed": "completed",
    "failed": "completed",
    "interrupted": "cancelled",
}


class CodeError(NamedTuple):
    """What the code raised."""

    name: str
    value: str
    traceback: str


class Execution(Readable):
    """One run, which begins when it is first read, and is read once: as an iterable of events, or as a stream's source.

    It is a context manager, sync and async, that stops the run where it is left. Leaving a loop over it pauses it: its
    code goes on until nobody takes what it prints.

    Attributes:
        language, code: what runs.
        id: of its first message.
        status: `waiting`, `running`, then how it ended: `completed`; `failed` (the code raised, or ended with a status
            that is not 0); `interrupted`; `timed_out`; `limit` (of output, memory or processes); `died` (its process
            did).
        exit_code: of the shell's last command, or of a process that ended; None where there is none.
        error: what the code raised.
        state_lost: whether variables and state of the language are gone with its process, with this run or since the last.
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
        self._telling = Telling(id, call_id)
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._events = self._read()
        self._ready: deque[Event] = deque()  # told, and not taken yet

    def __repr__(self) -> str:
        return f"<Execution {self.id} {self.language} {self.status}>"

    @property
    def code(self) -> str:
        return self._request.code

    # -- how it is read

    def __iter__(self) -> Iterator[Event]:
        """The events, as they happen. What was read is not told again.

        Raises:
            UsageError: another run of the language is going on, or the computer is closed.
            Exception: what `input` raised, when the run is over.
        """
        while self._ready or self._fill():
            yield self._ready.popleft()

    def _fill(self) -> bool:
        """Wait for more; False at the end."""
        with self._reading:  # a task that was cancelled leaves a thread here, and another may read on
            if self._ready:
                return True
            batch = next(self._events, None)
            self._ready.extend(batch or ())
            return batch is not None

    def for_stream(self) -> Execution:
        return self

    def source(self) -> Source:
        return _ExecutionSource(self)

    def async_source(self) -> AsyncSource:
        source = self.source()
        pulling, closing = anyio.CapacityLimiter(1), anyio.CapacityLimiter(1)

        async def pull() -> Any:
            return await anyio.to_thread.run_sync(source.pull, limiter=pulling, abandon_on_cancel=True)

        async def close() -> None:
            with anyio.CancelScope(shield=True):  # it returns when the run has ended, whoever is in a hurry
                await anyio.to_thread.run_sync(source.close, limiter=closing)

        return AsyncSource(pull, close, protocol="streamkit")

    def __aiter__(self) -> AsyncIterator[Event]:
        """As `__iter__`, for tasks; a thread waits."""
        return self._aread()

    async def _aread(self) -> AsyncIterator[Event]:
        waiting = anyio.CapacityLimiter(1)
        more = True
        while more:
            while self._ready:
                yield self._ready.popleft()
            more = await anyio.to_thread.run_sync(self._fill, limiter=waiting, abandon_on_cancel=True)

    # -- how it is stopped

    def interrupt(self) -> None:
        """Stop it as a terminal's Ctrl-C does; where that does nothing within a second its process is killed. From any
        thread; it waits for nothing."""
        self._stop("interrupted")

    def close(self) -> None:
        """Stop it, and return when it has ended. Nothing more is told."""
        with self._lock:
            begun = self._thread is not None
            if not begun and self.status == "waiting":
                self.status = "interrupted"
                self._over.set()
        self._request.feed.leave()
        if begun:
            self._stop("closed")
            self._over.wait()

    def _stop(self, reason: Reason) -> None:
        if self._request.reason is None:
            self._request.reason = reason
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

    # -- inside

    def _read(self) -> Iterator[list[Event]]:
        """Batches of events."""
        if not self._begin():
            return
        request, ran = self._request, self._runner is not None
        while (told := request.feed.take()) is not None:
            if batch := [*self._telling.events(told)]:
                yield batch
        self._over.wait()
        if request.feed.left:
            return
        outcome = request.outcome
        ran = ran and not outcome.cause
        yield [*self._telling.end(_OF_MESSAGE.get(self.status, "incomplete"), ran=ran)]
        if request.fault is not None:
            raise request.fault

    def _begin(self) -> bool:
        """Begin the run, the first time; False if it was closed before."""
        with self._lock:
            if self.status != "waiting":
                return self._thread is not None
            self._claim(self)
            self.status = "running"
            self._thread = threading.Thread(target=self._work, name=f"streamkit-{self.language}", daemon=True)
        self._thread.start()
        return True

    def _work(self) -> None:
        request, runner = self._request, self._runner
        try:
            if runner is not None and not request.outcome.cause:
                runner.run(request)
            self._ended(request.outcome)
        except BaseException as error:
            request.fault = error
            self.status = "died"
            self.state_lost = True
        finally:
            self._free(self)
            self._over.set()
            request.feed.end()

    def _ended(self, outcome: Outcome) -> None:
        if outcome.cause:
            self.status = "failed" if outcome.reason is None else _OF_REASON[outcome.reason]
        elif outcome.reason is not None:
            self.status = _OF_REASON[outcome.reason]
        elif not outcome.ended and not outcome.exited:
            self.status = "died"
        else:
            self.status = "failed" if outcome.failed else "completed"
        self.exit_code = outcome.exit_code
        self.state_lost = outcome.state_lost or outcome.lost_before
        if outcome.error is not None:
            self.error = CodeError(**outcome.error)
        for note in notes_of(self.language, outcome, self._request.limits):
            self._request.feed.tell("note", note)


class _ExecutionSource(Source):
    """A run as the source of a stream."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        super().__init__(self._read(), execution.close, protocol="streamkit")

    def _read(self) -> Iterator[list[Event]]:
        execution = self._execution
        try:
            while execution._ready or execution._fill():
                yield [execution._ready.popleft() for _ in range(len(execution._ready))]
        except Exception as error:
            if execution._request.fault is error:
                raise SourceError(f"input() could not be answered: {type(error).__name__}: {error}") from error
            raise
        yield [StreamEnd()]

    def interrupt(self) -> None:
        self._execution.interrupt()
        self._execution._request.feed.leave()
