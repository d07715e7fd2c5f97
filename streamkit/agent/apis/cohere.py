"""Requests of Cohere's chat, version 2, through the clients `ClientV2` and `AsyncClientV2` of the package `cohere`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .api import Api
from .tool_schemas import chat_tool, function_schema, without

if TYPE_CHECKING:
    from ..output import NativeFormat

__all__ = ["CohereApi"]


class CohereApi(Api):
    """`client.chat_stream`."""

    protocol = "cohere"
    package = "cohere"
    method = "chat_stream"
    fixed = {}
    reserved = ("messages", "tools")
    hint = '`request_options={"additional_body_parameters": {…}}` passes what the client\'s method does not have'

    @classmethod
    def is_offered(cls, client: Any) -> bool:
        """Whether the client has the method, as it is since version 2 of the API."""
        return super().is_offered(client) and "messages" in _parameters(client)

    @property
    def options(self) -> Sequence[str] | None:
        """The names of the method's arguments."""
        return _parameters(self.client)

    def arguments(self, input: list[Any], instructions: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the arguments of a request."""
        system = [{"role": "system", "content": instructions}] if instructions else []
        arguments: dict[str, Any] = {"messages": [*system, *input]}
        if tools:
            arguments["tools"] = [_tool(tool) for tool in tools]
        return arguments

    def put_output(self, arguments: dict[str, Any], output: NativeFormat) -> None:
        """State the output as the format of the response."""
        arguments.setdefault("response_format", {"type": "json_object", "json_schema": dict(output.schema)})


def _parameters(client: Any) -> Sequence[str]:
    """Return the names of the arguments of `chat_stream`. The client has a wrapper around it, which says nothing of them."""
    method = getattr(client.__class__, "chat_stream", client.chat_stream)
    return [*inspect.signature(method).parameters]


def _tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = function_schema(tool)
    if function is None:
        return tool
    return chat_tool({"function": {"parameters": {"type": "object", "properties": {}}, **without(function, "strict")}})
