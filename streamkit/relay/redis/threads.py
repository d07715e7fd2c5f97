"""The threads of a backend: one sends what producers write, one for each server hears what is published, and workers do what may
wait."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from ...errors import SourceError, StreamkitError
from ...redis_link import FIRST_PAUSE, LONGEST_PAUSE, Away, Link, RedisServer, words_of
from .commands import Listing, Write
from .write_buffer import WriteBuffer

__all__ = ["Listener", "Sender", "Worker"]

_log = logging.getLogger("streamkit.relay")

_AT_ONCE = 256  # commands in one pipeline
_EACH = 16  # of one producer
_TICK = 0.5
_LOOK = 5.0  # seconds between two looks at which readers may answer a producer's questions
_LAST_FLUSH = 5.0  # seconds that the end of the relay waits until all events are stored


class Producers(Protocol):
    """The producers of one server, as the sender uses them."""

    @property
    def link(self) -> Link:
        """The connections."""
        ...

    @property
    def lease(self) -> float:
        """The seconds without a heartbeat after which a producer counts as dead."""
        ...

    def buffers(self) -> Sequence[WriteBuffer]:
        """Return the commands with the producers' events."""
        ...

    def notify(self, call: Callable[[], object]) -> None:
        """Call a function that passes something on to a producer, in a thread of its own."""
        ...


class Sender:
    """Sends the events of a process's producers, in one thread and one pipeline. `put` takes no lock.

    An event is sent at once if nothing is on its way, else with all that is written until the reply is there. So a batch is as
    large as the round trip makes it, and no event waits for a clock.
    """

    def __init__(self, backend: Producers) -> None:
        self._backend = backend
        self._due: SimpleQueue[WriteBuffer | Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._is_stopped = False

    def put(self, work: WriteBuffer | Callable[[], object]) -> None:
        """Send a buffer's events, or call a function in the thread."""
        self._due.put(work)
        self.start()

    def start(self) -> None:
        """Start the thread, which sends heartbeats from now on, if it has not started yet."""
        if self._thread is None and self._starting.acquire(blocking=False):
            self._thread = threading.Thread(target=self._work, name="streamkit redis sender", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Send all events, and end the thread."""
        end = time.monotonic() + _LAST_FLUSH
        buffers = self._backend.buffers()
        for buffer in buffers:
            buffer.abandon()
            try:
                buffer.flush(max(0.0, end - time.monotonic()))
            except StreamkitError:
                _log.warning("run %r: the last events of its producer were not stored", buffer.run_id)
        self._is_stopped = True
        for buffer in (*buffers, *self._backend.buffers()):
            buffer.fence("closed")
        self._due.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5)

    # -- its thread

    def _work(self) -> None:
        due: dict[WriteBuffer, None] = {}
        pause = FIRST_PAUSE
        next_beat = time.monotonic() + _TICK
        while not self._is_stopped:
            self._gather(due, 0.0 if due else max(0.0, next_beat - time.monotonic()))
            due, is_away = self._send([*due])
            if is_away:
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                pause = FIRST_PAUSE
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + _TICK
                self._beat()

    def _gather(self, due: dict[WriteBuffer, None], seconds: float) -> None:
        """Add the producers that have written something; wait for the first one if `seconds` is not 0."""
        try:
            one = self._due.get(timeout=seconds) if seconds else self._due.get_nowait()
            while True:
                if callable(one):
                    one()
                elif one is not None:
                    due[one] = None
                one = self._due.get_nowait()
        except Empty:
            return

    def _beat(self) -> None:
        """Renew the leases of producers that have nothing to write, and the entries of all in the lists of runs, and look which
        readers may answer those that wait."""
        now, backend = time.monotonic(), self._backend
        for buffer in backend.buffers():
            if buffer.has_left or buffer.is_abandoned:
                continue
            if buffer.is_empty and now - buffer.contact >= backend.lease / 3:
                buffer.put()
            if now - buffer.listed >= buffer.lifetimes.renewal:
                buffer.renew()
            if buffer.controls.has_questions and now - buffer.controls.looked >= _LOOK:
                backend.notify(buffer.controls.look)

    def _checked(self, work: Write, reply: Any) -> Any:
        """Return a reply, if it is not an error. A run that cannot be entered in a list is written and read nevertheless."""
        try:
            return self._backend.link.check(reply)
        except SourceError as error:
            if not isinstance(work, Listing):
                raise
            _log.warning("a run is missing in a list: %s", error)
            return b""

    def _send(self, due: Sequence[WriteBuffer]) -> tuple[dict[WriteBuffer, None], bool]:
        """Send the buffers' events. Returns those with more events, and whether Redis was away for one of them."""
        more: dict[WriteBuffer, None] = {}
        is_away = False
        next_buffer = 0
        while next_buffer < len(due):
            sent: list[tuple[WriteBuffer, Sequence[Any]]] = []
            commands: list[Sequence[Any]] = []
            while next_buffer < len(due) and len(commands) < _AT_ONCE:
                buffer = due[next_buffer]
                work = buffer.take(_EACH)
                sent.append((buffer, work))
                commands += [one.command(buffer) for one in work]
                next_buffer += 1
            replies = self._backend.link.send(commands) if commands else []
            done = 0
            for buffer, work in sent:
                mine = replies[done : done + len(work)]
                done += len(work)
                try:
                    if buffer.replied(work, [*map(self._checked, work, mine)]):
                        more[buffer] = None
                except Away:
                    buffer.failed(time.monotonic())
                    is_away = True
                    if buffer.fenced is None:
                        more[buffer] = None
                except Exception as error:  # whatever it is, the other runs go on
                    refused = "Redis refuses" if isinstance(error, SourceError) else "Redis may not have stored"
                    _log.exception("run %r: %s events of its producer", buffer.run_id, refused)
                    buffer.fence("unreachable")
        return more, is_away


class Channels(Protocol):
    """The channels of the runs that are followed and written, as a listener uses them."""

    def channels(self, server: RedisServer) -> set[bytes]:
        """Return the channels to subscribe to on a server."""
        ...

    def retire(self, server: RedisServer) -> bool:
        """Drop the listener of a server that cannot be reached, if no channel is on it any more. Returns whether it was dropped."""
        ...

    def confirmed(self, channel: bytes, listener: Listener) -> None:
        """Have the log read, now that a channel is subscribed."""
        ...

    def receive(self, channel: bytes, data: bytes) -> None:
        """Pass on a message of a channel."""
        ...

    def unsubscribed(self, channels: Iterable[bytes], listener: Listener) -> None:
        """Mark channels as no longer heard."""
        ...


class Listener:
    """Subscribes to the channels that are wanted, and passes on what they publish. Only its thread uses the connection;
    others wake it by publishing on a channel of its own, which makes it see to the channels that are wanted now. It ends
    when the server has none of them any more and is gone."""

    def __init__(self, channels: Channels, link: Link, server: RedisServer, wake_channel: bytes) -> None:
        self._channels = channels
        self._link = link
        self._server = server
        self._wake_channel = wake_channel
        self._subscribed: set[bytes] = set()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start its thread."""
        self._thread = threading.Thread(target=self._work, name="streamkit redis listener", daemon=True)
        self._thread.start()

    def stop_soon(self) -> None:
        """Make the thread end when it is woken, or after a second at the latest."""
        self._stopped.set()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5)

    def _work(self) -> None:
        pause = FIRST_PAUSE
        while not self._stopped.is_set():
            subscriber = self._server.subscriber()
            try:
                self._listen(subscriber)
                pause = FIRST_PAUSE
            except self._link.failures as error:
                if words_of(error)[0] == "NOPERM" and pause == FIRST_PAUSE:
                    _log.error(
                        "Redis refuses to let this connection subscribe, so that readers look every 2 seconds: %s",
                        error,
                    )
                self._channels.unsubscribed(self._subscribed, self)
                self._link.lost(self._server, error)
                if self._channels.retire(self._server):
                    return
                self._stopped.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            finally:
                subscriber.close()

    def _listen(self, subscriber: Any) -> None:
        self._subscribed = set()
        subscriber.subscribe(self._wake_channel)
        while not self._stopped.is_set():
            message = subscriber.parse_response(block=False, timeout=1.0)
            if message is None or message[1] == self._wake_channel:
                self._update_subscriptions(subscriber)
                continue
            kind, channel, data = message[0], message[1], message[2]
            if kind in (b"message", b"smessage"):
                try:
                    self._channels.receive(channel, data)
                except ValueError:  # another program's; the events themselves are in the log
                    _log.warning("a message on channel %r is not a batch of events", channel)
            elif kind in (b"subscribe", b"ssubscribe"):
                if channel in self._subscribed:
                    self._channels.confirmed(channel, self)
            elif channel in self._subscribed:  # the server ends the subscription, as the channel moves to another
                self._subscribed.discard(channel)
                self._channels.unsubscribed([channel], self)
                self._link.lost(self._server)

    def _update_subscriptions(self, subscriber: Any) -> None:
        """Subscribe to the channels of the runs that are followed, and leave all others."""
        wanted, subscribed = self._channels.channels(self._server), self._subscribed
        if new := wanted - subscribed:
            subscribed |= new
            self._link.subscribe(subscriber, new)
        if old := subscribed - wanted:
            subscribed -= old
            self._channels.unsubscribed(old, self)
            self._link.unsubscribe(subscriber, old)


class Worker:
    """Calls functions in a thread of its own, which starts with the first one. `put` takes no lock, so that the garbage
    collector may call it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._is_stopped = False

    def put(self, job: Callable[[], object]) -> None:
        """Call a function soon."""
        self._jobs.put(job)
        if self._thread is None and self._starting.acquire(blocking=False):
            self._thread = threading.Thread(target=self._work, name=f"streamkit redis {self._name}", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None and not self._is_stopped:
            try:
                job()
            except Exception:
                if not self._is_stopped:
                    _log.exception("a job of the relay failed")

    def finish(self) -> None:
        """End the thread after the jobs that were put, within a few seconds."""
        self._jobs.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5)

    def stop(self) -> None:
        """End the thread after its present job."""
        self._is_stopped = True
        self._jobs.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5)
