"""The connections to one Redis server, and the scripts that are called there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from hashlib import sha1
from typing import Any

__all__ = ["Away", "RedisScript", "RedisServer"]


class Away(Exception):
    """Redis cannot be reached, or cannot do this at present."""


class RedisScript:
    """A script, called with its keys and then its arguments.

    Attributes:
        text: in Lua.
        sha: its name on a server.
    """

    def __init__(self, keys: int, text: str) -> None:
        self.text = text
        self.sha = sha1(text.encode(), usedforsecurity=False).hexdigest()
        self._keys = keys

    def __call__(self, *arguments: Any) -> Sequence[Any]:
        """Return the command that calls it."""
        return ("EVALSHA", self.sha, self._keys, *arguments)

    def sharded(self) -> RedisScript:
        """Return the same for a Cluster: what it publishes stays on the nodes that have its keys."""
        return RedisScript(self._keys, self.text.replace("'PUBLISH'", "'SPUBLISH'"))


class RedisServer:
    """The connections to one server. Thread-safe.

    Args:
        redis: the package.
        pool: the connections, which are lost with an error at once.
        scripts: those that are called here.

    Attributes:
        broken_at: when a connection broke last, on the monotonic clock.
    """

    def __init__(self, redis: Any, pool: Any, scripts: Sequence[RedisScript]) -> None:
        self._errors = redis.exceptions
        self._client: Any = redis.Redis(connection_pool=pool)
        self._scripts = scripts
        self.broken_at = float("-inf")

    def send(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Send commands together. Returns their replies; of one that Redis refused, the error. Where the replies did not
        arrive, each is an `Away`: any of the commands may have been done."""
        replies = self._execute(commands)
        missing = [index for index, reply in enumerate(replies) if isinstance(reply, self._errors.NoScriptError)]
        if missing:
            self._execute([("SCRIPT", "LOAD", script.text) for script in self._scripts])
            again = self._execute([commands[index] for index in missing])
            for index, reply in zip(missing, again, strict=True):
                replies[index] = reply
        return replies

    def _execute(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        try:
            replies: list[Any] = pipeline.execute(raise_on_error=False)
        except (self._errors.RedisError, OSError) as error:
            self.broken_at = time.monotonic()
            return [_away(error)] * len(commands)
        for reply in replies:
            if isinstance(reply, (self._errors.ConnectionError, self._errors.TimeoutError)):  # LOADING is one of these
                return [_away(reply)] * len(commands)
        return replies

    def subscriber(self) -> Any:
        """Return a connection for subscriptions. Only one thread may use it."""
        return self._client.pubsub()

    def close(self) -> None:
        """Close all connections."""
        self._client.connection_pool.disconnect()


def _away(error: Exception) -> Away:
    away = Away(str(error))
    away.__cause__ = error
    return away
