"""The link through which a relay or a store sends commands, wherever their keys are."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, TypeVar

from ..errors import SourceError
from .server import Away, RedisServer

__all__ = ["FIRST_PAUSE", "LONGEST_PAUSE", "Link", "ServerLink", "patiently", "words_of"]

_T = TypeVar("_T")

PATIENCE = 5.0  # seconds for which a call is tried again
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5  # seconds between two attempts: the first, and the longest
# Replies that say that the server cannot do it at present: it loads its data, is a replica, runs a script, has no room; or a
# Cluster moves a key, or has no master for it.
_PASSING = frozenset((
    *("LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "MISCONF", "OOM", "NOREPLICAS"),
    *("MOVED", "ASK"),
))  # fmt: skip
# What redis-py, some versions of it, raises for them, without the word.
_TYPES = {
    "BusyLoadingError": "LOADING",
    "ReadOnlyError": "READONLY",
    "MasterDownError": "MASTERDOWN",
    "ClusterDownError": "CLUSTERDOWN",
    "TryAgainError": "TRYAGAIN",
    "OutOfMemoryError": "OOM",
    "MovedError": "MOVED",
    "AskError": "ASK",
}


def words_of(error: Exception) -> list[str]:
    """Return the words of an error as Redis sent them: its name first."""
    words = str(error).split(" ")
    name = _TYPES.get(type(error).__name__)
    return words if name is None or words[0] == name else [name, *words]


class Link(ABC):
    """The connections of one relay or store. Thread-safe.

    Attributes:
        publish: the command that publishes on a channel of a run.
        failures: what a subscriber raises when its connection breaks.
    """

    publish: ClassVar[str]

    def __init__(self, failures: tuple[type[Exception], ...]) -> None:
        self.failures = failures

    @abstractmethod
    def send(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Send commands together, one pipeline a server. Returns their replies; of one that Redis refused, the error; of one
        whose reply did not arrive, an `Away`: it may have been done."""

    def check(self, reply: Any) -> Any:
        """Return a reply that is not an error.

        Raises:
            Away: it cannot be done at present.
            SourceError: Redis refuses it.
        """
        if not isinstance(reply, Exception):
            return reply
        if isinstance(reply, Away):
            raise reply
        if words_of(reply)[0] in _PASSING:
            raise Away(str(reply)) from reply
        raise SourceError(f"Redis refused a command: {reply}") from reply

    def ask(self, *commands: Sequence[Any]) -> list[Any]:
        """Send commands that may be repeated, and wait for their replies, while a server is away as well.

        Raises:
            SourceError: it stays away, or refuses one of them.
        """
        return patiently(lambda: [self.check(reply) for reply in self.send(commands)])

    def ask_each(self, *commands: Sequence[Any]) -> list[Any]:
        """As `ask`; where Redis refuses one of them, the error is in place of its reply.

        Raises:
            SourceError: a server stays away.
        """
        return patiently(lambda: [self._reply_or_refusal(reply) for reply in self.send(commands)])

    def _reply_or_refusal(self, reply: Any) -> Any:
        try:
            return self.check(reply)
        except SourceError as error:
            return error

    # -- where a key is

    @abstractmethod
    def home(self, key: bytes) -> int:
        """Return the number of the threads that serve a key: keys that one server had at first have the same, always.

        Raises:
            SourceError: no server can be reached.
        """

    @abstractmethod
    def server_of(self, key: bytes) -> RedisServer | None:
        """Return the server that has a key or a channel now; None if none has, as far as this process has heard."""

    @abstractmethod
    def on(self, server: RedisServer, channels: Iterable[bytes]) -> set[bytes]:
        """Return those of the channels that a server has now."""

    def broken_at(self, key: bytes) -> float:
        """When a connection broke last to the server that has a key, on the monotonic clock."""
        server = self.server_of(key)
        return time.monotonic() if server is None else server.broken_at

    # -- subscriptions, of one thread

    @abstractmethod
    def subscribe(self, subscriber: Any, channels: Iterable[bytes]) -> None:
        """Subscribe to channels of runs, on the server that has them."""

    @abstractmethod
    def unsubscribe(self, subscriber: Any, channels: Iterable[bytes]) -> None:
        """End subscriptions."""

    @abstractmethod
    def lost(self, server: RedisServer, error: Exception | None = None) -> None:
        """A subscriber has lost its connection, or a channel."""

    @abstractmethod
    def when_moved(self, call: Callable[[], None]) -> None:
        """Call this whenever keys are on other servers than before."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""


class ServerLink(Link):
    """All keys are on one server."""

    publish = "PUBLISH"

    def __init__(self, server: RedisServer, target: object, failures: tuple[type[Exception], ...]) -> None:
        super().__init__(failures)
        self._server = server
        self._target = target  # a client's pool may be needed to find its server

    def send(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Send commands together."""
        return self._server.send(commands)

    def home(self, key: bytes) -> int:
        """Return the same number for every key."""
        return 0

    def server_of(self, key: bytes) -> RedisServer:
        """Return the one server."""
        return self._server

    def on(self, server: RedisServer, channels: Iterable[bytes]) -> set[bytes]:
        """Return all the channels."""
        return set(channels)

    def subscribe(self, subscriber: Any, channels: Iterable[bytes]) -> None:
        """Subscribe to channels."""
        subscriber.subscribe(*channels)

    def unsubscribe(self, subscriber: Any, channels: Iterable[bytes]) -> None:
        """End subscriptions."""
        subscriber.unsubscribe(*channels)

    def lost(self, server: RedisServer, error: Exception | None = None) -> None:
        """Do nothing: the server comes back, or it does not."""

    def when_moved(self, call: Callable[[], None]) -> None:
        """Do nothing: keys of one server never move."""

    def close(self) -> None:
        """Close all connections."""
        self._server.close()


def patiently(call: Callable[[], _T]) -> _T:
    """Call this until it is not `Away`.

    Raises:
        SourceError: it stays away.
    """
    end = time.monotonic() + PATIENCE
    pause = FIRST_PAUSE
    while True:
        try:
            return call()
        except Away as error:
            if time.monotonic() + pause >= end:
                raise SourceError(f"Redis cannot be reached: {error}") from error
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
