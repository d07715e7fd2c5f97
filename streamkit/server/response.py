"""`EventStreamResponse` and `JsonLinesResponse`: a stream as a response of Starlette, and so of FastAPI; and the JSON of this server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from starlette.responses import JSONResponse, StreamingResponse

from ..errors import UsageError
from ..messages.json_text import well_formed

if TYPE_CHECKING:
    from starlette.background import BackgroundTask
    from starlette.types import Receive, Scope, Send

    from ..streams.aio import AsyncStreamManager
    from ..streams.event_stream_aio import AsyncEventStream
    from ..streams.event_stream_sync import SyncEventStream
    from ..streams.sync import StreamManager

__all__ = ["EventStreamResponse", "JsonLinesResponse", "JsonResponse", "in_threads"]


class EventStreamResponse(StreamingResponse):
    """A stream as Server-Sent Events: `stream.sse()`, which is closed however the response ends.

        @app.post("/chat")
        async def chat(request: Request) -> EventStreamResponse:
            return EventStreamResponse(sk.astream(ask(await request.json())), "vercel_ui")

    Args:
        stream: a stream of `astream`; or one of `stream`, which is then read in threads.
        protocol: as for `stream.sse`, and so are the other `options`.
        status_code: the status of the response.
        headers: headers to send besides those of the event stream.
        background: runs when the response is over, as in any response of Starlette.

    Raises:
        UsageError: `stream` is not a stream, or an argument of `stream.sse` is wrong.
    """

    _method = "sse"

    def __init__(
        self,
        stream: AsyncStreamManager | StreamManager,
        protocol: str = "streamkit",
        *,
        status_code: int = 200,
        headers: Mapping[str, str] | None = None,
        background: BackgroundTask | None = None,
        **options: Any,
    ) -> None:
        if not callable(getattr(stream, self._method, None)):
            kind = type(stream).__name__
            raise UsageError(f"{type(self).__name__} takes what sk.astream(…) or sk.stream(…) returns, not a {kind}")
        self._body: AsyncEventStream | SyncEventStream = getattr(stream, self._method)(protocol, **options)
        body = self._body if isinstance(self._body, AsyncIterator) else in_threads(self._body)
        super().__init__(body, status_code, {**self._body.headers, **(headers or {})}, background=background)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response, and close the stream: however the client left."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            with anyio.CancelScope(shield=True):
                if isinstance(self._body, AsyncIterator):
                    await self._body.aclose()
                else:
                    await anyio.to_thread.run_sync(self._body.close, limiter=anyio.CapacityLimiter(1))


class JsonLinesResponse(EventStreamResponse):
    """A stream as lines of JSON: `stream.ndjson()`, as the readers of Open Interpreter's format take it. Otherwise as
    `EventStreamResponse`.

        @app.post("/chat")
        async def chat(request: Request) -> JsonLinesResponse:
            return JsonLinesResponse(agent.stream((await request.json())["message"]), "open_interpreter")
    """

    _method = "ndjson"


async def in_threads(body: Iterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the values of a sync iterator. A task that is cancelled does not wait for its thread: closing the iterator
    ends that."""
    limiter = anyio.CapacityLimiter(1)  # its own, as each thread may wait for as long as the stream lasts
    take = partial(next, body, None)
    while (chunk := await anyio.to_thread.run_sync(take, abandon_on_cancel=True, limiter=limiter)) is not None:
        yield chunk


class JsonResponse(JSONResponse):
    """JSON. A message that was saved may have half of a surrogate pair, which UTF-8 has not: it is sent as U+FFFD."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        try:
            return super().render(content)
        except UnicodeEncodeError:
            return super().render(well_formed(content).value)
