"""The fields that a server repeats in each chunk, such as the citations of the entire answer.

The tolerant path copies them into the run's metadata. A later chunk that repeats the same bytes has nothing new there, so the
fast path may read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from .choice import Choice
from .typed_chunk import Chunk

__all__ = ["NOTHING", "RepeatedFields"]

NOTHING = (None, *map(msgspec.Raw, (b"null", b"{}", b"[]", b'""')))
"""The bytes of values that change nothing; None for a missing one."""

_NONE = (None, None, None)


class RepeatedFields(msgspec.Struct, eq=False):
    """What such fields had in the last chunk. The filter results of a choice are in the choice.

    Attributes:
        values: the bytes of `citations`, `search_results` and `x_groq`.
        changing: `service_tier`, `system_fingerprint` and `provider`, as the run's metadata has them. The tolerant path does not
            look at them in a chunk of nothing but deltas; None if they have to be read again.
    """

    values: tuple[Any, Any, Any] = _NONE
    changing: tuple[str | None, ...] | None = None

    def remember(self, chunk: Chunk | None, choices: Mapping[int, Choice], *, is_only_deltas: bool) -> None:
        """Note the fields of a chunk that the tolerant path has read; forget them for None, a chunk of another shape."""
        if chunk is None:
            self.values, self.changing = _NONE, None
            for choice in choices.values():
                choice.filter_results = None
            return
        x_groq: Any = chunk.x_groq  # None where it is missing
        # Usage and errors in it are read by the tolerant path each time.
        is_id = x_groq is not None and not any(key in bytes(x_groq) for key in (b"usage", b"error"))
        self.values = (chunk.citations, chunk.search_results, x_groq if is_id else None)
        for wire in chunk.choices:
            if wire.index in choices:
                choices[wire.index].filter_results = wire.content_filter_results
        if not is_only_deltas:
            self.remember_changing(chunk)

    def remember_changing(self, chunk: Chunk) -> None:
        """Note the changing fields of a chunk, which the run's metadata has now."""
        self.changing = (chunk.service_tier, chunk.system_fingerprint, chunk.provider)

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

    def has_changing(self, chunk: Chunk) -> bool:
        """Whether a chunk repeats the changing fields."""
        return (chunk.service_tier, chunk.system_fingerprint, chunk.provider) == self.changing


def _is_same(value: Any, last: Any) -> bool:
    return value == last or value in NOTHING
