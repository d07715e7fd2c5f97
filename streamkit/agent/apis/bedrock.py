"""Requests of Amazon Bedrock's Converse, through a `bedrock-runtime` client of boto3, or of aiobotocore."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .api import Api, put_default
from .tool_schemas import function_schema

if TYPE_CHECKING:
    from ..output import NativeFormat

__all__ = ["BedrockApi"]


class BedrockApi(Api):
    """`client.converse_stream`."""

    protocol = "bedrock_converse"
    package = "boto3"
    method = "converse_stream"
    reserved = ("modelId", "messages")
    fixed = {}

    def arguments(self, input: list[Any], instructions: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the arguments of a request."""
        arguments: dict[str, Any] = {"messages": input}
        if instructions:
            arguments["system"] = [{"text": instructions}]
        if tools:
            arguments["toolConfig"] = {"tools": [_tool(tool) for tool in tools]}
        elif names := _called_names(input):  # the API rejects calls in the conversation where no tools are declared
            arguments["toolConfig"] = {"tools": [_tool({"name": name, "parameters": {}}) for name in names]}
        return arguments

    def put_options(self, arguments: dict[str, Any], options: Mapping[str, Any]) -> None:
        """Put an application's options into the arguments. Its configuration of tools stands beside the tools."""
        tools = arguments.get("toolConfig")
        super().put_options(arguments, options)
        if tools:
            put_default(arguments, "toolConfig", tools)

    def put_output(self, arguments: dict[str, Any], output: NativeFormat) -> None:
        """State the output in its configuration: the schema as text."""
        schema = {"name": output.name, "schema": json.dumps(output.schema)}
        format = {"type": "json_schema", "structure": {"jsonSchema": schema}}
        put_default(arguments, "outputConfig", {"textFormat": format})

    def sending(self, arguments: dict[str, Any]) -> Callable[[], Any]:
        """Return a function that sends a request with these arguments."""
        create = self.create
        model = {"modelId": arguments.pop("model")}

        async def send() -> Any:
            return (await create(**model, **arguments))["stream"]

        return send if self.is_async else lambda: create(**model, **arguments)["stream"]


def _tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = function_schema(tool)
    if function is None:
        return tool
    schema = {"json": {"type": "object", **function.get("parameters", {})}}
    described = {key: function[key] for key in ("name", "description") if function.get(key)}
    return {"toolSpec": {**described, "inputSchema": schema}}


def _called_names(messages: list[Any]) -> list[str]:
    """Return the names of the tools that the conversation calls, each once."""
    blocks: list[Any] = [block for message in messages for block in message["content"]]
    return [*dict.fromkeys(block["toolUse"]["name"] for block in blocks if "toolUse" in block)]
