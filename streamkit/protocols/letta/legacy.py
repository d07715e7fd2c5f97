"""Letta's items of 2024 (and MemGPT's before) as today's items.

An item was then named by its `message_type` or by the one key that it had: `internal_monologue`, `function_call`,
`function_return` with a `status`, `assistant_message`. The same content has other names today.
"""

from __future__ import annotations

import re
from typing import Any

from ..values import WireObject, as_text, is_object
from .wire import PAYLOAD_KEYS

__all__ = ["is_legacy", "kind_of", "modernise"]

# The keys that name an item without a `message_type`, and the types that their values may have.
_NAMING_KEYS: dict[str, tuple[type, ...]] = {
    "internal_monologue": (str,),
    "function_call": (str, dict),
    "function_return": (str,),
    "assistant_message": (str,),
}
_ALL_KEYS = frozenset(("id", "date", "name", "status", "function_call_id", "step_id", "message_type", *_NAMING_KEYS))

_match_call = re.compile(r"\s*([A-Za-z_]\w*)\((.*)\)\s*", re.DOTALL).fullmatch


def is_legacy(item: WireObject) -> bool:
    """Whether an item without a `message_type` is one of these, and cannot be anything else."""
    is_named = any(isinstance(item.get(key), types) for key, types in _NAMING_KEYS.items())
    return is_named and not item.get("message_type") and all(key in _ALL_KEYS for key in item)


def kind_of(item: WireObject) -> str:
    """Return the kind of any item, by its `message_type` or else by its keys; "" if they do not show it."""
    if kind := as_text(item.get("message_type")):
        return kind
    if item.get("error") is not None:
        return "error_message"
    if (kind := next((key for key in _NAMING_KEYS if key in item), "")) or "step_count" not in item:
        return kind
    return "usage_statistics" if any(key in item for key in PAYLOAD_KEYS["usage_statistics"]) else ""


def modernise(kind: str, item: WireObject) -> tuple[str, WireObject]:
    """Return the kind and the item that today's servers would send in place of this one, which may be one of theirs."""
    match kind:
        case "internal_monologue":
            return "reasoning_message", {**item, "reasoning": item.get(kind)}
        case "function_call":
            return "tool_call_message", {**item, "tool_call": _tool_call(item.get(kind), item)}
        case "function_return":
            fields = {"tool_return": item.get(kind), "tool_call_id": item.get("function_call_id")}
            return "tool_return_message", {**item, **fields}
        case "assistant_message" if "content" not in item:
            return kind, {**item, "content": item.get(kind)}
        case "user_message" | "system_message" if "content" not in item:
            return kind, {**item, "content": item.get("message")}
        case _:
            return kind, item


def _tool_call(call: Any, item: WireObject) -> Any:
    """Return a call with its name and arguments, also where it came complete as the text `name(arguments)`."""
    if isinstance(call, str):
        found = _match_call(call)
        return {"name": found[1] if found else None, "arguments": found[2] if found else call}
    if not is_object(call):
        return call
    return {**call, "tool_call_id": call.get("function_call_id") or item.get("function_call_id")}
