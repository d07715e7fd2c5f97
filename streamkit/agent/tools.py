"""Python functions as tools: the JSON schema of a signature, and a model's arguments as Python values.

A parameter's annotation says what it takes (`str`, `int`, `float`, `bool`, `list[…]`, `dict[str, …]`, `Literal`, `Enum`,
`X | None`, dataclasses, `TypedDict`, msgspec structs, and all else that msgspec has a schema for), the docstring what it
is for. What the model sends is converted and checked before the function is called.
"""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Generic, ParamSpec, TypeVar, cast, overload

import msgspec

from ..errors import UsageError
from .docstrings import described

__all__ = ["ArgumentsError", "Tool", "tool"]

P = ParamSpec("P")
R = TypeVar("R")

_WIRE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what all providers take
_NAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class ArgumentsError(ValueError):
    """The model's arguments are not what the function takes."""


class Tool(Generic[P, R]):
    """A function that a model may call. Called itself, it is the function.

    Args:
        function: a plain function, or (for `AsyncAgent`) an `async def`.
        name: by default the function's.
        description: by default what the docstring says of the function.
        confirm: ask before each call, as before code: `confirmation.subject` is the call.

    Attributes:
        parameters: the JSON schema of the arguments.
        is_async: whether calling it gives an awaitable.

    Raises:
        UsageError: a parameter cannot be told to a model.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        confirm: bool = False,
    ) -> None:
        if not callable(cast("object", function)):
            raise UsageError(f"a tool is a function, not {function!r}")
        self.function = function
        self.name = name or _name(function)
        if not _WIRE_NAME.fullmatch(self.name):
            raise UsageError(
                f"a tool cannot be called {self.name!r}: letters, digits, `_` and `-`, at most 64; give `name=`"
            )
        self.confirm = confirm
        self.is_async = _is_async(function)
        doc = described(inspect.getdoc(_plain(function)))
        self.description = doc.summary if description is None else description
        self._signature = _signature(self.name, function)
        self._arguments, defaults = _struct(self.name, function, self._signature, doc.parameters)
        self.parameters = _schema(self.name, self._arguments, defaults)
        functools.update_wrapper(self, _plain(function), updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def call(self, arguments: str) -> Any:
        """What the function gives for the arguments of a call, which are JSON text.

        Raises:
            ArgumentsError: they are no JSON, or not what the function takes.
        """
        bound = self.bind(arguments)
        return cast("Any", self.function)(*bound.args, **bound.kwargs)

    def bind(self, arguments: str) -> inspect.BoundArguments:
        """The arguments as Python values. Raises as `call`."""
        try:
            given = msgspec.json.decode(arguments or "{}", type=self._arguments, strict=False)
        except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError) as error:
            raise ArgumentsError(f"the arguments of {self.name} cannot be taken: {error}") from error
        bound = self._signature.bind_partial()
        for name in self._arguments.__struct_fields__:
            if (value := getattr(given, name)) is not msgspec.UNSET:
                bound.arguments[name] = value
        # In the signature's order: positional ones are counted.
        bound.arguments = {
            name: bound.arguments[name] for name in self._signature.parameters if name in bound.arguments
        }
        return bound

    def __repr__(self) -> str:
        return f"<Tool {self.name}{self._signature}>"


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, confirm: bool = False
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    confirm: bool = False,
) -> Any:
    """Make a function a `Tool`, where its own name and docstring do not say all: as a decorator, with or without
    arguments."""
    if function is not None:
        return Tool(function)
    return functools.partial(Tool[..., Any], name=name, description=description, confirm=confirm)


def _plain(function: Any) -> Any:
    """The function that has the name, the annotations and the docstring."""
    while isinstance(function, functools.partial):
        function = cast("Any", function.func)
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return type(function).__call__ if not hasattr(function, "__name__") else function


def _name(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = cast("Any", function.func)
    return str(getattr(function, "__name__", type(function).__name__))


def _is_async(function: Any) -> bool:
    kinds = (function, getattr(function, "func", function), getattr(function, "__call__", function))  # noqa: B004
    return any(inspect.iscoroutinefunction(kind) for kind in kinds)


def _signature(name: str, function: Callable[..., Any]) -> inspect.Signature:
    plain = _plain(function)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise UsageError(f"tool {name}: a generator gives no output; return it, and tell progress by `progress`")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise UsageError(f"tool {name}: its signature is not known: {error}") from error
    for parameter in signature.parameters.values():
        if parameter.kind not in _NAMED:
            raise UsageError(f"tool {name}: a model cannot be told of {str(parameter)!r}; name each parameter")
    return signature


def _hints(name: str, function: Callable[..., Any]) -> Mapping[str, Any]:
    plain = _plain(function)
    of = plain.__init__ if inspect.isclass(plain) else plain
    try:
        return typing.get_type_hints(of, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise UsageError(f"tool {name}: its annotations cannot be read: {error}") from error


def _struct(
    name: str, function: Callable[..., Any], signature: inspect.Signature, texts: Mapping[str, str]
) -> tuple[type[msgspec.Struct], dict[str, Any]]:
    """The type of the arguments, and the defaults that are shown."""
    hints = _hints(name, function)
    defaults: dict[str, Any] = {}
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for key, parameter in signature.parameters.items():
        kind = hints.get(key, Any)
        if key in texts:
            kind = Annotated[kind, msgspec.Meta(description=texts[key])]
        if parameter.default is inspect.Parameter.empty:
            fields.append((key, kind))
        else:
            fields.append((key, kind | msgspec.UnsetType if kind is not Any else Any, msgspec.UNSET))
            defaults[key] = parameter.default
    return msgspec.defstruct(name, cast("Any", fields), kw_only=True, forbid_unknown_fields=True), defaults


def _schema(name: str, arguments: type[msgspec.Struct], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of the arguments, in itself: what is used in it is in `$defs`."""
    try:
        (schema,), parts = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    except TypeError as error:
        raise UsageError(f"tool {name}: a parameter has a type that JSON cannot hold: {error}") from error
    parts = dict(parts)
    top = dict(parts.pop(schema["$ref"].rpartition("/")[2]))
    top.pop("title", None)
    for key, default in defaults.items():
        if default is not None and isinstance(default, (str, int, float, bool)):
            top["properties"][key] = {**top["properties"][key], "default": default}
    return {**top, "$defs": parts} if parts else top
