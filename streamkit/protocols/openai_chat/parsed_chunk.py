"""Reads a plain delta from a chunk that is parsed already, a dict or the client's object, with a few look-ups.

It accepts only the forms that most servers send. `typed_chunk` accepts more, and gives the same event for these.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, TypeAlias

from ...events import Event, ReasoningDelta
from ...messages.json_text import has_surrogates
from ...messages.sdk_objects import fields_of
from ..values import is_list
from .choice import Choice
from .pieces import call_event
from .returned_fields import CALL_KEYS

__all__ = ["NO_FORM", "ObjectForm", "form_of", "has_one_value", "is_plain_extra", "parsed_piece"]

ObjectForm: TypeAlias = tuple[type[Any] | None, type[Any] | None, type[Any] | None, AbstractSet[str]]
"""What a client's objects for pieces of text have in common: the classes of the chunk, of its choice and of its delta,
which say what fields they have; and the names of the fields that are set in the delta."""

NO_FORM: ObjectForm = (None, None, None, frozenset())

is_plain_extra = frozenset(
    ("error", "x_groq", "citations", "search_results", "prompt_filter_results", "usage", "moderation", "choices")
).isdisjoint
"""Called with the names of fields that a chunk has besides those of its class: whether it can still be a plain chunk."""

_CHOICE_FIELDS = {"index", "delta", "finish_reason", "logprobs"}

_PLAIN_KEYS_OF_CALL = CALL_KEYS - {"custom"}  # values under other keys are kept, to be sent back with the call


def _fields(value: Any, item: Any) -> Mapping[str, Any]:
    return value if value.__class__ is dict or item.__class__ is dict else fields_of(value)


def form_of(chunk: Any) -> ObjectForm | None:
    """The form of a client's object that is a plain piece of text. None if chunks like it have to be read field by field."""
    (choice,) = chunk.choices
    delta = choice.delta
    names = delta.__pydantic_fields_set__
    if delta.__pydantic_extra__ or "content" not in names or not names <= {"content", "role"}:
        return None
    if choice.__dict__.keys() != _CHOICE_FIELDS or "usage" not in chunk.__dict__:
        return None
    if not is_plain_extra(chunk.__dict__.keys() - {"usage", "moderation", "choices"}):
        return None
    return chunk.__class__, choice.__class__, delta.__class__, frozenset(names)


def has_one_value(delta: Mapping[str, Any]) -> bool:
    """Whether all but one of a delta's values are null. Its role does not count: it is the same in every delta."""
    values = len(delta) - [*delta.values()].count(None)
    return values == 1 or (values == 2 and delta.get("role") is not None)


def parsed_piece(choice: Choice, delta: Mapping[str, Any], item: Any) -> Event | None:
    """The event of a delta whose one value is not `content`: a piece of reasoning, or of an open call's arguments."""
    for key in ("reasoning_content", "reasoning"):
        text = delta.get(key)
        if text is not None:
            id = choice.open_reasoning_id
            if id is None or text.__class__ is not str or not text or key not in choice.open_reasoning_keys:
                return None
            return None if has_surrogates(text) else ReasoningDelta(id, text, raw_item=item)
    calls = delta.get("tool_calls")
    if not is_list(calls) or len(calls) != 1:
        return None
    call = _fields(calls[0], item)
    arguments = _fields(call["function"], item)["arguments"]
    index, id = call["index"], call.get("id")
    if index.__class__ is not int or arguments.__class__ is not str or has_surrogates(arguments):
        return None
    if (id is not None and id.__class__ is not str) or any(
        call[key] is not None for key in call.keys() - _PLAIN_KEYS_OF_CALL
    ):
        return None
    return call_event(choice, index, id, arguments, item)
