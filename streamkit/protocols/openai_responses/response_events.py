"""Reads the events about a response and about its items: their beginning and their end."""

from __future__ import annotations

from collections.abc import Sequence
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
from ..values import (
    WireObject,
    as_count,
    as_object,
    as_objects,
    as_seconds,
    as_text,
    error_object,
    is_object,
    text_or_none,
    usage_of,
)
from .final_items import final_form, finish_item
from .item import Item
from .item_index import ItemIndex, ResponseState
from .item_types import CALLS, STATUSES
from .wire import STEMS, warning

__all__ = ["read_begin", "read_end", "read_error", "read_item_added", "read_item_done", "read_untyped"]

# Items of these types have one message, which begins with the item: the kind of its part. A call also needs a name to begin.
_FIRST_PARTS = {"code_interpreter_call": "code", "image_generation_call": "image", **dict.fromkeys(CALLS, "call")}


# -- items


def read_item_added(state: ResponseState, event: WireObject) -> list[Event]:
    """Begin an item."""
    wire = as_object(event.get("item"))
    if not wire:
        return []
    item = state.items.begin(wire, as_count(event.get("output_index")))
    events: list[Event] = []
    if (changed := item.learn(wire)) and (size := state.held.add(changed)):
        events.append(MetadataHeld(None, size))
    kind = _FIRST_PARTS.get(item.type)
    if kind is not None:
        if kind != "call" or not item.is_withheld:
            events += item.open(kind)
        if stem := STEMS.get(item.type if kind == "call" else kind):
            state.items.expect_deltas(item, stem, 0)
    elif item.type == "reasoning" and not item.parts.by_part:
        events += item.open_early("summary" if state.has_summaries else "reasoning")
    return events


def read_item_done(state: ResponseState, event: WireObject) -> list[Event]:
    """End an item with its final form; without one it ends as it was streamed."""
    wire, output_index = as_object(event.get("item")), as_count(event.get("output_index"))
    if wire:
        return finish_item(state.items.of_form(wire, output_index), wire, "completed")
    item = state.items.open_at(output_index or 0)
    return [] if item is None else item.close_all("completed")


# -- the response


def read_begin(state: ResponseState, event: WireObject, *, is_created: bool) -> list[Event]:
    """Begin the response: the one of this event, or this event itself if it has no type. A stream that is resumed in its
    middle has no `response.created`."""
    is_another = is_created and state.has_ended
    if is_another:
        state.reset()
    response = _response_of(event)
    state.items.is_stored = response.get("store") is not False
    if state.has_begun:
        return []
    state.has_begun = True
    if reasoning := response.get("reasoning"):
        state.has_summaries = as_object(reasoning).get("summary") is not None
    events: list[Event] = [RunCreated(_run(response, "in_progress"))]
    return [*events, RunStepCreated(RunStep())] if is_another else events  # so its tokens are added


def read_end(state: ResponseState, event: WireObject, *, status: RunStatus) -> list[Event]:
    """End the response, found as in `read_begin`. `status` holds if the response has none."""
    if state.has_ended:
        return []
    state.has_begun = state.has_ended = state.is_complete = True
    response = _response_of(event)
    status = STATUSES.get(as_text(response.get("status"))) or status
    events = _finish_items(state, as_objects(response.get("output")), OPEN_MESSAGE_STATUS[status])
    usage = response.get("usage")
    if is_object(usage):
        if usage:
            events.append(usage_of(usage))
    elif usage is not None:
        events.append(warning("bad-usage", "its `usage` is not an object; it was skipped", None))
    if status == "completed" and any(item.type == "mcp_approval_request" for item in state.items.items):
        status = "requires_action"  # an MCP server waits for an answer, which the next request brings
    events.append(RunDone(_run(response, status)))
    return events


def read_untyped(state: ResponseState, event: WireObject) -> list[Event]:
    """Return the events of an item without a type: an error, or a response that was not streamed."""
    if event.get("error") is not None:
        return read_error(state, event)
    if event.get("object") != "response":
        return [warning("no-type", "it has no type and was skipped", None)]
    events = read_begin(state, event, is_created=True)
    if as_text(event.get("status")) not in ("queued", "in_progress"):
        events += read_end(state, event, status="completed")
    return events


def read_error(state: ResponseState, event: WireObject) -> list[Event]:
    """Return the end of a failed run. The error is at `error`, or is the event itself."""
    if state.has_ended:
        return []
    state.is_complete = True
    error = event.get("error")
    if error is None:
        error = {key: value for key, value in event.items() if key not in ("type", "sequence_number")}
    return [RunDone(Run(status="failed", error=_error(error), raw=event))]


def _finish_items(state: ResponseState, forms: Sequence[WireObject], status: Status) -> list[Event]:
    """Return the events of the final output that were not emitted, and the ends of items that are not done."""
    events: list[Event] = []
    for wire, item in zip(forms, _streamed_items(state.items, forms), strict=True):
        found = finish_item(item or state.items.add_form(wire), wire, status)
        if item is None and wire and not found:
            found = [RawEvent(as_text(wire.get("type")), wire)]
        events += found
    for item in state.items.items:
        if not item.is_done:
            events += item.close_all(status)
    return events


def _streamed_items(items: ItemIndex, forms: Sequence[WireObject]) -> list[Item | None]:
    """Return the items that these final forms belong to; None for those that were not streamed."""
    by_id = [items.by_id.get(as_text(wire.get("id"))) for wire in forms]
    are_found = (item is not None and item.type == wire.get("type") for item, wire in zip(by_id, forms, strict=True))
    if all(are_found) and len({*map(id, by_id)}) == len(by_id):
        return by_id
    streamed = [*items.items]
    indexes = match_final([*map(final_form, forms)], [item.form for item in streamed])
    return [None if index is None else streamed[index] for index in indexes]


def _response_of(event: WireObject) -> WireObject:
    return as_object(event.get("response") if as_text(event.get("type")) else event)


def _run(response: WireObject, status: RunStatus) -> Run:
    """Return the response as a run. Its `raw` is without the output, which is in the messages, and may be long."""
    error, details = response.get("error"), response.get("incomplete_details")
    raw = {key: response[key] for key in response if key != "output"}
    return Run(
        id=as_text(response.get("id")),
        status=status,
        model=text_or_none(response.get("model")),
        error=_error(error) if error is not None or status == "failed" else None,
        finish_reason=text_or_none(as_object(details).get("reason")) if details else None,
        created_at=as_seconds(response.get("created_at")),
        completed_at=as_seconds(response.get("completed_at")),
        raw=raw or None,
    )


def _error(value: Any) -> dict[str, Any]:
    return error_object(value, "the response failed")
