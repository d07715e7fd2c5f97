"""The type that an answer is read as: its JSON schema, and how its value is read from JSON text.

pydantic reads a type that is one of its own or holds one, msgspec every other. Neither converts more than JSON has to: a date
is a string, an enum its value, a tuple a list.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Annotated, Any, NamedTuple, cast

import msgspec
from typing_extensions import is_typeddict

from ..errors import UsageError
from ..messages.json_text import LONG, TOO_DEEP, is_too_deep
from ..messages.typed_json import decoder

__all__ = ["VALUE_KEY", "OutputType"]

VALUE_KEY = "value"
"""The key of a value that is not an object, in the object that the request asks for."""


class OutputType:
    """A type that an answer is read as.

    Args:
        kind: the type.
        wraps: whether a value that is not an object comes in one, at `VALUE_KEY`. Without it such a value has to be a list.

    Attributes:
        brackets: with which the JSON text may begin.
        is_wrapped: whether the JSON text is an object with the value at `VALUE_KEY`.
        item: the type of the elements, if it is `list[...]`; None otherwise.
        schema: the JSON schema of the JSON text.
        name: a name for the schema.

    Raises:
        UsageError: no JSON can be read as the type, or only JSON that is neither an object nor a list, and it is not wrapped.
    """

    def __init__(self, kind: Any, *, wraps: bool = False) -> None:
        self._read, self.schema = _reader(kind)
        root = _root(self.schema)
        self.is_wrapped = wraps and self.schema.get("type") != "object"
        if self.is_wrapped:
            self._read, self.schema = _reader(kind, wrapped=True)
        elif root is None:
            raise UsageError(
                f"`output_type` is read from a JSON object or list: a dataclass, TypedDict, Struct, pydantic model, `list[...]`, "
                f"`dict[str, ...]` or a union of objects, not {kind!r}"
            )
        self.brackets = "{" if self.is_wrapped or root == "object" else "["
        plain = _plain(kind)
        arguments = typing.get_args(plain)
        self.item: Any = arguments[0] if typing.get_origin(plain) is list and arguments else None
        self.name: str = getattr(plain, "__name__", "output")

    def read(self, text: str) -> Any:
        """Return the value of JSON text.

        Raises:
            Exception: it has none: the error of msgspec, pydantic or the application's own checks.
        """
        return _checked(self._read, text)

    def item_reader(self) -> Callable[[str], Any]:
        """Return what reads the JSON text of an element.

        Raises:
            UsageError: the type is no `list[...]`.
        """
        if self.item is None:
            raise UsageError("`output_items()` needs an `output_type` that is a `list[...]`")
        read, _ = _reader(self.item)
        return lambda text: _checked(read, text)

    def for_provider(self) -> tuple[dict[str, Any], bool]:
        """Return the schema for a provider that is held to it, and whether it is strict: each key is required, and has a
        type."""
        schema, strict = deepcopy(self.schema), True
        for part in _parts(schema):
            part.pop("discriminator", None)  # a hint, which strict servers refuse
            if "oneOf" in part:
                part["anyOf"] = part.pop("oneOf")
            properties = part.get("properties")
            if properties is not None:
                part.setdefault("additionalProperties", False)
                strict = strict and {*part.get("required", ())} == {*properties}
            if part.get("type") == "object":
                strict = strict and part.get("additionalProperties") is False
            strict = strict and any(key in part for key in _STATES_TYPE) and _NOT_STRICT.isdisjoint(part)
        return schema, strict


_NOT_STRICT = frozenset(
    ("prefixItems", "uniqueItems", "patternProperties", "propertyNames")
)  # of which strict servers have none
_STATES_TYPE = ("type", "anyOf", "allOf", "$ref", "enum", "const")


def _checked(read: Callable[[str], Any], text: str) -> Any:
    if len(text) >= LONG and is_too_deep(text):
        raise ValueError(TOO_DEEP)
    return read(text)


# -- readers


class _TypeReader(NamedTuple):
    read: Callable[[str], Any]
    schema: dict[str, Any]


def _reader(kind: Any, *, wrapped: bool = False) -> _TypeReader:
    """Return what reads a type, and its schema.

    Raises:
        UsageError: neither pydantic nor msgspec can.
    """
    try:
        read, schema = (_by_pydantic if _holds_pydantic(kind, []) else _by_msgspec)(kind, wrapped=wrapped)
    except Exception as error:  # of several packages, which have classes of their own
        lines = [line for line in str(error).splitlines() if line and not line.startswith("For further information")]
        reason = " ".join(lines) or type(error).__name__
        raise UsageError(f"`output_type` {kind!r} cannot be read from JSON: {reason}") from error
    return _TypeReader(read, _with_root(schema))


def _by_msgspec(kind: Any, *, wrapped: bool) -> _TypeReader:
    if wrapped:
        kind = msgspec.defstruct("Output", [(VALUE_KEY, kind)])
    (schema,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    read: Callable[[str], Any] = decoder(kind).decode
    definitions = {"$defs": components} if components else {}
    return _TypeReader(_unwrapping(read) if wrapped else read, {**schema, **definitions})


def _by_pydantic(kind: Any, *, wrapped: bool) -> _TypeReader:
    import pydantic  # imported by now, with the type

    if wrapped:
        kind = pydantic.create_model("Output", value=(kind, ...))
    adapter = pydantic.TypeAdapter[Any](kind)
    read: Callable[[str], Any] = adapter.validate_json
    return _TypeReader(_unwrapping(read) if wrapped else read, adapter.json_schema())


def _unwrapping(read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: read(text).value


def _plain(kind: Any) -> Any:
    """Return a type without `Annotated` around it and without the name of an alias."""
    while True:
        if hasattr(kind, "__value__"):
            kind = kind.__value__
        elif typing.get_origin(kind) is Annotated:
            kind = typing.get_args(kind)[0]
        else:
            return kind


def _holds_pydantic(kind: Any, seen: list[Any]) -> bool:
    """Whether a type is one of pydantic's, or one of them stands inside of it."""
    if any(one is kind for one in seen):
        return False
    seen.append(kind)
    if hasattr(kind, "__get_pydantic_core_schema__") or hasattr(kind, "__pydantic_validator__"):
        return True
    if type(kind).__module__.partition(".")[0] == "pydantic":  # what `Annotated` has of it
        return True
    inner = [*typing.get_args(kind), getattr(kind, "__value__", None), getattr(kind, "__supertype__", None)]
    if _has_fields(kind):
        inner += typing.get_type_hints(kind, include_extras=True).values()
    return any(_holds_pydantic(one, seen) for one in inner)


def _has_fields(kind: Any) -> bool:
    tests: tuple[Callable[[Any], bool], ...] = (dataclasses.is_dataclass, typing.is_typeddict, is_typeddict, _is_struct)
    return any(test(kind) for test in tests) or hasattr(kind, "_fields")  # a NamedTuple


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(cast("type[object]", kind), msgspec.Struct)


# -- schemas


def _with_root(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with a root that is not a reference. Its definitions keep the root only where it contains itself."""
    root = dict(schema)
    while isinstance(reference := root.get("$ref"), str):
        definitions: dict[str, Any] = dict(root.get("$defs", {}))
        name = reference.rpartition("/")[2]
        root = {**definitions[name], "$defs": definitions}
        if not any(part.get("$ref") == reference for part in _parts(root)):
            del definitions[name]
        if not definitions:
            del root["$defs"]
    return root


def _root(schema: Mapping[str, Any], definitions: Mapping[str, Any] | None = None) -> str | None:
    """Return what JSON of a schema is: `object`, `array`, or None for anything else."""
    if definitions is None:
        definitions = cast("Mapping[str, Any]", schema.get("$defs", {}))
    if isinstance(reference := schema.get("$ref"), str):
        return _root(definitions[reference.rpartition("/")[2]], definitions)
    if kinds := schema.get("anyOf") or schema.get("oneOf"):
        return "object" if all(_root(one, definitions) == "object" for one in kinds) else None
    kind = schema.get("type")
    return kind if kind in ("object", "array") else None


def _parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a schema and all schemas in it."""
    yield schema
    for key in ("properties", "$defs"):
        for part in schema.get(key, {}).values():
            yield from _parts(part)
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for part in schema.get(key, ()):
            yield from _parts(part)
    for key in ("items", "additionalProperties"):
        if isinstance(part := schema.get(key), dict):
            yield from _parts(cast("dict[str, Any]", part))
