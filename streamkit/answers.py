"""Confirmations: the questions whether something may run, and their answers.

`Answer` stands beside the messages, since a tool call takes one too.
"""

from __future__ import annotations

from types import NoneType
from typing import Literal, TypeAlias, cast

from .errors import UsageError
from .messages import Message
from .messages.answer import Answer

__all__ = ["NOT_ANSWERED", "Answer", "Confirmation", "Outcome"]

Outcome: TypeAlias = Literal["approved", "declined", "unanswered"]
"""How a confirmation was decided."""

NOT_ANSWERED = "not answered"
"""The reason of a confirmation that is declined because its stream was closed or cancelled, or failed, while it was pending."""


class Confirmation:
    """The question whether code or a tool call may run. Handlers receive it in `on_confirmation`.

    Answer it there with `approve` or `decline`, or call `defer` there and answer later, from any thread or task. The first
    answer counts. Where nobody answers, nothing runs: the confirmation is `unanswered`, and the run ends `requires_action`.
    A stream that is closed or cancelled, or fails, declines it.

    Attributes:
        id: unique in the stream.
        subject: the code or tool-call message that would run.
        status: `pending`, then `approved`, `declined`, or `unanswered` if nobody decided.
        edited: the code that was approved in place of the subject's; None if it was approved unchanged.
        reason: why it was declined, if a reason was given.
        editable: whether the source can take edited code.
        malformed: whether the source's question was malformed: it cannot be answered.
        expires_at: when its source stops to wait for an answer, in Unix seconds; None if the source does not say so.
        answer_slot: where the answer is put; None if the source cannot take one. For streamkit itself.
    """

    __slots__ = ("answer_slot", "editable", "edited", "expires_at", "id", "malformed", "reason", "status", "subject")

    def __init__(
        self,
        id: str,
        subject: Message,
        *,
        status: Literal["pending"] | Outcome = "pending",
        edited: str | None = None,
        reason: str | None = None,
        malformed: bool = False,
        expires_at: float | None = None,
    ) -> None:
        self.id = id
        self.subject = subject
        self.status: Literal["pending"] | Outcome = status
        self.edited = edited
        self.reason = reason
        self.malformed = malformed
        self.expires_at = expires_at
        self.editable = False
        self.answer_slot: Answer | None = None

    @property
    def waiting(self) -> bool:
        """Whether an answer would be taken now."""
        return self.answer_slot is not None and self.answer_slot.open

    @property
    def answered(self) -> bool:
        """Whether it was approved or declined."""
        return self.status == "approved" or (self.status == "declined" and self.reason != NOT_ANSWERED)

    def approve(self, edited: str | None = None) -> None:
        """Let the code or tool call run; with `edited`, run that code instead.

        Raises:
            UsageError: it was answered before, it was decided without an answer, the source cannot take this answer, or the
                edited code is empty.
        """
        if not isinstance(cast("object", edited), (str, NoneType)):
            raise UsageError(f"confirmation {self.id!r}: edited code is a str, not {edited!r}")
        if edited is not None and not edited.strip():
            raise UsageError(f"confirmation {self.id!r}: the edited code is empty; to run nothing, decline it")
        if edited is not None and not self.editable and self.answer_slot is not None:
            raise UsageError(f"confirmation {self.id!r}: this source cannot take edited code, only yes or no")
        self._open_slot().give(("approved", edited))

    def decline(self, reason: str | None = None) -> None:
        """Do not let it run; `reason` is sent along where the source has a place for it. Raises as `approve`."""
        self._open_slot().give(("declined", reason))

    def defer(self, timeout: float | None = None) -> None:
        """Make the stream wait: the answer comes later, from any thread or task. To be called in the hook.

        After `timeout` seconds without an answer it is `unanswered`; None waits without a limit. Calling it again starts the
        time again. It does nothing if another thread has answered already. Raises as `approve`.
        """
        self._open_slot().defer(timeout)

    def settle(self, outcome: Outcome, *, edited: str | None = None, reason: str | None = None) -> None:
        """Store the outcome; for the engine."""
        self.status = outcome
        self.edited = edited
        self.reason = reason
        if self.answer_slot is not None:
            self.answer_slot.close()

    def _open_slot(self) -> Answer:
        """Return where the answer is put. Raises `UsageError` if this confirmation cannot be answered."""
        if self.answer_slot is None:
            why = "it is malformed" if self.malformed else "its source is passive and cannot take an answer"
            raise UsageError(f"confirmation {self.id!r} cannot be answered: {why}")
        return self.answer_slot

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form: id, status, and under `subject` the static form of the message; other fields where they
        are set."""
        out: dict[str, object] = {"id": self.id, "subject": self.subject.to_dict(), "status": self.status}
        for key in ("edited", "reason", "malformed", "expires_at"):
            value = getattr(self, key)
            if value is not None and value is not False:  # code that was edited to nothing is "", and says so
                out[key] = value
        if self.editable and self.status == "pending" and self.answer_slot is None:
            out["editable"] = (
                True  # by those who read it elsewhere; what a stream itself takes is not a part of its event
            )
        return out

    def __repr__(self) -> str:
        return f"<Confirmation {self.id} {self.status} {self.subject!r}>"
