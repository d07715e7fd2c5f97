"""Objects of the openai library's own classes, built from wire data.

Nothing is validated, because real streams do not pass openai's models. A value of an unexpected type stays as it was
sent.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar, cast, get_args

import msgspec
import openai
from openai.types.beta import AssistantStreamEvent
from openai.types.beta.threads import Text
from openai.types.beta.threads.runs import ToolCall, ToolCallDelta, ToolCallDeltaObject, ToolCallsStepDetails

from ...protocols import is_list, is_object

__all__ = [
    "EVENT_CLASSES",
    "append",
    "as_json",
    "build",
    "entries",
    "has_rest",
    "insert_sorted",
    "integer",
    "mapping",
    "text",
    "text_annotation",
    "tool_call",
    "tool_call_delta",
    "update",
    "wire_event",
]

Model = TypeVar("Model", bound=openai.BaseModel)


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a wire value as an object; empty if it is anything else."""
    return value if is_object(value) else {}


def text(value: Any) -> str:
    """Return a wire value as a string; empty if it is anything else."""
    return value if isinstance(value, str) else ""


def integer(value: Any) -> int | None:
    """Return a wire value as an integer from 0 on; None if it is anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def entries(value: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the objects in a wire list, each with its position in it. A value that is not a list has none."""
    for position, entry in enumerate(value if is_list(value) else ()):
        if is_object(entry):
            yield position, entry


def insert_sorted(index: int, order: list[int]) -> int:
    """Insert an index into the sorted list `order`. Returns its position there."""
    position = bisect.bisect(order, index)
    order.insert(position, index)
    return position


def build(kind: type[Model], data: Mapping[Any, Any]) -> Model:
    """Return an object of one of openai's classes, from wire data."""
    return kind.construct(**{key: value for key, value in data.items() if isinstance(key, str) and key[0:1] != "_"})


def update(live: openai.BaseModel, data: Mapping[Any, Any], *, skip: tuple[str, ...] = ()) -> None:
    """Set the fields of an object from newer wire data, except those named in `skip`."""
    newer = build(type(live), {key: value for key, value in data.items() if key not in skip})
    for key in newer.model_fields_set:
        setattr(live, key, getattr(newer, key))
    if live.model_extra is not None:
        live.model_extra.update(newer.model_extra or {})


def append(live: openai.BaseModel, field: str, piece: str) -> None:
    """Append a piece to a string field.

    The string is taken out of the object first, so that it has a single owner and CPython extends it in place: 0.13 µs
    for a piece of four characters, however long the text is. With a second owner, every piece would copy the entire
    text.
    """
    fields: Any = live.__dict__
    grown: str = fields.pop(field)
    grown += piece
    fields[field] = grown


def has_rest(final: str, live: str, count: int) -> bool:
    """Whether a final text continues what was streamed, so that its end from `count` on is new.

    Args:
        final: the final text.
        live: what was streamed, unless a handler has changed it, which shows in its length.
        count: how many characters were streamed.
    """
    return final.startswith(live) if len(live) == count else len(final) >= count


def text_annotation(data: Mapping[str, Any]) -> Any:
    """Return an annotation of a text, of openai's class for its `type`."""
    return Text.construct(value="", annotations=[data]).annotations[0]


def tool_call(data: Mapping[str, Any]) -> ToolCall:
    """Return a tool call of a run step, of openai's class for its `type`."""
    return ToolCallsStepDetails.construct(type="tool_calls", tool_calls=[data]).tool_calls[0]


def tool_call_delta(data: Mapping[str, Any]) -> ToolCallDelta:
    """Return a delta of a tool call, of openai's class for its `type`."""
    calls = ToolCallDeltaObject.construct(type="tool_calls", tool_calls=[data]).tool_calls
    assert calls is not None
    return calls[0]


def _event_classes() -> dict[str, type[openai.BaseModel]]:
    union = get_args(AssistantStreamEvent)[0]
    return {get_args(kind.model_fields["event"].annotation)[0]: kind for kind in get_args(union)}


EVENT_CLASSES: Final = _event_classes()
"""openai's class of each event, by the event's name on the wire."""


def wire_event(name: str, data: Any) -> AssistantStreamEvent:
    """openai's typed event for a wire item. For an unknown name it is a plain object with `event` and `data`."""
    kind = EVENT_CLASSES.get(name, openai.BaseModel)
    if name == "error":
        data = mapping(data).get("error") or data
        data = data if is_object(data) else {"message": data if isinstance(data, str) else repr(data)}
    # `kind` is a member of openai's union, which `construct` cannot express.
    return cast("AssistantStreamEvent", kind.construct(event=name, data=data))


def as_json(value: Any) -> str:
    """Return a string unchanged; an object or a list, which some servers send in place of JSON text, as JSON text."""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value, enc_hook=repr).decode("utf-8") if isinstance(value, (Mapping, list)) else ""
