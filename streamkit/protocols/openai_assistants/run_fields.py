"""Which values of a run's metadata go into the run object of this API: those that have the type that strict clients want.

A canonical run may come from any provider, so its metadata may have the same keys with other values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

from msgspec import UNSET

from ..values import WireObject, as_count, as_object, as_objects

__all__ = ["is_number", "is_tags", "run_fields"]


def run_fields(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a run object that its metadata may have: with those values, or with what this API has by default."""
    fields = {key: metadata[key] if fits(metadata.get(key)) else copy(none) for key, (fits, none) in _FIELDS.items()}
    return {key: value for key, value in fields.items() if value is not UNSET}


def is_number(value: Any) -> bool:
    """Whether a value is a number; True and False are not."""
    return type(value) in (int, float)


def is_tags(value: Any) -> bool:
    """Whether a value is an object of texts, and not empty: what this API calls `metadata`."""
    wire = as_object(value)
    return bool(wire) and all(isinstance(tag, str) for tag in wire.values())


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return as_count(value) is not None


def _is_tool(wire: WireObject) -> bool:
    function = as_object(wire.get("function"))
    if wire.get("type") == "function":
        return isinstance(function.get("name"), str) and isinstance(function.get("parameters", {}), dict)
    return wire.get("type") in ("code_interpreter", "file_search")


def _is_tools(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_tool, as_objects(value)))


def _is_tool_choice(value: Any) -> bool:
    return value in ("none", "auto", "required") if isinstance(value, str) else _is_tool(as_object(value))


def _is_response_format(value: Any) -> bool:
    return value == "auto" or as_object(value).get("type") in ("text", "json_object")


def _is_truncation(value: Any) -> bool:
    wire = as_object(value)
    last = wire.get("last_messages")
    return wire.get("type") in ("auto", "last_messages") and (last is None or _is_count(last))


# By the key in the run object: whether a value fits, and the value that stands there where none does.
_FIELDS: dict[str, tuple[Callable[[Any], bool], Any]] = {
    "assistant_id": (_is_text, ""),
    "thread_id": (_is_text, ""),
    "instructions": (_is_text, ""),
    "tools": (_is_tools, []),
    "metadata": (is_tags, {}),
    "temperature": (is_number, UNSET),
    "top_p": (is_number, UNSET),
    "started_at": (_is_count, None),
    "expires_at": (_is_count, None),
    "failed_at": (_is_count, None),
    "cancelled_at": (_is_count, None),
    "max_completion_tokens": (_is_count, None),
    "max_prompt_tokens": (_is_count, None),
    "parallel_tool_calls": (_is_bool, True),
    "truncation_strategy": (_is_truncation, {"type": "auto", "last_messages": None}),
    "response_format": (_is_response_format, "auto"),
    "tool_choice": (_is_tool_choice, "auto"),
}
