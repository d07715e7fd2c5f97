"""Which API answers a request, and which requests are rejected as the real service would reject them."""

from __future__ import annotations

from .anthropic import AnthropicMessages
from .assistants import Assistants
from .bedrock import BedrockStream
from .chat import ChatCompletions
from .cohere import CohereChat
from .dialect import Dialect
from .gemini import GeminiContents
from .ollama import OllamaChat
from .replies import ServiceError
from .requests import Request, parse_body
from .responses import Responses

__all__ = ["dialect_of", "rejection_of"]

_DIALECTS: dict[str, type[Dialect]] = {
    route: dialect
    for dialect in (
        ChatCompletions,
        Responses,
        AnthropicMessages,
        Assistants,
        GeminiContents,
        CohereChat,
        OllamaChat,
        BedrockStream,
    )
    for route in dialect.routes
}


def dialect_of(request: Request) -> type[Dialect]:
    """Return the API that answers this request; for an unknown path the base class, whose errors have OpenAI's
    format."""
    return _DIALECTS.get(request.route, Dialect)


def rejection_of(request: Request) -> tuple[int, ServiceError] | None:
    """Return the status and the error with which the service rejects this request; None if it would answer.

    It rejects unknown paths, other methods than POST, bodies that are not a JSON object, and missing parameters or
    headers.
    """
    dialect = _DIALECTS.get(request.route)
    if dialect is None:
        return _invalid(404, f"Invalid URL ({request.method} {request.path})")
    if request.method != "POST":
        return _invalid(405, f"Not allowed to {request.method} on {request.path}.", "method_not_supported")
    if parse_body(request.content) is None:
        return _invalid(400, "We could not parse the JSON body of your request.")
    for parameter in dialect.routes[request.route]:
        if request.body.get(parameter) is None:
            message = f"Missing required parameter: '{parameter}'."
            return _invalid(400, message, "missing_required_parameter", parameter)
    for header in dialect.required_headers:
        if header not in request.headers:
            return _invalid(400, f"{header}: header is required")
    return None


def _invalid(
    status: int, message: str, code: str | None = None, parameter: str | None = None
) -> tuple[int, ServiceError]:
    return status, ServiceError(message, "invalid_request_error", code, parameter)
