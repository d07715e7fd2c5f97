"""The steps of a turn: what an agent does next, as data.

`turn.py` decides on them; `sync_steps.py` and `async_steps.py` open each as a source of the agent's stream. All sources of
a turn form one stream: at the end of each, its `next_source` returns what opens the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from ..events import Event
from ..sources.source import SourceTraits
from .calls import PendingCall
from .code_run import CodeRun

__all__ = [
    "OWN_EVENTS",
    "CallModel",
    "CallTools",
    "EmitEvents",
    "RunCode",
    "Step",
    "following_sources",
]

_Opened = TypeVar("_Opened")

# Of a source with the agent's own events. They belong to the run step of the model call that asked for them.
OWN_EVENTS: Final = SourceTraits(protocol="streamkit", read_to_end=True, edits=True, same_step=True)


class CallModel(NamedTuple):
    """Send a request to the model. `send` returns the client's stream, or an awaitable of it."""

    send: Callable[[], Any]


class CallTools(NamedTuple):
    """Call these functions: at once in tasks, one after the other in a thread. `before` is called first, in a thread."""

    calls: Sequence[PendingCall]
    before: Callable[[], None] | None


class RunCode(NamedTuple):
    """Run this code on the computer."""

    run: CodeRun


class EmitEvents(NamedTuple):
    """Emit these events."""

    events: list[Event]


Step = CallModel | CallTools | RunCode | EmitEvents


def following_sources(
    course: Iterator[Step], open_step: Callable[[Step], _Opened]
) -> Callable[[], Callable[[], _Opened] | None]:
    """Return the `next_source` of each source of a turn: takes the next step and returns what opens it, None after the
    last."""

    def next_source() -> Callable[[], _Opened] | None:
        step = next(course, None)
        return None if step is None else partial(open_step, step)

    return next_source
