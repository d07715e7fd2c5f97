"""The fields that a server repeats in each chunk, such as the citations of the entire answer.

The tolerant path copies them into the run's metadata. A later chunk that repeats the same bytes has nothing new there, so the
fast path may read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import msgspec

from .choice import Choice
from .typed_chunk import Chunk, TextChunk
from .wire import CHANGING_METADATA_KEYS

__all__ = ["NOTHING", "RepeatedFields"]

NOTHING = (None, *map(msgspec.Raw, (b"null", b"{}", b"[]", b'""')))
"""The bytes of values that change nothing; None for a missing one."""

_NONE = (None, None, None)
_value = itemgetter(1)  # of a key and its value


class RepeatedFields(msgspec.Struct, eq=False):
    """What such fields had in the last chunk. The filter results of a choice are in the choice.

    Attributes:
        values: the bytes of `citations`, `search_results` and `x_groq`.
        changing: `service_tier`, `system_fingerprint` and `provider`, as the run's metadata has them. The tolerant path does not
            look at them in a chunk of nothing but deltas; None if they have to be read again.
    """

    values: tuple[Any, Any, Any] = _NONE
    changing: tuple[str | None, ...] | None = None

    def remember(self, chunk: TextChunk | Chunk | None, choices: Mapping[int, Choice], *, is_only_deltas: bool) -> None:
        """Note the fields of a chunk that the tolerant path has read; forget them for None, a chunk of another shape. A
        `TextChunk` has nothing in them."""
        if chunk is None:
            self.values, self.changing = _NONE, None
            for choice in choices.values():
                choice.filter_results = None
            return
        self.values = _NONE if isinstance(chunk, TextChunk) else _values_of(chunk)
        for wire in chunk.choices:
            if wire.index in choices:
                results = wire.content_filter_results
                choices[wire.index].filter_results = results if isinstance(results, msgspec.Raw) else None
        if not is_only_deltas:
            self.remember_changing(chunk)

    def remember_changing(self, chunk: TextChunk | Chunk) -> dict[str, Any]:
        """Note the changing fields of a chunk. Returns those that it has, for the run's metadata."""
        self.changing = changing = (chunk.service_tier, chunk.system_fingerprint, chunk.provider)
        return dict(filter(_value, zip(CHANGING_METADATA_KEYS, changing, strict=True)))

    def has(self, chunk: Chunk, choice: Choice | None) -> bool:
        """Whether a chunk repeats `values`, and the filter results of its choice, or has empty ones, which it then notes.

        Args:
            choice: the chunk's choice; None if it has none.
        """
        if choice is not None:
            results = chunk.choices[0].content_filter_results
            if not _is_same(results, choice.filter_results):
                return False
            choice.filter_results = results
        values = (chunk.citations, chunk.search_results, chunk.x_groq)
        if values != self.values:
            if not all(map(_is_same, values, self.values)):
                return False
            self.values = values  # empty ones are absent in some chunks, and null in others
        return True

    def has_changing(self, chunk: TextChunk | Chunk) -> bool:
        """Whether a chunk repeats the changing fields."""
        return (chunk.service_tier, chunk.system_fingerprint, chunk.provider) == self.changing


def _values_of(chunk: Chunk) -> tuple[Any, Any, Any]:
    x_groq: Any = chunk.x_groq  # None where it is missing
    # Usage and errors in it are read by the tolerant path each time.
    is_id = x_groq is not None and not any(key in bytes(x_groq) for key in (b"usage", b"error"))
    return chunk.citations, chunk.search_results, x_groq if is_id else None


def _is_same(value: Any, last: Any) -> bool:
    return value == last or value in NOTHING
