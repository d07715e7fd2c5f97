"""Drives awaitable code step by step, so that each sleep of the task can be prepared, and interrupted.

A task sleeps when the code that it runs yields a signal to the event loop. A cancel scope around an entire pull would cost
more than the pull, and would enclose code that is not ours: a generator or a context manager may enter its own scopes and task
groups in one pull, and leave them in another. So scopes of ours are open only while the task sleeps.
"""

from __future__ import annotations

import types
from collections.abc import Generator
from typing import Any

from ..events import Event

__all__ = ["Sleeps", "finish"]


class Sleeps:
    """Called before and after each sleep of a task. This class does nothing then."""

    def begin(self, signal: Any) -> Any:
        """The task is about to sleep, and yields this signal to the event loop. What it returns is passed to `end`."""

    def end(self, begun: Any, value: Any, error: BaseException | None) -> BaseException | None:
        """The task was woken with this value, or with this error. Returns the error that is raised where the code slept; None
        to go on with the value."""
        return error


@types.coroutine
def finish(steps: Any, signal: Any, sleeps: Sleeps) -> Generator[Any, Any, Any]:
    """Run steps on, which have yielded this signal, until they yield an event or end. Returns the event, or what they return.

    Args:
        steps: a generator that yields signals for the event loop, and perhaps events.
        signal: what it has yielded last.
        sleeps: is called before and after each sleep.
    """
    while not isinstance(signal, Event):
        value: Any = None
        error: BaseException | None = None
        begun = sleeps.begin(signal)
        try:
            value = yield signal
        except GeneratorExit:  # nobody awaits this any more; there is no task that could leave a scope
            steps.close()
            raise
        except BaseException as raised:
            error = raised
        try:
            error = sleeps.end(begun, value, error)
            signal = steps.send(value) if error is None else steps.throw(error)
        except StopIteration as end:
            return end.value
        finally:
            value = error = None  # an error's traceback refers to this frame
    return signal
