"""Letta's items of 2024 (and MemGPT's before), as today's.

Then an item was named by its `message_type` or by the one key that it had: `internal_monologue`, `function_call`,
`function_return` with a `status`, `assistant_message`. What these say has other names today, and nothing more.
"""

from __future__ import annotations

import re
from typing import Any

from ..values import is_object
from .wire import PAYLOADS, Wire, text

__all__ = ["is_legacy", "kind_of", "today"]

# What named an item that had no `message_type`, and whether its value is of a type that it may have.
_NAMED_BY: dict[str, tuple[type, ...]] = {
    "internal_monologue": (str,),
    "function_call": (str, dict),
    "function_return": (str,),
    "assistant_message": (str,),
}
_OWN = frozenset(("id", "date", "name", "status", "function_call_id", "step_id", "message_type", *_NAMED_BY))

_called = re.compile(r"\s*([A-Za-z_]\w*)\((.*)\)\s*", re.DOTALL).fullmatch


def is_legacy(item: Wire) -> bool:
    """Whether an item without a `message_type` is one of these, and can be nothing else."""
    named = any(isinstance(item.get(key), kinds) for key, kinds in _NAMED_BY.items())
    return named and not item.get("message_type") and all(key in _OWN for key in item)


def kind_of(item: Wire) -> str:
    """The kind of an item: its `message_type`, or what its keys say; "" if they say nothing."""
    if kind := text(item.get("message_type")):
        return kind
    if item.get("error") is not None:
        return "error_message"
    if (kind := next((key for key in _NAMED_BY if key in item), "")) or "step_count" not in item:
        return kind
    return "usage_statistics" if any(key in item for key in PAYLOADS["usage_statistics"]) else ""


def today(kind: str, item: Wire) -> tuple[str, Wire]:
    """The kind and the item that today's servers would send."""
    match kind:
        case "internal_monologue":
            return "reasoning_message", {**item, "reasoning": item.get(kind)}
        case "function_call":
            return "tool_call_message", {**item, "tool_call": _call(item.get(kind), item)}
        case "function_return":
            known = {"tool_return": item.get(kind), "tool_call_id": item.get("function_call_id")}
            return "tool_return_message", {**item, **known}
        case "assistant_message" if "content" not in item:
            return kind, {**item, "content": item.get(kind)}
        case "user_message" | "system_message" if "content" not in item:
            return kind, {**item, "content": item.get("message")}
        case _:
            return kind, item


def _call(given: Any, item: Wire) -> Any:
    """A call: its name and its arguments, or, where it was told whole as text, `name(arguments)`."""
    if isinstance(given, str):
        found = _called(given)
        return {"name": found[1] if found else None, "arguments": found[2] if found else given}
    if not is_object(given):
        return given
    return {**given, "tool_call_id": given.get("function_call_id") or item.get("function_call_id")}
