"""The tools that an agent offers to its model: functions, schemas, and what MCP servers have at the time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Union, cast

from ..errors import RequestError, UsageError
from ..protocols import is_object
from ..protocols.requested_tool import RequestedTool
from .apis import tool_name
from .code import CODE_TOOL
from .foreign_tools import LangChainTool, ToolSession, is_session
from .tools import Tool

if TYPE_CHECKING:
    from .mcp import SessionTools

__all__ = ["AnyTool", "Toolbox"]


AnyTool: TypeAlias = Callable[..., Any] | Mapping[str, Any] | ToolSession | LangChainTool
"""A function, a `Tool`, a tool of LangChain or smolagents, an MCP session, or the schema of a tool that the application answers
(`call.respond`) or the provider runs."""

_Entry: TypeAlias = Union["Tool[..., Any]", Mapping[str, Any], "SessionTools"]


class Toolbox:
    """The tools of one agent.

    Args:
        tools: as `Agent(tools=)` takes them.
        accepts_async: whether tools and sessions may be asynchronous.
        runs_code: whether the agent has a tool of its own that runs code.

    Attributes:
        functions: what the agent calls, by name. It is replaced when a server's tools have changed, and never changed itself.
        application_tools: the names of the tools that the application answers.
        schemas: of all of them, in the order in which they were added.
        sessions: of MCP servers, which list their tools when a stream starts.

    Raises:
        UsageError: as `add`.
    """

    def __init__(self, tools: object, *, accepts_async: bool, runs_code: bool) -> None:
        self._accepts_async = accepts_async
        self._runs_code = runs_code
        self._take([self._entry(tool) for tool in _checked_tools(tools)])

    def add(self, tool: AnyTool) -> None:
        """Offer one more tool.

        Raises:
            UsageError: it cannot be described to a model, or another tool has its name.
            RequestError: one of the two is a client's.
        """
        self._take([*self._entries, self._entry(tool)])

    async def list_sessions(self, *, all: bool) -> None:
        """Ask the servers for their tools: all of them, or those whose tools have changed.

        Raises:
            SourceError: one cannot be reached.
            UsageError: two tools have the same name.
        """
        listed = [session for session in self.sessions if all or session.has_changed]
        for session in listed:
            await session.list_again()
        if listed:
            self._take(self._entries)

    def _entry(self, tool: AnyTool) -> _Entry:
        """Return a tool as it is held. Raises as `add`."""
        if is_object(tool):
            return tool
        if is_session(tool):
            if not self._accepts_async:
                raise UsageError(
                    "an MCP session is asynchronous: use `AsyncAgent`, or `mcp_tools(session, portal=…)` with the portal of "
                    "the thread that it is in"
                )
            from .mcp import SessionTools  # few agents have one

            return SessionTools(tool)
        # `isinstance` cannot check type parameters, so the casts name them.
        function = cast("Tool[..., Any]", tool) if isinstance(tool, Tool) else Tool(cast("Callable[..., Any]", tool))
        return function if self._accepts_async else function.without_async()

    def _take(self, entries: Sequence[_Entry]) -> None:
        """Offer these. If a name cannot be, everything stays as it was. Raises as `add`."""
        functions: dict[str, Tool[..., Any]] = {}
        application_tools: set[str] = set()
        schemas: list[Mapping[str, Any]] = []
        requested = {entry["name"]: entry for entry in entries if isinstance(entry, RequestedTool)}
        for tool in _flat(entries):
            name = tool.name if isinstance(tool, Tool) else tool_name(tool)
            self._check_name(name, functions.keys() | application_tools, requested)
            if isinstance(tool, Tool):
                functions[tool.name] = tool
                schemas.append({"name": name, "description": tool.description, "parameters": tool.parameters})
            else:
                application_tools |= set() if name is None else {name}
                schemas.append(tool)
        self._entries = entries
        self.functions, self.application_tools, self.schemas = functions, application_tools, schemas
        self.sessions = [entry for entry in entries if not isinstance(entry, (Tool, Mapping))]

    def _check_name(self, name: str | None, taken: Collection[str], requested: Mapping[str, RequestedTool]) -> None:
        if name is not None and name in requested and (name in taken or (name == CODE_TOOL and self._runs_code)):
            raise RequestError(requested[name].path, f"is the name of a tool of the server: {name!r}")
        if name in taken:
            raise UsageError(f"two tools have the name {name!r}")
        if name == CODE_TOOL and self._runs_code:
            raise UsageError(f"a tool cannot have the name {name!r}: that tool runs code on the computer")


def _flat(entries: Iterable[_Entry]) -> Iterator[Tool[..., Any] | Mapping[str, Any]]:
    """Yield the tools, those of each session in its place."""
    for entry in entries:
        if isinstance(entry, (Tool, Mapping)):
            yield entry
        else:
            yield from entry.tools


def _checked_tools(tools: object) -> Iterable[AnyTool]:
    """Return the tools of an agent. Raises `UsageError` for a name or a schema alone."""
    if isinstance(tools, (str, Mapping)) or not isinstance(tools, Iterable):
        raise UsageError(f"`tools` is a list of functions and schemas, not {tools!r}")
    return cast("Iterable[AnyTool]", tools)
