"""Tells which framework an item of a source belongs to, by the module of its class. No framework is imported."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

__all__ = ["FRAMEWORKS", "framework_of"]

FRAMEWORKS = ("pydantic_ai",)
"""The names of the frameworks: those of the modules beside this one, and of `protocol=`."""

_ROOTS = {"pydantic_ai": "pydantic_ai"}  # the frameworks, by the top-level modules of their classes


def framework_of(item: Any) -> str | None:
    """Return the framework whose object an item is; None for any other item."""
    return _framework_of_class(item.__class__)


@lru_cache(maxsize=1000)
def _framework_of_class(kind: type) -> str | None:
    return _ROOTS.get(kind.__module__.partition(".")[0])
