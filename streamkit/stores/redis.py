"""Conversations on a Redis server.

sk:{conversation}:saved         hash        its messages, and its record
sk:conversations                sorted set  all of them, by when they were updated
sk:{owner=…}:conversations      sorted set  those of an owner
sk:conversations:have-owners    string      whether each conversation is in the list of its owner

A list is in a slot of its own, so it is written after the conversation, and again whenever that is saved or locked. Whoever
lists an entry that is left over removes it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any

from ..arguments import check_page
from ..errors import SourceError
from ..messages import Message
from ..redis_link import RedisScript, check_prefix, connect, ids_of, tag_of, text_from, text_to_bytes
from .content import FIELDS, conversation_from, messages_to_bytes, saved_from, stale
from .interface import Conversation, Saved, Store

__all__ = ["RedisStore"]

_log = logging.getLogger("streamkit.stores")

# Create a conversation that does not exist. ARGV[1] is the time, ARGV[2] its owner, "" for none; `branch_of` likewise.
_CREATE = """
local function create(branch_of)
  redis.call('HSET', KEYS[1], 'title', '', 'created_at', ARGV[1], 'messages', 0, 'version', 0, 'content', '[]')
  if ARGV[2] ~= '' then redis.call('HSET', KEYS[1], 'owner', ARGV[2]) end
  if branch_of ~= '' then redis.call('HSET', KEYS[1], 'branch_of', branch_of) end
end
"""

# Arguments: now, owner, version, the run that has to hold the lock ("" for none), content, its count of messages, the
# conversation that it is a branch of ("" for none), 1 and the title or 0. Returns the new version and the owner, or the version that it has, or "" if it was deleted.
_SAVE = RedisScript(
    1,
    _CREATE
    + """
local version = redis.call('HGET', KEYS[1], 'version')
if not version and ARGV[3] == '0' and ARGV[4] == '' then
  create(ARGV[7])
  version = '0'
end
if version ~= ARGV[3] then return version or '' end
if ARGV[4] ~= '' and redis.call('HGET', KEYS[1], 'run') ~= ARGV[4] then return version end
redis.call('HSET', KEYS[1], 'content', ARGV[5], 'messages', ARGV[6], 'updated_at', ARGV[1])
if ARGV[8] == '1' then redis.call('HSET', KEYS[1], 'title', ARGV[9]) end
return {redis.call('HINCRBY', KEYS[1], 'version', 1), redis.call('HGET', KEYS[1], 'owner') or ''}
""",
)

# Arguments: now, owner, the run, the run that is over. Returns the run that has the lock, and the owner.
_LOCK = RedisScript(
    1,
    _CREATE
    + """
if redis.call('EXISTS', KEYS[1]) == 0 then create('') end
local run = redis.call('HGET', KEYS[1], 'run')
if not run or run == ARGV[4] then
  redis.call('HSET', KEYS[1], 'run', ARGV[3], 'updated_at', ARGV[1])
  run = ARGV[3]
end
return {run, redis.call('HGET', KEYS[1], 'owner') or ''}
""",
)

# Remove a conversation. Returns its owner, or nil if there is none.
_REMOVE = """
local function remove()
  local owner = redis.call('HGET', KEYS[1], 'owner') or ''
  return redis.call('DEL', KEYS[1]) == 1 and owner
end
"""
_DELETE = RedisScript(1, _REMOVE + "return remove()")

# Argument: the run. Returns the owner of the conversation if that, which was never saved, was removed too.
_UNLOCK = RedisScript(
    1,
    _REMOVE
    + """
if redis.call('HGET', KEYS[1], 'run') ~= ARGV[1] then return nil end
if redis.call('HGET', KEYS[1], 'version') == '0' then return remove() end
redis.call('HDEL', KEYS[1], 'run')
return nil
""",
)

# Some entries of a list, with their scores. (Versions of redis-py differ in how they return those of the command itself.)
_SCAN = RedisScript(1, "return redis.call('ZSCAN', KEYS[1], ARGV[1], 'COUNT', 500)")

_AT_ONCE = 100  # records that are read in one exchange


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
        self._prefix = check_prefix(prefix)
        self._link = connect(target, (_SAVE, _LOCK, _UNLOCK, _DELETE, _SCAN), prefix)
        self._all = f"{prefix}:conversations"
        self._has_owners = False  # whether each conversation is known to be in the list of its owner

    def _key(self, id: str) -> bytes:
        return text_to_bytes(f"{self._prefix}:{tag_of(id)}:saved")

    def _list_keys(self, owner: bytes) -> Iterable[str | bytes]:
        return (self._all, self._list_of(text_from(owner))) if owner else (self._all,)

    def _list_of(self, owner: str) -> bytes:
        return text_to_bytes(f"{self._prefix}:{tag_of(f'owner={owner}')}:conversations")

    def load(self, id: str) -> Saved | None:
        """Return the messages of a conversation and their version; None if there is no such conversation."""
        ((content, version),) = self._link.ask(("HMGET", self._key(id), "content", "version"))
        return None if version is None else saved_from(id, content or b"", version)

    def save(
        self,
        id: str,
        messages: Sequence[Message],
        version: int,
        *,
        title: str | None = None,
        owner: str | None = None,
        run: str | None = None,
        branch_of: str | None = None,
    ) -> int:
        """Replace the messages of a conversation, if they still have this version. Returns their new version."""
        now, content = _now(), messages_to_bytes(messages)
        named = (0,) if title is None else (1, title)
        fields = now, owner or "", version, run or "", content, len(messages), branch_of or "", *named
        call = _SAVE(self._key(id), *fields)
        (reply,) = self._link.ask(call)
        if isinstance(reply, bytes):
            raise stale(id, version, int(reply) if reply else None)
        self._enter(id, reply[1], now)
        new: int = reply[0]
        return new

    def _enter(self, id: str, owner: bytes, now: str) -> None:
        """Enter a conversation in the lists that it belongs to."""
        self._link.ask_each(*(("ZADD", key, now, id) for key in self._list_keys(owner)))

    def _leave(self, id: str, owner: bytes) -> None:
        self._link.ask_each(*(("ZREM", key, id) for key in self._list_keys(owner)))

    def get(self, id: str) -> Conversation | None:
        """Return the record of a conversation; None if there is no such conversation."""
        (fields,) = self._link.ask(self._record_command(id))
        return self._record(id, fields)

    def _record_command(self, id: str) -> Sequence[Any]:
        return ("HMGET", self._key(id), *FIELDS)

    def _record(self, id: str, fields: Any) -> Conversation | None:
        if isinstance(fields, SourceError):
            raise fields
        return (
            None if all(field is None for field in fields) else conversation_from(text_to_bytes(id), fields, text_from)
        )

    def list(self, *, owner: str | None = None, limit: int = 50, before: str | None = None) -> Sequence[Conversation]:
        """Return conversations, the last updated first. One that cannot be read is left out, and logged as a warning."""
        check_page(limit, owner=owner, before=before)
        if owner is not None:
            self._enter_all()
        key, start = self._all if owner is None else self._list_of(owner), 0
        if before is not None:
            (rank,) = self._link.ask(("ZREVRANK", key, before))
            if rank is None:
                return []
            start = rank + 1
        found: Sequence[Conversation] = []
        left_over: Sequence[bytes] = []
        while (wanted := min(limit - len(found), _AT_ONCE)) > 0:
            (members,) = self._link.ask(("ZREVRANGE", key, start, start + wanted - 1))
            ids = ids_of(members)
            for id, fields in zip(ids, self._link.ask_each(*map(self._record_command, ids)), strict=True):
                try:
                    record = self._record(id, fields)
                except SourceError as error:
                    _log.warning("%s", error)
                    continue
                found, left_over = ([*found, record], left_over) if record else (found, [*left_over, ids[id]])
            if len(members) < wanted:
                break
            start += len(members)
        if left_over:
            self._link.ask(("ZREM", key, *left_over))
        return found

    def _enter_all(self) -> None:
        """Enter each conversation in the list of its owner, once: a version without these lists may have saved some."""
        mark = f"{self._all}:have-owners"
        if self._has_owners or self._link.ask(("EXISTS", mark)) == [1]:
            self._has_owners = True
            return
        cursor = b""
        while cursor != b"0":
            ((cursor, pairs),) = self._link.ask(_SCAN(self._all, cursor or b"0"))
            ids = ids_of(pairs[::2])
            scores = dict(zip(pairs[::2], pairs[1::2], strict=True))
            owners = self._link.ask_each(*(("HGET", self._key(id), "owner") for id in ids))
            owned = [
                (owner, member) for owner, member in zip(owners, ids.values(), strict=True) if isinstance(owner, bytes)
            ]
            self._link.ask_each(*(("ZADD", self._list_of(text_from(owner)), scores[one], one) for owner, one in owned))
        self._link.ask(("SET", mark, "1"))
        self._has_owners = True

    def delete(self, id: str) -> bool:
        """Remove a conversation. False if there is none."""
        (owner,) = self._link.ask(_DELETE(self._key(id)))
        self._leave(id, owner or b"")
        return owner is not None

    def lock(self, id: str, run_id: str, *, instead_of: str | None = None, owner: str | None = None) -> str:
        """Take the lock of a conversation for a run, if it is free. Returns the id of the run that has it now."""
        now = _now()
        call = _LOCK(self._key(id), now, owner or "", run_id, instead_of or "")
        ((holder, stored_owner),) = self._link.ask(call)
        if text_from(holder) == run_id:
            self._enter(id, stored_owner, now)
        return text_from(holder)

    def unlock(self, id: str, run_id: str) -> None:
        """Release the lock, if this run has it."""
        (owner,) = self._link.ask(_UNLOCK(self._key(id), run_id))
        if owner is not None:
            self._leave(id, owner)

    def close(self) -> None:
        """Close the connections."""
        self._link.close()


def _now() -> str:
    return f"{time.time():.6f}"
