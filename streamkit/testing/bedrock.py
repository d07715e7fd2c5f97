"""Replies of Amazon Bedrock's ConverseStream, in Amazon's binary framing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..events import Delta, Event, Run, RunDone
from ..protocols.amazon_framer import amazon_message
from .dialect import Frame, Json, json_bytes
from .encoded import EncodedDialect
from .replies import Reply, ServiceError
from .requests import Request

__all__ = ["BedrockStream"]

_ERRORS = {
    400: "ValidationException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
}


class BedrockStream(EncodedDialect):
    """The answer to `POST /model/{model}/converse-stream`."""

    api = "Bedrock"
    protocol = "bedrock_converse"
    routes = {"/model/{id}/converse-stream": ("messages",)}
    content_type = "application/vnd.amazon.eventstream"
    ping = b""

    def __init__(self, reply: Reply, request: Request, number: int, waiting_steps: dict[str, Json]) -> None:
        super().__init__(reply, request, number, waiting_steps)
        self.model = reply.model or request.path.split("/")[2]

    @classmethod
    def is_stream_wanted(cls, request: Request) -> bool:
        """Whether the path says so, as each of this API does."""
        return True

    @classmethod
    def error_body(cls, error: ServiceError, status: int) -> Json:
        """Return the JSON body of a response with this HTTP status."""
        return {"__type": _ERRORS.get(status, "InternalServerException"), "message": error.message}

    def frames(self) -> Iterator[Frame]:
        """Yield a frame for each event: an empty one where the protocol has nothing for it, which may count as a piece."""
        for event in self._completed():
            yield Frame(self._messages(event), isinstance(event, Delta))

    def error_frames(self) -> Iterator[Frame]:
        """Yield an exception."""
        yield Frame(self._messages(RunDone(run=Run(status="failed", error={"message": self.reply.error.message}))))

    def _messages(self, event: Event) -> bytes:
        items: list[dict[str, Any]] = [*self._encoder.items(event)]
        return b"".join(amazon_message(name, json_bytes(value)) for item in items for name, value in item.items())
