"""How the streams of the UI protocols end where a run waits for answers.

Their clients send an answer only when their stream is over. The run waits, and the next response goes on with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec.structs import replace

from ..events import RunDone, RunStepDone
from ..protocols.event_stream import EventStreamWriter
from .log_events import LogEvents

__all__ = ["AtQuestion", "at_question_of", "ends_as_waiting"]


def ends_as_waiting(events: LogEvents, writer: EventStreamWriter, before_end: bytes = b"") -> list[bytes]:
    """The frames of a run that requires action: the ends of its step and of itself, with other frames between them."""
    runs = events.engine.runs
    frames: list[bytes] = []
    if runs.step is not None:
        frames.append(writer.event(RunStepDone(replace(runs.step, status="completed"))))
    frames.append(before_end)
    if runs.run is not None:
        frames.append(writer.event(RunDone(replace(runs.run, status="requires_action"))))
    return frames


AtQuestion: TypeAlias = Callable[[LogEvents, EventStreamWriter], list[bytes]]
"""Gives the frames with which a response ends where the run waits for answers."""

_AT_QUESTION: dict[str, AtQuestion] = {
    "vercel_ui": ends_as_waiting,
    "ag_ui": ends_as_waiting,
}


def at_question_of(protocol: str) -> AtQuestion | None:
    """Returns the function that ends a stream of this protocol at a question; None if the stream goes on."""
    return _AT_QUESTION.get(protocol)
