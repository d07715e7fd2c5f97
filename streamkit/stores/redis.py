"""Conversations on a Redis server.

sk:{conversation}:saved   hash        its messages, and its record
sk:conversations          sorted set  all of them, by when they were updated; best effort, in a slot of its own
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ..errors import UsageError
from ..messages import Message
from ..redis_link import Script, connect
from .content import messages_from, messages_to_bytes, stale
from .interface import Conversation, Saved, Store

__all__ = ["RedisStore"]

# Create a conversation that does not exist. ARGV[1] is the time, ARGV[2] its owner, "" for none.
_CREATE = """
local function create()
  redis.call('HSET', KEYS[1], 'title', '', 'created_at', ARGV[1], 'messages', 0, 'version', 0, 'content', '[]')
  if ARGV[2] ~= '' then redis.call('HSET', KEYS[1], 'owner', ARGV[2]) end
end
"""

# Arguments: now, owner, version, the run that has to hold the lock ("" for none), content, its count of messages, 1 and the
# title or 0. Returns the new version, or as text the one that it has, or "" if it was deleted.
_SAVE = Script(
    1,
    _CREATE
    + """
local version = redis.call('HGET', KEYS[1], 'version')
if not version and ARGV[3] == '0' and ARGV[4] == '' then
  create()
  version = '0'
end
if version ~= ARGV[3] then return version or '' end
if ARGV[4] ~= '' and redis.call('HGET', KEYS[1], 'run') ~= ARGV[4] then return version end
redis.call('HSET', KEYS[1], 'content', ARGV[5], 'messages', ARGV[6], 'updated_at', ARGV[1])
if ARGV[7] == '1' then redis.call('HSET', KEYS[1], 'title', ARGV[8]) end
return redis.call('HINCRBY', KEYS[1], 'version', 1)
""",
)

# Arguments: now, owner, the run, the run that is over. Returns the run that has the lock.
_LOCK = Script(
    1,
    _CREATE
    + """
if redis.call('EXISTS', KEYS[1]) == 0 then create() end
local run = redis.call('HGET', KEYS[1], 'run')
if not run or run == ARGV[4] then
  redis.call('HSET', KEYS[1], 'run', ARGV[3], 'updated_at', ARGV[1])
  run = ARGV[3]
end
return run
""",
)

# Argument: the run. Returns 1 if the conversation, which was never saved, was removed too.
_UNLOCK = Script(
    1,
    """
if redis.call('HGET', KEYS[1], 'run') ~= ARGV[1] then return 0 end
if redis.call('HGET', KEYS[1], 'version') == '0' then return redis.call('DEL', KEYS[1]) end
redis.call('HDEL', KEYS[1], 'run')
return 0
""",
)

_ESCAPED = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})
_FIELDS = ("title", "created_at", "updated_at", "messages", "version", "run", "owner")


class RedisStore(Store):
    """Conversations on a Redis server, for servers in any number of processes. It needs the extra `redis`.

    Args:
        target: a URL, as `redis://localhost:6379/0`; or a `redis.Redis`, whose settings are used. A Redis Cluster, too:
            `redis+cluster://localhost:7000`, or a `redis.RedisCluster`.
        prefix: what the keys begin with.

    Raises:
        UsageError: redis-py is missing, or an argument is wrong.
    """

    def __init__(self, target: Any, *, prefix: str = "sk") -> None:
        if not prefix or "{" in prefix or "}" in prefix:
            raise UsageError(f"a prefix of keys is a word without braces, not {prefix!r}")
        self._prefix = prefix
        self._index = f"{prefix}:conversations"
        self._link = connect(target, (_SAVE, _LOCK, _UNLOCK))

    def _key(self, id: str) -> bytes:
        return _bytes(f"{self._prefix}:{{{id.translate(_ESCAPED) or '%'}}}:saved")

    def load(self, id: str) -> Saved | None:
        """The messages of a conversation and their version; None if there is no such conversation."""
        ((content, version),) = self._link.ask(("HMGET", self._key(id), "content", "version"))
        return None if version is None else Saved(messages_from(id, content), int(version))

    def save(
        self,
        id: str,
        messages: Sequence[Message],
        version: int,
        *,
        title: str | None = None,
        owner: str | None = None,
        run: str | None = None,
    ) -> int:
        """Replace the messages of a conversation, if they still have this version. Returns their new version."""
        now, content = _now(), messages_to_bytes(messages)
        named = (0,) if title is None else (1, _bytes(title))
        holder = _bytes(run or "")
        call = _SAVE(self._key(id), now, _bytes(owner or ""), version, holder, content, len(messages), *named)
        (reply,) = self._link.ask(call)
        if isinstance(reply, bytes):
            raise stale(id, version, int(reply) if reply else None)
        self._link.ask(("ZADD", self._index, now, _bytes(id)))
        new: int = reply
        return new

    def get(self, id: str) -> Conversation | None:
        """The record of a conversation; None if there is no such conversation."""
        (fields,) = self._link.ask(("HMGET", self._key(id), *_FIELDS))
        return None if fields[1] is None else _conversation(id, fields)

    def list(self, *, limit: int = 50, before: str | None = None) -> Sequence[Conversation]:
        """Conversations, the last updated first."""
        start = 0
        if before is not None:
            (rank,) = self._link.ask(("ZREVRANK", self._index, _bytes(before)))
            if rank is None:
                return []
            start = rank + 1
        found: Sequence[Conversation] = []
        while len(found) < limit:
            (members,) = self._link.ask(("ZREVRANGE", self._index, start, start + limit - 1))
            if not members:
                break
            ids = [_text(member) for member in members]
            records = self._link.ask(*(("HMGET", self._key(id), *_FIELDS) for id in ids))
            found = [
                *found,
                *(_conversation(id, one) for id, one in zip(ids, records, strict=True) if one[1] is not None),
            ]
            start += len(members)
        return found[:limit]

    def delete(self, id: str) -> bool:
        """Remove a conversation. False if there is none."""
        (removed,) = self._link.ask(("DEL", self._key(id)))
        self._link.ask(("ZREM", self._index, _bytes(id)))
        return bool(removed)

    def lock(self, id: str, run_id: str, *, instead_of: str | None = None, owner: str | None = None) -> str:
        """Take the lock of a conversation for a run, if it is free. Returns the id of the run that has it now."""
        now = _now()
        call = _LOCK(self._key(id), now, _bytes(owner or ""), _bytes(run_id), _bytes(instead_of or ""))
        (holder,) = self._link.ask(call)
        if _text(holder) == run_id:
            self._link.ask(("ZADD", self._index, now, _bytes(id)))
        return _text(holder)

    def unlock(self, id: str, run_id: str) -> None:
        """Release the lock, if this run has it."""
        (is_gone,) = self._link.ask(_UNLOCK(self._key(id), _bytes(run_id)))
        if is_gone:
            self._link.ask(("ZREM", self._index, _bytes(id)))

    def close(self) -> None:
        """Close the connections."""
        self._link.close()


def _now() -> str:
    return f"{time.time():.6f}"


def _bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogatepass")


def _conversation(id: str, fields: Sequence[Any]) -> Conversation:
    title, created_at, updated_at, messages, version, run, owner = fields
    return Conversation(
        id=id,
        title=_text(title),
        created_at=float(created_at),
        updated_at=float(updated_at),
        messages=int(messages),
        version=int(version),
        run=None if run is None else _text(run),
        owner=None if owner is None else _text(owner),
    )
