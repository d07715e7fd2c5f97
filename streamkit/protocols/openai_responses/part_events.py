"""Reads the events about one part of an item: its beginning, its deltas, its final text.

A part is not done with its final text, because only its item states how it ended. The code of a code interpreter is: it
runs before its item ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...events import AnnotationAdded, ConsoleDelta, Event, MessageDone, MetadataHeld
from ...messages import ImageMessage, Message, TextMessage, ToolCallMessage
from ..values import WireObject, as_count, as_list, as_object, as_text, json_text, text_or_json
from .final_items import append_console, end_patch, hold_console
from .item_types import CONTENT_PARTS, ITEM_OF_PART, PARTS
from .response_state import ResponseState
from .wire import STEM_OF_PART, TEXT_STREAMS, ShellOutput, read_annotation, read_part

__all__ = [
    "read_annotation_added",
    "read_console",
    "read_content_part",
    "read_delta",
    "read_final_text",
    "read_partial_image",
    "read_patch_delta",
    "read_speech",
]


def read_delta(state: ResponseState, event: WireObject, *, stem: str) -> Iterator[Event]:
    """A delta of a part. From here on the fast path takes the part's deltas that are in their common form."""
    stream = TEXT_STREAMS[stem]
    value = event.get("delta")
    if not isinstance(value, str):
        if value is not None:
            yield state.warn("bad-delta", "its delta is not text and was skipped", event.get("type"))
        return
    if not value:
        return
    item = state.items.of_event(event, stream.item)
    if stream.part == "call" and not item.name:
        item.hold_arguments(value)
        yield MetadataHeld(None, len(value))
        return
    index = as_count(event.get(stream.index_key)) or 0
    yield from item.open(stream.part, index)
    logprobs = as_list(event.get("logprobs"))
    # Any: each class of messages has another class of delta events.
    delta_event: Any = PARTS[stream.part].message.delta_event
    message_id = item.parts.id_for(stream.part, index)
    yield delta_event(message_id, value, False, {"logprobs": list(logprobs)} if logprobs else None)
    state.expect_deltas(item, as_text(event.get("item_id")), stem, index)


def read_patch_delta(state: ResponseState, event: WireObject, *, is_end: bool) -> Iterator[Event]:
    """A piece of a patch, or its end, as a piece of the JSON text of its operation, in which the patch comes last."""
    item = state.items.of_event(event, "apply_patch_call")
    piece = as_text(event.get("delta"))
    if is_end:
        yield from end_patch(item)
    elif piece and not item.is_done:
        yield from item.open("call")
        yield ToolCallMessage.delta_event(item.parts.id_for("call", 0), item.begin_patch() + json_text(piece)[1:-1])


def read_final_text(state: ResponseState, event: WireObject, *, stem: str) -> Iterator[Event]:
    """The final text of a part."""
    stream = TEXT_STREAMS[stem]
    text = text_or_json(event.get(stream.text_key))
    if not text:
        return
    item = state.items.of_event(event, stream.item)
    item.name = item.name or as_text(event.get("name"))
    index = as_count(event.get(stream.index_key)) or 0
    if stream.part == "code":
        state.forget_targets(item)
        yield from item.close(stream.part, index, text, "completed")
    else:
        _, fields = read_part({"logprobs": event.get("logprobs")})
        item.hold(stream.part, index, text, fields)


def read_content_part(state: ResponseState, event: WireObject, *, index_key: str, is_end: bool) -> Iterator[Event]:
    """The beginning or the final form of a content part. Where one begins, the pending ones are done."""
    part = as_object(event.get("part"))
    kind = CONTENT_PARTS.get(as_text(part.get("type")))
    if kind is None:
        return
    item = state.items.of_event(event, ITEM_OF_PART[kind])
    index = as_count(event.get(index_key)) or 0
    if is_end:
        text, fields = read_part(part)
        item.hold(kind, index, text, fields)
    else:
        yield from item.close_pending("completed")
        yield from item.open(kind, index)
        state.expect_deltas(item, as_text(event.get("item_id")), STEM_OF_PART[kind], index)


def read_annotation_added(state: ResponseState, event: WireObject) -> Iterator[Event]:
    """A citation in a text."""
    annotation = read_annotation(event.get("annotation"))
    if annotation is None:
        return
    item = state.items.of_event(event, "message")
    index = as_count(event.get("content_index")) or 0
    yield from item.open("text", index)
    yield AnnotationAdded(item.parts.id_for("text", index), annotation)


def read_partial_image(state: ResponseState, event: WireObject) -> Iterator[Event]:
    """A preview of an image, which replaces the one before it."""
    image = as_text(event.get("partial_image_b64"))
    if not image:
        return
    item = state.items.of_event(event, "image_generation_call")
    if format := as_text(event.get("output_format")):
        item.metadata["output_format"] = format
    yield from item.open("image")
    item.has_preview = True
    metadata = {"partial_image_index": as_count(event.get("partial_image_index")) or 0}
    yield ImageMessage.delta_event(item.parts.id_for("image", 0), image, True, metadata)


def read_console(state: ResponseState, event: WireObject, *, is_end: bool) -> Iterator[Event]:
    """What a shell command printed, or the end of its console."""
    index = as_count(event.get("command_index")) or 0
    if not is_end:
        if output := as_object(event.get("delta")):
            item = state.items.of_event(event, "shell_call_output")
            yield from append_console(item, index, output)
            state.expect_outputs(item, as_text(event.get("item_id")), index, _console_delta)
    elif outputs := as_list(event.get("output")):
        yield from hold_console(state.items.of_event(event, "shell_call_output"), index, outputs)


def _console_delta(
    message_id: str, output: ShellOutput, *, position: int | None, raw_item: Any, metadata: None = None
) -> Event:
    """The event of a delta of a console in its common form. It has the name of its stream for `metadata`."""
    stream, text = ("stdout", output.stdout) if output.stdout else ("stderr", output.stderr)
    return ConsoleDelta(message_id, text or "", False, {"stream": stream}, position=position, raw_item=raw_item)


def read_speech(
    state: ResponseState, event: WireObject, *, message_class: type[Message], is_end: bool
) -> Iterator[Event]:
    """The response's speech, or its transcript. They belong to no item, so each is one message at a time."""
    metadata = {"audio_transcript": True} if message_class is TextMessage else {}
    id = state.speech_ids.get(message_class)
    if is_end:
        if id is not None:
            del state.speech_ids[message_class]
            yield MessageDone(message_class(id, metadata=metadata))
        return
    value = as_text(event.get("delta"))
    if not value:
        return
    if id is None:
        id = state.new_id()
        state.speech_ids = {**state.speech_ids, message_class: id}
        yield message_class.created_event(message_class(id, metadata=metadata))
    yield message_class.delta_event(id, value)
