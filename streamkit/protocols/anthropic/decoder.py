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
from typing import Any, ClassVar, cast

from ... import events as e
from ... import messages as m
from ...messages.json_text import NOT_JSON, has_surrogates
from ...messages.sdk_objects import PLAIN_KINDS, fields_of
from .. import base
from ..frames import Frames, as_frame
from ..held_values import NOTHING, HeldSize, add_values
from ..values import WireObject, as_object, as_text, is_list, is_object, text_or_none, without, without_keys
from .content import ContentBlocks, MessageIds
from .shape import recognises
from .wire import (
    HELPER_EVENTS,
    PAUSE_REASONS,
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
    usage_of,
)

__all__ = ["Decoder"]

# What a frame raises that is not what it is read as: another item, or one with an SSE id or name, which is a tuple.
_UNUSUAL = (KeyError, TypeError, *NOT_JSON)

# The keys of a message, and of its delta, that are not metadata of the run.
_MESSAGE_KEYS = frozenset({"id", "type", "role", "content", "model", "usage", "stop_reason"})
_MESSAGE_DELTA_KEYS = frozenset({"type", "delta", "usage"})


class Decoder(base.Decoder):
    """A stream of the Messages API, or one answer that is not streamed."""

    name = "anthropic"
    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset({b"error"})

    # Where a stream begins.
    _is_another_answer = False
    _has_failed = False
    _has_begun = False
    _has_ended = False
    _usage = NOTHING
    _metadata = NOTHING  # most answers have none
    _held: HeldSize | None = None

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._blocks = ContentBlocks(MessageIds(self.new_id))

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether it is one of this API's items, and cannot be one of the Assistants API's."""
        return recognises(item)

    # -- the fast path: items in their common form

    def feed_frames(self, frames: Frames) -> list[e.Event]:
        """The events of frames. Most servers send each item alone."""
        if len(frames) != 1:
            return self._feed_several(frames)
        self.frames = frames
        frame: Any
        (frame,) = frames
        try:
            item = decode_common(frame)
            delta = item.delta
            if delta is not None:
                struct, message_id, make_event, _, _ = self._blocks.growing[item.index]
                if delta.__class__ is struct:
                    self.index += 1
                    return [make_event(message_id, delta.piece, raw_item=frame)]
                if struct is None and delta.__class__ is InputDelta:
                    self.index += 1
                    pieces: list[e.Event] = make_event(delta.piece, frame)
                    return pieces
                return self._other_frame(frame)
            read = self._common_readers[item.__class__]
        except _UNUSUAL:
            return self._other_frame(frame)
        events: list[e.Event] = []
        try:
            read(self, item, events)
        except Exception as error:
            events = [self.fault(error, self._parsed())]
        index = self.index
        for event in events:
            event.raw_item = frame
            event.item_index = index
        self.index = index + 1
        return events

    def _feed_several(self, frames: Frames) -> list[e.Event]:
        """As `feed_frames`, of a run of frames. In it the deltas are read without a call."""
        events: list[e.Event] = []
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

    def _read_ping(self, item: Ping, events: list[e.Event]) -> None:
        events.append(e.RawEvent("ping", {"type": "ping"}))

    def _read_message_start(self, item: MessageStart, events: list[e.Event]) -> None:
        raw = item.message
        message = None if self._has_begun or self._has_ended else started_message(raw)
        if message is None:
            self._message(raw, events)
            self._warn(events)
            return
        self._has_begun = True
        self._blocks.group = message.id or None
        raw.pop("content", None)
        events.append(e.RunCreated(e.Run(id=message.id, model=message.model, metadata={**self._metadata}, raw=raw)))
        if message.usage:
            self._count_usage(message.usage, events)

    def _read_block_start(self, item: BlockStart, events: list[e.Event]) -> None:
        if not self._blocks.start(item.place, item.block, events):
            events.append(e.RawEvent("content_block_start", self._parsed()))
        if self._blocks.faults:
            self._warn(events)

    def _read_block_stop(self, item: BlockStop, events: list[e.Event]) -> None:
        if not self._blocks.stop(item.place, events):
            events.append(e.RawEvent("content_block_stop", self._parsed()))

    def _read_message_delta(self, item: MessageDelta, events: list[e.Event]) -> None:
        usage = item.usage
        if usage and not usage.items() <= self._usage.items():
            self._count_usage(usage, events)
        self.complete = True
        self._blocks.take_stop_reason(item.ending.stop_reason, events)

    def _read_message_stop(self, item: MessageStop, events: list[e.Event]) -> None:
        self._end(events)

    def _parsed(self) -> WireObject:
        """The current item, which was fed alone."""
        assert self.frames is not None
        item: WireObject = decode_item(cast("bytes", self.frames[0]))
        return item

    # What reads an item in its common form, until an error ends the answer.
    _common_readers: Mapping[type, Callable[[Any, Any, list[e.Event]], None]] = {
        Ping: _read_ping,
        MessageStart: _read_message_start,
        BlockStart: _read_block_start,
        BlockStop: _read_block_stop,
        MessageDelta: _read_message_delta,
        MessageStop: _read_message_stop,
    }

    def plain_event(self, item: Any) -> e.Event | None:
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
            event: e.Event = make_event(message_id, text, raw_item=item)
            return event
        return None

    # -- the tolerant path. What reads an item adds its events to `events`

    def sentinel(self, data: bytes) -> Iterable[e.Event]:
        """None: this API has no `[DONE]`, and a server that sends one may have cut the answer short."""
        if self.exhausted:
            self._common_readers = {}
            self._blocks.growing.clear()
        return ()

    def _other_frame(self, frame: Any) -> list[e.Event]:
        """The events of a frame that is no delta of an open block: as `feed_frame` makes them, of an item of a known type
        by fewer steps."""
        if self.exhausted:
            return []
        try:
            item = decode_item(frame)
            read = self._readers[item["type"]]
        except _UNUSUAL:
            return self.feed_frame(*as_frame(frame))
        if self.foreign_decoder is not None and self.foreign_decoder(item) is not None:
            return self.feed_frame(b"", b"", frame)
        events: list[e.Event] = []
        try:
            read(self, item, events)
        except Exception as error:
            events = [self.fault(error, item)]
        if self._blocks.faults:
            self._warn(events)
        index = self.index
        for event in events:
            event.raw_item = frame
            event.item_index = index
        self.index = index + 1
        return events

    def feed(self, item: WireObject) -> Iterable[e.Event]:
        """The events of one item, then the warnings about it."""
        kind = as_text(item.get("type"))
        events: list[e.Event] = []
        self._readers.get(kind, Decoder._other)(self, item, events)
        self._warn(events)
        return events

    def _warn(self, events: list[e.Event]) -> None:
        """Add the warnings about the current item."""
        if faults := self._blocks.faults:
            events += [self.warn(code, fault) for code, fault in faults]
            faults.clear()

    def finish(self) -> Iterable[e.Event]:
        """The end of the answer, as far as the source said how it ended."""
        events: list[e.Event] = []
        if self.complete and not self._has_ended:
            self._end(events)
        self._blocks.cut("incomplete", events)
        return events

    def _block_start(self, item: WireObject, events: list[e.Event]) -> None:
        index = self._blocks.index_of(item, starts=True)
        if not self._blocks.start(index, as_object(item.get("content_block")), events):
            events.append(e.RawEvent("content_block_start", item))

    def _block_delta(self, item: WireObject, events: list[e.Event]) -> None:
        index = self._blocks.index_of(item)
        if not self._blocks.delta(index, as_object(item.get("delta")), events):
            events.append(e.RawEvent("content_block_delta", item))

    def _block_stop(self, item: WireObject, events: list[e.Event]) -> None:
        if not self._blocks.stop(self._blocks.index_of(item), events):
            events.append(e.RawEvent("content_block_stop", item))

    def _message_start(self, item: WireObject, events: list[e.Event]) -> None:
        self._message(as_object(item.get("message")), events)

    def _message_stop(self, item: WireObject, events: list[e.Event]) -> None:
        # Bedrock's metrics are here, and the complete message that the SDK's helper adds.
        if len(item) > 1:
            self._add_metadata(without_keys(item, "type", "message"), events)
        self._end(events)

    def _complete_message(self, item: WireObject, events: list[e.Event]) -> None:
        self._message(item, events)
        self._blocks.stop_reason = self._blocks.stop_reason or text_or_none(item.get("stop_reason"))
        self._end(events)

    def _ping(self, item: WireObject, events: list[e.Event]) -> None:
        events.append(e.RawEvent("ping", item))

    def _other(self, item: WireObject, events: list[e.Event]) -> None:
        """An item of another type, or without one, or that comes after an error."""
        kind = as_text(item.get("type"))
        if self._has_failed or (kind and kind not in HELPER_EVENTS):
            events.append(e.RawEvent(kind, item))
        elif not kind and item.get("error") is not None:
            self._fail(item, events)
        elif not kind:
            self._blocks.warn("no-type", "it has no type and was skipped")

    # -- the message

    def _message(self, message: WireObject, events: list[e.Event]) -> None:
        """A message begins, perhaps with complete content."""
        id = as_text(message.get("id"))
        if self._has_begun and not self._has_ended:
            is_same = id == (self._blocks.group or "")
            self._blocks.warn("duplicate-start", _BEGAN_TWICE if is_same else _BEGAN_TOO_EARLY)
            if is_same:
                self._count_usage(message.get("usage"), events)
                return
            self._blocks.cut("incomplete", events)
            self._has_ended = True
        if self._has_ended:
            self._blocks.restart()
            self._has_ended = self.complete = False
            self._usage, self._metadata = NOTHING, NOTHING
            self._is_another_answer = True
        self._has_begun = True
        self._blocks.group = id or None
        if others := without(message, _MESSAGE_KEYS):
            self._add_metadata(others, events)
        raw = {**message}
        raw.pop("content", None)
        model = text_or_none(message.get("model"))
        events.append(e.RunCreated(e.Run(id=id, model=model, metadata={**self._metadata}, raw=raw or None)))
        if self._is_another_answer:
            events.append(e.RunStepCreated(e.RunStep()))
        if content := message.get("content"):
            for index, block in enumerate(self._content(content)):
                self._blocks.add_complete(block, index, events)
        self._count_usage(message.get("usage"), events)
        if content:  # without content, a stop_reason is a placeholder
            self._take_stop_reason(message.get("stop_reason"), events)

    def _content(self, content: Any) -> list[WireObject]:
        """The blocks of a message. Text in place of a block, or of all of them, is read as a text block."""
        parts: list[Any] = content if is_list(content) else [content]
        blocks: list[WireObject] = []
        for part in parts:
            if not is_object(part):
                how = "read as a text block" if isinstance(part, str) else "skipped"
                self._blocks.warn("bad-content", f"its content has a {type(part).__name__}, not a block; it was {how}")
            blocks.append({"type": "text", "text": part} if isinstance(part, str) else as_object(part))
        return blocks

    def _message_delta(self, item: WireObject, events: list[e.Event]) -> None:
        delta = as_object(item.get("delta"))
        values = without_keys(delta, "stop_reason")
        if not _MESSAGE_DELTA_KEYS.issuperset(item):
            values |= without(item, _MESSAGE_DELTA_KEYS)
        if values:
            self._add_metadata(values, events)
        self._count_usage(item.get("usage"), events)
        self._take_stop_reason(delta.get("stop_reason"), events)

    def _count_usage(self, usage: Any, events: list[e.Event]) -> None:
        """The usage, where it changed. It is cumulative: a count that is not repeated stays."""
        if usage is None:
            return
        if usage.__class__ is not dict and not is_object(usage):
            self._blocks.warn("bad-usage", "its usage is not an object and was skipped")
            return
        if self._usage is NOTHING:
            self._usage = {}
        if changed := add_values(self._usage, without_keys(usage)):
            self._hold(changed, events)
            events.append(usage_of(self._usage))

    def _add_metadata(self, values: WireObject, events: list[e.Event]) -> None:
        """Add to the run's metadata. Its size is reported."""
        if self._metadata is NOTHING:
            self._metadata = {}
        if changed := add_values(self._metadata, values):
            self._hold(changed, events)

    def _hold(self, values: WireObject, events: list[e.Event]) -> None:
        if self._held is None:
            self._held = HeldSize()
        if size := self._held.add(values):
            events.append(e.MetadataHeld(None, size))

    def _take_stop_reason(self, reason: Any, events: list[e.Event]) -> None:
        """A stop_reason says how the message ends."""
        if reason is None:
            return
        self.complete = self._blocks.is_ending = True
        if reason and isinstance(reason, str):
            self._blocks.take_stop_reason(reason, events)
        else:
            self._blocks.warn("bad-stop-reason", f"its stop_reason is {reason!r}, not text; read as the message's end")

    # -- its end

    def _end(self, events: list[e.Event]) -> None:
        """The answer is over, and with it the run, unless another answer follows."""
        self.complete = self._blocks.is_ending = True
        if self._has_ended:
            return
        blocks = self._blocks
        status = blocks.end(events)
        reason = blocks.stop_reason
        self._has_ended = True
        self.continues_in_next_source = reason in PAUSE_REASONS
        if reason == "refusal":
            self._explain_refusal(events)
        events.append(e.RunDone(e.Run(status=status, finish_reason=reason, metadata={**self._metadata})))

    def _explain_refusal(self, events: list[e.Event]) -> None:
        details = as_object(self._metadata.get("stop_details"))
        if explanation := as_text(details.get("explanation")):
            group, metadata = self._blocks.group, {"stop_details": dict(details)}
            refusal = m.RefusalMessage(
                self._blocks.ids.refusal(group), content=explanation, group=group, metadata=metadata
            )
            events.append(e.MessageDone(refusal))

    def _fail(self, item: WireObject, events: list[e.Event]) -> None:
        """An error ends the answer. After the end it changes nothing."""
        if self._has_ended:
            events.append(e.RawEvent("error", item))  # though it may have no type
            return
        self._blocks.cut("failed", events)
        self._has_failed = self._has_ended = True
        self._readers, self._common_readers = {}, {}
        self.complete = self._blocks.is_ending = True
        run = e.Run(status="failed", error=error_of(item), metadata={**self._metadata}, raw=item)
        events.append(e.RunDone(run))

    # What reads each type of item, until an error ends the answer.
    _readers: Mapping[str, Callable[[Any, WireObject, list[e.Event]], None]] = {
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


_BEGAN_TWICE = "the message began twice; the second start was dropped"
_BEGAN_TOO_EARLY = "another message began before this one had ended; it was ended here"
