"""The interface of stores: conversations by their ids, each a list of flat messages with a version, and one lock for
its open run.

    messages, version = store.load("c-1") or ([], 0)
    version = store.save("c-1", [*messages, question], version)     # refused if another process has saved meanwhile

    if store.lock("c-1", run_id) != run_id:                         # a conversation has one open run at a time
        raise Busy

What holds for every store:

1. Of several who save the same version, one succeeds; the others get a `StaleVersionError`, and nothing of theirs is stored.
2. Of several who lock a conversation, one succeeds, and all get the id of the run that holds it.
3. What was saved does not change with the messages it was saved from.
4. A conversation that was deleted is not created again by one who still has a version of it, nor by a run that had its lock.

Methods are thread-safe. Each has an `a…` form for tasks on asyncio and trio.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ..in_tasks import Closable
from ..messages import Message

__all__ = ["Conversation", "Saved", "Store"]


class Conversation(msgspec.Struct, kw_only=True):
    """The record of a conversation: what a store has of it besides its messages.

    Attributes:
        id: the conversation's.
        title: its title, "" while it has none.
        created_at: when it was first saved or locked, in Unix seconds.
        updated_at: when that was done last.
        messages: how many it has.
        version: the version of its messages; 0 before they were first saved.
        run: the id of the run that holds its lock; None if it is free.
        owner: who created it, as the server's `authorize` returned it; None if it returned no name.
        branch_of: the id of the conversation that it was branched from; None for others.
    """

    id: str
    title: str
    created_at: float
    updated_at: float
    messages: int
    version: int
    run: str | None
    owner: str | None
    branch_of: str | None = None


class Saved(NamedTuple):
    """The messages of a conversation, and their version, which the next `save` names."""

    messages: list[Message]
    version: int


class Store(Closable, ABC):
    """Conversations, by their ids."""

    @abstractmethod
    def load(self, id: str) -> Saved | None:
        """Return the messages of a conversation; None if there is no such conversation. One that was locked and never
        saved has none, in version 0."""

    @abstractmethod
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
        """Replace the messages of a conversation. Returns their new version.

        Args:
            version: the version that these messages replace, as `load` or the last `save` returned it; 0 for a new
                conversation.
            title: its new title; None leaves the title as it is.
            owner: who creates it, where it is new.
            run: the run that saves it: it has to hold the lock, and creates nothing.
            branch_of: the id of the conversation that it is branched from, where it is new.

        Raises:
            StaleVersionError: it has another version by now, was deleted, or the run does not hold its lock.
        """

    @abstractmethod
    def get(self, id: str) -> Conversation | None:
        """Return the record of a conversation; None if there is no such conversation."""

    @abstractmethod
    def list(self, *, owner: str | None = None, limit: int = 50, before: str | None = None) -> Sequence[Conversation]:
        """Return conversations, the last updated first. The cost grows with `limit`, not with the number of conversations.

        Args:
            owner: only those of this owner.
            limit: how many at most.
            before: the id of a conversation: only those that follow it; none if there is no such conversation in the list.
        """

    @abstractmethod
    def delete(self, id: str) -> bool:
        """Remove a conversation, and its lock. False if there is none."""

    @abstractmethod
    def lock(self, id: str, run_id: str, *, instead_of: str | None = None, owner: str | None = None) -> str:
        """Take the lock of a conversation for a run, if it is free. One that does not exist is created.

        Args:
            instead_of: the id of a run that has ended: take the lock from it if it still holds it.
            owner: who creates the conversation, where it is new.

        Returns:
            The id of the run that holds it now.
        """

    @abstractmethod
    def unlock(self, id: str, run_id: str) -> None:
        """Release the lock, if this run holds it. A conversation that was never saved goes with it."""

    def close(self) -> None:
        """Close the store. It cannot be used afterwards. Leaving `with` closes it, too."""

    # -- for tasks

    async def aload(self, id: str) -> Saved | None:
        """As `load`, for tasks."""
        return await self.in_task(self.load, id)

    async def asave(
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
        """As `save`, for tasks."""
        options = {"title": title, "owner": owner, "run": run}
        if branch_of is not None:  # stores that were written before there were branches do not know it
            options["branch_of"] = branch_of
        return await self.in_task(self.save, id, messages, version, **options)

    async def aget(self, id: str) -> Conversation | None:
        """As `get`, for tasks."""
        return await self.in_task(self.get, id)

    async def alist(
        self, *, owner: str | None = None, limit: int = 50, before: str | None = None
    ) -> Sequence[Conversation]:
        """As `list`, for tasks."""
        return await self.in_task(self.list, owner=owner, limit=limit, before=before)

    async def adelete(self, id: str) -> bool:
        """As `delete`, for tasks."""
        return await self.in_task(self.delete, id)

    async def alock(self, id: str, run_id: str, *, instead_of: str | None = None, owner: str | None = None) -> str:
        """As `lock`, for tasks."""
        return await self.in_task(self.lock, id, run_id, instead_of=instead_of, owner=owner)

    async def aunlock(self, id: str, run_id: str) -> None:
        """As `unlock`, for tasks."""
        await self.in_task(self.unlock, id, run_id)
