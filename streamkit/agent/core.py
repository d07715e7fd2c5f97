"""What both agents share: the settings, the tools and the conversation. It knows nothing of turns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, cast

from ..errors import UsageError
from ..messages import CodeMessage, Message
from ..protocols import is_object
from ..streams.state import StreamState
from .code import CODE_TOOL, check_auto_run, code_schema
from .computer_protocol import Computing
from .conversation import as_messages, load_messages, save_messages
from .requests import Provider, tool_name
from .tools import Tool

__all__ = ["AgentCore", "AnyTool"]

AnyTool: TypeAlias = Callable[..., Any] | Mapping[str, Any]
"""A function, a `Tool`, or the schema of a tool that the application answers (`call.respond`) or the provider runs."""


class AgentCore:
    """The settings, tools and conversation of an agent.

    `Agent` and `AsyncAgent` add `stream` and `close`; their docstrings describe the arguments.

    Attributes:
        provider: the client, and the protocol in which requests are sent.
        application_tools: the names of the tools that the application answers.
    """

    _accepts_async = False  # whether clients and tools may be asynchronous

    def __init__(
        self,
        client: Any,
        *,
        model: str,
        tools: Iterable[AnyTool] = (),
        computer: Computing | None = None,
        instructions: str = "",
        auto_run: bool | Callable[[CodeMessage], bool] = False,
        max_steps: int = 20,
        protocol: str | None = None,
        fields: Mapping[str, str] | None = None,
        output_limit: int = 10_000,
        images: bool = True,
        messages: Iterable[Message | Mapping[str, Any]] = (),
        **options: Any,
    ) -> None:
        if max_steps < 1:
            raise UsageError(f"max_steps must be at least 1, not {max_steps}")
        self.provider = Provider(client, protocol)
        if self.provider.is_async and not self._accepts_async:
            raise UsageError(f"{type(client).__name__} is asynchronous: use `AsyncAgent`")
        self.model = model
        self.computer = computer
        self.instructions = instructions
        self.auto_run = check_auto_run(auto_run)
        self.max_steps = max_steps
        self.output_limit = output_limit
        self.images = images
        self.options: dict[str, Any] = options
        self.tools: dict[str, Tool[..., Any]] = {}
        self.application_tools: set[str] = set()
        self._schemas: list[Mapping[str, Any]] = []
        for tool in tools:
            self._add_tool(tool)
        self.fields: dict[str, str] = {**(fields or {})}
        self.messages: list[Message] = as_messages(messages)
        self._live: StreamState | None = None  # the newest stream that has started

    @property
    def tool_schemas(self) -> list[Mapping[str, Any]]:
        """The tools that each request offers to the model, the one that runs code first."""
        code = [] if self.computer is None else [code_schema(self.computer.languages)]
        return [*code, *self._schemas]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the conversation to a file, as a JSON list. An existing file is replaced at once.

        Raises:
            OSError: the file cannot be written.
        """
        self.messages[:] = as_messages(self.messages)  # the application may have added dicts
        save_messages(self.messages, path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replace the conversation by one that `save` wrote.

        Raises:
            UsageError: the file does not contain a list of messages, or a stream is still running.
            OSError: the file cannot be read.
        """
        self._check_idle()
        self.messages = load_messages(path)

    def _check_idle(self) -> None:
        if self._live is not None and not self._live.ended:
            raise UsageError("a stream of this agent is still running: run it to its end, or `close` the agent")

    def _add_tool(self, tool: AnyTool) -> None:
        if is_object(tool):
            name = tool_name(tool)
            self._check_name(name)
            if name is not None:
                self.application_tools.add(name)
            self._schemas.append(tool)
            return
        # `isinstance` cannot check type parameters, so the casts name them.
        function = cast("Tool[..., Any]", tool) if isinstance(tool, Tool) else Tool(cast("Callable[..., Any]", tool))
        if function.is_async and not self._accepts_async:
            raise UsageError(f"tool {function.name} is `async def`: use `AsyncAgent`")
        self._check_name(function.name)
        self.tools[function.name] = function
        schema = {"name": function.name, "description": function.description, "parameters": function.parameters}
        self._schemas.append(schema)

    def _check_name(self, name: str | None) -> None:
        if name in self.tools or name in self.application_tools:
            raise UsageError(f"two tools have the name {name!r}")
        if name == CODE_TOOL and self.computer is not None:
            raise UsageError(f"a tool cannot have the name {name!r}: that tool runs code on the computer")
