"""What one source gives, made into events: its bytes are framed, its protocol recognised, its items decoded.

A stream has one intake for each source that it reads. Nothing of a source is lost before its protocol is known: items are
held until one has a shape of its own, then all of them are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from .. import protocols
from ..core.engine import Engine
from ..core.resume import Resumption
from ..errors import IncompleteStreamError, ProtocolError, StreamkitError
from ..events import Event, Run, RunDone, StreamWarning
from ..protocols import Decoder
from ..protocols.framing import Framer, Frames, as_data, as_frame, framer_for
from .chained import UpstreamConfirmations
from .source import AsyncSource, Source

__all__ = ["SourceDecoder"]

_UNRECOGNISED_LIMIT = 200  # items held while none has a shape of its own


class SourceDecoder:
    """One source's items on their way to the engine.

    Attributes:
        source: what is read.
        decoder: None until the protocol is known.
        resumption: where the source is read on from, None if it is read from its beginning.
    """

    def __init__(
        self,
        source: Source | AsyncSource,
        engine: Engine,
        kind: type[Decoder] | None,
        receivers: Sequence[Callable[[Sequence[Any]], None]],
        after: str | None,
    ) -> None:
        self.source = source
        self.decoder: Decoder | None = None
        self._engine = engine
        self._receivers = receivers
        self._framer: Framer | None = None
        self._start = b""
        self._held: list[Any] = []
        self._seen = b""  # the source's first bytes
        self._cut = False  # it ended in the middle of an item
        self._inner = UpstreamConfirmations(source.chunks, engine) if source.chunks is not None else None
        self._other: Decoder | None = None  # of a live producer's items that are not the stream's own protocol's
        after = after if source.resume is None else source.resume(after)
        self.resumption = None if after is None else Resumption(after, engine)
        if source.protocol:
            kind = protocols.find(source.protocol).Decoder
        if kind is not None:
            self._decode_with(kind)

    # -- what is known of it

    @property
    def gated(self) -> bool:
        """Whether pulling on would let run what a confirmation asks about."""
        return self.source.live and (
            self._other is not None or (self.decoder is not None and self.decoder.pull_approves)
        )

    @property
    def exhausted(self) -> bool:
        """Whether nothing more can come, so that the source need not be read on."""
        return self.decoder is not None and self.decoder.exhausted and not self.source.whole

    @property
    def continues_in_next_source(self) -> bool:
        """Whether the answer goes on in another source."""
        return self.decoder is not None and self.decoder.continues_in_next_source

    # -- batches

    def direct(self) -> tuple[Any, Any]:
        """The two steps from bytes to events, to be taken without `feed` where nothing else is to be done."""
        if self._framer is None or self.decoder is None or self._receivers or self.resumption is not None:
            return None, None
        return self._framer.feed, self.decoder.feed_frames

    def feed(self, batch: Any) -> Sequence[Event]:
        """What the decoder says of a batch of the source: bytes, or a list of frames or of items."""
        decoder = self.decoder
        if type(batch) is bytes:
            framer = self._framer
            if framer is None:
                return self._decode_first(batch)
            return self._decode_frames(framer.feed(batch))
        if batch and type(batch[0]) is tuple:
            return self._decode_frames(batch)
        if decoder is not None and decoder.name != "streamkit" and batch and isinstance(batch[0], Event):
            return [msgspec.structs.replace(event) for event in batch]  # a recording's answers
        for receive in self._receivers:
            receive(batch)
        if decoder is None:
            return self._recognise(batch, parsed=True)
        return decoder.feed_items(batch) if self._inner is None else self._inner.link(decoder.feed_items(batch))

    def _decode_first(self, chunk: bytes) -> Sequence[Event]:
        """Hold the first bytes until they tell how they are framed."""
        self._seen = self._seen or chunk
        self._start = (self._start + chunk).lstrip(b" \t\r\n")
        self._framer = framer_for(self._start)
        if self._framer is None:
            return ()
        self._name_frames()
        start, self._start = self._start, b""
        return self._decode_frames(self._framer.feed(start))

    def _decode_frames(self, frames: Frames) -> Sequence[Event]:
        for receive in self._receivers:
            receive(frames)
        if self.decoder is None:
            return self._recognise(frames, parsed=False)
        return _fed(self.decoder, frames)

    # -- protocols

    def _recognise(self, batch: Sequence[Any], *, parsed: bool) -> Sequence[Event]:
        """Hold items until one has a shape of its own, then decode them all."""
        self._held += batch
        for item in batch:
            if kind := _protocol_of(item, parsed=parsed) or (
                protocols.asking(_parsed(item)) if self.source.live else None
            ):
                break
        else:
            if len(self._held) > _UNRECOGNISED_LIMIT:
                raise self._unrecognised()
            return ()
        decoder = self._decode_with(kind)
        held, self._held = self._held, []
        return decoder.feed_items(held) if parsed else _fed(decoder, held)

    def _unrecognised(self) -> StreamkitError:
        return ProtocolError(
            "unknown-protocol",
            f"no protocol has items like {repr(_parsed(self._held[0]))[:200]}; "
            f"give `protocol=`, one of: {', '.join(protocols.names())}",
            index=0,
        )

    def _decode_with(self, kind: type[Decoder]) -> Decoder:
        """The decoder of the source's items. A live producer is not pulled past any protocol's question."""
        self.decoder = decoder = kind(self._engine.new_id)
        decoder.foreign_decoder = self._foreign_decoder if self.source.live and not kind.pull_approves else None
        self._name_frames()
        return decoder

    def _name_frames(self) -> None:
        """Leave out event names that mean nothing, where the frames are for the decoder alone."""
        if self._framer is not None and self.decoder is not None and not self._receivers:
            self._framer.expect_names(self.decoder.sse_event_names)

    def _foreign_decoder(self, item: Mapping[str, Any]) -> Decoder | None:
        """The decoder of an item that is another protocol's, and may be part of a question."""
        assert self.decoder is not None
        if self.decoder.recognises(item):
            return None
        kind = protocols.gating(item.get("data") if self.decoder.wraps_event_name and "event" in item else item)
        if kind is not None and self._other is None:
            self._other = kind(self._engine.new_id)
            self._engine.takes_approvals = True
        return None if kind is None else self._other

    # -- its end

    def let_go(self) -> None:
        """Nothing more is fed."""
        self._receivers = ()
        if self.decoder is not None:
            self.decoder.foreign_decoder = None
            self.decoder.forget()

    def finish(self, *, declined: bool) -> Iterator[Sequence[Event]]:
        """What the source's end tells: the rest of its bytes, and what its decoder says. The last of each goes before
        the next is asked for."""
        if self._framer is not None:
            rest = self._framer.finish()
            complete = [frame for frame in rest if _is_whole(as_frame(frame)[2])]
            self._cut = len(complete) != len(rest)
            yield self._decode_frames(complete)
        elif self._start.strip():
            self._cut = True
        if self.decoder is not None and not declined:
            yield _at_end(self.decoder)
            if self._other is not None:
                yield _at_end(self._other)
        if self.decoder is not None and self._inner is not None:
            yield self._inner.finish()
        if self.decoder is None and self._held:
            yield self._held_error()
        self.let_go()

    @property
    def complete(self) -> bool:
        """Whether a protocol's terminal rule is met, or there is nothing that one could be of."""
        if self.decoder is None:
            return bool(self._held)  # which was an error
        cancelled = self._inner is not None and self._inner.cancelled
        return self.decoder.complete or cancelled or (self._other is not None and self._other.complete)

    def incomplete(self) -> IncompleteStreamError:
        """The error that says where the source was cut off."""
        decoder = self.decoder
        name = f"the {decoder.name} stream" if decoder else "the source"
        how = f"after {decoder.index} items" if decoder else "without any item"
        if self._cut:
            how = "in the middle of an item"
        seen = f"; it begins with {self._seen[:60]!r}" if self._seen and not decoder else ""
        if decoder is not None and self._engine.runs.run is None and decoder.index:
            return IncompleteStreamError(f"none of the source's {decoder.index} items is one of {decoder.name}")
        return IncompleteStreamError(f"{name} was cut off: it ended {how}, before its protocol's end{seen}")

    def _held_error(self) -> Sequence[Event]:
        """A stream that was nothing but an error, which every protocol has in about the same shape."""
        for held in self._held:
            if (error := _error_in(held)) is not None:
                return [RunDone(Run(status="failed", error=error, raw=_parsed(held)))]
        raise self._unrecognised()


def _fed(decoder: Decoder, frames: Frames) -> list[Event]:
    """The events of frames that came before it was known whose they are, or that others were given, too."""
    return decoder.feed_frames(frames if decoder.sse_event_names is None else as_data(frames, decoder.sse_event_names))


def _at_end(decoder: Decoder) -> list[Event]:
    """What the end itself tells. A fault that is found there is no item's."""
    events = [*decoder.finish()]
    for event in events:
        if isinstance(event, StreamWarning) and event.index == decoder.index:
            event.index = None
    return events


def _protocol_of(item: Any, *, parsed: bool) -> type[Decoder] | None:
    if isinstance(item, Event):
        kind: type[Decoder] = protocols.find("streamkit").Decoder
        return kind
    if parsed:
        return protocols.recognise(item)
    try:
        return protocols.recognise(msgspec.json.decode(item[2]), item[1].decode("utf-8", "replace"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _parsed(held: Any) -> Any:
    """A held item, or a held frame's data: as JSON where it is JSON, else as text."""
    if not isinstance(held, tuple):
        return held
    _, _, data = cast("tuple[bytes, bytes, bytes]", held)  # a frame: no other item is a tuple
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return data.decode("utf-8", "replace")


def _error_in(held: Any) -> dict[str, Any] | None:
    """The error that a held item or frame tells of: under `error`, or all of an item that says that it is one."""
    item = _parsed(held)
    named = isinstance(held, tuple) and cast("tuple[bytes, ...]", held)[1] == b"error"
    if protocols.is_object(item) and item.get("event") == "error" and "data" in item:
        item, named = item["data"], True
    if protocols.is_object(item):
        given = item.get("error") or (item if named or item.get("type") == "error" else None)
    else:
        given = item if named else None
    if given is None:
        return None
    return dict(given) if protocols.is_object(given) else {"message": str(given)}


def _is_whole(data: bytes) -> bool:
    """Whether a frame that the end of the stream closed is all there."""
    if data.startswith(b"[DONE"):
        return True
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
