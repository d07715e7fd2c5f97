"""One run in memory: its log, its questions, its readers, and the heartbeats of its producer."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from ...errors import SourceTimeoutError, UsageError
from ..registry import Questions, check_answer, status_without_producer
from ..run_record import (
    FINAL,
    Answered,
    Cancelled,
    Control,
    Fenced,
    RunRecord,
    Status,
    Unattended,
    fenced_error,
    lists_of,
    run_name,
)
from ..wakers import WaitingReaders, in_event_loop
from .log import Log

__all__ = ["MemoryRun", "Overflow"]

Overflow: TypeAlias = Literal["drop_oldest", "block", "error"]

GRACE = 5.0  # seconds of silence after which a producer counts as gone if its threads have all ended


class Follower(Protocol):
    """A reading of a run, as the run knows it."""

    @property
    def number(self) -> int:
        """The number of the last event that it has handed out."""
        ...


class MemoryRun:
    """One run. `lock` guards its log, its questions and its status.

    Attributes:
        status: as it was stored; a producer that died did not change it.
        was_read: whether some reader has received an event.
        last_active: when the producer began, wrote, sent a heartbeat or ended the run, on the monotonic clock.
        waiting: the wakers of readers that wait for the next event.
        watchers: functions that are called whenever a reader has received events or left.
        is_gone: whether the run was deleted.
        is_closed: whether its relay was closed.
        has_producer: whether a producer has the run, and lives. Readers look at it without the lock.
        newest_thread: the one of the producer's threads that called `heartbeat`, or wrote, last.
        busy: as `LogWriter.busy`.
        number: its position in the order in which the runs of its relay were opened.
        lists: the lists that it is in, as `lists_of` returned them.
    """

    def __init__(
        self, run_id: str, info: Mapping[str, Any], limit: int, overflow: Overflow, timeout: float | None
    ) -> None:
        self.id = run_id
        self.lock = threading.RLock()
        self.log = Log(run_name(run_id))
        self.limit = limit
        self.timeout = timeout
        self.status: Status = "in_progress"
        self.epoch = 0
        self._receiver: Callable[[], Callable[[Control], None] | None] = _nobody  # of the producer's messages
        self.questions = Questions()
        self.is_gone = self.is_closed = self.has_producer = False
        self.busy = self.was_read = False
        self.last_active = time.monotonic()
        self.waiting = WaitingReaders()
        self.watchers: set[Callable[[], None]] = set()
        self.cancel_reason: str | None = None
        self._info = dict(info)
        self.number = 0
        self.lists = lists_of(info)
        self._error: dict[str, Any] | None = None
        self._created_at = time.time()
        self._ended_at: float | None = None
        self._overflow = overflow
        self._readings: dict[int, weakref.ref[Follower]] = {}
        self._last_left = 0.0  # when a reader left, on the monotonic clock
        self._threads: list[threading.Thread] = []  # of the producer
        self.newest_thread: threading.Thread | None = None

    # -- its record

    @property
    def status_now(self) -> Status:
        """Its status, in view of whether its producer is alive."""
        if self.status != "in_progress" or self.has_producer:
            return self.status
        return status_without_producer(self.questions.values(), busy=self.busy)

    def record(self) -> RunRecord:
        """Return its record."""
        with self.lock:
            log = self.log
            return RunRecord(
                id=self.id,
                status=self.status_now,
                epoch=self.epoch,
                cursor=log.cursor(log.newest) if log.newest else None,
                created_at=self._created_at,
                ended_at=self._ended_at,
                info=dict(self._info),
                error=self._error,
                cancel=self.cancel_reason,
                questions={id: dict(one.record) for id, one in self.questions.items()},
                readers=len(self._readings),
            )

    # -- its producer

    def claim(self, receive: Callable[[Control], None]) -> int | None:
        """Make the run that of another writer, with this method, which is referred to weakly: the producer counts as dead once its
        writer is. Returns the run's new epoch; None if another writer has the run, or it has ended."""
        with self.lock:
            if self.epoch and (self.status_now not in ("paused", "lost") or self.status == "lost" or self.is_gone):
                return None
            self.epoch = epoch = self.epoch + 1
            self.status, self.has_producer = "in_progress", True
            self._receiver = weakref.WeakMethod(receive, lambda _: self.producer_gone(epoch))
            self.log.begin(epoch)
            self.last_active = time.monotonic()
            return epoch

    def producer_gone(self, epoch: int) -> None:
        """Note that the producer of this epoch is gone: the next reader that has nothing to read ends the run. Takes no lock."""
        if epoch == self.epoch:
            self.has_producer = False
            self.waiting.wake()
            self.report_progress()

    def check(self, epoch: int) -> None:
        """Raise `ProducerFenced` if the producer of this epoch cannot write any more. With the lock held."""
        reason = self.fence(epoch)
        if reason is not None:
            raise fenced_error(self.id, reason)

    def fence(self, epoch: int) -> str | None:
        """Return why the producer of this epoch cannot write any more, as `ProducerFenced.reason`; None if it can."""
        if self.is_gone:
            return "gone"
        if epoch != self.epoch:
            return "epoch"
        return None if self.status == "in_progress" else "closed"

    def _live_receiver(self) -> Callable[[Control], None]:
        """Return what receives the messages to the present producer, to be called without the lock."""
        return (self._receiver() if self.has_producer else None) or _ignore

    def finish(
        self, status: Status, error: Mapping[str, Any] | None = None, info: Mapping[str, Any] | None = None
    ) -> None:
        """Store the status with which the producer leaves. With the lock held."""
        self._info.update(info or {})
        self.status, self.has_producer = status, False
        self.last_active = time.monotonic()
        if status in FINAL:
            self._error = None if error is None else dict(error)
            self._ended_at = time.time()
            self.questions.close()
        self.waiting.wake()

    def delete(self) -> None:
        """Make readers and the producer fail: the run was deleted."""
        with self.lock:
            receive = self._live_receiver()
            self.is_gone, self.has_producer = True, False
            if self.status not in FINAL:
                self.questions.close()
        self.waiting.wake()
        receive(Fenced("gone"))
        self.report_progress()

    def close(self) -> None:
        """Make readers fail: the relay was closed."""
        self.is_closed = True
        self.waiting.wake()

    # -- questions

    def answer(self, question_id: str, answer: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
        """Answer a question, and pass the answer on."""
        with self.lock:
            question = self.questions.get(question_id)
            if question is None:
                raise UsageError(f"run {self.id!r} has no question {question_id!r}")
            check_answer(question_id, question.record, answer)
            is_first = question.is_open
            counts, record, receive = question.settle(answer), dict(question.record), self._live_receiver()
        if is_first:
            receive(Answered(question_id, dict(answer)))
        return counts, record

    def cancel(self, reason: str) -> bool:
        """Stop the run. Returns False if it had ended."""
        with self.lock:
            if self.status in FINAL or self.is_gone:
                return False
            is_first, receive = self.cancel_reason is None, self._live_receiver()
            if is_first:
                self.cancel_reason = reason
                self.questions.close()
        if is_first:
            receive(Cancelled(reason))
        return True

    def skip(self, reading: Follower, question_id: str) -> None:
        """Note that a reader goes on without an answer to a question."""
        with self.lock:
            question = self.questions.get(question_id)
            if question is None or not question.is_open:
                return
            question.skipped.add(id(reading))
            is_unattended = not question.left and question.is_unattended(self._readings)
            receive = self._live_receiver()
        if is_unattended:
            receive(Unattended(question_id))

    def unattended(self, question_id: str) -> float:
        """Return for how many seconds no reader has been there that may answer; 0 before the first came."""
        question = self.questions.get(question_id)
        if question is None or not self.was_read or not question.is_unattended([*self._readings]):
            return 0.0
        return time.monotonic() - max(question.registered_at, question.left or self._last_left)

    # -- room for more

    def has_room(self) -> bool:
        """Whether the producer may write more. Raises `UsageError` where the policy is to refuse it."""
        if self._overflow == "drop_oldest" or self.status != "in_progress":
            return True
        numbers = self._numbers_read()
        if (not numbers and self.was_read) or self.log.newest - min(numbers, default=0) < self.limit:
            return True
        if self._overflow == "error":
            raise UsageError(f"the readers of run {self.id!r} are {self.limit} events behind, the relay's limit")
        if in_event_loop():
            return False
        self.heartbeat()  # a producer that waits is alive
        return False

    def droppable(self) -> int:
        """Return the number of the last event that no reader needs. A run that does not wait for its readers drops any."""
        if self._overflow == "drop_oldest":
            return self.log.newest
        return min(self._numbers_read(), default=self.log.newest if self.was_read else 0)

    def _numbers_read(self) -> Sequence[int]:
        readings = [reference() for reference in [*self._readings.values()]]
        return [reading.number for reading in readings if reading is not None]

    # -- the producer's life

    def heartbeat(self) -> None:
        """Note that the producer is alive. The thread that calls this counts as one of the producer's."""
        self.last_active = time.monotonic()
        thread = threading.current_thread()
        if thread is not self.newest_thread:
            self.newest_thread = thread
            self._threads = [one for one in self._threads if one.is_alive() and one is not thread] + [thread]

    def first_wait(self, timeout: float) -> float:
        """Return for how many seconds a reader waits that has just received all there is."""
        return max(0.001, min(timeout, GRACE))

    def next_wait(self, timeout: float) -> float:
        """Return for how many further seconds a reader waits that has waited in vain.

        Raises:
            SourceTimeoutError: the producer was silent for `timeout` seconds, or its threads have ended.
        """
        if self.status == "paused":
            return GRACE
        silence, threads = time.monotonic() - self.last_active, self._threads
        reason = "it emitted nothing and sent no heartbeat" if silence >= timeout else ""
        if threads and silence >= GRACE and not any(thread.is_alive() for thread in threads):
            names = ", ".join(repr(thread.name) for thread in threads)
            reason = f"its thread {names} has ended without closing it"
        if reason:
            raise SourceTimeoutError(f"the producer of run {self.id!r} was silent for {silence:.1f} seconds: {reason}")
        return max(0.001, min(timeout - silence, GRACE - silence if silence < GRACE else GRACE))

    # -- readers. None of this takes a lock: the garbage collector may close a reading.

    def join(self, reading: Follower) -> None:
        """Add a reading. One that is dropped without being closed no longer counts."""
        key = id(reading)
        self._readings[key] = weakref.ref(reading, lambda _: self.leave(key))

    def leave(self, key: int) -> None:
        """Remove a reading."""
        if self._readings.pop(key, None) is None:
            return
        self._last_left = time.monotonic()
        for question in [*self.questions.values()]:
            if key not in question.skipped and question.record["status"] == "pending":
                question.left = self._last_left
            question.skipped.discard(key)  # another reading may have this id one day
        self.report_progress()

    def report_progress(self) -> None:
        """Wake producers that wait for room: a reader went on or left."""
        for wake in [*self.watchers]:
            wake()


def _nobody() -> None:
    """Return what receives messages before the first producer: nothing."""


def _ignore(control: Control) -> None:
    """Do nothing: no producer is there, and the next one looks up what came before it."""
