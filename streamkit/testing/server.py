"""The server itself: takes connections, hands out the script's replies, and remembers what was asked.

One thread accepts, one serves each connection. `close` ends them all.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from socketserver import TCPServer
from types import TracebackType
from typing import Any

from ..errors import UsageError
from .anthropic import Messages
from .assistants import Assistants
from .chat import Chat
from .connection import Connection
from .replies import Reply
from .requests import Request
from .responses import Responses
from .wire import CREATED, Dialect

__all__ = ["ModelServer"]

Scripted = Reply | Callable[[Request], Reply]

_DIALECTS: dict[str, type[Dialect]] = {
    "/v1/chat/completions": Chat,
    "/v1/responses": Responses,
    "/v1/messages": Messages,
    "/v1/threads/runs": Assistants,
    "/v1/threads/{id}/runs": Assistants,
    "/v1/threads/{id}/runs/{id}/submit_tool_outputs": Assistants,
}


class ModelServer:
    """A model server that follows a script. It serves from when it is made until it is closed.

    Args:
        script: a reply, or several, taken in order, one a request; the last one repeats. In place of a reply stands,
            where wanted, a callable that is given the request and returns the reply; it is called in the connection's
            thread, and if it raises, the client is told so with a 400.
        model: the model that `GET /v1/models` lists.

    Raises:
        UsageError: the script is empty.
    """

    def __init__(self, script: Scripted | Iterable[Scripted], *, model: str = "scripted") -> None:
        self._script = (script,) if isinstance(script, Reply) or callable(script) else tuple(script)
        if not self._script:
            raise UsageError("a model server needs a reply to give")
        self.model = model
        self.closing = threading.Event()
        self._changed = threading.Condition()
        self._requests: list[Request] = []
        self._disconnects: list[Request] = []
        self._answers = 0
        self._waiting_steps: dict[str, Any] = {}  # of runs that wait for tool outputs
        self._listener = Listener(self)
        self._port: int = self._listener.server_address[1]
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(0.02,), name="model-server", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """The `base_url` for a client; it ends in `/v1`."""
        return f"{self.root_url}/v1"

    @property
    def root_url(self) -> str:
        """The same without `/v1`: the `base_url` for Anthropic's client, which has it in its paths."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def requests(self) -> list[Request]:
        """Every request so far, also those that were turned down."""
        with self._changed:
            return list(self._requests)

    @property
    def disconnects(self) -> list[Request]:
        """The requests whose client left before it had the whole answer. What `close` ended is not among them."""
        with self._changed:
            return list(self._disconnects)

    def wait_for_request(self, timeout: float = 5, *, count: int = 1) -> bool:
        """Wait until there have been `count` requests; False if that takes longer than `timeout` seconds."""
        return self._wait_until(lambda: len(self._requests) >= count, timeout)

    def wait_for_disconnect(self, timeout: float = 5, *, count: int = 1) -> bool:
        """Wait until `count` clients have left early; False if that takes longer than `timeout` seconds."""
        return self._wait_until(lambda: len(self._disconnects) >= count, timeout)

    def close(self) -> None:
        """End all connections and threads. It takes no longer than a second, whatever they were at."""
        if self.closing.is_set():
            return
        self.closing.set()
        self._listener.shutdown()
        self._listener.server_close()
        deadline = time.monotonic() + 1
        for thread in (self._thread, *self._listener.hang_up()):
            if thread is not threading.current_thread():
                thread.join(max(0, deadline - time.monotonic()))

    def __enter__(self) -> ModelServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- for its connections

    def note_request(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes, body: Mapping[str, Any]
    ) -> Request:
        """Remember a request that arrived."""
        with self._changed:
            request = Request(len(self._requests) + 1, method, path, headers, content, body)
            self._requests.append(request)
            self._changed.notify_all()
        return request

    def note_disconnect(self, request: Request) -> None:
        """Remember that a client did not wait for its answer, unless we left ourselves."""
        with self._changed:
            if not self.closing.is_set():
                self._disconnects.append(request)
                self._changed.notify_all()

    def next_answer(self, request: Request) -> tuple[Reply, Dialect]:
        """The script's next reply, and how it is said to this request."""
        with self._changed:
            scripted = self._script[min(self._answers, len(self._script) - 1)]
            self._answers += 1
            number = self._answers
        reply = scripted if isinstance(scripted, Reply) else scripted(request)
        dialect = _DIALECTS[request.route](reply, request, number)
        if isinstance(dialect, Assistants):
            dialect.waiting = self._waiting_steps
        return reply, dialect

    def model_object(self, path: str) -> dict[str, Any] | None:
        """What `GET` has for the list of models and for the model in it; None for any other path."""
        model = {"id": self.model, "object": "model", "created": CREATED, "owned_by": "streamkit"}
        if path == "/v1/models":
            return {"object": "list", "data": [model]}
        return model if path == f"/v1/models/{self.model}" else None

    def _wait_until(self, holds: Callable[[], bool], timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(holds, timeout)


class Listener(TCPServer):
    """Takes connections on loopback, and keeps each one's socket and thread until it is over."""

    request_queue_size = 128

    def __init__(self, owner: ModelServer) -> None:
        self._lock = threading.Lock()
        self._open: dict[socket.socket, threading.Thread] = {}
        super().__init__(("127.0.0.1", 0), partial(Connection, owner))

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serves a connection in a thread of its own."""
        thread = threading.Thread(
            target=self._serve, args=(request, client_address), name="model-server-client", daemon=True
        )
        with self._lock:
            self._open[request] = thread
        thread.start()

    def hang_up(self) -> list[threading.Thread]:
        """End every open connection; the threads that are about to end with them."""
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):  # the client may be quicker
                    connection.shutdown(socket.SHUT_RDWR)
            return list(self._open.values())

    def _serve(self, request: socket.socket, client_address: Any) -> None:
        try:
            with contextlib.suppress(OSError):  # a client may leave between two requests
                self.finish_request(request, client_address)
        finally:
            self.shutdown_request(request)
            with self._lock:
                del self._open[request]
