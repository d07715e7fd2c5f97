"""What the chunks state about the entire answer, or about one choice alone, for the run's metadata."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from ..values import WireObject, as_object, is_object
from .choice import Choice

__all__ = ["new_values", "run_metadata", "with_metadata"]


def with_metadata(metadata: WireObject, chunk: WireObject, keys: Iterable[str]) -> WireObject:
    """The metadata, and what a chunk has at these keys. It is a new object if that is news: events have the one before."""
    for key in keys:
        value = chunk.get(key)
        if key == "x_groq" and is_object(value):
            values = {name: value[name] for name in value if name not in ("usage", "error")}
            value = {**as_object(metadata.get(key)), **values}
        if value and value != metadata.get(key):
            metadata = {**metadata, key: value}
    return metadata


def new_values(before: WireObject, metadata: WireObject) -> dict[str, Any]:
    """What `with_metadata` has added: the values that are new or other ones, and of an object that got more keys those."""
    changed: dict[str, Any] = {}
    for key, value in metadata.items():
        last = before.get(key)
        if key == "x_groq" and is_object(value) and is_object(last):
            changed |= {name: one for name, one in value.items() if name not in last or last[name] != one}
        elif last is not value:
            changed[key] = value
    return changed


def run_metadata(metadata: WireObject, choices: Collection[Choice]) -> WireObject:
    """The run's metadata: what the chunks stated, `finish_reasons` by choice if there are several, and under `choices` what
    they stated about one choice."""
    if len(choices) == 1:
        (choice,) = choices
        if not choice.extra:
            return metadata
    found = dict(metadata)
    in_order = sorted(choices, key=lambda choice: choice.index)
    if len(in_order) > 1:
        found["finish_reasons"] = {str(choice.index): choice.finish_reason for choice in in_order}
    if extra := {str(choice.index): choice.extra for choice in in_order if choice.extra}:
        found["choices"] = extra
    return found
