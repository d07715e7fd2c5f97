"""Decodes the batches of one source: frames its bytes, recognises its protocol, and decodes its items to events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec

from ..core.delivery import NO_MORE, NO_SHORTCUT, Shortcut
from ..core.engine import Engine
from ..core.steps import END
from ..errors import IncompleteStreamError, ProtocolError, StreamkitError, raise_source_error
from ..events import Event, Run, RunDone, StreamWarning
from ..messages.json_text import read_json
from ..messages.sdk_objects import PLAIN_KINDS, as_item
from ..protocols import registry
from ..protocols.base import Decoder, OwnEvents
from ..protocols.framing import Framer, Frames, as_data, as_frame, framer_for, is_frame
from ..shared_names import share_names
from .chained import UpstreamConfirmations
from .held_items import error_in, is_plain, parsed_item, protocol_of
from .live import ForeignQuestions, decoder_of_possible_question, ends_with_question, expect_questions
from .source import LIVE, NO_TRAITS, AsyncSource, Source, SourceTraits

if TYPE_CHECKING:
    from ..core.argument_fields import ArgumentFields
    from ..core.resume import Resumption

__all__ = ["ItemDecoder", "SourceDecoder"]

_BYTES, _TUPLE, _OWN = frozenset({bytes}), frozenset({tuple}), frozenset({OwnEvents})  # classes of batches
_OTHER = (
    tuple,
    Event,
    int,
)  # classes of a batch's elements that are no parsed items: a frame, an event, one of the bytes
_PLAIN_ITEMS = (str, bytes, dict, tuple)  # any of which may be an item of a protocol: a frame is a tuple
_SHOWN = 60  # bytes of an unknown source that an error shows
_UNRECOGNISED_LIMIT = 200  # items held while the protocol is not known


_ENDED = Source(iter(()), lambda: None)  # the source of a stream that is over


class SourceDecoder:
    """Decodes the batches of one source to events. A stream has one for each source that it reads.

    If the protocol was not named, it holds items until one has a shape that only one protocol has, then decodes all of them.

    Args:
        source: what is read.
        engine: the stream's.
        kind: the decoder's class; None if the protocol is to be recognised.
        receivers: are called with each batch of frames or items before it is decoded: those of recorders.
        after: the cursor after which the stream resumes; None for the beginning.
        fields: makes messages of the arguments that `fields=` names.

    Attributes:
        source: what is read.
        decoder: None until the protocol is known.
        cut: the bytes of the item in the middle of which the source ended; the source's first bytes, if no item was
            complete. None before the source's end, and if it ended between two items.
        is_over: whether the source has ended, and its last events were handled.
        shortcut: how the delta loop decodes batches by itself, once nothing but the framer and the decoder takes part.
        resumption: skips what comes before the cursor; None if the source is read from its beginning.
    """

    _framer: Framer | None = None
    _start = b""
    _seen = b""  # the source's first bytes, until the protocol is known
    _held: tuple[Any, ...] = ()  # items, until the protocol is known
    decoder: Decoder | None = None
    shortcut: Shortcut = NO_SHORTCUT
    resumption: Resumption | None = None
    # Makes events of parsed items, once nothing but the decoder takes part. Batches of bytes may still come between.
    _of_items: Callable[[Sequence[Any]], Sequence[Event]] | None = None
    cut: bytes | None = None
    is_over = False
    _upstream: UpstreamConfirmations | None = None
    _foreign: ForeignQuestions | None = None
    _read_to_end = False  # reading goes on after the decoder is exhausted
    _was_complete: bool | None = None  # what `complete` was when the stream ended

    def __init__(
        self,
        source: Source | AsyncSource,
        engine: Engine,
        kind: type[Decoder] | None,
        receivers: Sequence[Callable[[Sequence[Any]], None]],
        after: str | None,
        fields: ArgumentFields | None = None,
    ) -> None:
        self.source = source
        self._engine = engine
        self._receivers = receivers
        self._fields = fields
        engine.pull_approves = engine.pull_approved = engine.has_outcomes = False
        traits = source.traits
        if traits is not NO_TRAITS and traits is not LIVE:  # most sources have one of these two
            kind, after = self._take_traits(traits, kind, after)
        if after is not None:
            self.resumption = _resumption(after, engine)
        if kind is not None:
            self._decode_with(kind)

    def _take_traits(
        self, traits: SourceTraits, kind: type[Decoder] | None, after: str | None
    ) -> tuple[type[Decoder] | None, str | None]:
        """Apply the traits of the source. Returns the decoder's class and the cursor to resume after, each None if unknown."""
        self._read_to_end = traits.read_to_end
        self._engine.has_outcomes = traits.was_answered
        if traits.chunks is not None:
            self._upstream = UpstreamConfirmations(traits.chunks, self._engine)
        if traits.resume is not None:
            after = traits.resume(after)
        if name := traits.protocol or (traits.recorded_protocol if kind is None else None):
            kind = registry.find(name).Decoder
        return kind, after

    # -- its state

    @property
    def exhausted(self) -> bool:
        """Whether nothing more can come, so that the source need not be pulled again."""
        decoder = self.decoder
        return decoder is not None and decoder.exhausted and not self._read_to_end

    @property
    def continues_in_next_source(self) -> bool:
        """Whether the answer goes on in another source."""
        return self.decoder is not None and self.decoder.continues_in_next_source

    # -- batches

    def decode(self, batch: Any) -> Sequence[Event]:
        """The events of a batch of the source: bytes, or a list of frames or of items. `NO_MORE` of its end."""
        if batch is None or batch is END:
            return NO_MORE
        kinds, to_frames, to_events = self.shortcut
        return to_events(to_frames(batch)) if batch.__class__ in kinds else self._decode_batch(batch)

    def _decode_batch(self, batch: Any) -> Sequence[Event]:
        """The events of a batch that the shortcut does not take. Sets the shortcut for the next ones, where there can be one."""
        if (of_items := self._of_items) is not None:
            kind = batch.__class__
            if kind is tuple or kind is OwnEvents or (batch and not isinstance(batch[0], _OTHER)):
                return of_items(batch)
        events = self._decode(batch)
        if self._fields is not None or self.resumption is not None:
            events = self._filtered(events)
        if (decoder := self.decoder) is None:
            if type(batch) is bytes and len(self._seen) < _SHOWN:
                self._seen += batch[:_SHOWN]
        elif not self._receivers and self.resumption is None:
            if self._framer is not None:
                self.shortcut = _BYTES, self._frames_of_bytes(self._framer), self._with_fields(decoder.feed_frames)
            elif self._upstream is None and type(batch) is not bytes:  # whose framing does not show yet
                self._of_items = self._with_fields(decoder.feed_items)
                is_own = batch.__class__ is OwnEvents
                self.shortcut = (_OWN, self._of_items, tuple) if is_own else self._shortcut_of_items(decoder)
        return events

    def _with_fields(self, feed: Callable[[Any], Sequence[Event]]) -> Callable[[Any], Sequence[Event]]:
        """A function that returns what this one does, and the events of the messages that `fields=` makes of it."""
        if self._fields is None:
            return feed
        fields = self._fields.feed
        return lambda batch: fields(feed(batch))

    def _frames_of_bytes(self, framer: Framer) -> Callable[[bytes], Frames]:
        return framer.feed if framer.is_question is None else framer.feed_live

    def _shortcut_of_items(self, decoder: Decoder) -> Shortcut:
        return _TUPLE, tuple, self._with_fields(decoder.feed_items)

    def _filtered(self, events: Sequence[Event]) -> Sequence[Event]:
        """These events, with the messages that `fields=` makes of them, and without what comes before the cursor."""
        if self._fields is not None:
            events = self._fields.feed(events)
        return events if self.resumption is None else self.resumption.feed(events)

    def _decode(self, batch: Any) -> Sequence[Event]:
        if type(batch) is bytes:
            if (framer := self._framer) is None:
                return self._decode_first(batch)
            return self._decode_frames(framer.feed(batch) if framer.is_question is None else framer.feed_live(batch))
        if batch and type(batch[0]) is tuple:
            return self._decode_frames(batch)
        decoder = self.decoder
        if decoder is not None and decoder.name != "streamkit" and batch and isinstance(batch[0], Event):
            return [msgspec.structs.replace(event) for event in batch]  # a recording's answers
        if self._receivers:
            batch = [*map(as_item, batch)]
        for receive in self._receivers:
            receive(batch)
        if decoder is None:
            return self._recognise(batch, parsed=True)
        events = decoder.feed_items(batch)
        return events if self._upstream is None else self._upstream.link(events)

    def _decode_first(self, chunk: bytes) -> Sequence[Event]:
        """The events of the first bytes, once they show how the source is framed. Until then they are held."""
        start = (self._start + chunk).lstrip(b" \t\r\n")
        self._framer = framer = framer_for(start, self._engine.limits.line)
        if framer is None:
            self._start = start
            return ()
        self._start = b""
        framer.sizes = self._engine
        if self.decoder is not None:
            self._drop_event_names()
        if not self.source.traits.live:
            return self._decode_frames(framer.feed(start))
        framer.is_question = ends_with_question
        return self._decode_frames(framer.feed_live(start))

    def _decode_frames(self, frames: Frames) -> Sequence[Event]:
        for receive in self._receivers:
            receive(frames)
        if self.decoder is None:
            return self._recognise(frames, parsed=False)
        return _decode_frames_with(self.decoder, frames)

    # -- protocols

    def _recognise(self, batch: Sequence[Any], *, parsed: bool) -> Sequence[Event]:
        """Hold items until one has a shape that only one protocol has, then decode them all."""
        held = (*self._held, *batch)
        for number, item in enumerate(batch, len(self._held)):
            kind = protocol_of(item, parsed=parsed)
            if kind is None and self.may_ask:
                kind = decoder_of_possible_question(parsed_item(item))
            if kind is not None:
                break
            if number >= _UNRECOGNISED_LIMIT:
                raise _unrecognised(held[0])
        else:
            self._held = held
            return ()
        self._held = ()
        decoder = self._decode_with(kind)
        if len(held) == 1:
            return decoder.feed_items(held) if parsed else _decode_frames_with(decoder, held)
        events: list[Event] = []
        for are_frames, group in groupby(held, is_frame):  # a source may have both
            items = [*group]
            events += _decode_frames_with(decoder, items) if are_frames else decoder.feed_items(items)
            if not are_frames:
                decoder.frames = None  # they are not the newest any more
        return events

    def _decode_with(self, kind: type[Decoder]) -> Decoder:
        """Make the decoder of the source's items."""
        self._engine.begin_source()
        self.decoder = self._engine.decoder = decoder = kind(self._engine.new_id)
        self._seen = b""
        self._engine.is_canonical = decoder.name == "streamkit"
        if self.may_ask:
            if kind.pull_approves:
                expect_questions(self._engine, live=self.source.traits.live)
            else:
                self._foreign = ForeignQuestions(decoder, self._engine, live=self.source.traits.live)
                decoder.foreign_decoder = self._foreign
        self._drop_event_names()
        return decoder

    @property
    def may_ask(self) -> bool:
        """Whether the source is, or was when it was recorded, a producer in this process that may ask a question, and takes it
        as approved when the next item is pulled."""
        return self.source.traits.live or self.source.traits.was_live

    def _drop_event_names(self) -> None:
        """Let the framer leave out the event names that the decoder ignores, where nobody else receives the frames."""
        assert self.decoder is not None
        if self._framer is not None and not self._receivers:
            self._framer.expect_names(self.decoder.sse_event_names)

    # -- its end

    def release(self) -> None:
        """Drop the references to handlers and to the decoder's newest items, once nothing more comes."""
        self._receivers, self.shortcut, self._of_items = (), NO_SHORTCUT, None
        if self.decoder is not None and not self.is_over:
            self.decoder.foreign_decoder = None
            self.decoder.forget()

    def end(self) -> None:
        """The stream is over: keep only what says how the source ended."""
        if not self.is_over:
            self.release()
        self._was_complete = self.complete
        self.source = _ENDED
        if self.decoder is not None:
            self.decoder = self.decoder.remainder()
        self.resumption = self._fields = self._framer = self._upstream = self._foreign = None

    def finish(self, *, not_approved: bool) -> Iterator[Sequence[Event]]:
        """The events of the source's end: the rest of its bytes, then what its decoder reports at the end. Each is to be
        handled before the next is requested."""
        if self._framer is not None and not self.exhausted and (rest := self._framer.finish()):
            complete = [frame for frame in rest if _is_complete(as_frame(frame)[2])]
            yield self._filtered(self._decode_frames(complete))
            if len(complete) != len(rest):
                self._take_cut(as_frame(rest[-1])[2])
        if self._start or (self.decoder is None and not self._held and self._seen):
            self._take_cut(self._start)
        if (recorded := self.source.traits.recorded_end) is not None and recorded.cut is not None:
            self._take_cut(recorded.cut)
        for decoder in () if not_approved else self._decoders:
            if self.cut is not None:
                decoder.is_cut = True
            if events := self._filtered(_events_at_end(decoder)):
                yield events
        if self.decoder is not None and self._upstream is not None:
            yield self._filtered(self._upstream.finish())
        if self.decoder is None and self._held:
            yield self._filtered(self._held_error())
        self.release()
        self.is_over = True
        if self.resumption is not None:
            self.resumption.finish()

    @property
    def _decoders(self) -> Sequence[Decoder]:
        """The decoder, and that of the questions of another protocol among its items, as far as there are any."""
        if self.decoder is None:
            return ()
        foreign = self._foreign.decoder if self._foreign is not None else None
        return (self.decoder,) if foreign is None else (self.decoder, foreign)

    def _take_cut(self, rest: bytes) -> None:
        """The source has ended in the middle of an item."""
        if self.decoder is None and not self._held:
            rest = self._seen = self._seen or rest
        self.cut = rest

    @property
    def complete(self) -> bool:
        """Whether a protocol's terminal rule is met, or there is nothing that one could apply to."""
        if self._was_complete is not None:
            return self._was_complete
        if (decoder := self.decoder) is None:
            return bool(self._held)  # which was an error
        if decoder.complete or (self._upstream is not None and self._upstream.cancelled):
            return True
        return any(decoder.complete for decoder in self._decoders)

    def incomplete(self) -> StreamkitError:
        """The error that says where the source was cut off, or that it never was a stream."""
        decoder = self.decoder
        if decoder is None and is_plain(self._seen):
            return ProtocolError(
                "unknown-protocol",
                f"the source is text in no known framing: it begins with {self._seen[:_SHOWN]!r}. Known are Server-Sent "
                "Events and lines of JSON. Text that has no protocol can be passed on with an Emitter: "
                "`emitter.text(piece)` for each piece",
                index=0,
            )
        name = f"the {decoder.name} stream" if decoder else "the source"
        how = "in the middle of an item" if self.cut is not None else f"after {decoder.index} items" if decoder else ""
        if not decoder:
            how = f"without {'a complete' if self._seen else 'any'} item"
        seen = f"; it begins with {self._seen[:_SHOWN]!r}" if self._seen and not decoder else ""
        if not decoder and not self._seen:
            seen = "; one that was read before has none left"
        if decoder is not None and self._engine.runs.run is None and decoder.index:
            return IncompleteStreamError(
                f"none of the source's {decoder.index} items is one of {decoder.name}; is `protocol=` right?"
            )
        return IncompleteStreamError(f"{name} was cut off: it ended {how}, before its protocol's end{seen}")

    def _held_error(self) -> Sequence[Event]:
        """The failed run of a source that was nothing but an error, which has about the same shape in every protocol.
        Nothing for one that has only `[DONE]`: it is complete, and empty."""
        if all(parsed_item(held) == "[DONE]" for held in self._held):
            return []
        for held in self._held:
            if (error := error_in(held)) is not None:
                return [RunDone(Run(status="failed", error=error, raw=parsed_item(held)))]
        raise _unrecognised(self._held[0])


_NAMES = """source decoder resumption cut is_over _engine _receivers _fields _read_to_end _framer _start _seen _held shortcut
_of_items _upstream _foreign _was_complete"""
share_names(SourceDecoder, _NAMES)


class ItemDecoder(SourceDecoder):
    """Decodes a source that gives one item at a time: an object, or bytes or text of a body."""

    _has_rows = False  # whether the shortcut makes an `ItemRow` of an item

    def _frames_of_bytes(self, framer: Framer) -> Callable[[bytes], Frames]:
        """What makes frames of a piece of a body, which may be a line without its newline."""
        assert self.source.items is not None
        items, to_frames = self.source.items, super()._frames_of_bytes(framer)
        if items.is_plain:
            return to_frames
        items.to_frames = to_frames
        return items.feed_frames

    def _shortcut_of_items(self, decoder: Decoder) -> Shortcut:
        kind, source = type(decoder), self.source
        has_no_plain = kind.plain_item is None and kind.plain_event is Decoder.plain_event
        has_no_plain = has_no_plain or kind.feed_item is not Decoder.feed_item
        if self._fields is not None or has_no_plain:
            # A tuple of one event stays the same.
            return PLAIN_KINDS, decoder.feed_item, tuple if self._fields is None else self._fields.feed
        from .item_row import row_as_it_is, rows_of  # for few streams

        self._has_rows = True
        return PLAIN_KINDS, rows_of(source, decoder, self._engine, self._decode_alone), row_as_it_is

    def decode(self, batch: Any) -> Sequence[Event]:
        """As `SourceDecoder.decode`, of one item."""
        if batch is END:
            return NO_MORE
        kinds, to_frames, to_events = self.shortcut
        if batch.__class__ not in kinds:
            return self._decode_alone(batch)
        if self._has_rows and self.decoder is not None:
            return self.decoder.feed_item(batch)
        return to_events(to_frames(batch))

    def _decode_alone(self, batch: Any) -> Sequence[Event]:
        """The events of an item of any kind."""
        assert self.source.items is not None
        try:
            prepared = self.source.items.batch(batch)
        except Exception as error:
            raise_source_error(error)
        return self._decode_batch(prepared)


share_names(ItemDecoder, _NAMES)


def _unrecognised(first: Any) -> StreamkitError:
    """The error about a source whose protocol was not recognised. `first` is its first item."""
    kind, hint = "", f"give `protocol=`, one of: {', '.join(registry.names())}"
    if not isinstance(first, _PLAIN_ITEMS):
        kind = f"the {type(first).__module__}.{type(first).__qualname__} "
        hint = (
            "objects of another framework are no stream of a protocol: pass the stream of the model's client, or report what "
            "they say with an `Emitter`"
        )
    return ProtocolError(
        "unknown-protocol", f"no protocol has items like {kind}{repr(parsed_item(first))[:200]}; {hint}", index=0
    )


def _resumption(after: str, engine: Engine) -> Resumption:
    from ..core.resume import Resumption

    return Resumption(after, engine)


def _decode_frames_with(decoder: Decoder, frames: Frames) -> list[Event]:
    """The events of frames whose event names were left in: the decoder gets those that it ignores as data alone."""
    return decoder.feed_frames(frames if decoder.sse_event_names is None else as_data(frames, decoder.sse_event_names))


def _events_at_end(decoder: Decoder) -> list[Event]:
    """What a decoder reports at the end. A fault that it finds there is no single item's."""
    events = [*decoder.finish()]
    for event in events:
        if isinstance(event, StreamWarning) and event.index == decoder.index:
            event.index = None
    return events


def _is_complete(data: bytes) -> bool:
    """Whether the data of a frame that only the end of the stream closed is complete."""
    return data.startswith(b"[DONE") or read_json(data) is not None
