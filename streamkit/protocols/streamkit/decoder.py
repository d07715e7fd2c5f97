"""Decodes canonical events from their wire form.

Terminal rule: `stream_end`. A `stream_exception` before it fails the reading stream with the same error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ...core.split_text import SplitDelta, whole_event
from ...events import EVENTS, Created, Delta, Event, StreamEnd
from ...messages.json_text import NOT_JSON, has_surrogates, is_too_deep
from .. import base
from ..codec import delta_decoder, event_from_dict, snapshot_from
from ..framing import Frames
from ..values import WireObject, as_object, as_text

__all__ = ["Decoder"]


class Decoder(base.Decoder):
    """Canonical events, as objects of this process or in their wire form."""

    name = "streamkit"

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether it has the `type` of an event, and a key that no other protocol has with this type."""
        name = item.get("type")
        if name == "snapshot":
            return "dropped" in item and "events" in item
        kind = EVENTS.get(name) if isinstance(name, str) else None
        if kind is None:
            return False
        wanted = "message_id" if issubclass(kind, Delta) else "message" if issubclass(kind, Created) else None
        return wanted in item if wanted else kind.type != "usage" or "input_tokens" in item

    def feed_frames(self, frames: Frames) -> list[Event]:
        """The events of frames. A delta is decoded to its event at once, any other item by `feed_frame`."""
        events: list[Event] = []
        if self.exhausted:
            return events
        decode, index = delta_decoder(), self.index
        for frame in frames:
            id, name, data = (b"", b"", frame) if isinstance(frame, bytes) else frame
            try:
                event = decode(data)
            except NOT_JSON:
                event = None
            if event is None or (event.metadata and is_too_deep(data)):
                self.index = index
                events += self.feed_frame(id, name, data)
                if self.exhausted:
                    return events
            else:
                event.raw_item, event.item_index = data, index
                if id:
                    event.position = id.decode("utf-8", "replace")
                events.append(event)
            index += 1
        self.index = index
        return events

    def feed(self, item: WireObject) -> Iterable[Event]:
        """The event of its wire form."""
        try:
            event = snapshot_from(item) if item.get("type") == "snapshot" else event_from_dict(item)
        except ValueError as error:
            kind = as_text(item.get("type"))
            code = "malformed-event" if kind in EVENTS else "unknown-event"
            yield self.warn(code, f"it is not a canonical event and was skipped: {error}", kind)
            return
        if isinstance(event, StreamEnd):
            self.complete = True
        yield event

    def feed_item(self, item: Any) -> list[Event]:
        return self.feed_items((item,))

    def feed_items(self, items: Iterable[Any]) -> list[Event]:
        """Copies of events of another stream, as each stream has snapshots of its own; wire forms as by `feed`."""
        if type(items) is base.OwnEvents:
            self.index += len(items)
            if items and type(items[-1]) is StreamEnd:
                self.complete = True
            return items
        events: list[Event] = []
        for item in items:
            if isinstance(item, Event):
                if isinstance(item, StreamEnd):
                    self.complete = True
                event = msgspec.structs.replace(item, item_index=self.index)
                if not isinstance(event, Delta):
                    event = whole_event(event)
                elif has_surrogates(event.value):
                    event = SplitDelta(event, event.value, position=event.position, item_index=self.index)
                events.append(event)
                self.index += 1
            else:
                decoded = super().feed_items([item])
                for event in decoded:
                    event.position = as_object(item).get("cursor")
                events += decoded
        return events
