"""The events of items that are pulled one by one, as one batch: as long as each is a plain delta, the delta loop has nothing to
decide between two of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Reversible, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

from ..core.engine import Engine
from ..core.steps import Stopped
from ..errors import raise_source_error
from ..events import Event
from ..messages.sdk_objects import PLAIN_KINDS
from ..protocols.base import Decoder
from .pulled_items import PulledItems
from .source import AsyncSource, Source

__all__ = ["ItemRow", "row_as_it_is", "rows_of"]

_LONGEST = 256  # items: after so many, the delta loop looks at the sizes of messages


class ItemRow(Reversible[Event]):
    """An item that was pulled, and those after it: each is pulled when the events of the one before were delivered.

    The row ends with the first item that is no plain delta, or that has no position where the one before has; when there are
    changes; and where the task has to sleep for the next item. It is iterated once. Then it is false if its last item had no
    events, so that the stream looks whether that ended the source. Backwards it has the events of the last item, and the one
    before these: what a stream needs that looks for the position of the last event that has one.

    Args:
        decoder: reads the items.
        source: gives the items after it.
        engine: knows what was answered, which the stream is to look at before it pulls.
        decode: makes events of an item that may be anything.
        item: the first item.
    """

    __slots__ = ("_decode", "_decoder", "_engine", "_has_events", "_item", "_last", "_source")

    def __init__(
        self,
        decoder: Decoder,
        source: Source | PulledItems,
        engine: Engine,
        decode: Callable[[Any], Sequence[Event]],
        item: Any,
    ) -> None:
        self._decoder = decoder
        self._source = source
        self._engine = engine
        self._decode = decode
        self._item = item
        self._last: tuple[Event, ...] = ()
        self._has_events = True

    def __bool__(self) -> bool:
        return self._has_events

    def __iter__(self) -> Iterator[Event]:
        decoder, source, engine = self._decoder, self._source, self._engine
        plain_event, index, is_placed = decoder.plain_reader(self._item), decoder.index, False
        items = chain((self._item,), islice(source.values, _LONGEST))
        self._item = None  # which may be large
        latest: Event | None = None
        events: Sequence[Event] | None = None
        try:
            for item in items:
                try:
                    event = plain_event(item)
                except Exception:  # another item; what is wrong with it the tolerant path finds
                    break
                if event is None:
                    break
                event.item_index = index
                index += 1
                decoder.index = index
                if event.position is not None:
                    is_placed = True
                elif is_placed:
                    events = (event,)
                    break
                latest = event
                yield event
                if engine.changes:
                    return
            else:
                return
        except Exception as error:
            if source.is_stopped:
                raise Stopped from None  # stopping the source is what broke the pull
            raise_source_error(error)
        if events is None and isinstance(source, PulledItems) and source.is_under_way:
            source.signal = item
            return
        if events is None:
            events = self._events_of_other(item)
        self._has_events = bool(events)
        self._last = (*events,) if latest is None else (latest, *events)
        yield from events

    def _events_of_other(self, item: Any) -> Sequence[Event]:
        if item.__class__ in PLAIN_KINDS:
            return self._decoder.feed_any_item(item)
        return self._decode(item)

    def __reversed__(self) -> Iterator[Event]:
        return reversed(self._last)


def row_as_it_is(row: ItemRow) -> Any:
    """The row. A way to read batches has two calls."""
    return row


def rows_of(
    source: Source | AsyncSource, decoder: Decoder, engine: Engine, decode: Callable[[Any], Sequence[Event]]
) -> Callable[[Any], Any]:
    """A function that makes a row of an item of a source. Of one that a task had to sleep for, it makes events: the next item
    is hardly there at once."""
    if isinstance(source, Source):
        return partial(ItemRow, decoder, source, engine, decode)

    def row_or_events(item: Any) -> Any:
        pulled = source.pull_ahead()
        return decoder.feed_item(item) if pulled.has_slept else ItemRow(decoder, pulled, engine, decode, item)

    return row_or_events
