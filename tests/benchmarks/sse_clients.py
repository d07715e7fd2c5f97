"""Many clients of `sse_server.py`, in a process of their own: bare sockets and one `select`, so that they cost little themselves.

Each checks that it has every event exactly once.
"""

from __future__ import annotations

import re
import selectors
import socket
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from .sse_server import TOKEN, allow_sockets

__all__ = ["follow"]

_EVENT = re.compile(rb'(?:id: ([^\n]+)\n)?data: [^\n]*"(?:value|delta)":"(\d+) ([\d.]+);"[^\n]*\n\n')
_REQUEST = (
    "GET /runs/run-{run}/events?protocol={protocol} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
    + TOKEN
    + "\r\n{more}\r\n"
)


class _Client:
    """One connection, and those that follow it."""

    def __init__(self, port: int, run: int, protocol: str) -> None:
        self._port = port
        self._run = run
        self._protocol = protocol
        self._cursor = b""
        self._rest = b""
        self.newest = 0
        self.is_connected = False
        self.took: list[float] = []  # seconds that each event needed

    def connect(self) -> socket.socket:
        """A connection, which goes on after the newest event."""
        more = f"Last-Event-ID: {self._cursor.decode()}\r\n" if self._cursor else ""
        request = _REQUEST.format(run=self._run, protocol=self._protocol, more=more)
        self.socket = socket.create_connection(("127.0.0.1", self._port))
        self.socket.sendall(request.encode())
        self.socket.setblocking(False)
        self._rest = b""
        self.is_connected = False
        return self.socket

    def receive(self) -> None:
        """Take what has come."""
        data = self.socket.recv(1 << 18)
        now = time.monotonic()
        assert data, f"the server closed a connection after {self._rest[:300]!r}"
        self._rest += data
        if not self.is_connected:
            if b"\n\n" not in self._rest:  # the beginning of the stream
                return
            assert self._rest.startswith(b"HTTP/1.1 200"), self._rest[:300]
            self.is_connected = True
        end = 0
        for match in _EVENT.finditer(self._rest):
            number, at = int(match[2]), float(match[3])
            assert number == self.newest + 1, f"event {number} came after event {self.newest}"
            self.newest, self._cursor, end = number, match[1], match.end()
            self.took.append(now - at)
        if end:
            self._rest = self._rest[end:]


class _Clients:
    def __init__(self, port: int, clients: int, runs: int, protocol: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._clients = [_Client(port, number % runs, protocol) for number in range(clients)]

    def connect(self) -> None:
        """Connect all, and wait until each stream has begun."""
        for client in self._clients:
            self._selector.register(client.connect(), selectors.EVENT_READ, client)
        while not all(client.is_connected for client in self._clients):
            self._receive(60.0)

    def _receive(self, seconds: float) -> None:
        ready = self._selector.select(seconds)
        assert ready or seconds < 60.0, "nothing came for a minute"
        for key, _ in ready:
            key.data.receive()

    def wait(self, newest: int, leave_within: float | None) -> Mapping[str, Any]:
        """Wait until all have an event. If they are to leave, each does so once within these seconds, and resumes."""
        began, left = time.monotonic(), 0
        for client in self._clients:
            client.took = []
        while left < len(self._clients) * (leave_within is not None) or any(c.newest < newest for c in self._clients):
            if leave_within is not None and left < len(self._clients):
                due = (time.monotonic() - began) / leave_within * len(self._clients)
                for client in self._clients[left : int(due) + 1]:
                    self._selector.unregister(client.socket)
                    client.socket.close()
                    self._selector.register(client.connect(), selectors.EVENT_READ, client)
                    left += 1
                self._receive(0.001)
            else:
                self._receive(60.0)
        assert all(client.newest == newest for client in self._clients)
        took = sorted(seconds for client in self._clients for seconds in client.took)
        return {
            "p50": took[len(took) // 2],
            "p99": took[int(len(took) * 0.99)],
            "last": max(client.took[-1] for client in self._clients if client.took),
        }

    def close(self) -> None:
        for client in self._clients:
            client.socket.close()
        self._selector.close()


def follow(pipe: Connection, port: int, clients: int, runs: int, protocol: str) -> None:
    """Connect, and obey until the pipe is closed: the number of the event to wait for, and within how many seconds to leave
    and resume meanwhile, or None. Answers with seconds: percentiles of the latency, and until all had the last event; or with
    a text that says what failed."""
    allow_sockets()
    all = _Clients(port, clients, runs, protocol)
    try:
        all.connect()
        pipe.send(None)
        while True:
            pipe.send(all.wait(*pipe.recv()))
    except EOFError:
        all.close()
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")
