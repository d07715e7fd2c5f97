"""Requests of OpenAI's Responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .api import Api, host_of, put_default
from .tool_schemas import function_schema

if TYPE_CHECKING:
    from ..output import NativeFormat

__all__ = ["OPENAI_HOST", "ResponsesApi"]

OPENAI_HOST = "api.openai.com"


class ResponsesApi(Api):
    """`client.responses.create`, used by itself at OpenAI alone: few compatible servers have it."""

    protocol = "openai_responses"
    package = "openai"
    method = "responses.create"
    reserved = (*Api.reserved, "input")

    @classmethod
    def recognises(cls, client: Any) -> bool:
        """Whether this is a client of OpenAI's own server."""
        return host_of(client) == OPENAI_HOST and cls.is_offered(client)

    def arguments(self, input: list[Any], instructions: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the arguments of a request."""
        arguments: dict[str, Any] = {"input": input}
        if instructions:
            arguments["instructions"] = instructions
        if tools:
            arguments["tools"] = [_tool(tool) for tool in tools]
        return arguments

    def put_output(self, arguments: dict[str, Any], output: NativeFormat) -> None:
        """State the output as the format of the text."""
        format = {"type": "json_schema", "name": output.name, "schema": dict(output.schema), "strict": output.strict}
        put_default(arguments, "text", {"format": format})


def _tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = function_schema(tool)
    return tool if function is None else {"strict": False, **function, "type": "function"}
