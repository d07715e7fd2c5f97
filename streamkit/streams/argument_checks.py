"""Checks what users pass to `stream`, before anything is opened: a wrong argument is named, and no source is touched."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UsageError
from ..handlers import Handler
from ..protocols import Decoder

__all__ = ["check_arguments", "check_kind"]


def check_arguments(
    handlers: Sequence[object], protocol: object, then: object, after: object, max_steps: object
) -> None:
    """Check what users passed to `stream`, who may use no type checker.

    Raises:
        UsageError: an argument has the wrong type.
    """
    if protocol is not None and not (isinstance(protocol, type) and issubclass(protocol, Decoder)):
        raise UsageError(f"a protocol is a name or a Decoder class, not {protocol!r}")
    if then is not None and not callable(then):
        raise UsageError(f"`then` is called with the stream for its next source; {then!r} cannot be called")
    for handler in handlers:
        if not isinstance(handler, Handler):
            raise UsageError(f"{handler!r} is no handler; subclass EventHandler, AsyncEventHandler or Handler")
    if after is not None and not isinstance(after, str):
        raise UsageError(f"a cursor is a str, as `stream.cursor` returns it, not {after!r}")
    if not isinstance(max_steps, int) or isinstance(max_steps, bool) or max_steps < 1:
        raise UsageError(f"max_steps is a number from 1 on, not {max_steps!r}")


def check_kind(name: str, value: object, kind: type) -> None:
    """Raise `UsageError` for an option that is neither None nor of its class."""
    if value is not None and not isinstance(value, kind):
        raise UsageError(f"`{name}` is a `{kind.__name__}`, not {value!r}")
