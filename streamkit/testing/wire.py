"""What the dialects have in common: an answer to one request, as frames or as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from .replies import McpApproval, Part, Reply, ServiceError
from .requests import Request

__all__ = ["CREATED", "Dialect", "Frame", "Unsayable", "error_body", "to_json"]

# The clock stands still, so that a script tells the same bytes each time: 2026-01-01.
CREATED = 1_767_225_600


class Frame(NamedTuple):
    """One SSE event as bytes, and whether it carries a piece of the reply."""

    data: bytes
    piece: bool = False


class Unsayable(Exception):
    """The reply has a part that this dialect has no words for."""


class Dialect:
    """A reply as the answer to one request. `number` counts the server's answers and is in every id.

    Raises:
        Unsayable: (when made) the dialect cannot say this reply.
    """

    unsayable: ClassVar[tuple[type[Part], ...]] = (McpApproval,)

    def __init__(self, reply: Reply, request: Request, number: int) -> None:
        for part in reply.parts:
            if isinstance(part, self.unsayable):
                raise Unsayable(
                    f"The scripted reply has a {type(part).__name__} part, which this API has no words for."
                )
        self.reply = reply
        self.request = request
        self.number = number
        self.model: Any = reply.model or request.body.get("model")

    def frames(self) -> Iterator[Frame]:
        """The whole stream. It is told as far as it is read: `failure` goes on from there."""
        raise NotImplementedError

    def failure(self) -> Iterator[Frame]:
        """The reply's error, in the stream."""
        raise NotImplementedError

    def whole(self) -> Mapping[str, Any]:
        """The answer to a request that asked for no stream."""
        raise NotImplementedError

    def whole_failure(self) -> tuple[int, Mapping[str, Any]]:
        """The status and body that tell of the reply's error where there is no stream."""
        return 500, error_body(self.reply.error)

    def call_id(self, given: str | None, place: int) -> str:
        """The id of the reply's tool call at this place."""
        return given or f"call_{self.number}_{place}"


def error_body(error: ServiceError) -> dict[str, Any]:
    """An error as the services answer it."""
    return {"error": error.to_dict()}


def to_json(value: Mapping[str, Any]) -> bytes:
    """Compact JSON in UTF-8, as the services write it; escaped where the text has no UTF-8 (a lone surrogate)."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
