"""Citations in Gemini's texts. Their positions come as bytes of the answer, and become characters of the message."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from ...messages import Annotation
from ..values import WireObject, as_count, as_list, as_object, as_objects, is_object, text_or_none

__all__ = ["ByteOffsets", "annotations_of"]


class ByteOffsets:
    """Converts byte positions in an answer to positions in the newest of its texts. Of ASCII only the length is held.

    Args:
        start: the bytes of the texts before it.
    """

    __slots__ = ("_pieces", "_starts", "end")

    def __init__(self, start: int) -> None:
        self.end = start
        self._pieces: list[str | int] = []  # text, or the length of ASCII text
        self._starts: list[tuple[int, int]] = []  # of each piece: its byte in the answer, its character in the text

    def add(self, text: str) -> None:
        """The text goes on."""
        is_ascii, pieces = text.isascii(), self._pieces
        if is_ascii and pieces and isinstance(last := pieces[-1], int):
            pieces[-1] = last + len(text)
        else:
            self._starts.append((self.end, self._characters))
            pieces.append(len(text) if is_ascii else text)
        self.end += len(text) if is_ascii else len(text.encode("utf-8", "surrogatepass"))

    @property
    def _characters(self) -> int:
        if not self._pieces:
            return 0
        last = self._pieces[-1]
        return self._starts[-1][1] + (last if isinstance(last, int) else len(last))

    def character(self, byte: int | None) -> int | None:
        """Return the character of the text that begins with this byte of the answer; None if the text does not have it."""
        if byte is None or not self._starts or not self._starts[0][0] <= byte <= self.end:
            return None
        number = bisect_right(self._starts, byte, key=lambda start: start[0]) - 1
        (first, before), piece = self._starts[number], self._pieces[number]
        if isinstance(piece, int):
            return before + byte - first
        return before + len(piece.encode("utf-8", "surrogatepass")[: byte - first].decode("utf-8", "ignore"))


def annotations_of(metadata: WireObject, offsets: ByteOffsets) -> Iterator[Annotation]:
    """Yield the citations in the newest text of a candidate: one for each source of a grounded segment, one without a place for
    each source that no segment names, and those of recitation. Segments of earlier texts are left out.

    Args:
        metadata: what the candidate has beside its content.
        offsets: of its newest text.
    """
    grounding = as_object(metadata.get("groundingMetadata"))
    sources = as_objects(grounding.get("groundingChunks"))
    named: set[int] = set()
    for support in as_objects(grounding.get("groundingSupports")):
        segment = as_object(support.get("segment"))
        place = _place(segment, offsets)
        for index in map(as_count, as_list(support.get("groundingChunkIndices"))):
            if index is not None and index < len(sources):
                named.add(index)
                if place:
                    yield _grounded(
                        sources[index], {"segment": dict(segment)}, text_or_none(segment.get("text")), place
                    )
    for index, source in enumerate(sources):
        if index not in named:
            yield _grounded(source, {})
    for citation in as_objects(as_object(metadata.get("citationMetadata")).get("citations")):
        if place := _place(citation, offsets):
            url, title = text_or_none(citation.get("uri")), text_or_none(citation.get("title"))
            yield Annotation(type="citation", url=url, title=title, raw=dict(citation), **place)


def _place(wire: WireObject, offsets: ByteOffsets) -> dict[str, Any]:
    """Return `start` and `end` in characters; nothing for a place that is not in the text. A start of 0 is left out on the
    wire."""
    start, end = (
        offsets.character(as_count(wire.get("startIndex", 0))),
        offsets.character(as_count(wire.get("endIndex"))),
    )
    return {} if start is None or end is None else {"start": start, "end": end}


def _grounded(
    source: WireObject, raw: dict[str, Any], quote: str | None = None, place: WireObject | None = None
) -> Annotation:
    """Return the citation of a source: `{"web": …}`, `{"retrievedContext": …}`, `{"maps": …}` …"""
    page = as_object(next(filter(is_object, source.values()), None))
    url, title = text_or_none(page.get("uri")), text_or_none(page.get("title"))
    return Annotation(
        type="grounding",
        url=url,
        title=title,
        quote=quote,
        raw={**raw, "groundingChunk": dict(source)},
        **(place or {}),
    )
