"""One client's connection: reads requests, writes what the script says, and notices when the client leaves.

Every wait is a wait for the socket, too: the client's leaving ends it, and so does the server's closing, which shuts
the socket down from outside.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from . import anthropic
from .replies import Reply, ServiceError
from .requests import Request, fault_of, parse_body
from .wire import Dialect, Frame, Unsayable, error_body, to_json

if TYPE_CHECKING:
    from .server import ModelServer

__all__ = ["Connection"]


class _ClientLeft(Exception):
    """Nobody reads any more: the client has closed, or the server is closing."""


class Connection(BaseHTTPRequestHandler):
    """Requests of one client, one after the other."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # one write, one packet: the client sees each event at once

    def __init__(self, owner: ModelServer, *connection: Any) -> None:
        self.owner = owner
        self._request: Request | None = None
        super().__init__(*connection)

    def handle_one_request(self) -> None:
        """Answers one request. A client that does not wait for the whole answer is noted."""
        self._request = None
        try:
            super().handle_one_request()
        except (_ClientLeft, OSError):
            self.close_connection = True
            if self._request is not None:
                self.owner.note_disconnect(self._request)

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: `server.requests` has it all."""

    def _answer(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        path = self.path.partition("?")[0]
        request = self._request = self.owner.note_request(
            self.command, path, headers, content, parse_body(content) or {}
        )
        if request.method == "GET" and (model := self.owner.model_object(request.path)) is not None:
            self._send_json(200, model)
        elif (fault := fault_of(request)) is not None:
            self._send_error(request, *fault)
        else:
            self._perform(request)

    def _perform(self, request: Request) -> None:
        """The script's next reply."""
        try:
            reply, dialect = self.owner.next_answer(request)
        except Unsayable as fault:
            error = ServiceError(str(fault), "invalid_request_error", "unsupported_reply")
            self._send_error(request, 400, error)
        except Exception as fault:
            message = f"The script failed: {type(fault).__name__}: {fault}"
            self._send_error(request, 400, ServiceError(message, "invalid_request_error", "script_failed"))
        else:
            if reply.raw is None and reply.status >= 400:
                self._wait(reply.first_delay)
                self._send_error(request, reply.status, reply.error, reply)
            elif request.stream:
                self._send_stream(reply, dialect)
            else:
                self._send_whole(reply, dialect)

    def _send_whole(self, reply: Reply, dialect: Dialect) -> None:
        """The reply as one body, as late and as broken as its options say."""
        self._wait(reply.first_delay + reply.delay * max(0, reply.length - 1))
        if reply.never_ends:
            self._hold(None)
        status, value = dialect.whole_failure() if reply.error_after is not None else (reply.status, None)
        if reply.raw is not None and value is None:
            body = b"".join(reply.raw)
        else:
            body = to_json(dialect.whole() if value is None else value)
        self._send_head(status, "application/json", {"content-length": str(len(body))}, reply)
        if reply.cut_after is not None:
            self.close_connection = True
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def _send_stream(self, reply: Reply, dialect: Dialect) -> None:
        """The reply as it streams, each frame in a write of its own."""
        self._send_head(reply.status, "text/event-stream; charset=utf-8", {"transfer-encoding": "chunked"}, reply)
        sent = 0
        for frame in _frames(reply, dialect):
            if sent == reply.cut_after:
                self.close_connection = True
                return self._send_chunk(frame.data[: max(1, len(frame.data) // 2)])
            if sent == reply.error_after:
                break
            if reply.never_ends and sent == reply.length:
                self._hold(reply.ping)
            self._wait((reply.delay if sent else reply.first_delay) if frame.piece else 0)
            self._send_chunk(frame.data)
            sent += frame.piece
        if reply.error_after is not None:
            for frame in dialect.failure():
                self._send_chunk(frame.data)
        self._send_end()

    def _send_error(self, request: Request, status: int, error: ServiceError, reply: Reply | None = None) -> None:
        """An error in the words of the service that was asked."""
        messages = request.path == "/v1/messages"
        self._send_json(status, anthropic.error_body(error, status) if messages else error_body(error), reply)

    def _send_json(self, status: int, value: Mapping[str, Any], reply: Reply | None = None) -> None:
        body = to_json(value)
        self._send_head(status, "application/json", {"content-length": str(len(body))}, reply)
        self.wfile.write(body)

    def _send_head(self, status: int, content_type: str, framing: Mapping[str, str], reply: Reply | None) -> None:
        """The status and the headers, in one write. The framing is not the script's to change."""
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
        if data:  # an empty chunk would be the end
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _send_end(self) -> None:
        # Whoever stops reading at the last event has seen the whole answer, so this may fail.
        try:
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True

    def _hold(self, ping: float | None) -> None:
        """Sends nothing more but pings. It is over when the client leaves."""
        while True:
            self._wait(3600 if ping is None else ping)
            if ping is not None:
                self._send_chunk(b": ping\n\n")

    def _wait(self, seconds: float) -> None:
        """Lets time pass.

        Raises:
            _ClientLeft: the connection was closed meanwhile, from either side.
        """
        deadline = time.monotonic() + seconds
        self.connection.settimeout(seconds)
        try:
            if not self.connection.recv(1, socket.MSG_PEEK):
                raise _ClientLeft
        except (BlockingIOError, TimeoutError):
            pass
        else:
            # The next request is here already, and hides whether the client is still there.
            self.owner.closing.wait(max(0, deadline - time.monotonic()))
        finally:
            self.connection.settimeout(None)
        if self.owner.closing.is_set():
            raise _ClientLeft


def _frames(reply: Reply, dialect: Dialect) -> Iterator[Frame]:
    """The stream's frames; one that says nothing follows the last piece of a raw body."""
    if reply.raw is None:
        yield from dialect.frames()
        return
    for piece in reply.raw:
        yield Frame(piece, piece=True)
    yield Frame(b"")
