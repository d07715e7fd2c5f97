"""OpenAI's Responses API, and the servers that imitate it.

Terminal rule: a response is complete with `response.completed`, `response.incomplete`, `response.failed`,
`response.cancelled`, `response.done` or a top-level `error`. `[DONE]` alone ends nothing: OpenAI does not send it, and
servers that do send it after the response's end. A response that was not streamed (`{"object": "response", …}`) is read
as a stream of one item.

Every part of an output item is a message; see `item`. Which item an event belongs to is in `item_index`. A run's
`finish_reason` is the `incomplete_details.reason` of the response, if it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, ClassVar

from ...events import Delta, Event, RawEvent, RunStatus
from ...messages import AudioMessage, TextMessage
from ...messages.json_text import NOT_JSON, has_surrogates
from ...messages.sdk_objects import fields_of
from .. import base
from ..framing import Frames
from ..values import LARGEST_COUNT, WireObject, as_count, as_text
from .part_events import (
    read_annotation_added,
    read_console,
    read_content_part,
    read_delta,
    read_final_text,
    read_partial_image,
    read_patch_delta,
    read_speech,
)
from .response_events import read_begin, read_end, read_error, read_item_added, read_item_done, read_untyped
from .response_state import NO_TARGET, ResponseState
from .shape import recognises
from .wire import SHELL_OUTPUT, TEXT_STREAMS, decode_any_delta, read_any_delta

__all__ = ["Decoder"]

_FINAL_EVENTS: dict[str, RunStatus] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
    "response.done": "completed",
}
_INDEX_KEYS = {  # of the events that begin and end content parts
    "response.content_part": "content_index",
    "response.reasoning_part": "content_index",
    "response.reasoning_summary_part": "summary_index",
}


class Decoder(base.Decoder):
    """Decodes a Responses stream, or a response that was not streamed."""

    name = "openai_responses"
    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset({b"error"})

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._response = ResponseState(self.new_id, self.warn)

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether the item's type is an event's of this API, or the item is a response with an output."""
        return recognises(item)

    # -- the fast path: deltas of parts that are open

    def feed_frames(self, frames: Frames) -> list[Event]:
        """The events of frames. A delta of an open part in its common form is decoded by its typed struct alone.

        A frame is tried on the part that received the latest delta, then on the other open parts, and else takes the
        tolerant path. After that no part is the latest, because the event may have ended any of them.
        """
        self._frames = frames
        self._first = start = self.index
        item_id, decode, index, output_index, message_id, make_event = self._response.latest_target
        events: list[Event] = []
        surplus = 0  # events so far, less the frames that they came from; a delta gives one event
        for data in frames:
            try:
                delta = decode(data)
                if delta.item_id == item_id and delta.index == index and delta.output_index == output_index:
                    events.append(make_event(message_id, delta.delta, position=delta.sequence_number, raw_item=data))
                    continue
            except (TypeError, *NOT_JSON):
                pass  # another event, or a frame with an SSE id, which is a tuple
            if self.exhausted:
                return events
            event = self._switch_target(data) if self._response.targets else None
            if event is not None:
                events.append(event)
            else:
                self.index = start + len(events) - surplus
                decoded = self.feed_frame(b"", b"", data) if isinstance(data, bytes) else self.feed_frame(*data)
                events += decoded
                surplus += len(decoded) - 1
                self._response.latest_target = NO_TARGET
                if self.exhausted:
                    self._response.targets.clear()
            item_id, decode, index, output_index, message_id, make_event = self._response.latest_target
        self.index = start + len(frames)
        return events

    def _switch_target(self, data: Any) -> Event | None:
        """The event of a delta of another open part, which is the latest from here on; None if it does more."""
        response = self._response
        if b'.delta"' not in data:
            return None
        try:
            delta = decode_any_delta(data)
        except (TypeError, *NOT_JSON):
            return None
        target = response.targets.get(delta.item_id)
        if target is None or not target.takes(delta):
            return None
        response.latest_target = target.row()
        metadata = {"logprobs": delta.logprobs} if delta.logprobs else None
        event: Event = target.event(
            target.message_id, delta.delta, metadata=metadata, position=delta.sequence_number, raw_item=data
        )
        return event

    def plain_event(self, item: Any) -> Event | None:
        """The event of a delta of an open part in its common form. Most of them are read by a few look-ups."""
        wire: dict[str, Any] = item if item.__class__ is dict else fields_of(item)
        target = self._response.targets[wire.get("item_id")]
        text: Any = wire["delta"]
        position: Any = wire.get("sequence_number")
        logprobs: Any = wire.get("logprobs")
        if (
            wire["type"] == target.type
            and wire.get(target.index_key) is target.part_index  # which holds of small numbers
            and wire.get("output_index") is target.output_index
            and text.__class__ is str
            and text
            and (text.isascii() or not has_surrogates(text))
            and position.__class__ is int
            and 0 <= position <= LARGEST_COUNT
            and (logprobs is None or (logprobs.__class__ is list and not logprobs))
        ):
            event: Event = target.event(target.message_id, text, position=position, raw_item=item)
            return event
        return self._typed_event(item)

    def _typed_event(self, item: Any) -> Event | None:
        """The event of a delta of an open part in any common form."""
        delta = read_any_delta(item)
        target = self._response.targets[delta.item_id]
        if not target.takes(delta):
            return None
        event: Delta = target.event(target.message_id, delta.delta, position=delta.sequence_number, raw_item=item)
        return None if has_surrogates(event.value) else event

    # -- the tolerant path

    def feed(self, item: WireObject) -> Iterable[Event]:
        """The events of one event of the API, with its `sequence_number` as their position. One that gives none is a
        raw event."""
        response, type = self._response, as_text(item.get("type"))
        response.targets.pop(None, None)  # the item may begin or end one at the same output_index
        read = _READERS.get(type)
        events = [] if read is None else [*read(response, item)]
        self.complete = response.is_complete
        if not events:
            events.append(RawEvent(type, item))
        position = as_count(item.get("sequence_number"))
        if position is not None:
            for event in events:
                event.position = position
        return events

    def sentinel(self, data: bytes) -> Iterable[Event]:
        """Nothing: `[DONE]` does not complete a response."""
        return ()

    def finish(self) -> Iterable[Event]:
        """The end of the parts whose final text has arrived. The engine ends what is open as incomplete."""
        for item in self._response.items.items:
            if not item.is_done:
                yield from item.close_pending("completed")


_Reader = Callable[[ResponseState, WireObject], Iterator[Event]]


def _readers() -> dict[str, _Reader]:
    """What reads each type of event. Types that are not listed are raw events."""
    readers: dict[str, _Reader] = {
        "": read_untyped,
        "error": read_error,
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
        readers[f"{stem}.delta"] = partial(read_delta, stem=stem)
        readers[f"{stem}.done"] = partial(read_final_text, stem=stem)
    for stem, index_key in _INDEX_KEYS.items():
        readers[f"{stem}.added"] = partial(read_content_part, index_key=index_key, is_end=False)
        readers[f"{stem}.done"] = partial(read_content_part, index_key=index_key, is_end=True)
    for suffix, is_end in (("delta", False), ("done", True)):
        patch = f"response.apply_patch_call_operation_diff.{suffix}"
        readers[patch] = partial(read_patch_delta, is_end=is_end)
        readers[f"{SHELL_OUTPUT}.{suffix}"] = partial(read_console, is_end=is_end)
        for stem, message_class in (("response.audio", AudioMessage), ("response.audio.transcript", TextMessage)):
            readers[f"{stem}.{suffix}"] = partial(read_speech, message_class=message_class, is_end=is_end)
    return readers


_READERS = _readers()
