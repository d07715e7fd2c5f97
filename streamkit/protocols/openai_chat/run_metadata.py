"""What the chunks state about the entire answer, or about one choice alone, for the run's metadata."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..held_values import add_values
from ..values import WireObject, is_object
from .choice import Choice

__all__ = ["add_metadata", "run_metadata"]


def add_metadata(metadata: dict[str, Any], chunk: WireObject, keys: Iterable[str]) -> dict[str, Any]:
    """Add what a chunk has at these keys. Returns what of it is new."""
    changed: dict[str, Any] = {}
    for key in keys:
        value = chunk.get(key)
        if key == "x_groq" and is_object(value):
            values = {name: value[name] for name in value if name not in ("usage", "error")}
            held = metadata.get(key)
            if isinstance(held, dict):
                changed |= add_values(held, values)  # pyright: ignore[reportUnknownArgumentType]
                continue
            value = values
        if value:
            changed |= add_values(metadata, {key: value})
    return changed


def run_metadata(metadata: WireObject, choices: Iterable[Choice]) -> dict[str, Any]:
    """The run's metadata: what the chunks stated, `finish_reasons` by choice if there are several, and under `choices` what
    they stated about one choice."""
    found = dict(metadata)
    in_order = sorted(choices, key=lambda choice: choice.index)
    if len(in_order) > 1:
        found["finish_reasons"] = {str(choice.index): choice.finish_reason for choice in in_order}
    if extra := {str(choice.index): choice.extra for choice in in_order if choice.extra}:
        found["choices"] = extra
    return found
