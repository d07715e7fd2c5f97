"""Tells which framework an item of a source belongs to, by the module of its class and an attribute. No framework is imported."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

__all__ = ["FRAMEWORKS", "framework_of", "source_of_framework"]

FRAMEWORKS = ("pydantic_ai", "smolagents")
"""The names of the frameworks: those of the modules beside this one, and of `protocol=`."""

# The frameworks, by the top-level modules of their classes, and of each an attribute that its items have.
_ROOTS = {"pydantic_ai": "pydantic_ai", "pydantic_graph": "pydantic_ai", "smolagents": "smolagents"}
_ATTRIBUTES = {"pydantic_ai": "event_kind", "smolagents": "__dataclass_fields__"}

_SOURCES = {
    "pydantic_ai": "of Pydantic AI, `agent.run_stream_events(…)` is a source, and so is a model request's `node.stream(run.ctx)`",
    "smolagents": "of smolagents, `agent.run(…, stream=True)` is a source",
}


def framework_of(item: Any) -> str | None:
    """Return the framework whose object an item is; None for any other item."""
    name = _framework_of_class(item.__class__)
    return name if name is not None and hasattr(item, _ATTRIBUTES[name]) else None


def source_of_framework(value: Any) -> str | None:
    """Return what is a source of the framework whose object this is, for an error; None for any other value."""
    return _SOURCES.get(_framework_of_class(value.__class__) or "")


@lru_cache(maxsize=1000)
def _framework_of_class(kind: type) -> str | None:
    """Applications derive classes of their own from a framework's."""
    roots = (base.__module__.partition(".")[0] for base in kind.__mro__)
    return next((_ROOTS[root] for root in roots if root in _ROOTS), None)
