"""What waits for an answer: given once, from any thread; the first answer wins.

The engine makes an `Answer` where a source can take one; the managers wait for it. `wake` is the manager's: it is
called, from the answering thread, when something was answered or deferred.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from types import NoneType
from typing import Literal, cast

from .errors import UsageError
from .messages import Message

__all__ = ["Answer", "Confirmation"]


class Answer:
    """One answer to one question. `value` is what was given, `ready` whether it needs no awaiting any more.
    Once `defer` was called, `deferred` is true and `timeout` the seconds to wait, None for no limit; called again it
    counts anew, so `deferrals` counts the calls."""

    __slots__ = (
        "_lock",
        "awaitables",
        "closed",
        "deferrals",
        "deferred",
        "error",
        "given",
        "given_up",
        "ready",
        "timeout",
        "value",
        "wake",
        "what",
    )

    def __init__(self, what: str, wake: Callable[[], None], *, awaitables: bool = False) -> None:
        self.what = what
        self.wake = wake
        self.awaitables = awaitables
        self.value: object = None
        self.error: BaseException | None = None
        self.given = False
        self.ready = False
        self.closed = False
        self.given_up = False
        self.deferred = False
        self.deferrals = 0
        self.timeout: float | None = None
        self._lock = threading.Lock()

    @property
    def open(self) -> bool:
        return not self.given and not self.closed

    @property
    def answered(self) -> bool:
        """By whoever was asked; what was decided in their place is no answer."""
        return self.given and not self.given_up

    def give(self, value: object) -> None:
        """Answer.

        Raises:
            UsageError: it was answered before, the stream is over, or the value is an awaitable on a sync stream.
        """
        awaitable = inspect.isawaitable(value)
        if awaitable and not self.awaitables:
            if inspect.iscoroutine(value):
                value.close()
            raise UsageError(f"{self.what}: a sync stream cannot await {value!r}; give the value, or use `astream`")
        with self._lock:
            self._check()
            self.value = value
            self.given = True
            self.ready = not awaitable
        self.wake()

    def give_up(self, value: object) -> bool:
        """Answer in the place of whoever did not; for the manager. False if there is an answer."""
        with self._lock:
            if self.given:
                return False
            self.closed = self.given = self.ready = self.given_up = True
            self.value = value
            return True

    def resolve(self, value: object, error: BaseException | None = None) -> None:
        """What the awaitable gave, or raised; for the manager that ran it."""
        self.value = value
        self.error = error
        self.ready = True
        self.wake()

    def result(self) -> object:
        """The answer; raises what its awaitable raised."""
        if self.error is not None:
            raise self.error
        return self.value

    def defer(self, timeout: float | None) -> None:
        """Take the answer later. What another thread has answered by now needs no time: nothing happens."""
        if timeout is not None and (not isinstance(cast("object", timeout), (int, float)) or not timeout >= 0):
            raise UsageError(f"{self.what}: a timeout cannot be {timeout!r} seconds")
        with self._lock:
            if self.answered:
                return
            self._check()
            self.deferred = True
            self.deferrals += 1
            self.timeout = timeout
        self.wake()

    def expire(self, deferral: int) -> None:
        """The time of this deferral is over; nothing happens if there was another one since."""
        with self._lock:
            if self.deferrals == deferral:
                self.deferred = False
                self.closed = self.closed or not self.given

    def close(self) -> bool:
        """Take no answer any more. False if one was given before."""
        with self._lock:
            self.closed = True
            return not self.given

    def _check(self) -> None:
        if self.answered:
            raise UsageError(f"{self.what} has been answered already")
        if self.closed:
            raise UsageError(f"{self.what} takes no answer any more: it was decided without one")


class Confirmation:
    """A question whether something may run.

    `subject` is the code or tool-call message that would run; `status` is `pending`, `approved` or `declined`;
    `edited` is the source that was approved instead, `reason` why it was declined. Undecided is declined. `editable`
    says whether the source can take edited code; a `malformed` question cannot be answered and is declined.
    """

    __slots__ = ("answer_slot", "editable", "edited", "id", "malformed", "reason", "status", "subject")

    def __init__(
        self,
        id: str,
        subject: Message,
        *,
        status: Literal["pending", "approved", "declined"] = "pending",
        edited: str | None = None,
        reason: str | None = None,
        malformed: bool = False,
    ) -> None:
        self.id = id
        self.subject = subject
        self.status: Literal["pending", "approved", "declined"] = status
        self.edited = edited
        self.reason = reason
        self.malformed = malformed
        self.editable = False
        self.answer_slot: Answer | None = None

    @property
    def waiting(self) -> bool:
        """Whether an answer would be heard."""
        return self.answer_slot is not None and self.answer_slot.open

    def approve(self, edited: str | None = None) -> None:
        """Let it run, or `edited` in its place.

        Raises:
            UsageError: answered before, decided without an answer, or the source cannot take this answer.
        """
        if not isinstance(cast("object", edited), (str, NoneType)):
            raise UsageError(f"confirmation {self.id!r}: edited code is a str, not {edited!r}")
        if edited is not None and not self.editable and self.answer_slot is not None:
            raise UsageError(f"confirmation {self.id!r}: this source cannot take edited code, only yes or no")
        self._asked().give((True, edited))

    def decline(self, reason: str | None = None) -> None:
        """Do not let it run. Raises as `approve`."""
        self._asked().give((False, reason))

    def defer(self, timeout: float | None = None) -> None:
        """Answer later, from any thread or task; after `timeout` seconds without an answer it is declined. Called again,
        the time begins anew; called when another thread has answered already, it does nothing."""
        self._asked().defer(timeout)

    def settle(self, approved: bool, *, edited: str | None = None, reason: str | None = None) -> None:
        """The outcome; for the engine."""
        self.status = "approved" if approved else "declined"
        self.edited = edited
        self.reason = reason
        if self.answer_slot is not None:
            self.answer_slot.close()

    def _asked(self) -> Answer:
        if self.answer_slot is None:
            why = "it is malformed" if self.malformed else "its source is passive and cannot take an answer"
            raise UsageError(f"confirmation {self.id!r} cannot be answered: {why}")
        return self.answer_slot

    def to_dict(self) -> dict[str, object]:
        """`subject` is the subject's static form."""
        out: dict[str, object] = {"id": self.id, "subject": self.subject.to_dict(), "status": self.status}
        for key in ("edited", "reason", "malformed"):
            if value := getattr(self, key):
                out[key] = value
        return out

    def __repr__(self) -> str:
        return f"<Confirmation {self.id} {self.status} {self.subject!r}>"
