"""What decoders ask of wire values: JSON as it was parsed, whatever it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

__all__ = ["is_list", "is_object"]

_OTHERS = frozenset((str, int, float, bool, list, type(None)))  # what else JSON has


def is_object(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether a wire value is an object. Its keys are text: JSON has no others."""
    # The last asks a registry.
    return type(value) is dict or (type(value) not in _OTHERS and isinstance(value, Mapping))


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Whether a wire value is a list."""
    return isinstance(value, list)
