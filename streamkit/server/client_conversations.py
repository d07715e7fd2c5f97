"""The conversations of runs that clients of model APIs began, and when each is deleted.

| the request that began the run | the conversation's id | the conversation is deleted |
|---|---|---|
| has the answer stored | `v1-` and the run's id | when its client deletes the response |
| does not | `turn-` and the run's id | when the run ends; if it ends with something for the client to answer, once that is answered |

A client that does not answer within an hour, or has too many such conversations, finds its conversation deleted. A later answer then
continues the history in its own request.
"""

from __future__ import annotations

import logging
import threading
import time

from ..errors import StreamkitError
from ..relay import Relay
from ..stores import Store
from .records import Context

__all__ = ["ClientConversations", "conversation_of_run", "conversations_of_run"]

log = logging.getLogger("streamkit.server")

_STORED, _TEMPORARY = "v1-", "turn-"
LONGEST = 3600.0  # seconds for which a client may take to answer
_PAUSE = 600.0  # seconds between two looks through the store
_PART = 200  # conversations
_ANSWERED = ("completed", "incomplete", "requires_action")


def conversation_of_run(run_id: str, *, stored: bool = True) -> str:
    """Return the id of the conversation of a run that a client of a model's API began."""
    return f"{_STORED if stored else _TEMPORARY}{run_id}"


def conversations_of_run(run_id: str) -> list[str]:
    """Return the ids that the conversation of such a run may have."""
    return [conversation_of_run(run_id, stored=stored) for stored in (False, True)]


def _is_temporary(conversation_id: str) -> bool:
    """Whether a conversation is deleted at its run's end, or once its client has answered."""
    return conversation_id.startswith(_TEMPORARY)


class ClientConversations:
    """Deletes the conversations that nothing continues any more. Any thread may call it.

    Args:
        store: the store of the conversations.
        relay: the relay of their runs.
        most: the greatest number of conversations of one owner that wait for an answer, of the runs of this process.
    """

    def __init__(self, store: Store, relay: Relay, most: int) -> None:
        self._store = store
        self._relay = relay
        self._most = max(most, 1)
        self._lock = threading.Lock()
        self._waiting: dict[str | None, dict[str, float]] = {}  # by owner: since when each waits, the oldest first
        self._next_look = 0.0  # in Unix seconds
        self._seen = 0.0  # when the newest look began

    def end(self, context: Context, status: str) -> None:
        """Delete what is not needed after this run has ended. If it failed, the conversation that it continued stays: its client may send
        the request again."""
        id, before = context.conversation_id, context.continues
        if before is not None and _is_temporary(before) and status in _ANSWERED:
            self._remove(context.owner, before)
        if _is_temporary(id) and status == "requires_action":
            self._add(context.owner, id)
        elif _is_temporary(id):
            self._remove(context.owner, id)

    def _add(self, owner: str | None, id: str) -> None:
        """Add a conversation that waits for its client's answer. Beyond the limit, the oldest ones are deleted."""
        with self._lock:
            waiting = self._waiting.setdefault(owner, {})
            waiting[id] = time.time()
            beyond = [*waiting][: -self._most]
        for old in beyond:
            self._remove(owner, old)

    def _remove(self, owner: str | None, id: str) -> None:
        self._store.delete(id)
        with self._lock:
            waiting = self._waiting.get(owner, {})
            waiting.pop(id, None)
            if not waiting:
                self._waiting.pop(owner, None)

    def look(self) -> None:
        """Delete the conversations that have waited for too long, also those of processes that have ended."""
        now = time.time()
        with self._lock:
            if now < self._next_look:
                return
            self._next_look = now + _PAUSE
            old = [
                (owner, id)
                for owner, waiting in self._waiting.items()
                for id, since in waiting.items()
                if since < now - LONGEST
            ]
        try:
            for owner, id in old:
                self._remove(owner, id)
            self._remove_old(now)
        except StreamkitError as error:
            log.error("conversations that wait cannot be looked through: %s", error, exc_info=error)

    def _remove_old(self, now: float) -> None:
        until, before = self._seen - LONGEST - _PAUSE, None  # those that were old at the last look are deleted
        while part := self._store.list(limit=_PART, before=before):
            for one in part:
                if _is_temporary(one.id) and one.updated_at < now - LONGEST and not self._runs(one.run):
                    self._store.delete(one.id)
                else:
                    before = one.id
            if len(part) < _PART or part[-1].updated_at < until:
                break
        self._seen = now

    def _runs(self, run_id: str | None) -> bool:
        record = None if run_id is None else self._relay.get(run_id)
        return record is not None and not record.has_ended
