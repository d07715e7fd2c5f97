"""OpenAI's Responses API, and the servers that imitate it.

Terminal rule: a response is complete with `response.completed`, `response.incomplete`, `response.failed`,
`response.cancelled`, `response.done` or a top-level `error`. `[DONE]` alone ends nothing: OpenAI does not send it, and
servers that do send it after the response's end. A response that was not streamed (`{"object": "response", …}`) is read
as a stream of one item.

Every part of an output item is a message; see `item`. Which item an event belongs to is in `item_index`. A run's
`finish_reason` is the `incomplete_details.reason` of the response, if it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar

from ...events import Delta, Event, RawEvent, RunStatus, StreamWarning
from ...messages import AudioMessage, TextMessage
from ...messages.json_text import NOT_JSON, has_surrogates
from ...messages.sdk_objects import fields_of
from ...messages.typed_json import decoder
from .. import base
from ..framing import Frames, as_frame
from ..values import LARGEST_COUNT, WireObject
from .fields import EventFields, as_event_fields, read_event
from .item_index import ItemIndex
from .part_events import (
    Reader,
    content_part_reader,
    delta_reader,
    final_text_reader,
    read_annotation_added,
    read_console,
    read_partial_image,
    read_patch_delta,
    read_speech,
)
from .response_events import read_begin, read_end, read_error, read_item_added, read_item_done, read_untyped
from .response_state import NO_TARGET, ResponseState
from .shape import recognises
from .wire import SHELL_OUTPUT, TEXT_STREAMS, any_delta_decoder, read_any_delta

__all__ = ["Decoder"]

_FINAL_EVENTS: dict[str, RunStatus] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
    "response.done": "completed",
}
_NO_DELTA = (TypeError, *NOT_JSON)  # what decoding a frame raises if it is no JSON, or no delta
_decode = decoder().decode  # of frames: what is nested too deep in them is marked, so that it is no JSON
_INDEX_KEYS = {  # of the events that begin and end content parts
    "response.content_part": "content_index",
    "response.reasoning_part": "content_index",
    "response.reasoning_summary_part": "summary_index",
}
# What is read of a delta in its common form, but for the index of its part.
_DELTA_FIELDS = {"type", "item_id", "output_index", "sequence_number", "delta", "logprobs"}


class Decoder(base.Decoder):
    """Decodes a Responses stream, or a response that was not streamed."""

    name = "openai_responses"
    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset({b"error"})
    # The class of the client's objects for deltas, which declares all that is read: what they have besides does not matter.
    _delta_class: type[Any] | None = None

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._response = ResponseState(self.new_id, ItemIndex(self.new_id))

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether the item's type is an event's of this API, or the item is a response with an output."""
        return recognises(item)

    # -- the fast path: deltas of parts that are open

    def feed_frames(self, frames: Frames) -> list[Event]:
        """The events of frames. A delta of an open part in its common form is decoded by its typed struct alone.

        Each frame is tried as a delta of the part that received the latest delta, then of the other open parts. If it is
        neither, it takes the tolerant path; after that no part is the latest, because the event may have ended any of them.
        """
        self.frames = frames
        item_id, decode, index, output_index, message_id, make_event = self._response.latest_target
        if not message_id and len(frames) == 1:
            return self._feed_other(frames[0])
        start = self.index  # changed so that `start + len(events)` is the number of the current frame
        events: list[Event] = []
        for data in frames:
            try:
                delta = decode(data)
                if delta.item_id == item_id and delta.index == index and delta.output_index == output_index:
                    events.append(make_event(message_id, delta.delta, position=delta.sequence_number, raw_item=data))
                    continue
            except _NO_DELTA:
                pass  # another event, or a frame with an SSE id, which is a tuple
            if len(frames) == 1 or self.exhausted:
                return self._feed_other(data)
            self.index = start + len(events)
            decoded = self._feed_other(data)
            events += decoded
            if self.exhausted:
                self.frames = frames[
                    : frames.index(data) + 1
                ]  # it is there once: nothing before it had ended the source
                return events
            start += 1 - len(decoded)
            item_id, decode, index, output_index, message_id, make_event = self._response.latest_target
        self.index = start + len(events)
        return events

    def _switch_target(self, data: Any) -> Event | None:
        """The event of a delta of another open part, which becomes the latest. None if the frame is anything else."""
        response = self._response
        try:
            delta = any_delta_decoder()(data)
        except _NO_DELTA:
            return None
        target = response.targets.get(delta.item_id)
        if target is None or not target.takes(delta):
            return None
        response.latest_target = target.common_fields()
        metadata = {"logprobs": delta.logprobs} if delta.logprobs else None
        event: Event = target.event(
            target.message_id, delta.delta, metadata=metadata, position=delta.sequence_number, raw_item=data
        )
        return event

    def plain_event(self, item: Any) -> Event | None:
        """The event of a delta of an open part in its common form. Most of them are read by a few look-ups."""
        wire: dict[str, Any] = item
        if type(item) is not dict:  # of an object this is faster than its `__class__`
            if type(item) is self._delta_class:
                wire = item.__dict__
            else:
                wire = fields_of(item)
                if item.__dict__.keys() >= _DELTA_FIELDS:
                    self._delta_class = item.__class__
        target = self._response.targets[wire.get("item_id")]
        text: Any = wire["delta"]
        logprobs: Any = wire.get("logprobs")
        try:
            position: Any = wire["sequence_number"]
            if (
                wire["type"] == target.type
                and wire["output_index"] is target.output_index  # which holds of small numbers
                and wire.get(target.index_key) is target.part_index
                and text.__class__ is str
                and text
                and (text.isascii() or not has_surrogates(text))
                and position.__class__ is int
                and 0 <= position <= LARGEST_COUNT
                and (logprobs is None or (logprobs.__class__ is list and not logprobs))
            ):
                event: Event = target.event(target.message_id, text, position=position, raw_item=item)
                return event
        except KeyError:
            pass  # some servers leave fields out
        return self._typed_event(item)

    def _typed_event(self, item: Any) -> Event | None:
        """The event of a delta of an open part in any common form."""
        delta = read_any_delta(item)
        target = self._response.targets[delta.item_id]
        if not target.takes(delta):
            return None
        event: Delta = target.event(target.message_id, delta.delta, position=delta.sequence_number, raw_item=item)
        return None if has_surrogates(event.value) else event

    # -- every other event

    def feed(self, item: WireObject) -> Iterable[Event]:
        """The events that one event of the API becomes, with its `sequence_number` as their position. If it becomes none, it is
        a raw event."""
        return self._feed_other(item, item)

    def _feed_other(self, data: Any, item: Any = None) -> list[Event]:
        """The events of a frame that is no delta of the latest part.

        Args:
            data: the frame, or the item if it is parsed already.
            item: the parsed item, of which the caller advances `index`; None if it has to be decoded.
        """
        response = self._response
        index = self.index
        if item is None:
            if self.exhausted:
                return []
            if response.targets and b'.delta"' in data and (event := self._switch_target(data)) is not None:
                self.index = index + 1
                return [event]
            try:
                item = _decode(data)
                fields = as_event_fields(item)
            except _NO_DELTA:  # a frame with an SSE id or name, or data that is not quite JSON, or has wrong types
                return self._feed_tolerantly(data)
            if self.foreign_decoder is not None and self.foreign_decoder(item) is not None:
                return self._feed_tolerantly(data)
            self.index = index + 1
        else:
            fields = read_event(item)
        if response.targets:
            # The event may begin or end any part, and that at the output_index of one whose deltas have no id.
            response.latest_target = NO_TARGET
            response.targets.pop(None, None)
        position = fields.sequence_number
        try:
            events: list[Any] = _READERS.get(fields.type, _read_nothing)(response, fields, item)
        except Exception as error:
            events, position = [self.fault(error, item)], None
        if not events:
            return [RawEvent(fields.type or "", item, position=position, raw_item=data, item_index=index)]
        self.complete = response.is_complete
        for event in events:
            event.position = position
            event.raw_item = data
            event.item_index = index
            if event.__class__ is StreamWarning:
                event.index = index
        return events

    def _feed_tolerantly(self, data: Any) -> list[Event]:
        """The events of a frame of any kind, by the tolerant path."""
        events = self.feed_frame(*as_frame(data))
        if self.exhausted:
            self._response.forget_all_targets()
        return events

    def sentinel(self, data: bytes) -> Iterable[Event]:
        """Nothing: `[DONE]` does not complete a response."""
        return ()

    def finish(self) -> Iterable[Event]:
        """The end of the parts whose final text has arrived. The engine ends what is open as incomplete."""
        for item in self._response.items.items:
            if not item.is_done:
                yield from item.close_pending("completed")


def _read_nothing(state: ResponseState, fields: EventFields, event: WireObject) -> list[Event]:
    """Nothing: for an event of a type that means nothing here."""
    return []


def _readers() -> dict[str | None, Reader]:
    """What reads each type of event. Types that are not listed are raw events."""
    readers: dict[str | None, Reader] = {
        None: read_untyped,
        "": read_untyped,
        "error": read_error,
        "response.error": read_error,
        "response.created": partial(read_begin, is_created=True),
        "response.queued": partial(read_begin, is_created=False),
        "response.in_progress": partial(read_begin, is_created=False),
        "response.output_item.added": read_item_added,
        "response.output_item.done": read_item_done,
        "response.output_text.annotation.added": read_annotation_added,
        "response.image_generation_call.partial_image": read_partial_image,
    }
    for type, status in _FINAL_EVENTS.items():
        readers[type] = partial(read_end, status=status)
    for stem in TEXT_STREAMS:
        readers[f"{stem}.delta"] = delta_reader(stem)
        readers[f"{stem}.done"] = final_text_reader(stem)
    for stem, index_key in _INDEX_KEYS.items():
        readers[f"{stem}.added"] = content_part_reader(index_key, is_end=False)
        readers[f"{stem}.done"] = content_part_reader(index_key, is_end=True)
    for suffix, is_end in (("delta", False), ("done", True)):
        patch = f"response.apply_patch_call_operation_diff.{suffix}"
        readers[patch] = partial(read_patch_delta, is_end=is_end)
        readers[f"{SHELL_OUTPUT}.{suffix}"] = partial(read_console, is_end=is_end)
        for stem, message_class in (("response.audio", AudioMessage), ("response.audio.transcript", TextMessage)):
            readers[f"{stem}.{suffix}"] = partial(read_speech, message_class=message_class, is_end=is_end)
    return readers


_READERS = _readers()
