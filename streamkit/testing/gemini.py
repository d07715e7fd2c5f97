"""Replies of Gemini's API: `generateContent` and `streamGenerateContent`. Source: https://ai.google.dev/api/generate-content"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any

from ..events import ConsoleCreated, ConsoleDelta, ConsoleDone, Event, Usage
from ..messages import CodeMessage, ConsoleMessage, Message, ToolCallMessage
from .dialect import Json
from .encoded import EncodedDialect
from .parts import CodeInterpreter, McpApproval, Part, ToolCall
from .replies import Reply, ServiceError
from .requests import Request

__all__ = ["GeminiContents"]

_STREAM = ":streamGenerateContent"
_VERTEX = "projects/{id}/locations/{id}/publishers/google"
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class GeminiContents(EncodedDialect):
    """The answer to `POST /v1beta/models/{model}:streamGenerateContent`, or to `:generateContent`, and on Vertex AI's paths. The
    first call of an answer is signed, as Gemini 3 does it."""

    api = "Gemini"
    protocol = "gemini"
    unsupported = (McpApproval,)
    routes = {
        f"{root}/models/{{id}}{method}": ("contents",)
        for root in ("/v1", "/v1beta", *(f"/{version}/{_VERTEX}" for version in ("v1", "v1beta1")))
        for method in (_STREAM, ":generateContent")
    }

    def __init__(self, reply: Reply, request: Request, number: int, waiting_steps: dict[str, Json]) -> None:
        super().__init__(reply, request, number, waiting_steps)
        self.model = reply.model or request.path.rpartition("/")[2].partition(":")[0]

    @classmethod
    def is_stream_wanted(cls, request: Request) -> bool:
        """Whether the path says so."""
        return request.path.endswith(_STREAM)

    @classmethod
    def error_body(cls, error: ServiceError, status: int) -> Json:
        """Return the JSON body of a response with this HTTP status."""
        return {"error": {"code": status, "message": error.message, "status": _STATUSES.get(status, "INTERNAL")}}

    def usage(self) -> Usage:
        """Return the token counts. Thoughts are counted apart on the wire."""
        tokens, details = self.reply.usage, dict[str, Any]()
        if tokens.cached:
            details["cachedContentTokenCount"] = tokens.cached
        if tokens.reasoning:
            details["thoughtsTokenCount"] = tokens.reasoning
        return Usage(tokens.input, tokens.output, tokens.input + tokens.output, details)

    def message_of(self, part: Part, id: str) -> Message:
        """Return the message that a part is, without its text."""
        if isinstance(part, CodeInterpreter):
            return CodeMessage(id, format="python")
        message = super().message_of(part, id)
        calls = [part for part in self.reply.parts if isinstance(part, ToolCall)]
        if isinstance(message, ToolCallMessage) and part is calls[0]:
            signature = base64.b64encode(f"signature of answer {self.number}".encode()).decode()
            own = {"functionCall": {"id": message.call_id}, "thoughtSignature": signature}
            message.metadata = {"gemini": own}
        return message

    def _events_of_group(self, group: Iterable[Part], id: str) -> Iterator[Event]:
        """As for all APIs; after code comes what it printed."""
        parts = [*group]
        yield from super()._events_of_group(parts, id)
        for place, part in enumerate(parts):
            if isinstance(part, CodeInterpreter):
                output = ConsoleMessage(f"{id}-{place}-output", call_id=f"{id}-{place}")
                yield ConsoleCreated(output)
                if part.logs:
                    yield ConsoleDelta(output.id, part.logs)
                yield ConsoleDone(Message(output.id))

    def body(self) -> Json:
        """Return the chunks as one. Texts that follow each other are one part."""
        *_, last = items = self.items()
        parts: list[Any] = []
        for item in items:
            for part in item["candidates"][0]["content"]["parts"]:
                beside = {key: value for key, value in part.items() if key != "text"}
                if (
                    "text" in part
                    and parts
                    and parts[-1].keys() == part.keys()
                    and parts[-1] == {**beside, "text": parts[-1]["text"]}
                ):
                    parts[-1] = {**part, "text": parts[-1]["text"] + part["text"]}
                else:
                    parts.append(part)
        return {**last, "candidates": [{**last["candidates"][0], "content": {"parts": parts, "role": "model"}}]}
