"""A Redis server of the tests' own, on a free port of the loopback and in a temporary folder."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.sentinel import Sentinel

from streamkit.relay.redis import RedisRelay

__all__ = [
    "ON_REDIS",
    "Cluster",
    "Maker",
    "RedisServer",
    "Watched",
    "needs_redis",
    "shared_server",
    "shared_url",
    "wait_for",
]

PROGRAM = shutil.which("redis-server")

needs_redis = pytest.mark.skipif(PROGRAM is None, reason="there is no program redis-server")


class RedisServer:
    """A server, which can be paused, killed and started again.

    Args:
        keeps: whether it keeps its data over a restart: an append-only file, written out every second.
        options: more of the program's options.
    """

    def __init__(self, *, keeps: bool = False, port: int | None = None, options: Sequence[str] = ()) -> None:
        self.port = port or free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.folder = tempfile.mkdtemp(prefix="streamkit-redis-")
        self._keeps = keeps
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        assert PROGRAM is not None
        append = (
            ["--appendonly", "yes", "--appendfsync", "everysec", "--aof-load-truncated", "yes"]
            if self._keeps
            else ["--appendonly", "no"]
        )
        own = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", self.folder, "--save", "", *append]
        own += self._options
        self._process = subprocess.Popen(
            [PROGRAM, *own], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 30
        while not self._answers():
            assert time.monotonic() < deadline, "redis-server did not start"
            assert self._process.poll() is None, "redis-server ended at once"
            time.sleep(0.005)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(5) == b"+PONG"
        except OSError:
            return False

    def command(self, *words: object) -> Any:
        """The reply to a command; text is decoded."""
        with redis.Redis(port=self.port, decode_responses=True) as client:
            return client.execute_command(*words)

    def calls(self, name: str = "") -> int:
        """How many commands it has done by now, those in scripts included; or how many of one name."""
        done = self.command("INFO", "commandstats")
        wanted = [f"cmdstat_{name}"] if name else [one for one in done if one != "cmdstat_info"]
        return sum(done[one]["calls"] for one in wanted if one in done)

    def calls_of(self, action: Callable[[], object], name: str = "") -> int:
        """How many commands (of one name) an action does. Between them may come those of a relay's own threads, which renew
        what is open: the least of three counts is without them."""
        counts: list[int] = []
        for _ in range(3):
            before = self.calls(name)
            action()
            counts.append(self.calls(name) - before)
        return min(counts)

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not ended."""
        return self._process is not None and self._process.poll() is None

    def write_out(self) -> None:
        """Have it write what it holds to its disk, now."""
        for when in ("always", "everysec"):
            self.command("CONFIG", "SET", "appendfsync", when)
            self.command("SET", "written", when)

    def kill(self) -> None:
        """End it without a warning."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _file(self) -> Path:
        return max(Path(self.folder, "appendonlydir").glob("*.incr.aof"), key=lambda path: path.stat().st_mtime)

    @property
    def size(self) -> int:
        """How many bytes it has written to its disk."""
        return self._file().stat().st_size

    def cut(self, size: int, floor: int = 0) -> None:
        """Lose the end of what it wrote to its disk, as a machine does that crashes, but not the first `floor` bytes. It is
        not running."""
        with open(self._file(), "r+b") as file:
            file.truncate(max(floor, self.size - size))

    def pause(self) -> None:
        """Stop it where it is."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End it, and remove what it wrote."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


_PORTS = cycle(range(10_000 + os.getpid() % 300 * 64, 10_064 + os.getpid() % 300 * 64, 2))


def free_port() -> int:
    """A port of the loopback that nobody uses, nor the next one, which a node of a Cluster takes, too.

    It is none that the system gives to connections: one might get it before the server does, or while that is down. Each
    process of tests has its own.
    """
    for port in _PORTS:
        with contextlib.suppress(OSError):
            for number in (port, port + 1):
                socket.create_server(("127.0.0.1", number)).close()
            return port
    raise AssertionError("unreachable")


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Cluster:
    """A Redis Cluster: three masters, and replicas of the first ones."""

    def __init__(self, *, replicas: int = 0) -> None:
        self.masters = [self._node() for _ in range(3)]
        self.replicas = [self._node() for _ in range(replicas)]
        self.url = self.masters[0].url.replace("redis://", "redis+cluster://")
        for server in self.servers[1:]:
            server.command("CLUSTER", "MEET", "127.0.0.1", self.masters[0].port, self.masters[0].port + 1)
        bounds = (0, 5461, 10923, 16384)
        for master, start, end in zip(self.masters, bounds, bounds[1:], strict=False):
            master.command("CLUSTER", "ADDSLOTSRANGE", start, end - 1)
        for replica, master in zip(self.replicas, self.masters, strict=False):
            self._replicate(replica, self.name(master))
        for server in self.servers:
            wait_for(functools.partial(self._is_formed, server))

    @staticmethod
    def _node() -> RedisServer:
        port = free_port()
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port", str(port + 1))
        return RedisServer(port=port, options=(*options, "--cluster-require-full-coverage", "no"))

    @staticmethod
    def _replicate(replica: RedisServer, master: str) -> None:
        wait_for(lambda: master in replica.command("CLUSTER", "NODES"))
        replica.command("CLUSTER", "REPLICATE", master)
        wait_for(lambda: replica.command("INFO", "replication")["master_link_status"] == "up")

    def _is_formed(self, server: RedisServer) -> bool:
        nodes, info = str(server.command("CLUSTER", "NODES")), str(server.command("CLUSTER", "INFO"))
        return "cluster_state:ok" in info and nodes.count("slave") == len(self.replicas)

    @property
    def servers(self) -> list[RedisServer]:
        """All of them."""
        return [*self.masters, *self.replicas]

    @staticmethod
    def name(server: RedisServer) -> str:
        """A node's id."""
        return str(server.command("CLUSTER", "MYID"))

    def owners(self) -> list[tuple[int, int, RedisServer]]:
        """The first and last slot of each range, and the master that has it now, as the first one that runs says."""
        alive = next(server for server in self.servers if server.is_running)
        by_port = {server.port: server for server in self.servers}
        reply = alive.command("CLUSTER", "SLOTS")
        return [(first, last, by_port[master[1]]) for first, last, master, *_ in reply]

    def owner(self, slot: int) -> RedisServer:
        """The master that has a slot."""
        return next(server for first, last, server in self.owners() if first <= slot <= last)

    def move(self, slot: int, halfway: Callable[[], object] = lambda: None) -> RedisServer:
        """Move a slot to another master. `halfway` is called after each of its keys but the last. Returns the master."""
        source = self.owner(slot)
        masters = {server for _, _, server in self.owners()}
        target = next(server for server in masters if server is not source)
        target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", self.name(source))
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", self.name(target))
        while keys := source.command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source.command("MIGRATE", "127.0.0.1", target.port, keys[0], 0, 5000)
            if len(keys) > 1:
                halfway()
        for server in (target, source, *(masters - {target, source})):
            server.command("CLUSTER", "SETSLOT", slot, "NODE", self.name(target))
        return target

    def make_master(self, server: RedisServer) -> None:
        """Give a node that has become a replica the slots of its master."""
        wait_for(lambda: self._takes_over(server))

    def _takes_over(self, server: RedisServer) -> bool:
        with contextlib.suppress(redis.ResponseError):  # it is a master, or does not know its own yet
            server.command("CLUSTER", "FAILOVER")
        return any(owner is server for _, _, owner in self.owners())

    def close(self) -> None:
        """End them all."""
        for server in self.servers:
            server.close()


class Watched:
    """A master and a replica, and a Sentinel that makes the replica the master if that one is gone."""

    name = "main"

    def __init__(self) -> None:
        assert PROGRAM is not None
        self.master = RedisServer()
        self.replica = RedisServer(options=("--replicaof", "127.0.0.1", str(self.master.port)))
        wait_for(lambda: self.replica.command("INFO", "replication")["master_link_status"] == "up")
        self.port = free_port()
        self._folder = tempfile.mkdtemp(prefix="streamkit-sentinel-")
        settings = Path(self._folder, "sentinel.conf")
        settings.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self._folder}\n"
            f"sentinel monitor {self.name} 127.0.0.1 {self.master.port} 1\n"
            f"sentinel down-after-milliseconds {self.name} 500\nsentinel failover-timeout {self.name} 2000\n"
        )
        self._sentinel = subprocess.Popen([PROGRAM, str(settings), "--sentinel"], stdout=subprocess.DEVNULL)
        wait_for(self._knows_the_replica)

    def _knows_the_replica(self) -> bool:
        with contextlib.suppress(redis.ConnectionError), redis.Redis(port=self.port, decode_responses=True) as client:
            return any(one["flags"] == "slave" for one in client.sentinel_slaves(self.name))
        return False

    def client(self) -> Any:
        """A client of redis-py, which asks the Sentinel for the master."""
        make: Any = Sentinel
        return make([("127.0.0.1", self.port)]).master_for(self.name)

    def close(self) -> None:
        """End them all."""
        self._sentinel.kill()
        self._sentinel.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        self.master.close()
        self.replica.close()


@functools.cache
def shared_server() -> RedisServer:
    """The server that the tests of this process share, each with a prefix of its own."""
    server = RedisServer()
    atexit.register(server.close)
    return server


@functools.cache
def shared_url() -> str:
    """Where the relays of tests are that may be anywhere: that server; or with STREAMKIT_TEST_REDIS=cluster, a Cluster."""
    if os.environ.get("STREAMKIT_TEST_REDIS") != "cluster":
        return shared_server().url
    cluster = Cluster()
    atexit.register(cluster.close)
    return cluster.url


class Maker:
    """Makes relays that the tests of this process share, each with keys of its own. They have the options of a
    `MemoryRelay`, too."""

    def __init__(self) -> None:
        self._made: list[RedisRelay] = []
        self._numbers = count(1)

    def make(self, **options: Any) -> RedisRelay:
        """A new relay."""
        relay = RedisRelay(shared_url(), prefix=f"t{next(self._numbers)}", **options)
        self._made.append(relay)
        return relay

    def close(self) -> None:
        """Close those that were made."""
        while self._made:
            self._made.pop().close()


ON_REDIS = Maker()
