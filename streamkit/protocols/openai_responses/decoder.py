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
from functools import partial, reduce
from typing import Any, ClassVar

from ...events import Delta, Event, RawEvent, RunStatus, StreamWarning
from ...messages import AudioMessage, TextMessage
from .. import base
from ..values import WireObject, as_count, as_text
from .item_index import ItemIndex, ResponseState
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
from .shape import recognises
from .wire import PLAIN_DELTAS, SEARCHES, SHELL_OUTPUT, TEXT_STREAMS, TRANSIENT_ERRORS

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
    plain_item: ClassVar[Any] = reduce(lambda one, other: one | other, PLAIN_DELTAS.values())
    transient_errors = TRANSIENT_ERRORS
    searches = SEARCHES

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._response = ResponseState(ItemIndex(self.new_id))

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether the item's type is an event's of this API, or the item is a response with an output."""
        return recognises(item)

    def plain(self, item: Any) -> Delta | None:
        """Return the event of a delta that extends an open part. Raises a KeyError or a TypeError, which mean None, if the item
        with this `item_id` has no such part."""
        target: Any = self._response.items.by_id[item.item_id].target
        kind, output_index, part_index, message_id, make_event = target
        if item.__class__ is not kind or item.output_index != output_index or item.part_index != part_index:
            return None
        metadata = {"logprobs": item.logprobs} if item.logprobs else None
        event: Delta = make_event(message_id, item.delta, False, metadata, position=item.sequence_number)
        return event

    def feed(self, item: WireObject) -> Iterable[Event]:
        """Return the events of one event of the API, with its `sequence_number` as their position: a `RawEvent` if there are
        no others."""
        type, number = as_text(item.get("type")), as_count(item.get("sequence_number"))
        events = _READERS.get(type, _read_nothing)(self._response, item)
        self.complete = self._response.is_complete
        for event in events or (events := [RawEvent(type, item)]):
            event.position = number
            if isinstance(event, StreamWarning):
                event.index = self.index
        return events

    def sentinel(self, data: bytes) -> Iterable[Event]:
        """Return no events: `[DONE]` does not complete a response."""
        return ()

    def finish(self) -> Iterable[Event]:
        """Yield the end of the parts whose final text has arrived. The engine ends what is open as incomplete."""
        for item in self._response.items.items:
            if not item.is_done:
                yield from item.close_pending("completed")


def _read_nothing(state: ResponseState, event: WireObject) -> list[Event]:
    """Return no events, so that an event of an unknown type becomes a raw event."""
    return []


def _readers() -> dict[str, Reader]:
    """Return the function that reads each type of event. Types that are not listed are raw events."""
    readers: dict[str, Reader] = {
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
