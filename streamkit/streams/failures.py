"""An error as the `stream_exception` that goes over the wire, and back: a stream of another stream's events fails as that one.

What an error says beyond its message stays: its code, body, status and limit.
"""

from __future__ import annotations

from typing import Any

from .. import errors
from ..errors import LimitError, ProtocolError, RunFailedError, StreamkitError
from ..events import StreamException

__all__ = ["details_of", "error_of"]


def details_of(error: BaseException) -> dict[str, Any]:
    """Return the error's own fields, as a `StreamException` has them."""
    details = {
        key: getattr(error, key, None) for key in ("code", "body", "status_code", "fault", "index", "kind", "allowed")
    }
    return {key: value for key, value in details.items() if value is not None}


def error_of(event: StreamException) -> StreamkitError:
    """Return the error that another stream ended with, from its `stream_exception`."""
    if isinstance(event.exception, StreamkitError):
        return event.exception
    details = event.details
    match getattr(errors, event.error, None):
        case errors.LimitError if limit := str(details.get("code", "")).partition("-")[2]:
            return LimitError(limit, details.get("allowed", 0))
        case errors.RunFailedError:
            return RunFailedError(event.message, details.get("code"), details.get("body"))
        case errors.ProtocolError:
            return ProtocolError(
                str(details.get("code", "")), str(details.get("fault", event.message)), details.get("index")
            )
        case type() as kind if issubclass(kind, StreamkitError):
            error: StreamkitError = kind(event.message)
            if isinstance(error, errors.SourceError):
                error.status_code = details.get("status_code")
                error.retry_after = details.get("retry_after")
            return error
        case _:
            return errors.SourceError(f"the producer of the stream failed: {event.error}: {event.message}")
