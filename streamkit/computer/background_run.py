"""A run in its own thread, which follows it to its end.

It refers neither to the `Execution` that reads the run nor to the `Computer`: both may be dropped without being closed,
which stops the run and ends the processes. Garbage may be collected at any moment, while any lock is held; so what is
then called takes none.
"""

from __future__ import annotations

import os
import threading
from typing import Literal, NamedTuple

from ..errors import UsageError
from .end_notes import end_notes
from .request import RunRequest, RunResult, StopReason
from .runner import Runner

__all__ = ["BackgroundRun", "CodeError", "ExecutionStatus", "RunningRuns"]

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


class RunningRuns:
    """The runs of one computer that have not ended, one a language.

    Attributes:
        closed: whether none may begin any more.
        owner: the id of the process that made the computer; a fork of it has neither its threads nor its pipes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, BackgroundRun] = {}
        self.closed = False
        self.owner = os.getpid()

    @property
    def in_fork(self) -> bool:
        """Whether this process is a fork of the one that made the computer."""
        return os.getpid() != self.owner

    def check_open(self) -> None:
        """Raises `UsageError` if nothing can begin."""
        if self.in_fork:
            raise UsageError(
                f"the computer belongs to process {self.owner}, of which this is a fork: make another here"
            )
        if self.closed:
            raise UsageError("the computer is closed")

    def check_idle(self, language: str) -> None:
        """Raises `UsageError` if a run of the language has not ended."""
        if (other := self._runs.get(language)) is not None:
            raise UsageError(f"{other!r} is still running; a language runs one piece of code at a time")

    def claim(self, run: BackgroundRun) -> None:
        """Reserve the language for a run that begins. Raises `UsageError`."""
        with self._lock:
            self.check_open()
            if run.runner is not None:
                self.check_idle(run.language)
                self._runs[run.language] = run

    def free(self, run: BackgroundRun) -> None:
        """The run has ended."""
        with self._lock:
            if self._runs.get(run.language) is run:
                del self._runs[run.language]

    def close(self) -> list[BackgroundRun]:
        """Let no run begin any more; returns those that have not ended."""
        with self._lock:
            self.closed = True
            return [*self._runs.values()]


class BackgroundRun:
    """One run: its thread, and its state as `Execution` shows it.

    Args:
        id: the id of the run's first message.
        language: the language's name.
        request: what to run.
        runner: runs it; None if the language is not supported.
        running: the computer's runs.

    Attributes:
        status, exit_code, error, state_lost: see `Execution`.
        ended: set when a run that has begun is over.
    """

    def __init__(
        self, id: str, language: str, request: RunRequest, runner: Runner | None, running: RunningRuns
    ) -> None:
        self.id = id
        self.language = language
        self.request = request
        self.runner = runner
        self.status: ExecutionStatus = "waiting"
        self.exit_code: int | None = None
        self.error: CodeError | None = None
        self.state_lost = False
        self.ended = threading.Event()
        self._running = running
        self._lock = threading.Lock()  # of `status` and `_thread`
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<Execution {self.id} {self.language} {self.status}>"

    def begin(self) -> bool:
        """Begin the run if it waits; False if it was closed before. Raises `UsageError` where it cannot begin."""
        if self._running.in_fork:
            self._running.check_open()
        with self._lock:
            if self.status != "waiting":
                return self._thread is not None
            self._running.claim(self)
            self.status = "running"
            self._thread = threading.Thread(target=self._work, name=f"streamkit-{self.language}", daemon=True)
        self._thread.start()
        return True

    def stop(self, reason: StopReason) -> None:
        """Have the run stopped; only the first reason counts. Returns at once, and takes no lock."""
        if self.request.stop_reason is None:
            self.request.stop_reason = reason
        if self.runner is not None and not self._running.in_fork:
            self.runner.wake()

    def close(self, *, abandon: bool = True) -> None:
        """Stop the run, and return when it has ended. Its remaining output is dropped, unless others may still read it."""
        if self._running.in_fork:
            return
        with self._lock:
            begun = self._thread is not None
            if not begun and self.status == "waiting":
                self.status = "interrupted"
        if abandon:
            self.request.output.abandon()
        if begun:
            self.stop("closed")
            self.ended.wait()

    def drop(self) -> None:
        """Its reader is garbage: have the run stopped, unless it has ended. Returns at once, and takes no lock."""
        if not self.ended.is_set():
            self.request.output.abandoned = True
            self.stop("closed")

    def _work(self) -> None:
        """Run the code to its end, in the run's own thread."""
        request, runner = self.request, self.runner
        try:
            if runner is not None and not request.result.start_error:
                runner.run(request)
            self._finish(request.result)
        except BaseException as error:
            request.failure = error
            self.status = "died"
            self.state_lost = True
        finally:
            self._running.free(self)
            self.ended.set()
            request.output.close()

    def _finish(self, result: RunResult) -> None:
        """Set the final state, and append the notes that explain it."""
        self.status = _final_status(result)
        self.exit_code = result.exit_code
        self.state_lost = result.state_lost or result.state_lost_before
        if result.error is not None:
            self.error = CodeError(**result.error)
        for note in end_notes(self.language, result, self.request.limits):
            self.request.output.put_note(note)


def _final_status(result: RunResult) -> ExecutionStatus:
    if result.reason is not None:
        return _STATUS_OF_REASON[result.reason]
    if result.start_error:
        return "failed"
    if not result.ended and not result.exited:
        return "died"
    return "failed" if result.failed else "completed"
