"""What a client asked, and what the services say to a request that makes no sense."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from .replies import ServiceError

__all__ = ["Request", "fault_of", "parse_body"]

_IDS = re.compile(r"(?<=^/v1/threads/)[^/]+(?=/runs)|(?<=/runs/)[^/]+(?=/submit_tool_outputs$)")


@dataclass(frozen=True, eq=False)
class Request:
    """One request as it arrived.

    Args:
        number: counts the server's requests, from 1.
        headers: their names in lower case.
        body: the parsed JSON object; empty where there was none.
        content: the body's bytes.
    """

    number: int
    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes = field(repr=False)
    body: Mapping[str, Any]

    @property
    def route(self) -> str:
        """The path with `{id}` in the place of each id."""
        return _IDS.sub("{id}", self.path)

    @property
    def stream(self) -> bool:
        """Whether the answer is to be streamed."""
        return self.body.get("stream") is True

    @property
    def include_usage(self) -> bool:
        """Whether a Chat stream is to tell its usage."""
        options: Any = self.body.get("stream_options")
        return isinstance(options, Mapping) and cast("Mapping[str, Any]", options).get("include_usage") is True


def parse_body(content: bytes) -> dict[str, Any] | None:
    """The JSON object that a body is; None where it is none."""
    try:
        value: Any = json.loads(content)
    except ValueError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None  # JSON's keys are text


# route -> the parameters that its requests must have
_REQUIRED = {
    "/v1/chat/completions": ("model", "messages"),
    "/v1/responses": ("model",),
    "/v1/messages": ("model", "messages", "max_tokens"),
    "/v1/threads/runs": ("assistant_id",),
    "/v1/threads/{id}/runs": ("assistant_id",),
    "/v1/threads/{id}/runs/{id}/submit_tool_outputs": ("tool_outputs",),
}


def fault_of(request: Request) -> tuple[int, ServiceError] | None:
    """The status and error with which the service turns such a request down; None where it would answer."""

    def invalid(
        status: int, message: str, code: str | None = None, param: str | None = None
    ) -> tuple[int, ServiceError]:
        return status, ServiceError(message, "invalid_request_error", code, param)

    required = _REQUIRED.get(request.route)
    if required is None:
        return invalid(404, f"Invalid URL ({request.method} {request.path})")
    if request.method != "POST":
        return invalid(405, f"Not allowed to {request.method} on {request.path}.", "method_not_supported")
    if parse_body(request.content) is None:
        return invalid(400, "We could not parse the JSON body of your request.")
    for param in required:
        if request.body.get(param) is None:
            return invalid(400, f"Missing required parameter: '{param}'.", "missing_required_parameter", param)
    if request.path == "/v1/messages" and "anthropic-version" not in request.headers:
        return invalid(400, "anthropic-version: header is required")
    return None
