"""The canonical events themselves: what relays, recordings and chained streams carry.

Terminal rule: `stream_end`. A `stream_exception` before it fails the reading stream with the same error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ...events import EVENTS, Created, Delta, Event, StreamEnd
from .. import base
from ..codec import event_from_dict
from ..values import is_object

__all__ = ["Decoder"]


class Decoder(base.Decoder):
    """Canonical events, as objects or as their wire form."""

    name = "streamkit"

    @classmethod
    def recognises(cls, item: Mapping[str, Any]) -> bool:
        name = item.get("type")
        kind = EVENTS.get(name) if isinstance(name, str) else None
        if kind is None:
            return False
        wanted = "message_id" if issubclass(kind, Delta) else "message" if issubclass(kind, Created) else None
        return wanted in item if wanted else kind.type != "usage" or "input_tokens" in item

    def feed(self, item: Mapping[str, Any]) -> Iterable[Event]:
        try:
            event = event_from_dict(item)
        except ValueError as error:
            kind = item.get("type")
            code = "malformed-event" if kind in EVENTS else "unknown-event"
            yield self.warn(code, f"it is no canonical event and was skipped: {error}", kind)
            return
        if isinstance(event, StreamEnd):
            self.complete = True
        yield event

    def feed_items(self, items: Iterable[Any]) -> list[Event]:
        """Events of another stream are copied: each stream has snapshots of its own."""
        events: list[Event] = []
        for item in items:
            if isinstance(item, Event):
                if isinstance(item, StreamEnd):
                    self.complete = True
                events.append(msgspec.structs.replace(item, item_index=self.index))
                self.index += 1
            else:
                position = item.get("cursor") if is_object(item) else None
                told = super().feed_items([item])
                for event in told:
                    event.position = position
                events += told
        return events
