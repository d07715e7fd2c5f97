"""The producer's end of a run in memory."""

from __future__ import annotations

import gc
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import anyio.lowlevel

from ...errors import UsageError
from ..cursors import Entry
from ..interface import FINAL, Answered, Cancelled, Control, LogWriter, Status
from ..wakers import Watch, async_wait_until, in_event_loop, wait_until
from .log import new_entry
from .run import MemoryRun

__all__ = ["MemoryWriter"]

_PAUSE = 1.0  # seconds after which a producer that waits for room checks again
_now = time.monotonic


class _Here(threading.local):
    """In each thread: that thread, in half of the time that `threading.current_thread` takes."""

    def __init__(self) -> None:
        self.thread = threading.current_thread()


_here = _Here()


class MemoryWriter(LogWriter):
    """One producer of a run in memory. The run is its own as long as this object lives.

    Args:
        ended: is called once this writer has ended the run.

    Attributes:
        control: what the producer receives messages with.
        is_abandoned: whether `abandon` was called.
        epoch: the run's epoch while this is its producer; 0 before `claim`.
    """

    waits = False

    def __init__(
        self, run: MemoryRun, control: Callable[[Control], None], ended: Callable[[], None], *, bounded: bool
    ) -> None:
        self._run = run
        self._ended = ended
        self.control = control
        self.bounded = bounded
        self.is_abandoned = False
        self.epoch = 0
        self._busy = False

    def claim(self) -> bool:
        """Make the run this writer's. False if another one has it, or it has ended."""
        self.epoch = self._run.claim(self) or 0
        self._busy = self._run.busy
        return self.epoch > 0

    def receive_missed(self) -> None:
        """Receive the cancellation and the answers that came for earlier producers."""
        run = self._run
        if run.cancel_reason is not None:
            self.control(Cancelled(run.cancel_reason))
        for id, question in [*run.questions.items()]:
            if question.answer is not None:
                self.control(Answered(id, question.answer))

    @property
    def cursor(self) -> str | None:  # type: ignore[override]  # it is not set here
        """Of the newest event."""
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
            if self._run.fence(self.epoch)[0] is None:
                self._run.busy = busy

    @property
    def fenced(self) -> str | None:
        """Why nothing can be written any more; None if it can."""
        return self._run.fence(self.epoch)[0]

    def append(self, events: Sequence[bytes]) -> list[str]:
        """Number events, and write them."""
        run = self._run
        with run.lock:
            if run.epoch != self.epoch or not run.has_producer:
                run.check(self.epoch)
            cursors = run.log.append(events)
        run.heartbeat()
        if run.waiting:
            run.wake()
        return cursors

    def writing_lock(self) -> threading.RLock:
        """The run's own lock."""
        return self._run.lock

    def append_delta(self, line: bytes, delta: object = None) -> str:
        """Number a delta, and write it, with the run's lock held. This is `append` for one line, with as few calls as possible:
        they are paid for each token."""
        run = self._run
        if run.epoch != self.epoch or not run.has_producer:
            run.check(self.epoch)
        log = run.log
        number, tail = log.newest + 1, log.tail
        cursor = f"{log.prefix}{number}{log.name}"
        entry = new_entry(Entry, (cursor, line, False))
        tail.append(entry)
        log.newest, log.newest_entry = number, (number, entry, delta)
        if len(tail) > log.longest_tail:
            log.join()
        run.last_active = _now()
        if _here.thread is not run.newest_thread:
            run.heartbeat()
        waiting = run.waiting
        if len(waiting) == 1:
            try:
                waker, _ = waiting.popitem()
            except KeyError:
                pass  # another thread wakes it
            else:
                waker.wake()
        elif waiting:
            run.wake()
        return cursor

    def ask(self, question_id: str, question: Mapping[str, Any], events: Sequence[bytes] = ()) -> list[str]:
        """Register a question, and write the events that show it."""
        run = self._run
        with run.lock:
            run.check(self.epoch)
            answer = run.questions.ask(question_id, question, self.epoch)
            cursors = run.log.append(events)
        run.heartbeat()
        run.wake()
        if answer is not None:
            self.control(Answered(question_id, answer))
        return cursors

    def settle(self, question_id: str, answer: Mapping[str, Any] | None = None) -> tuple[bool, dict[str, Any]]:
        """Answer a question here, or close it without an answer."""
        with self._run.lock:
            question = self._run.questions.get(question_id)
            return (False, {}) if question is None else (question.settle(answer), dict(question.record))

    def unattended(self, question_id: str) -> float:
        """For how many seconds no reader has been there that may answer a question."""
        return self._run.unattended(question_id)

    def snapshot(self, data: bytes) -> None:
        """Store the state at the newest event."""
        run = self._run
        with run.lock:
            run.check(self.epoch)
            run.log.snapshot(data, run.droppable())

    def pause(self) -> None:
        """Leave the run to whoever takes it over."""
        run = self._run
        with run.lock:
            run.check(self.epoch)
            run.finish("paused")

    def end(
        self, status: Status, error: Mapping[str, Any] | None = None, info: Mapping[str, Any] | None = None
    ) -> bool:
        """End the run."""
        if status not in FINAL:
            raise UsageError(f"a run does not end as {status!r}; it ends as one of {', '.join(FINAL)}")
        run = self._run
        with run.lock:
            if run.fence(self.epoch)[0] is not None:
                return False
            run.finish(status, error, info)
        self._ended()
        run.report_progress()
        return True

    def flush(self, timeout: float = 5.0) -> None:
        """All is stored already."""
        run = self._run
        with run.lock:
            if run.epoch != self.epoch or run.status not in FINAL:
                run.check(self.epoch)

    def heartbeat(self) -> None:
        """Report that the producer is alive."""
        self._run.heartbeat()

    def abandon(self) -> None:
        """Stop writing without ending the run, as if the process had died. Takes no lock."""
        self.is_abandoned = True
        self._run.producer_gone()

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


def _pauses() -> Callable[[], float]:
    """A function that returns how many seconds to wait for room before the next check.

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
