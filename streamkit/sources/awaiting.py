"""Awaiting in place of a task, so that something can be done about each of its sleeps.

A cancel scope around a pull would cost more than the pull, and would enclose code that is not ours: a generator or a context
manager may enter its own scopes and task groups in one pull, and leave them in another. Between two sleeps, nothing of ours
is open.
"""

from __future__ import annotations

import types
from collections.abc import Generator
from typing import Any

__all__ = ["Sleeps", "finish"]


class Sleeps:
    """What is done about the sleeps of a task. This does nothing about them."""

    __slots__ = ()

    def begin(self, signal: Any) -> Any:
        """The task is to sleep: the event loop gets this signal. What it returns is for `end`."""

    def end(self, begun: Any, value: Any, error: BaseException | None) -> BaseException | None:
        """The task sleeps no more, and got this value or this error. Returns the error for whoever slept, None for the
        value."""
        return error


@types.coroutine
def finish(steps: Any, signal: Any) -> Generator[Any, Any, Any]:
    """Go on awaiting what has begun, and has yielded this signal for the event loop. Returns its result."""
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            value = yield signal
        except GeneratorExit:  # nobody awaits this any more
            steps.close()
            raise
        except BaseException as raised:
            error = raised
        try:
            signal = steps.send(value) if error is None else steps.throw(error)
        except StopIteration as end:
            return end.value
        finally:
            value = error = None  # an error's traceback refers to this frame
