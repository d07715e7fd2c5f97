"""The registry of a run's questions: their subjects, who may still answer, and the first answer, which counts; and that answer in its two forms:
as the registry has it, and as the value of an `Answer`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from ..answers import Confirmation
from ..arguments import check_kind
from ..errors import UsageError
from ..messages import ToolCallMessage, output_text

if TYPE_CHECKING:
    from .run_record import Status

__all__ = [
    "Questions",
    "RegisteredQuestion",
    "answer_of",
    "check_answer",
    "outcome_of",
    "recorded_answer",
    "status_without_producer",
    "value_of",
]

_MOST = 1000  # questions in the registry; beyond that the oldest settled ones go


def outcome_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a question's record says once it has this answer.

    Raises:
        UsageError: it is not an answer.
    """
    if isinstance(cast("object", answer), Mapping):
        if isinstance(approved := answer.get("approved"), bool):
            status, more = ("approved", "edited") if approved else ("declined", "reason")
            return {"status": status, **{key: answer[key] for key in (more,) if answer.get(key) is not None}}
        for key in ("output", "error"):
            if key in answer:
                return {"status": "answered", key: answer[key]}
    raise UsageError(f"an answer has `approved`, true or false, or `output`, or `error`; this one is {answer!r}")


def check_answer(id: str, question: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
    """Refuse what is not an answer to this question. A `kind` other than emitters' two takes any.

    Raises:
        UsageError: it is not an answer, or one to a question of the other kind.
    """
    status, kind = outcome_of(answer)["status"], question.get("kind")
    if status == "answered":
        if kind == "confirmation":
            raise UsageError(f"question {id!r} is a confirmation: its answer has `approved`, not {answer!r}")
        output_text(answer["output"] if "output" in answer else answer["error"])
    elif kind == "tool_call":
        raise UsageError(f"question {id!r} is a tool call: its answer has `output` or `error`, not {answer!r}")
    for name in ("edited", "reason"):
        check_kind(name, answer.get(name), str)


def answer_of(waiting: Confirmation | ToolCallMessage, value: Any) -> dict[str, Any] | None:
    """Return the value of an `Answer` as the registry has it; None if nobody answered."""
    if isinstance(waiting, ToolCallMessage):
        return {"output": value}
    outcome, more = value
    if outcome == "unanswered":
        return None
    out: dict[str, Any] = {"approved": outcome == "approved"}
    if more is not None:
        out["edited" if out["approved"] else "reason"] = more
    return out


def value_of(answer: Mapping[str, Any] | None) -> Any:
    """Return the value of an `Answer` for what the registry has."""
    if answer is None:
        return "unanswered", None
    if "approved" in answer:
        approved = answer["approved"] is True
        return ("approved", answer.get("edited")) if approved else ("declined", answer.get("reason"))
    return output_text(answer["output"] if "output" in answer else {"error": answer.get("error")})


def recorded_answer(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer in the record of a question that has one."""
    fields = {key: record[key] for key in ("edited", "reason", "output", "error") if key in record}
    return fields if record["status"] == "answered" else {"approved": record["status"] == "approved", **fields}


class _Asked(Protocol):
    """A question, as either relay has it."""

    @property
    def record(self) -> Mapping[str, Any]: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def answer(self) -> Mapping[str, Any] | None: ...


def status_without_producer(questions: Iterable[_Asked], *, busy: bool) -> Status:
    """Return the status of a run after its producer died without leaving it.

    It is `paused` where the producer only waited, and another one can go on from its questions: they are open, or were
    answered and the producer did not begin to act on the answers. Otherwise the run is `lost`.

    Args:
        questions: all questions of the run.
        busy: as `LogWriter.busy`.
    """
    open_records = [question.record for question in questions if question.is_open or question.answer is not None]
    return (
        "paused"
        if open_records and not busy and all(record.get("resumable", True) for record in open_records)
        else "lost"
    )


class RegisteredQuestion:
    """One question.

    Attributes:
        record: as `RunRecord.questions` has it.
        epoch: of its producer.
        answer: the one that counts; None while there is none.
        skipped: the readings that went on without an answer.
        registered_at: when it was entered, on the monotonic clock.
        left: when a reader left last that had not gone on, on the monotonic clock; 0 if none has.
    """

    def __init__(self, id: str, question: Mapping[str, Any], epoch: int) -> None:
        self.record: dict[str, Any] = {**question, "id": id, "status": "pending", "asked_at": time.time()}
        self.epoch = epoch
        self.answer: Mapping[str, Any] | None = None
        self.skipped: set[int] = set()
        self.registered_at = time.monotonic()
        self.left = 0.0

    @property
    def is_open(self) -> bool:
        """Whether an answer would count. A question closes here if its time is over."""
        if self.record["status"] != "pending":
            return False
        if time.time() < self.record.get("expires_at", float("inf")):
            return True
        self.record["status"] = "closed"
        return False

    def settle(self, answer: Mapping[str, Any] | None) -> bool:
        """Take an answer, or with None close it. Returns whether this one counts, or is equal to the one that does."""
        if not self.is_open:
            return answer is not None and self.answer is not None and outcome_of(answer) == outcome_of(self.answer)
        self.record.update({"status": "closed"} if answer is None else outcome_of(answer))
        self.record["answered_at"] = time.time()
        self.answer = None if answer is None else dict(answer)
        return True

    def is_unattended(self, readings: Iterable[int]) -> bool:
        """Whether none of the readings that are open may still lead to an answer."""
        return self.skipped.issuperset(readings)


class Questions(dict[str, RegisteredQuestion]):
    """A run's questions. Not thread-safe: its owner locks. Of a run that never ends, the oldest outcomes are forgotten."""

    def ask(self, id: str, question: Mapping[str, Any], epoch: int) -> Mapping[str, Any] | None:
        """Enter a question. If it is from another epoch and has an answer, that answer stays, and is returned."""
        before = self.get(id)
        if before is not None and before.epoch != epoch and (before.is_open or before.answer is not None):
            before.epoch = epoch
            return before.answer
        self.pop(id, None)
        self[id] = RegisteredQuestion(id, question, epoch)
        if len(self) > _MOST:
            settled = [id for id, one in self.items() if not one.is_open]
            for old in settled[: len(self) - _MOST + _MOST // 8]:
                del self[old]
        return None

    def close(self) -> None:
        """The run has ended: nothing is answered any more."""
        for question in self.values():
            question.settle(None)
