"""Reads Redis for all readings of a relay, in one thread and one pipeline: events that were published before a reading had
subscribed, or while the connection was broken, and records. It also reports that the readers are alive."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from ...errors import StoredDataError
from ...redis_link import FIRST_PAUSE, LONGEST_PAUSE, Away
from .reading import RedisReading, not_found
from .record import STATE_FIELDS, State

if TYPE_CHECKING:
    from ...redis_link import Link
    from .feed import Batch, Feed
    from .hub import Hub

__all__ = ["READER_LIFETIME", "Poller"]

_log = logging.getLogger("streamkit.relay")

READER_LIFETIME = 15.0  # seconds without a heartbeat after which a reader no longer counts
_SILENCE = 2.0  # seconds without news of a run after which its record is read
_ENTRIES = 100  # batches that are read at once
_AT_ONCE = 32  # readings for which the log is read at once
_TICK = 0.5


class Command:
    """A command that may be lost, and whose reply nobody waits for."""

    def __init__(self, *words: str | bytes) -> None:
        self.words: Sequence[Any] = words


class Poller:
    """Does what `put` was called with: a reading whose log is to be read, or a feed whose record is."""

    def __init__(self, hub: Hub, link: Link) -> None:
        self._hub = hub
        self._link = link
        self._jobs: SimpleQueue[RedisReading | Feed | Command | None] = SimpleQueue()
        self._is_stopped = False
        self._next_heartbeats = 0.0
        self._thread = threading.Thread(target=self._work, name="streamkit redis poller", daemon=True)

    def start(self) -> None:
        """Start its thread."""
        self._thread.start()

    def stop(self, last: Command) -> None:
        """End its thread, with a last command."""
        self._jobs.put(last)
        self._jobs.put(None)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5)

    def put(self, job: RedisReading | Feed | Command) -> None:
        """Do this soon, for a reading, a feed, or as a command that may be lost. It takes no lock."""
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
                for feed in self._hub.feeds():
                    feed.is_stale = True
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
        commands = [job.words for job in jobs if isinstance(job, Command)]
        readings = [job for job in jobs if isinstance(job, RedisReading) and not job.is_over]
        by_feed: dict[Feed, list[RedisReading]] = {
            job: [] for job in jobs if not isinstance(job, (Command, RedisReading))
        }
        for place in range(0, len(readings), _AT_ONCE):
            for reading in readings[place : place + _AT_ONCE]:
                if (feed := reading.feed) is not None:
                    by_feed.setdefault(feed, []).append(reading)
            self._look(by_feed, commands)
            by_feed, commands = {}, []
        if by_feed or commands:
            self._look(by_feed, commands)

    def _look(self, by_feed: dict[Feed, list[RedisReading]], commands: list[Any]) -> None:
        expiry = time.time() + READER_LIFETIME
        pipeline: list[Sequence[Any]] = [*commands]
        trimmed = {reading for readings in by_feed.values() for reading in readings if reading.needs_snapshot}
        for feed, readings in by_feed.items():
            pipeline += self._commands(feed, readings, trimmed, expiry)
        replies = iter(self._link.send(pipeline)[len(commands) :])
        for feed, readings in by_feed.items():
            found = [*islice(replies, 3 + len(readings) + len(trimmed.intersection(readings)))]
            for reading in readings:
                if reading.is_new:
                    reading.is_new = False
                    _ = [*islice(replies, len(_heartbeats(b"", 0.0, "")))]
            try:
                self._take(feed, readings, trimmed, [self._link.check(one) for one in found])
            except Away:
                raise
            except Exception as error:  # the other runs go on
                _log.exception("run %r: what Redis holds of it cannot be read", feed.run_id)
                feed.fail(StoredDataError(f"run {feed.run_id!r}: what Redis holds of it cannot be read: {error}"))

    def _take(
        self, feed: Feed, readings: Sequence[RedisReading], trimmed: set[RedisReading], replies: Sequence[Any]
    ) -> None:
        """What Redis says of one run, and of the log for each of its readings."""
        fields, leased, *found, questions = replies
        self._update(feed, fields, bool(leased), questions)
        if feed.state is not None and not feed.is_gone:
            replied = iter(found)
            for reading in readings:
                batches = feed.batches(next(replied))
                if reading in trimmed:
                    at, data = next(replied)
                    reading.snapshot(at, data, batches[0] if batches else None, feed.state.tip.number)
                else:
                    self._hand_out(feed, feed.state, reading, batches)
        feed.wake()

    def _commands(
        self, feed: Feed, readings: Sequence[RedisReading], trimmed: set[RedisReading], expiry: float
    ) -> list[Sequence[Any]]:
        keys = feed.keys
        commands: list[Sequence[Any]] = [("HMGET", keys.run, *STATE_FIELDS), ("EXISTS", keys.lease)]
        for reading in readings:
            if reading in trimmed:  # in this order: a newer snapshot goes with an older first batch
                commands.append(("XRANGE", keys.log, "-", "+", "COUNT", 1))
                commands.append(("HMGET", keys.snapshot, "at", "data"))
            else:
                start = b"(%d-%d" % reading.place if reading.place.number else b"-"
                commands.append(("XRANGE", keys.log, start, "+", "COUNT", _ENTRIES))
        # After the events, so that it has the questions of all that are found.
        looks = bool(readings) or feed.is_stale
        commands.append(("HGETALL" if looks else "EXISTS", keys.questions))
        feed.is_stale = False
        for reading in readings:
            if reading.is_new:
                commands += _heartbeats(keys.readers, expiry, reading.member)
        return commands

    def _update(self, feed: Feed, fields: Sequence[bytes | None], is_leased: bool, questions: Any) -> None:
        if fields[0] is None:
            feed.is_gone = True
            why = "it was deleted" if feed.was_deleted else "it is lost with what Redis held, or has expired"
            feed.fail(not_found(feed.run_id, f"{why} while it was open"))
            return
        feed.update(State(fields), is_leased=is_leased, questions=None if isinstance(questions, int) else questions)
        self._hub.end_if_abandoned(feed)

    def _hand_out(self, feed: Feed, state: State, reading: RedisReading, batches: list[Batch]) -> None:
        is_missing = state.tip > reading.place if not feed.has_ended else state.tip != reading.place
        if not batches and is_missing:
            reading.found_nothing()
        else:
            reading.found(batches, more=len(batches) == _ENTRIES)

    # -- what is done from time to time

    def _tick(self) -> None:
        now = time.monotonic()
        feeds = self._hub.feeds()
        if now >= self._next_heartbeats:
            self._next_heartbeats = now + READER_LIFETIME / 3
            self._send_heartbeats(feeds)
        self._hub.drop_unread(now)
        silent = [feed for feed in feeds if now - max(feed.heard, feed.checked) >= _SILENCE and feed.readings]
        for place in range(0, len(silent), 4 * _AT_ONCE):
            self._look({feed: [] for feed in silent[place : place + 4 * _AT_ONCE]}, [])

    def _send_heartbeats(self, feeds: Sequence[Feed]) -> None:
        expiry = time.time() + READER_LIFETIME
        commands: list[Sequence[Any]] = []
        for feed in feeds:
            members = [reading.member for one in [*feed.readings.values()] if (reading := one()) is not None]
            if members and not feed.has_ended:
                commands += _heartbeats(feed.keys.readers, expiry, *members)
        for place in range(0, len(commands), 300):
            self._link.send(commands[place : place + 300])


def _heartbeats(key: bytes, expiry: float, *members: str) -> Sequence[Sequence[Any]]:
    """The commands that report readers as alive until `expiry`, and remove those whose time is over."""
    scores = [one for member in members for one in (expiry, member)]
    old = ("ZREMRANGEBYSCORE", key, "-inf", time.time())
    return (("ZADD", key, *scores), old, ("PEXPIRE", key, int(2000 * READER_LIFETIME)))
