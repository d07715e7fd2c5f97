"""Questions of an emitter to its readers, whose answers are waited for: in a thread, or in a task.

Any reader may answer, and the first answer counts. Without one a question ends

    after 300 seconds      or after `timeout` seconds, where the emitter set a limit; until then whatever the readers do
    after 30 seconds       in which no reader was there that could lead to an answer, once there had been one
    at once                where every reader that is there goes on without having answered or deferred it

A confirmation without an answer is `unanswered`, and so is one that is open when its run ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from functools import partial
from typing import Any, Self

from ..answers import Answer, Confirmation
from ..errors import UsageError
from ..messages import ToolCallMessage
from .wakers import async_wait_until, in_event_loop, wait_until
from .writer import Writer

__all__ = ["ApprovalRequest", "Forwarded", "OutputRequest"]

LONGEST = 300.0  # seconds for which a question waits where nobody set a limit
UNATTENDED = 30.0  # seconds for which a question waits for another reader after the last one left
_HEARTBEAT = 1.0  # seconds between two heartbeats of a producer that waits


class _EmittedQuestion:
    """One question and its answer. `answer` is None where readers cannot give one."""

    def __init__(self, writer: Writer, id: str, waiting: Confirmation | ToolCallMessage, timeout: float | None) -> None:
        self._writer = writer
        self._id = id
        self._waiting = waiting
        self._answer = answer = waiting.answer_slot
        self._is_limited = timeout is not None  # by the emitter
        self._end = time.monotonic() + (LONGEST if timeout is None else timeout)
        self._is_over = answer is None

    def _wait(self) -> None:
        if not self._is_decided() and in_event_loop():
            name = "it" if self._answer is None else self._answer.what
            raise UsageError(f"waiting for {name} here would block the event loop: `await` it")
        wait_until(self._is_decided, self._writer.watch, self._pause)

    async def _async_wait(self) -> None:
        decided = partial(self._writer.relay.in_task, self._is_decided)  # which asks the registry
        await async_wait_until(decided, self._writer.watch, self._pause)

    def _pause(self) -> float:
        """Send a heartbeat. Returns the seconds until the next one, or until a time limit."""
        self._writer.heartbeat()
        end = self._end - time.monotonic()
        seconds = min(_HEARTBEAT, UNATTENDED)
        return min(seconds, end) if end > 0 else seconds

    def _is_decided(self) -> bool:
        """Whether it was answered, or is not going to be. Then its outcome is written."""
        answer = self._answer
        if self._is_over or answer is None:
            return True
        if not answer.has_answer:
            if not answer.closed and (self._may_be_answered() or not self._writer.close_unanswered(self._id)):
                return False
            self._decide(answer)
        self._writer.write_answers()
        self._is_over = not answer.has_answer or not self._writer.is_pending(self._id, self._waiting)
        return self._is_over

    def _may_be_answered(self) -> bool:
        if time.monotonic() >= self._end:
            return False
        return self._is_limited or not self._writer.is_unattended(self._id, UNATTENDED)

    def _decide(self, answer: Answer) -> None:
        answer.close()


class ApprovalRequest(_EmittedQuestion):
    """The answer to a confirmation: true where it may run. `wait()` for it in a thread, `await` it in a task; using it
    as a bool waits, too.

    Attributes:
        confirmation: the question and, once it is decided, the answer.
    """

    def __init__(self, writer: Writer, confirmation: Confirmation, timeout: float | None) -> None:
        super().__init__(writer, confirmation.id, confirmation, timeout)
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

    def _decide(self, answer: Answer) -> None:
        answer.decide(("unanswered", None))

    def __repr__(self) -> str:
        return f"<Approval {self.confirmation.id} {self.confirmation.status}>"


class Forwarded(_EmittedQuestion):
    """The answer to a confirmation of another stream whose events are written. That stream waits for it; where no reader can
    answer any more, its wait ends."""

    def __init__(self, writer: Writer, confirmation: Confirmation) -> None:
        super().__init__(writer, confirmation.id, confirmation, None)

    def start(self) -> None:
        """Wait for it in a thread."""
        threading.Thread(target=self._wait, name="streamkit-forwarded-question", daemon=True).start()

    def _pause(self) -> float:
        return _HEARTBEAT  # without one: this thread says nothing about the producer's

    def _is_decided(self) -> bool:
        return not self._writer.is_pending(self._id, self._waiting) or super()._is_decided()

    def _decide(self, answer: Answer) -> None:
        answer.expire(answer.deferrals)
        answer.wake()


class OutputRequest(_EmittedQuestion):
    """The output of a tool call, from a reader. `wait()` for it in a thread, `await` it in a task.

    Attributes:
        call: the tool call's message.
    """

    def __init__(self, writer: Writer, id: str, call: ToolCallMessage, timeout: float | None) -> None:
        super().__init__(writer, id, call, timeout)
        self.call = call

    def wait(self) -> Any:
        """Return the output, as the reader passed it to `respond`.

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
        if not answer.has_answer:
            raise UsageError(
                f"{answer.what} was not answered: every reader has gone on without it, or its time is over"
            )
        return answer.result()

    def __repr__(self) -> str:
        return f"<Output of {self.call!r}>"
