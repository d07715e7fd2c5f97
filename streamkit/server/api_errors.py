"""Errors in the form of the API that a client speaks, with its words for the same problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..errors import RequestError
from .inputs import problem_of
from .problem import Problem, log_problem, shown_detail
from .response import JsonResponse

__all__ = ["api_error_response", "api_of", "as_problem", "is_of_api", "request_error_response"]

_OPENAI_CODES: Mapping[str, str] = {"unauthorized": "invalid_api_key"}
_OPENAI_TYPES: Mapping[int, str] = {429: "rate_limit_error", 502: "provider_error"}
_ANTHROPIC_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


def path_of(scope: Mapping[str, Any]) -> str:
    """Return the path of a request in the app."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "").rstrip("/"))


def is_of_api(scope: Mapping[str, Any]) -> bool:
    """Whether a request is to the endpoints of model APIs."""
    return path_of(scope).startswith("/v1/")


def api_of(request: Request) -> str:
    """Return the protocol that a request to these endpoints speaks."""
    if path_of(request.scope).startswith("/v1/messages") or "anthropic-version" in request.headers:
        return "anthropic"
    return "openai_chat"


def as_problem(error: RequestError) -> Problem:
    """Return the problem that a malformed request is answered with."""
    problem = problem_of(error)
    problem.extra["path"] = error.path
    return problem


def request_error_response(request: Request, error: Exception) -> Response:
    """Return the response to a malformed request of a client of a model's API, in the form of that API: status 400. It is an
    exception handler of Starlette and of FastAPI, for views of one's own.

        app = Starlette(routes=routes, exception_handlers={sk.RequestError: request_error_response})

    Args:
        request: the request.
        error: a `RequestError`, of `from_request`, or of an agent one of whose tools has the name of one of the client's.

    Raises:
        Exception: the error, if it is another one.
    """
    if not isinstance(error, RequestError):
        raise error
    return api_error_response(request, as_problem(error))


def api_error_response(
    request: Request,
    problem: Problem,
    error: BaseException | None = None,
    *,
    expose: bool = False,
    began: bool = False,
) -> Response:
    """Return the response for a problem, which is logged.

    Args:
        error: what the server itself failed with.
        expose: whether the client may see the text of that.
        began: whether a run began. Clients then do not repeat the request by themselves: its tools would run again.
    """
    instance = log_problem(problem, error)
    detail = shown_detail(problem, error, expose=expose)
    message = detail or f"{problem.title} ({instance})"
    status = 400 if problem.status == 422 else problem.status
    headers = {
        **problem.headers,
        **({"Retry-After": "1"} if status in (429, 503) else {}),
        **({"x-should-retry": "false"} if began else {}),
        "X-Request-Id": instance,
        "request-id": instance,
    }
    body: dict[str, Any]
    if api_of(request) == "anthropic":
        kind = _ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
        body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": instance}
    else:
        kind = _OPENAI_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
        code = _OPENAI_CODES.get(problem.code, problem.code.replace("-", "_"))
        body = {"error": {"message": message, "type": kind, "param": problem.extra.get("path") or None, "code": code}}
    return JsonResponse(body, status, headers)
