"""The lists of runs on a Redis server, the newest first: of all, of a conversation, of an owner, and of both.

An entry is written when a run is opened or taken over, renewed while it has a producer, and goes with the run: with one that
has ended after `ttl_ended`, and with an open one never before its record expires. Where a process died between two of these
steps, an entry may be left over; whoever lists it finds no such run, or one that has ended, and removes it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...errors import SourceError
from ...redis_link import Link
from ..interface import lists_of
from .keys import ListKeys
from .outbox import Outbox
from .scripts import LIST, LISTED

__all__ = ["RunIndex"]

_log = logging.getLogger("streamkit.relay")


class RunIndex:
    """The lists of one relay.

    Args:
        link: its connections.
        prefix: what its keys begin with.
    """

    def __init__(self, link: Link, prefix: str) -> None:
        self._link = link
        self._prefix = prefix

    def of(self, info: Mapping[str, Any]) -> Sequence[ListKeys]:
        """Return the keys of the lists that have a run, by its info."""
        return [ListKeys.of(self._prefix, conversation, owner) for conversation, owner in lists_of(info)]

    def enter(self, outbox: Outbox) -> None:
        """Enter the run of a new producer. A run that cannot be entered is written and read nevertheless."""
        for reply in self._link.ask_each(*(one.command(outbox) for one in outbox.listings(is_open=True))):
            if isinstance(reply, SourceError):
                _log.warning("run %r is missing in a list: %s", outbox.run_id, reply)

    def remove(self, run_id: str, info: Mapping[str, Any]) -> None:
        """Remove a run that was deleted."""
        self._link.ask_each(*(_removal(keys, run_id) for keys in self.of(info)))

    def page(
        self, conversation: str | None, owner: str | None, *, open_only: bool, limit: int, before: bytes
    ) -> Sequence[bytes]:
        """Return the ids of up to `limit` runs, 1 or more, as Redis has them."""
        keys = ListKeys.of(self._prefix, conversation, owner)
        (members,) = self._link.ask(LIST(*keys, int(open_only), limit, before))
        return members  # type: ignore[no-any-return]  # a reply

    def count_open(self, owner: str) -> int:
        """Return how many entries the list of an owner's open runs has."""
        (found,) = self._link.ask(("ZCARD", ListKeys.of(self._prefix, None, owner).open))
        return int(found)

    def drop(
        self, conversation: str | None, owner: str | None, gone: Collection[bytes], ended: Collection[bytes]
    ) -> None:
        """Remove entries of runs that are gone, and those of runs that have ended from the list of open ones."""
        keys = ListKeys.of(self._prefix, conversation, owner)
        commands: list[Sequence[Any]] = [_removal(keys, member) for member in gone]
        if ended:
            commands.append(("ZREM", keys.open, *ended))
        if commands:
            self._link.ask_each(*commands)


def _removal(keys: ListKeys, member: str | bytes) -> Sequence[Any]:
    return LISTED(*keys, member, 0, 0, 0)
