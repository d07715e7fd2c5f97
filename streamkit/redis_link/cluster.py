"""The nodes of a Redis Cluster: each command goes to the node that has its key, wherever that has moved."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from .link import Link, patiently, words_of
from .server import Away, RedisScript, RedisServer
from .text import text_to_bytes

__all__ = ["Address", "ClusterLink"]

Address: TypeAlias = tuple[str, int]

_SLOTS = 16_384
_REDIRECTIONS = 3  # of one command, before it is tried again later


class _ClusterRedirection(NamedTuple):
    """The node to which another one redirects: from now on, or only for this command (`asking`) while a key moves."""

    slot: int
    address: Address
    asking: bool


class ClusterLink(Link):
    """The keys are on the nodes of a Cluster (Redis 7 or newer). What is published on a run's channel stays on the node
    that has the run.

    Args:
        make_server: makes the connections to a node.
        seeds: nodes that list the others.
        scripts: those that are called.
        failures: what a subscriber raises when its connection breaks.
    """

    publish = "SPUBLISH"

    def __init__(
        self,
        make_server: Callable[[Address], RedisServer],
        seeds: Sequence[Address],
        scripts: Sequence[RedisScript],
        failures: tuple[type[Exception], ...],
    ) -> None:
        super().__init__(failures)
        self._make_server = make_server
        self._seeds = seeds
        self._sharded = {script.sha: script.sharded().sha for script in scripts}
        self._servers: dict[Address, RedisServer] = {}
        self._owners: list[Address | None] = []  # by slot; empty before a node has listed them
        self._homes: list[int] = []  # by slot, as it was at first
        self._watchers: list[Callable[[], None]] = []
        self._lock = threading.RLock()
        self._looked_up = float("-inf")  # when a node listed the owners last

    # -- commands

    def send(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Send commands together, one pipeline a node."""
        began = time.monotonic()
        try:
            self._read_slots(began)
        except Away as away:
            return [away] * len(commands)
        replies: list[Any] = [Away("no node of the Redis Cluster has this slot")] * len(commands)
        routes: dict[int, tuple[Address, bool]] = {}
        for index, command in enumerate(commands):
            owner = self._owners[slot_of(_key(command))]
            if owner is not None:
                routes[index] = owner, False
        is_stale = len(routes) < len(commands)
        for _ in range(1 + _REDIRECTIONS):
            redirected: dict[int, tuple[Address, bool]] = {}
            for index, address, reply in self._send(commands, routes):
                replies[index] = reply
                is_stale = is_stale or isinstance(reply, Away)
                if (to := _redirection(reply, address)) is not None:
                    redirected[index] = to.address, to.asking
                    if not to.asking:
                        self._move(to)
            if not redirected:
                break
            routes = redirected
        if is_stale:
            self._look_up(began)
        return replies

    def _send(
        self, commands: Sequence[Sequence[Any]], routes: dict[int, tuple[Address, bool]]
    ) -> Iterator[tuple[int, Address, Any]]:
        """Send commands to their nodes; gives the position of each, its node and its reply."""
        indexes_of: dict[Address, list[int]] = {}
        for index, (address, _) in routes.items():
            indexes_of.setdefault(address, []).append(index)
        for address, indexes in indexes_of.items():
            pipeline: list[Sequence[Any]] = []
            for index in indexes:
                if routes[index][1]:
                    pipeline.append(("ASKING",))
                pipeline.append(self._for_cluster(commands[index]))
            replies = iter(self._server(address).send(pipeline))
            for index in indexes:
                if routes[index][1]:
                    next(replies)
                yield index, address, next(replies)

    def _for_cluster(self, command: Sequence[Any]) -> Sequence[Any]:
        return ("EVALSHA", self._sharded[command[1]], *command[2:]) if command[0] == "EVALSHA" else command

    def _server(self, address: Address) -> RedisServer:
        server = self._servers.get(address)
        if server is None:
            with self._lock:
                server = self._servers.get(address)
                if server is None:
                    server = self._servers[address] = self._make_server(address)
        return server

    # -- who has which slot

    def home(self, key: bytes) -> int:
        """Return the number of the threads that serve a key."""
        if not self._homes:
            patiently(lambda: self._read_slots(time.monotonic()))
        return self._homes[slot_of(key)]

    def server_of(self, key: bytes) -> RedisServer | None:
        """Return the node that has a key or a channel now."""
        owner = self._owners[slot_of(key)] if self._owners else None
        return None if owner is None else self._server(owner)

    def on(self, server: RedisServer, channels: Iterable[bytes]) -> set[bytes]:
        """Return those of the channels that a node has now."""
        mine = {address for address, one in [*self._servers.items()] if one is server}
        return {channel for channel in channels if self._owners and self._owners[slot_of(channel)] in mine}

    def _read_slots(self, now: float) -> None:
        """Look up the owner of each slot, unless that was done. Raises `Away` where no node can be reached."""
        if not self._owners:
            self._look_up(now)
            if not self._owners:
                raise Away("no node of the Redis Cluster can be reached")

    def _look_up(self, since: float) -> None:
        """Ask any node who has which slot, unless another thread has since then."""
        with self._lock:
            if self._looked_up >= since:
                return
            nodes = {*self._servers, *self._seeds}
            for address in sorted(
                nodes, key=lambda one: self._server(one).broken_at
            ):  # the one that broke last is last
                (reply,) = self._server(address).send([("CLUSTER", "SLOTS")])
                owners = None if isinstance(reply, Exception) else _owners(reply, address)
                if owners is not None:
                    self._looked_up = time.monotonic()
                    has_changed = self._replace(owners)
                    break
            else:
                return
        if has_changed:
            self._report()

    def _replace(self, owners: list[Address | None]) -> bool:
        """Take over who has which slot. Returns whether one has moved. (On a node that has gained slots, leases may have
        expired meanwhile of producers that could not renew them: it counts as broken.)"""
        before, self._owners = self._owners, owners
        if not before:
            order = {owner: number for number, owner in enumerate(sorted({one for one in owners if one is not None}))}
            self._homes = [0 if owner is None else order[owner] for owner in owners]
            return False
        for owner in {new for old, new in zip(before, owners, strict=True) if new is not None and new != old}:
            self._server(owner).broken_at = time.monotonic()
        return before != owners

    def _move(self, to: _ClusterRedirection) -> None:
        """A node says who has a slot."""
        with self._lock:
            if self._owners[to.slot] == to.address:
                return
            self._replace([*self._owners[: to.slot], to.address, *self._owners[to.slot + 1 :]])
        self._report()

    def _report(self) -> None:
        for call in self._watchers:
            call()

    def when_moved(self, call: Callable[[], None]) -> None:
        """Call this whenever keys are on other nodes than before."""
        self._watchers.append(call)

    # -- subscriptions

    def subscribe(self, subscriber: Any, channels: Iterable[bytes]) -> None:
        """Subscribe to channels, each by a command of its own, as they are in different slots."""
        for channel in channels:
            subscriber.ssubscribe(channel)

    def unsubscribe(self, subscriber: Any, channels: Iterable[bytes]) -> None:
        """End subscriptions."""
        for channel in channels:
            subscriber.sunsubscribe(channel)

    def lost(self, server: RedisServer, error: Exception | None = None) -> None:
        """A subscriber has lost its connection, or a channel."""
        address = next((address for address, one in [*self._servers.items()] if one is server), ("", 0))
        to = _redirection(error, address)
        if to is not None:
            self._move(to)
        else:
            self._look_up(time.monotonic())

    def close(self) -> None:
        """Close all connections."""
        for server in [*self._servers.values()]:
            server.close()


@functools.lru_cache(maxsize=1 << 14)
def slot_of(key: bytes) -> int:
    """Return the slot of a key."""
    from redis.crc import key_slot

    return key_slot(key)


def _key(command: Sequence[Any]) -> bytes:
    """Return the first key of a command, or its channel."""
    key: str | bytes = command[3] if command[0] == "EVALSHA" else command[1]
    return text_to_bytes(key) if isinstance(key, str) else key


def _redirection(reply: object, node: Address) -> _ClusterRedirection | None:
    """Return where an error says that the key is; None if it says something else. An empty host is that of the node
    that said it."""
    words = words_of(reply) if isinstance(reply, Exception) else [""]
    if words[0] not in ("MOVED", "ASK"):
        return None
    host, _, port = words[2].rpartition(":")
    return _ClusterRedirection(int(words[1]), (host or node[0], int(port)), words[0] == "ASK")


def _owners(reply: Any, node: Address) -> list[Address | None] | None:
    """Return the owner of each slot, from a reply to CLUSTER SLOTS; None if the reply has none."""
    owners: list[Address | None] = [None] * _SLOTS
    for first, last, master, *_ in reply:
        address = (master[0].decode() if master[0] else node[0], int(master[1]))
        owners[first : last + 1] = [address] * (last + 1 - first)
    return owners if any(owners) else None
