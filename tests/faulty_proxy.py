"""A proxy on loopback between a real client and a `ModelServer`, which breaks the connection at a chosen event.

The header `x-fault` of a request chooses: with `reset-4` the connection is reset after the fourth event of the answer, with
`cut-4.5` it is closed in the middle of the event that follows. Each event is one chunk of the answer, as the model server
writes it.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from socketserver import BaseRequestHandler, ThreadingTCPServer
from types import TracebackType
from typing import Any, NamedTuple, Self

from streamkit.testing import ModelServer

FAULT_HEADER = "x-fault"
"""Names the fault, and after how many events it happens:

    cut     the connection is closed
    reset   the connection is reset
    ended   the answer ends as if it were complete
    stall   nothing more comes
    slow    the rest comes in pieces of seven bytes
"""


class Answer(NamedTuple):
    """An answer of the model server, as it is on the wire.

    Attributes:
        head: its status and headers.
        events: the data of its chunks.
    """

    head: bytes
    events: list[bytes]


class FaultyProxy:
    """Forwards requests to a model server, for `with`.

    Attributes:
        url: the proxy's, without a path.
        stalled: set when an answer has stalled.
    """

    def __init__(self, upstream: ModelServer) -> None:
        self.stalled = threading.Event()
        self._upstream = ("127.0.0.1", int(upstream.root_url.rpartition(":")[2]))
        self._server = _Listener(("127.0.0.1", 0), _Connection)
        self._server.proxy = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def ask(self, request: bytes) -> Answer:
        """The answer of the model server to a request, which asks it to close the connection."""
        with socket.create_connection(self._upstream) as connection:
            connection.sendall(request)
            received = b"".join(iter(lambda: connection.recv(65536), b""))
        head, _, rest = received.partition(b"\r\n\r\n")
        events: list[bytes] = []
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            events.append(rest[: int(size, 16)])
            rest = rest[int(size, 16) + 2 :]
        return Answer(head + b"\r\nconnection: close\r\n\r\n", events[:-1])  # the last chunk is empty

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Listener(ThreadingTCPServer):
    daemon_threads = True
    proxy: FaultyProxy


class _Connection(BaseRequestHandler):
    """One request of a client, and its answer with the fault."""

    def handle(self) -> None:
        server: Any = self.server
        proxy: FaultyProxy = server.proxy
        connection: socket.socket = self.request
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = _read_request(connection)
        if request is None:
            return
        found = re.search(rb"(?i)\r\n%b: *([a-z]+)-([\d.]+)" % FAULT_HEADER.encode(), request)
        assert found is not None, f"a request without {FAULT_HEADER}"
        answer, count = proxy.ask(request), int(float(found[2]))
        before, after = answer.events[:count], answer.events[count:]
        if float(found[2]) != count:
            before.append(after[0][: len(after[0]) // 2])
        with contextlib.suppress(OSError):  # the client left
            connection.sendall(answer.head + b"".join(map(_chunk, before)))
            self._break(found[1].decode(), b"".join(map(_chunk, after)) + _chunk(b""), proxy)

    def _break(self, fault: str, rest: bytes, proxy: FaultyProxy) -> None:
        connection: socket.socket = self.request
        match fault:
            case "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()
            case "ended":
                connection.sendall(_chunk(b""))
            case "stall":
                proxy.stalled.set()
                connection.recv(1)  # until the client leaves
            case "slow":
                for at in range(0, len(rest), 7):
                    connection.sendall(rest[at : at + 7])
            case _:
                assert fault == "cut"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _read_request(connection: socket.socket) -> bytes | None:
    """A request, which asks the server to close the connection; None if the client left."""
    received = b""
    while b"\r\n\r\n" not in received:
        if not (piece := connection.recv(65536)):
            return None
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    while length and len(body) < int(length[1]):
        body += connection.recv(65536)
    return re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", head) + b"\r\nconnection: close\r\n\r\n" + body
