"""Python functions as tools: the JSON schema of a signature, and a model's arguments as Python values.

A parameter's annotation says what it takes (`str`, `int`, `float`, `bool`, `list[…]`, `dict[str, …]`, `Literal`, `Enum`,
`X | None`, `Path`, dataclasses, `TypedDict`, msgspec structs, and all else that msgspec has a schema for), the docstring,
or the text in `Annotated[int, "how many"]`, what it is for. What the model sends is converted and checked before the
function is called.
"""

from __future__ import annotations

import enum
import functools
import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, Generic, ParamSpec, TypeAlias, TypeVar, cast, overload

import msgspec

from ..errors import UsageError
from .docstrings import described

__all__ = ["ArgumentsError", "Tool", "tool"]

P = ParamSpec("P")
R = TypeVar("R")

_WIRE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what all providers take
_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


_Field: TypeAlias = tuple[str, str, Any, Any]  # the parameter's name, the struct's, the type, the default


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
        doc = described(_docstring(function))
        self.description = doc.summary if description is None else description
        self._signature = _signature(self.name, function)
        fields, defaults = _fields(self.name, function, self._signature, doc.parameters)
        self._arguments = _struct(self.name, fields)
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
            given = msgspec.json.decode(arguments or "{}", type=self._arguments, strict=False, dec_hook=_convert)
        except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError) as error:
            raise ArgumentsError(f"the arguments of {self.name} cannot be taken: {error}") from error
        bound = self._signature.bind_partial()
        for field, name in zip(given.__struct_fields__, given.__struct_encode_fields__, strict=True):
            if (value := getattr(given, field)) is not msgspec.UNSET:
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
    if next(iter(signature.parameters.values()), None) == _SELF:
        raise UsageError(f"tool {name}: no model can give `self`; give the method of an object")
    return signature


def _docstring(function: Any) -> str | None:
    """What says what it does: an object's class, where its `__call__` does not."""
    plain = _plain(function)
    says: object = cast("object", type(function)) if plain.__name__ == "__call__" else plain
    return plain.__doc__ or inspect.getdoc(says)


def _hints(name: str, function: Callable[..., Any]) -> Mapping[str, Any]:
    plain = _plain(function)
    of = plain.__init__ if inspect.isclass(plain) else plain
    try:
        return typing.get_type_hints(of, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise UsageError(f"tool {name}: its annotations cannot be read: {error}") from error


def _fields(
    name: str, function: Callable[..., Any], signature: inspect.Signature, texts: Mapping[str, str]
) -> tuple[list[_Field], dict[str, Any]]:
    """The arguments with their types, and the defaults that are shown."""
    hints = _hints(name, function)
    defaults: dict[str, Any] = {}
    fields: list[_Field] = []
    for number, (key, parameter) in enumerate(signature.parameters.items()):
        kind, default = hints.get(key, Any), parameter.default
        _check_type(name, key, kind)
        if default is None and kind is not Any:
            kind = kind | None  # as a model may read it
        if text := texts.get(key) or _annotated(kind):
            kind = Annotated[kind, msgspec.Meta(description=text)]
        if default is not inspect.Parameter.empty:
            kind = kind | msgspec.UnsetType if kind is not Any else Any
            defaults[key] = default.value if isinstance(default, enum.Enum) else default
        value = msgspec.NODEFAULT if default is inspect.Parameter.empty else msgspec.UNSET
        # A struct cannot have fields of every name that a parameter can have.
        fields.append((key, f"argument_{number}", kind, value))
    return fields, defaults


def _annotated(kind: Any) -> str | None:
    """The text in `Annotated[int, "how many"]`."""
    kinds = [kind, *typing.get_args(kind)]  # it may be optional
    return next((text for one in kinds for text in getattr(one, "__metadata__", ()) if isinstance(text, str)), None)


def _check_type(name: str, key: str, kind: Any) -> None:
    try:
        msgspec.json.schema_components([kind], schema_hook=_describe)
        msgspec.json.Decoder(kind)
    except (TypeError, RuntimeError, NotImplementedError) as error:
        why = str(error).splitlines()[-1]
        raise UsageError(f"tool {name}: parameter {key!r} has a type that no JSON can be read as: {why}") from error


def _struct(name: str, fields: Sequence[_Field]) -> type[msgspec.Struct]:
    """The type of the arguments."""
    declared = [(field, kind, msgspec.field(default=value)) for _, field, kind, value in fields]
    keys = {field: key for key, field, _, _ in fields}
    return msgspec.defstruct(name, declared, rename=keys, kw_only=True, forbid_unknown_fields=True)


def _convert(kind: type, value: object) -> object:
    """A value of a type that msgspec does not know."""
    if issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    raise TypeError(f"expected a text, got {type(value).__name__}")


def _describe(kind: type) -> dict[str, Any]:
    """The schema of a type that msgspec does not know."""
    if issubclass(kind, PurePath):
        return {"type": "string", "format": "path"}
    raise NotImplementedError(f"type {kind!r} is not supported")


def _schema(name: str, arguments: type[msgspec.Struct], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of the arguments, in itself: what is used in it is in `$defs`."""
    (schema,), parts = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}", schema_hook=_describe)
    parts = dict(parts)
    top = dict(parts.pop(schema["$ref"].rpartition("/")[2]))
    top.pop("title", None)
    for key, default in defaults.items():
        if default is not None and isinstance(default, (str, int, float, bool)):
            top["properties"][key] = {**top["properties"][key], "default": default}
    return {**top, "$defs": parts} if parts else top
