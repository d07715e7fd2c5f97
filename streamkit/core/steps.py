"""The steps that a stream's lifecycle yields to the manager that drives it.

The lifecycle is a generator that does no input or output. It yields, one after the other:

| it yields | the manager |
|---|---|
| a `Step` of this module | performs it, and sends the result back |
| an `Event` | returns it to the loop over the stream |
| an awaitable (on an async stream) | awaits it: a hook returned it |

What a step, a loop over the events or an awaitable raises, the manager throws into the lifecycle. So a manager decides
nothing, and every decision is made in one place, for the sync and the async manager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..errors import StreamkitError
from ..limits import Limits

__all__ = [
    "CLOSE",
    "END",
    "PULL",
    "ApplicationFailed",
    "CallForSource",
    "ChosenSource",
    "OpenSource",
    "Pause",
    "RepeatableSource",
    "Step",
    "Stopped",
    "WaitForAnswers",
]


class Stopped(BaseException):
    """Ends the stream because `close` or `cancel` was called. It is not an error, so nothing may handle it as one."""


class ApplicationFailed(StreamkitError):
    """Carries an error of the application's own function past what takes errors for the source's. It is the `__cause__`."""


class ChosenSource:
    """In the place of a run's first source: a function that returns it, which may take its time before anything is opened."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function


class RepeatableSource:
    """In the place of a source: a function that chooses it anew for each attempt.

    Args:
        choose: takes the number of the attempt, from 1, and that of the fallback, 0 for none. Returns what is to be opened, or an
            awaitable of it. Its errors are not failures of the attempt.
        fallbacks: how many there are.
    """

    __slots__ = ("choose", "fallbacks")

    def __init__(self, choose: Callable[[int, int], Any], fallbacks: int = 0) -> None:
        self.choose = choose
        self.fallbacks = fallbacks


class Step:
    """A step of a stream, which the manager performs."""

    __slots__ = ()


class OpenSource(Step):
    """Open what the user passed as a source, within the limits, and in the time of the clock if there is one. The
    result is the source, or None if a cancellation came first."""

    __slots__ = ("clock", "limits", "value")

    def __init__(self, value: Any, limits: Limits, clock: Any = None) -> None:
        self.value = value
        self.limits = limits
        self.clock = clock


class CallForSource(Step):
    """Call a function that returns the run's next source. The result is what it returned, None for no source."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function


class WaitForAnswers(Step):
    """Wait until something is answered, at most so many seconds; None for any time. The wait may end early."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds


class Pause(Step):
    """Wait for so many seconds, or until the stream is closed or cancelled."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


PULL: Final = Step()
"""Pull the next batch of the source. Its result is the batch; at the source's end `END`, or None. A manager that need not
wait for it in a way of its own has a function that does (`Delivery._pull_now`), and gets no such step."""

END: Any = Step()
"""Stands for the next batch at the end of a source of single items, because an item may be None."""

CLOSE: Final = Step()
"""Close the source that is being read, if there is one."""
