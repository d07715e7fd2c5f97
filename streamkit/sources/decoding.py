"""Decodes the batches of one source: cuts its bytes into frames, recognises its protocol, and decodes its items to events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ..core.engine import Engine
from ..core.steps import END
from ..errors import StreamkitError, raise_source_error
from ..events import Event
from ..messages.sdk_objects import as_item
from ..protocols import registry
from ..protocols.base import Decoder
from ..protocols.framing import Framer, Frames, as_data, as_frame, framer_for, is_frame, without_leading_space
from .body import Piece
from .chunks import UpstreamConfirmations
from .held_items import cut_off, events_at_end, failed_run, is_complete, is_text, protocol_among
from .items import Items, is_parsed
from .live import ForeignQuestions, ends_with_question, foreign_questions
from .source import AsyncSource, Source, SourceTraits

if TYPE_CHECKING:
    from ..core.resume import Resumption

__all__ = ["SourceDecoder", "Stage"]

_SHOWN = 60  # bytes of an unknown source that an error may show

_ENDED = Source(iter(()), lambda: None)  # the source of a stream that is over


class Stage(Protocol):
    """Changes the events of a stream, or looks at them, between the decoder and the engine."""

    def feed(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return these events, changed."""
        ...


class SourceDecoder:
    """Decodes the batches of one source to events. A stream has one for each source that it reads.

    If the protocol was not named, it holds items until one has a shape that only one protocol has, then decodes all of them.

    Args:
        source: the source.
        engine: the stream's.
        kind: the decoder's class; None if the protocol is to be recognised.
        receivers: are called with each batch of frames or items before it is decoded: those of recorders.
        after: the cursor after which the stream resumes; None for the beginning.
        stages: get its events, one after the other, and change them: those of `reasoning_tag=` and `fields=`.
        clock: gets the events of them that come after the cursor: that of `timeouts=`.

    Attributes:
        source: what is read.
        decoder: None until the protocol is recognised.
        cut: the bytes of the item in the middle of which the source ended; the source's first bytes, if no item was
            complete. None before the source's end, and if it ended between two items.
        is_over: whether the source has ended, and its last events were handled.
        resumption: skips what comes before the cursor; None if the source is read from its beginning.
    """

    __slots__ = (
        "__weakref__",
        "_direct_bytes",
        "_direct_items",
        "_engine",
        "_first_bytes",
        "_foreign_questions",
        "_framer",
        "_held",
        "_read_to_end",
        "_receivers",
        "_stages",
        "_start",
        "_upstream",
        "_was_complete",
        "cut",
        "decoder",
        "is_over",
        "resumption",
        "source",
    )

    def __init__(
        self,
        source: Source | AsyncSource,
        engine: Engine,
        kind: type[Decoder] | None,
        receivers: Sequence[Callable[[Sequence[Any]], None]],
        after: str | None,
        stages: Sequence[Stage | None] = (),
        clock: Stage | None = None,
    ) -> None:
        self.source = source
        self.decoder: Decoder | None = None
        self.cut: bytes | None = None
        self.is_over = False
        self.resumption: Resumption | None = None
        self._engine = engine
        self._receivers = receivers
        self._framer: Framer | None = None
        # The direct ways from a batch to its events, once nothing else takes part: see `_find_direct_ways`.
        self._direct_bytes: tuple[Callable[[bytes], Frames], Callable[[Frames], Sequence[Event]]] | None = None
        self._direct_items: Callable[[Sequence[Any]], Sequence[Event]] | None = None
        self._start: Any = b""  # bytes that do not show yet how they are framed, or a `Piece` that may be plain text
        self._held: tuple[Any, ...] = ()  # items that do not show yet what their protocol is
        self._first_bytes = b""  # the source's first bytes, for an error; empty once there is a decoder
        self._upstream: UpstreamConfirmations | None = None  # of the stream that makes this source's chunks
        self._foreign_questions: ForeignQuestions | None = None  # items of another protocol among the source's own
        self._read_to_end = False  # reading goes on after the decoder is exhausted
        self._was_complete: bool | None = None  # what `complete` was when the stream ended
        engine.pending.pull_approves = engine.pending.pull_approved = engine.pending.has_outcomes = False
        kind, after = self._take_traits(source.traits, kind, after)
        if after is not None:
            self.resumption = _resumption(after, engine)
        self._stages = tuple(stage for stage in (*stages, self.resumption, clock) if stage is not None)
        if kind is not None:
            self._decode_with(kind)

    def _take_traits(
        self, traits: SourceTraits, kind: type[Decoder] | None, after: str | None
    ) -> tuple[type[Decoder] | None, str | None]:
        """Apply the traits of the source. Returns the decoder's class and the cursor to resume after, each None if unknown."""
        self._read_to_end = traits.read_to_end
        self._engine.pending.has_outcomes = traits.was_answered
        if traits.chunks is not None:
            self._upstream = UpstreamConfirmations(traits.chunks, self._engine)
        if traits.resume is not None:
            after = traits.resume(after)
        if name := traits.protocol or (traits.recorded_protocol if kind is None else None):
            kind = registry.decoder_of(name)
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

    def decode(self, batch: Any) -> Sequence[Event] | None:
        """Return the events of a batch of the source: bytes, a list of frames or of items, or one item of a source that yields
        items. None at its end."""
        if self._direct_bytes is not None and batch.__class__ is bytes:
            frames_of, events_of = self._direct_bytes
            return events_of(frames_of(batch))
        if self._direct_items is not None and is_parsed(batch.__class__):
            return self._direct_items((batch,))
        if batch is END or (batch is None and self.source.items is None):
            return None
        if self.source.items is not None:
            batch = _batch_of(self.source.items, batch)
        if type(batch) is Piece:
            batch = self._body_or_text(batch)
            if batch is None:
                return ()
        if type(batch) is not bytes:
            events = self._decode_items(batch)
        elif self._framer is None:
            events = self._decode_first(batch)
        else:
            events = self._decode_frames(_feed_of(self._framer)(batch))
        if self.decoder is None and type(batch) is bytes and len(self._first_bytes) < _SHOWN:
            self._first_bytes += batch[:_SHOWN]
        if self._stages:
            return self._filtered(events)
        if self.decoder is not None and not self._receivers:
            self._find_direct_ways(self.decoder)
        return events

    def _find_direct_ways(self, decoder: Decoder) -> None:
        """Let later batches of bytes go straight to the framer and the decoder, and parsed items to the decoder. The caller
        has seen that nothing else receives them."""
        items, framer = self.source.items, self._framer
        if framer is not None and (items is None or items.is_plain):
            self._direct_bytes = _feed_of(framer), decoder.feed_frames
        if items is not None and self._upstream is None:
            self._direct_items = decoder.feed_items

    def _filtered(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return these events as the stages change them."""
        for stage in self._stages:
            events = stage.feed(events)
        return events

    def _decode_items(self, batch: Any) -> Sequence[Event]:
        """Return the events of a list of items, or of frames that were cut before."""
        if batch and type(batch[0]) is tuple:
            return self._decode_frames(batch)
        if self.decoder is None and batch and not self._held and (kind := registry.recognise_object(batch[0])):
            self._decode_with(kind)
        decoder = self.decoder
        if decoder is not None and decoder.name != "streamkit" and batch and isinstance(batch[0], Event):
            return [
                msgspec.structs.replace(event) for event in batch
            ]  # answers to the stream that was recorded, which no protocol has
        if self._receivers:
            batch = [*map(as_item if decoder is None else decoder.item_of, batch)]
            for receive in self._receivers:
                receive(batch)
        if decoder is None:
            return self._recognise(batch, parsed=True)
        events = decoder.feed_items(batch)
        return events if self._upstream is None else self._upstream.link(events)

    def _body_or_text(self, piece: Piece) -> bytes | list[Any] | None:
        """Return the bytes of a piece of a body, or the item of a piece of plain text; None while that is not decided."""
        is_first = self.decoder is None and self._framer is None and not (self._held or self._first_bytes)
        if is_first and isinstance(piece.raw, str):
            if isinstance(self._start, Piece):
                piece = self._start.joined(piece)
            is_plain_text = is_text(piece.raw)
            self._start = piece if is_plain_text is None else b""
            if is_plain_text is None:
                return None
            if is_plain_text:
                self._decode_with(registry.decoder_of("text"))
        return piece.body if self.decoder is None or self.decoder.name != "text" else piece.as_text()

    def _decode_first(self, chunk: bytes) -> Sequence[Event]:
        """Return the events of the first bytes, once they show how the source is framed. Until then they are held."""
        longest = self._engine.messages.sizes.limits.line
        if self.decoder is not None and self.decoder.framer is not None:
            self._framer = self.decoder.framer(longest)
            return self._decode_frames(self._framer.feed(chunk))
        start = without_leading_space(self._start + chunk)
        self._framer = framer = framer_for(start, longest)
        if framer is None:
            self._start = start
            return ()
        self._start = b""
        framer.sizes = self._engine.messages
        if self.source.traits.live:
            framer.is_question = ends_with_question
        if self.decoder is not None:
            self._drop_event_names()
        return self._decode_frames(_feed_of(framer)(start))

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
        kind = protocol_among(held, len(self._held), parsed=parsed, may_ask=self.source.traits.may_ask)
        if kind is None:
            self._held = held
            return ()
        self._held = ()
        decoder = self._decode_with(kind)
        events: list[Event] = []
        for are_frames, group in groupby(held, is_frame):  # a source may have both
            items = [*group]
            events += _decode_frames_with(decoder, items) if are_frames else decoder.feed_items(items)
        return events

    def _decode_with(self, kind: type[Decoder]) -> Decoder:
        """Make the decoder of the source's items."""
        self._engine.messages.begin_source()
        self.decoder = decoder = kind(self._engine.messages.new_id)
        self._engine.pending.is_canonical = decoder.name == "streamkit"
        self._first_bytes = b""
        if self.source.traits.may_ask:
            self._foreign_questions = foreign_questions(decoder, self._engine, live=self.source.traits.live)
        self._drop_event_names()
        return decoder

    def _drop_event_names(self) -> None:
        """Let the framer leave out the event names that the decoder ignores, where nobody else receives the frames."""
        assert self.decoder is not None
        if self._framer is not None and not self._receivers:
            self._framer.expect_names(self.decoder.sse_event_names)

    # -- its end

    def release(self) -> None:
        """Drop the references to handlers and to the decoder's newest items, once nothing more comes."""
        self._receivers = ()
        if self.decoder is not None and not self.is_over:
            self.decoder.foreign_decoder = None
            self.decoder.forget()

    def end(self) -> None:
        """Drop all but what says how the source ended, as the stream is over."""
        if not self.is_over:
            self.release()
        self._was_complete = self.complete
        self.source = _ENDED
        if self.decoder is not None:
            self.decoder = self.decoder.remainder()
        self._stages = ()
        self.resumption = self._framer = self._direct_bytes = self._direct_items = self._upstream = (
            self._foreign_questions
        ) = None

    def finish(self, *, not_approved: bool) -> Iterator[Sequence[Event]]:
        """Yield the events of the source's end: the rest of its bytes, then what its decoder reports at the end. Each
        is to be handled before the next is requested."""
        if self._framer is not None and not self.exhausted and (rest := self._framer.finish()):
            complete = [frame for frame in rest if is_complete(as_frame(frame)[2])]
            yield self._filtered(self._decode_frames(complete))
            if len(complete) != len(rest):
                self._take_cut(as_frame(rest[-1])[2])
        if isinstance(left := self._start, Piece):
            self._start = b"" if left.body.strip() else left.body
            if left.body.strip():
                self._decode_with(registry.decoder_of("text"))
                yield self._filtered(self._decode_items(left.as_text()))
        if self._start or (self.decoder is None and not self._held and self._first_bytes):
            self._take_cut(self._start)
        if (recorded := self.source.traits.recorded_end) is not None and recorded.cut is not None:
            self._take_cut(recorded.cut)
        for decoder in () if not_approved else self._decoders:
            if self.cut is not None:
                decoder.is_cut = True
            if events := self._filtered(events_at_end(decoder)):
                yield events
        if self.decoder is not None and self._upstream is not None:
            yield self._filtered(self._upstream.finish())
        if self.decoder is None and self._held:
            yield self._filtered(failed_run(self._held))
        self.release()
        self.is_over = True
        if self.resumption is not None:
            self.resumption.finish()

    @property
    def _decoders(self) -> Sequence[Decoder]:
        """The decoder, and that of another protocol's questions among its items, as far as there are any."""
        if self.decoder is None:
            return ()
        foreign = self._foreign_questions.decoder if self._foreign_questions is not None else None
        return (self.decoder,) if foreign is None else (self.decoder, foreign)

    def _take_cut(self, rest: bytes) -> None:
        """Note that the source has ended in the middle of an item, of which these bytes came."""
        if self.decoder is None and not self._held:
            rest = self._first_bytes = self._first_bytes or rest
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
        """Return the error that says where the source was cut off, or that it never was a stream."""
        has_run = self._engine.runs.run is not None
        return cut_off(self.decoder, self._first_bytes, in_item=self.cut is not None, has_run=has_run)


def _batch_of(items: Items, item: Any) -> Any:
    """Return the batch that an item makes. What an object of another library raises meanwhile is a fault of the
    source."""
    try:
        return items.batch(item)
    except Exception as error:
        raise_source_error(error)


def _resumption(after: str, engine: Engine) -> Resumption:
    from ..core.resume import Resumption

    return Resumption(after, engine)


def _feed_of(framer: Framer) -> Callable[[bytes], Frames]:
    """Return what makes frames of bytes: of a live producer's, that which looks for questions."""
    return framer.feed if framer.is_question is None else framer.feed_live


def _decode_frames_with(decoder: Decoder, frames: Frames) -> list[Event]:
    """Return the events of frames with all their event names: of those that the decoder ignores it gets the data alone."""
    return decoder.feed_frames(frames if decoder.sse_event_names is None else as_data(frames, decoder.sse_event_names))
