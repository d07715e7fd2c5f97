"""The model server: accepts connections, and closes them all when it is closed.

One thread accepts connections, and one thread serves each of them. `ModelServer.close` ends all of them.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterable
from functools import partial
from socketserver import TCPServer
from types import TracebackType
from typing import Any, cast

from ..errors import UsageError
from .connection import Connection
from .playback import Playback, Scripted
from .replies import Reply
from .requests import Request

__all__ = ["ModelServer"]


class ModelServer:
    """A model server on loopback that answers each request with the next reply of a script.

        from streamkit.testing import ModelServer, Reply, ToolCall

        with ModelServer([Reply(ToolCall("weather", {"city": "Oslo"})), Reply("It rains.")]) as server:
            client = openai.OpenAI(base_url=server.url, api_key="any")
            answer = client.responses.create(model="any", input="How is the weather?")
        assert server.requests[0].body["input"] == "How is the weather?"

    It serves as soon as it is made, on a free port of 127.0.0.1, until `close` is called or `with` is left. Requests
    are answered in the API of their path, as a stream if they ask for one:

    | path | API |
    |---|---|
    | `/v1/chat/completions` | OpenAI Chat Completions |
    | `/v1/responses` | OpenAI Responses |
    | `/v1/messages` | Anthropic Messages |
    | `/v1/threads/runs`, `/v1/threads/{id}/runs`, `…/runs/{id}/submit_tool_outputs` | OpenAI Assistants |
    | `/v2/chat` | Cohere |
    | `/api/chat` | Ollama's own |
    | `/v1beta/models/{model}:streamGenerateContent`, `…:generateContent`, or `/v1/…` | Gemini |
    | `/model/{model}/converse-stream` | Bedrock's Converse |
    | `GET /v1/models`, `GET /v1/models/{model}` | the list with the one model, and that model |

    Unknown paths, other methods, invalid JSON and missing parameters are rejected as by the services, with 404, 405 or
    400; a rejected request takes no reply from the script. API keys are not checked.

    Args:
        script: A reply or several, one for each request in the order in which they arrive; the last one repeats. A
            callable in place of a reply gets the `Request` and returns the `Reply`. It runs in the connection's thread;
            if it raises, the request is answered with status 400 and the exception's text.
        model: The model that `GET /v1/models` lists. Default: `scripted`.
        port: The port. Default: 0, a free one.

    Raises:
        UsageError: The script is empty, or has an entry of another kind.
        OSError: The port is taken.
    """

    def __init__(self, script: Scripted | Iterable[Scripted], *, model: str = "scripted", port: int = 0) -> None:
        entries = _entries(script)
        self._playback = Playback(entries, model)
        self._listener = _HttpListener(self._playback, port)
        self._port: int = self._listener.server_address[1]
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(0.005,), name="model-server", daemon=True
        )
        try:
            self._thread.start()
        except BaseException:  # the process has too many threads
            self.close()
            raise

    @property
    def url(self) -> str:
        """The `base_url` for OpenAI's client, such as `http://127.0.0.1:50123/v1`."""
        return f"{self.root_url}/v1"

    @property
    def root_url(self) -> str:
        """The URL without a version: the `base_url` of the clients of Anthropic, Cohere and Gemini, which add one themselves, and the
        `host` of Ollama's."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def requests(self) -> list[Request]:
        """All requests so far in the order in which they arrived, including the rejected ones."""
        return self._playback.requests()

    @property
    def disconnects(self) -> list[Request]:
        """The requests whose client left before it had the complete answer. `close` adds none."""
        return self._playback.disconnects()

    def wait_for_request(self, timeout: float = 5, *, count: int = 1) -> bool:
        """Wait up to `timeout` seconds until there were `count` requests in all; return whether there were as many."""
        return self._playback.wait_for_requests(count, timeout)

    def wait_for_disconnect(self, timeout: float = 5, *, count: int = 1) -> bool:
        """Wait up to `timeout` seconds until `count` clients left early in all; return whether as many did."""
        return self._playback.wait_for_disconnects(count, timeout)

    def close(self) -> None:
        """Close all connections and end all threads, within one second. Closing again does nothing."""
        if self._playback.closing.is_set():
            return
        self._playback.closing.set()
        if self._thread.ident is not None:  # it has started, so there is something to shut down
            self._listener.shutdown()
        self._listener.server_close()
        deadline = time.monotonic() + 1
        for thread in (self._thread, *self._listener.close_connections()):
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join(max(0, deadline - time.monotonic()))

    def __enter__(self) -> ModelServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _entries(script: Any) -> tuple[Scripted, ...]:
    """Return the entries of a script, or of one entry alone; checked for callers without a type checker."""
    is_one = isinstance(script, (Reply, str)) or callable(script) or not hasattr(script, "__iter__")
    entries: tuple[Any, ...] = (script,) if is_one else tuple(cast("Iterable[Any]", script))
    if not entries:
        raise UsageError("a model server needs at least one reply")
    for entry in entries:
        if not (isinstance(entry, Reply) or callable(entry)):
            raise UsageError(f"an entry of a script is a `Reply`, or a function that returns one, not {entry!r}")
    return entries


class _HttpListener(TCPServer):
    """Accepts connections on loopback. It has the socket and the thread of each open one."""

    request_queue_size = 128

    def __init__(self, playback: Playback, port: int) -> None:
        self._lock = threading.Lock()
        self._open: dict[socket.socket, threading.Thread] = {}
        super().__init__(("127.0.0.1", port), partial(Connection, playback))

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own."""
        thread = threading.Thread(
            target=self._serve, args=(request, client_address), name="model-server-client", daemon=True
        )
        with self._lock:
            self._open[request] = thread
        try:
            thread.start()
        except BaseException:
            with self._lock:
                del self._open[request]
            raise

    def close_connections(self) -> list[threading.Thread]:
        """Shut down every open connection; return the threads that end with them."""
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):  # the client may have closed it first
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
