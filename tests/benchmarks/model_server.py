"""The server of the benchmarks, on loopback, in a process of its own: real HTTP, so that the real clients are the peers.

    python -m tests.benchmarks.model_server      # prints its port, and serves until its input ends

A request to `/<wire>/<n>/<milliseconds>/…` is answered with the stream of `wires.py` of that name, n deltas long. Each event
is an HTTP chunk of its own. With milliseconds, one is sent at a time, that long after the one before; with 0, as fast as the
client takes them.
"""

from __future__ import annotations

import sys
import threading
import time
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .wires import WIRES

__all__ = ["URL"]

URL = "http://127.0.0.1:{port}/{wire}/{n}/{milliseconds}"


@cache
def _body(wire: str, n: int) -> tuple[bytes, ...]:
    events = WIRES[wire](n)
    return (*(b"%x\r\n%b\r\n" % (len(event), event) for event in events), b"0\r\n\r\n")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        _, wire, n, milliseconds, *_ = self.path.split("/")
        body = _body(wire, int(n))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        if milliseconds == "0":
            self.wfile.write(b"".join(body))
            return
        due = time.perf_counter()
        for chunk in body:
            due += int(milliseconds) / 1000
            time.sleep(max(0.0, due - time.perf_counter()))
            self.wfile.write(chunk)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # a client may leave its connection behind


def main() -> None:
    server = _Server(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
