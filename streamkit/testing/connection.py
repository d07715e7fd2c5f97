"""One client's connection: reads its requests, writes what the script has, and notices when the client leaves.

Every wait also watches the socket: it ends when the client leaves, and when the server is closed, which shuts the
socket down from another thread.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

from .dialect import Dialect, Frame, UnsupportedPart, json_bytes
from .playback import Playback
from .replies import Reply, ServiceError
from .requests import Request, parse_body
from .routes import dialect_of, rejection_of

__all__ = ["Connection"]


class _ClientLeft(Exception):
    """The connection is gone: the client has closed it, or the server is closing."""


class Connection(BaseHTTPRequestHandler):
    """The requests of one client, one after another."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # one write, one packet: the client receives each event at once

    def __init__(self, playback: Playback, *connection: Any) -> None:
        self._playback = playback
        self._request: Request | None = None
        super().__init__(*connection)

    def handle_one_request(self) -> None:
        """Answer one request. A client that leaves before the answer is complete is recorded."""
        self._request = None
        try:
            super().handle_one_request()
        except (_ClientLeft, OSError):
            self.close_connection = True
            if self._request is not None:
                self._playback.record_disconnect(self._request)

    def do_GET(self) -> None:
        """Answer a request of any method."""
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        path = self.path.partition("?")[0]
        body = parse_body(content) or {}
        request = self._request = self._playback.record_request(self.command, path, headers, content, body)
        if request.method == "GET" and (model := self._playback.model_object(request.path)) is not None:
            self._send_json(200, model)
        elif (rejection := rejection_of(request)) is not None:
            self._send_error(request, *rejection)
        else:
            self._send_reply(request)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: `ModelServer.requests` has everything that a log would have."""

    def _send_reply(self, request: Request) -> None:
        """Send the script's next reply."""
        try:
            reply, dialect = self._playback.next_answer(request)
        except UnsupportedPart as error:
            self._send_script_error(request, str(error), "unsupported_reply")
        except Exception as error:
            self._send_script_error(request, f"The script failed: {type(error).__name__}: {error}", "script_failed")
        else:
            if reply.raw is None and reply.status >= 400:
                self._wait(reply.first_delay)
                self._send_error(request, reply.status, reply.error, reply)
            elif dialect.is_stream_wanted(request):
                self._send_stream(reply, dialect)
            else:
                self._send_body(reply, dialect)

    def _send_body(self, reply: Reply, dialect: Dialect) -> None:
        """Send the reply as one body, as late and as incomplete as its options demand."""
        self._wait(reply.first_delay + reply.delay * max(0, reply.length - 1))
        if reply.never_ends:
            self._hold_open(None)
        status = reply.status
        if reply.error_after is not None:
            status, value = dialect.failed_body()
            body = json_bytes(value)
        else:
            body = json_bytes(dialect.body()) if reply.raw is None else b"".join(reply.raw)
        self._send_head(status, "application/json", {"content-length": str(len(body))}, reply)
        if reply.cut_after is not None:
            self.close_connection = True
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def _send_stream(self, reply: Reply, dialect: Dialect) -> None:
        """Send the reply as a stream, each frame in a write of its own."""
        self._send_head(reply.status, dialect.content_type, {"transfer-encoding": "chunked"}, reply)
        sent = 0
        for frame in _frames(reply, dialect):
            if sent == reply.cut_after:
                self.close_connection = True
                return self._send_chunk(frame.data[: max(1, len(frame.data) // 2)])
            if sent == reply.error_after:
                break
            if reply.never_ends and sent == reply.length:
                self._hold_open(reply.ping, dialect.ping)
            self._wait((reply.delay if sent else reply.first_delay) if frame.is_piece else 0)
            self._send_chunk(frame.data)
            sent += frame.is_piece
        if reply.error_after is not None:
            for frame in dialect.error_frames():
                self._send_chunk(frame.data)
        self._send_end()

    def _send_script_error(self, request: Request, message: str, code: str) -> None:
        """Report a fault of the script with status 400, which clients do not retry."""
        self._send_error(request, 400, ServiceError(message, "invalid_request_error", code))

    def _send_error(self, request: Request, status: int, error: ServiceError, reply: Reply | None = None) -> None:
        """Send an error body in the format of the requested API."""
        self._send_json(status, dialect_of(request).error_body(error, status), reply)

    def _send_json(self, status: int, value: Mapping[str, Any], reply: Reply | None = None) -> None:
        body = json_bytes(value)
        self._send_head(status, "application/json", {"content-length": str(len(body))}, reply)
        self.wfile.write(body)

    def _send_head(self, status: int, content_type: str, framing: Mapping[str, str], reply: Reply | None) -> None:
        """Send the status and the headers in one write. The script cannot replace the framing headers."""
        number = self._request.number if self._request else 0
        headers = {"content-type": content_type, "x-request-id": f"req_{number}"}
        if reply is not None:
            if reply.retry_after is not None:
                headers["retry-after"] = f"{reply.retry_after:g}"
            headers |= {name.lower(): value for name, value in reply.headers.items()}
        self.send_response(status)
        for name, value in {**headers, **framing}.items():
            self.send_header(name, value)
        self.end_headers()

    def _send_chunk(self, data: bytes) -> None:
        if data:  # an empty chunk would end the body
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _send_end(self) -> None:
        # A client that stops reading at the last event has received the complete answer, so this write may fail.
        try:
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True

    def _hold_open(self, seconds: float | None, ping: bytes = b"") -> None:
        """Send nothing but a ping every so many seconds, until the client leaves."""
        while True:
            self._wait(3600 if seconds is None else seconds)
            if seconds is not None:
                self._send_chunk(ping)

    def _wait(self, seconds: float) -> None:
        """Wait this long.

        Raises:
            _ClientLeft: The connection was closed meanwhile, by the client or by the server.
        """
        deadline = time.monotonic() + seconds
        self.connection.settimeout(seconds)
        try:
            if not self.connection.recv(1, socket.MSG_PEEK):
                raise _ClientLeft
        except (BlockingIOError, TimeoutError):
            pass
        else:
            # The next request has arrived already, so the socket cannot show whether the client is still there.
            self._playback.closing.wait(max(0, deadline - time.monotonic()))
        finally:
            self.connection.settimeout(None)
        if self._playback.closing.is_set():
            raise _ClientLeft


def _frames(reply: Reply, dialect: Dialect) -> Iterator[Frame]:
    """Yield the stream's frames. An empty frame follows the last piece of a raw body, so that it can be cut after
    it."""
    if reply.raw is None:
        yield from dialect.frames()
        return
    for piece in reply.raw:
        yield Frame(piece, is_piece=True)
    yield Frame(b"")
