"""The typed objects of the clients' SDKs, as the JSON that they were made of.

An object is read in one of two ways: as a dict that it makes of itself (`as_item`), which is slow and always right; or by its
attributes (`fields_of`, `open_model`), which is fast, and possible where an object is a plain model of pydantic's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from ..errors import raise_source_error

__all__ = [
    "PLAIN_KINDS",
    "Nesting",
    "as_item",
    "fields_of",
    "is_helper_event",
    "is_model",
    "is_plain_model",
    "open_model",
    "opened",
    "without_helper",
]

Nesting = Mapping[str, Any]
"""The fields of an item that hold further objects, or lists of them, each with the nesting of these."""


_MOST_MODELS = 1000  # classes that are remembered

PLAIN_KINDS: set[type[Any]] = {dict}
"""The classes whose objects decoders read as they are: dicts, and plain models, as far as any was seen so far. A look into it
is faster than a call of `is_plain_model`."""


def as_item(value: Any) -> Any:
    """Return the dict of an SDK's object; any other value as it is.

    Raises:
        SourceError: the object cannot make a dict of itself.
    """
    if value.__class__ is dict or isinstance(value, Mapping):  # which is slow to find out of a class of one's own
        return value  # pyright: ignore[reportUnknownVariableType]
    try:
        if callable(dump := getattr(value, "to_dict", None)):
            # What a helper parsed into a model is not of the type that the model declares, of which pydantic would warn. Times are
            # no values of JSON.
            return dump(mode="json", warnings=False) if _is_method_of_sdk(dump) else dump()
        if callable(dump := getattr(value, "model_dump", None)):
            return dump(mode="json", exclude_unset=True)
    except Exception as error:
        raise_source_error(error)
    return value


def _is_method_of_sdk(method: Any) -> bool:
    """Whether this is the method `to_dict` of openai's and anthropic's models."""
    return getattr(method, "__qualname__", "") == "BaseModel.to_dict"


_CHAT_HELPER = "openai.lib.streaming.chat._events"


def is_helper_event(kind: type[Any]) -> bool:
    """Whether an object of this class is an event of openai's helper for Chat Completions. For each chunk it yields one that has
    the chunk, and others that repeat what is in the chunk. (The helpers of other APIs yield the API's own events.)"""
    return kind.__module__ == _CHAT_HELPER


def without_helper(values: Iterable[Any]) -> Iterator[Any]:
    """Yield these values, with the chunks of a helper's events in their place."""
    for value in values:
        if not is_helper_event(value.__class__):
            yield value
        elif (chunk := getattr(value, "chunk", None)) is not None:
            yield chunk


def is_model(value: object) -> bool:
    """Whether a value is an SDK's object, as far as its class says."""
    return callable(getattr(type(value), "model_dump", None))


def opened(value: Any) -> Any:
    """Return a value, with dicts in the place of the SDK's objects that are in it, as in `dict(chunk)`. Raises as
    `as_item`."""
    any_value: Any = value  # which stays without a type where `value` gets an unknown one
    if is_model(value):
        return as_item(value)
    if isinstance(value, Mapping):
        return {key: opened(element) for key, element in any_value.items()}
    if isinstance(value, (list, tuple)):
        return [*map(opened, any_value)]
    return value


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of an object that is a plain model, which are not to be changed. Fields that were not set are
    None.

    Raises:
        TypeError: it is another object.
    """
    if value.__class__ not in PLAIN_KINDS and not is_plain_model(value.__class__):
        raise TypeError("it is not a plain model of an SDK")
    if value.__pydantic_extra__:
        return {**value.__dict__, **value.__pydantic_extra__}
    fields: dict[str, Any] = value.__dict__
    return fields


def open_model(value: Any, nesting: Nesting) -> Any:
    """Return the fields of an SDK's object as a dict, which is not to be changed; so are the objects in the fields that
    `nesting` names. Other objects stay, and so does a value that is not a plain model. Fields that were not set are
    None."""
    if not is_plain_model(value.__class__):
        return value
    fields = fields_of(value)
    for key, inner in nesting.items():
        one: Any = fields.get(key)
        if one.__class__ is list:
            fields = {**fields, key: [open_model(element, inner) for element in one]}
        elif one is not None and one.__class__ is not str:
            fields = {**fields, key: open_model(one, inner)}
    return fields


@lru_cache(maxsize=_MOST_MODELS)
def is_plain_model(kind: Any) -> bool:
    """Whether an object of this class has in its fields what its dict has, and None in those that its dict leaves out: it is
    a model of pydantic's that is written as it was declared, under its own names, and that has no values of its own."""
    is_plain = _is_plain_model(kind)
    if is_plain and len(PLAIN_KINDS) < _MOST_MODELS:
        PLAIN_KINDS.add(kind)
    return is_plain


def _is_plain_model(kind: Any) -> bool:
    fields: Mapping[str, Any] | None = getattr(kind, "__pydantic_fields__", None)
    written = getattr(kind, "__pydantic_decorators__", None)
    if fields is None or written is None or not hasattr(kind, "__pydantic_extra__") or is_helper_event(kind):
        return False
    for name in ("to_dict", "model_dump"):
        if getattr(getattr(kind, name, None), "__qualname__", "") not in ("", f"BaseModel.{name}"):
            return False
    if written.field_serializers or written.model_serializers or written.computed_fields:
        return False
    return all(
        field.serialization_alias in (None, name)
        and not field.exclude
        and (field.is_required() or (field.default is None and field.default_factory is None))
        for name, field in fields.items()
    )
