"""Replies of Ollama's own API: lines of a chat. Source: https://docs.ollama.com/api/chat"""

from __future__ import annotations

from typing import Any

from .dialect import Json
from .encoded import EncodedDialect
from .replies import ServiceError
from .requests import Request

__all__ = ["OllamaChat"]


class OllamaChat(EncodedDialect):
    """The answer to `POST /api/chat`, a stream unless the request says `"stream": false`."""

    api = "Ollama"
    protocol = "ollama"
    routes = {"/api/chat": ("model",)}
    content_type = "application/x-ndjson"
    ping = b""

    @classmethod
    def is_stream_wanted(cls, request: Request) -> bool:
        """Whether the request does not say that it wants none."""
        return request.body.get("stream") is not False

    @classmethod
    def error_body(cls, error: ServiceError, status: int) -> Json:
        """Return the JSON body of a response with this HTTP status: the text alone."""
        return {"error": error.message}

    def body(self) -> Json:
        """Return the last line, with the whole message in it."""
        *lines, last = self.items()
        message: Any = {"role": "assistant", "content": ""}
        for line in lines:
            for key, value in line["message"].items():
                message[key] = value if key == "role" else message.get(key, type(value)()) + value
        return {**last, "message": message}
