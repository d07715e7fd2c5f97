"""The steps of a turn as sources, for threads.

`async_steps.py` is the same for tasks. Functions are called one after the other in a thread of their own, so that what
they tell is heard at once. A function cannot be stopped where it does not wait for the network: the stream's end waits
for it, and none of the others is called.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any

from ..events import Event
from ..messages import ToolCallMessage
from ..sources.interrupt import Interruptible, Stopped
from ..sources.open import open_sync
from ..sources.source import Source
from .calls import Called, Mailbox
from .computer_protocol import Running
from .progress import telling
from .tools import Tool
from .turn import CallModel, CallTools, RunCode, Step, Tell, Turn

__all__ = ["close_run", "events_of_run", "first_source", "source_of"]


def first_source(turn: Turn) -> Callable[[], Source]:
    """What opens the turn's first source. Each knows the next."""

    def following() -> Callable[[], Source] | None:
        step = next(turn.course, None)
        return None if step is None else lambda: opened(step)

    def opened(step: Step) -> Source:
        source = source_of(step)
        source.following = following
        return source

    return lambda: opened(next(turn.course))


def source_of(step: Step) -> Source:
    match step:
        case CallModel(send):
            return open_sync(send)
        case Tell(events):
            return _own(iter([events]), lambda: None)
        case RunCode(computer, code, call):
            return CodeSource(computer.run(code.language, code.source, call_id=call.call_id or call.id))
        case CallTools(calls):
            return ToolsSource(calls)


def _own(batches: Iterator[list[Event]], close: Callable[[], object]) -> Source:
    """A source of the agent's own events, within the step of the model call that asked for them."""
    return Source(batches, close, protocol="streamkit", whole=True, edits=True, same_step=True)


class CodeSource(Source):
    """A run of code."""

    def __init__(self, running: Running) -> None:
        events = events_of_run(running)
        super().__init__(events, partial(close_run, running, events), protocol="streamkit", whole=True, same_step=True)
        self._running = running

    def interrupt(self) -> None:
        self._running.interrupt()


def events_of_run(running: Running) -> Generator[list[Event]]:
    """The run's events, each as soon as there is one."""
    for event in running:
        yield [event]


def close_run(running: Running, events: Generator[list[Event]]) -> None:
    """End a run, and what reads it, if no thread is in it."""
    running.close()
    with contextlib.suppress(ValueError):  # another thread is: it ends by itself now
        events.close()


class ToolsSource(Source):
    """Functions, called one after the other."""

    def __init__(self, calls: Sequence[tuple[ToolCallMessage, Tool[..., Any]]]) -> None:
        super().__init__(self._results(), self._end, protocol="streamkit", whole=True, same_step=True)
        self._todo = calls
        self._box = Mailbox()
        self._wakeup = threading.Event()
        self._box.wake = self._wakeup.set
        self._stopped = threading.Event()
        self._interruptible = Interruptible()
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._work,), name="streamkit-tools", daemon=True)

    def interrupt(self) -> None:
        self._stopped.set()
        self._interruptible.stop()

    def _results(self) -> Iterator[list[Event]]:
        self._thread.start()
        while (batch := self._take()) != []:
            yield batch

    def _take(self) -> list[Event]:
        while True:
            self._wakeup.clear()
            if (batch := self._box.take()) is not None:
                return batch
            self._wakeup.wait()

    def _work(self) -> None:
        try:
            for call, tool in self._todo:
                if self._stopped.is_set():
                    break
                self._call(Called(call, self._box, self._stopped.is_set), tool)
        except Stopped:
            self._box.end()
        except BaseException as error:  # KeyboardInterrupt, SystemExit: raised again in the stream's own thread
            self._box.end(error)
        else:
            self._box.end()

    def _call(self, called: Called, tool: Tool[..., Any]) -> None:
        telling.set(called.progress)
        try:
            value = self._interruptible.call(tool.call, called.call.content)
        except Exception as error:
            called.fail(error)
        else:
            called.give(value)

    def _end(self) -> None:
        self.interrupt()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
