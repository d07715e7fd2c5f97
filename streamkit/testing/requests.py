"""A request as the server received it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..protocols import is_object

__all__ = ["Request", "parse_body"]

_IDS = re.compile(
    r"(?<=^/v1/threads/)[^/]+(?=/runs)|(?<=/runs/)[^/]+(?=/submit_tool_outputs$)|(?<=/models/)[^/]+(?=:[a-zA-Z]+$)"
    r"|(?<=^/model/)[^/]+(?=/)|(?<=/projects/)[^/]+(?=/locations/)|(?<=/locations/)[^/]+(?=/publishers/)"
)


@dataclass(frozen=True, eq=False)
class Request:
    """One request as the server received it: an entry of `ModelServer.requests`, and the argument of a script's
    callables.

    Args:
        number: Counts all requests to the server, from 1.
        method: The HTTP method, in upper case.
        path: The URL's path without its query, such as `/v1/responses`.
        headers: The headers, with their names in lower case.
        content: The body's bytes.
        body: The body as a parsed JSON object; empty if it is not one.
    """

    number: int
    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes = field(repr=False)
    body: Mapping[str, Any]

    @property
    def route(self) -> str:
        """The path with each id of a thread or run, and a model before a method, replaced by `{id}`: `/v1/threads/{id}/runs`."""
        return _IDS.sub("{id}", self.path)

    @property
    def stream(self) -> bool:
        """Whether the client wants the answer as a stream: the body has `"stream": true`."""
        return self.body.get("stream") is True

    @property
    def include_usage(self) -> bool:
        """Whether a Chat Completions stream ends with a usage chunk: `stream_options` has `"include_usage": true`."""
        options = self.body.get("stream_options")
        return is_object(options) and options.get("include_usage") is True


def parse_body(content: bytes) -> Mapping[str, Any] | None:
    """Return the JSON object in a request body; None if the body is anything else."""
    try:
        value = json.loads(content)
    except ValueError:
        return None
    return value if is_object(value) else None
