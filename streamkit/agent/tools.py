"""Python functions as tools that a model may call.

The annotation of a parameter is its type: `str`, `int`, `float`, `bool`, `list[...]`, `dict[str, ...]`, `Literal`, `Enum`,
`X | None`, `Path`, dataclasses, `TypedDict`, pydantic models, msgspec structs, and everything else that msgspec has a
schema for. The docstring, or a text as in `Annotated[int, "how many"]`, is its description: Google's, NumPy's and Sphinx's styles
are read, by griffe. Arguments from the model are converted and checked before the function is called.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Generic, NamedTuple, ParamSpec, Self, TypeVar, cast, overload

from ..arguments import check_kind
from ..errors import UsageError
from ..messages.answer import is_duration
from .argument_schema import ArgumentSchema, ArgumentsError, underlying_function, without_partials
from .foreign_tools import foreign_tool
from .tool_context import ToolContext

__all__ = ["ArgumentsError", "ParsedDocstring", "Tool", "ToolFailure", "parse_docstring", "tool"]


P = ParamSpec("P")
R = TypeVar("R")

_WIRE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what all providers accept


class ToolFailure(Exception):
    """A call has failed, as its tool itself says. The text is for the model."""


class Tool(Generic[P, R]):
    """A function that a model may call. Calling the tool in Python calls the function.

    Args:
        function: a plain function or method, or (for `AsyncAgent`) an `async def`; or a tool of LangChain or smolagents, with its
            own name, description and schema.
        name: what the model calls it; by default the function's name. Letters, digits, `_` and `-`, at most 64.
        description: what the model reads about it; by default the function's docstring without its sections.
        parameters: a JSON schema of the arguments, an object, in place of the one that the signature gives. It is sent as it is,
            and the arguments come as keywords, unchecked; only here the function may take `**kwargs`.
        confirm: whether each call is a `Confirmation` first, which `on_confirmation` answers. Its `subject` is the call. A function
            decides it for each call, by its context (`context.arguments`); it returns a bool. Where it does not, or raises, the
            call fails and nothing runs.
        timeout: seconds that a call may take; None, the default, means no limit. The model then reads an error. An `async def`
            is cancelled; a plain function that does not wait for the network or report progress cannot be stopped, and is
            left behind.

    Attributes:
        parameters: the JSON schema of the arguments: an object.
        is_async: whether calling it returns an awaitable.
        can_be_stopped: whether a call ends where its time is over.
        agent: the agent that it asks, where `as_tool` made it; None for a function.

    Raises:
        UsageError: `function` cannot be called, or has a parameter that cannot be described to a model;
            the name or the timeout is not allowed.
    """

    agent: Any = None  # any, because agents depend on tools
    _plain: Callable[..., Any] | None = None  # of a tool that can be called in both ways

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        confirm: bool | Callable[[ToolContext[Any]], bool] = False,
        timeout: float | None = None,
    ) -> None:
        callee: Any = function  # checked here, for callers without a type checker
        foreign = None if inspect.isroutine(callee) else foreign_tool(callee)
        if foreign is not None:
            self._plain, callee = foreign.plain, foreign.is_async or foreign.plain
            name, parameters = name or foreign.name, parameters or foreign.parameters
            description = foreign.description if description is None else description
        if not callable(callee):
            hint = "; an agent becomes one with `as_tool()`" if hasattr(callee, "as_tool") else ""
            raise UsageError(f"a tool is a function, not {callee!r}{hint}")
        self.function = cast("Callable[P, R]", callee)
        check_kind("name", name, str)
        self.name = name or _name(callee)
        if not _WIRE_NAME.fullmatch(self.name):
            raise UsageError(
                f"a tool cannot be called {self.name!r}: only letters, digits, `_` and `-`, at most 64; pass `name=`"
            )
        self.confirm, self.timeout = _checked_confirm(self.name, confirm), _checked_timeout(self.name, timeout)
        self.is_async = self.can_be_stopped = _is_async(callee)
        docstring = parse_docstring(_docstring(callee))
        self.description = docstring.summary if description is None else description
        check_kind("parameters", parameters, Mapping)
        if parameters is not None and parameters.get("type", "object") != "object":
            raise UsageError(
                f"`parameters` of tool {self.name} is the JSON schema of an object, not of {parameters['type']!r}"
            )
        self._arguments = ArgumentSchema(self.name, callee, docstring.parameters, parameters)
        self.parameters = self._arguments.schema
        functools.update_wrapper(self, underlying_function(callee), updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def call(self, arguments: str, context: ToolContext[Any] | None = None) -> Any:
        """Call the function with a model's arguments, and return what it returns.

        Args:
            arguments: JSON text; "" stands for no arguments.
            context: for the parameter with the annotation `ToolContext`, if the function has one.

        Raises:
            ArgumentsError: the text is not JSON, or not what the function takes.
            UsageError: the function takes a context, and there is none.
        """
        bound = self.bind(arguments, context)
        function: Callable[..., Any] = self.function  # the arguments were checked against its signature
        return function(*bound.args, **bound.kwargs)

    def check(self, arguments: str) -> dict[str, Any]:
        """Check a model's arguments, as `call` does, without a call. Returns them as Python values, by name.

        Raises:
            ArgumentsError: the text is not JSON, or not what the function takes.
        """
        return self._arguments.decode(arguments)

    def must_confirm(self, context: ToolContext[Any]) -> bool:
        """Whether this call has to be confirmed.

        Raises:
            UsageError: the function `confirm` returns no bool.
            Exception: that function's.
        """
        if isinstance(self.confirm, bool):
            return self.confirm
        value = self.confirm(context)
        if not isinstance(value, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  # it may be untyped
            raise UsageError(f"`confirm` of tool {self.name} returned {value!r}, which is not a bool")
        return value

    def without_async(self) -> Self:
        """Return the tool as an `Agent` can call it, from a thread.

        Raises:
            UsageError: it can only be awaited.
        """
        if not self.is_async:
            return self
        if self._plain is None:
            kind = "`async def`" if self.agent is None else f"an {type(self.agent).__name__}"
            raise UsageError(f"tool {self.name} is {kind}: use `AsyncAgent`")
        other = copy(self)
        other.function, other.is_async, other.can_be_stopped = self._plain, False, False
        return other

    def bind(self, arguments: str, context: ToolContext[Any] | None = None) -> inspect.BoundArguments:
        """Return a model's arguments as Python values. Takes and raises what `call` does."""
        return self._arguments.bind(arguments, context)

    def __repr__(self) -> str:
        return f"<Tool {self.name}{self._arguments.signature}>"


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    confirm: bool | Callable[[ToolContext[Any]], bool] = False,
    timeout: float | None = None,
) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    confirm: bool | Callable[[ToolContext[Any]], bool] = False,
    timeout: float | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    confirm: bool | Callable[[ToolContext[Any]], bool] = False,
    timeout: float | None = None,
) -> Any:
    """Decorator: make a function a `Tool`, to ask before each call or to change what the model reads about it.

    A plain function in `tools=` needs no decorator: its name, signature and docstring describe it.

        @sk.tool(confirm=True)
        def delete(path: Path) -> str:
            \"\"\"Delete a file.

            Args:
                path: where it is
            \"\"\"
            path.unlink()
            return "deleted"

        agent = sk.Agent(client, model="gpt-5-mini", tools=[delete])

    Args:
        function: the function, where the decorator is used without arguments (`@sk.tool`), or called (`sk.tool(f, confirm=True)`).
        name: what the model calls it; by default the function's name. Letters, digits, `_` and `-`, at most 64.
        description: what the model reads about it; by default the function's docstring without its sections.
        parameters: a JSON schema of the arguments, an object, in place of the one that the signature gives. It is sent as it is,
            and the arguments come as keywords, unchecked; only here the function may take `**kwargs`.
        confirm: whether each call is a `Confirmation` first, which `on_confirmation` answers. Its `subject` is the call. A function
            decides it for each call, by its context (`context.arguments`); it returns a bool. Where it does not, or raises, the
            call fails and nothing runs.
        timeout: seconds that a call may take, as `Tool` has it; None means no limit.

    Returns:
        A `Tool`, which can be called like the function.

    Raises:
        UsageError: the function has a parameter that cannot be described to a model; the name or the
            timeout is not allowed.
    """
    make = functools.partial(
        Tool[..., Any], name=name, description=description, parameters=parameters, confirm=confirm, timeout=timeout
    )
    return make if function is None else make(function)


def _checked_confirm(
    name: str, confirm: bool | Callable[[ToolContext[Any]], bool]
) -> bool | Callable[[ToolContext[Any]], bool]:
    if not isinstance(confirm, bool) and (not callable(confirm) or _is_async(confirm)):
        raise UsageError(f"tool {name}: `confirm` is a bool or a plain function that returns one, not {confirm!r}")
    return confirm


def _checked_timeout(name: str, timeout: float | None) -> float | None:
    if timeout is not None and not (is_duration(timeout) and timeout > 0):
        raise UsageError(f"tool {name}: a timeout is a number of seconds, not {timeout!r}")
    return timeout


def _name(function: Any) -> str:
    function = without_partials(function)
    return str(getattr(function, "__name__", type(function).__name__))


def _is_async(function: Any) -> bool:
    kinds = (function, getattr(function, "func", function), getattr(function, "__call__", function))  # noqa: B004
    return any(inspect.iscoroutinefunction(kind) or inspect.isasyncgenfunction(kind) for kind in kinds)


def _docstring(function: Any) -> str | None:
    """Return the docstring; of an object that can be called its class's, where `__call__` has none."""
    plain = underlying_function(function)
    documented = function.__class__ if plain.__name__ == "__call__" else plain
    return plain.__doc__ or inspect.getdoc(documented)


class ParsedDocstring(NamedTuple):
    """A docstring's text about the function itself, and its parameters' descriptions by name."""

    summary: str
    parameters: dict[str, str]


def parse_docstring(text: str | None) -> ParsedDocstring:
    """Return the summary and the parameters' descriptions; both are empty where there is no docstring."""
    plain = inspect.cleandoc(text or "")
    if ":" not in plain and "---" not in plain:
        return ParsedDocstring(plain.strip(), {})  # it has no section, so the library need not be imported
    import griffe  # slow to import

    summary: list[str] = []
    parameters: dict[str, str] = {}
    with griffe.logger.disable():  # a docstring that is not perfect is the author's business
        sections = griffe.parse_auto(griffe.Docstring(plain))
    for section in sections:
        if isinstance(section, griffe.DocstringSectionText):
            summary.append(section.value)
        elif isinstance(section, (griffe.DocstringSectionParameters, griffe.DocstringSectionOtherParameters)):
            for parameter in section.value:
                parameters[parameter.name.lstrip("*")] = " ".join(parameter.description.split())
    return ParsedDocstring("\n\n".join(summary).strip(), parameters)
