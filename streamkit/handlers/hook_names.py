"""The names of the hooks, computed from the events, and a warning of names that look like one and are none."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Collection, Mapping
from functools import cache
from types import CodeType, MethodType

from ..events import EVENTS, Event, version

__all__ = [
    "HOOKS",
    "hook_events",
    "warn_of_near_misses",
    "warn_of_returned_value",
    "warn_of_unknown_hooks",
]

HOOKS: tuple[str, ...] = ("on_event", *dict.fromkeys(name for kind in EVENTS.values() for name in kind.hooks))
"""The names of streamkit's own hooks, computed from the events."""


@cache
def _events_by_hook(version: int) -> dict[str, list[type[Event]]]:
    """Return the events that call each hook, in the order of HOOKS. `version` is the number of the newest event class:
    the result is computed again when an application declares another one."""
    by_hook: dict[str, list[type[Event]]] = {"on_event": [*EVENTS.values()]}
    for kind in EVENTS.values():
        for name in kind.hooks:
            by_hook.setdefault(name, []).append(kind)
    return {name: by_hook[name] for name in dict.fromkeys((*HOOKS, *by_hook))}


def hook_events() -> dict[str, list[type[Event]]]:
    """Return the events that call each hook, the hooks of an application's events too."""
    return _events_by_hook(version())


def warn_of_near_misses(cls: type, hooks: Collection[str], others: Mapping[str, str], *, stacklevel: int) -> None:
    """Warn of the names in a class that look like hooks and will never be called.

    Args:
        cls: the handler's class.
        hooks: the names of its hooks. A name that differs from one in up to two characters is taken for a slip; others
            are the application's own.
        others: the hooks of other handlers, each with where those are.
        stacklevel: as of `warnings.warn`.
    """
    for name in vars(cls):
        if not name.startswith("on_") or name in hooks:
            continue
        near = next(
            (hook for hook in hooks if abs(len(name) - len(hook)) <= 2 and _differing_characters(name, hook) <= 2), None
        )
        if name in others or near is not None:
            _warned.add((cls.__qualname__, name))
        if name in others:
            warnings.warn(
                f"{cls.__name__}.{name} is a hook of the handlers of {others[name]} and will never be called here",
                UserWarning,
                stacklevel=stacklevel,
            )
        elif near is not None:
            text = f"{cls.__name__}.{name} is not a hook and will never be called; did you mean {near}?"
            warnings.warn(text, UserWarning, stacklevel=stacklevel)


_SHOWN = 60  # characters of a value in a warning
_looked_at: weakref.WeakSet[type] = weakref.WeakSet()  # classes of handlers
_warned: set[tuple[str, str]] = set()  # the classes' names, and those of their methods


def warn_of_unknown_hooks(kind: type, roots: Collection[object], *, stacklevel: int) -> None:
    """Warn once of each method of a handler's class that is named `on_…` and is the hook of no event: it is never called."""
    if kind in _looked_at:
        return
    _looked_at.add(kind)
    hooks = hook_events()
    for base in kind.__mro__:
        for name in () if base in roots else vars(base):
            if name.startswith("on_") and name not in hooks and (base.__qualname__, name) not in _warned:
                _warned.add((base.__qualname__, name))
                import difflib  # only for names that are not hooks

                nearest = difflib.get_close_matches(name, hooks, 1, 0)
                text = (
                    f"{base.__name__}.{name} is not a hook and will never be called; the nearest hook is {nearest[0]}"
                )
                warnings.warn(text, UserWarning, stacklevel=stacklevel)


# Hooks that returned a value: the names of methods, by their object's class; and functions of their own, by their code.
_returned: weakref.WeakKeyDictionary[type | CodeType, set[str]] = weakref.WeakKeyDictionary()


def warn_of_returned_value(hook: object, value: object) -> None:
    """Warn once of a hook that returns something, which nobody receives. A lambda always does, and so may what is written
    in C: they are left alone, and so is `Handler.handle`."""
    function = getattr(hook, "__func__", hook)
    code = getattr(function, "__code__", None)
    if code is None or code.co_name in ("<lambda>", "handle"):
        return
    owner: type | CodeType = code
    if isinstance(hook, MethodType):
        owner = hook.__self__.__class__
    names = _returned.setdefault(owner, set())
    if code.co_name in names:
        return
    names.add(code.co_name)
    name = getattr(function, "__qualname__", code.co_name)
    text = f"{name} returned {_shortened(repr(value))}, which is not used: a hook returns nothing"
    if code.co_name.startswith("on_tool_call"):
        text += "; a tool call is answered by `respond`"
    # The hook has returned, so it is on no stack level.
    warnings.warn_explicit(text, UserWarning, code.co_filename, code.co_firstlineno)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _differing_characters(one: str, other: str) -> int:
    """Return how many characters of two names are only in one of them, at their place in the order."""
    import difflib  # only for names that are nearly hooks

    blocks = difflib.SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    return len(one) + len(other) - 2 * sum(block.size for block in blocks)
