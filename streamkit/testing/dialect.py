"""The base of the APIs: one answer to one request, as the frames of a stream or as one JSON body.

`Dialect` is the base of all APIs, `ResourceDialect` of the two whose stream reports one object, a response or a run, in each
of its states, and `EncodedDialect` (`encoded.py`) of those that a protocol's encoder writes. The same reply always makes the same bytes: ids count, and the clock stands still at
`CREATED`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from ..protocols.frames import sse_frame
from .parts import McpApproval, Part, ToolCall
from .replies import Reply, ServiceError
from .requests import Request

__all__ = ["CREATED", "Dialect", "Frame", "Json", "ResourceDialect", "UnsupportedPart", "event_frame", "json_bytes"]

Json = dict[str, Any]

CREATED = 1_767_225_600
"""Every `created_at` on the wire, in Unix seconds: 2026-01-01."""


class Frame(NamedTuple):
    """One event of a stream as bytes. `is_piece`: whether it carries a piece of a part, which `Reply` counts and delays."""

    data: bytes
    is_piece: bool = False


class UnsupportedPart(Exception):
    """The reply has a part that the requested API cannot express."""


class Dialect:
    """The answer to one request, in the format of one API.

    Args:
        reply: The scripted reply.
        request: The request that it answers.
        number: Counts the server's answers from 1; it is part of every id.
        waiting_steps: The Assistants run steps that wait for tool outputs, by run id. All answers of a server share it.

    Raises:
        UnsupportedPart: The API cannot express one of the reply's parts.
    """

    api: ClassVar[str]
    """The API's name, for error messages."""
    protocol: ClassVar[str]
    """The protocol of its answers."""
    routes: ClassVar[Mapping[str, tuple[str, ...]]]
    """The routes that the API answers, each with the parameters that its requests must have."""
    required_headers: ClassVar[tuple[str, ...]] = ()
    """The headers that its requests must have, in lower case."""
    unsupported: ClassVar[tuple[type[Part], ...]] = (McpApproval,)
    """The parts that the API cannot express."""
    content_type: ClassVar[str] = "text/event-stream; charset=utf-8"
    """That of a stream."""
    ping: ClassVar[bytes] = b": ping\n\n"
    """What keeps a connection open, b"" where the API has nothing for that."""

    def __init__(self, reply: Reply, request: Request, number: int, waiting_steps: dict[str, Json]) -> None:
        for part in reply.parts:
            if isinstance(part, self.unsupported):
                raise UnsupportedPart(
                    f"The scripted reply has a {type(part).__name__} part, which {self.api} cannot express."
                )
        self.reply = reply
        self.request = request
        self.number = number
        self.waiting_steps = waiting_steps
        self.model: Any = reply.model or request.body.get("model")
        self._call_count = 0

    @classmethod
    def is_stream_wanted(cls, request: Request) -> bool:
        """Whether a request wants its answer as a stream."""
        return request.stream

    def frames(self) -> Iterator[Frame]:
        """Return the complete stream. If it is read only in part, `error_frames` continues from there."""
        raise NotImplementedError

    def error_frames(self) -> Iterator[Frame]:
        """Return the frames that end a stream with the reply's error."""
        raise NotImplementedError

    def body(self) -> Json:
        """Return the JSON body for a request without `stream`."""
        raise NotImplementedError

    def failed_body(self) -> tuple[int, Json]:
        """Return the HTTP status and the JSON body that report the reply's error to a request without `stream`."""
        return 500, self.error_body(self.reply.error, 500)

    @classmethod
    def error_body(cls, error: ServiceError, status: int) -> Json:
        """Return the JSON body of a response with this HTTP status."""
        return {"error": error.to_dict()}

    def next_call_id(self, part: ToolCall) -> str:
        """Return the id of the reply's next tool call: its own, or one that counts the answers and the calls."""
        call_number, self._call_count = self._call_count, self._call_count + 1
        return part.call_id or f"call_{self.number}_{call_number}"

    def prompt_and_completion_tokens(self) -> Json:
        """Return the token counts under the names that Chat Completions and Assistants use."""
        tokens = self.reply.usage
        return {
            "prompt_tokens": tokens.input,
            "completion_tokens": tokens.output,
            "total_tokens": tokens.input + tokens.output,
        }


class ResourceDialect(Dialect):
    """An API whose stream reports one resource, a response or a run, in each of its states."""

    request_defaults: ClassVar[Json]
    """The request parameters that the resource repeats, each with the value for a request without it."""

    def resource(self, status: str) -> Json:
        """Return the resource in this state."""
        raise NotImplementedError

    def final_status(self) -> str:
        """Return the state in which the resource ends, once all frames were produced."""
        raise NotImplementedError

    def failed_frames(self) -> Iterator[Frame]:
        """Return the frames that end a stream with a failed resource."""
        raise NotImplementedError

    def error_event_frame(self) -> Frame:
        """Return the `error` event with the reply's error."""
        raise NotImplementedError

    def error_frames(self) -> Iterator[Frame]:
        """Yield the frames that end a stream with the reply's error; `Reply.error_event` decides which."""
        if self._reports_failed_resource:
            yield from self.failed_frames()
        else:
            yield self.error_event_frame()

    def body(self) -> Json:
        """Return the resource in its final state."""
        for _ in self.frames():
            pass
        return self.resource(self.final_status())

    def failed_body(self) -> tuple[int, Json]:
        """Return the failed resource with status 200, or an error body with status 500; `Reply.error_event` decides
        which."""
        return (200, self.resource("failed")) if self._reports_failed_resource else super().failed_body()

    def repeated_parameters(self) -> Json:
        """Return the request's parameters, as the resource repeats them."""
        body = self.request.body
        return {key: default if body.get(key) is None else body[key] for key, default in self.request_defaults.items()}

    @property
    def _reports_failed_resource(self) -> bool:
        return self.reply.error_event == "response.failed"


def event_frame(name: str, data: Mapping[str, Any], *, is_piece: bool = False) -> Frame:
    """Return an SSE event with an event name and JSON data."""
    return Frame(sse_frame(json_bytes(data), name), is_piece)


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """Compact JSON in UTF-8, as the services write it; escaped if the text has no UTF-8 form (a lone surrogate)."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
