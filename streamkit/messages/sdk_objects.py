"""The typed objects of the clients' SDKs, as the JSON that they were made of.

An object is read as a dict that it makes of itself (`as_item`), or as its JSON text (`json_writer`), which pydantic writes in a
fraction of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from ..errors import raise_source_error

__all__ = ["as_item", "is_helper_event", "is_model", "is_plain_model", "json_writer", "opened", "without_helper"]

_MOST_MODELS = 1000  # classes that are remembered


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
            return dump(mode="json", by_alias=True, exclude_unset=True)
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


@lru_cache(maxsize=_MOST_MODELS)
def json_writer(kind: Any) -> Callable[..., bytes]:
    """Return what writes the JSON text of a plain model of this class: it is called as
    `write(value, by_alias=True, exclude_none=True, warnings=False)`, and raises ValueError for what no JSON text has, such as half of
    a surrogate pair. The text has what `as_item` has, but for nulls, and the class's own values of what was not set: pydantic
    takes half as long again to find out what was.

    Raises:
        TypeError: the class is not a plain model's.
    """
    if not is_plain_model(kind):
        raise TypeError("it is not a plain model of an SDK")
    # As `model_dump_json`, the wrapping of which takes as long again.
    write: Callable[..., bytes] = kind.__pydantic_serializer__.to_json
    return write


@lru_cache(maxsize=_MOST_MODELS)
def is_plain_model(kind: Any) -> bool:
    """Whether pydantic alone makes the dict of an object of this class: it is a model that does not override how it is
    written."""
    if not hasattr(kind, "__pydantic_serializer__") or is_helper_event(kind):
        return False
    to_dict = getattr(kind, "to_dict", None)
    dump = getattr(kind, "model_dump", None)  # pydantic's dataclasses have none
    return (to_dict is None or _is_method_of_sdk(to_dict)) and getattr(
        dump, "__qualname__", ""
    ) == "BaseModel.model_dump"
