"""Requests of Anthropic's Messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...protocols.values import as_object
from .api import Api, put_default
from .tool_schemas import function_schema, without

if TYPE_CHECKING:
    from ..output import NativeFormat

__all__ = ["AnthropicApi"]

_MAX_TOKENS = 8192  # the API requires a limit; all its present models can write as much


class AnthropicApi(Api):
    """`client.messages.create`."""

    protocol = "anthropic"
    package = "anthropic"
    method = "messages.create"

    def arguments(self, input: list[Any], instructions: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the arguments of a request."""
        arguments: dict[str, Any] = {"messages": input, "max_tokens": _MAX_TOKENS}
        if instructions:
            arguments["system"] = instructions
        if tools:
            arguments["tools"] = [_tool(tool) for tool in tools]
        elif names := _called_names(input):  # the API rejects calls in the conversation where no tools are declared
            arguments["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in names]
            arguments["tool_choice"] = {"type": "none"}
        return arguments

    def put_output(self, arguments: dict[str, Any], output: NativeFormat) -> None:
        """State the output in its configuration."""
        put_default(arguments, "output_config", {"format": {"type": "json_schema", "schema": dict(output.schema)}})

    def tool_choice(self, *, required: bool, name: str | None, parallel: bool | None) -> dict[str, Any]:
        """Return the options that say how the model may call tools."""
        if not required and parallel is not False:
            return {}
        choice: dict[str, Any] = {"type": ("tool" if name else "any") if required else "auto"}
        choice |= {"name": name} if required and name else {}
        return {"tool_choice": choice | ({"disable_parallel_tool_use": True} if parallel is False else {})}

    def put_continued(self, arguments: dict[str, Any], metadata: Mapping[str, Any]) -> None:
        """Name the container of the answer before: code that waits for an output waits there."""
        if container := as_object(metadata.get("container")).get("id"):
            arguments["container"] = container


def _tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = function_schema(tool)
    if function is None:
        return tool
    parameters = function.get("parameters", {"type": "object"})
    return {**without(function, "parameters", "strict"), "input_schema": parameters}


def _called_names(messages: list[Any]) -> list[str]:
    """Return the names of the tools that the conversation calls, each once."""
    blocks: list[Any] = [block for message in messages for block in message["content"]]
    return [*dict.fromkeys(block["name"] for block in blocks if block["type"] == "tool_use")]
