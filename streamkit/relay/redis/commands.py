"""The commands with which a producer changes its run in Redis, and the lists of runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

from ...errors import SourceError
from ...redis_link import Link
from ..registry import outcome_of
from ..run_record import LogPosition, Status, lists_of
from .record import Keys, ListKeys, encode
from .scripts import ANSWER, APPEND, END, LIST, LISTED, SNAPSHOT

__all__ = [
    "BATCH_BYTES",
    "BATCH_EVENTS",
    "Append",
    "Finish",
    "Lifetimes",
    "Listing",
    "ProducerCommands",
    "RunIndex",
    "Settle",
    "StoreSnapshot",
    "Write",
    "settle_command",
]

_log = logging.getLogger("streamkit.relay")

BATCH_EVENTS, BATCH_BYTES = 128, 1 << 16  # of one batch at most


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


class ProducerCommands:
    """The producer of a run, as scripts know it.

    Attributes:
        owner: a random text of its own.
        epoch: its number.
        beat: how many heartbeats it sent by itself.
    """

    def __init__(self, run_id: str, keys: Keys, owner: str, lifetimes: Lifetimes) -> None:
        self.run_id = run_id
        self.keys = keys
        self.owner = owner
        self.lifetimes = lifetimes
        self.epoch = self.beat = 0


class Append:
    """Stores events together, with a question that they show."""

    __slots__ = ("before", "busy", "is_sealed", "last", "lines", "question", "question_id", "size", "stored_at")

    def __init__(self, before: int, busy: bool) -> None:
        self.before = self.last = before
        self.lines: list[bytes] = []
        self.size = 0
        self.busy = busy
        self.question_id: str = ""
        self.question = b""
        self.stored_at = 0.0
        self.is_sealed = False  # it may have been sent, so that nothing is added to it

    def command(self, producer: ProducerCommands) -> Sequence[Any]:
        """Return the command."""
        keys, lifetimes = producer.keys, producer.lifetimes
        return APPEND(
            *(keys.run, keys.log, keys.lease, keys.questions, keys.snapshot),
            *(producer.epoch, producer.owner, self.before, self.last, b"\n".join(self.lines)),
            *(lifetimes.lease, lifetimes.running, int(self.busy), producer.beat),
            *(self.question_id, self.question),
        )


class StoreSnapshot:
    """Stores a snapshot, and drops the events up to it."""

    __slots__ = ("data", "position")
    size = 0

    def __init__(self, position: LogPosition, data: bytes) -> None:
        self.position = position
        self.data = data

    def command(self, producer: ProducerCommands) -> Sequence[Any]:
        """Return the command."""
        keys, (epoch, number) = producer.keys, self.position
        positions = (b"%d-%d" % (epoch, number), b"%d-%d" % (epoch, number + 1))
        arguments = (producer.epoch, producer.owner, *positions, self.data, producer.lifetimes.running)
        return SNAPSHOT(keys.run, keys.log, keys.snapshot, *arguments)


class Finish:
    """Stores the status with which the producer leaves; `in_progress` where it leaves the run unfinished."""

    __slots__ = ("error", "info", "last", "status")
    size = 0

    def __init__(self, last: int, status: Status, error: bytes, info: bytes = b"") -> None:
        self.last = last
        self.status: Status = status
        self.error = error
        self.info = info

    def command(self, producer: ProducerCommands) -> Sequence[Any]:
        """Return the command."""
        keys = producer.keys
        lifetime = producer.lifetimes.of(self.status)
        arguments = (producer.epoch, producer.owner, self.last, self.status, self.error, lifetime, self.info)
        return END(keys.run, keys.log, keys.lease, keys.questions, keys.snapshot, *arguments)


class Settle:
    """Stores the producer's own answer to a question, or closes it. One that was answered before stays as it is."""

    __slots__ = ("_command",)
    size = 0

    def __init__(self, keys: Keys, question_id: str, answer: Mapping[str, Any] | None) -> None:
        self._command = settle_command(keys, question_id, answer)

    def command(self, producer: ProducerCommands) -> Sequence[Any]:
        """Return the command."""
        return self._command


def settle_command(keys: Keys, question_id: str, answer: Mapping[str, Any] | None) -> Sequence[Any]:
    """Return the command that answers a question, or closes it.

    Raises:
        UsageError: it is not an answer.
    """
    status = "closed" if answer is None else outcome_of(answer)["status"]
    value = encode({"at": time.time()} if answer is None else {"at": time.time(), "answer": answer})
    return ANSWER(keys.run, keys.questions, keys.log, keys.news, question_id, status, value)


class Listing:
    """Enters a run in one list of runs, or renews its entry."""

    __slots__ = ("_created", "_is_open", "_keys")
    size = 0

    def __init__(self, keys: ListKeys, created: float, *, is_open: bool) -> None:
        self._keys = keys
        self._created = created
        self._is_open = is_open

    def command(self, producer: ProducerCommands) -> Sequence[Any]:
        """Return the command."""
        lifetime = producer.lifetimes.of_entry(is_open=self._is_open)
        return LISTED(*self._keys, producer.run_id, self._created, lifetime, int(self._is_open))


Write: TypeAlias = Append | StoreSnapshot | Finish | Settle | Listing


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

    def enter(self, producer: ProducerCommands, listings: Sequence[Listing]) -> None:
        """Enter the run of a new producer. A run that cannot be entered is written and read nevertheless."""
        for reply in self._link.ask_each(*(one.command(producer) for one in listings)):
            if isinstance(reply, SourceError):
                _log.warning("run %r is missing in a list: %s", producer.run_id, reply)

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


def _removal(keys: ListKeys, member: str | bytes) -> Sequence[Any]:
    return LISTED(*keys, member, 0, 0, 0)
