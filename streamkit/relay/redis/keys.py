"""The keys under which Redis has a run. Their braces make a Redis Cluster store all of them in one slot, as scripts need it.

    sk:{run}:run         hash        its record
    sk:{run}:log         stream      its events: an entry is a batch, and its id the batch's epoch and last number
    sk:{run}:lease       string      the producer that has it; expires if that one renews it no more
    sk:{run}:questions   hash        its questions, by their ids
    sk:{run}:snapshot    hash        the snapshot in place of the events that were dropped
    sk:{run}:readers     sorted set  its readers, by when their last heartbeat expires
    sk:{run}:skipped     set         which readers go on without which question
    sk:runs              sorted set  the newest runs, by when they were opened; best effort, in a slot of its own

and the channels `sk:{run}:log`, with each batch as it is stored, and `sk:{run}:news`, for the producer.
"""

from __future__ import annotations

from ...errors import UsageError

__all__ = ["Keys", "index_key"]

_ESCAPED = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})


class Keys:
    """The keys of one run. `all` has those that are removed with it."""

    __slots__ = ("all", "lease", "log", "news", "questions", "readers", "run", "skipped", "snapshot")

    def __init__(self, prefix: str, run_id: str) -> None:
        start = f"{prefix}:{{{run_id.translate(_ESCAPED) or '%'}}}:".encode("utf-8", "surrogatepass")
        self.run = start + b"run"
        self.log = start + b"log"
        self.lease = start + b"lease"
        self.questions = start + b"questions"
        self.snapshot = start + b"snapshot"
        self.readers = start + b"readers"
        self.skipped = start + b"skipped"
        self.news = start + b"news"
        self.all = (self.run, self.log, self.lease, self.questions, self.snapshot, self.readers, self.skipped)


def index_key(prefix: str) -> str:
    """The key of the newest runs.

    Raises:
        UsageError: the prefix has a brace, which would change the keys' slots.
    """
    if not prefix or "{" in prefix or "}" in prefix:
        raise UsageError(f"a prefix of keys is a word without braces, not {prefix!r}")
    return f"{prefix}:runs"
