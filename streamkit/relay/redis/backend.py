"""The backend of one relay: its connections, its threads, and the state of the runs that are followed.

In a Redis Cluster each node has a backend of its own, so that one that cannot be reached delays no run of the others.
"""

from __future__ import annotations

import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count

from ...errors import StoredData, UsageError
from ...redis_link import Link, RedisServer, text_to_bytes
from ..run_record import LogPosition
from .poller import Poller
from .reading import RedisReading, RunSubscription, has_position
from .record import Keys, StoredQuestion
from .sender import Sender, WriteJob
from .threads import Listener, Worker
from .write_buffer import WriteBuffer

__all__ = ["RedisBackend", "RedisBackends"]

_LINGER = 2.0  # seconds for which a run without readers is still followed


class RedisBackend:
    """The connections, threads and followed runs of one relay, on one server.

    Args:
        link: the connections; the relay closes them.
        lease: seconds without a heartbeat after which a producer counts as dead.
        end_abandoned: ends a run with a dead producer, in a thread where it may wait.

    Attributes:
        link: the connections.
        is_closed: whether it was closed.
    """

    def __init__(self, link: Link, prefix: str, lease: float, end_abandoned: Callable[[str], None]) -> None:
        self.link = link
        self._prefix = prefix
        self.lease = lease
        self._end_abandoned = end_abandoned
        self._worker = Worker()  # passes on what concerns producers, stores the answers of tasks, ends runs
        self._again: deque[Callable[[], object]] = deque()  # jobs that could not be done while Redis was away
        self._sender = Sender(self, link)
        self._poller = Poller(self, link)
        self._listeners: dict[RedisServer, Listener] = {}  # more than one while runs are moved to another node
        self._wake_channel = f"{prefix}:wake:{secrets.token_hex(8)}".encode()
        self._wake = ("PUBLISH", self._wake_channel, b"")  # has all listeners update their subscriptions
        self._lock = threading.RLock()  # a relay may be dropped, and closed, where the garbage collector runs
        self._subscriptions: dict[str, RunSubscription] = {}
        self._by_channel: dict[bytes, RunSubscription | WriteBuffer] = {}
        # The channels that are subscribed, those included that nobody reads any more, and who is subscribed to each: where a
        # run has moved, the listener of its new node may be heard before that of the old one.
        self._confirmed: dict[bytes, Listener] = {}
        self._buffers: dict[str, WriteBuffer] = {}
        self._abandoned: dict[str, None] = {}  # runs that the worker ends, the first one now
        self._is_running = self.is_closed = False
        self._token = secrets.token_hex(6)
        self._numbers = count(1)

    def start(self) -> None:
        """Start the threads, if they have not started yet."""
        with self._lock:
            if not self._is_running and not self.is_closed:
                self._is_running = True
                self._sender.start()
                self._poller.start()
                self._worker.start()
                self.link.when_moved(self._moved)

    def close(self) -> None:
        """End the threads."""
        with self._lock:
            if self.is_closed:
                return
            self.is_closed = True
        self.try_again()
        self._worker.finish()
        listeners = [*self._listeners.values()]
        for listener in listeners:
            listener.stop_soon()
        self._sender.stop()
        self._poller.put(self._wake)
        self._poller.finish()
        for subscription in self.subscriptions():
            subscription.fail(UsageError(f"run {subscription.run_id!r}: its relay was closed while it was read"))
        for listener in listeners:
            listener.stop()

    # -- readings

    def join(self, reading: RedisReading, run_id: str) -> RunSubscription:
        """Add a reading to its run's subscription. One that is dropped without being closed no longer counts."""
        with self._lock:
            if self.is_closed:
                raise UsageError(f"run {run_id!r} cannot be read: its relay is closed")
            self.start()
            subscription = self._subscriptions.get(run_id)
            if subscription is None or subscription.is_gone:
                subscription = self._subscriptions[run_id] = RunSubscription(run_id, Keys(self._prefix, run_id))
                subscription.is_confirmed = subscription.keys.log in self._confirmed
                self._follow(subscription.keys.log, subscription)
            key = next(self._numbers)
            reading.member = f"{self._token}:{key}"
            reading.subscription = subscription
            leave = partial(self._left, subscription, key, reading.member)
            subscription.readings[key] = weakref.ref(reading, lambda _: leave())
            subscription.empty_since = None
        if subscription.is_confirmed:
            self.look(reading)
        return subscription

    def leave(self, subscription: RunSubscription, reading: RedisReading) -> None:
        """Remove a reading from its subscription. It takes no lock."""
        self._left(subscription, int(reading.member.rpartition(":")[2]), reading.member)

    def _left(self, subscription: RunSubscription, key: int, member: str) -> None:
        if subscription.readings.pop(key, None) is None:
            return
        if not subscription.readings:
            subscription.empty_since = time.monotonic()
        self._poller.put(("ZREM", subscription.keys.readers, member))
        buffer = self._buffers.get(subscription.run_id)
        if buffer is not None and buffer.controls.has_questions:
            self.call_later(buffer.controls.look)

    def look(self, reading: RedisReading) -> bool:
        """Have the log read for a reading, now or once its channel is subscribed. Returns whether
        this call caused it."""
        if reading.subscription is None or not reading.subscription.is_confirmed or reading.is_looking:
            return False
        reading.is_looking = True
        self._poller.put(reading)
        return True

    def skip(self, subscription: RunSubscription, member: str, question_id: str) -> None:
        """Store that a reader goes on without an answer to a question."""
        self.call_later(partial(self._skip, subscription, member, question_id))

    def _skip(self, subscription: RunSubscription, member: str, question_id: str) -> None:
        keys = subscription.keys
        name = text_to_bytes(question_id)
        _skipped, _, readers, notes = self.link.ask(
            ("SADD", keys.skipped, b"%b %b" % (member.encode(), name)),
            ("PEXPIRE", keys.skipped, 86_400_000),
            ("ZRANGEBYSCORE", keys.readers, time.time(), "+inf"),
            ("SMEMBERS", keys.skipped),
        )
        if all(b"%b %b" % (reader, name) in notes for reader in readers):
            self.link.ask(("HINCRBY", keys.run, "news", 1), (self.link.publish, keys.news, b"!"))

    def subscriptions(self) -> Sequence[RunSubscription]:
        """Return the subscriptions to runs that are followed."""
        with self._lock:
            return [*self._subscriptions.values()]

    def drop_unread(self, now: float) -> None:
        """Stop following runs that nobody has read for a while."""
        with self._lock:
            for subscription in [*self._subscriptions.values()]:
                since = subscription.empty_since
                if since is not None and not subscription.readings and now - since >= _LINGER:
                    del self._subscriptions[subscription.run_id]
                    self._by_channel.pop(subscription.keys.log, None)

    def questions(self, run_id: str) -> Mapping[str, StoredQuestion] | None:
        """Return the questions of a run as its readings in this process have them, with those of all events that these
        have found; None if nothing reads it here. (For a reader, an answer that came since is none: the first one counts.)"""
        subscription = self._subscriptions.get(run_id)
        return None if subscription is None or subscription.is_gone else subscription.questions

    def local_readers(self, run_id: str) -> tuple[str, set[str]]:
        """Return what the names of this relay's readers begin with, and the open readers of a run."""
        subscription = self._subscriptions.get(run_id)
        keys = [] if subscription is None else [*subscription.readings]
        return f"{self._token}:", {f"{self._token}:{key}" for key in keys}

    def has(self, run_id: str, position: LogPosition) -> bool:
        """Whether the events after a position are in the log."""
        keys = Keys(self._prefix, run_id)
        entries, at = self.link.ask(
            ("XRANGE", keys.log, b"%d-%d" % position, "+", "COUNT", 1), ("HGET", keys.snapshot, "at")
        )
        with StoredData(f"run {run_id!r}: its log in Redis"):
            return has_position(position, entries, at)

    # -- runs with a dead producer

    def end_if_abandoned(self, subscription: RunSubscription) -> None:
        """End a run with a dead producer: it has left, or nobody has held the lease for its whole length while this
        connection did not break."""
        state = subscription.state
        if state is None:
            return
        if state.status == "in_progress":
            since = subscription.unleased_since
            if since is None:
                return
            broken_at = self.link.broken_at(subscription.keys.run)
            certain = state.is_released or (time.monotonic() - since >= self.lease and broken_at < since)
            if broken_at >= since:
                subscription.unleased_since = None
            if not certain:
                return
        elif state.status != "paused" or state.cancel is None:
            return
        with self._lock:
            is_first = not self._abandoned
            self._abandoned[subscription.run_id] = None
        if is_first:
            self.call_later(self._end_next)

    def _end_next(self) -> None:
        """End one run. The next one has to wait for what else the worker has to do."""
        with self._lock:
            run_id = next(iter(self._abandoned))
        try:
            if not self.is_closed:
                self._end_abandoned(run_id)
        except UsageError:
            if not self.is_closed:  # meanwhile
                raise
        finally:
            with self._lock:
                del self._abandoned[run_id]
                has_more = bool(self._abandoned)
            if has_more:
                self.call_later(self._end_next)

    # -- producers

    def add(self, buffer: WriteBuffer) -> None:
        """Add a producer."""
        with self._lock:
            if self.is_closed:
                raise UsageError(f"run {buffer.run_id!r} cannot be written: its relay is closed")
            self.start()
            self._buffers[buffer.run_id] = buffer
            self._follow(buffer.keys.news, buffer)

    def remove(self, buffer: WriteBuffer) -> None:
        """Remove a producer that has left."""
        with self._lock:
            if self._buffers.get(buffer.run_id) is buffer:
                del self._buffers[buffer.run_id]
                self._by_channel.pop(buffer.keys.news, None)

    def buffer(self, run_id: str) -> WriteBuffer | None:
        """Return the buffer of the run's producer; None if it has none in this relay."""
        return self._buffers.get(run_id)

    def buffers(self) -> Sequence[WriteBuffer]:
        """Return the buffers of the producers in this relay."""
        with self._lock:
            return [*self._buffers.values()]

    # -- its threads

    def put(self, job: WriteJob) -> None:
        """Have the sender do this. It takes no lock."""
        self._sender.put(job)

    def call_later(self, call: Callable[[], object]) -> None:
        """Call a function that may wait, in the worker. It takes no lock."""
        self._worker.put(call)

    def call_again(self, call: Callable[[], object]) -> None:
        """Call a function that failed because Redis is away, a little later."""
        self._again.append(call)

    def try_again(self) -> None:
        """Call what `call_again` was called with."""
        while self._again:
            self._worker.put(self._again.popleft())

    # -- channels

    def _follow(self, channel: bytes, target: RunSubscription | WriteBuffer) -> None:
        """Subscribe to a channel. With the lock held."""
        self._by_channel[channel] = target
        self._listen_on([channel])

    def _moved(self) -> None:
        """Listen to the nodes that runs were moved to."""
        with self._lock:
            self._listen_on(self._by_channel)

    def _listen_on(self, channels: Iterable[bytes]) -> None:
        """Have a listener for the server of each of these channels, and all of them update what they subscribe to."""
        for server in {self.link.server_of(channel) for channel in channels}:
            if server is not None and server not in self._listeners and not self.is_closed:
                listener = self._listeners[server] = Listener(self, self.link, server, self._wake_channel)
                listener.start()
        self._poller.put(self._wake)

    # -- called by the listeners

    def channels(self, server: RedisServer) -> set[bytes]:
        """Return the channels to subscribe to on a server."""
        with self._lock:
            return self.link.on(server, self._by_channel)

    def retire(self, server: RedisServer) -> bool:
        """Drop the listener of a server that cannot be reached, if no channel is on it any more. Returns whether it was dropped."""
        with self._lock:
            is_idle = not self.link.on(server, self._by_channel)
            if is_idle:
                self._listeners.pop(server, None)
            return is_idle

    def confirmed(self, channel: bytes, listener: Listener) -> None:
        """Have the log read, now that a channel is subscribed: what was published before is there."""
        with self._lock:
            self._confirmed[channel] = listener
            target = self._by_channel.get(channel)
            if isinstance(target, RunSubscription):
                target.is_confirmed = target.is_stale = True
        if isinstance(target, RunSubscription):
            for reference in [*target.readings.values()]:
                if (reading := reference()) is not None:
                    self.look(reading)
        elif target is not None:
            self.call_later(target.controls.look)

    def receive(self, channel: bytes, data: bytes) -> None:
        """Pass on what was published on a channel."""
        target = self._by_channel.get(channel)
        if isinstance(target, RunSubscription):
            if data[:1].isdigit():
                target.receive(data)
                return
            if data == b"deleted":
                target.was_deleted = True
            target.is_stale = True
            self._poller.put(target)
        elif target is not None:
            self.call_later(target.controls.look)

    def unsubscribed(self, channels: Iterable[bytes], listener: Listener) -> None:
        """Mark channels as no longer heard, unless another listener has taken them over."""
        with self._lock:
            for channel in channels:
                if self._confirmed.get(channel) is not listener:
                    continue
                del self._confirmed[channel]
                target = self._by_channel.get(channel)
                if isinstance(target, RunSubscription):
                    target.is_confirmed = False


class RedisBackends:
    """The backends of a relay by what they serve: one for a server; in a Redis Cluster one for each node. A run stays with its backend,
    even if it moves to another node."""

    def __init__(self, link: Link, prefix: str, lease: float, end_abandoned: Callable[[str], None]) -> None:
        self._link = link
        self._prefix = prefix
        self._make: Callable[[], RedisBackend] = partial(RedisBackend, link, prefix, lease, end_abandoned)
        self._backends: dict[int, RedisBackend] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def of(self, run_id: str) -> RedisBackend:
        """Return the backend of a run.

        Raises:
            SourceError: Redis cannot be reached.
        """
        home = self._link.home(self.keys(run_id).run)
        backend = self._backends.get(home)
        if backend is None:
            with self._lock:
                backend = self._backends.get(home)
                if backend is None:
                    backend = self._backends[home] = self._make()
                    if self._is_closed:
                        backend.close()
        return backend

    def keys(self, run_id: str) -> Keys:
        """Return the keys of a run."""
        return Keys(self._prefix, run_id)

    def close(self) -> None:
        """End the threads, and close the connections."""
        with self._lock:
            self._is_closed = True
            backends = [*self._backends.values()]
        for backend in backends:
            backend.close()
        self._link.close()
