"""Replies of Cohere's chat, version 2. Source: https://docs.cohere.com/v2/docs/streaming"""

from __future__ import annotations

from typing import Any

from ..events import Usage
from .dialect import Json
from .encoded import EncodedDialect
from .replies import ServiceError

__all__ = ["CohereChat"]


class CohereChat(EncodedDialect):
    """The answer to `POST /v2/chat`."""

    api = "Cohere"
    protocol = "cohere"
    routes = {"/v2/chat": ("model", "messages")}

    @classmethod
    def error_body(cls, error: ServiceError, status: int) -> Json:
        """Return the JSON body of a response with this HTTP status."""
        return {"id": "error-1", "message": error.message}

    def usage(self) -> Usage:
        """Return the counts. What is charged is the same here as what the model processed."""
        counted, tokens = super().usage(), self.reply.usage
        billed = {"input_tokens": tokens.input, "output_tokens": tokens.output}
        details: dict[str, Any] = {"billed_units": billed}
        if tokens.cached:
            details["cached_tokens"] = tokens.cached
        if tokens.reasoning:
            details["reasoning_tokens"] = tokens.reasoning
        return Usage(counted.input_tokens, counted.output_tokens, counted.total_tokens, details)

    def body(self) -> Json:
        """Return the answer, put together from the events of its stream."""
        message: Json = {"role": "assistant"}
        answer: Json = {"id": "", "message": message}
        for item in self.items():
            delta = item.get("delta", {})
            match item["type"]:
                case "message-start":
                    answer["id"] = item["id"]
                case "content-start":
                    message.setdefault("content", []).append(delta["message"]["content"])
                case "content-delta":
                    _extend(message["content"][item["index"]], delta["message"]["content"])
                case "tool-call-start":
                    message.setdefault("tool_calls", []).append(delta["message"]["tool_calls"])
                case "tool-call-delta":
                    function = delta["message"]["tool_calls"]["function"]
                    _extend(message["tool_calls"][item["index"]]["function"], function)
                case "message-end":
                    answer |= delta
                case _:
                    pass
        return answer


def _extend(texts: Json, pieces: Json) -> None:
    for key, piece in pieces.items():
        texts[key] += piece
