"""The script that a model server's connections play back together, and the record of what clients did.

All methods may be called from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

from ..errors import UsageError
from .dialect import CREATED, Dialect, Json, UnsupportedPart
from .replies import Reply
from .requests import Request
from .routes import dialect_of

__all__ = ["Playback", "Scripted"]

Scripted = Reply | Callable[[Request], Reply]
"""An entry of a script: a reply, or a callable that returns the reply to a request."""


class Playback:
    """The script of one server and the record of its requests.

    Attributes:
        closing: Set when the server is being closed.
    """

    def __init__(self, script: tuple[Scripted, ...], model: str) -> None:
        self.closing = threading.Event()
        self._script = script
        self._model = model
        self._changed = threading.Condition()
        self._requests: list[Request] = []
        self._disconnects: list[Request] = []
        self._answer_count = 0
        self._waiting_steps: dict[str, Json] = {}  # the Assistants steps that wait for tool outputs, by run id

    def requests(self) -> list[Request]:
        """Return all requests so far."""
        with self._changed:
            return list(self._requests)

    def disconnects(self) -> list[Request]:
        """Return the requests whose client left before it had the complete answer."""
        with self._changed:
            return list(self._disconnects)

    def wait_for_requests(self, count: int, timeout: float) -> bool:
        """Wait up to `timeout` seconds for `count` requests; return whether there were as many."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._requests) >= count, timeout)

    def wait_for_disconnects(self, count: int, timeout: float) -> bool:
        """Wait up to `timeout` seconds for `count` disconnects; return whether there were as many."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._disconnects) >= count, timeout)

    def record_request(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes, body: Mapping[str, Any]
    ) -> Request:
        """Record a request that arrived, and give it its number."""
        with self._changed:
            request = Request(len(self._requests) + 1, method, path, headers, content, body)
            self._requests.append(request)
            self._changed.notify_all()
        return request

    def record_disconnect(self, request: Request) -> None:
        """Record that a client left early, unless it was the server that closed the connection."""
        with self._changed:
            if not self.closing.is_set():
                self._disconnects.append(request)
                self._changed.notify_all()

    def next_answer(self, request: Request) -> tuple[Reply, Dialect]:
        """Return the script's next reply, and the answer that it makes to this request.

        Raises:
            UnsupportedPart: The requested API cannot express the reply.
            UsageError: The script's function returned something else.
        """
        with self._changed:
            scripted = self._script[min(self._answer_count, len(self._script) - 1)]
            self._answer_count += 1
            number = self._answer_count
        reply = scripted if isinstance(scripted, Reply) else scripted(request)
        if not isinstance(cast("object", reply), Reply):
            raise UsageError(f"a function of a script returns a `Reply`, not {reply!r}")
        dialect = dialect_of(request)
        if reply.recording is not None:
            if not dialect.is_stream_wanted(request):
                raise UnsupportedPart("A recording answers a request for a stream alone.")
            reply = reply.in_protocol(dialect.protocol)
        return reply, dialect(reply, request, number, self._waiting_steps)

    def model_object(self, path: str) -> Json | None:
        """Return the body of `GET /v1/models` or `GET /v1/models/{model}`; None for any other path."""
        model: Json = {"id": self._model, "object": "model", "created": CREATED, "owned_by": "streamkit"}
        if path == "/v1/models":
            return {"object": "list", "data": [model]}
        return model if path == f"/v1/models/{self._model}" else None
