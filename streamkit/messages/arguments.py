"""The arguments of a tool call: the JSON object that its text should be. All of streamkit reads them here, so that `malformed`,
`arguments`, warnings and agents agree about every text."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from .json_text import decode_json

__all__ = ["Repaired", "read_arguments", "repaired_arguments"]


class Repaired(NamedTuple):
    """Arguments of which it is certain what was meant.

    Attributes:
        text: the JSON object.
        fault: what was wrong with the model's own text.
    """

    text: str
    fault: str


def read_arguments(text: str) -> dict[str, Any] | None:
    """Return the object that complete arguments are; None if they are none. NaN and Infinity are not JSON."""
    try:
        value = decode_json(text)
    except (ValueError, RecursionError):  # not JSON, or nested too deep to be read
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None  # JSON's keys are str


def repaired_arguments(text: str) -> Repaired | None:
    """Return what arguments that are not a JSON object surely mean: an object that was encoded twice, as a string, and one that
    comes after an empty one, which some servers send first. None where it is not certain."""
    stripped = text.strip()
    if stripped.startswith('"'):
        try:
            inner = decode_json(stripped)
        except (ValueError, RecursionError):
            return None
        return Repaired(inner, "were encoded twice") if read_arguments(inner) is not None else None
    rest = stripped.removeprefix("{}").lstrip()
    if rest != stripped and read_arguments(rest) is not None:
        return Repaired(rest, "came after an empty object")
    return None
