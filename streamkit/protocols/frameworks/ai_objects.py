"""Events of the package `ai` as dicts, with what its decoder reads of them. The message that grows with them is not read."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from .decoder import fields_of
from .shape import framework_of

__all__ = ["item_of"]

_FIELDS = ("kind", "block_id", "chunk", "tool_call_id", "tool_name", "finish_reason", "response_id", "response_model")
_TOKENS = ("input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens", "cache_write_tokens")

_JSON: tuple[type[Any], ...] = (str, int, float, list, Mapping, type(None))


def item_of(value: Any) -> Any:
    """Return a dict of an event; any other value as it is."""
    if not _is_event(value):
        return value
    item = fields_of(value, _FIELDS)
    match item["kind"]:
        case "stream_end" if value.usage is not None:
            item["usage"] = fields_of(value.usage, _TOKENS)
        case "tool_end" | "builtin_tool_end":
            item["arguments"] = value.tool_call.tool_args
        case "tool_call_result":
            item["results"] = [_output(part) for part in value.results]
        case "builtin_tool_result":
            item["results"] = [_output(value.result)]
        case "partial_tool_call_result":
            item["value"] = item_of(_plain(value.value))
            item |= {"label": value.label} if isinstance(value.label, str) else {}
        case "file":
            item |= {"url": _url(value), "media_type": value.media_type}
        case "hook":
            item["hook"] = _hook(value.hook)
        case _:
            pass
    return item


def _is_event(value: Any) -> bool:
    return framework_of(value) == "ai" and hasattr(value, "kind")


def _output(part: Any) -> dict[str, Any]:
    output = part.model_input if getattr(part, "has_model_input", False) else part.result
    failed = getattr(part, "result_kind", "") == "error" or getattr(part, "is_error", False)
    fields = fields_of(part, ("tool_call_id", "tool_name", "is_hook_deferred"))
    return {**fields, "output": _plain(output), "failed": failed}


def _plain(value: Any) -> Any:
    """Return a value that JSON has: an object as the dict that it makes of itself, or as its text."""
    if isinstance(value, _JSON) or _is_event(value):
        return value
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else str(value)


def _url(file: Any) -> str:
    data = file.data
    if isinstance(data, bytes):
        data = b64encode(data).decode("ascii")
    is_url = data.startswith(("http://", "https://", "data:"))
    return data if is_url else f"data:{file.media_type};base64,{data}"


def _hook(hook: Any) -> dict[str, Any]:
    fields = fields_of(hook, ("hook_id", "hook_type", "status", "tool_call_id"))
    fields["resolution"] = _plain(hook.resolution)
    return {**fields, "tool": hook.metadata.get("tool"), "arguments": hook.metadata.get("kwargs")}
