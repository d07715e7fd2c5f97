"""Reads Redis for all readings of a backend, in one thread and in pipelines: events that were published before a reading had
subscribed, or while the connection was broken, and records. It also reports that the readers are alive."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Protocol, TypeAlias

from ...errors import StoredDataError
from ...redis_link import Away, Link
from ..reading import run_not_found
from .reading import Batch, RedisReading, RunSubscription
from .record import STATE_FIELDS, State
from .threads import PipelineThread

__all__ = ["READER_LIFETIME", "Poller"]

_log = logging.getLogger("streamkit.relay")

READER_LIFETIME = 15.0  # seconds without a heartbeat after which a reader no longer counts
_SILENCE = 2.0  # seconds without news of a run after which its record is read
_AT_ONCE = 32  # readings for which the log is read at once
_ENTRIES = 100  # batches that are read at once for each

Job: TypeAlias = RedisReading | RunSubscription | tuple[Any, ...]
"""A reading for which the log is to be read; a run with news; or a command that may be lost, the reply to which is not used."""


class Runs(Protocol):
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


class Poller(PipelineThread[Job]):
    """Reads logs and records for readings, and reports that these are alive."""

    def __init__(self, runs: Runs, link: Link) -> None:
        super().__init__("poller")
        self._runs = runs
        self._link = link
        self._readings: deque[RedisReading] = deque()
        self._with_news: dict[RunSubscription, None] = {}
        self._losable: list[Sequence[Any]] = []
        self._next_heartbeats = 0.0

    # -- the thread

    def _take(self, job: Job) -> None:
        match job:
            case RedisReading():
                self._readings.append(job)
            case RunSubscription():
                self._with_news[job] = None
            case _:
                self._losable.append(job)

    def _has_work(self) -> bool:
        return bool(self._readings)

    def _do(self) -> bool:
        return self._is_away_at(self._read)

    def _tick(self) -> bool:
        return self._is_away_at(self._look_around)

    def _is_away_at(self, read: Callable[[], None]) -> bool:
        """Read something. Returns whether Redis was away, so that the runs have to be looked up again."""
        try:
            read()
        except Away:
            for subscription in self._runs.subscriptions():
                subscription.is_stale = True
            return True
        return False

    # -- what is read

    def _read(self) -> None:
        """Read the records of runs with news, and the logs for some of the readings. Raises `Away` where it has to be done again."""
        readings = [self._readings.popleft() for _ in range(min(_AT_ONCE, len(self._readings)))]
        by_run: dict[RunSubscription, list[RedisReading]] = {one: [] for one in self._with_news}
        for reading in readings:
            if not reading.is_over and (subscription := reading.subscription) is not None:
                by_run.setdefault(subscription, []).append(reading)
        commands, self._losable, self._with_news = self._losable, [], {}
        try:
            if by_run or commands:
                self._look(by_run, commands)
        except Away:
            self._readings.extendleft(reversed(readings))
            raise

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
                self._pass_on(subscription, readings, trimmed, [self._link.check(one) for one in found])
            except Away:
                raise
            except Exception as error:  # the other runs go on
                _log.exception("run %r: its data in Redis cannot be read", subscription.run_id)
                subscription.fail(
                    StoredDataError(f"run {subscription.run_id!r}: its data in Redis cannot be read: {error}")
                )

    def _pass_on(
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

    def _look_around(self) -> None:
        """Report the readers as alive, and read the records of runs that are silent."""
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
