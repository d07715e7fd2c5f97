"""What a relay has of a run: the entries of its log with their cursors, its record, and the messages to its producer.

A cursor says which event of which run: `2-91.9c0a3f21` is event 91, which the run's second producer wrote. The first number
counts the producers that the run has had, its epochs; the second the run's events, from 1 on. What stands after the dot names
the run, so that a cursor of another one is refused. To clients they are opaque.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args
from zlib import crc32

import msgspec

from ..errors import ProducerFenced, UsageError

__all__ = [
    "EMPTY",
    "FINAL",
    "Answered",
    "Cancelled",
    "Control",
    "Cursor",
    "Ending",
    "Entry",
    "Fenced",
    "LogPosition",
    "RunRecord",
    "Status",
    "Unattended",
    "cursor_of",
    "ending_of",
    "fenced_error",
    "lists_of",
    "position_of",
    "run_name",
]

Cursor: TypeAlias = str
"""`<epoch>-<number>.<crc32 of the run's id>`; opaque to clients."""

_match = re.compile(r"([1-9][0-9]{0,8})-(0|[1-9][0-9]{0,17})(\.[0-9a-f]{8})").fullmatch


class Entry(NamedTuple):
    """One event of a log: a line of JSON, and where to read on after it. A snapshot replaces all entries before it; its
    line is `{"type": "snapshot", "dropped": …, "events": […]}`."""

    cursor: Cursor
    data: bytes
    snapshot: bool = False


EMPTY = b'{"type":"snapshot","dropped":0,"events":[]}'
"""The line of a snapshot before the first event."""


class LogPosition(NamedTuple):
    """The position in a log that a cursor names: the epoch, and the event's number. Their order is that of the
    events."""

    epoch: int
    number: int


def run_name(run_id: str) -> str:
    """Return what names a run in its cursors."""
    return f".{crc32(run_id.encode('utf-8', 'surrogatepass')):08x}"


def cursor_of(epoch: int, number: int, name: str) -> str:
    """Return the cursor of an event in the run with this name."""
    return f"{epoch}-{number}{name}"


def position_of(cursor: object, run_id: str) -> LogPosition:
    """Return the place of a cursor in this run.

    Raises:
        UsageError: it is not a cursor, or one of another run.
    """
    match = _match(cursor) if isinstance(cursor, str) else None
    name = run_name(run_id)
    if match is None:
        raise UsageError(f"run {run_id!r}: invalid cursor {cursor!r}; expected one such as {cursor_of(1, 17, name)!r}")
    if match[3] != name:
        raise UsageError(f"run {run_id!r}: cursor {cursor!r} belongs to another run; those of this one end in {name!r}")
    return LogPosition(int(match[1]), int(match[2]))


# -- the record

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


_WHY = {
    "gone": "it was deleted, or has expired",
    "epoch": "another producer has taken it over",
    "closed": "it is closed: nothing more can be written",
    "unreachable": "Redis could not be reached",
}


def fenced_error(run_id: str, reason: str) -> ProducerFenced:
    """Return the error of a producer that cannot write its run any more; `reason` is that of `Fenced`."""
    return ProducerFenced(f"run {run_id!r} cannot be written: {_WHY[reason]}", reason)


Control: TypeAlias = Answered | Unattended | Cancelled | Fenced
