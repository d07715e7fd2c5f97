"""`ApiResponse`: the response to a client of a model's API, an event stream or one body, and errors with a status.

The status waits for the first words of the model: a refused key is a status, not the first frame of a stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from starlette.requests import Request
from starlette.responses import Response

from ..errors import RequestError, SourceError, UsageError
from ..protocols.answer_activity import Activity
from ..protocols.api_request import ApiEncoder, ApiRequest
from ..protocols.event_stream import SSE_HEADERS
from .api_errors import api_error_response, as_problem
from .problem import Problem
from .response import JsonResponse, in_threads

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from ..streams.aio import AsyncStreamManager
    from ..streams.sync import StreamManager

__all__ = ["AnswerResponse", "ApiResponse", "ignored_header"]

_PATIENCE = 5.0  # seconds for which the status waits
_LONGEST_HEADER = 1000


class AnswerResponse(Response):
    """The response with an answer.

    Args:
        encoder: encodes the answer.
        frames: the bytes of its event stream, which the encoder has seen; keepalives among them.
        failure: returns the problem that the answer ended with.
        close: is called at the end, with whether the answer is complete.
        headers: further ones.
        expose_errors: send the texts of errors.
    """

    def __init__(
        self,
        encoder: ApiEncoder,
        frames: AsyncIterator[bytes],
        failure: Callable[[], Awaitable[Problem]],
        close: Callable[[bool], Awaitable[object]],
        *,
        headers: Mapping[str, str],
        expose_errors: bool = False,
    ) -> None:
        kind = SSE_HEADERS if encoder.request.stream else {"Content-Type": "application/json"}
        super().__init__(headers={**kind, **ignored_header(encoder.request), **headers})
        del self.headers["content-length"]
        self._encoder = encoder
        self._frames = frames
        self._failure = failure
        self._close = close
        self._exposes = expose_errors
        self._is_complete = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it. A client that leaves ends it, before the first byte too."""
        frames, taken = anyio.create_memory_object_stream[bytes]()
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_watch, receive, group.cancel_scope)
                group.start_soon(self._read, frames)
                await self._send(Request(scope, receive), send, taken)
                group.cancel_scope.cancel()
        finally:
            frames.close()
            taken.close()
            with anyio.CancelScope(shield=True):
                await self._close(self._is_complete)

    async def _read(self, frames: ObjectSendStream[bytes]) -> None:
        async with frames:
            async for chunk in self._frames:
                await frames.send(chunk)
            self._is_complete = True

    async def _send(self, request: Request, send: Send, taken: ObjectReceiveStream[bytes]) -> None:
        encoder, first = self._encoder, b""
        if encoder.request.stream:
            with anyio.move_on_after(_PATIENCE):
                while not encoder.has_begun and not self._is_complete:
                    first += await _next(taken)
            if encoder.has_begun or not self._has_failed:
                await self._send_stream(send, first, taken)
                return
        else:
            async for _ in taken:
                pass
        if self._has_failed:
            problem = await self._failure()
            response = api_error_response(request, problem, expose=self._exposes, began=True)
        else:
            response = JsonResponse(encoder.body())
        for name, value in self.headers.items():
            response.headers.setdefault(name, value)
        await response(request.scope, request.receive, send)

    @property
    def _has_failed(self) -> bool:
        return self._encoder.has_failed

    async def _send_stream(self, send: Send, first: bytes, taken: ObjectReceiveStream[bytes]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": first, "more_body": True})
        async for chunk in taken:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _next(taken: ObjectReceiveStream[bytes]) -> bytes:
    try:
        return await taken.receive()
    except anyio.EndOfStream:
        return b""


async def _watch(receive: Receive, scope: anyio.CancelScope) -> None:
    """Stop where the client leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def ignored_header(request: ApiRequest) -> dict[str, str]:
    """Return the header that names the fields of a request which have no effect."""
    names = [name for name in request.ignored if name.isascii() and name.isprintable()]
    return {"X-Streamkit-Ignored": ", ".join(names)[:_LONGEST_HEADER]} if names else {}


class ApiResponse(AnswerResponse):
    """An agent's stream as the response to a request to a model's API, in a view of one's own.

        @app.post("/v1/chat/completions")
        async def chat(http: Request) -> ApiResponse:
            request = openai_chat.from_request(await http.body())
            tools = [get_weather, *request.tools]
            agent = sk.AsyncAgent(client, model="gpt-5-mini", tools=tools, messages=request.history)
            return ApiResponse(agent.stream(request.input), request)

    It is an event stream or one body, as the request wants it. The stream is closed however the response ends.

    Args:
        stream: the stream of an `AsyncAgent` or an `Agent`, or any other.
        request: what it answers.
        activity: how the answer shows what the agent calls and runs itself.
        expose_errors: send the texts of errors.
        headers: further ones of the response.

    Raises:
        UsageError: `stream` is not a stream.
    """

    def __init__(
        self,
        stream: AsyncStreamManager | StreamManager,
        request: ApiRequest,
        *,
        activity: Activity = "hidden",
        expose_errors: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        if not callable(getattr(stream, "sse", None)):
            raise UsageError(f"ApiResponse takes what sk.astream(…) or an agent returns, not a {type(stream).__name__}")
        self._stream = stream
        encoder = request.encoder(activity=activity)
        self._body: Any = stream.sse(encoder, expose_errors=expose_errors)
        body: Any = self._body
        frames: AsyncIterator[bytes] = body if hasattr(body, "aclose") else in_threads(body)
        super().__init__(encoder, frames, self._failed, self._end, headers=headers or {}, expose_errors=expose_errors)

    async def _failed(self) -> Problem:
        error = self._stream.error
        if isinstance(error, RequestError):
            return as_problem(error)
        return Problem("provider-failed" if isinstance(error, SourceError) else "run-failed", str(error or ""))

    async def _end(self, is_complete: bool) -> None:
        body: Any = self._body
        if hasattr(body, "aclose"):
            await body.aclose()
        else:
            await anyio.to_thread.run_sync(body.close, limiter=anyio.CapacityLimiter(1))
