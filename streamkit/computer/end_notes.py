"""The notes that end the console output of a run which did not end by itself.

People and models read them alike, so they are full sentences that say what happened and what is lost.
"""

from __future__ import annotations

from collections.abc import Iterator

from .request import Limits, RunResult, StopReason

__all__ = ["describe_exit", "describe_stop", "end_notes", "lost_between_runs", "lost_in_last_run"]


def end_notes(language: str, result: RunResult, limits: Limits) -> Iterator[str]:
    """Yield the text to append to the console, one string or none. That of an interrupted run ends with
    `KeyboardInterrupt`."""
    lines = [*_lines(language, result, limits)]
    if result.reason in ("interrupted", "closed"):
        lines.append("KeyboardInterrupt")
    if lines:
        yield ("" if result.at_line_start else "\n") + "\n".join(lines)


def lost_between_runs(language: str, how: str) -> str:
    """Return the line that begins a run before which the language's process ended, and with it the state.

    Args:
        language: the language's name.
        how: how it ended, from `describe_exit` or `describe_stop`.
    """
    return f"[after the last run the {language} process {how}; its variables and state are lost]\n"


def lost_in_last_run(language: str, result: RunResult, limits: Limits) -> str:
    """Return the line that begins a run after one that lost the state and was not read to its end, so that nobody
    knows."""
    why = _why_killed(result)
    if not why:
        stopped = result.reason is not None and _cause(language, result, limits)
        why = stopped.strip("[]") if stopped else f"the {language} process {describe_exit(result.exit_code)}"
    return f"[in the last run {why}; the variables and state of {language} are lost]\n"


def describe_exit(exit_code: int | None) -> str:
    """Return how a process ended, to follow "the process". A negative exit code is the number of a signal."""
    if exit_code is None:
        return "stopped responding"
    if exit_code < 0:
        return f"was killed by signal {-exit_code}"
    return f"ended by itself with exit status {exit_code}"


def describe_stop(reason: StopReason, limits: Limits) -> str:
    """Return how something was stopped for a limit, to follow "the run" or "the process"."""
    match reason:
        case "timed_out":
            return f"was stopped after {limits.timeout:g} seconds"
        case "output_limit":
            return f"was stopped after {limits.output} characters of output"
        case "memory_limit":
            return f"was stopped because it used more than {limits.memory} bytes"
        case "process_limit":
            return f"was stopped because it had more than {limits.processes} processes"
        case _:
            return "was interrupted"


def _lines(language: str, result: RunResult, limits: Limits) -> Iterator[str]:
    if result.start_error:
        if result.reason is None:
            yield result.start_error
    elif (cause := _cause(language, result, limits)) is not None:
        yield cause
    if result.state_lost:
        how = f"{_why_killed(result)}; " if _why_killed(result) else ""
        yield f"[{how}the variables and state of {language} are lost; the next run starts in a new process]"
    if result.processes_remain:
        yield "[some processes that the code had started could not be killed]"


def _why_killed(result: RunResult) -> str:
    """Return why the process of a stopped run had to be killed; "" if it was not, or if another note has that."""
    if result.restarts_processes:
        return "the code kept starting processes after it was stopped, so its process was killed"
    if result.killed and result.reason in ("interrupted", "closed", "timed_out", "output_limit"):
        return "the code did not stop when it was interrupted, so its process was killed"
    return ""


def _cause(language: str, result: RunResult, limits: Limits) -> str | None:
    """Why the run ended, if the code did not come to its own end."""
    match result.reason:
        case "timed_out" | "output_limit" | "memory_limit" | "process_limit" as limit:
            name = "timed out" if limit == "timed_out" else limit.replace("_", " ")
            return f"[{name}: the run {describe_stop(limit, limits)}]"
        case None if result.exited:
            return f"[the code ended its {language} process with exit status {result.exit_code}]"
        case None if not result.ended:
            return f"[the {language} process {describe_exit(result.exit_code)}]"
        case _:
            return None
