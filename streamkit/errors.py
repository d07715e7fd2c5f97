"""What can go wrong, and whose fault it is.

    StreamkitError
    ├── UsageError               the caller erred: a wrong argument, an answer that nobody can take
    ├── ProtocolError            the source made no sense (strict streams only)
    ├── SourceError              the transport failed: connection, HTTP status, a producer that raised
    │   └── SourceTimeoutError   … by a timeout; it is a `TimeoutError` too
    ├── IncompleteStreamError    the stream stopped before its protocol's end
    └── RunFailedError           the provider said that the run failed

Every error carries what had arrived: `error.messages`. The client's own error is its `__cause__`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from .messages import Message

__all__ = [
    "IncompleteStreamError",
    "ProtocolError",
    "RunFailedError",
    "SourceError",
    "SourceTimeoutError",
    "StreamkitError",
    "UsageError",
    "raise_source_error",
]


class StreamkitError(Exception):
    """The root of streamkit's errors. `messages` holds what had arrived when it was raised."""

    messages: Sequence[Message] = ()


class UsageError(StreamkitError):
    """The calling code is at fault; nothing was sent on its behalf unless the text says so."""


class ProtocolError(StreamkitError):
    """An item of the source made no sense, on a strict stream.

    `index` counts the source's items from 0; `kind` is the item's type as far as it was readable; `code` is the
    warning's code, which the lenient stream would have told instead.
    """

    def __init__(self, code: str, fault: str, index: int | None = None, kind: str | None = None) -> None:
        where = "the stream" if index is None else f"item {index}"
        super().__init__(f"{where}{f' ({kind})' if kind else ''}: {fault} [{code}]")
        self.code = code
        self.fault = fault
        self.index = index
        self.kind = kind


class SourceError(StreamkitError):
    """The source's transport failed. `status_code` is the HTTP status, where there was one."""

    status_code: int | None = None


class SourceTimeoutError(SourceError, TimeoutError):
    """The source's transport timed out."""


class IncompleteStreamError(StreamkitError):
    """The source ended before its protocol said so: it was cut off."""


class RunFailedError(StreamkitError):
    """The provider ended the run as failed. `code` and `body` are the provider's own, where it gave them."""

    def __init__(self, message: str, code: str | None = None, body: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.body = body


def raise_source_error(error: Exception) -> NoReturn:
    """Raise a transport's error as a `SourceError`, with the client's own as its cause. Our own errors stay as they are.

    A timeout is recognised by `TimeoutError` or by its class's name, as every HTTP client has classes of its own.
    """
    if isinstance(error, StreamkitError):
        raise error
    names = {kind.__name__ for kind in type(error).__mro__}
    timed_out = isinstance(error, TimeoutError) or any("Timeout" in name for name in names)
    kind = SourceTimeoutError if timed_out else SourceError
    text = str(error)
    translated = kind(f"{type(error).__name__}: {text}" if text else type(error).__name__)
    status = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
    translated.status_code = status if isinstance(status, int) else None
    raise translated from error
