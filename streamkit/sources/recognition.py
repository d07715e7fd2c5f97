"""What a value is that a user passes as a source: recognised by what it offers, so that no client has to be imported."""

from __future__ import annotations

import inspect
import io
import os
import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

from ..errors import SourceError, UsageError

__all__ = [
    "http_error",
    "is_async_response",
    "is_client",
    "is_complete_answer",
    "is_file",
    "is_framed",
    "is_live",
    "is_path",
    "is_response",
    "is_sync_response",
    "is_wrapped_response",
    "refuse_read",
    "response_of",
    "unknown_source",
    "unread_body",
    "wants_async",
]

_ACCEPTED = (
    "an openai or anthropic stream, a callable, awaitable or context manager that gives one, an HTTP response, an "
    "iterable of bytes, dicts, typed objects or streamkit events, a path to a recording, a relay's reader, an "
    "Emitter, or another stream"
)

# Where the SDKs' helpers keep the stream that they read: of Responses, Chat and Messages; of Assistants.
_INNER_STREAMS = ("_raw_stream", "_AssistantEventHandler__stream", "_AsyncAssistantEventHandler__stream")


# The content types of bodies that streamkit frames: Server-Sent Events and JSON, under whichever names servers send them.
# Some send none.
_FRAMED = ("text/", "application/octet-stream", "application/event-stream")
_FRAMED_JSON = r"application/[\w.+-]*json"


# -- HTTP responses


def is_response(value: Any) -> bool:
    """Whether this is an HTTP response of httpx or httpx2, or has their methods."""
    return (hasattr(value, "iter_bytes") or hasattr(value, "aiter_bytes")) and hasattr(value, "status_code")


def response_of(value: Any) -> Any:
    """The HTTP response that this is or holds; None if there is none. Of an SDK's stream, only an unread one."""
    response = _sdk_response(value)
    if response is not None:
        return response
    return value if is_response(value) else None


def is_wrapped_response(value: Any) -> bool:
    """Whether this is an SDK's wrapper of a response, whose `parse` gives the stream, as `with_raw_response` returns it."""
    return hasattr(value, "http_response") and callable(getattr(value, "parse", None))


def _sdk_response(value: Any) -> Any:
    """The unread response inside an SDK's stream, None if there is none, or if the SDK alone can read its body."""
    for name in _INNER_STREAMS:
        value = getattr(value, name, value)
    response = getattr(value, "response", None)
    if response is None or not is_response(response) or getattr(response, "is_stream_consumed", True):
        return None
    return response if is_framed(response) else None


def is_framed(response: Any) -> bool:
    """Whether streamkit can read the body of a response, as far as its content type says. Amazon's are binary."""
    headers: Mapping[str, str] = getattr(response, "headers", None) or {}
    kind = str(headers.get("content-type") or "").lower()
    return not kind or kind.startswith(_FRAMED) or re.match(_FRAMED_JSON, kind) is not None


def unread_body(response: Any) -> UsageError:
    """The error for a response with a body that is neither Server-Sent Events nor JSON."""
    kind = response.headers.get("content-type")
    return UsageError(
        f"the response's body is {kind!r}, neither Server-Sent Events nor JSON; if its client can read it, pass the client's "
        "own stream"
    )


def is_async_response(response: Any) -> bool:
    """Whether only a task can read this response."""
    body = getattr(response, "stream", None)
    return hasattr(body, "__aiter__") and not hasattr(body, "__iter__")


def is_sync_response(response: Any) -> bool:
    """Whether only a thread can read this response."""
    body = getattr(response, "stream", None)
    return body is not None and not hasattr(body, "__aiter__")


def refuse_read(value: Any) -> None:
    """Check that something is left to read of a value that can be read once.

    Raises:
        UsageError: it is a generator or coroutine that has ended, or a response that was read or closed, or holds one.
    """
    if _is_over(value):
        raise UsageError(
            f"the {type(value).__name__} was read already, or closed, and can be read only once: pass a new one, or a "
            "function that makes the request"
        )


def _is_over(value: Any) -> bool:
    if inspect.isgenerator(value):
        return value.gi_frame is None
    if inspect.isasyncgen(value):
        return value.ag_frame is None
    if inspect.iscoroutine(value):
        return value.cr_frame is None
    for name in _INNER_STREAMS:
        value = getattr(value, name, value)
    response = value if is_response(value) else getattr(value, "response", None)
    if response is None or not is_response(response) or not getattr(response, "is_closed", False):
        return False
    try:
        _ = response.content  # a client may have read all of it ahead of us
    except Exception:  # httpx's own: it holds nothing
        return True
    return False


# -- other values


def is_path(value: Any) -> bool:
    """Whether this is a path. A str is not: it might be a body."""
    return isinstance(value, os.PathLike)


def is_complete_answer(value: Any) -> bool:
    """Whether this is an SDK's typed object, which a request without `stream=True` returns. It is read as one item."""
    return callable(getattr(value, "model_dump", None)) and not hasattr(value, "__next__")


def is_client(value: Any) -> bool:
    """Whether this is an HTTP client. It is a context manager too, but entering and leaving it would close it."""
    return hasattr(value, "base_url") or hasattr(value, "request")


def is_file(value: Any) -> bool:
    """Whether this is an open file, or one that `tempfile` wraps."""
    names = ("read", "readline", "seekable", "__iter__")
    return isinstance(value, io.IOBase) or all(hasattr(value, name) for name in names)


def is_live(value: Any) -> bool:
    """Whether an iterable may be a producer that continues only when it is pulled: any whose items do not exist yet."""
    # A length alone proves nothing, since progress bars and proxies have one. A file's items exist already.
    return not isinstance(value, (Sequence, Set)) and not is_file(value)


# -- refusals


def unknown_source(value: Any) -> UsageError:
    """The error for a value that is no source."""
    if isinstance(value, str):
        hint = f"a path must be one: Path({value[:100]!r})"
        return UsageError(f"a str is no source of a stream ({hint}); accepted are: {_ACCEPTED}")
    if value is None:
        hint = "a function that makes a request has `return`"
        return UsageError(f"None is no source of a stream ({hint}); accepted are: {_ACCEPTED}")
    return UsageError(f"{value!r} ({type(value).__name__}) is no source of a stream; accepted are: {_ACCEPTED}")


def wants_async(value: Any) -> UsageError:
    """The error for an asynchronous value that was passed to `stream`."""
    return UsageError(f"{type(value).__name__} is asynchronous: use `astream` in place of `stream`")


def http_error(response: Any, body: bytes) -> SourceError:
    """The error for a response with a status of 400 or more; `body` is its content."""
    text = body[:2000].decode("utf-8", "replace")
    error = SourceError(f"the server answered with HTTP status {response.status_code}: {text}")
    error.status_code = response.status_code
    return error
