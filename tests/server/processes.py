"""Server processes behind one Redis, which tests kill and stop."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from ..redis_server import RedisServer
from .parts import TOKEN, Agents, Client

__all__ = ["Process", "process"]

# They are forked from a process that has imported this module, and has no threads: so each is there in no time.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(
    [
        *("streamkit.stores.redis", "streamkit.relay.redis.relay", "streamkit.server.app", "streamkit.protocols.turns"),
        *(
            "streamkit.protocols.openai_chat.choice",
            "streamkit.protocols.openai_chat.plain",
            "streamkit.protocols.output",
        ),
        *("streamkit.protocols.openai_chat.usage", "streamkit.core.argument_fields", "streamkit.server.ui_routes"),
        *("streamkit.server.api_routes", "streamkit.server.response_routes", "streamkit.server.request_guard"),
        *(
            "uvicorn.lifespan.on",
            "uvicorn.protocols.http.auto",
            "uvicorn.protocols.websockets.auto",
            "uvicorn.loops.asyncio",
        ),
        *(
            "openai.resources.chat.completions.completions",
            "openai.lib",
            "httpcore",
            "anyio._backends._asyncio",
            "griffe",
        ),
        __name__,
    ]
)


def _serve(
    address: Connection,
    redis: str | None,
    path: str | None,
    model: str,
    pause: float,
    lease: float,
    conversations: str | None,
) -> None:
    import uvicorn

    from streamkit.relay import MemoryRelay
    from streamkit.relay.redis import RedisRelay
    from streamkit.server import create_app
    from streamkit.stores import RedisStore, SQLiteStore

    relay = MemoryRelay() if redis is None else RedisRelay(redis, lease=lease)
    store = SQLiteStore(conversations) if redis is None else RedisStore(redis)
    app = create_app(Agents(model, path), token=TOKEN, relay=relay, store=store, pause_after=pause)
    listener = socket.create_server(("127.0.0.1", 0))
    address.send(f"http://127.0.0.1:{listener.getsockname()[1]}")
    config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1, timeout_keep_alive=600)
    uvicorn.Server(config).run([listener])


class Process:
    """A process with a server."""

    def __init__(self, *arguments: object) -> None:
        here, there = _processes.Pipe()
        self._process = _processes.Process(target=_serve, args=(there, *arguments), daemon=True)
        self._process.start()
        there.close()
        self.url: str = here.recv()

    def kill(self) -> None:
        """End it without a warning."""
        self._process.kill()
        self._process.join()

    def stop(self) -> None:
        """Halt it until `wake`: not one of its threads runs."""
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Let it go on, if it was stopped."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process.is_alive():
            assert self._process.pid is not None
            os.kill(self._process.pid, number)

    def terminate(self) -> int | None:
        """Ask it to end. Returns its exit code."""
        self.wake()
        self._process.terminate()
        self._process.join(60)
        return self._process.exitcode


@contextmanager
def process(
    redis: RedisServer | None,
    path: Path | None,
    agents: Agents,
    *,
    pause: float = 60.0,
    lease: float = 5.0,
    conversations: Path | None = None,
) -> Iterator[tuple[Process, Client]]:
    """A server process, and a client of it.

    Args:
        redis: has its runs and conversations; None for runs in its memory.
        path: a file to which the tool `careful` writes what it was called with.
        agents: whose scripted model the process asks.
        pause: `pause_after` of its app.
        lease: seconds for which a process that was killed still seems to have its runs.
        conversations: the file that has its conversations, without Redis.
    """
    url, files = redis and redis.url, [file and str(file) for file in (path, conversations)]
    made = Process(url, files[0], agents.model.url, pause, lease, files[1])
    try:
        with Client(made.url) as client:
            yield made, client
    finally:
        made.terminate()
