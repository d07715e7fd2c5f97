"""A requested run: its code, its limits, where its output goes, and how it ended."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from .output_queue import OutputQueue

__all__ = ["Limits", "NotStartedError", "RunRequest", "RunResult", "Settings", "StopReason"]

StopReason = Literal["interrupted", "timed_out", "output_limit", "memory_limit", "process_limit", "closed"]
"""Why a run was stopped from outside."""


@dataclass
class Settings:
    """The settings of all runners of a computer.

    Attributes:
        cwd: the directory in which code runs; None for the current one.
        env: the environment of the language's process; None for `default_environment()`.
    """

    cwd: str | None
    env: Mapping[str, str] | None


@dataclass
class Limits:
    """The limits of one run; a run that passes one of them is stopped. None, the default of each, means no limit.

    Attributes:
        timeout: seconds from the moment that the process gets the code.
        memory: bytes of resident memory that all processes of the language hold together.
        output: characters that are printed or displayed.
        processes: how many processes the language has, its own included.
    """

    timeout: float | None = None
    memory: int | None = None
    output: int | None = None
    processes: int | None = None


@dataclass
class RunResult:
    """The end of a run, as its runner reports it.

    Attributes:
        ended: whether the process itself reported the end of the code.
        failed: whether the code raised an error or ended with an exit status other than 0.
        exit_code: the exit status of the code or of its process; None where there is none, negative for a signal.
        error: the error that the code raised: `name`, `value` and `traceback`.
        reason: why the run was stopped from outside; None if it was not.
        state_lost: whether this run cost the language its state (variables, working directory).
        state_lost_before: whether the state had been lost since the run before this one.
        start_error: why the code did not even begin to run; "" if it did.
        processes_remain: whether some processes could not be killed.
        restarts_processes: whether the process had to be killed because it kept starting others.
        exited: whether the code itself ended its process, as `exit` does in a shell.
        killed: whether the process had to be killed.
        at_line_start: whether the console output ended with a line end.
    """

    ended: bool = False
    failed: bool = False
    exit_code: int | None = None
    error: dict[str, str] | None = None
    reason: StopReason | None = None
    state_lost: bool = False
    state_lost_before: bool = False
    start_error: str = ""
    processes_remain: bool = False
    restarts_processes: bool = False
    exited: bool = False
    killed: bool = False
    at_line_start: bool = True


@dataclass
class RunRequest:
    """One run, as its runner sees it.

    Attributes:
        code: the source code.
        output: where console text, displays and the active line go.
        limits: what stops the run.
        input: answers a prompt of the code; returning None refuses it. None refuses all.
        id: identifies the run in what the process and its runner send each other.
        result: how it ended, filled in by the runner.
        failure: what `input` or the runner itself raised; raised again where the run is read.
        stop_reason: set by any thread that wants the run stopped; the runner looks at it when it is woken.
        read_to_end: whether the reader got everything. If not, the next run repeats that the state was lost.
    """

    code: str
    output: OutputQueue
    limits: Limits
    input: Callable[[str], str | None] | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    result: RunResult = field(default_factory=RunResult)
    failure: BaseException | None = None
    stop_reason: StopReason | None = None
    read_to_end: bool = False


class NotStartedError(Exception):
    """A run could not begin. The text says why; it becomes the console output of the run."""
