"""The record of a run, as every relay has it, and what reaches the run's producer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from .cursors import Cursor

__all__ = [
    "FINAL",
    "Answered",
    "Cancelled",
    "Control",
    "Ending",
    "Fenced",
    "RunRecord",
    "Status",
    "Unattended",
    "ending_of",
    "lists_of",
]

Ending = Literal["requires_action", "completed", "incomplete", "cancelled", "failed", "expired", "lost"]
"""How a run ended: as its last event says, in the words of `sk.Run.status`; or `lost`, left by a producer that died at work."""

Status = Literal["in_progress", "paused"] | Ending
"""`in_progress`: a producer has the run. `paused`: none has, and questions are open. The others are final."""

FINAL: Sequence[Ending] = get_args(Ending)
_FINAL: Mapping[str, Ending] = {word: word for word in FINAL}


def ending_of(status: str) -> Ending:
    """Return how a run ended, by the status of its stream; one that says nothing of it is taken for `completed`."""
    return _FINAL.get(status, "completed")


class RunRecord(msgspec.Struct, kw_only=True):
    """The record of a run: all that a relay stores of it besides its log and its snapshot.

    Attributes:
        id: the run's.
        status: the present one; `paused` or `lost` after its producer has died.
        epoch: how many producers it has had.
        cursor: of the newest event; None before the first.
        created_at: in Unix seconds.
        ended_at: in Unix seconds; None while it has not ended.
        info: of its producer, when it opened the run.
        error: how it failed; None if it did not.
        cancel: the reason of a cancellation, perhaps ""; None if nobody has cancelled it.
        questions: by their ids: what the producer said of each, with `id`, `status` (`pending`, `approved`, `declined`,
            `answered` or `closed`), `asked_at`, the fields of its answer and `answered_at`.
        readers: how many readings are open.
    """

    id: str
    status: Status
    epoch: int
    cursor: Cursor | None
    created_at: float
    ended_at: float | None
    info: dict[str, Any]
    error: dict[str, Any] | None
    cancel: str | None
    questions: dict[str, dict[str, Any]]
    readers: int

    @property
    def has_ended(self) -> bool:
        """Whether no producer goes on with it. (A lost run's end is written once somebody reads it.)"""
        return self.ended_at is not None or self.status in FINAL


def lists_of(info: Mapping[str, Any]) -> Sequence[tuple[str | None, str | None]]:
    """Return the lists that a run is in, by conversation and owner: that of all runs, of those of its conversation, of its
    owner, and of both."""
    conversation, owner = info.get("conversation"), info.get("owner")
    conversations = [None, conversation] if isinstance(conversation, str) else [None]
    owners = [None, owner] if isinstance(owner, str) else [None]
    return [(one, other) for one in conversations for other in owners]


# -- what reaches a producer: one of these is passed to its `control`, from any thread


class Answered(NamedTuple):
    """A question was answered: `{"approved": …, "edited" or "reason"}`, or `{"output": …}`, or `{"error": …}`."""

    question: str
    answer: Mapping[str, Any]


class Unattended(NamedTuple):
    """Every reader that is there goes on without an answer to this question."""

    question: str


class Cancelled(NamedTuple):
    """The run is to stop; `reason` is what `cancel` was called with."""

    reason: str


class Fenced(NamedTuple):
    """The run no longer belongs to this producer; `reason` is that of `ProducerFenced`."""

    reason: str


Control: TypeAlias = Answered | Unattended | Cancelled | Fenced
