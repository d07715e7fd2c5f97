"""The answers of a model that a recording has, as a model server sends them again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec

from .. import protocols
from ..errors import StreamkitError, UsageError
from ..protocols.event_stream import provider_writer
from ..protocols.frames import is_frame, sse_frame
from ..sources.open import open_sync
from ..sources.source import Source, SourceTraits
from ..streams.api import stream as open_stream

__all__ = ["RecordedAnswer", "recorded_answers"]

_encode = msgspec.json.Encoder(enc_hook=str).encode


class RecordedAnswer:
    """What a model answered to one request.

    Args:
        batches: the batches of the source: bytes of its body, lists of frames, or of parsed items.
        protocol: the protocol of the answer.
    """

    def __init__(self, batches: Sequence[Any], protocol: str) -> None:
        self._batches = batches
        self._protocol = protocol

    def pieces(self, protocol: str) -> list[bytes]:
        """Return the body of the answer in this protocol, a piece for each event: byte for byte if it was recorded in it, else
        encoded."""
        return [*(self._recorded() if protocol == self._protocol else self._encoded(protocol))]

    def _recorded(self) -> Iterator[bytes]:
        module = protocols.find(self._protocol)
        wraps, in_lines = module.Decoder.wraps_event_name, module.Encoder.in_lines
        for batch in self._batches:
            if isinstance(batch, bytes):
                yield batch
                continue
            for item in batch:
                if in_lines:
                    yield (item[2] if is_frame(item) else _encode(item)) + b"\n"
                elif is_frame(item):
                    id, name, data = item
                    yield sse_frame(data, name.decode(), id.decode())
                elif wraps:
                    yield sse_frame(_encode(item["data"]), item["event"])
                else:
                    yield sse_frame(_encode(item))

    def _encoded(self, protocol: str) -> Iterator[bytes]:
        writer = provider_writer(protocols.find(protocol).Encoder())
        with open_stream(_source(self._batches, self._protocol)) as stream:
            yield from filter(None, map(writer.event, stream))
        if ending := writer.ending():
            yield ending


def recorded_answers(path: str | PathLike[str]) -> list[RecordedAnswer]:
    """Return the answers of the model in a recording, or in a body that was saved: one for each request.

    Raises:
        UsageError: the file cannot be read, or has no answer.
    """
    answers: list[RecordedAnswer] = []
    try:
        source: Source | None = open_sync(Path(path))
        while source is not None:
            batches, traits = [*source], source.traits
            source.close()
            protocol = traits.protocol or traits.recorded_protocol or _protocol_of(batches)
            if protocol is not None and not traits.same_step:
                answers.append(RecordedAnswer(batches, protocol))
            source = None if traits.next_source is None else traits.next_source()
    except StreamkitError as error:
        raise UsageError(f"a recording cannot be served: {error}") from error
    if not answers:
        raise UsageError(f"{path} has no answer of a model, in a protocol that is known")
    return answers


def _source(batches: Sequence[Any], protocol: str | None) -> Source:
    return Source(iter(batches), lambda: None, SourceTraits(recorded_protocol=protocol))


def _protocol_of(batches: Sequence[Any]) -> str | None:
    """Return the protocol of an answer, as a stream recognises it; None if it recognises none."""
    with open_stream(_source(batches, None)) as stream:
        next(iter(stream), None)
        decoder = None if stream.source_decoder is None else stream.source_decoder.decoder
        return None if decoder is None else decoder.name
