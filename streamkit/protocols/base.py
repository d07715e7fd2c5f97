'''What a decoder and an encoder of a wire protocol are, for whoever writes a new protocol.

A decoder turns the items that a provider sends into events, and keeps nothing but what it needs to name them. The
engine completes these events: it opens and closes messages, runs and steps, numbers them, and keeps snapshots. So a
decoder for a newline-delimited JSON format, invented here, is no more than this:

    from streamkit.events import Run, RunCreated, RunDone, TextDelta
    from streamkit.protocols import base
    from streamkit.protocols.values import as_text, text_or_none

    class Decoder(base.Decoder):
        """The Parrot server's stream. Terminal rule: an item of the kind `end`."""

        name = "parrot"
        text_id = ""

        @classmethod
        def recognises(cls, item):
            return item.get("kind") == "begin" and "parrot" in item

        def feed(self, item):
            match item.get("kind"):
                case "begin":
                    yield RunCreated(Run(id=as_text(item.get("id")), model=text_or_none(item.get("model"))))
                case "text":
                    self.text_id = self.text_id or text_or_none(item.get("id")) or self.new_id()
                    yield TextDelta(self.text_id, as_text(item.get("text")))
                case "end":
                    self.complete = True
                    yield RunDone(Run(status="completed", finish_reason=text_or_none(item.get("reason"))))
                case kind:
                    yield self.warn("unknown-kind", "it is of an unknown kind and was skipped", kind)

- Set `complete` when the protocol's terminal rule is met: the item has come after which an ended source is not a cut-off
  one. Each decoder module states its rule. A source that ends before raises `IncompleteStreamError`.
- Set `exhausted` when nothing can follow, so that reading stops even if the server leaves the connection open.
- Set `continues_in_next_source` when the answer goes on in the next request's response, as a paused turn does.
- Yield `self.warn(…)` beside whatever else could be read: one bad value never loses the rest of its item.
- Call `new_id()` for a message to which the provider gives no id.
- Emit `Created` and `Done` events only where the provider says more than the deltas do; `events.NewMessage` and
  `events.MessageEnded` are cheaper forms of them.
- Define the plain case last, and only for speed: `plain_item`, a typed `msgspec` struct that accepts the commonest delta alone,
  and `plain`, which makes its event. Every other item goes to `feed`. Both ways must give the same events.
'''

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Self

import msgspec

from ..core.split_text import SplitDelta, split_deltas
from ..core.unique_ids import NumberedIds
from ..events import Delta, Event, StreamWarning
from ..messages import TextMessage
from ..messages.json_text import (
    NOT_JSON,
    Lenient,
    decode_json,
    has_surrogates,
    is_nested_too_deep,
    read_leniently,
    well_formed,
)
from ..messages.sdk_objects import as_item, is_model, opened
from ..messages.typed_json import decoder
from .framing import Frames, as_frame
from .parsed import item_reader
from .values import WireObject, containers_in, is_object

__all__ = ["Decoder", "Encoder", "OwnEvents"]

_NOT_PLAIN = (LookupError, TypeError, *NOT_JSON)  # what an item raises that is no plain one


class _HoldsObjects(Exception):
    """An SDK's object is in an item that is none itself."""


def _encodable(value: Any) -> Any:
    if is_model(value):
        raise _HoldsObjects
    return dict(value) if is_object(value) else None


_encode = msgspec.json.Encoder(enc_hook=_encodable).encode


class OwnEvents(list[Event]):
    """Items that are canonical events already, and were made for one stream alone, so that it need not copy them."""


class Decoder:
    """Turns a protocol's wire items into events.

    One decoder serves one source, from one thread at a time. It never raises, whatever the input: it skips or repairs
    what is malformed, and emits a warning about it. A subclass defines `name`, `recognises` and `feed`, and states its
    terminal rule; everything else has a default.

    Args:
        new_id: returns a message id that no message before this source has. Without it, ids count from `message-1`.

    Attributes:
        name: the protocol's name: its package, or its entry point.
        wraps_event_name: True if SSE event names are part of the items. `feed` then gets `{"event": name, "data": item}`.
        sse_event_names: the SSE event names that the decoder heeds, None for all. Frames with another name may come as
            plain bytes, which is faster.
        pull_approves: True if a producer in this process runs what a confirmation asks about as soon as it is pulled for
            its next item. streamkit then does not pull on before there is an answer.
        index: the number of items that were fed before the current one.
        frames: the newest frames, up to the one before `index`, where a fast path emits events without an `item_index`. The
            delta loop sets it to None while it waits for the next.
        complete: set by the decoder: the protocol's terminal rule is met.
        exhausted: set by the decoder: nothing more can come, so that the source need not be read to its end.
        is_cut: set by the caller before `finish`: the source has ended in the middle of an item, which was not fed.
        continues_in_next_source: set by the decoder: the source is over but the answer is not. `then=` is then called for
            the next source even though nothing waits for an answer.
        new_id: returns a message id that no other message has, but for those to which this source gives ids: for messages
            that have none from the provider.
        foreign_decoder: set by the caller where items of another protocol may come in between: returns the decoder for such
            an item, None for an item of this protocol. Items that a fast path reads are not passed to it.
    """

    name: ClassVar[str]
    wraps_event_name: ClassVar[bool] = False
    sse_event_names: ClassVar[frozenset[bytes] | None] = None
    pull_approves: ClassVar[bool] = False
    plain_item: ClassVar[Any] = None

    # The state before the first item.
    index: int = 0
    complete: bool = False
    exhausted: bool = False
    continues_in_next_source = False
    is_cut = False
    foreign_decoder: Callable[[WireObject], Decoder | None] | None = None
    _foreign_name: str | None = None  # the other protocol that a warning was emitted about
    frames: Frames | None = ()

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        self.new_id = new_id or NumberedIds()
        self._decode_plain, self._read_plain = _plain_readers(self.plain_item)

    # -- what a protocol defines

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether this item has a shape that no other protocol has. Called for the first items of a source whose
        protocol the user did not name."""
        raise NotImplementedError(f"{cls.__name__}.recognises")

    @classmethod
    def may_ask(cls, item: Any) -> bool:
        """Whether an item that no protocol recognises may be a question. Called for protocols with `pull_approves` only: a
        live producer is not pulled past such an item."""
        return False

    @classmethod
    def is_question_line(cls, line: bytes) -> bool:
        """Whether a line of a body is a complete question although its newline has not come. Called for protocols with
        `pull_approves` only, where the newline may come with the next pull, which would be too late."""
        return False

    def feed(self, item: WireObject) -> Iterable[Event]:
        """The events of one item, in order. Called once for each item, which must be neither kept nor changed.

        An exception becomes a warning with the code `decoder-error`, and loses the item's events.
        """
        raise NotImplementedError(f"{type(self).__name__}.feed")

    def plain(self, item: Any) -> Delta | None:
        """The one event of an item that decoded as `plain_item`; None if it does more than extend an open message.

        A LookupError or a TypeError means the same. The item then goes to `feed`, so nothing may have changed.
        """
        return None

    def item_data(self, name: bytes, data: bytes) -> bytes:
        """The data of an SSE event with this name, as JSON text: for protocols whose servers send something else there."""
        return data

    def sentinel(self, data: bytes) -> Iterable[Event]:
        """The events of `[DONE]`, or of other data that begins with `[DONE`. By default it meets the terminal rule."""
        self.complete = True
        return ()

    def finish(self) -> Iterable[Event]:
        """The events that follow from the end of the source. Called once, after the last item."""
        return ()

    # -- what a protocol inherits

    def feed_frames(self, frames: Frames) -> list[Event]:
        """The events of frames, in order. Called for each chunk of a source of bytes; nothing after the end is read."""
        events: list[Event] = []
        if self.exhausted:
            return events
        decode, plain, index = self._decode_plain, self.plain, self.index
        for frame in frames:
            try:
                event = plain(decode(frame)) if decode is not None else None
            except _NOT_PLAIN:  # another item, or a frame with an id or a name, which is a tuple
                event = None
            if event is not None:
                event.raw_item, event.item_index = frame, index
                events.append(event)
            else:
                self.index = index
                found = self.feed_frame(b"", b"", frame) if isinstance(frame, bytes) else self.feed_frame(*frame)
                events += found
                if self.exhausted:
                    return events
                if found and isinstance(found[0], Delta):
                    decode = None  # the rest of these frames has the same form, in all likelihood
            index += 1
        self.index = index
        return events

    def feed_frame(self, id: bytes, name: bytes, data: bytes) -> list[Event]:
        """The events of one frame, each with the frame's data as its `raw_item` and the frame's id as its cursor."""
        events: list[Event]
        text = self.item_data(name, data) if name else data
        if text.startswith(b"[DONE"):
            self.exhausted = text.strip() == b"[DONE]"
            events = list(self.sentinel(text))
        else:
            try:
                item: Any = decode_json(text)
            except (ValueError, RecursionError) as error:
                # An empty `data:` field keeps the connection alive.
                events = self._feed_leniently(name, text, error) if text.strip() else []
            else:
                events = self._guarded(self._named(name, item) if name or self.wraps_event_name else item)
        for event in events:
            event.raw_item, event.item_index = data, self.index
        if id:
            position = _text(id)
            for event in events:
                event.position = position
        self.index += 1
        return events

    def plain_event(self, item: Any) -> Event | None:
        """The event of a parsed item, a dict or an object of an SDK, that is a plain one; None for any other item. It may raise
        anything, which means the same."""
        if self._read_plain is None:
            return None
        event = self.plain(self._read_plain(item))
        if event is None or not (event.value.isascii() or not has_surrogates(event.value)):
            return None
        event.raw_item = item
        return event

    def plain_reader(self, item: Any) -> Callable[[Any], Event | None]:
        """The function that reads the items of a batch that begins with this one: `plain_event`, or one with the same results
        that is faster for such items."""
        return self.plain_event

    def feed_items(self, items: Sequence[Any]) -> list[Event]:
        """The events of items that are parsed already, as a producer in this process yields them."""
        events: list[Event] = []
        plain_event, index = self.plain_reader(items[0] if items else None), self.index
        for item in items:
            try:
                event = plain_event(item)
            except Exception:  # another item; what is wrong with it the tolerant path finds
                event = None
            if event is not None:
                event.item_index = index
                events.append(event)
            else:
                self.index = index
                events += self.feed_any_item(item)
                if self.exhausted:
                    return events
            index += 1
        self.index = index
        return events

    def feed_any_item(self, item: Any) -> list[Event]:
        """The events of an item that is no plain delta."""
        item = as_item(item)
        try:
            events = self._feed_item(item)
        except _HoldsObjects:
            item = opened(item)
            events = self._guarded(item)
        for event in events:
            event.raw_item, event.item_index = item, self.index
        self.index += 1
        return events

    def feed_item(self, item: Any) -> Sequence[Event]:
        """The events of one item that is parsed already, as a tuple if it is a plain delta. A protocol that overrides
        `feed_items` overrides this as well."""
        try:
            event = self.plain_event(item)
        except Exception:  # as in `feed_items`
            event = None
        if event is None:
            return self.feed_any_item(item)
        event.item_index = self.index
        self.index += 1
        return (event,)

    def _typed(self, events: list[Event], data: bytes, id: bytes = b"") -> list[Event]:
        """The events of one frame that was read by its type, with where they came from. Then comes the next frame. Deltas
        need no index: it is found by their item."""
        position = _text(id) if id else None
        for event in events:
            event.raw_item = data
            if position is not None:
                event.position = position
            if not isinstance(event, Delta):
                event.item_index = self.index
        self.index += 1
        return events

    def _named(self, name: bytes, item: Any) -> Any:
        """A frame's item with its event name, where that is part of the protocol's items."""
        if self.wraps_event_name and not (is_object(item) and "event" in item and "data" in item):
            return {"event": _text(name), "data": item}
        if name == b"error" and is_object(item) and "error" not in item and "type" not in item:
            return {"error": item}
        return item

    def _feed_leniently(self, name: bytes, data: bytes, error: Exception) -> list[Event]:
        """The events of data that is not quite JSON, as far as it can be read."""
        lenient = read_leniently(data)
        if lenient is None:
            kind = name if self.sse_event_names is None or name in self.sse_event_names else b""
            return [self.warn("not-json", f"its data is not JSON and was skipped: {error}", _text(kind))]
        return self._feed_repaired(self._named(name, lenient.value), lenient)

    def _feed_repaired(self, item: Any, lenient: Lenient) -> list[Event]:
        """The events of an item that was repaired, after the warnings about that."""
        kind = item.get("type") if is_object(item) else None
        events = split_deltas(self._guarded(item), lenient.halves)
        joined = {event.text for event in events if isinstance(event, SplitDelta)}
        warnings: list[Event] = []
        if lenient.fault:
            fault = f"its data is not JSON: it has {lenient.fault}; it was read all the same"
            warnings.append(self.warn("lenient-json", fault, kind))
        if lenient.lost or not joined.issuperset(lenient.halves.values()):
            fault = "it has half of a surrogate pair, which is no text and was replaced by U+FFFD"
            warnings.append(self.warn("lone-surrogate", fault, kind))
        return warnings + events

    def _feed_item(self, item: Any) -> list[Event]:
        """The events of an item that is parsed already. It may hold what JSON text cannot."""
        if (item.__class__ is not dict or containers_in(item) is None) and is_nested_too_deep(item):
            return self._guarded(item)  # what is too deep in it reads as if it were absent
        try:
            _encode(item)
        except UnicodeEncodeError:
            lenient = well_formed(item)
            return self._feed_repaired(lenient.value, lenient)
        except _HoldsObjects:
            raise
        except Exception:
            pass  # values that JSON lacks: the decoder passes over them
        return self._guarded(item)

    def number_of(self, source: Any) -> int | None:
        """The index of the item with this data among the newest frames, None if it is not one of them."""
        frames = self.frames or ()
        numbers = enumerate(frames, self.index - len(frames))
        return next((number for number, frame in numbers if as_frame(frame)[2] is source), None)

    def remainder(self) -> Self:
        """The decoder of a source that is over, without what it has read: its name, index and endings."""
        left = type(self).__new__(type(self))
        left.index, left.complete, left.exhausted = self.index, self.complete, self.exhausted
        if self.continues_in_next_source:
            left.continues_in_next_source = True
        return left

    def forget(self) -> None:
        """Release the newest frames. Called when no more items come."""
        self.frames = None

    def warn(self, code: str, fault: str, kind: Any = None) -> StreamWarning:
        """A warning about the current item, to be yielded. A strict stream raises `ProtocolError` in its place.

        Args:
            code: the fault in a word, such as `bad-index`.
            fault: what is wrong with the item and what was done about it: "its delta is not text and was skipped".
            kind: the item's own type. Anything but text is left out.
        """
        return StreamWarning(code, fault, index=self.index, kind=kind if isinstance(kind, str) and kind else None)

    def _guarded(self, item: Any) -> list[Event]:
        """The events of any JSON value. A fault of the decoder itself must not end the stream either."""
        if item.__class__ is not dict and not is_object(item):
            return [self.warn("not-an-object", f"it is a JSON {type(item).__name__}, not an object, and was skipped")]
        if self.foreign_decoder is not None and (other := self.foreign_decoder(item)) is not None:
            return self._feed_foreign(other, item)
        try:
            return list(self.feed(item))
        except Exception as error:
            return [self.fault(error, item)]

    def fault(self, error: Exception, item: WireObject) -> Event:
        """The warning that this exception of the decoder itself becomes."""
        fault = f"the {self.name} decoder could not read it: {type(error).__name__}: {error}"
        return self.warn("decoder-error", fault, item.get("type"))

    def _feed_foreign(self, other: Decoder, item: WireObject) -> list[Event]:
        """The events of an item of another protocol, after a warning about the first such item."""
        events: list[Event] = []
        if self._foreign_name != other.name:
            self._foreign_name = other.name
            fault = f"it is of {other.name}, in a stream of {self.name}, and was read as {other.name}"
            events.append(self.warn("other-protocol", fault, item.get("type")))
        other.index = self.index
        inner = item.get("data") if self.wraps_event_name and "event" in item else item
        return events + other._guarded(inner)


class Encoder:
    """Turns completed events into a protocol's wire items, as dicts.

    One encoder serves one stream, and gets every event of it in order. A subclass defines `name` and `feed`.

    Attributes:
        name: the protocol's name, as the decoder's.
        done: the data of the SSE event that follows the last item, None if there is none.
        choices: False if the protocol has no place for choices other than the first. Their events are then left out.
        fields: True if the protocol has a place for the code and reasoning that `fields=` extracts from the arguments of a
            call. If False they are left out, as the call has them too.
        headers: what an HTTP response in this protocol has besides the headers of every event stream.
        sse_ids: False if the provider's own client cannot read the `id:` and `retry:` of an event stream: it takes a block of
            either without data for an event.
    """

    name: ClassVar[str]
    done: ClassVar[bytes | None] = None
    headers: ClassVar[Mapping[str, str]] = {}
    sse_ids: ClassVar[bool] = True
    choices: ClassVar[bool] = True
    fields: ClassVar[bool] = False

    def feed(self, event: Event) -> Iterable[dict[str, Any]]:
        """The wire items of one event, in order."""
        raise NotImplementedError(f"{type(self).__name__}.feed")

    def items(self, event: Event) -> Iterable[dict[str, Any]]:
        """The wire items of one event of a stream that may have `fields=`: what callers use.

        Text that was extracted from a call is encoded as text. Code is not: a reader would think that it ran. What else
        was extracted is left out, as it is part of the call.

        A reader with the same `fields=` gets an extracted text once where the protocol keeps its id. Where texts have
        no id, in Chat Completions and Anthropic Messages, it gets the text twice: as the model's own, and from the call.
        """
        message: Any = getattr(event, "snapshot", None)
        if message is None:
            return self.feed(event)
        if message.choice and not self.choices:
            return ()
        if "field" in message.metadata and not self.fields and not isinstance(message, TextMessage):
            return ()
        return self.feed(event)

    def event_name(self, item: Mapping[str, Any]) -> str | None:
        """The SSE event name of an item, None if the protocol does not use event names."""
        return None


@cache
def _plain_readers(kind: Any) -> tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None]:
    """What reads JSON text, and what reads a parsed item, as this struct; None twice where there is none."""
    return (None, None) if kind is None else (decoder(kind).decode, item_reader(kind))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
