"""How a run ended, in words that a person and a model understand, where it did not end by itself."""

from __future__ import annotations

from collections.abc import Iterator

from .request import Limits, Outcome

__all__ = ["death", "notes_of"]


def notes_of(language: str, outcome: Outcome, limits: Limits) -> Iterator[str]:
    """What is added to the console, in order. The last of an interrupted run is `KeyboardInterrupt` alone."""
    lines = [*_lines(language, outcome, limits)]
    if outcome.reason in ("interrupted", "closed"):
        lines.append("KeyboardInterrupt")
    if lines:
        yield ("" if outcome.at_line_start else "\n") + "\n".join(lines)


def _lines(language: str, outcome: Outcome, limits: Limits) -> Iterator[str]:
    if outcome.cause:
        if outcome.reason is None:
            yield outcome.cause
    else:
        yield from _stopped(language, outcome, limits)
    if outcome.state_lost:
        stubborn = outcome.killed and outcome.reason in ("interrupted", "closed", "timed_out", "output_limit")
        how = "it did not stop when it was interrupted and was killed; " if stubborn else ""
        yield f"[{how}the variables and the state of {language} are lost; the next run starts anew]"
    if outcome.left:
        yield "[some of its processes could not be ended]"


def _stopped(language: str, outcome: Outcome, limits: Limits) -> Iterator[str]:
    match outcome.reason:
        case "timed_out":
            yield f"[timed out: the run was stopped after {limits.timeout:g} seconds]"
        case "output_limit":
            yield f"[output limit: the run was stopped after {limits.output} characters of output]"
        case "memory_limit":
            yield f"[memory limit: the run was stopped, for it held more than {limits.memory} bytes]"
        case "process_limit":
            yield f"[process limit: the run was stopped, for it had more than {limits.processes} processes]"
        case None if outcome.exited:
            yield f"[the code ended its {language} process, with exit status {outcome.exit_code}]"
        case None if not outcome.ended:
            yield f"[the {language} process {death(outcome.exit_code)}]"
        case _:
            pass


def death(exit_code: int | None) -> str:
    """What became of a process."""
    if exit_code is None:
        return "stopped answering"
    if exit_code < 0:
        return f"was killed by signal {-exit_code}"
    return f"ended by itself, with exit status {exit_code}"
