"""Decodes canonical events from their wire form.

Terminal rule: `stream_end`. A `stream_exception` before it fails the reading stream with the same error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import msgspec

from ...core.split_text import SplitDelta, whole_event
from ...events import EVENTS, Delta, Event, StreamEnd
from ...messages.json_text import has_surrogates, is_nested_too_deep
from .. import base
from ..codec import delta_decoder, event_from_dict, snapshot_from
from ..plain_case import NO_PLAIN_ITEM
from ..values import WireObject, as_text
from .shape import recognises

__all__ = ["Decoder"]


class Decoder(base.Decoder):
    """Canonical events, as objects of this process or in their wire form."""

    name = "streamkit"
    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset()

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        decode = delta_decoder()  # of the classes of deltas that are declared now
        self._plain_readers = NO_PLAIN_ITEM._replace(text=decode, named={b"": decode})

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether it has the `type` of an event, and a key that no other protocol has with this type."""
        return recognises(item)

    def plain(self, item: Delta) -> Delta | None:
        """Return the delta, which its text was decoded to."""
        return None if item.metadata and is_nested_too_deep([item.metadata]) else item

    def _plain_frame(self, id: bytes, name: bytes, data: bytes) -> Delta | None:
        return super()._plain_frame(id, b"", data)  # the name repeats the item's type

    def feed(self, item: WireObject) -> Iterable[Event]:
        """Yield the event of its wire form."""
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

    def feed_items(self, items: Sequence[Any]) -> list[Event]:
        """Return the events of items. Events that were made for this stream alone are its events."""
        if type(items) is not base.OwnEvents:
            return super().feed_items(items)
        self.index += len(items)
        if items and type(items[-1]) is StreamEnd:
            self.complete = True
        return items

    def feed_other_item(self, item: Any) -> list[Event]:
        """Return the events of a copy of an event of another stream, as each stream has snapshots of its own; a wire
        form as by `feed`."""
        if not isinstance(item, Event):
            return super().feed_other_item(item)
        if isinstance(item, StreamEnd):
            self.complete = True
        event = msgspec.structs.replace(item, item_index=self.index)
        self.index += 1
        if not isinstance(event, Delta):
            return [whole_event(event)]
        if has_surrogates(event.value):
            return [SplitDelta(event, event.value, position=event.position, item_index=event.item_index)]
        return [event]
