"""What a decoder and an encoder of a wire protocol are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any, ClassVar

import msgspec

from ..events import Event, StreamWarning
from ..messages import TextMessage
from .framing import Frames, as_frame
from .values import is_object

__all__ = ["Decoder", "Encoder"]

_parse = msgspec.json.Decoder().decode


class Decoder:
    """Turns a protocol's wire items into events, and forgets them.

    It says what it saw: created, deltas, done, run. Opening what was not opened, closing what stays open, keeping
    snapshots and comparing them is the engine's. Whatever the input, a decoder never raises: what is malformed it
    skips or repairs, and says so with `self.warn`.

    Attributes:
        index: the number of items fed before the current one.
        complete: whether the protocol's terminal rule is met; each module states its rule.
        continues_in_next_source: whether the answer is not over, though its stream is: `then=` goes on with it.
        exhausted: whether nothing more can come, so that the source need not be read on: some servers keep the connection
            open after `[DONE]`.
        new_id: gives `message-1`, `message-2` …: for messages that have no id of the provider's own.
        foreign_decoder: gives the decoder of an item that is not this protocol's; None where there is none. It is not asked
            of the common items, which a fast path takes.
    """

    name: ClassVar[str]
    wraps_event_name: ClassVar[bool] = False  # True: an item is {"event": name, "data": …}, and SSE event names matter
    sse_event_names: ClassVar[frozenset[bytes] | None] = None  # the SSE event names that mean something; None: any may
    pull_approves: ClassVar[bool] = False  # True: pulling a live producer past a confirmation approves it

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        self.new_id = new_id or map("message-{}".format, count(1)).__next__
        self.index: int = 0
        self.complete = False
        self.continues_in_next_source = False
        self.exhausted = False
        self.foreign_decoder: Callable[[Mapping[str, Any]], Decoder | None] | None = None
        self._warned_of: str | None = None  # another protocol
        # What a fast path was fed last, and the number of the first of it: its events do not say where they are from.
        self._first: int = 0
        self._frames: Frames = ()

    @classmethod
    def recognises(cls, item: Mapping[str, Any]) -> bool:
        """Whether this item has a shape that no other protocol has."""
        raise NotImplementedError(f"{cls.__name__}.recognises")

    @classmethod
    def may_ask(cls, item: Any) -> bool:
        """Whether an item that no protocol recognises may ask a question. A live producer is not pulled past it."""
        return False

    def feed(self, item: Mapping[str, Any]) -> Iterable[Event]:
        """The events of one wire item. It must not keep or change the item."""
        raise NotImplementedError(f"{type(self).__name__}.feed")

    def finish(self) -> Iterable[Event]:
        """The events that the end of the source itself tells of."""
        return ()

    def feed_frames(self, frames: Frames) -> list[Event]:
        """The events of frames, in order. Protocols with a fast path for their common items override this."""
        events: list[Event] = []
        for id, name, data in map(as_frame, frames):
            if self.exhausted:
                break
            events += self.feed_frame(id, name, data)
        return events

    def feed_frame(self, id: bytes, name: bytes, data: bytes) -> list[Event]:
        """The events of one frame, each with its source and the frame's id as its cursor."""
        events: list[Event]
        if data.startswith(b"[DONE"):
            self.exhausted = data.strip() == b"[DONE]"
            events = list(self.sentinel(data))
        elif not data.strip():
            events = []  # `data:` alone: a keepalive
        else:
            try:
                item: Any = _parse(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                kind = name if self.sse_event_names is None or name in self.sse_event_names else b""
                events = [self.warn("not-json", f"its data is not JSON and was skipped: {error}", _text(kind))]
            else:
                if self.wraps_event_name and not (is_object(item) and "event" in item and "data" in item):
                    item = {"event": _text(name), "data": item}
                elif name == b"error" and is_object(item) and "error" not in item and "type" not in item:
                    item = {"error": item}
                events = self._guarded(item)
        for event in events:
            event.raw_item, event.item_index = data, self.index
        if id:
            position = _text(id)
            for event in events:
                event.position = position
        self.index += 1
        return events

    def feed_items(self, items: Iterable[Any]) -> list[Event]:
        """The events of items that are parsed already."""
        events: list[Event] = []
        for item in items:
            told = self._guarded(item)
            for event in told:
                event.raw_item, event.item_index = item, self.index
            self.index += 1
            events += told
        return events

    def number_of(self, source: Any) -> int | None:
        """The number of the item that an event of the newest frames came from, None if it is none of theirs."""
        numbers = enumerate(self._frames, self._first)
        return next((number for number, frame in numbers if as_frame(frame)[2] is source), None)

    def forget(self) -> None:
        """No more comes: what is still known of the newest frames is let go."""
        self._frames = ()

    def sentinel(self, data: bytes) -> Iterable[Event]:
        """What `[DONE]` (or `[DONE_…]`) means here."""
        self.complete = True
        return ()

    def warn(self, code: str, fault: str, kind: Any = None) -> StreamWarning:
        return StreamWarning(code, fault, index=self.index, kind=kind if isinstance(kind, str) and kind else None)

    def _guarded(self, item: Any) -> list[Event]:
        if not is_object(item):
            return [self.warn("not-an-object", f"it is a JSON {type(item).__name__}, not an object, and was skipped")]
        if self.foreign_decoder is not None and (other := self.foreign_decoder(item)) is not None:
            return self._fed_to(other, item)
        try:
            return list(self.feed(item))
        except Exception as error:  # the last line of law 7: a decoder's own fault must not end the stream
            fault = f"the {self.name} decoder could not read it: {type(error).__name__}: {error}"
            return [self.warn("decoder-error", fault, item.get("type"))]

    def _fed_to(self, other: Decoder, item: Mapping[str, Any]) -> list[Event]:
        told: list[Event] = []
        if self._warned_of != other.name:
            self._warned_of = other.name
            fault = f"it is of {other.name}, in a stream of {self.name}, and was read as what it is"
            told.append(self.warn("other-protocol", fault, item.get("type")))
        other.index = self.index
        inner = item.get("data") if self.wraps_event_name and "event" in item else item
        return told + other._guarded(inner)


class Encoder:
    """Turns completed events into a protocol's wire items, as dicts."""

    name: ClassVar[str]
    done: ClassVar[bytes | None] = None  # the sentinel after the last item, on SSE
    choices: ClassVar[bool] = True  # False: it has no place for other choices than the first
    fields: ClassVar[bool] = False  # True: code and reasoning that `fields=` took out of a call are told beside it

    def feed(self, event: Event) -> Iterable[dict[str, Any]]:
        """The wire items of one event."""
        raise NotImplementedError(f"{type(self).__name__}.feed")

    def items(self, event: Event) -> Iterable[dict[str, Any]]:
        """The wire items of one event of a stream that may have `fields=`. A call's text is told as text; its code
        would look as if it ran, and what else is in a call is told with the call.

        Who reads these items with `fields=` again is told a text once where the protocol keeps its id. Where texts
        have none, in Chat Completions and Anthropic Messages, it is told as what it is there: the model's own text,
        beside the call that has it, too."""
        told: Any = getattr(event, "snapshot", None)
        if not self.choices and told is not None and told.choice:
            return ()
        if not self.fields and told is not None and "field" in told.metadata and not isinstance(told, TextMessage):
            return ()
        return self.feed(event)

    def event_name(self, item: Mapping[str, Any]) -> str | None:
        """The SSE event name of an item, None where the protocol has none."""
        return None


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
