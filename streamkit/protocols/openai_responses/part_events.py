"""Reads the events about one part of an item: its beginning, its deltas, its final text.

A part is not done with its final text, because only its item states how it ended. The code of a code interpreter is: it
runs before its item ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...events import AnnotationAdded, Event, MessageDone, MetadataHeld
from ...messages import ImageMessage, Message, TextMessage, ToolCallMessage
from ..values import WireObject, as_count, as_list, as_object, as_text, json_text, text_or_json
from .final_items import append_console, end_patch, hold_console
from .item_index import ResponseState
from .item_types import CONTENT_PARTS, PARTS
from .wire import (
    STEMS,
    TEXT_STREAMS,
    logprobs_of,
    read_annotation,
    read_part,
    warning,
)

__all__ = [
    "Reader",
    "content_part_reader",
    "delta_reader",
    "final_text_reader",
    "read_annotation_added",
    "read_console",
    "read_partial_image",
    "read_patch_delta",
    "read_speech",
]

Reader = Callable[[ResponseState, WireObject], list[Event]]
"""A function that reads one type of event. It takes the state and the event."""


def _index_of(event: WireObject, key: str) -> int:
    """Return the part's index that an event has at this key; 0 if it has none, or if the key is ""."""
    return (as_count(event.get(key)) or 0) if key else 0


def delta_reader(stem: str) -> Reader:
    """Return a reader of deltas of a part. Once it has read one, those of the part that have the common form are
    plain."""
    part, item_type, index_key, _ = TEXT_STREAMS[stem]
    # Any: each class of messages has another class of delta events.
    delta_event: Any = PARTS[part].message.delta_event

    def read(state: ResponseState, event: WireObject) -> list[Event]:
        value = event.get("delta")
        if not isinstance(value, str):
            kind = event.get("type")
            return [] if value is None else [warning("bad-delta", "its delta is not text and was skipped", kind)]
        if not value:
            return []
        item = state.items.of_event(event, item_type)
        if part == "call" and item.is_withheld:
            item.pending_arguments.append(value)
            return [MetadataHeld(None, len(value))]
        index = _index_of(event, index_key)
        events = item.open(part, index)
        logprobs = as_list(event.get("logprobs"))
        message_id = item.parts.id_for(part, index)
        events.append(delta_event(message_id, value, False, {"logprobs": list(logprobs)} if logprobs else None))
        state.items.expect_deltas(item, stem, index)
        return events

    return read


def read_patch_delta(state: ResponseState, event: WireObject, *, is_end: bool) -> list[Event]:
    """Return the events of a piece of a patch, or its end, as a piece of the JSON text of its operation, in which the
    patch comes last."""
    item = state.items.of_event(event, "apply_patch_call")
    piece = as_text(event.get("delta"))
    if is_end:
        return [*end_patch(item)]
    if not piece or item.is_done:
        return []
    events = item.open("call")
    delta = item.begin_patch() + json_text(piece)[1:-1]
    return [*events, ToolCallMessage.delta_event(item.parts.id_for("call", 0), delta)]


def final_text_reader(stem: str) -> Reader:
    """Return a reader of the final text of a part."""
    part, item_type, index_key, text_key = TEXT_STREAMS[stem]

    def read(state: ResponseState, event: WireObject) -> list[Event]:
        text = text_or_json(event.get(text_key))
        if not text:
            return []
        item = state.items.of_event(event, item_type)
        if part == "call" and not item.name:
            item.name = as_text(event.get("name"))
        index = _index_of(event, index_key)
        if part == "code":
            return [*item.close(part, index, text, "completed")]
        item.hold(part, index, text, (), logprobs_of(event.get("logprobs")))
        return []

    return read


def content_part_reader(index_key: str, *, is_end: bool) -> Reader:
    """Return a reader of the beginning or of the final form of a content part. Where one begins, those that are pending
    are done."""

    def read(state: ResponseState, event: WireObject) -> list[Event]:
        part: Any = event.get("part")
        try:
            kind = CONTENT_PARTS[part["type"]]
        except (KeyError, TypeError):  # it has another type, or is not an object
            return []
        item = state.items.of_event(event, PARTS[kind].item)
        index = _index_of(event, index_key)
        if is_end:
            item.hold(kind, index, *read_part(part))
            return []
        events = item.close_pending("completed") + item.open(kind, index)
        state.items.expect_deltas(item, STEMS[kind], index)
        return events

    return read


def read_annotation_added(state: ResponseState, event: WireObject) -> list[Event]:
    """Return the events of a citation in a text."""
    annotation = read_annotation(event.get("annotation"))
    if annotation is None:
        return []
    item = state.items.of_event(event, "message")
    index = _index_of(event, "content_index")
    return [*item.open("text", index), AnnotationAdded(item.parts.id_for("text", index), annotation)]


def read_partial_image(state: ResponseState, event: WireObject) -> list[Event]:
    """Return the events of a preview of an image, which replaces the one before it."""
    image = as_text(event.get("partial_image_b64"))
    if not image:
        return []
    item = state.items.of_event(event, "image_generation_call")
    if format := as_text(event.get("output_format")):
        item.metadata["output_format"] = format
    events = item.open("image")
    item.has_preview = True
    metadata = {"partial_image_index": as_count(event.get("partial_image_index")) or 0}
    return [*events, ImageMessage.delta_event(item.parts.id_for("image", 0), image, True, metadata)]


def read_console(state: ResponseState, event: WireObject, *, is_end: bool) -> list[Event]:
    """Return what a shell command printed, or the end of its console."""
    index = _index_of(event, "command_index")
    events: list[Event] = []
    if not is_end:
        if output := as_object(event.get("delta")):
            events += append_console(state.items.of_event(event, "shell_call_output"), index, output)
    elif outputs := as_list(event.get("output")):
        events += hold_console(state.items.of_event(event, "shell_call_output"), index, outputs)
    return events


def read_speech(state: ResponseState, event: WireObject, *, message_class: type[Message], is_end: bool) -> list[Event]:
    """Return the response's speech, or its transcript. They belong to no item, so each is one message at a time."""
    metadata = {"audio_transcript": True} if message_class is TextMessage else {}
    id = state.speech_ids.get(message_class)
    if is_end:
        if id is None:
            return []
        del state.speech_ids[message_class]
        return [MessageDone(message_class(id, metadata=metadata))]
    value = as_text(event.get("delta"))
    if not value:
        return []
    events: list[Event] = []
    if id is None:
        id = state.items.made_id()
        state.speech_ids[message_class] = id
        events.append(message_class.created_event(message_class(id, metadata=metadata)))
    events.append(message_class.delta_event(id, value))
    return events
