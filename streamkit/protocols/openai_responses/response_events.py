"""Reads the events about a response and about its items: their beginning and their end."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from ...events import (
    OPEN_MESSAGE_STATUS,
    Event,
    MetadataHeld,
    RawEvent,
    Run,
    RunCreated,
    RunDone,
    RunStatus,
    RunStep,
    RunStepCreated,
)
from ...messages import Status
from ..final_forms import match_final
from ..values import WireObject, as_list, as_object, as_text, error_object, is_object, text_or_none, usage_of
from .fields import EventFields, ObjectFields, read_object
from .final_items import final_form, finish_item
from .item import Item
from .item_index import ItemIndex
from .item_types import CALLS, STATUSES
from .response_state import ResponseState
from .wire import STEM_OF_CALL, warning

__all__ = ["read_begin", "read_end", "read_error", "read_item_added", "read_item_done", "read_untyped"]

# Items of these types have one message, which begins with the item: the kind of its part. A call also needs a name to begin.
_FIRST_PARTS = {"code_interpreter_call": "code", "image_generation_call": "image", **dict.fromkeys(CALLS, "call")}


_type_of = attrgetter("type")


# -- items


def read_item_added(state: ResponseState, fields: EventFields, event: WireObject) -> list[Event]:
    """Begin an item."""
    wire = as_object(event.get("item"))
    if not wire:
        return []
    own = read_object(wire)
    id = own.id or ""
    item = state.items.begin(own, fields.output_index)
    events: list[Event] = []
    if (changed := item.learn(wire, own)) and (size := state.hold(changed)):
        events.append(MetadataHeld(None, size))
    kind = _FIRST_PARTS.get(item.type)
    if kind is not None:
        if kind != "call" or not item.is_withheld:
            events += item.open(kind)
        if id and item.type in STEM_OF_CALL:
            state.expect_deltas(item, id, STEM_OF_CALL[item.type], 0)
    elif item.type == "reasoning" and not item.parts.by_part:
        events += item.open_early("summary" if state.has_summaries else "reasoning")
    return events


def read_item_done(state: ResponseState, fields: EventFields, event: WireObject) -> list[Event]:
    """End an item with its final form; without one it ends as it was streamed."""
    wire = as_object(event.get("item"))
    if wire:
        own = read_object(wire)
        item = state.items.of_form(own, fields.output_index)
        state.forget_targets(item)
        return finish_item(item, wire, own, "completed")
    open_item = state.items.open_at(fields.output_index or 0)
    if open_item is None:
        return []
    state.forget_targets(open_item)
    return open_item.close_all("completed")


# -- the response


def read_begin(state: ResponseState, fields: EventFields, event: WireObject, *, is_created: bool) -> list[Event]:
    """Begin the response: the one of this event, or this event itself if it has no type. A stream that is resumed in its
    middle has no `response.created`."""
    is_another = is_created and state.has_ended
    if is_another:
        state.reset()
    response = as_object(event.get("response") if fields.type else event)
    state.items.is_stored = response.get("store") is not False
    if state.has_begun:
        return []
    state.has_begun = True
    if reasoning := response.get("reasoning"):
        state.has_summaries = as_object(reasoning).get("summary") is not None
    events: list[Event] = [RunCreated(_run(response, read_object(response), "in_progress"))]
    return [*events, RunStepCreated(RunStep())] if is_another else events  # so its tokens are added


def read_end(state: ResponseState, fields: EventFields, event: WireObject, *, status: RunStatus) -> list[Event]:
    """End the response, found as in `read_begin`. `status` holds if the response has none."""
    if state.has_ended:
        return []
    state.has_begun = state.has_ended = state.is_complete = True
    response = as_object(event.get("response") if fields.type else event)
    own = read_object(response)
    status = STATUSES.get(own.status or "") or status
    events = _finish_items(state, as_list(response.get("output")), OPEN_MESSAGE_STATUS[status])
    usage = response.get("usage")
    if is_object(usage):
        if usage:
            events.append(usage_of(usage))
    elif usage is not None:
        events.append(warning("bad-usage", "its `usage` is not an object; it was skipped", None))
    if status == "completed" and "mcp_approval_request" in map(_type_of, state.items.items):
        status = "requires_action"  # an MCP server waits for an answer, which the next request brings
    events.append(RunDone(_run(response, own, status)))
    return events


def read_untyped(state: ResponseState, fields: EventFields, event: WireObject) -> list[Event]:
    """Return the events of an item without a type: an error, or a response that was not streamed."""
    if event.get("error") is not None:
        return read_error(state, fields, event)
    if event.get("object") != "response":
        return [warning("no-type", "it has no type and was skipped", None)]
    events = read_begin(state, fields, event, is_created=True)
    if as_text(event.get("status")) not in ("queued", "in_progress"):
        events += read_end(state, fields, event, status="completed")
    return events


def read_error(state: ResponseState, fields: EventFields, event: WireObject) -> list[Event]:
    """Return the end of a failed run. The error is at `error`, or is the event itself."""
    if state.has_ended:
        return []
    state.is_complete = True
    error = event.get("error")
    if error is None:
        error = {key: value for key, value in event.items() if key not in ("type", "sequence_number")}
    return [RunDone(Run(status="failed", error=_error(error), raw=event))]


def _finish_items(state: ResponseState, output: Sequence[Any], status: Status) -> list[Event]:
    """Return the events of the final output that were not emitted, and the ends of items that are not done."""
    forms = [(wire, read_object(wire)) for wire in map(as_object, output)]
    events: list[Event] = []
    for (wire, own), item in zip(forms, _streamed_items(state.items, forms), strict=True):
        is_new = item is None
        if item is None:
            item = state.items.add(own.id or "", own.type or "", None, own.call_id or "")
        state.forget_targets(item)
        found = finish_item(item, wire, own, status)
        if is_new and wire and not found:
            found = [RawEvent(own.type or "", wire)]
        events += found
    for item in state.items.items:
        if not item.is_done:
            events += item.close_all(status)
    state.targets.clear()
    return events


def _streamed_items(items: ItemIndex, forms: Sequence[tuple[WireObject, ObjectFields]]) -> list[Item | None]:
    """Return the items that these final forms belong to; None for those that were not streamed."""
    by_id = [items.with_id(own.id or "") for _, own in forms]
    are_found = (item is not None and item.type == own.type for item, (_, own) in zip(by_id, forms, strict=True))
    if all(are_found) and len({*map(id, by_id)}) == len(by_id):
        return by_id
    streamed = [*items.items]
    indexes = match_final([final_form(wire, own) for wire, own in forms], [item.form for item in streamed])
    return [None if index is None else streamed[index] for index in indexes]


def _run(response: WireObject, own: ObjectFields, status: RunStatus) -> Run:
    """Return the response as a run. Its `raw` is without the output, which is in the messages, and may be long."""
    error, details = response.get("error"), response.get("incomplete_details")
    raw = {key: response[key] for key in response if key != "output"}
    return Run(
        id=own.id or "",
        status=status,
        model=own.model or None,
        error=_error(error) if error is not None or status == "failed" else None,
        finish_reason=text_or_none(as_object(details).get("reason")) if details else None,
        created_at=own.created_at or None,
        completed_at=own.completed_at or None,
        raw=raw or None,
    )


def _error(value: Any) -> dict[str, Any]:
    return error_object(value, "the response failed")
