"""The events and objects of an Assistants stream, read so that a value of an unexpected type does no harm.

A value of the wrong type reads as if it were absent, as `..values` reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from ...events import Run, RunStatus, RunStep, StreamWarning, Usage
from ...messages import Annotation, Status
from ..values import (
    WireObject,
    annotation_of,
    as_object,
    as_seconds,
    as_text,
    error_object,
    is_object,
    text_or_none,
    usage_of,
)

__all__ = [
    "ANNOUNCEMENTS",
    "MESSAGE_ENDS",
    "RUN_ENDS",
    "SEARCHES",
    "STEP_ENDS",
    "TRANSIENT_ERRORS",
    "StepDeltaData",
    "TextDeltaData",
    "Warn",
    "citation_of",
    "error_of",
    "identity_of",
    "kind_of",
    "nonempty_values",
    "run_of",
    "run_usage_of",
    "step_of",
]

Warn = Callable[..., StreamWarning]
"""`Decoder.warn`."""

TRANSIENT_ERRORS = frozenset(("server_error", "rate_limit_exceeded"))
"""The codes of failed runs after which another attempt may succeed."""

SEARCHES = frozenset(("file_search",))
"""The API's own tools that only read."""

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
# Events that change no message and no run. Each is emitted as a raw event, besides whatever its data gives.
ANNOUNCEMENTS = frozenset(
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
_CITATIONS = ("file_citation", "file_path", "url_citation")

# The keys of a run and a step that have their own place in `Run` and `RunStep`; the other ones are metadata.
_FIELD_KEYS = frozenset(
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
_STEP_FIELD_KEYS = _FIELD_KEYS | {"assistant_id", "thread_id"}


def kind_of(entry: WireObject, kinds: Iterable[str]) -> str:
    """Return the `type` of an entry of a list; without one, the kind among these that is one of its keys; else ""."""
    return as_text(entry.get("type")) or next((kind for kind in kinds if entry.get(kind) is not None), "")


def nonempty_values(wire: WireObject, keys: Iterable[str]) -> dict[str, Any]:
    """Return the values under these keys, except for null and empty ones."""
    return {key: value for key in keys if (value := wire.get(key)) not in (None, [], {}, "")}


def citation_of(wire: WireObject) -> Annotation:
    """Return a citation of a file, or of a page. Its `raw` has the text in the message that it stands for."""
    kind = kind_of(wire, _CITATIONS)
    fields = {key: value for key, value in wire.items() if key != "index"}
    return annotation_of({**fields, "type": kind} if kind else fields)


def identity_of(citation: Annotation) -> tuple[Any, ...]:
    """Return the fields that a citation has both in a delta and in the final message, where it may have fewer
    details."""
    marker = as_text(as_object(citation.raw).get("text"))
    return (citation.type, citation.url, citation.file_id, citation.start, citation.end, marker)


def error_of(data: Any) -> dict[str, Any]:
    """Return an error in any of the forms in which servers send it: an object, one under `error`, or text."""
    return error_object(as_object(data).get("error") or data or None)


def run_of(wire: WireObject, status: RunStatus) -> Run:
    """Return the run in an event's data. Its `metadata` has the thread, the assistant and the request's settings."""
    error = wire.get("last_error")
    return Run(
        id=as_text(wire.get("id")),
        status=status,
        model=text_or_none(wire.get("model")),
        error=error_of(error) if is_object(error) else None,
        finish_reason=text_or_none(as_object(wire.get("incomplete_details")).get("reason")),
        created_at=as_seconds(wire.get("created_at")),
        completed_at=as_seconds(wire.get("completed_at")),
        metadata=nonempty_values(wire, [key for key in wire if key not in _FIELD_KEYS]),
        raw=dict(wire) or None,
    )


def step_of(wire: WireObject, id: str, status: RunStatus) -> RunStep:
    """Return the step in an event's data. Its `metadata` has the id of the message that it creates, as `message_id`."""
    details = as_object(wire.get("step_details"))
    error = wire.get("last_error")
    metadata = nonempty_values(wire, [key for key in wire if key not in _STEP_FIELD_KEYS])
    if message_id := as_text(as_object(details.get("message_creation")).get("message_id")):
        metadata["message_id"] = message_id
    return RunStep(
        id=id,
        status=status,
        run_id=text_or_none(wire.get("run_id")),
        type=text_or_none(wire.get("type")) or text_or_none(details.get("type")),
        usage=run_usage_of(wire),
        error=error_of(error) if is_object(error) else None,
        created_at=as_seconds(wire.get("created_at")),
        completed_at=as_seconds(wire.get("completed_at")),
        metadata=metadata,
        raw={key: value for key, value in wire.items() if key != "step_details"} or None,
    )


def run_usage_of(wire: WireObject) -> Usage | None:
    """Return the tokens of a step or a run; None where it has no `usage`."""
    usage = as_object(wire.get("usage"))
    return usage_of(usage, "prompt_tokens", "completion_tokens") if usage else None


# -- the plain case: the deltas of a message's text and of a call, which come in thousands


class _TextBody(msgspec.Struct):
    value: Annotated[str, msgspec.Meta(min_length=1)]
    annotations: Annotated[list[Any], msgspec.Meta(max_length=0)] | None = None


class _WireTextPart(msgspec.Struct):
    index: int
    type: Literal["text"]
    text: _TextBody


class _ThreadMessageDelta(msgspec.Struct):
    content: Annotated[list[_WireTextPart], msgspec.Meta(min_length=1, max_length=1)]


class TextDeltaData(msgspec.Struct):
    """The data of `thread.message.delta` as it mostly comes: text for one part. Any other is read by its keys."""

    id: str
    delta: _ThreadMessageDelta
    # No value fits this type: an item that is wrapped in another one is not a plain one.
    data: Annotated[int, msgspec.Meta(gt=0, lt=0)] = 0


class _CodeBody(msgspec.Struct):
    piece: Annotated[str, msgspec.Meta(min_length=1)] = msgspec.field(name="input")
    outputs: tuple[()] | None = None


class _FunctionBody(msgspec.Struct):
    piece: Annotated[str, msgspec.Meta(min_length=1)] = msgspec.field(name="arguments")
    name: str | None = None
    output: None = None


class _CodePiece(msgspec.Struct, tag_field="type", tag="code_interpreter"):
    type: ClassVar[str] = "code_interpreter"
    index: int
    body: _CodeBody = msgspec.field(name="code_interpreter")
    id: str | None = None


class _FunctionPiece(msgspec.Struct, tag_field="type", tag="function"):
    type: ClassVar[str] = "function"
    index: int
    body: _FunctionBody = msgspec.field(name="function")
    id: str | None = None


class _StepDetails(msgspec.Struct):
    tool_calls: tuple[_CodePiece | _FunctionPiece]
    message_creation: None = None


class _StepDelta(msgspec.Struct):
    step_details: _StepDetails


class StepDeltaData(msgspec.Struct):
    """The data of `thread.run.step.delta` as it mostly comes: a piece of one call's code or arguments."""

    id: str
    delta: _StepDelta
    run_id: None = None
    data: Annotated[int, msgspec.Meta(gt=0, lt=0)] = 0
