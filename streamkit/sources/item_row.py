"""Rows: items that are pulled one by one, given to the delta loop as one batch.

A source that yields single items would cost a batch for each of them. As long as each item is a plain delta, there is nothing
to decide between two of them; so the delta loop iterates over a row, which pulls the next item when it is asked for.
"""

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

_LONGEST = 256  # items; after a batch, the delta loop compares the sizes of messages with the limits


class ItemRow(Reversible[Event]):
    """The events of an item that was pulled, and of those after it. An item is pulled when the events of the one before were
    delivered.

    The row ends

    - after an item that is no plain delta, or that has no position although one before it has;
    - when something was answered (`engine.changes`), which the stream takes up before it pulls again;
    - where the task has to sleep for the next item.

    It can be iterated once. After that it is false if its last item had no events: the stream then checks whether that item
    ended the source. `reversed` gives the events of the last item, and the one before these, in which the stream looks for
    the last event that has a position.

    Args:
        decoder: reads the items.
        source: gives the items after the first.
        engine: the stream's.
        decode: makes events of an item of any kind.
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
                except (
                    Exception
                ):  # no plain delta; the tolerant path reports what is wrong with the item, if anything is
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
    """The row itself: the second function of a `Shortcut`, of which the first one has made the row."""
    return row


def rows_of(
    source: Source | AsyncSource, decoder: Decoder, engine: Engine, decode: Callable[[Any], Sequence[Event]]
) -> Callable[[Any], Any]:
    """A function that makes a row of an item of this source. If a task had to sleep for the item, the function returns the
    item's own events: the next item is probably not there yet either, so a row would gain nothing."""
    if isinstance(source, Source):
        return partial(ItemRow, decoder, source, engine, decode)

    def row_or_events(item: Any) -> Any:
        pulled = source.pull_ahead()
        return decoder.feed_item(item) if pulled.has_slept else ItemRow(decoder, pulled, engine, decode, item)

    return row_or_events
