"""Checks of the arguments that an application passes, which may use no type checker.

Each check raises a `UsageError` that names the argument, and what belongs in its place.
"""

from __future__ import annotations

import inspect

from .errors import UsageError
from .messages.answer import is_duration

__all__ = ["check_callable", "check_count", "check_kind", "check_page", "check_plain_methods", "check_seconds"]


def check_kind(name: str, value: object, kind: type) -> None:
    """Refuse what is neither None nor an object of this class."""
    if value is not None and not isinstance(value, kind):
        raise UsageError(f"`{name}` is a `{kind.__name__}`, not {value!r}")


def check_callable(name: str, value: object) -> None:
    """Refuse what is neither None nor a function."""
    if value is not None and not callable(value):
        raise UsageError(f"`{name}` is a function, not {value!r}")


def check_count(name: str, value: object, *, least: int = 1, or_none: bool = False) -> None:
    """Refuse what is not a whole number from `least` on. `or_none` allows None."""
    if (value is not None or not or_none) and (type(value) is not int or value < least):
        raise UsageError(f"`{name}` is a whole number from {least} on{', or None' if or_none else ''}, not {value!r}")


def check_seconds(name: str, value: object, *, or_none: bool = False) -> None:
    """Refuse what is not a number of seconds from 0 on. `or_none` allows None."""
    if (value is not None or not or_none) and not is_duration(value):
        raise UsageError(f"`{name}` is a number of seconds from 0 on{', or None' if or_none else ''}, not {value!r}")


def check_page(limit: object, **texts: object) -> None:
    """Refuse arguments of a list: a `limit` that is not a whole number from 0 on, and other ones that are neither None nor text."""
    check_count("limit", limit, least=0)
    for name, value in texts.items():
        check_kind(name, value, str)


def check_plain_methods(name: str, value: object, kind: type) -> None:
    """Refuse an object of a subclass that has an `async def` in place of a plain method of `kind`: nobody would await it."""
    for method, function in inspect.getmembers(kind, inspect.isfunction):
        if inspect.iscoroutinefunction(function) or method.startswith("_"):
            continue
        own = getattr(value, method, None)
        if inspect.iscoroutinefunction(own) or inspect.isasyncgenfunction(own):
            raise UsageError(
                f"`{name}`: {type(value).__name__}.{method} is `async def`, but threads call it too: make it a plain method, and "
                f"write what tasks call as `a{method}`"
            )
