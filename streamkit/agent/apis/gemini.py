"""Requests of Gemini's API, through the client of the package `google-genai`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .api import Api, put_default
from .tool_schemas import function_schema

if TYPE_CHECKING:
    from ..output import NativeFormat

__all__ = ["GeminiApi"]


class GeminiApi(Api):
    """`client.models.generate_content_stream`, of a `genai.Client` or of its `aio`."""

    protocol = "gemini"
    package = "google-genai"
    method = "models.generate_content_stream"
    reserved = ("contents",)
    fixed = {}
    hint = "what the model takes goes into `config={…}`, such as `temperature`"

    def arguments(self, input: list[Any], instructions: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the arguments of a request. The client is not to call functions itself."""
        config: dict[str, Any] = {"automatic_function_calling": {"disable": True}}
        if instructions:
            config["system_instruction"] = instructions
        if tools:
            config["tools"] = _tools(tools)
        return {"contents": input, "config": config}

    def put_options(self, arguments: dict[str, Any], options: Mapping[str, Any]) -> None:
        """Put an application's options into the arguments. Those of its configuration come first, but for tools, to which its own
        are added."""
        config, own = arguments["config"], _fields(options.get("config"))
        tools = [*config.get("tools", ()), *own.pop("tools", ())]
        arguments.update({**options, "config": {**config, **own, **({"tools": tools} if tools else {})}})

    def put_output(self, arguments: dict[str, Any], output: NativeFormat) -> None:
        """State the output in the configuration."""
        values: dict[str, Any] = {"response_mime_type": "application/json"}
        if "response_schema" not in arguments["config"]:
            values["response_json_schema"] = dict(output.schema)
        put_default(arguments, "config", values)


def _fields(config: Any) -> dict[str, Any]:
    """Return what is set in a configuration: a mapping, or an object of the client."""
    if config is None or isinstance(config, Mapping):
        return {**(config or {})}
    return {name: getattr(config, name) for name in config.model_fields_set}


def _tools(tools: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return functions as declarations of one tool, and the tools that Gemini runs as they are."""
    functions = [(function_schema(tool), tool) for tool in tools]
    declarations = [_declaration(function) for function, _ in functions if function is not None]
    others = [tool for function, tool in functions if function is None]
    return [*([{"functionDeclarations": declarations}] if declarations else []), *others]


def _declaration(function: Mapping[str, Any]) -> dict[str, Any]:
    declaration = {key: function[key] for key in ("name", "description") if function.get(key)}
    if parameters := function.get("parameters"):
        declaration["parametersJsonSchema"] = parameters
    return declaration
