"""A server on loopback that sends a body in pieces, each when the test lets it: so what happens between two pieces does."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LONGEST = 10.0  # seconds that a piece is held back


class GatedServer:
    """Sends each piece after the first once `let_through` was called for it. Every request gets the same body.

    Attributes:
        url: the address, without a path.
    """

    def __init__(self, url: str, gate: threading.Semaphore) -> None:
        self.url = url
        self._gate = gate

    def let_through(self) -> None:
        """Send the next piece."""
        self._gate.release()


@contextmanager
def gated_server(pieces: Sequence[bytes], content_type: str = "text/event-stream") -> Iterator[GatedServer]:
    """A server that answers every POST with these pieces."""
    gate = threading.Semaphore(1)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", content_type)
            self.send_header("transfer-encoding", "chunked")
            self.send_header("connection", "close")
            self.end_headers()
            try:
                for piece in pieces:
                    gate.acquire(timeout=LONGEST)
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.wfile.write(b"0\r\n\r\n")
            except OSError:  # the client has left
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield GatedServer(f"http://127.0.0.1:{server.server_port}", gate)
    finally:
        for _ in pieces:
            gate.release()
        server.shutdown()
        server.server_close()
        thread.join()
