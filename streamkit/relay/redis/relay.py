"""The relay on a Redis server."""

from __future__ import annotations

import logging
import math
import secrets
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...arguments import check_kind, check_page
from ...errors import SourceError, StoredData, StoredDataError, UsageError
from ...redis_link import check_prefix, connect, ids_of, text_to_bytes
from ..interface import Relay, check_options, check_producer
from ..reading import Gap, check_reading, events_missing, run_not_found
from ..registry import check_answer, outcome_of
from ..replay import end_abandoned_run
from ..run_record import Answered, Control, LogPosition, RunRecord, position_of
from ..wakers import in_event_loop
from .backend import RedisBackend, RedisBackends
from .reading import RedisReading
from .record import Keys, Lifetimes, RunIndex, StoredQuestion, decode, encode, info_of, record_of, settle_command
from .scripts import CANCEL, CLAIM, END, RECORD, every_script
from .write_buffer import WriteBuffer
from .writer import RedisWriter

__all__ = ["RedisRelay"]

_log = logging.getLogger("streamkit.relay")

_AT_ONCE = 100  # records that are read in one exchange
_PATIENCE = (
    5.0  # seconds to wait until the writes of this relay's producers are stored, or until another producer ends a run
)


class RedisRelay(Relay):
    """Keeps runs on a Redis server (6.2 or newer, or Valkey), so that producers and readers may be in any process.

        with sk.RedisRelay("redis://localhost:6379/0") as relay:
            with sk.Emitter(relay, "run-1") as emitter: ...             # writes a run; in any process:
            sk.stream(relay.reader("run-1"), MyHandler()).until_done()  # reads it

    It needs the extra `redis`: `pip install 'streamkit-sdk[redis]'`. The server needs no modules. A relay uses at most ten
    connections and a few threads for each server, however many runs there are. Close it, or use it in a `with`; after a fork, make a new
    one. Its methods are those of `streamkit.relay.Relay`, which describes their arguments and results.

    Args:
        target: a URL, such as `redis://localhost:6379/0`; or a `redis.Redis`, Sentinel's `master_for(…)` too, whose
            settings are used. For a Redis Cluster (7 or newer) `redis+cluster://localhost:7000` with any of its nodes, or a
            `redis.RedisCluster`.
        prefix: what the keys in Redis begin with.
        limit: how many events the log of a run holds, before its oldest are replaced by a snapshot.
        timeout: seconds without a heartbeat of the producer after which readers fail with a `SourceTimeoutError`; None
            for no limit.
        lease: seconds without a heartbeat after which a producer's process counts as dead.
        ttl_running: seconds until a run expires after its producer's last heartbeat.
        ttl_paused: seconds until a run expires that has no producer and waits for answers.
        ttl_ended: seconds until a run expires after it has ended.

    Attributes:
        prefix: what the keys begin with.

    Raises:
        UsageError: the package `redis` is missing, or an argument is wrong. (A server that cannot be reached is a
            `SourceError` of the first method that needs it.)
    """

    def __init__(
        self,
        target: Any,
        *,
        prefix: str = "sk",
        limit: int = 65_536,
        timeout: float | None = 600.0,
        lease: float = 15.0,
        ttl_running: float = 3600.0,
        ttl_paused: float = 7 * 86_400.0,
        ttl_ended: float = 600.0,
    ) -> None:
        check_options(limit, timeout, lease=lease, ttl_running=ttl_running, ttl_paused=ttl_paused, ttl_ended=ttl_ended)
        self.limit = self._limit = limit
        self.prefix = check_prefix(prefix)
        self._timeout = math.inf if timeout is None else timeout
        self._lifetimes = Lifetimes(lease, ttl_running, ttl_paused, ttl_ended)
        self._link = connect(target, every_script(), prefix)
        self._index = RunIndex(self._link, prefix)
        this = weakref.ref(self)

        def end_abandoned(run_id: str) -> None:
            if (relay := this()) is not None:
                relay.end_abandoned(run_id)

        self._backends = RedisBackends(self._link, prefix, lease, end_abandoned)
        self._finalizer = weakref.finalize(self, self._backends.close)

    def close(self) -> None:
        """Store what was written, and close the connections. The relay cannot be used afterwards."""
        self._finalizer()

    # -- for producers

    def open(
        self, run_id: str, info: Mapping[str, Any] | None = None, *, control: Callable[[Control], None]
    ) -> RedisWriter:
        """Begin a run. Raises `UsageError` if there is one already."""
        check_producer(run_id, info, control)
        writer = self._claim(run_id, encode(dict(info or {})), control)
        if writer is None:
            raise UsageError(f"run {run_id!r} is in this relay already: use another id")
        return writer

    def take_over(self, run_id: str, *, control: Callable[[Control], None]) -> RedisWriter | None:
        """Become the producer of a run that has none."""
        check_producer(run_id, None, control)
        self.catch_up(run_id)
        return self._claim(run_id, b"", control)

    def _claim(self, run_id: str, info: bytes, control: Callable[[Control], None]) -> RedisWriter | None:
        lifetimes, backend = self._lifetimes, self._backends.of(run_id)
        keys = self._backends.keys(run_id)
        buffer = WriteBuffer(backend, run_id, keys, secrets.token_hex(8), lifetimes, control)
        (reply,) = self._link.ask(CLAIM(keys.run, keys.lease, buffer.owner, lifetimes.lease, lifetimes.running, info))
        if isinstance(reply, bytes):  # there is one, or none, or it has a producer
            return None
        epoch, number, wrote, created, stored_info, busy = reply
        buffer.epoch, buffer.number, buffer.wrote, buffer.busy = int(epoch), int(number), int(wrote), busy == b"1"
        buffer.created, buffer.lists = float(created), self._index.of(info_of(run_id, stored_info))
        backend.add(buffer)
        self._index.enter(run_id, [one.words for one in buffer.listings(is_open=True)])
        if not info:
            try:
                buffer.controls.receive_missed()
            except SourceError:
                buffer.abandon()  # else the run would seem to have a producer
                raise
        return RedisWriter(buffer, self._settle_own)

    def end_abandoned(self, run_id: str) -> None:
        """End a run with a dead producer, or leave it paused where the producer only waited for answers."""
        record = self.get(run_id)
        if record is not None and record.status == "paused" and record.cancel is None:
            self._leave_paused(run_id)
        else:
            end_abandoned_run(self, run_id, "it sent no heartbeat")

    def _leave_paused(self, run_id: str) -> None:
        """Store that a run is paused, because its producer died while it waited for answers; unless another one has it by now."""
        keys = self._backends.keys(run_id)
        ((epoch, owner, last),) = self._link.ask(("HMGET", keys.run, "epoch", "owner", "last"))
        arguments = (epoch, owner, last, "paused", b"", self._lifetimes.paused, b"", 1)
        self._link.ask(END(keys.run, keys.log, keys.lease, keys.questions, keys.snapshot, *arguments))

    # -- for everyone

    def get(self, run_id: str) -> RunRecord | None:
        """Return the record of a run; None if there is no such run."""
        self.catch_up(run_id)
        (reply,) = self._link.ask(self._record_command(run_id))
        return self._record(run_id, reply)

    def get_many(self, run_ids: Sequence[str]) -> Sequence[RunRecord | None]:
        """Return the records of several runs."""
        found = self._read_many(run_ids)
        return [None if isinstance(one, SourceError) else one for one in found]

    def _read_many(self, run_ids: Sequence[str]) -> Sequence[RunRecord | SourceError | None]:
        """Return the records of several runs; in place of one that cannot be read, the error, which was logged."""
        found: list[RunRecord | SourceError | None] = []
        for start in range(0, len(run_ids), _AT_ONCE):
            some = run_ids[start : start + _AT_ONCE]
            for run_id in some:
                self.catch_up(run_id)
            replies = self._link.ask_each(*map(self._record_command, some))
            found += map(self._record_or_error, some, replies)
        return found

    def _record_command(self, run_id: str) -> Sequence[Any]:
        keys = self._backends.keys(run_id)
        return RECORD(keys.run, keys.lease, keys.questions, keys.readers, time.time())

    def _record(self, run_id: str, reply: Any) -> RunRecord | None:
        if isinstance(reply, SourceError):
            raise reply
        is_unsure = self._is_unsure(self._backends.keys(run_id))
        return record_of(run_id, reply, self._backends.of(run_id).local_readers(run_id), trusts_lease=not is_unsure)

    def _record_or_error(self, run_id: str, reply: Any) -> RunRecord | SourceError | None:
        try:
            return self._record(run_id, reply)
        except SourceError as error:
            _log.warning("%s", error)
            return error

    def _is_unsure(self, keys: Keys) -> bool:
        """Whether Redis was away, so that live producers may have lost their lease meanwhile."""
        return time.monotonic() - self._link.broken_at(keys.run) < self._lifetimes.lease / 1000

    def question(self, run_id: str, question_id: str) -> Mapping[str, Any] | None:
        """Return one of a run's questions; None if there is none."""
        followed = self._backends.of(run_id).questions(run_id)
        if followed is not None:
            return followed[question_id].record if question_id in followed else None
        self.catch_up(run_id)
        keys = self._backends.keys(run_id)
        (value,) = self._link.ask(("HGET", keys.questions, question_id))
        return None if value is None else self._question(run_id, value).record

    def _question(self, run_id: str, value: bytes) -> StoredQuestion:
        with StoredData(f"run {run_id!r}: a question of it in Redis"):
            return StoredQuestion(value)

    def list(
        self,
        *,
        conversation: str | None = None,
        owner: str | None = None,
        open_only: bool = False,
        limit: int = 50,
        before: str | None = None,
    ) -> Sequence[RunRecord]:
        """Return the records of runs, the newest first. One that cannot be read is left out, and logged as a warning."""
        check_page(limit, conversation=conversation, owner=owner, before=before)
        last = b"" if before is None else text_to_bytes(before)
        found: Sequence[RunRecord] = []
        gone, ended = set[bytes](), set[bytes]()  # entries that are left over
        while (wanted := limit - len(found)) > 0:
            page = self._index.page(conversation, owner, open_only=open_only, limit=wanted, before=last)
            ids = ids_of(page)
            for member, record in zip(ids.values(), self._read_many([*ids]), strict=True):
                if record is None:
                    gone.add(member)
                elif isinstance(record, SourceError):
                    continue
                elif not (open_only and record.has_ended):
                    found = [*found, record]
                elif record.ended_at is not None:
                    ended.add(member)
            if len(page) < wanted:
                break
            last = page[-1]
        self._index.drop(conversation, owner, gone, ended)
        return found

    def count_open(self, owner: str) -> int:
        """Return how many runs of an owner have not ended."""
        return self._index.count_open(owner)

    def answer(self, run_id: str, question_id: str, answer: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
        """Answer a question. The first answer counts. Returns whether this one did, and the question as it is now."""
        self.catch_up(run_id)
        (value,) = self._link.ask(("HGET", self._backends.keys(run_id).questions, question_id))
        check_answer(question_id, {} if value is None else self._question(run_id, value).record, answer)
        settled = self.settle(run_id, question_id, answer, passes_on=True)
        if settled is None:
            raise UsageError(f"run {run_id!r} has no question {question_id!r}")
        return settled

    def pass_on(self, run_id: str, question_id: str, answer: Mapping[str, Any]) -> None:
        """Answer a question for a reader. In an event loop, or while Redis is away, the answer is stored by a thread, which
        tries until it is."""
        outcome_of(answer)
        if not in_event_loop():
            try:
                super().pass_on(run_id, question_id, answer)
                return
            except StoredDataError:
                raise
            except SourceError:
                pass  # it stays in memory until it can be stored
        backend = self._backends.of(run_id)
        backend.start()
        backend.call_later(partial(self._pass_on, backend, run_id, question_id, answer))

    def _pass_on(self, backend: RedisBackend, run_id: str, question_id: str, answer: Mapping[str, Any]) -> None:
        try:
            super().pass_on(run_id, question_id, answer)
        except StoredDataError:
            raise
        except SourceError:
            if backend.is_closed:
                raise
            backend.call_again(partial(self._pass_on, backend, run_id, question_id, answer))

    def _settle_own(
        self, run_id: str, question_id: str, answer: Mapping[str, Any] | None
    ) -> tuple[bool, dict[str, Any]] | None:
        """As `settle`, for a producer of this relay, once its question is stored."""
        self.catch_up(run_id)
        return self.settle(run_id, question_id, answer)

    def settle(
        self, run_id: str, question_id: str, answer: Mapping[str, Any] | None, *, passes_on: bool = False
    ) -> tuple[bool, dict[str, Any]] | None:
        """Answer a question, or close it without an answer; None if there is no such question. With `passes_on`, a producer
        in this relay receives the answer at once.

        Raises:
            SourceError: there is no such run: `status_code` is 404.
        """
        keys = self._backends.keys(run_id)
        (reply,) = self._link.ask(settle_command(keys, question_id, answer))
        if reply == b"gone":
            if passes_on:
                raise run_not_found(run_id)
            return None
        if reply == b"none":
            return None
        counts, question = reply[0] == 1, self._question(run_id, reply[1])
        if not counts and answer is not None and question.answer is not None:
            counts = outcome_of(decode(encode(answer))) == outcome_of(question.answer)
        if (
            passes_on
            and question.answer is not None
            and (buffer := self._backends.of(run_id).buffer(run_id)) is not None
        ):
            buffer.controls.receive(Answered(question_id, question.answer))
        return counts, question.record

    def cancel(self, run_id: str, reason: str | None = None) -> bool:
        """Stop a run."""
        check_kind("reason", reason, str)
        self.catch_up(run_id)
        keys = self._backends.keys(run_id)
        call = CANCEL(keys.run, keys.questions, keys.log, keys.news, keys.lease, reason or "")
        (found,) = self._link.ask(call)
        if not found:
            return False
        if (buffer := self._backends.of(run_id).buffer(run_id)) is not None:
            buffer.controls.look()
        if found == 2 and not self._is_unsure(keys) and not end_abandoned_run(self, run_id):
            self._wait_for_end(run_id)
        return True

    def _wait_for_end(self, run_id: str) -> None:
        """Wait until another producer has ended the run."""
        end = time.monotonic() + _PATIENCE
        while (record := self.get(run_id)) is not None and not record.has_ended and time.monotonic() < end:
            time.sleep(0.005)

    def delete(self, run_id: str) -> None:
        """Remove a run."""
        keys = self._backends.keys(run_id)
        info, *_ = self._link.ask(
            ("HGET", keys.run, "info"),
            ("DEL", *keys.all),
            (self._link.publish, keys.log, b"deleted"),
            (self._link.publish, keys.news, b"!"),
        )
        if (buffer := self._backends.of(run_id).buffer(run_id)) is not None:
            buffer.fence("gone")
        if info is not None:
            self._index.remove(run_id, info_of(run_id, info))

    def read(
        self, run_id: str, after: str | None = None, *, gap: Gap = "snapshot", timeout: float | None = None
    ) -> RedisReading:
        """Read a run from its beginning, or after a cursor."""
        check_reading(gap, timeout)
        keys = self._backends.keys(run_id)
        if self._link.ask(("EXISTS", keys.run)) == [0]:
            raise run_not_found(run_id)
        position, has = LogPosition(0, 0), True
        if after is not None:
            position = position_of(after, run_id)
            self.catch_up(run_id)
            has = self._backends.of(run_id).has(run_id, position)
            if not has and gap == "error":
                raise events_missing(run_id)
        limit = self._timeout if timeout is None else timeout
        return RedisReading(self._backends.of(run_id), run_id, position, has, gap, limit, self._limit)

    # -- its producers

    def catch_up(self, run_id: str) -> None:
        """Wait until Redis has what a producer in this relay wrote, so that a process reads its own writes."""
        buffer = self._backends.of(run_id).buffer(run_id)
        if buffer is not None and not buffer.is_empty:
            try:
                buffer.flush(_PATIENCE)
            except UsageError:
                return  # the run has another producer by now
