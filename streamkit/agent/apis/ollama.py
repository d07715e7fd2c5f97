"""Requests of Ollama's own API, through the client of the package `ollama`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...protocols.values import WireObject, as_object, json_text
from .api import Api
from .chat import chat_arguments
from .tool_schemas import chat_tool, without

if TYPE_CHECKING:
    from ..output import NativeFormat

__all__ = ["OllamaApi"]

# What the client sends of the schema of a parameter, and what a model can do without. It drops the rest.
_SENT = frozenset(("type", "items", "description", "enum"))
_NOT_NEEDED = frozenset(("title", "default"))


class OllamaApi(Api):
    """`client.chat`."""

    protocol = "ollama"
    package = "ollama"
    method = "chat"
    hint = "what the model takes goes into `options={…}`, such as `temperature`"

    @classmethod
    def recognises(cls, client: Any) -> bool:
        """Whether the client can generate and list models, too: many objects have a method `chat`."""
        return cls.is_offered(client) and all(callable(getattr(client, name, None)) for name in ("generate", "pull"))

    def arguments(self, input: list[Any], instructions: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the arguments of a request."""
        return chat_arguments(input, instructions, [_tool(tool) for tool in tools])

    def put_output(self, arguments: dict[str, Any], output: NativeFormat) -> None:
        """State the output as the format."""
        arguments.setdefault("format", dict(output.schema))


def _tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a tool as the client can send it: what it would drop of a parameter's schema stands in the description."""
    tool = chat_tool(tool)
    function = as_object(tool.get("function"))
    parameters = as_object(function.get("parameters"))
    properties = as_object(parameters.get("properties"))
    if not properties:
        return tool
    described = {name: _described(as_object(schema), parameters) for name, schema in properties.items()}
    return {**tool, "function": {**function, "parameters": {**parameters, "properties": described}}}


def _described(schema: WireObject, parameters: WireObject) -> WireObject:
    if ref := schema.get("$ref"):
        definition = as_object(as_object(parameters.get("$defs")).get(str(ref).rpartition("/")[2]))
        schema = {**definition, **without(schema, "$ref")}
    if schema.keys() <= _SENT | _NOT_NEEDED:
        return schema
    text = f"It fits this JSON schema: {json_text(without(schema, 'description', *_NOT_NEEDED))}"
    description = schema.get("description")
    return {**schema, "description": f"{description}. {text}" if description else text}
