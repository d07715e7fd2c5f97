"""Decodes Anthropic's Messages API, and the servers that imitate it.

Terminal rule: `message_stop`; a `stop_reason`, in `message_delta` or in a message that begins with all its content (some
servers leave out what follows it); or an `error`. `[DONE]` alone ends nothing. An answer that is not streamed
(`{"type": "message", …}`) is complete. A `message_start` after the end begins another answer in the same run, in a step of
its own.

Each content block is a message. The first one has the provider's id of the answer, the others have ids made from it, and
calls have their own. `content` says when a block is done.

A run's `finish_reason` is the stop_reason; `max_tokens`, `model_context_window_exceeded`, `refusal`, `pause_turn` and
`compaction` make the run incomplete. If the provider explains a refusal, the explanation is a refusal message.
`Run.metadata` has the answer's other keys: `stop_sequence`, `stop_details`, `container`, `context_management` ….
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import length_hint
from typing import Any, ClassVar

from ...events import Event, RawEvent, Run, RunDone
from ...messages.json_text import NOT_JSON, has_surrogates
from ...messages.sdk_objects import PLAIN_KINDS, fields_of
from ...shared_names import share_names
from ..frames import Frames, as_frame
from ..values import WireObject, as_object, as_text, text_or_none, without, without_keys
from .answers import Answers
from .shape import recognises
from .wire import (
    HELPER_EVENTS,
    BlockStart,
    BlockStop,
    InputDelta,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    decode_common,
    decode_item,
    error_of,
    started_message,
)

__all__ = ["Decoder"]

# What a frame raises that is not what it is read as: another item, or one with an SSE id or name, which is a tuple.
_UNUSUAL = (KeyError, TypeError, *NOT_JSON)

# The keys of a `message_delta` that are not metadata of the run.
_MESSAGE_DELTA_KEYS = frozenset({"type", "delta", "usage"})


class Decoder(Answers):
    """A stream of the Messages API, or one answer that is not streamed."""

    name = "anthropic"
    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset({b"error"})

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether it is one of this API's items, and cannot be one of the Assistants API's."""
        return recognises(item)

    # -- the fast path: items in their common form

    def feed_frames(self, frames: Frames) -> list[Event]:
        """The events of frames. Most servers send each item alone."""
        if len(frames) != 1:
            return self._feed_several(frames)
        frame: Any
        (frame,) = frames
        try:
            item = decode_common(frame)
            delta = item.delta
            if delta is not None:
                struct, message_id, make_event, _, _ = self._blocks.growing[item.index]
                self.frames = frames
                if delta.__class__ is struct:
                    self.index += 1
                    return [make_event(message_id, delta.piece, raw_item=frame)]
                if struct is None and delta.__class__ is InputDelta:
                    self.index += 1
                    pieces: list[Event] = make_event(delta.piece, frame)
                    return pieces
                return self._other_frame(frame)
            read = self._common_readers[item.__class__]
        except _UNUSUAL:
            return self._other_frame(frame)
        events: list[Event] = []
        try:
            read(self, item, frame, events)
        except Exception as error:
            events = [self.fault(error, decode_item(frame))]
        if self._blocks.faults:
            self._warn(events)
        return self._placed(events, frame)

    def _placed(self, events: list[Event], frame: Any) -> list[Event]:
        """The events of a frame, with where they came from. Then comes the next frame."""
        index = self.index
        for event in events:
            event.raw_item = frame
            event.item_index = index
        self.index = index + 1
        return events

    def _feed_several(self, frames: Frames) -> list[Event]:
        """As `feed_frames`, of several frames. Their deltas are read in the loop itself, because a call for each costs more."""
        events: list[Event] = []
        if self.exhausted:
            return events
        growing, end = self._blocks.growing, self.index + len(frames)
        rest: Iterator[Any] = iter(frames)
        for frame in rest:
            try:
                item = decode_common(frame)
                delta = item.delta
                struct, message_id, make_event, _, _ = growing[item.index]
                if delta.__class__ is struct:
                    events.append(make_event(message_id, delta.piece, raw_item=frame))
                    continue
                if struct is None and delta.__class__ is InputDelta:
                    events += make_event(delta.piece, frame)
                    continue
            except _UNUSUAL:
                pass
            self.index = end - length_hint(rest) - 1
            events += self.feed_frames((frame,))
            if self.exhausted:
                self.frames = frames[: len(frames) - length_hint(rest)]
                return events
        self.index, self.frames = end, frames
        return events

    def _read_ping(self, item: Ping, frame: bytes, events: list[Event]) -> None:
        events.append(RawEvent("ping", {"type": "ping"}))

    def _read_message_start(self, item: MessageStart, frame: bytes, events: list[Event]) -> None:
        raw = item.message
        message = None if self._has_begun or self._has_ended else started_message(raw)
        if message is None:
            self._message(raw, events)
            return
        raw.pop("content", None)
        self._begin(message.id, message.model, raw, events)
        if message.usage:
            self._add_usage(message.usage, events)

    def _read_block_start(self, item: BlockStart, frame: bytes, events: list[Event]) -> None:
        if not self._blocks.start(item.place, item.block, events):
            events.append(RawEvent("content_block_start", decode_item(frame)))

    def _read_block_stop(self, item: BlockStop, frame: bytes, events: list[Event]) -> None:
        if not self._blocks.stop(item.place, events):
            events.append(RawEvent("content_block_stop", decode_item(frame)))

    def _read_message_delta(self, item: MessageDelta, frame: bytes, events: list[Event]) -> None:
        usage = item.usage
        if usage and not usage.items() <= self._usage.items():
            self._add_usage(usage, events)
        self.complete = True
        self._blocks.take_stop_reason(item.ending.stop_reason, events)

    def _read_message_stop(self, item: MessageStop, frame: bytes, events: list[Event]) -> None:
        self._end(events)

    # What reads an item in its common form, until an error ends the answer.
    _common_readers: Mapping[type, Callable[[Any, Any, bytes, list[Event]], None]] = {
        Ping: _read_ping,
        MessageStart: _read_message_start,
        BlockStart: _read_block_start,
        BlockStop: _read_block_stop,
        MessageDelta: _read_message_delta,
        MessageStop: _read_message_stop,
    }

    def plain_event(self, item: Any) -> Event | None:
        """The event of a delta of an open block in its common form. Most of them are read by a few look-ups."""
        fields: dict[str, Any] = item
        is_object = type(item) is not dict  # of an object this is faster than its `__class__`
        if is_object:
            # What an object has in addition to the fields of its class does not matter here.
            fields = item.__dict__ if type(item) in PLAIN_KINDS else fields_of(item)
        one = fields["delta"]
        delta: dict[str, Any] = one
        if type(one) is not dict:
            if not is_object:
                return None  # the tolerant path opens it
            delta = one.__dict__ if type(one) in PLAIN_KINDS else fields_of(one)
        index = fields["index"]
        _, message_id, make_event, delta_type, key = self._blocks.growing[index]
        text = delta[key]
        if (
            fields["type"] == "content_block_delta"
            and delta["type"] == delta_type
            and text.__class__ is str
            and text
            and index.__class__ is int
            and (text.isascii() or not has_surrogates(text))
        ):
            event: Event = make_event(message_id, text, raw_item=item)
            return event
        return None

    # -- the tolerant path. What reads an item adds its events to `events`

    def sentinel(self, data: bytes) -> Iterable[Event]:
        """None: this API has no `[DONE]`, and a server that sends one may have cut the answer short."""
        if self.exhausted:  # so that `feed_frames`, which does not look at it, reads nothing more
            self._common_readers = {}
            self._blocks.growing.clear()
        return ()

    def _other_frame(self, frame: Any) -> list[Event]:
        """The events of a frame that is not in a common form: those of `feed_frame`, made in fewer steps if the item is of a
        known type."""
        if self.exhausted:
            return []
        try:
            item = decode_item(frame)
            read = self._readers[item["type"]]
        except _UNUSUAL:
            return self.feed_frame(*as_frame(frame))
        if self.foreign_decoder is not None and self.foreign_decoder(item) is not None:
            return self.feed_frame(b"", b"", frame)
        events: list[Event] = []
        try:
            read(self, item, events)
        except Exception as error:
            events = [self.fault(error, item)]
        if self._blocks.faults:
            self._warn(events)
        return self._placed(events, frame)

    def feed(self, item: WireObject) -> Iterable[Event]:
        """The events of one item, then the warnings about it."""
        kind = as_text(item.get("type"))
        events: list[Event] = []
        self._readers.get(kind, Decoder._other)(self, item, events)
        self._warn(events)
        return events

    def _block_start(self, item: WireObject, events: list[Event]) -> None:
        index = self._blocks.index_of(item, starts=True)
        if not self._blocks.start(index, as_object(item.get("content_block")), events):
            events.append(RawEvent("content_block_start", item))

    def _block_delta(self, item: WireObject, events: list[Event]) -> None:
        index = self._blocks.index_of(item)
        if not self._blocks.delta(index, as_object(item.get("delta")), events):
            events.append(RawEvent("content_block_delta", item))

    def _block_stop(self, item: WireObject, events: list[Event]) -> None:
        if not self._blocks.stop(self._blocks.index_of(item), events):
            events.append(RawEvent("content_block_stop", item))

    def _message_start(self, item: WireObject, events: list[Event]) -> None:
        self._message(as_object(item.get("message")), events)

    def _message_stop(self, item: WireObject, events: list[Event]) -> None:
        # Bedrock's metrics are here, and the complete message that the SDK's helper adds.
        if len(item) > 1:
            self._add_metadata(without_keys(item, "type", "message"), events)
        self._end(events)

    def _complete_message(self, item: WireObject, events: list[Event]) -> None:
        self._message(item, events)
        if self._blocks.stop_reason is None and (reason := text_or_none(item.get("stop_reason"))) is not None:
            self._blocks.take_stop_reason(reason, events)
        self._end(events)

    def _ping(self, item: WireObject, events: list[Event]) -> None:
        events.append(RawEvent("ping", item))

    def _other(self, item: WireObject, events: list[Event]) -> None:
        """An item of another type, or without one, or that comes after an error."""
        kind = as_text(item.get("type"))
        if self._has_failed or (kind and kind not in HELPER_EVENTS):
            events.append(RawEvent(kind, item))
        elif not kind and item.get("error") is not None:
            self._fail(item, events)
        elif not kind:
            self._blocks.warn("no-type", "it has no type and was skipped")

    def _message_delta(self, item: WireObject, events: list[Event]) -> None:
        delta = as_object(item.get("delta"))
        values = without_keys(delta, "stop_reason")
        if not _MESSAGE_DELTA_KEYS.issuperset(item):
            values |= without(item, _MESSAGE_DELTA_KEYS)
        if values:
            self._add_metadata(values, events)
        self._count_usage(item.get("usage"), events)
        self._take_stop_reason(delta.get("stop_reason"), events)

    def _fail(self, item: WireObject, events: list[Event]) -> None:
        """An error ends the answer. After the end it changes nothing."""
        if self._has_ended:
            events.append(RawEvent("error", item))  # though it may have no type
            return
        self._blocks.cut("failed", events)
        self._has_failed = self._has_ended = True
        self._readers, self._common_readers = {}, {}
        self.complete = self._blocks.is_ending = True
        run = Run(status="failed", error=error_of(item), metadata={**self._metadata}, raw=item)
        events.append(RunDone(run))

    # What reads each type of item, until an error ends the answer.
    _readers: Mapping[str, Callable[[Any, WireObject, list[Event]], None]] = {
        "ping": _ping,
        "message_start": _message_start,
        "content_block_start": _block_start,
        "content_block_delta": _block_delta,
        "content_block_stop": _block_stop,
        "message_delta": _message_delta,
        "message_stop": _message_stop,
        "message": _complete_message,
        "error": _fail,
    }


share_names(
    Decoder,
    """new_id index complete exhausted _blocks _held _has_begun _has_ended _usage _metadata frames continues_in_next_source
    _is_another_answer""",
)
