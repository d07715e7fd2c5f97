"""Recognition of the values that users pass as sources: by what they offer, so that no client has to be imported."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence, Set
from itertools import repeat
from typing import Any

from ..errors import SourceError, UsageError, server_message
from ..messages.json_text import decode_json
from ..protocols.frameworks.shape import source_of_framework

__all__ = [
    "async_iterator_of",
    "attribute",
    "class_of",
    "http_error",
    "is_async_response",
    "is_client",
    "is_complete_answer",
    "is_connection",
    "is_file",
    "is_framed",
    "is_live",
    "is_openai_run",
    "is_path",
    "is_response",
    "is_response_holder",
    "is_sync_response",
    "is_wrapped_response",
    "iterator_of",
    "may_be_over",
    "offers",
    "read_already",
    "refuse_read",
    "unknown_source",
    "unread_body",
    "wants_async",
]

_ACCEPTED = (
    "a stream of openai, anthropic or another SDK, a callable, awaitable or context manager that gives one, an HTTP response, an "
    "iterable of bytes, text, dicts, typed objects or streamkit events, a path to a recording, a relay's reader, an "
    "Emitter, or another stream"
)

# The content types of bodies that streamkit frames: Server-Sent Events, Amazon's messages, and JSON, under whichever names servers send
# them.
# Some send none.
_FRAMED = ("text/", "application/octet-stream", "application/event-stream", "application/vnd.amazon.eventstream")
_FRAMED_JSON = r"application/[\w.+-]*json"


def attribute(value: Any, name: str, default: Any = None) -> Any:
    """Return an attribute of any object. What an application's own object raises there must not end a stream that needs
    none of it."""
    try:
        return getattr(value, name, default)
    except Exception:
        return default


def class_of(value: object) -> Any:
    """Return the class itself, whatever a proxy says that its class is."""
    return type(value)


def offers(value: Any, method: str) -> bool:
    """Whether Python finds a special method on a value, which it looks for in the class alone.

    The class of a proxy may have all of them. It offers those that what it wraps has, too. And it may be iterable of its own,
    which shows when it is tried, unless what it wraps can be iterated in the other form alone: by threads, or by tasks.
    """
    if getattr(class_of(value), method, None) is None:
        return False
    wrapped = attribute(value, "__wrapped__", value)
    if wrapped is value or offers(wrapped, method):
        return True
    other_form = _ITERATION.get(method)
    if other_form is None or offers(wrapped, other_form):
        return False
    try:
        getattr(class_of(value), method)(value)
    except (TypeError, AttributeError):
        return False
    return True


_ITERATION = {"__iter__": "__aiter__", "__aiter__": "__iter__"}


def iterator_of(value: Any) -> Iterator[Any]:
    """Return the items of an iterable, as a loop gets them."""
    return map(next, repeat(value)) if _is_pulled(value, "__next__", "__iter__") else iter(value)


def async_iterator_of(value: Any) -> AsyncIterator[Any]:
    """Return the items of an async iterable, as a loop gets them."""
    return _pull_each(value) if _is_pulled(value, "__anext__", "__aiter__") else aiter(value)


async def _pull_each(value: AsyncIterator[Any]) -> AsyncIterator[Any]:
    with contextlib.suppress(StopAsyncIteration):
        while True:
            yield await anext(value)


def _is_pulled(value: Any, pull: str, iterate: str) -> bool:
    """Whether a class overrides `__next__` alone, and inherits an `__iter__` that passes it by."""
    kinds: tuple[Any, ...] = class_of(value).__mro__
    first = next((kind for kind in kinds if pull in vars(kind) or iterate in vars(kind)), None)
    return first is not None and iterate not in vars(first)


# -- HTTP responses


def is_response(value: Any) -> bool:
    """Whether this is an HTTP response of httpx or httpx2, or has their methods."""
    reads = attribute(value, "iter_bytes") or attribute(value, "aiter_bytes")
    return reads is not None and attribute(value, "status_code") is not None


def is_wrapped_response(value: Any) -> bool:
    """Whether this is an SDK's wrapper of a response, whose `parse` gives the stream, as `with_raw_response` returns it."""
    return attribute(value, "http_response") is not None and callable(attribute(value, "parse"))


def is_response_holder(value: Any) -> bool:
    """Whether this is cohere's wrapper of a response, as its `with_raw_response` returns it."""
    return is_response(attribute(value, "response")) and attribute(value, "data") is not None


def is_framed(response: Any) -> bool:
    """Whether streamkit can read the body of a response, as far as its content type says."""
    headers: Mapping[str, str] = getattr(response, "headers", None) or {}
    kind = str(headers.get("content-type") or "").lower()
    return not kind or kind.startswith(_FRAMED) or re.match(_FRAMED_JSON, kind) is not None


def unread_body(response: Any) -> UsageError:
    """Return the error for a response with a body that is neither Server-Sent Events nor JSON."""
    kind = response.headers.get("content-type")
    return UsageError(
        f"the response's body is {kind!r}, neither Server-Sent Events nor JSON; if its client can read it, pass the client's "
        "own stream"
    )


def is_async_response(response: Any) -> bool:
    """Whether only a task can read this response."""
    body = attribute(response, "stream")
    return hasattr(body, "__aiter__") and not hasattr(body, "__iter__")


def is_sync_response(response: Any) -> bool:
    """Whether only a thread can read this response."""
    body = attribute(response, "stream")
    return body is not None and not hasattr(body, "__aiter__")


def refuse_read(value: Any) -> None:
    """Check that something is left to read of a value that can be read once.

    Raises:
        UsageError: it is a generator or coroutine that has ended, or a response that was read or closed.
    """
    if inspect.isgenerator(value):
        is_over = value.gi_frame is None
    elif inspect.isasyncgen(value):
        is_over = value.ag_frame is None
    elif inspect.iscoroutine(value):
        is_over = value.cr_frame is None
    else:
        is_over = is_response(value) and _is_over(value)
    if is_over:
        raise read_already(value)


def may_be_over(value: Any) -> bool:
    """Whether the HTTP response of a stream was read or closed, as far as that shows. What stands around the stream may still
    have items."""
    for name in _INNER_STREAMS:
        value = attribute(value, name, value)
    response = attribute(value, "response")
    return response is not None and is_response(response) and _is_over(response)


# Where the SDKs' helpers have the stream that they read: of Responses, Chat and Messages; of Assistants.
_INNER_STREAMS = ("_raw_stream", "_AssistantEventHandler__stream", "_AsyncAssistantEventHandler__stream")


def _is_over(response: Any) -> bool:
    if not attribute(response, "is_closed", False):
        return False
    try:
        _ = response.content  # a client may have read all of it ahead of us
    except Exception:  # httpx's own: it holds nothing
        return True
    return False


def read_already(value: Any) -> UsageError:
    """Return the error for a value that can be read once, and was."""
    return UsageError(
        f"the {type(value).__name__} was read already, or closed, and can be read only once: pass a new one, or a "
        "function that makes the request"
    )


# -- other values


def is_path(value: Any) -> bool:
    """Whether this is a path. A str is not: it might be a body."""
    return isinstance(value, os.PathLike)


def is_complete_answer(value: Any) -> bool:
    """Whether this is an SDK's typed object, which a request without `stream=True` returns. It is read as one item."""
    return callable(attribute(value, "model_dump")) and not hasattr(class_of(value), "__next__")


def is_client(value: Any) -> bool:
    """Whether this is an HTTP client. It is a context manager too, but entering and leaving it would close it."""
    return attribute(value, "base_url") is not None or attribute(value, "request") is not None


def is_connection(value: Any) -> bool:
    """Whether this is an open connection whose responses come one after the other, as `client.responses.connect()` gives it."""
    return attribute(value, "recv_bytes") is not None and callable(attribute(attribute(value, "response"), "create"))


def is_openai_run(value: Any) -> bool:
    """Whether this is what `Runner.run_streamed` of openai-agents returns: a run, which cannot be iterated itself."""
    return offers(value, "stream_events") and offers(value, "cancel") and not offers(value, "__aiter__")


def is_file(value: Any) -> bool:
    """Whether this is an open file, or one that `tempfile` wraps."""
    names = ("read", "readline", "seekable", "__iter__")
    return isinstance(value, io.IOBase) or all(attribute(value, name) is not None for name in names)


def is_live(value: Any) -> bool:
    """Whether an iterable may be a producer that continues only when it is pulled: any whose items do not exist yet."""
    # A length alone proves nothing, since progress bars and proxies have one. A file's items exist already.
    return not isinstance(value, (Sequence, Set)) and not is_file(value)


# -- refusals


def unknown_source(value: Any) -> UsageError:
    """Return the error for a value that is not a source."""
    if isinstance(value, str):
        hint = f"a path must be one: Path({value[:100]!r})"
        return UsageError(f"a str is not a source of a stream ({hint}); accepted are: {_ACCEPTED}")
    if value is None:
        hint = "a function that makes a request has `return`"
        return UsageError(f"None is not a source of a stream ({hint}); accepted are: {_ACCEPTED}")
    if (source := source_of_framework(value)) is not None:
        return UsageError(f"a {type(value).__name__} is not a source of a stream; {source}")
    return UsageError(f"{value!r} ({type(value).__name__}) is not a source of a stream; accepted are: {_ACCEPTED}")


def wants_async(value: Any) -> UsageError:
    """Return the error for an asynchronous value that was passed to `stream`."""
    return UsageError(f"{type(value).__name__} is asynchronous: use `astream` in place of `stream`")


def http_error(response: Any, body: bytes) -> SourceError:
    """Return the error for a response with a status of 400 or more; `body` is its content."""
    parsed_body: Any = body.decode("utf-8", "replace")
    with contextlib.suppress(ValueError, RecursionError):  # no JSON
        parsed_body = decode_json(body)
    error = SourceError(f"the server answered with HTTP status {response.status_code}: {server_message(parsed_body)}")
    error.status_code, error.body = response.status_code, parsed_body or None
    error.note_headers(attribute(response, "headers"))
    return error
