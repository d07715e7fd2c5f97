'''The base classes of a wire protocol's decoder and encoder, for authors of a new protocol.

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

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Self

import msgspec

from ..core.split_text import SplitDelta, split_deltas
from ..core.unique_ids import NumberedIds
from ..errors import stated_message
from ..events import Delta, Event, RawEvent, StreamWarning
from ..messages.json_text import (
    NOT_JSON,
    Lenient,
    decode_json,
    is_nested_too_deep,
    read_leniently,
    well_formed,
)
from ..messages.sdk_objects import as_item, is_model, opened
from .encoder import Encoder
from .framing import Framer, Frames, as_frame
from .plain_case import plain_readers
from .values import WireObject, as_object, containers_in, error_item, is_object

__all__ = ["Decoder", "Encoder", "OwnEvents"]

_NOT_UNDERSTOOD = (StreamWarning, RawEvent)
_NOT_PLAIN = (LookupError, TypeError, *NOT_JSON)  # what an item raises that is not a plain one


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
        framer: cuts a body of this protocol into frames; None if that is one of SSE, JSON or Amazon's messages, which its beginning
            shows.
        plain_item: the struct of the plain case, None if there is none. With `wraps_event_name` it is a dict: the struct of
            the `data`, by event name.
        pull_approves: True if a producer in this process runs what a confirmation asks about as soon as it is pulled for
            its next item. streamkit then does not pull on before there is an answer.
        transient_errors: the codes of failed runs after which another attempt may succeed: overloaded, rate limit, server error.
        runs_calls: True if the source runs the calls of its answers itself, so that any that is complete may have had effects.
        searches: the names of the provider's own tools that only read, so that nothing is done twice where they run again.
        index: the number of items that were fed before the current one.
        complete: set by the decoder: the protocol's terminal rule is met.
        exhausted: set by the decoder: nothing more can come, so that the source need not be read to its end.
        is_cut: set by the caller before `finish`: the source has ended in the middle of an item, which was not fed.
        continues_in_next_source: set by the decoder: the source is over but the answer is not. `then=` is then called for
            the next source even though nothing waits for an answer.
        new_id: returns a message id that no other message has, but for those to which this source gives ids: for messages
            that have none from the provider.
        unread: the index of the newest item that is not one of the protocol, and the message in it, "" if there is none.
        foreign_decoder: set by the caller where items of another protocol may come in between: returns the decoder for such
            an item, None for an item of this protocol. Plain items are not passed to it.
    """

    name: ClassVar[str]
    wraps_event_name: ClassVar[bool] = False
    sse_event_names: ClassVar[frozenset[bytes] | None] = None
    framer: ClassVar[type[Framer] | None] = None
    pull_approves: ClassVar[bool] = False
    plain_item: ClassVar[Any] = None
    transient_errors: ClassVar[frozenset[str]] = frozenset()
    runs_calls: ClassVar[bool] = False
    searches: ClassVar[frozenset[str]] = frozenset()

    # The state before the first item.
    index: int = 0
    complete: bool = False
    exhausted: bool = False
    continues_in_next_source = False
    is_cut = False
    unread: tuple[int, str] = -1, ""
    foreign_decoder: Callable[[WireObject], Decoder | None] | None = None
    _foreign_name: str | None = None  # the other protocol that a warning was emitted about

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        self.new_id = new_id or NumberedIds()
        self._plain_readers = plain_readers(self.plain_item)

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

    def item_of(self, value: Any) -> Any:
        """Return an item of a source as JSON values: an SDK's object as the dict that it makes of itself. What is recorded is this."""
        return as_item(value)

    def feed(self, item: WireObject) -> Iterable[Event]:
        """Return the events of one item, in order. Called once for each item, which must be neither kept nor changed.

        An exception becomes a warning with the code `decoder-error`, and loses the item's events.
        """
        raise NotImplementedError(f"{type(self).__name__}.feed")

    def plain(self, item: Any) -> Delta | None:
        """Return the one event of an item that was read as `plain_item`; None if it does more than extend an open
        message.

        A LookupError or a TypeError means the same. The item then goes to `feed`, so nothing may have changed.
        """
        return None

    def item_data(self, name: bytes, data: bytes) -> bytes:
        """Return the data of an SSE event with this name, as JSON text. That of one named `error` may be anything: it becomes an
        item with the key `error`, unless it is an item of the protocol."""
        return error_item(data, self._is_own) if name == b"error" else data

    def _is_own(self, item: WireObject) -> bool:
        return item.get("type") == "error" or self.recognises(item)

    def named_item(self, name: bytes, item: Any) -> Any:
        """Return the item of an SSE event with this name, as `feed` gets it."""
        if self.wraps_event_name and not (is_object(item) and "event" in item and "data" in item):
            return {"event": _text(name), "data": item}
        return item

    def sentinel(self, data: bytes) -> Iterable[Event]:
        """Return the events of `[DONE]`, or of other data that begins with `[DONE`. By default it meets the terminal
        rule."""
        self.complete = True
        return ()

    def finish(self) -> Iterable[Event]:
        """Return the events that follow from the end of the source. Called once, after the last item."""
        return ()

    # -- what a protocol inherits

    def feed_frames(self, frames: Frames) -> list[Event]:
        """Return the events of frames, in order. Called for each chunk of a source of bytes; nothing after the end is
        read."""
        events: list[Event] = []
        if self.exhausted:
            return events
        decode, plain, index = self._plain_readers.text, self.plain, self.index
        frame: Any  # which type checkers do not narrow by its class
        for frame in frames:
            try:
                event = plain(decode(frame)) if frame.__class__ is bytes else self._plain_frame(*frame)
            except _NOT_PLAIN:
                event = None
            if event is not None:
                event.raw_item, event.item_index = event.raw_item or frame, index
                events.append(event)
            else:
                self.index = index
                events += self.feed_frame(*as_frame(frame))
                if self.exhausted:
                    return events
            index += 1
        self.index = index
        return events

    def _plain_frame(self, id: bytes, name: bytes, data: bytes) -> Delta | None:
        """Return the event of a frame that has an id or a name, if it is a plain one. It may raise as `plain`."""
        event = self.plain(self._plain_readers.named[name](data))
        if event is not None:
            event.raw_item, event.position = data, _text(id) if id else event.position
        return event

    def feed_frame(self, id: bytes, name: bytes, data: bytes) -> list[Event]:
        """Return the events of one frame, each with the frame's data as its `raw_item` and the frame's id as its
        cursor."""
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
                events = self._guarded(self.named_item(name, item) if name or self.wraps_event_name else item)
        for event in events:
            event.raw_item, event.item_index = data, self.index
        if id:
            position = _text(id)
            for event in events:
                event.position = position
        self.index += 1
        return events

    def feed_items(self, items: Sequence[Any]) -> list[Event]:
        """Return the events of items that are parsed already, as a producer in this process yields them."""
        events: list[Event] = []
        read, plain, index = self._plain_readers.item, self.plain, self.index
        for item in items:
            try:
                event = plain(read(item))
            except Exception:  # another item; what is wrong with it, `feed` finds
                event = None
            if event is not None:
                event.raw_item, event.item_index = item, index
                events.append(event)
            else:
                self.index = index
                events += self.feed_other_item(item)
                if self.exhausted:
                    return events
            index += 1
        self.index = index
        return events

    def feed_other_item(self, item: Any) -> list[Event]:
        """Return the events of a parsed item that is not a plain one. It may hold what JSON text cannot; what is too deep in it
        reads as if it were absent."""
        item, lenient = self.item_of(item), None
        if (item.__class__ is dict and containers_in(item) is not None) or not is_nested_too_deep(item):
            try:
                _encode(item)
            except UnicodeEncodeError:
                lenient = well_formed(item)
            except _HoldsObjects:
                item = opened(item)
            except Exception:
                pass  # values that JSON lacks: the decoder passes over them
        events = self._guarded(item) if lenient is None else self._feed_repaired(lenient.value, lenient)
        for event in events:
            event.raw_item, event.item_index = item, self.index
        self.index += 1
        return events

    def _feed_leniently(self, name: bytes, data: bytes, error: Exception) -> list[Event]:
        """Return the events of data that is not quite JSON, as far as it can be read."""
        lenient = read_leniently(data)
        if lenient is None:
            kind = name if self.sse_event_names is None or name in self.sse_event_names else b""
            return [self.warn("not-json", f"its data is not JSON and was skipped: {error}", _text(kind))]
        return self._feed_repaired(self.named_item(name, lenient.value), lenient)

    def _feed_repaired(self, item: Any, lenient: Lenient) -> list[Event]:
        """Return the events of an item that was repaired, after the warnings about that."""
        kind = item.get("type") if is_object(item) else None
        events = split_deltas(self._guarded(item), lenient.halves)
        joined = {event.text for event in events if isinstance(event, SplitDelta)}
        warnings: list[Event] = []
        if lenient.fault:
            fault = f"its data is not JSON: it has {lenient.fault}; it was read all the same"
            warnings.append(self.warn("lenient-json", fault, kind))
        if lenient.lost or not joined.issuperset(lenient.halves.values()):
            fault = "it has half of a surrogate pair, which is not text and was replaced by U+FFFD"
            warnings.append(self.warn("lone-surrogate", fault, kind))
        return warnings + events

    def remainder(self) -> Self:
        """Return the decoder of a source that is over, without what it has read: its name, index and endings."""
        left = type(self).__new__(type(self))
        left.index, left.complete, left.exhausted = self.index, self.complete, self.exhausted
        if self.continues_in_next_source:
            left.continues_in_next_source = True
        return left

    def forget(self) -> None:
        """Release what was received so far. Called when no more items come."""

    def warn(self, code: str, fault: str, kind: Any = None) -> StreamWarning:
        """Return a warning about the current item, to be yielded. A strict stream raises `ProtocolError` in its place.

        Args:
            code: the fault in a word, such as `bad-index`.
            fault: what is wrong with the item and what was done about it: "its delta is not text and was skipped".
            kind: the item's own type. Anything but text is left out.
        """
        return StreamWarning(code, fault, index=self.index, kind=kind if isinstance(kind, str) and kind else None)

    def _guarded(self, item: Any) -> list[Event]:
        """Return the events of any JSON value. A fault of the decoder itself must not end the stream either."""
        if item.__class__ is not dict and not is_object(item):
            return [self.warn("not-an-object", f"it is a JSON {type(item).__name__}, not an object, and was skipped")]
        if self.foreign_decoder is not None and (other := self.foreign_decoder(item)) is not None:
            return self._feed_foreign(other, item)
        try:
            events = list(self.feed(item))
        except Exception as error:
            events = [self.fault(error, item)]
        if all(isinstance(event, _NOT_UNDERSTOOD) for event in events) and not self.recognises(item):
            self.unread = self.index, stated_message(as_object(self._data_of(item)))
        return events

    def _data_of(self, item: WireObject) -> Any:
        """Return the item without the name of its event."""
        return item.get("data") if self.wraps_event_name and "event" in item else item

    def fault(self, error: Exception, item: WireObject) -> Event:
        """Return the warning that this exception of the decoder itself becomes."""
        fault = f"the {self.name} decoder could not read it: {type(error).__name__}: {error}"
        return self.warn("decoder-error", fault, item.get("type"))

    def _feed_foreign(self, other: Decoder, item: WireObject) -> list[Event]:
        """Return the events of an item of another protocol, after a warning about the first such item."""
        events: list[Event] = []
        if self._foreign_name != other.name:
            self._foreign_name = other.name
            fault = f"it is of {other.name}, in a stream of {self.name}, and was read as {other.name}"
            events.append(self.warn("other-protocol", fault, item.get("type")))
        other.index = self.index
        return events + other._guarded(self._data_of(item))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
