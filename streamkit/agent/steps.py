"""The steps of a turn: what an agent does next, as data.

`turn.py` decides on them; `sync_steps.py` and `async_steps.py` open each as a source of the agent's stream. All sources of
a turn form one stream: at the end of each, its `next_source` returns what opens the next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from ..events import Event
from ..messages import ToolCallMessage
from ..sources.source import SourceTraits
from .calls import call_id_of
from .code import Code
from .computer_protocol import Computing, Running
from .tools import Tool

__all__ = [
    "OWN_EVENTS",
    "CallModel",
    "CallTools",
    "EmitEvents",
    "RunCode",
    "Step",
    "close_run",
    "events_of_run",
    "following_sources",
]

_Opened = TypeVar("_Opened")

# Of a source with the agent's own events. They belong to the run step of the model call that asked for them.
OWN_EVENTS: Final = SourceTraits(protocol="streamkit", read_to_end=True, edits=True, same_step=True)


class CallModel(NamedTuple):
    """Send a request to the model. `send` returns the client's stream, or an awaitable of it."""

    send: Callable[[], Any]


class CallTools(NamedTuple):
    """Call these functions: at once in tasks, one after the other in a thread."""

    calls: Sequence[tuple[ToolCallMessage, Tool[..., Any]]]


class RunCode(NamedTuple):
    """Run the code of this call on the computer."""

    computer: Computing
    code: Code
    call: ToolCallMessage

    def start(self) -> Running:
        """The run, as the computer returns it."""
        return self.computer.run(self.code.language, self.code.source, call_id=call_id_of(self.call))


class EmitEvents(NamedTuple):
    """Emit these events."""

    events: list[Event]


Step = CallModel | CallTools | RunCode | EmitEvents


def following_sources(
    course: Iterator[Step], open_step: Callable[[Step], _Opened]
) -> Callable[[], Callable[[], _Opened] | None]:
    """The `next_source` of each source of a turn: takes the next step and returns what opens it, None after the last."""

    def next_source() -> Callable[[], _Opened] | None:
        step = next(course, None)
        return None if step is None else partial(open_step, step)

    return next_source


def events_of_run(running: Running) -> Generator[list[Event]]:
    """The events of a run of code, each in a batch of its own so that it is emitted at once."""
    for event in running:
        yield [event]


def close_run(running: Running, events: Generator[list[Event]]) -> None:
    """End a run of code, and the generator that reads it."""
    running.close()
    with contextlib.suppress(
        ValueError
    ):  # another thread is in the generator, and leaves it now that the run has ended
        events.close()
