"""Reads the tools in the requests of model APIs, and what the client wants of them."""

from __future__ import annotations

import re
from typing import Any

from .api_messages import RequestMessages
from .api_request import ApiRequest, ToolChoice
from .request_body import Fields
from .requested_tool import RequestedTool

__all__ = ["ReceivedTools", "function_choice", "function_tools", "request_of"]

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch


class ReceivedTools:
    """The tools that a client runs, while they are read.

    Attributes:
        schemas: the schemas, as `Agent(tools=)` takes them.
        hosted: the types of the tools that the API's provider would run.
    """

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.hosted: list[str] = []

    def add(self, fields: Fields, parameters_key: str) -> None:
        """Add a function.

        Raises:
            RequestError: it has no name, that of another one, or one that models do not take.
        """
        name = fields.text("name", empty=False)
        if _TOOL_NAME(name) is None:
            raise fields.fail("name", "has more than 64 characters, or others than letters, digits, `_` and `-`")
        if name in self._names:
            raise fields.fail("name", f"is that of another tool, too: {name!r}")
        parameters = dict(fields.inner(parameters_key).wire) or {"type": "object", "properties": {}}
        description = fields.optional_text("description") or ""
        schema = {"name": name, "description": description, "parameters": parameters}
        self.schemas.append(RequestedTool(fields.at("name"), **schema))

    @property
    def _names(self) -> list[str]:
        return [schema["name"] for schema in self.schemas]

    def check_chosen(self, fields: Fields, name: str | None) -> str | None:
        """Return the name of a tool that is to be called.

        Raises:
            RequestError: there is no such tool.
        """
        if not self.schemas or (name is not None and name not in self._names):
            raise fields.fail("tool_choice", "names no tool of the request, and asks for one")
        return name


# -- of OpenAI's APIs


def function_tools(fields: Fields, inside: str | None = None) -> ReceivedTools:
    """Return the tools of a request to one of OpenAI's APIs.

    Args:
        inside: the field of a tool that has its name and its schema; None where the tool itself has them.

    Raises:
        RequestError: one of them is none that an agent could offer.
    """
    tools = ReceivedTools()
    for tool in fields.objects("tools"):
        kind = tool.text("type")
        if kind == "function":
            tools.add(tool if inside is None else tool.inner(inside), "parameters")
        elif kind == "custom":
            raise tool.fail("type", "is `custom`, which agents do not offer to their models")
        else:
            tools.hosted.append(f"tools.{kind[:40]}")
    return tools


def function_choice(fields: Fields, tools: ReceivedTools, inside: str | None = None) -> ToolChoice:
    """Return what a request to one of OpenAI's APIs wants of these tools of it; `inside` as in `function_tools`.

    Raises:
        RequestError: it wants what is not there.
    """
    value = fields.wire.get("tool_choice")
    parallel = fields.flag("parallel_tool_calls") if fields.wire.get("parallel_tool_calls") is not None else None
    if value is None or value == "auto":
        return ToolChoice(parallel=parallel)
    if value == "none":
        return ToolChoice(mode="none")
    if value == "required":
        tools.check_chosen(fields, None)
        return ToolChoice(mode="required", parallel=parallel)
    choice = fields.inner("tool_choice")
    choice.one_of("type", ("function",))
    chosen = (choice if inside is None else choice.inner(inside)).text("name")
    return ToolChoice(mode="required", name=tools.check_chosen(fields, chosen), parallel=parallel)


# -- the whole


def request_of(
    protocol: str,
    fields: Fields,
    read: RequestMessages,
    tools: ReceivedTools,
    sorted_fields: tuple[dict[str, Any], list[str]],
    **more: Any,
) -> ApiRequest:
    """Return a request of which all has been read.

    Args:
        sorted_fields: what `sort_fields` has returned.
        more: what this API alone has, or has in a form of its own.

    Raises:
        RequestError: it names no model, or its metadata is none.
    """
    options, ignored = sorted_fields
    metadata = dict(fields.inner("metadata").wire)
    if protocol != "anthropic" and (user := fields.optional_text("user")) is not None:
        metadata["user"] = user
    return ApiRequest(
        protocol=protocol,
        model=fields.text("model", empty=False),
        stream=fields.is_set("stream"),
        system=read.system,
        history=read.history,
        input=read.input,
        tools=tools.schemas,
        answers=read.answers,
        options=options,
        metadata=metadata,
        ignored=[*ignored, *tools.hosted],
        **more,
    )
