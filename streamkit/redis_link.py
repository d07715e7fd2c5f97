"""The connections to Redis, of a relay or a store: commands and scripts in pipelines, and what is tried again while the
server is away."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from hashlib import sha1
from typing import Any

from .errors import SourceError, UsageError

__all__ = ["FIRST_PAUSE", "LONGEST_PAUSE", "Away", "Link", "Script"]

CONNECTIONS = 10  # of one relay, its subscriber's included
_TIMEOUT = 5.0  # seconds for which one reply, or a free connection, is waited for
_PATIENCE = 5.0  # seconds for which a call is tried again
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5  # seconds between two attempts: the first, and the longest
# Replies that say that the server cannot do it at present: it loads its data, is a replica, runs a script, has no room.
_PASSING = ("LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "MISCONF", "OOM", "NOREPLICAS")


class Away(Exception):
    """Redis cannot be reached, or cannot do this at present."""


class Script:
    """A script, called with its keys and then its arguments."""

    def __init__(self, keys: int, text: str) -> None:
        self.text = text
        self._keys = keys
        self._sha = sha1(text.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, *arguments: Any) -> Sequence[Any]:
        """The command that calls it."""
        return ("EVALSHA", self._sha, self._keys, *arguments)


class Link:
    """The connections of one relay or store. Thread-safe.

    Args:
        scripts: those that it calls.
        target: the URL of a server, or a client of redis-py, whose settings are used for connections of the relay's own.

    Raises:
        UsageError: redis-py is not installed; or it is neither.
    """

    def __init__(self, target: Any, scripts: Sequence[Script]) -> None:
        redis = _redis_py()
        self._target = target  # a client's pool may be needed to find its server
        self._scripts = scripts
        self._errors: Any = redis.exceptions
        self._client: Any = redis.Redis(connection_pool=_pool(redis, target))
        self.broken_at = float("-inf")  # when a connection broke last, on the monotonic clock

    def send(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Send commands together. Returns their replies; of one that Redis refused, the error.

        Raises:
            Away: the replies did not arrive. Any of the commands may have been done.
        """
        replies = self._execute(commands)
        missing = [place for place, reply in enumerate(replies) if isinstance(reply, self._errors.NoScriptError)]
        if missing:
            self._execute([("SCRIPT", "LOAD", script.text) for script in self._scripts])
            again = self._execute([commands[place] for place in missing])
            for place, reply in zip(missing, again, strict=True):
                replies[place] = reply
        return replies

    def _execute(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        try:
            replies: list[Any] = pipeline.execute(raise_on_error=False)
        except (self._errors.RedisError, OSError) as error:
            self.broken_at = time.monotonic()
            raise Away(str(error)) from error
        for reply in replies:
            if isinstance(reply, (self._errors.ConnectionError, self._errors.TimeoutError)):  # LOADING is one of these
                raise Away(str(reply)) from reply
        return replies

    def check(self, reply: Any) -> Any:
        """A reply, if it is no error.

        Raises:
            Away: it cannot be done at present.
            SourceError: Redis refuses it.
        """
        if not isinstance(reply, Exception):
            return reply
        if str(reply).startswith(_PASSING) or type(reply).__name__ in _PASSING_TYPES:
            raise Away(str(reply)) from reply
        raise SourceError(f"Redis refused a command: {reply}") from reply

    def ask(self, *commands: Sequence[Any]) -> list[Any]:
        """Send commands that may be repeated, and wait for their replies, while the server is away as well.

        Raises:
            SourceError: it stays away, or refuses one of them.
        """
        end = time.monotonic() + _PATIENCE
        pause = FIRST_PAUSE
        while True:
            try:
                return [self.check(reply) for reply in self.send(commands)]
            except Away as error:
                if time.monotonic() + pause >= end:
                    raise SourceError(f"Redis cannot be reached: {error}") from error
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def subscriber(self) -> Any:
        """A connection for subscriptions. Only one thread may use it."""
        return self._client.pubsub()

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """What a subscriber raises when its connection breaks."""
        return (self._errors.RedisError, OSError)

    def close(self) -> None:
        """Close all connections."""
        self._client.connection_pool.disconnect()


_PASSING_TYPES = ("BusyLoadingError", "ReadOnlyError", "MasterDownError", "ClusterDownError", "TryAgainError", "OutOfMemoryError")  # fmt: skip


_OF_ITS_POOL = ("maint_notifications", "oss_cluster", "orig_", "event_dispatcher")  # settings that are no connection's


def _redis_py() -> Any:
    try:
        import redis
    except ImportError as error:
        raise UsageError("Redis needs the package `redis`: pip install 'streamkit-sdk[redis]'") from error
    return redis


def _pool(redis: Any, target: Any) -> Any:
    """A pool of connections of our own: it waits for a free one, and a lost connection is an error at once."""
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    options: dict[str, Any] = {"socket_timeout": _TIMEOUT, "socket_connect_timeout": _TIMEOUT}
    if isinstance(target, str):
        own: Callable[..., Any] = redis.BlockingConnectionPool.from_url
        arguments: tuple[Any, ...] = (target,)
    elif isinstance(target, redis.Redis):
        pool: Any = target.connection_pool
        own, arguments = redis.BlockingConnectionPool, ()
        lent = {name: value for name, value in pool.connection_kwargs.items() if not name.startswith(_OF_ITS_POOL)}
        options = {**lent, **options, "connection_class": pool.connection_class}
    else:
        raise UsageError(f"it takes the URL of a Redis server, or a `redis.Redis`, not {target!r}")
    options.update(
        max_connections=CONNECTIONS, timeout=_TIMEOUT, retry=Retry(NoBackoff(), 0), protocol=2, decode_responses=False
    )
    try:
        return own(*arguments, **options)
    except ValueError as error:
        raise UsageError(f"the URL of a Redis server is like redis://localhost:6379/0: {error}") from error
