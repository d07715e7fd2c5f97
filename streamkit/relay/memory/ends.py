"""The two ends of a run in memory: its producer's, and a reader's."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import anyio.lowlevel

from ...errors import SourceError, UsageError
from ..interface import LogWriter, check_ending, check_lines
from ..reading import Gap, Reading, events_missing, run_not_found
from ..run_record import EMPTY, FINAL, Answered, Cancelled, Control, Entry, Status, position_of
from ..wakers import TaskWaker, ThreadWaker, Watch, async_wait_until, in_event_loop, wait_until
from .run import MemoryRun

__all__ = ["MemoryReading", "MemoryWriter"]

_PAUSE = 1.0  # seconds after which a producer that waits for room checks again


class MemoryWriter(LogWriter):
    """One producer of a run in memory. The run is its own as long as this object lives.

    Args:
        ended: is called once this writer has ended the run.

    Attributes:
        epoch: the run's epoch while this is its producer; 0 before `claim`.
    """

    waits = False

    def __init__(
        self, run: MemoryRun, control: Callable[[Control], None], ended: Callable[[], None], *, bounded: bool
    ) -> None:
        self._run = run
        self._ended = ended
        self._control = control
        self.bounded = bounded
        self.epoch = 0
        self._busy = False

    def claim(self) -> bool:
        """Make the run this writer's. False if another one has it, or it has ended."""
        self.epoch = self._run.claim(self.receive) or 0
        self._busy = self._run.busy
        return self.epoch > 0

    def receive(self, control: Control) -> None:
        """Pass something on to the producer. The run has this method, weakly."""
        self._control(control)

    def receive_missed(self) -> None:
        """Receive the cancellation and the answers that came for earlier producers."""
        run = self._run
        if run.cancel_reason is not None:
            self._control(Cancelled(run.cancel_reason))
        for id, question in [*run.questions.items()]:
            if question.answer is not None:
                self._control(Answered(id, question.answer))

    @property
    def cursor(self) -> str | None:  # type: ignore[override]  # it is not set here
        """The cursor of the newest event."""
        log = self._run.log
        return log.cursor(log.newest) if log.newest else None

    @property
    def busy(self) -> bool:
        """Whether something runs besides the questions that are open."""
        return self._busy

    @busy.setter
    def busy(self, busy: bool) -> None:
        self._busy = busy
        with self._run.lock:
            if self._run.fence(self.epoch) is None:
                self._run.busy = busy

    @property
    def fenced(self) -> str | None:
        """Why nothing can be written any more; None if it can."""
        return self._run.fence(self.epoch)

    def append(self, events: Sequence[bytes]) -> list[str]:
        """Number events, and write them."""
        check_lines(events)
        run = self._run
        with run.lock:
            if run.epoch != self.epoch or not run.has_producer:
                run.check(self.epoch)
            cursors = run.log.append(events)
        run.heartbeat()
        if run.waiting:
            run.waiting.wake()
        return cursors

    def ask(self, question_id: str, question: Mapping[str, Any], events: Sequence[bytes] = ()) -> list[str]:
        """Register a question, and write the events that show it."""
        check_lines(events)
        run = self._run
        with run.lock:
            run.check(self.epoch)
            answer = run.questions.ask(question_id, question, self.epoch)
            cursors = run.log.append(events)
        run.heartbeat()
        run.waiting.wake()
        if answer is not None:
            self._control(Answered(question_id, answer))
        return cursors

    def settle(self, question_id: str, answer: Mapping[str, Any] | None = None) -> tuple[bool, dict[str, Any]]:
        """Answer a question here, or close it without an answer."""
        with self._run.lock:
            question = self._run.questions.get(question_id)
            return (False, {}) if question is None else (question.settle(answer), dict(question.record))

    def unattended(self, question_id: str) -> float:
        """Return for how many seconds no reader has been there that may answer a question."""
        return self._run.unattended(question_id)

    def snapshot(self, data: bytes) -> None:
        """Store the state at the newest event."""
        run = self._run
        with run.lock:
            run.check(self.epoch)
            run.log.snapshot(data, run.droppable())

    def pause(self) -> None:
        """Leave the run to the process that takes it over."""
        run = self._run
        with run.lock:
            run.check(self.epoch)
            run.finish("paused")

    def end(
        self, status: Status, error: Mapping[str, Any] | None = None, info: Mapping[str, Any] | None = None
    ) -> bool:
        """End the run."""
        check_ending(status)
        run = self._run
        with run.lock:
            if run.fence(self.epoch) is not None:
                return False
            run.finish(status, error, info)
        self._ended()
        run.report_progress()
        return True

    def flush(self, timeout: float = 5.0) -> None:
        """Raise `ProducerFenced` where another producer has the run: everything is stored already."""
        run = self._run
        with run.lock:
            if run.epoch != self.epoch or run.status not in FINAL:
                run.check(self.epoch)

    def heartbeat(self) -> None:
        """Report that the producer is alive."""
        self._run.heartbeat()

    def abandon(self) -> None:
        """Stop writing without ending the run, as if the process had died. Takes no lock."""
        self._run.producer_gone(self.epoch)

    # -- room for more

    def drain(self) -> None:
        """Wait in this thread until the readers have made room."""
        run = self._run
        if run.has_room():
            return
        if in_event_loop():
            raise UsageError(
                f"the readers of run {run.id!r} are {run.limit} events behind, and waiting here would block the "
                "event loop: `await emitter.drain()` between what is emitted"
            )
        wait_until(run.has_room, self._watch, _pauses())

    async def adrain(self) -> None:
        """As `drain`, for tasks. Other tasks run meanwhile, even where there is room."""
        if self._run.has_room():
            await anyio.lowlevel.checkpoint()
        else:
            await async_wait_until(partial(self.in_task, self._run.has_room), self._watch, _pauses())

    @property
    def _watch(self) -> Watch:
        watchers = self._run.watchers

        def watch(wake: Callable[[], None]) -> Callable[[], None]:
            watchers.add(wake)
            return lambda: watchers.discard(wake)

        return watch


class MemoryReading(Reading):
    """One reader's position in a run's log.

    Args:
        end_abandoned: ends the run of a producer that died.

    Attributes:
        number: the number of the last event that was handed out; -1 if a snapshot comes first.
    """

    def __init__(
        self, run: MemoryRun, after: str | None, gap: Gap, timeout: float | None, end_abandoned: Callable[[], object]
    ) -> None:
        super().__init__()
        self._end_abandoned = end_abandoned
        self._run = run
        self._gap = gap
        timeout = run.timeout if timeout is None else timeout
        self._timeout = math.inf if timeout is None else timeout
        self._first_wait = run.first_wait(self._timeout)
        self._has_joined = False
        self._idle_at: int = -1  # the number at which it began to wait
        self.number = 0
        if after is not None:
            position = position_of(after, run.id)
            with run.lock:
                self.number = position.number if run.log.has(position) else -1
                if self.number < 0 and gap == "error":
                    raise self._missing()

    def rewind(self, after: str) -> bool:
        """Read from the run's beginning."""
        position = position_of(after, self._run.id)
        with self._run.lock:
            has = self._run.log.has(position)
        self.number = 0 if has else -1
        return has

    def take(self, waker: ThreadWaker | TaskWaker) -> list[Entry] | float | None:
        """Return the next entries, or for how many seconds to wait for them."""
        run, log = self._run, self._run.log
        with run.lock:
            if not self._has_joined:
                self._has_joined = True
                run.join(self)
            if self.number < log.newest:
                entries = self._next()
            elif run.status in FINAL:
                return None
            else:
                entries = None
                run.waiting[waker] = None  # what comes after this wakes it
        if entries is None:
            return self._wait()
        run.was_read = True
        run.report_progress()
        return entries

    def _next(self) -> list[Entry]:
        log = self._run.log
        if self.number < log.dropped:
            return [self._snapshot()]
        entries = log.since(self.number)
        self.number += len(entries)
        return entries

    def _snapshot(self) -> Entry:
        log = self._run.log
        if self._gap == "error":
            raise self._missing()
        self.number = log.dropped
        return log.base or Entry(log.cursor(0), EMPTY, snapshot=True)

    def _wait(self) -> float:
        """Return for how many seconds to wait. A run whose producer died is ended here.

        Raises:
            SourceError: the run was deleted.
            SourceTimeoutError: the producer was silent for too long.
        """
        run = self._run
        if run.is_closed:
            raise UsageError(f"run {run.id!r} cannot be read: its relay is closed")
        if run.is_gone:
            raise run_not_found(run.id, "it was deleted while it was open")
        if self._idle_at != self.number and run.has_producer:
            self._idle_at = self.number
            return self._first_wait
        status = run.status_now
        if status == "lost" or (status == "paused" and run.cancel_reason is not None):
            self._end_abandoned()
            return 0.0
        return run.next_wait(self._timeout) if status == run.status else 60.0

    def _missing(self) -> SourceError:
        return events_missing(self._run.id, self._run.log.cursor(self._run.log.dropped))

    def skip(self, question_id: str) -> None:
        """Report that this reader goes on without an answer to a question."""
        self._run.skip(self, question_id)

    def close(self) -> None:
        """Stop reading, without taking a lock."""
        super().close()
        if self._waker is not None:
            self._run.waiting.pop(self._waker, None)
        self._run.leave(id(self))


def _pauses() -> Callable[[], float]:
    """Return a function that says how many seconds to wait for room before the next check.

    After the first pause in vain it runs the garbage collector: a reader that was dropped without being closed, and is part of
    a reference cycle, would otherwise keep the producer waiting.
    """
    collects_at = time.monotonic() + _PAUSE

    def pause() -> float:
        nonlocal collects_at
        if time.monotonic() >= collects_at:
            collects_at = math.inf
            gc.collect()
        return _PAUSE

    return pause
