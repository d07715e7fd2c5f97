"""The keys under which Redis has a run. Their braces make a Redis Cluster store all of them in one slot, as scripts need it.

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

from typing import NamedTuple

from ...redis_link import tag_of, text_to_bytes

__all__ = ["Keys", "ListKeys"]


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
