"""A Redis server of the tests' own, on a free port of the loopback and in a temporary folder."""

from __future__ import annotations

import atexit
import functools
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from streamkit.relay.redis import RedisRelay

__all__ = ["ON_REDIS", "Maker", "RedisServer", "needs_redis", "shared_server"]

PROGRAM = shutil.which("redis-server")

needs_redis = pytest.mark.skipif(PROGRAM is None, reason="there is no program redis-server")


class RedisServer:
    """A server, which can be paused, killed and started again.

    Args:
        keeps: whether it keeps its data over a restart: an append-only file, written out every second.
    """

    def __init__(self, *, keeps: bool = False) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.folder = tempfile.mkdtemp(prefix="streamkit-redis-")
        self._keeps = keeps
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

    def kill(self) -> None:
        """End it without a warning."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def cut(self, size: int) -> None:
        """Lose the end of what it wrote to its disk, as a machine does that crashes. It is not running."""
        newest = max(Path(self.folder, "appendonlydir").glob("*.incr.aof"), key=lambda path: path.stat().st_mtime)
        with open(newest, "r+b") as file:
            file.truncate(max(0, newest.stat().st_size - size))

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


@functools.cache
def shared_server() -> RedisServer:
    """The server that the tests of this process share, each with a prefix of its own."""
    server = RedisServer()
    atexit.register(server.close)
    return server


class Maker:
    """Makes relays on the server that the tests of this process share, each with keys of its own. They have the options of
    a `MemoryRelay`, too."""

    def __init__(self) -> None:
        self._made: list[RedisRelay] = []
        self._numbers = count(1)

    def make(self, **options: Any) -> RedisRelay:
        """A new relay."""
        names = {"ttl": "ttl_ended", "ttl_open": "ttl_running"}
        options = {names.get(name, name): value for name, value in options.items()}
        relay = RedisRelay(shared_server().url, prefix=f"t{next(self._numbers)}", **options)
        self._made.append(relay)
        return relay

    def close(self) -> None:
        """Close those that were made."""
        while self._made:
            self._made.pop().close()


ON_REDIS = Maker()
