"""The connection of a relay that is subscribed to the channels of its runs."""

from __future__ import annotations

import logging
import secrets
import threading
from typing import TYPE_CHECKING, Any

from ...redis_link import FIRST_PAUSE, LONGEST_PAUSE

if TYPE_CHECKING:
    from ...redis_link import Link
    from .hub import Hub

__all__ = ["Listener"]

_log = logging.getLogger("streamkit.relay")


class Listener:
    """Subscribes to the channels that the hub wants, and passes on what they publish. Only its thread uses the connection;
    others wake it through a channel of its own.

    Attributes:
        wake_channel: publishing on it makes the thread see to the channels that are wanted now.
    """

    def __init__(self, hub: Hub, link: Link, prefix: str) -> None:
        self._hub = hub
        self._link = link
        self.wake_channel = f"{prefix}:wake:{secrets.token_hex(8)}".encode()
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
            subscriber = self._link.subscriber()
            try:
                self._listen(subscriber)
                pause = FIRST_PAUSE
            except self._link.failures:
                self._hub.disconnected()
                self._stopped.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            finally:
                subscriber.close()

    def _listen(self, subscriber: Any) -> None:
        subscribed = {self.wake_channel}
        subscriber.subscribe(self.wake_channel)
        while not self._stopped.is_set():
            message = subscriber.parse_response(block=False, timeout=1.0)
            if message is None:
                self._see_to(subscriber, subscribed)
                continue
            kind, channel, data = message[0], message[1], message[2]
            if kind == b"message" and channel != self.wake_channel:
                try:
                    self._hub.receive(channel, data)
                except ValueError:  # somebody else's; what it stood for is found in the log
                    _log.warning("what was published on %r is no batch of events", channel)
            elif kind == b"subscribe" and channel != self.wake_channel:
                self._hub.confirmed(channel)
            elif kind != b"unsubscribe":
                self._see_to(subscriber, subscribed)

    def _see_to(self, subscriber: Any, subscribed: set[bytes]) -> None:
        """Subscribe to the channels of the runs that are followed, and leave all others."""
        wanted = self._hub.channels()
        if new := wanted - subscribed:
            subscriber.subscribe(*new)
        if old := subscribed - wanted - {self.wake_channel}:
            subscriber.unsubscribe(*old)
        subscribed |= new
        subscribed -= old
