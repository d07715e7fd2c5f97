"""Reads the events about a response and about its items: their beginning and their end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...events import OPEN_MESSAGE_STATUS, Event, MetadataHeld, RawEvent, Run, RunCreated, RunDone, RunStatus
from ...messages import Status
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
from .final_items import finish_item
from .item_index import UnmatchedItems
from .item_types import CALLS, STATUSES, with_shared_words
from .response_state import ResponseState
from .wire import STEM_OF_CALL

__all__ = ["read_begin", "read_end", "read_error", "read_item_added", "read_item_done", "read_untyped"]

# Items that have one message, which begins with the item. So do calls, if they have a name.
_PART_OF_ITEM = {"code_interpreter_call": "code", "image_generation_call": "image"}


# -- items


def read_item_added(state: ResponseState, event: WireObject) -> Iterator[Event]:
    """An item begins."""
    wire = as_object(event.get("item"))
    if not wire:
        return
    id, type, output_index = as_text(wire.get("id")), as_text(wire.get("type")), as_count(event.get("output_index"))
    item = state.items.begin(id, type, output_index)
    if (changed := item.learn(wire)) and (size := state.held.add(changed)):
        yield MetadataHeld(None, size)
    if item.type in _PART_OF_ITEM:
        yield from item.open(_PART_OF_ITEM[item.type])
    elif item.type in CALLS and item.name:
        yield from item.open("call")
    elif item.type == "reasoning" and not item.parts.by_part:
        yield from item.open_early("summary" if state.has_summaries else "reasoning")
    if id and item.parts.by_part and item.type in STEM_OF_CALL:
        state.expect_deltas(item, id, STEM_OF_CALL[item.type], 0)


def read_item_done(state: ResponseState, event: WireObject) -> Iterator[Event]:
    """An item ends, with its final form; without one it ends as it was streamed."""
    wire, output_index = as_object(event.get("item")), as_count(event.get("output_index"))
    if wire:
        item = state.items.find_or_add(as_text(wire.get("id")), as_text(wire.get("type")), output_index)
        state.forget_targets(item)
        yield from finish_item(item, wire, "completed")
    elif (open_item := state.items.open_at(output_index or 0)) is not None:
        state.forget_targets(open_item)
        yield from open_item.close_all("completed")


# -- the response


def read_begin(state: ResponseState, event: WireObject, *, is_created: bool) -> Iterator[Event]:
    """The response begins. A stream that is resumed in its middle has no `response.created`."""
    return _begin(state, as_object(event.get("response")), is_created=is_created)


def read_end(state: ResponseState, event: WireObject, *, status: RunStatus) -> Iterator[Event]:
    """The response ends. `status` holds if the response has none."""
    return _end(state, as_object(event.get("response")), status)


def read_untyped(state: ResponseState, event: WireObject) -> Iterator[Event]:
    """An item without a type: an error, or a response that was not streamed."""
    if event.get("error") is not None:
        yield from read_error(state, event)
    elif event.get("object") == "response":
        yield from _begin(state, event, is_created=True)
        if as_text(event.get("status")) not in ("queued", "in_progress"):
            yield from _end(state, event, "completed")
    else:
        yield state.warn("no-type", "it has no type and was skipped", None)


def read_error(state: ResponseState, event: WireObject) -> Iterator[Event]:
    """The run fails. The error is at `error`, or is the event itself."""
    if state.has_ended:
        return
    state.is_complete = True
    error = event.get("error")
    if error is None:
        error = {key: value for key, value in event.items() if key not in ("type", "sequence_number")}
    yield RunDone(Run(status="failed", error=_error(error), raw=event))


def _begin(state: ResponseState, response: WireObject, *, is_created: bool) -> Iterator[Event]:
    if state.has_ended and is_created:
        state.reset()
    state.items.is_stored = response.get("store") is not False
    if not state.has_begun:
        state.has_begun = True
        state.has_summaries = as_object(response.get("reasoning")).get("summary") is not None
        yield RunCreated(_run(response, "in_progress"))


def _end(state: ResponseState, response: WireObject, status: RunStatus) -> Iterator[Event]:
    if state.has_ended:
        return
    state.has_begun = state.has_ended = state.is_complete = True
    status = STATUSES.get(as_text(response.get("status"))) or status
    yield from _finish_items(state, as_objects(response.get("output")), OPEN_MESSAGE_STATUS[status])
    usage = response.get("usage")
    if is_object(usage):
        if usage:
            yield usage_of(usage)
    elif usage is not None:
        yield state.warn("bad-usage", "its `usage` is not an object; it was skipped", None)
    if status == "completed" and any(item.type == "mcp_approval_request" for item in state.items.items):
        status = "requires_action"  # an MCP server waits for an answer, which the next request brings
    yield RunDone(_run(response, status))


def _finish_items(state: ResponseState, output: Sequence[WireObject], status: Status) -> Iterator[Event]:
    """The final output: what has not been emitted of its items, and the end of those that are not done."""
    items = state.items
    with_same_id = [items.with_id(as_text(wire.get("id"))) for wire in output]
    items_before, unmatched = [*items.items], None
    for wire, item in zip(output, with_same_id, strict=True):
        type = as_text(wire.get("type"))
        if item is None or item.type != type:
            # A server that changes the ids with every event changes them here, too.
            unmatched = unmatched or UnmatchedItems(items_before, with_same_id)
            item = unmatched.take(type, as_text(wire.get("call_id")))
        elif item.is_done and item.has_all_parts_of(wire):
            continue
        is_new = item is None
        if item is None:
            item = items.add(as_text(wire.get("id")), type, None)
        state.forget_targets(item)
        events = [*finish_item(item, wire, status)]
        yield from events
        if is_new and wire and not events:
            yield RawEvent(type, wire)
    for item in items.items:
        if not item.is_done:
            yield from item.close_all(status)
    state.targets.clear()


def _run(response: WireObject, status: RunStatus) -> Run:
    """The response as a run. Its `raw` is without the output, which is in the messages, and may be long."""
    error = response.get("error")
    raw = dict(response) if status == "in_progress" else with_shared_words(response)  # the last one stays
    raw.pop("output", None)
    return Run(
        id=as_text(response.get("id")),
        status=status,
        model=text_or_none(response.get("model")),
        error=_error(error) if error is not None or status == "failed" else None,
        finish_reason=text_or_none(as_object(response.get("incomplete_details")).get("reason")),
        created_at=as_seconds(response.get("created_at")),
        completed_at=as_seconds(response.get("completed_at")),
        raw=raw or None,
    )


def _error(value: Any) -> dict[str, Any]:
    return error_object(value, "the response failed")
