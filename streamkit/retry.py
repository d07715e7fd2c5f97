"""`Retry`: how often a stream asks its source again after a failure, and after which ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from .arguments import check_callable, check_count, check_kind, check_seconds
from .errors import StreamkitError

__all__ = ["Retry", "checked_retry"]


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a source is asked, and after which errors it is asked again: of `stream(retry=)` and `Agent(retry=)`.

        sk.stream(ask, Web(), retry=sk.Retry(5, restart=True)).until_done()

    Attributes:
        attempts: requests of one source, the first one included. Each source of `then=`, each model call of an agent and each
            fallback has its own count.
        restart: whether to ask again where content of the failed answer has come already. Its messages are withdrawn
            (`on_retry`), so whoever shows them has to take them back.
        on: whether an error is worth another attempt. By default: an error without an HTTP status, 408, 409, 429 and 5xx, a
            timeout, an answer that was cut off, and a failed run with a code that the protocol's package calls transient; but
            not an exhausted quota. What the server says itself counts before its status (`x-should-retry: true`, `false`). It
            does not see errors of hooks, `UsageError` and `ProtocolError`, which always end the stream.
        max_wait: the longest wait before an attempt, in seconds. Where the server wants a longer one there is no attempt.

    Raises:
        UsageError: an argument is of another kind.
    """

    attempts: int = 3
    _: KW_ONLY
    restart: bool = False
    on: Callable[[StreamkitError], bool] | None = None
    max_wait: float = 60.0

    def __post_init__(self) -> None:
        check_count("attempts", self.attempts)
        check_kind("restart", self.restart, bool)
        check_callable("on", self.on)
        check_seconds("max_wait", self.max_wait)


def checked_retry(retry: object) -> Retry:
    """Return the `Retry` that `retry=` means: a number is that of the attempts, None one attempt.

    Raises:
        UsageError: it is neither.
    """
    if retry is None or type(retry) is int:
        check_count("retry", retry, or_none=True)
        return Retry(1 if retry is None else retry)
    check_kind("retry", retry, Retry)
    assert isinstance(retry, Retry)
    return retry
