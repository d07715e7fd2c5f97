"""The connection of a hub that is subscribed to the channels of its runs, on one server."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from ...redis_link import FIRST_PAUSE, LONGEST_PAUSE, words_of

if TYPE_CHECKING:
    from ...redis_link import Link, Server
    from .hub import Hub

__all__ = ["Listener"]

_log = logging.getLogger("streamkit.relay")


class Listener:
    """Subscribes to the channels that the hub wants, and passes on what they publish. Only its thread uses the connection;
    others wake it by publishing on a channel of its own, which makes it see to the channels that are wanted now. It ends
    when the server has none of them any more and is gone."""

    def __init__(self, hub: Hub, link: Link, server: Server, wake_channel: bytes) -> None:
        self._hub = hub
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
                self._hub.unsubscribed(self._subscribed, self)
                self._link.lost(self._server, error)
                if self._hub.retire(self._server):
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
                    self._hub.receive(channel, data)
                except ValueError:  # somebody else's; what it stood for is found in the log
                    _log.warning("what was published on %r is no batch of events", channel)
            elif kind in (b"subscribe", b"ssubscribe"):
                if channel in self._subscribed:
                    self._hub.confirmed(channel, self)
            elif channel in self._subscribed:  # the server ends the subscription, as the channel moves to another
                self._subscribed.discard(channel)
                self._hub.unsubscribed([channel], self)
                self._link.lost(self._server)

    def _update_subscriptions(self, subscriber: Any) -> None:
        """Subscribe to the channels of the runs that are followed, and leave all others."""
        wanted, subscribed = self._hub.channels(self._server), self._subscribed
        if new := wanted - subscribed:
            subscribed |= new
            self._link.subscribe(subscriber, new)
        if old := subscribed - wanted:
            subscribed -= old
            self._hub.unsubscribed(old, self)
            self._link.unsubscribe(subscriber, old)
