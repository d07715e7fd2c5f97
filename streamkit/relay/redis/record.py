"""Reads what Redis has of a run: its record, and its questions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from ..cursors import Place
from ..interface import FINAL, Status
from ..registry import outcome_of

__all__ = ["STATE_FIELDS", "Question", "State", "encode", "question_value"]

STATE_FIELDS = ("status", "epoch", "wrote", "last", "beat", "cancel", "busy", "released")
_STATUSES: Mapping[bytes, Status] = {status.encode(): status for status in ("running", "paused", *FINAL)}

_decode = msgspec.json.Decoder().decode


def encode(value: Any) -> bytes:
    """JSON on one line. What JSON does not have is written as text."""
    return msgspec.json.encode(value, enc_hook=str)


class State:
    """A run's state, from the fields of `STATE_FIELDS`.

    Attributes:
        status: as it was stored.
        tip: the place of its newest event; 0-0 before the first.
        is_released: whether its producer left without ending it.
    """

    def __init__(self, fields: Any) -> None:
        status, epoch, wrote, last, self.beat, cancel, busy, released = fields
        self.status: Status = _STATUSES[status]
        self.epoch = int(epoch)
        self.tip = Place(int(wrote), int(last))
        self.cancel: str | None = None if cancel is None else text(cancel)
        self.busy = busy == b"1"
        self.is_released = released == epoch


def text(value: bytes) -> str:
    """A text from Redis."""
    return value.decode("utf-8", "surrogatepass")


def effective_status(state: State, questions: Mapping[str, Question]) -> Status:
    """The status of a run that has no lease: of one whose producer died, `paused` or `lost`."""
    if state.status != "running":
        return state.status
    pending = [question.record for question in questions.values() if question.is_open]
    resumable = bool(pending) and all(record.get("resumable", True) for record in pending)
    return "paused" if resumable and not state.busy else "lost"


class Question:
    """A question, from its lines.

    Attributes:
        record: as `RunRecord.questions` has it.
        answer: the one that counts; None while there is none.
        epoch: of the producer that asked it.
    """

    def __init__(self, value: bytes) -> None:
        status, number, _, question, answer_line = value.split(b"\n", 4)
        self.epoch = int(number.partition(b".")[0])
        self.record: dict[str, Any] = _decode(question)
        self.record["status"] = text(status)
        self.answer: dict[str, Any] | None = None
        if answer_line:
            answer = _decode(answer_line)
            self.answer = answer.get("answer")
            self.record["answered_at"] = answer["at"]
            if self.answer is not None:
                self.record.update(outcome_of(self.answer))
        if not self.is_open and status == b"pending":
            self.record["status"] = "closed"

    @property
    def is_open(self) -> bool:
        """Whether an answer would count."""
        expires: float = self.record.get("expires_at", float("inf"))
        return self.record["status"] == "pending" and time.time() < expires


def questions_of(values: Mapping[bytes, bytes]) -> dict[str, Question]:
    """The questions of a run, in the order in which they were asked."""
    found = [(text(id), Question(value)) for id, value in values.items()]
    found.sort(key=lambda one: one[1].record["asked_at"])
    return dict(found)


def question_value(id: str, question: Mapping[str, Any], epoch: int, number: int) -> bytes:
    """The lines of a question that a producer asks."""
    record = {**question, "id": id, "asked_at": time.time()}
    expires = question.get("expires_at")
    return b"pending\n%d.%d\n%b\n%b\n" % (epoch, number, b"" if expires is None else b"%.6f" % expires, encode(record))
