"""The threads of a backend: one sends, one reads, one does what may wait, and one for each server hears what is published.

What producers write does not wait for what is read, however long the logs are.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from ...redis_link import FIRST_PAUSE, LONGEST_PAUSE, Link, RedisServer, words_of

__all__ = ["Listener", "PipelineThread", "Worker"]

_log = logging.getLogger("streamkit.relay")

_TICK = 0.5  # seconds
_LAST_JOBS = 5.0  # seconds for which the end of the relay waits until all jobs are done


Job = TypeVar("Job")


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
    """Calls functions that may wait, one after the other, in a thread of its own."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._work, name="streamkit redis worker", daemon=True)

    def start(self) -> None:
        """Start its thread."""
        self._thread.start()

    def put(self, job: Callable[[], object]) -> None:
        """Call a function soon. It takes no lock: the garbage collector may call it."""
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None and not self._is_stopped:
            try:
                job()
            except Exception:
                _log.exception("a job of the relay failed")

    def finish(self) -> None:
        """End the thread after the jobs that were put; if they take too long, after the present one."""
        self._jobs.put(None)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_LAST_JOBS)
        self._is_stopped = True


class PipelineThread(ABC, Generic[Job]):
    """Does what `put` was called with, all that is there at a time, and something else from time to time. `put` takes no lock."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._work, name=f"streamkit redis {name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, job: Job) -> None:
        """Do this soon. The garbage collector may call it."""
        self._jobs.put(job)

    def finish(self) -> None:
        """End the thread after the jobs that were put."""
        self._jobs.put(None)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5)

    def _work(self) -> None:
        pause = FIRST_PAUSE
        next_tick = time.monotonic() + _TICK
        while not self._is_stopped:
            self._gather(0.0 if self._has_work() else max(0.0, next_tick - time.monotonic()))
            is_away = self._do()
            if time.monotonic() >= next_tick:
                next_tick = time.monotonic() + _TICK
                is_away = self._tick() or is_away
            if is_away:
                time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE) if is_away else FIRST_PAUSE

    def _gather(self, seconds: float) -> None:
        """Take the jobs that are there; wait for the first one if `seconds` is not 0."""
        try:
            job = self._jobs.get(timeout=seconds) if seconds else self._jobs.get_nowait()
            while job is not None:
                self._take(job)
                job = self._jobs.get_nowait()
            self._is_stopped = True
        except Empty:
            return

    @abstractmethod
    def _take(self, job: Job) -> None:
        """Enter a job among those that are to be done."""

    @abstractmethod
    def _has_work(self) -> bool:
        """Whether some are left."""

    @abstractmethod
    def _do(self) -> bool:
        """Do them, or some. Returns whether Redis was away, so that there has to be a pause."""

    @abstractmethod
    def _tick(self) -> bool:
        """Do what is due from time to time. Returns as `_do`."""
