"""Questions of an emitter to its readers, whose answers are waited for: in a thread, or in a task.

Any reader may answer, and the first answer wins. A question waits

    300 seconds         for a reader that receives it, and for one that has not gone on after it; 30 s after it left
    no longer           once every reader has gone on after it, without an answer and without deferring it
    as it was deferred  by a reader: as long as `defer(timeout)` says, but no longer than 30 s after that reader left
    `timeout` seconds   at most, where the emitter set a limit; until then whatever the readers do

A question without an answer is declined, and so is one that is open when its run ends.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Self

from ..answers import Answer, Confirmation
from ..errors import UsageError
from ..messages import ToolCallMessage
from ..streams.deadlines import Deadlines
from .interface import RunLog
from .shared_answer import ReaderAnswer, SharedAnswer
from .wakers import async_wait_until, in_event_loop, wait_until

if TYPE_CHECKING:
    from .writer import Writer

__all__ = ["Approval", "Output"]

LONGEST = 300.0  # seconds for which a question waits where nobody set a limit and nobody deferred it
UNATTENDED = 30.0  # seconds for which a question waits for another reader after the one that deferred it left
_HEARTBEAT = 1.0  # seconds between two signs of life of a producer that waits


class _Question:
    """One question and its answer. `answer` is None where readers cannot give one."""

    def __init__(self, writer: Writer, log: RunLog, answer: Answer | None, timeout: float | None) -> None:
        self._writer = writer
        self._log = log
        self._answer = answer
        self._cursor = writer.cursor or ""
        self._is_limited = timeout is not None  # by the emitter
        self._end = time.monotonic() + (LONGEST if timeout is None else timeout)
        self._deadlines = Deadlines()
        self._left: dict[Answer, float] = {}  # deferrals whose reader has left, and when that was noticed
        self._is_over = answer is None

    def _wait(self) -> None:
        if not self._is_decided() and in_event_loop():
            name = "it" if self._answer is None else self._answer.what
            raise UsageError(f"waiting for {name} here would block the event loop: `await` it")
        wait_until(self._is_decided, self._watch, self._pause)

    async def _async_wait(self) -> None:
        await async_wait_until(self._is_decided, self._watch, self._pause)

    def _watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at each answer, and whenever a reader goes on or leaves."""
        end_answers, end_readers = self._writer.watch(wake), self._log.watch(wake)

        def unwatch() -> None:
            end_answers()
            end_readers()

        return unwatch

    def _pause(self) -> float:
        """Give a sign of life; returns the seconds until the next one, or until a time limit."""
        self._log.heartbeat()
        left = self._deadlines.left(_deferred(self._answer))
        seconds = min(_HEARTBEAT, UNATTENDED, math.inf if left is None else left)
        end = self._end - time.monotonic()
        return min(seconds, end) if end > 0 else seconds

    def _is_decided(self) -> bool:
        """Whether it was answered, or is not going to be. Then its outcome is written."""
        answer = self._answer
        if self._is_over or answer is None:
            return True
        if not answer.given:
            if self._may_be_answered(answer):
                return False
            self._give_up(answer)
        self._is_over = True
        self._writer.write_answers()
        return True

    def _may_be_answered(self, answer: Answer) -> bool:
        in_time = time.monotonic() < self._end
        if answer.closed or self._is_limited:
            return in_time and not answer.closed
        if self._log.unattended() >= UNATTENDED:
            return False
        return self._is_deferred(answer) or (in_time and not self._log.all_passed(self._cursor))

    def _is_deferred(self, answer: Answer) -> bool:
        """Whether a deferral holds: its time is not over, and its reader is there, or has just left."""
        deferred, now = _deferred(answer), time.monotonic()
        self._deadlines.left(deferred)  # their time begins, unless it has begun
        for late, deferral in self._deadlines.over():
            late.expire(deferral)
        for one in deferred:
            if isinstance(one, ReaderAnswer) and not one.present:
                self._left.setdefault(one, now)
        return any(one.deferred and now - self._left.get(one, now) < UNATTENDED for one in deferred)

    def _give_up(self, answer: Answer) -> None:
        answer.close()


def _deferred(answer: Answer | None) -> Sequence[Answer]:
    """The answers to a question that are deferred: each reader has one of its own."""
    return answer.deferred_answers if isinstance(answer, SharedAnswer) else ()


class Approval(_Question):
    """The answer to a confirmation: true where it may run. `wait()` for it in a thread, `await` it in a task; using it
    as a bool waits, too.

    Attributes:
        confirmation: the question and, once it is decided, the answer.
    """

    def __init__(self, writer: Writer, log: RunLog, confirmation: Confirmation, timeout: float | None) -> None:
        super().__init__(writer, log, confirmation.answer_slot, timeout)
        self.confirmation = confirmation

    def wait(self) -> Self:
        """Wait in this thread until it is decided.

        Raises:
            UsageError: that would block an event loop.
        """
        self._wait()
        return self

    def __await__(self) -> Generator[Any, Any, Self]:
        yield from self._async_wait().__await__()
        return self

    def __bool__(self) -> bool:
        self._wait()
        return self.confirmation.status == "approved"

    @property
    def edited(self) -> str | None:
        """The code that was approved in place of the question's, once it is decided."""
        return self.confirmation.edited

    @property
    def reason(self) -> str | None:
        """Why it was declined, once it is decided."""
        return self.confirmation.reason

    def _give_up(self, answer: Answer) -> None:
        answer.give_up((False, "not answered"))

    def __repr__(self) -> str:
        return f"<Approval {self.confirmation.id} {self.confirmation.status}>"


class Output(_Question):
    """The output of a tool call, from a reader. `wait()` for it in a thread, `await` it in a task.

    Attributes:
        call: the tool call's message.
    """

    def __init__(self, writer: Writer, log: RunLog, call: ToolCallMessage, timeout: float | None) -> None:
        super().__init__(writer, log, call.answer_slot, timeout)
        self.call = call

    def wait(self) -> Any:
        """The output, as the reader passed it to `respond`.

        Raises:
            UsageError: no reader answered; or waiting here would block an event loop.
        """
        self._wait()
        return self._output()

    def __await__(self) -> Generator[Any, Any, Any]:
        yield from self._async_wait().__await__()
        return self._output()

    def _output(self) -> Any:
        answer = self._answer
        if answer is None:
            raise UsageError(f"tool call {self.call.call_id!r} takes no answer: the agent runs it itself")
        if not answer.given:
            raise UsageError(
                f"{answer.what} was not answered: every reader has gone on without it, or its time is over"
            )
        return answer.result()

    def __repr__(self) -> str:
        return f"<Output of {self.call!r}>"
