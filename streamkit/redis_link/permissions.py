"""The permissions that the user of a connection needs, where Redis has users with fewer rights than all (ACL).

It is asked when a server is used first: otherwise what is missing would show somewhere inside a script, and much later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .server import Away, RedisScript, RedisServer

__all__ = ["CheckedServer"]


class CheckedServer(RedisServer):
    """A server at whose first use it is found out what the user of the connections is missing.

    Args:
        prefix: what the keys and the channels begin with.
    """

    def __init__(self, redis: Any, pool: Any, scripts: Sequence[RedisScript], prefix: str) -> None:
        super().__init__(redis, pool, scripts)
        self._refused = redis.exceptions.NoPermissionError
        self._is_checked = False
        self._prefix = prefix
        # Some keys begin with a brace, others with the prefix.
        self._keys = [f"{{{prefix}:permissions}}:{name}" for name in ("hash", "stream", "sorted", "set", "text")]

    def send(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Send commands together; if the user may not do all that is needed, each reply says so."""
        if not self._is_checked:
            replies = super().send(self._trials())
            if isinstance(replies[0], Away):
                return [replies[0]] * len(commands)
            if refusal := self._refusal_in(replies):
                return [self._refused(refusal)] * len(commands)
            self._is_checked = True
        return super().send(commands)

    def _trials(self) -> Sequence[Sequence[Any]]:
        return (
            ("SCRIPT", "LOAD", _TRIALS.text),
            _TRIALS(*self._keys),
            ("EXISTS", f"{self._prefix}:permissions"),
            ("PUBLISH", f"{self._prefix}:permissions", b""),  # a script may publish on channels that its user may not
        )

    def _refusal_in(self, replies: Sequence[Any]) -> str:
        """Return the missing permissions, in words, by the replies; "" if nothing is, or if these do not say."""
        found: Any = replies[1]
        wanting: Sequence[bytes] = found if found.__class__ is list else ()
        names = ", ".join(name.decode() for name in wanting)
        others = [str(reply) for reply in replies if isinstance(reply, self._refused)]
        if not names and not others:
            return ""
        missing = f"it may not run {names}" if names else others[0]
        return (
            f"the user of this connection has too few permissions ({missing}) for keys and channels that begin with "
            f"{self._prefix!r}: the guide has the line for ACL SETUSER"
        )


_TRIALS = RedisScript(
    5,
    """
local missing = {}
local function try(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err and
    (string.find(reply.err, 'NOPERM') or string.find(reply.err, "can't run this command")
     or string.find(reply.err, "can't access")) then
    missing[#missing + 1] = string.lower((...))
  end
end
local hash, stream, sorted, set, text = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
try('DEL', hash, stream, sorted, set, text)
try('EXISTS', hash)
try('TIME')
try('HSET', hash, 'a', '1')
try('HSETNX', hash, 'a', '1')
try('HINCRBY', hash, 'a', '1')
try('HGET', hash, 'a')
try('HMGET', hash, 'a')
try('HGETALL', hash)
try('HLEN', hash)
try('HDEL', hash, 'b')
try('SET', text, '1', 'PX', '1000')
try('PEXPIRE', hash, '1000')
try('PTTL', hash)
try('XADD', stream, '1-1', 'a', '1')
try('XRANGE', stream, '-', '+')
try('XTRIM', stream, 'MINID', '2-1')
try('ZADD', sorted, '1', 'a')
try('ZCARD', sorted)
try('ZCOUNT', sorted, '0', '1')
try('ZSCORE', sorted, 'a')
try('ZREM', sorted, 'b')
try('ZREVRANGE', sorted, '0', '1')
try('ZREVRANK', sorted, 'a')
try('ZRANGEBYSCORE', sorted, '0', '1')
try('ZREMRANGEBYSCORE', sorted, '5', '6')
try('ZSCAN', sorted, '0')
try('SADD', set, 'a')
try('SMEMBERS', set)
try('PUBLISH', hash, '')
redis.pcall('DEL', hash, stream, sorted, set, text)
return missing
""",
)
