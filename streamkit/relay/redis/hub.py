"""What the parts of one relay share: its connections, its threads, and the state of the runs that are followed. In a Redis
Cluster each node has a hub of its own, so that one that cannot be reached delays no run of the others."""

from __future__ import annotations

import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from ...errors import StoredData, UsageError
from ...redis_link import Link, Server, text_to_bytes
from ..cursors import Place
from .feed import Feed
from .flusher import Flusher
from .keys import Keys
from .listener import Listener
from .poller import Command, Poller
from .reading import RedisReading
from .record import Question
from .worker import Worker

if TYPE_CHECKING:
    from .outbox import Outbox

__all__ = ["Hub"]

_LINGER = 2.0  # seconds for which a run without readers is still followed


class Hub:
    """The inside of one relay, for the runs of one server.

    Args:
        link: the connections; the relay closes them.
        lease: seconds without a heartbeat after which a producer counts as dead.
        end_abandoned: ends a run whose producer is dead, in a thread where it may wait.

    Attributes:
        link: the connections.
        controls: the thread in which producers receive what concerns them.
        answers: the thread that stores the answers of tasks.
        is_closed: whether it was closed.
    """

    def __init__(self, link: Link, prefix: str, lease: float, end_abandoned: Callable[[str], None]) -> None:
        self.link = link
        self.prefix = prefix
        self.lease = lease
        self._end_abandoned = end_abandoned
        self.controls = Worker("controls")
        self.answers = Worker("answers")
        self._endings = Worker("endings")
        self.flusher = Flusher(self)
        self._poller = Poller(self, link)
        self._listeners: dict[Server, Listener] = {}  # more than one while runs are moved to another node
        self._wake_channel = f"{prefix}:wake:{secrets.token_hex(8)}".encode()
        self._lock = threading.Lock()
        self._feeds: dict[str, Feed] = {}
        self._by_channel: dict[bytes, Feed | Outbox] = {}
        # The channels that are subscribed, those included that nobody reads any more, and who is subscribed to each: where a
        # run has moved, the listener of its new node may be heard before that of the old one.
        self._confirmed: dict[bytes, Listener] = {}
        self._outboxes: dict[str, Outbox] = {}
        self._ending: set[str] = set()
        self._is_running = self.is_closed = False
        self._token = secrets.token_hex(6)
        self._numbers = count(1)

    def keys(self, run_id: str) -> Keys:
        """The keys of a run."""
        return Keys(self.prefix, run_id)

    def _start(self) -> None:
        """Start the threads. With the lock held."""
        if not self._is_running and not self.is_closed:
            self._is_running = True
            self._poller.start()
            self.link.when_moved(self._moved)

    def close(self) -> None:
        """End the threads."""
        with self._lock:
            if self.is_closed:
                return
            self.is_closed = True
        self.answers.finish()
        self.flusher.stop()
        if self._is_running:
            listeners = [*self._listeners.values()]
            for listener in listeners:
                listener.stop_soon()
            self._poller.stop(self._wake())
            for feed in self.feeds():
                feed.fail(UsageError(f"run {feed.run_id!r}: its relay was closed while it was read"))
            for listener in listeners:
                listener.stop()
        self.controls.stop()
        self._endings.stop()

    # -- readings

    def join(self, reading: RedisReading, run_id: str) -> Feed:
        """A reading begins. One that is dropped without being closed no longer counts."""
        with self._lock:
            if self.is_closed:
                raise UsageError(f"run {run_id!r} cannot be read: its relay is closed")
            self._start()
            feed = self._feeds.get(run_id)
            if feed is None or feed.is_gone:
                feed = self._feeds[run_id] = Feed(run_id, self.keys(run_id))
                feed.is_confirmed = feed.keys.log in self._confirmed
                self._follow(feed.keys.log, feed)
            key = next(self._numbers)
            reading.member = f"{self._token}:{key}"
            reading.feed = feed
            leave = partial(self._left, feed, key, reading.member)
            feed.readings[key] = weakref.ref(reading, lambda _: leave())
            feed.empty_since = None
        if feed.is_confirmed:
            self.look(reading)
        return feed

    def leave(self, feed: Feed, reading: RedisReading) -> None:
        """A reading ends. It takes no lock."""
        self._left(feed, int(reading.member.rpartition(":")[2]), reading.member)

    def _left(self, feed: Feed, key: int, member: str) -> None:
        if feed.readings.pop(key, None) is None:
            return
        if not feed.readings:
            feed.empty_since = time.monotonic()
        self._poller.put(Command("ZREM", feed.keys.readers, member))
        outbox = self._outboxes.get(feed.run_id)
        if outbox is not None and outbox.inbox.has_questions:
            self._look_later(outbox)

    def look(self, reading: RedisReading) -> bool:
        """Look at the log for a reading, if its channel is subscribed; otherwise that is done once it is. Returns whether
        this call made the poller look."""
        if reading.feed is None or not reading.feed.is_confirmed or reading.is_looking:
            return False
        reading.is_looking = True
        self._poller.put(reading)
        return True

    def skip(self, feed: Feed, member: str, question_id: str) -> None:
        """A reader goes on without a question."""
        self.controls.put(partial(self._skip, feed, member, question_id))

    def _skip(self, feed: Feed, member: str, question_id: str) -> None:
        keys = feed.keys
        name = text_to_bytes(question_id)
        _skipped, _, readers, notes = self.link.ask(
            ("SADD", keys.skipped, b"%b %b" % (member.encode(), name)),
            ("PEXPIRE", keys.skipped, 86_400_000),
            ("ZRANGEBYSCORE", keys.readers, time.time(), "+inf"),
            ("SMEMBERS", keys.skipped),
        )
        if all(b"%b %b" % (reader, name) in notes for reader in readers):
            self.link.ask(("HINCRBY", keys.run, "news", 1), (self.link.publish, keys.news, b"!"))

    def feeds(self) -> Sequence[Feed]:
        """The runs that are followed."""
        with self._lock:
            return [*self._feeds.values()]

    def drop_unread(self, now: float) -> None:
        """Stop following runs that nobody has read for a while."""
        with self._lock:
            for feed in [*self._feeds.values()]:
                since = feed.empty_since
                if since is not None and not feed.readings and now - since >= _LINGER:
                    del self._feeds[feed.run_id]
                    self._by_channel.pop(feed.keys.log, None)

    def questions(self, run_id: str) -> Mapping[str, Question] | None:
        """The questions of a run as its readings in this process have them, with those of all events that these have found;
        None if nothing reads it here. (An answer that came since does not matter to a reader: the first one counts.)"""
        feed = self._feeds.get(run_id)
        return None if feed is None or feed.is_gone else feed.questions

    def local_readers(self, run_id: str) -> tuple[str, set[str]]:
        """The name of this relay's readers, and the open readers of a run."""
        feed = self._feeds.get(run_id)
        keys = [] if feed is None else [*feed.readings]
        return f"{self._token}:", {f"{self._token}:{key}" for key in keys}

    def has(self, run_id: str, place: Place) -> bool:
        """Whether the events after a place are in the log."""
        keys = self.keys(run_id)
        entries, at = self.link.ask(
            ("XRANGE", keys.log, b"%d-%d" % place, "+", "COUNT", 1), ("HGET", keys.snapshot, "at")
        )
        with StoredData(f"run {run_id!r}: its log in Redis"):
            return has_place(place, entries, at)

    # -- runs whose producer died

    def end_if_abandoned(self, feed: Feed) -> None:
        """End a run whose producer is dead: it has left, or nobody has held the lease for its whole length while this
        connection did not break."""
        state = feed.state
        if state is None:
            return
        if state.status == "in_progress":
            since = feed.unleased_since
            if since is None:
                return
            broken_at = self.link.broken_at(feed.keys.run)
            certain = state.is_released or (time.monotonic() - since >= self.lease and broken_at < since)
            if broken_at >= since:
                feed.unleased_since = None
            if not certain:
                return
        elif state.status != "paused" or state.cancel is None:
            return
        if feed.run_id not in self._ending:
            self._ending.add(feed.run_id)
            self._endings.put(partial(self._end_one, feed.run_id))

    def _end_one(self, run_id: str) -> None:
        try:
            self._end_abandoned(run_id)
        finally:
            self._ending.discard(run_id)

    # -- producers

    def add(self, outbox: Outbox) -> None:
        """A producer begins."""
        with self._lock:
            if self.is_closed:
                raise UsageError(f"run {outbox.run_id!r} cannot be written: its relay is closed")
            self._start()
            self._outboxes[outbox.run_id] = outbox
            self._follow(outbox.keys.news, outbox)
        self.flusher.start()

    def remove(self, outbox: Outbox) -> None:
        """A producer has left."""
        with self._lock:
            if self._outboxes.get(outbox.run_id) is outbox:
                del self._outboxes[outbox.run_id]
                self._by_channel.pop(outbox.keys.news, None)

    def outbox(self, run_id: str) -> Outbox | None:
        """The producer that a run has in this relay."""
        return self._outboxes.get(run_id)

    def outboxes(self) -> Sequence[Outbox]:
        """The producers in this relay."""
        with self._lock:
            return [*self._outboxes.values()]

    def _look_later(self, outbox: Outbox) -> None:
        self.controls.put(outbox.inbox.look)

    # -- channels

    def _follow(self, channel: bytes, target: Feed | Outbox) -> None:
        """Have a channel subscribed. With the lock held."""
        self._by_channel[channel] = target
        server = self.link.server_of(channel)
        if server is not None:
            self._listen_to(server)
        self._poller.put(self._wake())

    def _listen_to(self, server: Server) -> None:
        if server not in self._listeners and not self.is_closed:
            listener = self._listeners[server] = Listener(self, self.link, server, self._wake_channel)
            listener.start()

    def _wake(self) -> Command:
        return Command("PUBLISH", self._wake_channel, b"")

    def _moved(self) -> None:
        """Runs are on another node now."""
        with self._lock:
            for server in {self.link.server_of(channel) for channel in self._by_channel}:
                if server is not None:
                    self._listen_to(server)
        self._poller.put(self._wake())

    # -- called by the listeners

    def channels(self, server: Server) -> set[bytes]:
        """The channels to subscribe to on a server."""
        with self._lock:
            return self.link.on(server, self._by_channel)

    def retire(self, server: Server) -> bool:
        """A server has lost its listener's connection. Returns whether nothing is to be heard from it any more."""
        with self._lock:
            is_idle = not self.link.on(server, self._by_channel)
            if is_idle:
                self._listeners.pop(server, None)
            return is_idle

    def confirmed(self, channel: bytes, listener: Listener) -> None:
        """A channel is subscribed: what was published before is in the log."""
        with self._lock:
            self._confirmed[channel] = listener
            target = self._by_channel.get(channel)
            if isinstance(target, Feed):
                target.is_confirmed = target.is_stale = True
        if isinstance(target, Feed):
            for reference in [*target.readings.values()]:
                if (reading := reference()) is not None:
                    self.look(reading)
        elif target is not None:
            self._look_later(target)

    def receive(self, channel: bytes, data: bytes) -> None:
        """Something was published."""
        target = self._by_channel.get(channel)
        if isinstance(target, Feed):
            if data[:1].isdigit():
                target.receive(data)
                return
            if data == b"deleted":
                target.was_deleted = True
            target.is_stale = True
            self._poller.put(target)
        elif target is not None:
            self._look_later(target)

    def unsubscribed(self, channels: Iterable[bytes], listener: Listener) -> None:
        """Subscriptions of a listener are gone: what is published meanwhile is missed, unless another one has taken over."""
        with self._lock:
            for channel in channels:
                if self._confirmed.get(channel) is not listener:
                    continue
                del self._confirmed[channel]
                target = self._by_channel.get(channel)
                if isinstance(target, Feed):
                    target.is_confirmed = False


def has_place(place: Place, entries: Any, at: bytes | None) -> bool:
    """Whether all events after a place are there, from the first batch that is not before it, and the snapshot's place."""
    if place.number == 0:
        return at is None
    if at == b"%d-%d" % place:
        return True
    if not entries:
        return False
    id, fields = entries[0]
    epoch, _, last = id.partition(b"-")
    return int(epoch) == place.epoch and int(fields[b"b"]) < place.number <= int(last)
