"""The data of a run in Redis: its keys, its record, its questions, and the lists that it is in.

Words that a newer version of this package has written, such as a status, are left as they are. The braces in the keys make a Redis
Cluster store all keys of a run in one slot, as scripts need it.

    sk:{run}:run         hash        its record
    sk:{run}:log         stream      its events: an entry is a batch, and its id the batch's epoch and last number
    sk:{run}:lease       string      the producer that has it; expires if that one renews it no more
    sk:{run}:questions   hash        its questions, by their ids
    sk:{run}:snapshot    hash        the snapshot in place of the events that were dropped
    sk:{run}:readers     sorted set  its readers, by when their last heartbeat expires
    sk:{run}:skipped     set         which readers go on without which question

and the channels `sk:{run}:log`, with each batch as it is stored, and `sk:{run}:news`, for the producer.

A list of runs is in a slot of its own: that of all runs; of those of a conversation, `sk:{conversation=…}:runs`; of an owner,
`sk:{owner=…}:runs`; and of both, `sk:{conversation=…&owner=…}:runs`.

    sk:runs              sorted set  the runs, by when they were opened
    {sk:runs}:until      sorted set  the same, by when their entries expire (Unix milliseconds)
    {sk:runs}:open       sorted set  those that have not ended, by when they were opened
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ...errors import SourceError, StoredData, UsageError
from ...messages.json_text import bounded, decode_json, is_too_deep
from ...protocols.values import is_object
from ...redis_link import Link, tag_of, text_from, text_to_bytes
from ..registry import outcome_of, status_without_producer
from ..run_record import FINAL, LogPosition, RunRecord, Status, cursor_of, lists_of, run_name
from .scripts import ANSWER, LIST, LISTED

__all__ = [
    "STATE_FIELDS",
    "Keys",
    "Lifetimes",
    "ListKeys",
    "RunIndex",
    "State",
    "StoredQuestion",
    "decode",
    "encode",
    "info_of",
    "listing",
    "question_value",
    "questions_of",
    "record_of",
    "settle_command",
]

_log = logging.getLogger("streamkit.relay")

STATE_FIELDS = ("status", "epoch", "wrote", "last", "beat", "cancel", "busy", "released", "ended")

_FORMER: Mapping[str, Status] = {
    "running": "in_progress",
    "done": "completed",
    "error": "failed",
}  # what earlier versions wrote


def encode(value: Any) -> bytes:
    """Return JSON on one line. What JSON does not have is written as text; what is nested too deep is null."""
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except (
        ValueError,
        TypeError,
        OverflowError,
        RecursionError,
    ):  # half of a surrogate pair, a huge number, deep nesting
        return json.dumps(bounded(value), default=str, separators=(",", ":")).encode()


def decode(data: bytes) -> Any:
    """Return the value of what `encode` wrote.

    Raises:
        ValueError: it is not JSON, or nested too deep.
    """
    try:
        return decode_json(data)
    except ValueError:
        if is_too_deep(data):
            raise
        return json.loads(data.decode("utf-8", "surrogatepass"))


def info_of(run_id: str, data: bytes) -> dict[str, Any]:
    """Return the info of a run.

    Raises:
        StoredDataError: it cannot be read.
    """
    with StoredData(f"run {run_id!r}: its info in Redis"):
        return _object(data)


def _object(data: bytes) -> dict[str, Any]:
    value = decode(data)
    if not is_object(value):
        raise TypeError(f"expected a JSON object, got {value!r}")
    return {**value}


class State:
    """A run's state, from the fields of `STATE_FIELDS`.

    Attributes:
        status: as it was stored.
        has_ended: whether the run has ended, whatever word its status is.
        tip: the position of its newest event; 0-0 before the first.
        is_released: whether its producer left without ending it.
    """

    def __init__(self, fields: Sequence[Any]) -> None:
        status, epoch, wrote, last, self.beat, cancel, busy, released, ended = fields
        word = text_from(status)
        self.status: Status = _FORMER.get(word, word)  # type: ignore[arg-type]  # a newer version may have others
        self.has_ended = ended is not None or self.status in FINAL
        self.epoch = int(epoch)
        self.tip = LogPosition(int(wrote), int(last))
        self.cancel: str | None = None if cancel is None else text_from(cancel)
        self.busy = busy == b"1"
        self.is_released = released == epoch


def effective_status(state: State, questions: Mapping[str, StoredQuestion]) -> Status:
    """Return the status of a run without a lease; where its producer died, `paused` or `lost`."""
    return (
        state.status if state.status != "in_progress" else status_without_producer(questions.values(), busy=state.busy)
    )


def record_of(
    run_id: str, reply: Sequence[Any], local: tuple[str, Collection[str]], *, trusts_lease: bool
) -> RunRecord | None:
    """Return the record of a run, from the reply to RECORD; None if there is no such run.

    Args:
        local: what the names of this relay's readers begin with, and those of them that are open.
        trusts_lease: whether a run that nobody has the lease of has no producer.

    Raises:
        StoredDataError: it cannot be read.
    """
    fields, leased, values, members = reply
    if not fields:
        return None
    with StoredData(f"run {run_id!r}: its data in Redis"):
        run = _pairs(fields)
        state, questions = State([run.get(field.encode()) for field in STATE_FIELDS]), questions_of(_pairs(values))
        ended, error = run.get(b"ended"), run.get(b"error")
        start, own = local
        others = {name for name in map(text_from, members) if not name.startswith(start)}
        return RunRecord(
            id=run_id,
            status=state.status if leased or not trusts_lease else effective_status(state, questions),
            epoch=state.epoch,
            cursor=cursor_of(*state.tip, run_name(run_id)) if state.tip.number else None,
            created_at=float(run[b"created"]),
            ended_at=None if ended is None else float(ended),
            info={**_object(run[b"info"]), **_object(run.get(b"result", b"{}"))},
            error=_object(error) if error else None,
            cancel=state.cancel,
            questions={id: question.record for id, question in questions.items()},
            readers=len(others) + len(own),
        )


def _pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


class StoredQuestion:
    """A question as Redis stores it, in lines.

    Attributes:
        record: as `RunRecord.questions` has it.
        answer: the one that counts; None while there is none.
        epoch: of the producer that asked it.
    """

    def __init__(self, value: bytes) -> None:
        status, number, _, question, answer_line = value.split(b"\n", 4)
        self.epoch = int(number.partition(b".")[0])
        self.record = _object(question)
        self.record["status"] = text_from(status)
        self.answer: dict[str, Any] | None = None
        if answer_line:
            self._settle(_object(answer_line))
        if not self.is_open and status == b"pending":
            self.record["status"] = "closed"

    def _settle(self, settled: Mapping[str, Any]) -> None:
        self.record["answered_at"] = settled["at"]
        self.answer = settled.get("answer")
        if self.answer is not None:
            try:
                self.record.update(outcome_of(self.answer))
            except UsageError:
                return  # an answer of another kind, by a newer version: the status says what became of the question

    @property
    def is_open(self) -> bool:
        """Whether an answer would count."""
        expires: float = self.record.get("expires_at", float("inf"))
        return self.record["status"] == "pending" and time.time() < expires


def questions_of(values: Mapping[bytes, bytes]) -> dict[str, StoredQuestion]:
    """Return the questions of a run, in the order in which they were asked."""
    found = [(text_from(id), StoredQuestion(value)) for id, value in values.items()]
    found.sort(key=lambda one: one[1].record["asked_at"])
    return dict(found)


def settle_command(keys: Keys, question_id: str, answer: Mapping[str, Any] | None) -> Sequence[Any]:
    """Return the command that answers a question, or closes it.

    Raises:
        UsageError: it is not an answer.
    """
    status = "closed" if answer is None else outcome_of(answer)["status"]
    value = encode({"at": time.time()} if answer is None else {"at": time.time(), "answer": answer})
    return ANSWER(keys.run, keys.questions, keys.log, keys.news, question_id, status, value)


def question_value(id: str, question: Mapping[str, Any], epoch: int, number: int) -> bytes:
    """Return the lines of a question that a producer asks."""
    record = {**question, "id": id, "asked_at": time.time()}
    expires = question.get("expires_at")
    return b"pending\n%d.%d\n%b\n%b\n" % (epoch, number, b"" if expires is None else b"%.6f" % expires, encode(record))


class Lifetimes:
    """The milliseconds for which a lease holds, and for which a run is kept after the last heartbeat, by its status."""

    def __init__(self, lease: float, running: float, paused: float, ended: float) -> None:
        self.lease = max(1, int(lease * 1000))
        self.running = max(1, int(running * 1000))
        self.paused = max(1, int(paused * 1000))
        self.ended = max(1, int(ended * 1000))

    def of(self, status: Status) -> int:
        """Return the milliseconds for which a run with this status is kept."""
        return {"in_progress": self.running, "paused": self.paused}.get(status, self.ended)

    def of_entry(self, *, is_open: bool) -> int:
        """Return the milliseconds for which a run stays in lists after its entry was renewed. An open run stays at least as long
        as it would if it was paused just before the next renewal."""
        return self.running + self.paused if is_open else self.ended

    @property
    def renewal(self) -> float:
        """The seconds between two renewals of the entries of a run."""
        return self.running / 2000


class Keys:
    """The keys of one run. `all` has those that are removed with it."""

    __slots__ = ("all", "lease", "log", "news", "questions", "readers", "run", "skipped", "snapshot")

    def __init__(self, prefix: str, run_id: str) -> None:
        start = text_to_bytes(f"{prefix}:{tag_of(run_id)}:")
        self.run = start + b"run"
        self.log = start + b"log"
        self.lease = start + b"lease"
        self.questions = start + b"questions"
        self.snapshot = start + b"snapshot"
        self.readers = start + b"readers"
        self.skipped = start + b"skipped"
        self.news = start + b"news"
        self.all = (self.run, self.log, self.lease, self.questions, self.snapshot, self.readers, self.skipped)


class ListKeys(NamedTuple):
    """The keys of one list of runs."""

    runs: bytes
    until: bytes
    open: bytes

    @classmethod
    def of(cls, prefix: str, conversation: str | None, owner: str | None) -> ListKeys:
        """Return those of the list of a conversation, of an owner, of both, or with neither of all runs."""
        names = (("conversation", conversation), ("owner", owner))
        parts = [f"{name}={_escaped(value)}" for name, value in names if value is not None]
        runs = text_to_bytes(f"{prefix}:{tag_of('&'.join(parts))}:runs" if parts else f"{prefix}:runs")
        start = runs if parts else b"{%b}" % runs  # so that all three are in one slot
        return cls(runs, start + b":until", start + b":open")


def _escaped(value: str) -> str:
    return value.replace("%", "%%").replace("&", "%&")


class RunIndex:
    """The lists of runs of one relay, the newest first: of all, of a conversation, of an owner, and of both.

    An entry is written when a run is opened or taken over, renewed while it has a producer, and removed with the run: with one that
    has ended after `ttl_ended`, and with an open one never before its record expires. Where a process died between two of these
    steps, an entry may be left over; a listing that finds no such run, or one that has ended, removes it.

    Args:
        link: its connections.
        prefix: what its keys begin with.
    """

    def __init__(self, link: Link, prefix: str) -> None:
        self._link = link
        self._prefix = prefix

    def of(self, info: Mapping[str, Any]) -> Sequence[ListKeys]:
        """Return the keys of the lists that have a run, by its info."""
        return [ListKeys.of(self._prefix, conversation, owner) for conversation, owner in lists_of(info)]

    def enter(self, run_id: str, commands: Sequence[Sequence[Any]]) -> None:
        """Enter the run of a new producer, by its `listing` commands. A run that cannot be entered is written and read
        nevertheless."""
        for reply in self._link.ask_each(*commands):
            if isinstance(reply, SourceError):
                _log.warning("run %r is missing in a list: %s", run_id, reply)

    def remove(self, run_id: str, info: Mapping[str, Any]) -> None:
        """Remove a run that was deleted."""
        self._link.ask_each(*(_removal(keys, run_id) for keys in self.of(info)))

    def page(
        self, conversation: str | None, owner: str | None, *, open_only: bool, limit: int, before: bytes
    ) -> Sequence[bytes]:
        """Return the ids of up to `limit` runs, 1 or more, as Redis has them."""
        keys = ListKeys.of(self._prefix, conversation, owner)
        (members,) = self._link.ask(LIST(*keys, int(open_only), limit, before))
        return members  # type: ignore[no-any-return]  # a reply

    def count_open(self, owner: str) -> int:
        """Return how many entries the list of an owner's open runs has."""
        (found,) = self._link.ask(("ZCARD", ListKeys.of(self._prefix, None, owner).open))
        return int(found)

    def drop(
        self, conversation: str | None, owner: str | None, gone: Collection[bytes], ended: Collection[bytes]
    ) -> None:
        """Remove entries of runs that are gone, and those of runs that have ended from the list of open ones."""
        keys = ListKeys.of(self._prefix, conversation, owner)
        commands: list[Sequence[Any]] = [_removal(keys, member) for member in gone]
        if ended:
            commands.append(("ZREM", keys.open, *ended))
        if commands:
            self._link.ask_each(*commands)


def listing(keys: ListKeys, run_id: str, created: float, lifetimes: Lifetimes, *, is_open: bool) -> Sequence[Any]:
    """Return the command that enters a run in one list of runs, or renews its entry."""
    return LISTED(*keys, run_id, created, lifetimes.of_entry(is_open=is_open), int(is_open))


def _removal(keys: ListKeys, member: str | bytes) -> Sequence[Any]:
    return LISTED(*keys, member, 0, 0, 0)
