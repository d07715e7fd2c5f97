"""Tools of other packages, which are recognised by their methods: none is imported. Those of LangChain and smolagents become
functions with a schema; `mcp.py` has those of MCP sessions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeGuard, cast

from ..errors import UsageError
from ..messages import ImageMessage
from ..protocols.values import as_object, as_text, is_object

__all__ = ["ForeignTool", "LangChainTool", "ToolSession", "allowed_name", "foreign_tool", "is_session"]


class ToolSession(Protocol):
    """An initialized `ClientSession` of the package `mcp`."""

    @property
    def list_tools(self) -> Callable[..., Any]:
        """Returns a page of the server's tools."""
        ...

    @property
    def call_tool(self) -> Callable[..., Any]:
        """Calls one of them."""
        ...


class LangChainTool(Protocol):
    """A tool of LangChain."""

    @property
    def args_schema(self) -> Any:
        """The schema of its arguments."""
        ...

    @property
    def invoke(self) -> Callable[..., Any]:
        """Calls it."""
        ...


def is_session(value: object) -> TypeGuard[ToolSession]:
    """Whether the value is an MCP session."""
    return callable(getattr(value, "list_tools", None)) and callable(getattr(value, "call_tool", None))


_OTHER_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST = 64  # what all providers accept


class ForeignTool(NamedTuple):
    """The description of another framework's tool, and the ways to call it.

    Attributes:
        name: as it may be sent.
        description: what the model reads about it.
        parameters: the JSON schema of its arguments.
        plain: calls it, where it can be called so.
        is_async: calls it, and returns an awaitable, where the tool has code of its own for that.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    plain: Callable[..., Any] | None
    is_async: Callable[..., Any] | None


def allowed_name(name: str) -> str:
    """Return a tool's name with `_` for each character that providers refuse, and at most 64 of them."""
    return _OTHER_CHARACTER.sub("_", name)[:_LONGEST]


def foreign_tool(value: Any) -> ForeignTool | None:
    """Return a tool of LangChain or of smolagents; None for anything else.

    Raises:
        UsageError: its arguments cannot be described.
    """
    if isinstance(value, type):
        return None
    if callable(getattr(value, "invoke", None)) and hasattr(value, "args_schema"):
        return _langchain_tool(value)
    if callable(getattr(value, "forward", None)) and is_object(getattr(value, "inputs", None)):
        return _smolagents_tool(value)
    return None


# -- LangChain: `name`, `description`, `args_schema`, `invoke`, `ainvoke`


def _langchain_tool(value: Any) -> ForeignTool:
    def plain(**arguments: Any) -> Any:
        return value.invoke(arguments)

    async def is_async(**arguments: Any) -> Any:
        return await value.ainvoke(arguments)

    has_function = getattr(value, "func", plain) is not None
    return ForeignTool(
        allowed_name(value.name),
        as_text(value.description) or "",
        _langchain_schema(value),
        plain if has_function else None,
        is_async if _has_own_async(value) else None,
    )


def _langchain_schema(value: Any) -> Mapping[str, Any]:
    """Return the schema of the arguments that the model gives: without those that LangChain itself injects."""
    schema: Any = getattr(value, "tool_call_schema", None) or value.args_schema
    if not is_object(schema) and callable(getattr(schema, "model_json_schema", None)):
        schema = schema.model_json_schema()
    if not is_object(schema):
        raise UsageError(f"tool {value.name} has an `args_schema` that is not a JSON schema: {schema!r}")
    return schema


def _has_own_async(value: Any) -> bool:
    """Whether the tool has a coroutine function. LangChain's own `_arun` is in its tools' base classes: it runs the plain one in a
    thread, which needs asyncio."""
    if getattr(value, "coroutine", None) is not None:
        return True
    own: Any = getattr(cast("type[object]", type(value)), "_arun", None)
    return own is not None and not str(getattr(own, "__module__", "")).startswith("langchain_core.")


# -- smolagents: `name`, `description`, `inputs`, `output_type`, `forward`, and it can be called

_UNKNOWN_TYPES = ("any", "image", "audio")  # of smolagents' types, those that no JSON schema has


def _smolagents_tool(value: Any) -> ForeignTool:
    inputs = {name: as_object(one) for name, one in as_object(value.inputs).items()}
    parameters = {
        "type": "object",
        "properties": {name: _without_own_words(one) for name, one in inputs.items()},
        "required": [name for name, one in inputs.items() if not one.get("nullable")],
    }

    def plain(**arguments: Any) -> Any:
        if getattr(value, "output_type", None) != "image":
            return value(**arguments)
        image = value(**arguments, sanitize_inputs_outputs=True)
        return ImageMessage(format="path", content=str(image.to_string()))

    return ForeignTool(allowed_name(value.name), as_text(value.description) or "", parameters, plain, None)


def _without_own_words(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an input without what JSON schemas do not have."""
    kind = cast("object", schema.get("type"))
    unknown = {"nullable", *(("type",) if kind in _UNKNOWN_TYPES else ())}
    return {key: one for key, one in schema.items() if key not in unknown}
