"""The response to a request that fails: `application/problem+json` (RFC 9457).

    {"type": "urn:streamkit:error:run-not-found", "title": "There is no such run.", "status": 404, "instance": "urn:uuid:…"}

Clients see what kind of problem it is, and an `instance`; the log has the rest under that instance.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from ..protocols.values import json_text, without_keys
from ..streams.error_mask import masked_text

__all__ = ["PROBLEMS", "Problem", "log_problem", "problem_response", "run_error", "shown_detail"]

log = logging.getLogger("streamkit.server")

URN = "urn:streamkit:error:"
PROBLEMS: Mapping[str, tuple[int, str]] = {
    "bad-json": (400, "The body is not JSON."),
    "bad-cursor": (400, "The cursor is not one of this run."),
    "bad-query": (400, "A parameter of the query is not valid."),
    "unknown-protocol": (400, "There is no such protocol."),
    "unauthorized": (401, "The token is missing or wrong."),
    "forbidden": (403, "This is not allowed."),
    "origin-not-allowed": (403, "Pages of this origin are not allowed."),
    "model-not-found": (404, "There is no such model."),
    "previous-response-not-found": (404, "There is no such response to go on from."),
    "not-found": (404, "There is nothing at this path."),
    "run-not-found": (404, "There is no such run."),
    "conversation-not-found": (404, "There is no such conversation."),
    "question-not-found": (404, "There is no such question."),
    "method-not-allowed": (405, "This method is not allowed here."),
    "already-answered": (409, "The question has another answer already."),
    "conversation-busy": (409, "The conversation has an open run."),
    "question-closed": (409, "The question can no longer be answered."),
    "cursor-trimmed": (410, "The log no longer has the events after the cursor."),
    "body-too-large": (413, "The body is too large."),
    "unsupported-media-type": (415, "The Content-Type of the request has to be application/json."),
    "host-not-allowed": (421, "The Host of the request is not one of the allowed hosts."),
    "invalid": (422, "The request is not valid."),
    "idempotency-mismatch": (422, "Another request had this Idempotency-Key."),
    "too-many-readers": (429, "There are too many readers."),
    "too-many-runs": (429, "There are too many open runs."),
    "internal": (500, "The server failed."),
    "run-failed": (500, "The run failed."),
    "run-cancelled": (500, "The run was cancelled."),
    "provider-failed": (502, "The model's provider failed."),
    "unreadable": (500, "What is stored of it cannot be read."),
    "relay-unavailable": (503, "The relay cannot be reached."),
}
"""For each code its status and its title."""

_RETRIES = {429, 503}


class Problem(Exception):
    """A request cannot be served.

    Args:
        code: one of `PROBLEMS`.
        detail: what is wrong with this very request; for its client.
        headers: further ones of the response.
        extra: further members of the body.
        instance: under which the log has what it is about already.
    """

    def __init__(
        self,
        code: str,
        detail: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
        instance: str = "",
    ) -> None:
        super().__init__(detail or code)
        self.instance = instance
        self.code = code
        self.detail = detail
        self.status, self.title = PROBLEMS[code]
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})


def problem_response(problem: Problem, error: BaseException | None = None, *, expose: bool = False) -> Response:
    """Return the response for a problem, which is logged.

    Args:
        error: what the server itself failed with.
        expose: whether the client may see the text of that.
    """
    instance, detail = log_problem(problem, error), shown_detail(problem, error, expose=expose)
    body = {
        "type": URN + problem.code,
        "title": problem.title,
        "status": problem.status,
        "detail": detail or None,
        "instance": instance,
        **problem.extra,
    }
    headers = {**problem.headers, **({"Retry-After": "1"} if problem.status in _RETRIES else {})}
    content = json_text(without_keys(body)).encode("utf-8", "replace")
    return Response(content, problem.status, headers, media_type="application/problem+json")


def log_problem(problem: Problem, error: BaseException | None) -> str:
    """Log a problem. Returns the instance under which the log has it."""
    instance = problem.instance or uuid.uuid4().urn
    if error is not None:
        log.error("%s: %s", instance, problem.title, exc_info=error)
    else:
        log.info("%s: %s %s", instance, problem.code, problem.detail)
    return instance


def shown_detail(problem: Problem, error: BaseException | None, *, expose: bool) -> str:
    """Return what a client may see of what is wrong."""
    if problem.status < 500:
        return problem.detail
    return f"{type(error).__name__}: {error}" if expose and error is not None else problem.detail if expose else ""


def run_error(error: Mapping[str, Any] | None, *, expose: bool = False) -> dict[str, Any] | None:
    """Return the error that ended a run, as a client may see it."""
    if error is None:
        return None
    code = error.get("code")
    kind, instance = error.get("type"), error.get("instance")
    shown = {"detail": error.get("message"), "error": kind} if expose else {}
    if not expose and isinstance(instance, str):
        shown = {"detail": masked_text(str(kind), instance)}
    body = {
        "type": URN + (code.replace("_", "-") if isinstance(code, str) else "run-failed"),
        "title": "The run failed.",
        "instance": instance,
        **shown,
    }
    return {key: value for key, value in body.items() if value is not None}
