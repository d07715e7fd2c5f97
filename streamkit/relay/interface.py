"""The interface of relays: for each run a numbered log of bytes, a small record, and a registry of questions.

One producer writes the log of a run, any number of readers read it, each at its own place. A relay knows no event: its
entries are lines of JSON that the producer encoded and readers decode. An entry's cursor says where to read on after it.

    writer = relay.open("run-1", control=received)       # one producer at a time holds the run
    writer.append([b'{"type":"run_created"}'])
    writer.ask("q", {"kind": "confirmation"})            # `received` gets the answer, from any process
    writer.end("completed")

    for entries in relay.read("run-1", after=cursor):    # each event once, in order; `async for` as well
        ...

Rules for every relay:

1. The numbers of a run's events are 1, 2, 3 … without a hole. A new producer, an epoch, continues them.
2. A reader gets each event once, in order. Where events are missing it gets a snapshot that replaces all before it.
3. A batch is stored whole or not at all, and read only once it is stored.
4. Once a newer epoch exists, or the run has ended or is gone, nothing of an older producer is stored.
5. An answer or a cancellation that returned stays as long as the run, and reaches its producer, or the next one.
6. A slow, late or gone reader changes nothing for the others, and does not delay the producer.
7. Every run ends visibly: its last event has a cursor, and after it readers end.

The methods of `Relay` and `LogWriter` are thread-safe. Those that may wait have an `a…` form for tasks on asyncio and trio.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio.lowlevel

from ..arguments import check_count, check_kind, check_seconds
from ..errors import SourceError, UsageError
from ..in_tasks import Closable, InTasks
from .reader import Reader
from .reading import Gap, Reading
from .run_record import FINAL, Control, Cursor, RunRecord, Status

__all__ = ["LogWriter", "Relay", "check_ending", "check_lines", "check_options", "check_producer"]

_NEWLINE = 10  # a number, which bytes are searched for in a quarter of the time


def check_producer(run_id: object, info: object, control: object) -> None:
    """Refuse arguments of `Relay.open` and `Relay.take_over` that are of another kind."""
    if not isinstance(run_id, str):
        raise UsageError(f"the id of a run is text, not {run_id!r}")
    check_kind("info", info, Mapping)
    if not callable(control):
        raise UsageError(f"`control` is a function, not {control!r}")


def check_options(limit: object, timeout: object, **seconds: object) -> None:
    """Refuse options of a relay that are of another kind."""
    check_count("limit", limit)
    check_seconds("timeout", timeout, or_none=True)
    for name, value in seconds.items():
        check_seconds(name, value)


def check_lines(events: Sequence[bytes]) -> None:
    """Refuse events that are not lines: each would be two entries."""
    for data in events:
        if _NEWLINE in data:
            raise UsageError(f"an event in a log is one line, not {data[:60]!r}")


def check_ending(status: Status) -> None:
    """Refuse a status with which no run ends."""
    if status not in FINAL:
        raise UsageError(f"a run does not end as {status!r}; it ends as one of {', '.join(FINAL)}")


class LogWriter(InTasks, ABC):
    """Writes a run for one producer, as long as it has the run. If it is dropped without `end` or `pause`, its
    producer counts as dead.

    Attributes:
        epoch: the producer's number.
        cursor: of the newest event; None before the first.
        bounded: whether there may be no room for more before readers have read on: `drain` waits for it.
    """

    epoch: int
    cursor: Cursor | None
    bounded: bool = False

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether the producer does anything but wait for the answers to its questions, as it has set it: False at first, and
        what the producer before it set where it took the run over. If it dies while it is busy, the run is lost; otherwise the
        run is paused, answered or not. So a producer sets it, and calls `flush`, before it acts on an answer: then either it
        acts on it, or, if it is `ProducerFenced`, another one does."""

    @busy.setter
    @abstractmethod
    def busy(self, busy: bool) -> None: ...

    @property
    @abstractmethod
    def fenced(self) -> str | None:
        """Why nothing more can be written, as `ProducerFenced.reason`; None as long as writing works."""

    @abstractmethod
    def append(self, events: Sequence[bytes]) -> list[Cursor]:
        """Number events, and write them: each a line of JSON. It never waits. Returns their cursors.

        Raises:
            ProducerFenced: the run is another producer's, has ended or is gone.
            UsageError: an event is not a line.
        """

    @abstractmethod
    def ask(self, question_id: str, question: Mapping[str, Any], events: Sequence[bytes] = ()) -> list[Cursor]:
        """Register a question, and write the events that show it, so that no reader sees it before it can be answered.

        A question of an earlier producer with this id keeps its answer, which `control` gets at once. Where
        `question["resumable"]` is False, no other producer can continue from it: a dead producer's run is lost.

        Raises:
            ProducerFenced: as `append`.
        """

    @abstractmethod
    def settle(self, question_id: str, answer: Mapping[str, Any] | None = None) -> tuple[bool, dict[str, Any]]:
        """Answer a question here, or close it without an answer. Returns as `Relay.answer`; False and an empty question
        where there is none."""

    def close_question(self, question_id: str, answer: Mapping[str, Any] | None = None) -> None:
        """As `settle`, where nobody needs the result: it never waits, and is stored in order with what is written."""
        self.settle(question_id, answer)

    def call_soon(self, call: Callable[[], object]) -> None:
        """Call something that may wait, such as `settle`: in an event loop, which that would block, from a thread."""
        call()

    @abstractmethod
    def unattended(self, question_id: str) -> float:
        """Return for how many seconds the run has had no reader that may answer; 0 before the first reader came."""

    @abstractmethod
    def snapshot(self, data: bytes) -> None:
        """Store the state at `cursor`: a line as in `Entry`. The events before an earlier snapshot may be dropped."""

    @abstractmethod
    def pause(self) -> None:
        """Leave the run to the process that takes it over: the status is `paused`, and its questions stay open."""

    @abstractmethod
    def end(
        self, status: Status, error: Mapping[str, Any] | None = None, info: Mapping[str, Any] | None = None
    ) -> bool:
        """End the run. Open questions are closed. Returns whether this call ended it; a later one changes nothing.

        Args:
            info: facts about the run that are added to `RunRecord.info`.
        """

    @abstractmethod
    def abandon(self) -> None:
        """Stop writing without ending the run, as if the process had died, but after what was written is stored."""

    @abstractmethod
    def flush(self, timeout: float = 5.0) -> None:
        """Wait until all is stored.

        Raises:
            ProducerFenced: nothing more can be stored.
            SourceError: it took longer than `timeout` seconds.
        """

    def heartbeat(self) -> None:
        """Report that the producer is alive, although it has nothing to write."""

    def drain(self) -> None:
        """Wait in this thread until the readers have made room, where a relay's policy is to make the producer wait.

        Raises:
            UsageError: there is no room, and the relay refuses to wait; or waiting would block an event loop.
        """

    async def adrain(self) -> None:
        """As `drain`, for tasks. Other tasks run meanwhile, even where there is room."""
        await anyio.lowlevel.checkpoint()

    async def apause(self) -> None:
        """As `pause`, for tasks."""
        await self.in_task(self.pause)

    async def aend(
        self, status: Status, error: Mapping[str, Any] | None = None, info: Mapping[str, Any] | None = None
    ) -> bool:
        """As `end`, for tasks."""
        return await self.in_task(self.end, status, error, info)


class Relay(Closable, ABC):
    """The runs, by their ids.

    Attributes:
        limit: how many events the log of a run holds before the oldest are replaced by a snapshot, which its producer
            makes after each half of it; None for any number.
    """

    limit: int | None = None

    # -- for producers

    @abstractmethod
    def open(
        self, run_id: str, info: Mapping[str, Any] | None = None, *, control: Callable[[Control], None]
    ) -> LogWriter:
        """Begin a run.

        Args:
            info: its `RunRecord.info`. `list` finds it by its `conversation` and its `owner`.
            control: gets the messages to its producer, in any thread. It must not wait.

        Raises:
            UsageError: there is a run with this id already.
        """

    @abstractmethod
    def take_over(self, run_id: str, *, control: Callable[[Control], None]) -> LogWriter | None:
        """Become the producer of a run that has none, in a new epoch. `control` gets the cancellation and the answers
        that there are. None where another producer has it, it has ended, or there is no such run."""

    # -- for everyone

    @abstractmethod
    def get(self, run_id: str) -> RunRecord | None:
        """Return the record of a run; None if there is no such run (any more)."""

    def question(self, run_id: str, question_id: str) -> Mapping[str, Any] | None:
        """Return one of `RunRecord.questions`; None if there is none."""
        record = self.get(run_id)
        return None if record is None else record.questions.get(question_id)

    def get_many(self, run_ids: Sequence[str]) -> Sequence[RunRecord | None]:
        """Return the records of several runs, in one exchange with what stores them; in place of one that does not exist or
        cannot be read (that is logged): None."""
        return [self.get(run_id) for run_id in run_ids]

    @abstractmethod
    def list(
        self,
        *,
        conversation: str | None = None,
        owner: str | None = None,
        open_only: bool = False,
        limit: int = 50,
        before: str | None = None,
    ) -> Sequence[RunRecord]:
        """Return the records of runs, the newest first. The cost grows with `limit`, not with the number of runs.

        Args:
            conversation: only those with this `conversation` in their `info`.
            owner: only those with this `owner` in their `info`.
            open_only: only those that have not ended.
            limit: how many at most.
            before: the id of a run: only those that were opened earlier; none if there is no such run in the list.
        """

    def count_open(self, owner: str) -> int:
        """Return how many runs of an owner have not ended. One that is gone, without anybody having listed it since, may be
        counted."""
        return len(self.list(owner=owner, open_only=True, limit=2**31))

    @abstractmethod
    def answer(self, run_id: str, question_id: str, answer: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
        """Answer a question. The first answer counts; the same once more is none the worse, and another one is not an error.

        Returns:
            Whether this answer counts, and the question with its outcome, as in `RunRecord.questions`.

        Raises:
            SourceError: there is no such run: `status_code` is 404.
            UsageError: it has no such question, or the question takes no such answer: one with `"kind": "confirmation"`
                takes `approved`, and one with `"kind": "tool_call"` takes `output` or `error`.
        """

    def pass_on(self, run_id: str, question_id: str, answer: Mapping[str, Any]) -> None:
        """As `answer`, for a reader that does not need the outcome: a run that is gone is not an error. In an event
        loop, which would be blocked while the relay waits, the answer is stored soon.

        Raises:
            SourceError: it could not be stored.
        """
        try:
            self.answer(run_id, question_id, answer)
        except SourceError as error:
            if error.status_code != 404:
                raise

    @abstractmethod
    def cancel(self, run_id: str, reason: str | None = None) -> bool:
        """Stop a run: its questions are closed, and its producer, or the next one, ends it. One without a producer is
        ended here. Returns False if it had ended, or there is no such run."""

    @abstractmethod
    def delete(self, run_id: str) -> None:
        """Remove a run. Later events of its producer are not stored, and its readers fail."""

    @abstractmethod
    def read(
        self, run_id: str, after: Cursor | None = None, *, gap: Gap = "snapshot", timeout: float | None = None
    ) -> Reading:
        """Read a run from its beginning, or after a cursor.

        Args:
            after: a cursor of this run.
            gap: what happens where the events after it are not in the log: `snapshot` gives one, `error` raises.
            timeout: seconds of silence after which the producer counts as gone; None for the relay's own limit,
                `math.inf` for none.

        Raises:
            UsageError: it is not a cursor, or one of another run.
            SourceError: there is no such run: `status_code` is 404. With `gap="error"`, the events after the cursor are
                not in the log: 410, here or where the reading comes to it.
        """

    def close(self) -> None:
        """Release memory and connections. Readers fail, and the relay is not used any more. Leaving `with` closes it, too."""

    def reader(self, run_id: str, after: Cursor | None = None, *, timeout: float | None = None) -> Reader:
        """Return a reader of a run: a source for `stream` and `astream`, and an iterable of the events in the log.
        Arguments and errors are those of `read`. In a task, with a relay that may wait, nothing is looked up here:
        a run that does not exist is reported when it is read, or by `areader`."""
        return Reader(self, run_id, after, timeout)

    # -- for tasks

    async def aopen(
        self, run_id: str, info: Mapping[str, Any] | None = None, *, control: Callable[[Control], None]
    ) -> LogWriter:
        """As `open`, for tasks."""
        return await self.in_task(self.open, run_id, info, control=control)

    async def atake_over(self, run_id: str, *, control: Callable[[Control], None]) -> LogWriter | None:
        """As `take_over`, for tasks."""
        return await self.in_task(self.take_over, run_id, control=control)

    async def aget(self, run_id: str) -> RunRecord | None:
        """As `get`, for tasks."""
        return await self.in_task(self.get, run_id)

    async def aget_many(self, run_ids: Sequence[str]) -> Sequence[RunRecord | None]:
        """As `get_many`, for tasks."""
        return await self.in_task(self.get_many, run_ids)

    async def alist(self, **options: Any) -> Sequence[RunRecord]:
        """As `list`, for tasks."""
        return await self.in_task(self.list, **options)

    async def acount_open(self, owner: str) -> int:
        """As `count_open`, for tasks."""
        return await self.in_task(self.count_open, owner)

    async def aanswer(self, run_id: str, question_id: str, answer: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
        """As `answer`, for tasks."""
        return await self.in_task(self.answer, run_id, question_id, answer)

    async def acancel(self, run_id: str, reason: str | None = None) -> bool:
        """As `cancel`, for tasks."""
        return await self.in_task(self.cancel, run_id, reason)

    async def adelete(self, run_id: str) -> None:
        """As `delete`, for tasks."""
        await self.in_task(self.delete, run_id)

    async def aread(
        self,
        run_id: str,
        after: Cursor | None = None,
        *,
        gap: Gap = "snapshot",
        timeout: float | None = None,  # noqa: ASYNC109 - of the producer's silence, not of this call
    ) -> Reading:
        """As `read`, for tasks. The reading itself is an async iterator as well."""
        return await self.in_task(self.read, run_id, after, gap=gap, timeout=timeout)

    async def areader(
        self,
        run_id: str,
        after: Cursor | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
    ) -> Reader:
        """As `reader`, for tasks."""
        return await self.in_task(self.reader, run_id, after, timeout=timeout)
