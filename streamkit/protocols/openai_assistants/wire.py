"""What an Assistants stream sends, read so that no value of an unexpected type can do harm.

A value of the wrong type reads as if it were absent. The deltas of a message's text come in thousands: for these there
is a typed struct, which accepts an event only as it mostly comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec

from ...events import Run, RunStatus, RunStep, StreamWarning, Usage
from ...messages import Annotation, Status
from ..values import as_count as integer
from ..values import as_list as sequence
from ..values import as_object as mapping
from ..values import as_text as text
from ..values import is_object
from ..values import text_or_json as json_text

__all__ = [
    "ANNOUNCED",
    "MESSAGE_ENDS",
    "RUN_ENDS",
    "STATUSES",
    "STEP_ENDS",
    "Warn",
    "Wire",
    "annotation_key",
    "annotation_of",
    "decode_grown",
    "error_of",
    "integer",
    "json_text",
    "kept",
    "kind_of",
    "mapping",
    "named",
    "number",
    "objects",
    "run_of",
    "sequence",
    "step_of",
    "text",
    "usage_of",
]

Wire = Mapping[str, Any]
Warn = Callable[..., StreamWarning]

RUN_ENDS: dict[str, RunStatus] = {
    "thread.run.completed": "completed",
    "thread.run.incomplete": "incomplete",
    "thread.run.failed": "failed",
    "thread.run.cancelled": "cancelled",
    "thread.run.expired": "expired",
}
STEP_ENDS: dict[str, RunStatus] = {
    "thread.run.step.completed": "completed",
    "thread.run.step.failed": "failed",
    "thread.run.step.cancelled": "cancelled",
    "thread.run.step.expired": "expired",
}
MESSAGE_ENDS: dict[str, Status] = {"thread.message.completed": "completed", "thread.message.incomplete": "incomplete"}
# Events that only announce what others tell; no message and no run comes of them, so they are told as they are.
ANNOUNCED = frozenset(
    [
        "thread.created",
        "thread.run.queued",
        "thread.run.in_progress",
        "thread.run.cancelling",
        "thread.run.step.in_progress",
        "thread.message.created",
        "thread.message.in_progress",
    ]
)
# How messages end in a step, or a run, that ends so.
STATUSES: dict[RunStatus, Status] = {
    "completed": "completed",
    "incomplete": "incomplete",
    "failed": "failed",
    "cancelled": "cancelled",
    "expired": "failed",
}
_GROWING = ("thread.message.delta", "thread.run.step.delta")
_OBJECTS = ("thread.run", "thread.run.step", "thread.message")

# What a run and a step have a place of their own for; the rest of their objects is metadata.
_PLACED = frozenset(
    [
        "id",
        "object",
        "run_id",
        "type",
        "status",
        "model",
        "usage",
        "last_error",
        "incomplete_details",
        "required_action",
        "step_details",
        "created_at",
        "completed_at",
    ]
)


def named(item: Wire) -> tuple[str, Any]:
    """The name and the data of an item. An object without a name is named by what it says it is."""
    bare = "event" not in item and "data" not in item
    name, data = ("", item) if bare else (text(item.get("event")), item.get("data"))
    if name.startswith("thread.") or name in ("error", "done"):
        return name, data
    wire = mapping(data)
    object = text(wire.get("object"))
    if object in _GROWING:
        return object, data
    if object in _OBJECTS:
        return f"{object}.{text(wire.get('status'))}", data
    if object == "thread":
        return "thread.created", data
    return ("error", data) if wire.get("error") else (name, data)


def objects(value: Any) -> list[Wire]:
    """The objects in a list of the wire; what else is in it reads as empty ones, so that places are kept."""
    return [mapping(one) for one in sequence(value)]


def kind_of(entry: Wire, kinds: Iterable[str]) -> str:
    """What an entry of a list is: as it says, else by the key that it has."""
    return text(entry.get("type")) or next((kind for kind in kinds if entry.get(kind) is not None), "")


def number(value: Any) -> float | None:
    """A wire value as a time; None if it is none."""
    return value if type(value) in (int, float) and 0 <= value < 1e15 else None


def kept(wire: Wire, keys: Iterable[str]) -> dict[str, Any]:
    """Those of an object's values that say something."""
    return {key: value for key in keys if (value := wire.get(key)) not in (None, [], {}, "")}


def annotation_of(wire: Wire) -> Annotation:
    """A citation of a file, or of a page where a server has these. `raw` has the text that it stands on."""
    kind = text(wire.get("type")) or "annotation"
    body = mapping(wire.get(kind))
    return Annotation(
        type=kind,
        url=text(body.get("url")) or None,
        file_id=text(body.get("file_id")) or None,
        title=text(body.get("title")) or None,
        quote=text(body.get("quote")) or None,
        start=integer(wire.get("start_index")),
        end=integer(wire.get("end_index")),
        raw={key: value for key, value in wire.items() if key != "index"},
    )


def annotation_key(annotation: Annotation) -> tuple[Any, ...]:
    """By what a citation is known again: its deltas say more of it than the final message."""
    marked = text(mapping(annotation.raw).get("text"))
    return (annotation.type, annotation.url, annotation.file_id, annotation.start, annotation.end, marked)


def error_of(value: Any) -> dict[str, Any]:
    """An error, as any of the forms in which servers have it."""
    wire = mapping(value)
    given = wire.get("error") if wire.get("error") else value
    error: dict[str, Any] = dict(mapping(given)) or {"message": json_text(given) if given else ""}
    if not text(error.get("message")):
        error["message"] = text(error.get("code")) or text(error.get("type")) or "the run failed"
    return error


def run_of(wire: Wire, status: RunStatus) -> Run:
    """The run that an event's data is. Its `metadata` has the thread, the assistant and what they were asked to do."""
    error = wire.get("last_error")
    return Run(
        id=text(wire.get("id")),
        status=status,
        model=text(wire.get("model")) or None,
        error=error_of(error) if is_object(error) else None,
        finish_reason=text(mapping(wire.get("incomplete_details")).get("reason")) or None,
        created_at=number(wire.get("created_at")),
        completed_at=number(wire.get("completed_at")),
        metadata=kept(wire, [key for key in wire if key not in _PLACED]),
        raw=dict(wire) or None,
    )


def step_of(wire: Wire, id: str, status: RunStatus) -> RunStep:
    """The step that an event's data is. Its `metadata` has the id of the message that it makes."""
    details = mapping(wire.get("step_details"))
    error = wire.get("last_error")
    usage = mapping(wire.get("usage"))
    metadata = kept(wire, [key for key in wire if key not in _PLACED and key not in ("assistant_id", "thread_id")])
    if message_id := text(mapping(details.get("message_creation")).get("message_id")):
        metadata["message_id"] = message_id
    return RunStep(
        id=id,
        status=status,
        run_id=text(wire.get("run_id")) or None,
        type=text(wire.get("type")) or text(details.get("type")) or None,
        usage=usage_of(usage) if usage else None,
        error=error_of(error) if is_object(error) else None,
        created_at=number(wire.get("created_at")),
        completed_at=number(wire.get("completed_at")),
        metadata=metadata,
        raw={key: value for key, value in wire.items() if key != "step_details"} or None,
    )


def usage_of(wire: Wire) -> Usage:
    """The tokens of a step, or of a run."""
    keys = ("prompt_tokens", "completion_tokens", "total_tokens")
    asked, answered, total = (integer(wire.get(key)) or 0 for key in keys)
    details = {key: value for key, value in wire.items() if key not in keys and value is not None}
    return Usage(asked, answered, total or asked + answered, details)


# -- the fast path


class _GrownText(msgspec.Struct):
    value: Annotated[str, msgspec.Meta(min_length=1)]
    annotations: Annotated[list[Any], msgspec.Meta(max_length=0)] | None = None


class _GrownPart(msgspec.Struct):
    index: int
    type: Literal["text"]
    text: _GrownText


class _GrownContent(msgspec.Struct):
    content: Annotated[list[_GrownPart], msgspec.Meta(min_length=1, max_length=1)]


class Grown(msgspec.Struct):
    """The data of a delta of one text part, as it mostly comes; what differs takes the tolerant path."""

    id: str
    delta: _GrownContent
    data: Annotated[int, msgspec.Meta(gt=0, lt=0)] = 0  # refuses an item that is wrapped once more


decode_grown = msgspec.json.Decoder(Grown).decode
