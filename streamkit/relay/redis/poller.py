"""Reads Redis for all readings of a relay, in one thread and one pipeline: events that were published before a reading had
subscribed, or while the connection was broken, and records. It also reports that the readers are alive."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import StoredDataError
from ...redis_link import FIRST_PAUSE, LONGEST_PAUSE, Away
from ..reading import run_not_found
from .reading import Batch, RedisReading, RunSubscription
from .record import STATE_FIELDS, State

if TYPE_CHECKING:
    from ...redis_link import Link

__all__ = ["READER_LIFETIME", "Poller"]

_log = logging.getLogger("streamkit.relay")

READER_LIFETIME = 15.0  # seconds without a heartbeat after which a reader no longer counts
_SILENCE = 2.0  # seconds without news of a run after which its record is read
_ENTRIES = 100  # batches that are read at once
_AT_ONCE = 32  # readings for which the log is read at once
_TICK = 0.5


class LosableCommand:
    """A command that may be lost. Its reply is not used."""

    def __init__(self, *words: str | bytes) -> None:
        self.words: Sequence[Any] = words


class Subscriptions(Protocol):
    """The runs that are followed, as the poller uses them."""

    def subscriptions(self) -> Sequence[RunSubscription]:
        """Return the runs that are followed."""
        ...

    def drop_unread(self, now: float) -> None:
        """Stop following runs that nobody has read for a while."""
        ...

    def end_if_abandoned(self, subscription: RunSubscription) -> None:
        """End a run with a dead producer."""
        ...


class Poller:
    """Reads logs and records for what `put` was called with: a reading, or a subscription."""

    def __init__(self, runs: Subscriptions, link: Link) -> None:
        self._runs = runs
        self._link = link
        self._jobs: SimpleQueue[RedisReading | RunSubscription | LosableCommand | None] = SimpleQueue()
        self._is_stopped = False
        self._next_heartbeats = 0.0
        self._thread = threading.Thread(target=self._work, name="streamkit redis poller", daemon=True)

    def start(self) -> None:
        """Start its thread."""
        self._thread.start()

    def stop(self, last: LosableCommand) -> None:
        """End its thread, with a last command."""
        self._jobs.put(last)
        self._jobs.put(None)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5)

    def put(self, job: RedisReading | RunSubscription | LosableCommand) -> None:
        """Do this soon, for a reading, a subscription, or as a command that may be lost. It takes no lock."""
        self._jobs.put(job)

    # -- its thread

    def _work(self) -> None:
        pause = FIRST_PAUSE
        left: list[Any] = []
        while not self._is_stopped:
            jobs = left + self._gather(0.0 if left else _TICK)
            left = []
            try:
                self._do(jobs)
                self._tick()
                pause = FIRST_PAUSE
            except Away:
                left = [job for job in jobs if isinstance(job, RedisReading)]
                for subscription in self._runs.subscriptions():
                    subscription.is_stale = True
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _gather(self, seconds: float) -> list[Any]:
        jobs: list[Any] = []
        try:
            job = self._jobs.get(timeout=seconds) if seconds else self._jobs.get_nowait()
            while True:
                if job is None:
                    self._is_stopped = True
                    return jobs
                jobs.append(job)
                job = self._jobs.get_nowait()
        except Empty:
            return jobs

    def _do(self, jobs: Sequence[Any]) -> None:
        commands = [job.words for job in jobs if isinstance(job, LosableCommand)]
        readings = [job for job in jobs if isinstance(job, RedisReading) and not job.is_over]
        by_run: dict[RunSubscription, list[RedisReading]] = {
            job: [] for job in jobs if not isinstance(job, (LosableCommand, RedisReading))
        }
        for first in range(0, len(readings), _AT_ONCE):
            for reading in readings[first : first + _AT_ONCE]:
                if (subscription := reading.subscription) is not None:
                    by_run.setdefault(subscription, []).append(reading)
            self._look(by_run, commands)
            by_run, commands = {}, []
        if by_run or commands:
            self._look(by_run, commands)

    def _look(self, by_run: dict[RunSubscription, list[RedisReading]], commands: list[Any]) -> None:
        expiry = time.time() + READER_LIFETIME
        pipeline: list[Sequence[Any]] = [*commands]
        trimmed = {reading for readings in by_run.values() for reading in readings if reading.needs_snapshot}
        for subscription, readings in by_run.items():
            pipeline += self._commands(subscription, readings, trimmed, expiry)
        replies = iter(self._link.send(pipeline)[len(commands) :])
        for subscription, readings in by_run.items():
            found = [*islice(replies, 3 + len(readings) + len(trimmed.intersection(readings)))]
            for reading in readings:
                if reading.is_new:
                    reading.is_new = False
                    _ = [*islice(replies, len(_heartbeats(b"", 0.0, "")))]
            try:
                self._take(subscription, readings, trimmed, [self._link.check(one) for one in found])
            except Away:
                raise
            except Exception as error:  # the other runs go on
                _log.exception("run %r: its data in Redis cannot be read", subscription.run_id)
                subscription.fail(
                    StoredDataError(f"run {subscription.run_id!r}: its data in Redis cannot be read: {error}")
                )

    def _take(
        self,
        subscription: RunSubscription,
        readings: Sequence[RedisReading],
        trimmed: set[RedisReading],
        replies: Sequence[Any],
    ) -> None:
        """Pass on the record of a run, and the log to each of its readings."""
        fields, leased, *found, questions = replies
        self._update(subscription, fields, bool(leased), questions)
        if subscription.state is not None and not subscription.is_gone:
            replied = iter(found)
            for reading in readings:
                batches = subscription.batches(next(replied))
                if reading in trimmed:
                    at, data = next(replied)
                    reading.snapshot(at, data, batches[0] if batches else None, subscription.state.tip.number)
                else:
                    self._hand_out(subscription, subscription.state, reading, batches)
        subscription.wake()

    def _commands(
        self, subscription: RunSubscription, readings: Sequence[RedisReading], trimmed: set[RedisReading], expiry: float
    ) -> list[Sequence[Any]]:
        keys = subscription.keys
        commands: list[Sequence[Any]] = [("HMGET", keys.run, *STATE_FIELDS), ("EXISTS", keys.lease)]
        for reading in readings:
            if reading in trimmed:  # in this order: a newer snapshot goes with an older first batch
                commands.append(("XRANGE", keys.log, "-", "+", "COUNT", 1))
                commands.append(("HMGET", keys.snapshot, "at", "data"))
            else:
                start = b"(%d-%d" % reading.position if reading.position.number else b"-"
                commands.append(("XRANGE", keys.log, start, "+", "COUNT", _ENTRIES))
        # After the events, so that it has the questions of all that are found.
        looks = bool(readings) or subscription.is_stale
        commands.append(("HGETALL" if looks else "EXISTS", keys.questions))
        subscription.is_stale = False
        for reading in readings:
            if reading.is_new:
                commands += _heartbeats(keys.readers, expiry, reading.member)
        return commands

    def _update(
        self, subscription: RunSubscription, fields: Sequence[bytes | None], is_leased: bool, questions: Any
    ) -> None:
        if fields[0] is None:
            subscription.is_gone = True
            why = "it was deleted" if subscription.was_deleted else "it was lost with the data of Redis, or has expired"
            subscription.fail(run_not_found(subscription.run_id, f"{why} while it was open"))
            return
        subscription.update(
            State(fields), is_leased=is_leased, questions=None if isinstance(questions, int) else questions
        )
        self._runs.end_if_abandoned(subscription)

    def _hand_out(
        self, subscription: RunSubscription, state: State, reading: RedisReading, batches: list[Batch]
    ) -> None:
        is_missing = state.tip > reading.position if not subscription.has_ended else state.tip != reading.position
        if not batches and is_missing:
            reading.found_nothing()
        else:
            reading.found(batches, more=len(batches) == _ENTRIES)

    # -- what is done from time to time

    def _tick(self) -> None:
        now = time.monotonic()
        subscriptions = self._runs.subscriptions()
        if now >= self._next_heartbeats:
            self._next_heartbeats = now + READER_LIFETIME / 3
            self._send_heartbeats(subscriptions)
        self._runs.drop_unread(now)
        silent = [
            subscription
            for subscription in subscriptions
            if now - max(subscription.heard, subscription.checked) >= _SILENCE and subscription.readings
        ]
        for first in range(0, len(silent), 4 * _AT_ONCE):
            self._look({subscription: [] for subscription in silent[first : first + 4 * _AT_ONCE]}, [])

    def _send_heartbeats(self, subscriptions: Sequence[RunSubscription]) -> None:
        expiry = time.time() + READER_LIFETIME
        commands: list[Sequence[Any]] = []
        for subscription in subscriptions:
            members = [reading.member for one in [*subscription.readings.values()] if (reading := one()) is not None]
            if members and not subscription.has_ended:
                commands += _heartbeats(subscription.keys.readers, expiry, *members)
        for first in range(0, len(commands), 300):
            self._link.send(commands[first : first + 300])


def _heartbeats(key: bytes, expiry: float, *members: str) -> Sequence[Sequence[Any]]:
    """Return the commands that report readers as alive until `expiry`, and remove expired ones."""
    scores = [one for member in members for one in (expiry, member)]
    old = ("ZREMRANGEBYSCORE", key, "-inf", time.time())
    return (("ZADD", key, *scores), old, ("PEXPIRE", key, int(2000 * READER_LIFETIME)))
