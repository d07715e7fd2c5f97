"""Checks of hooks: whether one can be called with the arguments that its events have, which is checked before any request is
sent, and whether its result has to be awaited."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any

from ..errors import UsageError

__all__ = ["check_arguments", "is_async", "is_plain_method"]

_MAY_PAUSE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def check_arguments(hook: Any, declared: Any, owner: str) -> None:
    """Check that a hook takes the arguments that it will be called with.

    Of a decorated hook, what the decorator returned is checked, and not what it wraps: that is what is called, and it may
    add arguments or leave some out.

    Args:
        hook: is called.
        declared: the function that declares it, with `self`.
        owner: what an error calls the handler.

    Raises:
        UsageError: it does not.
    """
    code = declared.__code__
    names = code.co_varnames[1 : code.co_argcount]
    if not _takes(hook, len(names)):
        name = declared.__name__
        raise UsageError(
            f"{owner}.{name} cannot be called with its arguments: it is {name}({', '.join(('self', *names))})"
        )


def _takes(hook: Any, count: int) -> bool:
    """Whether a hook takes this number of arguments. (`inspect.signature` would cost more than all else that begins a stream.)"""
    function = getattr(hook, "__func__", hook)
    if type(function) is not FunctionType:
        return _binds(hook, count)
    code = function.__code__
    most, required_keys = (
        code.co_argcount - (function is not hook),
        code.co_kwonlyargcount - len(function.__kwdefaults__ or ()),
    )
    takes_more = most >= count or bool(code.co_flags & inspect.CO_VARARGS)
    return takes_more and most - len(function.__defaults__ or ()) <= count and not required_keys


def _binds(hook: Any, count: int) -> bool:
    try:
        signature = inspect.signature(hook, follow_wrapped=False)
    except (TypeError, ValueError):
        return True  # it is written in C, and has none
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def is_plain_method(function: Any) -> bool:
    """Whether it is surely the method of an object that neither pauses nor is decorated: most hooks are."""
    plain = getattr(function, "__func__", None)
    return type(plain) is FunctionType and not plain.__dict__ and not plain.__code__.co_flags & _MAY_PAUSE


def is_async(function: Any) -> bool:
    """Whether a call of it has to be awaited."""
    return not is_plain_method(function) and inspect.iscoroutinefunction(function)
