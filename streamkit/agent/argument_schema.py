"""The arguments of a Python function as a JSON schema, and a model's JSON as the function's arguments.

A parameter with the annotation `ToolContext` is not an argument: the caller of the function passes it.

The rule: a parameter that cannot be described to a model, or that no JSON can be converted to, is refused when the tool
is made, and arguments that do not fit the schema are refused before the function is called.
"""

from __future__ import annotations

import enum
import functools
import inspect
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, NamedTuple, cast

import msgspec

from ..errors import UsageError
from ..messages.typed_json import decoder
from ..protocols.values import is_list
from .tool_context import ToolContext

__all__ = ["ArgumentSchema", "ArgumentsError", "underlying_function", "without_partials"]

_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class ArgumentsError(ValueError):
    """The model's arguments are not JSON, or not what the function takes."""


class ArgumentSchema:
    """The arguments that a function takes.

    Args:
        tool_name: names the tool in errors.
        function: the function.
        descriptions: the parameters' descriptions, by name.
        schema: a JSON schema in place of the one that the signature gives. Arguments are then passed as keywords, unchecked.

    Attributes:
        signature: the function's signature.
        schema: the JSON schema of the arguments: an object.

    Raises:
        UsageError: a parameter cannot be described to a model.
    """

    def __init__(
        self,
        tool_name: str,
        function: Callable[..., Any],
        descriptions: Mapping[str, str],
        schema: Mapping[str, Any] | None = None,
    ) -> None:
        self._tool_name = tool_name
        self._has_own_schema = schema is not None
        self.signature = _signature(tool_name, function, has_schema=schema is not None)
        hints = _type_hints(tool_name, function)
        contexts = [name for name in self.signature.parameters if _is_context(hints.get(name))]
        self._context_names = frozenset(contexts)
        self.schema: dict[str, Any]
        if schema is not None:
            self.schema = dict(schema)
            return
        fields = _fields(tool_name, self.signature, hints, descriptions, without=self._context_names)
        struct = _struct(tool_name, fields)
        self._decoder = decoder(struct, strict=False, dec_hook=_convert)
        self.schema = _schema(struct, fields)

    def decode(self, arguments: str) -> dict[str, Any]:
        """Return the arguments of a call as Python values, by name.

        Args:
            arguments: JSON text; "" stands for no arguments.

        Raises:
            ArgumentsError: the text is not JSON, or not what the function takes.
        """
        if self._has_own_schema:
            return self._decode_unchecked(arguments)
        try:
            values = self._decoder.decode(arguments or "{}")
        except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError) as error:
            raise ArgumentsError(f"invalid arguments for {self._tool_name}: {error}") from error
        names = zip(values.__struct_fields__, values.__struct_encode_fields__, strict=True)
        read = {name: getattr(values, field) for field, name in names}
        return {name: value for name, value in read.items() if value is not msgspec.UNSET}

    def _decode_unchecked(self, arguments: str) -> dict[str, Any]:
        """Return the arguments of a tool that brings its own schema: an object of the function's keywords."""
        try:
            values: Any = msgspec.json.decode(arguments or "{}")
            if not isinstance(values, dict):
                raise ArgumentsError(f"invalid arguments for {self._tool_name}: they are not a JSON object")
            self.signature.bind(**values, **dict.fromkeys(self._context_names))
        except (msgspec.MsgspecError, UnicodeError, RecursionError, TypeError) as error:
            raise ArgumentsError(f"invalid arguments for {self._tool_name}: {error}") from error
        return cast("dict[str, Any]", values)  # the keys of a JSON object are str

    def bind(self, arguments: str, context: ToolContext[Any] | None = None) -> inspect.BoundArguments:
        """Return the arguments of a call as Python values.

        Args:
            arguments: JSON text; "" stands for no arguments.
            context: for the parameter that takes one.

        Raises:
            ArgumentsError: the text is not JSON, or not what the function takes.
            UsageError: the function takes a context, and there is none.
        """
        required = (self.signature.parameters[name].default is inspect.Parameter.empty for name in self._context_names)
        if context is None and any(required):
            raise UsageError(f"tool {self._tool_name} takes a `ToolContext`, which it gets where an agent calls it")
        by_name = self.decode(arguments)
        if context is not None:
            by_name |= dict.fromkeys(self._context_names, context)
        if self._has_own_schema:
            return self.signature.bind(**by_name)
        bound = self.signature.bind_partial()
        # In the signature's order, because positional-only arguments are passed by their place.
        bound.arguments = {name: by_name[name] for name in self.signature.parameters if name in by_name}
        return bound


def without_partials(function: Any) -> Any:
    """Return the function inside of any number of `functools.partial`."""
    while isinstance(function, functools.partial):
        function = typing.cast("Any", function.func)  # pyright knows no type parameter of this partial
    return function


def underlying_function(function: Any) -> Any:
    """Return the function that has the name, the annotations and the docstring.

    Looks inside `functools.partial`; for an object that can be called it is its class's `__call__`.
    """
    function = without_partials(function)
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return type(function).__call__ if not hasattr(function, "__name__") else function


# -- the signature


def _signature(tool_name: str, function: Callable[..., Any], *, has_schema: bool) -> inspect.Signature:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise UsageError(f"tool {tool_name} has no signature that Python can read: {error}") from error
    for parameter in signature.parameters.values():
        if parameter.kind not in _NAMED and not (has_schema and parameter.kind is inspect.Parameter.VAR_KEYWORD):
            raise UsageError(
                f"tool {tool_name}: {str(parameter)!r} cannot be described to a model; name each parameter, or pass "
                "`Tool(parameters=…)` with a JSON schema"
            )
    if next(iter(signature.parameters.values()), None) == _SELF:
        raise UsageError(f"tool {tool_name} takes `self`, which no model can pass: use the method of an object")
    return signature


def _type_hints(tool_name: str, function: Callable[..., Any]) -> Mapping[str, Any]:
    plain = underlying_function(function)
    annotated = plain.__init__ if inspect.isclass(plain) else plain
    try:
        return typing.get_type_hints(annotated, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise UsageError(f"tool {tool_name}: its annotations cannot be read: {error}") from error


# -- the fields, a parameter each


class _Parameter(NamedTuple):
    """A parameter as a field of the struct that arguments are decoded into."""

    name: str  # of the parameter, and in JSON
    type: Any  # with its description
    default: Any  # of the parameter; `inspect.Parameter.empty` where it has none

    @property
    def is_required(self) -> bool:
        return self.default is inspect.Parameter.empty


def _fields(
    tool_name: str,
    signature: inspect.Signature,
    hints: Mapping[str, Any],
    descriptions: Mapping[str, str],
    *,
    without: Collection[str],
) -> list[_Parameter]:
    return [
        _field(tool_name, parameter, hints.get(name, Any), descriptions.get(name))
        for name, parameter in signature.parameters.items()
        if name not in without
    ]


def _is_context(kind: Any) -> bool:
    kinds = (kind, *typing.get_args(kind))  # of a union, its members
    return any(one is ToolContext or typing.get_origin(one) is ToolContext for one in kinds)


def _field(tool_name: str, parameter: inspect.Parameter, kind: Any, description: str | None) -> _Parameter:
    default = parameter.default
    kind = _with_constraints(kind)
    _check_type(tool_name, parameter.name, kind)
    if default is None and kind is not Any:
        kind = kind | None  # `x: str = None` takes null as well
    if text := description or _annotated_description(kind):
        kind = Annotated[kind, msgspec.Meta(description=text)]
    if default is not inspect.Parameter.empty:
        kind = kind | msgspec.UnsetType if kind is not Any else Any
    return _Parameter(parameter.name, kind, default)


def _annotated_description(kind: Any) -> str | None:
    """Return the text in `Annotated[int, "how many"]`, also where that is one member of a union."""
    kinds = [kind, *typing.get_args(kind)]
    notes = (note for one in kinds for note in getattr(one, "__metadata__", ()))
    texts = (
        note if isinstance(note, str) else getattr(note, "description", None) for note in notes
    )  # pydantic's `Field`
    return next((text for text in texts if isinstance(text, str)), None)


_CONSTRAINTS = (
    "gt",
    "ge",
    "lt",
    "le",
    "multiple_of",
    "min_length",
    "max_length",
    "pattern",
)  # as all of them call them


def _with_constraints(kind: Any) -> Any:
    """Return a type with its constraints as msgspec has them, also inside of it: pydantic's `Field(gt=0)` and
    `annotated_types.Gt(0)` are read by their attributes, as neither package is imported."""
    arguments = typing.get_args(kind)
    if not arguments or typing.get_origin(kind) is typing.Literal:
        return kind
    if typing.get_origin(kind) is Annotated:
        inner, *notes = arguments
        found: dict[str, Any] = {}
        for note in notes:
            if not isinstance(note, msgspec.Meta):
                for one in (note, *getattr(note, "metadata", ())):
                    found |= {key: value for key in _CONSTRAINTS if (value := getattr(one, key, None)) is not None}
        inner = _with_constraints(inner)
        used = [note for note in notes if isinstance(note, (msgspec.Meta, str)) or hasattr(note, "description")]
        for note in [*used, *([msgspec.Meta(**found)] if found else [])]:
            inner = Annotated[inner, note]
        return inner
    changed = tuple(map(_with_constraints, arguments))
    if changed == arguments:
        return kind
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return cast("Any", typing.Union)[changed]  # the types are known only now
    return kind.copy_with(changed) if hasattr(kind, "copy_with") else typing.get_origin(kind)[changed]


def _check_type(tool_name: str, parameter: str, kind: Any) -> None:
    try:
        msgspec.json.schema_components([kind], schema_hook=_schema_of)
        decoder(kind)
    except (TypeError, RuntimeError, NotImplementedError) as error:
        reason = str(error).splitlines()[-1]
        text = f"tool {tool_name}: parameter {parameter!r} has a type that JSON cannot be converted to: {reason}"
        raise UsageError(text) from error


# -- the struct and its schema


def _struct(tool_name: str, fields: Sequence[_Parameter]) -> type[msgspec.Struct]:
    """Return the type that arguments are decoded into. Its fields are numbered: not every parameter's name can be a
    field's."""
    declared: list[tuple[str, Any, Any]] = []
    for number, field in enumerate(fields):
        default = msgspec.NODEFAULT if field.is_required else msgspec.UNSET
        declared.append((f"argument_{number}", field.type, msgspec.field(default=default)))
    names = {f"argument_{number}": field.name for number, field in enumerate(fields)}
    return msgspec.defstruct(tool_name, declared, rename=names, kw_only=True, forbid_unknown_fields=True)


def _schema(struct: type[msgspec.Struct], fields: Sequence[_Parameter]) -> dict[str, Any]:
    """Return the schema of the arguments. It is complete in itself: types that it refers to are in its `$defs`."""
    (reference,), components = msgspec.json.schema_components(
        [struct], ref_template="#/$defs/{name}", schema_hook=_schema_of
    )
    definitions = dict(components)
    schema = dict(definitions.pop(reference["$ref"].rpartition("/")[2]))
    _hoist(schema, definitions)
    for definition in [*definitions.values()]:
        _hoist(definition, definitions)
    schema.pop("title", None)
    for field in fields:
        default = field.default.value if isinstance(field.default, enum.Enum) else field.default
        if isinstance(default, (str, int, float, bool)):
            schema["properties"][field.name] = {**schema["properties"][field.name], "default": default}
    return {**schema, "$defs": definitions} if definitions else schema


def _hoist(schema: Any, definitions: dict[str, Any]) -> None:
    """Move the `$defs` of a part, as pydantic puts them there, to those of the whole, which references are relative to."""
    if isinstance(schema, dict):
        part = cast("dict[str, Any]", schema)  # a JSON schema's keys are str
        for name, definition in part.pop("$defs", {}).items():
            if definitions.setdefault(name, definition) != definition:
                raise UsageError(f"two types of a tool's arguments have the name {name!r}; rename one of them")
        for value in part.values():
            _hoist(value, definitions)
    elif is_list(schema):
        for value in schema:
            _hoist(value, definitions)


# -- types that msgspec does not know: paths, and pydantic's models, which are recognised by their methods


def _is_pydantic(kind: Any) -> bool:
    return callable(getattr(kind, "model_validate", None)) and callable(getattr(kind, "model_json_schema", None))


def _convert(kind: Any, value: object) -> object:
    if _is_pydantic(kind):
        return kind.model_validate(value)
    if issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    raise TypeError(f"expected a string, got {type(value).__name__}")


def _schema_of(kind: Any) -> dict[str, Any]:
    if _is_pydantic(kind):
        schema: dict[str, Any] = kind.model_json_schema()
        return schema
    if issubclass(kind, PurePath):
        return {"type": "string", "format": "path"}
    raise NotImplementedError(f"type {kind!r} is not supported")
