"""The schemas of tools, in the form of any provider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...protocols.values import is_object

__all__ = ["chat_tool", "function_schema", "tool_name", "without"]


def function_schema(tool: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a function's `name`, `description` and `parameters`, read from any provider's form; None for other
    tools."""
    if is_object(function := tool.get("function")):
        return function
    if "input_schema" in tool:
        return {**without(tool, "type", "input_schema"), "parameters": tool["input_schema"]}
    if "parameters" in tool and tool.get("type", "function") == "function":
        return without(tool, "type")
    return None


def chat_tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a tool in the form of Chat Completions, which other APIs have too."""
    function = function_schema(tool)
    return tool if function is None else {"type": "function", "function": function}


def tool_name(tool: Mapping[str, Any]) -> str | None:
    """Return the name of a tool that the application runs; None for one that the provider runs itself."""
    name = (function_schema(tool) or tool).get("name")
    return name if isinstance(name, str) else None


def without(values: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return these values without those at some keys."""
    return {key: value for key, value in values.items() if key not in keys}
