"""Opens the steps of a turn as sources, for threads. `async_steps.py` does the same for tasks.

Functions run one after the other in a thread of their own, so that their progress is emitted at once. A function can be
stopped only where it waits for the network: closing the stream waits for the one that runs, and starts none after it.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from ..core.steps import ChosenSource, RepeatableSource
from ..events import Event
from ..sources.interrupt import Interruptible, Stopped
from ..sources.open import open_sync
from ..sources.source import Source
from .calls import Mailbox, PendingCall
from .code import INTERRUPT_PERIOD, CodeRun
from .model_request import prepared
from .steps import (
    OWN_EVENTS,
    CallModel,
    CallTools,
    EmitEvents,
    ListTools,
    OwnStep,
    RunCode,
    SendRequest,
    Step,
)

__all__ = ["first_source"]


def first_source(course: Iterator[Step]) -> ChosenSource:
    """Return the source of the first step. Each source chooses the one after it."""

    def opened(step: OwnStep | SendRequest) -> Source:
        source = _source_of(step)
        source.traits = msgspec.structs.replace(source.traits, next_source=next_source)
        return source

    def model_call(step: CallModel, attempt: int, fallback: int) -> Callable[[], Source]:
        """Return what sends the request of an attempt."""
        request = prepared(step.request(attempt, fallback), step.before)
        return partial(opened, step.sending(request))

    def next_source() -> Callable[[], Source] | RepeatableSource | None:
        """Take the next step, and return what opens it; None after the last."""
        step = next(course, None)
        if isinstance(step, CallModel):
            return RepeatableSource(partial(model_call, step), step.fallbacks)
        return None if step is None else partial(opened, step)

    return ChosenSource(next_source)


def _source_of(step: OwnStep | SendRequest) -> Source:
    match step:
        case SendRequest(protocol, send):
            source = open_sync(send)
            source.traits = msgspec.structs.replace(source.traits, protocol=protocol)
            return source
        case EmitEvents(events):
            return Source(iter([events]), lambda: None, OWN_EVENTS)
        case RunCode(run):
            return CodeSource(run)
        case CallTools():
            return ToolsSource(step)
        case ListTools():
            raise AssertionError("an `Agent` has no sessions")


class CodeSource(Source):
    """The events of a run of code."""

    def __init__(self, run: CodeRun) -> None:
        super().__init__(self._batches_of_run(), run.close, OWN_EVENTS)
        self._run = run

    def _batches_of_run(self) -> Iterator[list[Event]]:
        while batch := self._run.read():
            yield batch

    def interrupt(self) -> None:
        """Make the run end soon. May be called from any thread."""
        self._run.interrupt()


class ToolsSource(Source):
    """The outputs of functions, which a thread calls one after the other."""

    def __init__(self, step: CallTools) -> None:
        super().__init__(self._batches_of_outputs(), self._end, OWN_EVENTS)
        self._step = step
        self._mailbox = Mailbox()
        self._wakeup = threading.Event()
        self._mailbox.wake = self._wakeup.set
        self._stopped = threading.Event()
        self._interruptible = Interruptible()
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._work,), name="streamkit-tools", daemon=True)

    def interrupt(self) -> None:
        """Call no further function, and stop the present one where it waits for the network."""
        self._stopped.set()
        self._interruptible.cancel()

    def _batches_of_outputs(self) -> Iterator[list[Event]]:
        self._thread.start()
        while (batch := self._take()) != []:
            yield batch

    def _take(self) -> list[Event]:
        while True:
            self._wakeup.clear()
            if (batch := self._mailbox.take()) is not None:
                return batch
            self._wakeup.wait(INTERRUPT_PERIOD)

    def _work(self) -> None:
        try:
            if self._step.before is not None:
                self._step.before()
            for call in self._step.calls:
                if self._stopped.is_set():
                    break
                self._call(call)
        except Stopped:
            self._mailbox.end()
        except BaseException as error:  # KeyboardInterrupt, SystemExit: raised again in the stream's own thread
            self._mailbox.end(error)
        else:
            self._mailbox.end()

    def _call(self, pending: PendingCall) -> None:
        self._mailbox.running = [pending]
        pending.prepare(self._mailbox, self._stopped.is_set)
        if pending.tool.timeout is None:
            self._run(pending, self._interruptible)
            return
        interruptible = self._interruptible = Interruptible()  # of its own, because this call alone may be stopped
        work = contextvars.copy_context().run
        arguments = (self._run_alone, pending, interruptible)
        thread = threading.Thread(target=work, args=arguments, name="streamkit-tool", daemon=True)
        thread.start()
        thread.join(pending.tool.timeout)
        if thread.is_alive() and not self._stopped.is_set():
            if pending.tool.agent is not None:
                interruptible.cancel()
                thread.join()  # an agent stops, and what it had begun ends before its output comes
                pending.time_out()
            else:
                pending.time_out()
                interruptible.cancel()
        elif thread.is_alive():
            interruptible.cancel()
            thread.join()
        self._interruptible = Interruptible()

    def _run_alone(self, pending: PendingCall, interruptible: Interruptible) -> None:
        """A call in a thread of its own, which nobody waits for once its time is over."""
        try:
            self._run(pending, interruptible)
        except Stopped:
            pass
        except BaseException as error:
            self._mailbox.end(error)

    def _run(self, pending: PendingCall, interruptible: Interruptible) -> None:
        try:
            with pending.around():
                value = interruptible.call_user(pending.run)
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            pending.fail(error)
        else:
            pending.succeed(value)

    def _end(self) -> None:
        self.interrupt()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
