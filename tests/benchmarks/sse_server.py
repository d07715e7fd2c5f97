"""The server whose clients the section `server` counts: uvicorn on loopback in a process of its own, which obeys a pipe.

It serves streamkit's app, or one by hand. What each event holds is its number and the moment at which it was written, on the
monotonic clock, which all processes of a machine share: `17 8123.250000000;`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
import threading
import time
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from typing import Any, Protocol

import psutil
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

import streamkit as sk
from streamkit.server import create_app

__all__ = ["TOKEN", "allow_sockets", "serve"]

TOKEN = "benchmark"


class _Served(Protocol):
    """An app with runs, named `run-0`, `run-1` and so on."""

    app: Any

    def write(self, run: int, text: str) -> None:
        """Write an event; from any thread."""

    def end(self) -> None:
        """End all runs."""


class Streamkit:
    """`create_app`, and an emitter for each run."""

    def __init__(self, runs: int) -> None:
        relay = sk.MemoryRelay()
        self._emitters = [sk.Emitter(relay, f"run-{number}") for number in range(runs)]
        self.app = create_app(_no_agent, token=TOKEN, relay=relay, max_readers=1_000_000)

    def write(self, run: int, text: str) -> None:
        self._emitters[run].text(text)

    def end(self) -> None:
        for emitter in self._emitters:
            emitter.close()


def _no_agent(context: object) -> object:
    raise NotImplementedError("the runs are written by emitters")


class ByHand:
    """What one writes without a relay: a queue for each client, and frames that are made once. Who leaves has lost the run."""

    def __init__(self, runs: int) -> None:
        self._queues: list[set[asyncio.Queue[bytes | None]]] = [set() for _ in range(runs)]
        self._number = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self.app = Starlette(routes=[Route("/runs/run-{run:int}/events", self._events)])

    async def _events(self, request: Request) -> StreamingResponse:
        self._loop = asyncio.get_running_loop()
        return StreamingResponse(self._body(request.path_params["run"]), media_type="text/event-stream")

    async def _body(self, run: int) -> AsyncIterator[bytes]:
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._queues[run].add(queue)
        try:
            yield b"retry: 1000\n\n"
            while (frame := await queue.get()) is not None:
                yield frame
        finally:
            self._queues[run].discard(queue)

    def write(self, run: int, text: str) -> None:
        self._number += 1
        line = sk.protocols.codec.encode_event(sk.TextDelta("message-1", text))
        self._put(run, b"id: %d\ndata: %b\n\n" % (self._number, line))

    def end(self) -> None:
        for run in range(len(self._queues)):
            self._put(run, None)

    def _put(self, run: int, frame: bytes | None) -> None:
        def put() -> None:
            for queue in self._queues[run]:
                queue.put_nowait(frame)

        assert self._loop is not None, "nobody has connected"
        self._loop.call_soon_threadsafe(put)


class _Pace:
    """Writes events to each run in turn, evenly spread."""

    def __init__(self, served: _Served, runs: int) -> None:
        self._served = served
        self._runs = runs
        self._number = 0

    def write(self, events: int, interval: float) -> None:
        """Write so many events to each run, one every `interval` seconds."""
        due = time.monotonic()
        for _ in range(events):
            self._number += 1
            for run in range(self._runs):
                time.sleep(max(0.0, due - time.monotonic()))
                due += interval / self._runs
                self._served.write(run, f"{self._number} {time.monotonic():.9f};")


def _memory() -> int:
    """Bytes of memory that this process has."""
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def allow_sockets() -> None:
    """Let this process open as many files as it may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _obey(pipe: Connection, served: _Served, runs: int, server: uvicorn.Server) -> None:
    pace = _Pace(served, runs)
    try:
        while True:
            match pipe.recv():
                case "memory":
                    pipe.send(_memory())
                case "cpu":
                    pipe.send(time.process_time())
                case (int(events), float(interval)):
                    pace.write(events, interval)
                    pipe.send(None)
                case other:
                    pipe.send(f"no command {other!r}")
    except EOFError:
        served.end()
        server.should_exit = True


def serve(pipe: Connection, kind: type[_Served], runs: int) -> None:
    """Send the port, and obey until the pipe is closed: `"memory"`, `"cpu"`, or how many events to write and every how many seconds."""
    os.dup2(2, 1)
    allow_sockets()
    served = kind(runs)  # type: ignore[call-arg]
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        config = uvicorn.Config(served.app, log_level="warning", access_log=False, timeout_graceful_shutdown=5)
        server = uvicorn.Server(config)
        pipe.send(listener.getsockname()[1])
        threading.Thread(target=_obey, args=(pipe, served, runs, server), daemon=True).start()
        server.run(sockets=[listener])
