"""The fields that a server repeats in each chunk, such as the citations of the entire answer.

The tolerant path takes them into the run's metadata. A chunk in which they have the same bytes as in the last chunk that
the tolerant path read changes nothing about them, so that it need not take that path.
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
    """The bytes of such fields in the last chunk that the tolerant path read, or that had nothing else in them.

    The filter results of a choice stand in the choice.
    """

    values: tuple[Any, Any, Any] = _NONE  # of citations, search_results and x_groq
    changing: tuple[str | None, ...] | None = None  # of the last chunk that had more than deltas

    def remember(self, chunk: Chunk | None, choices: Mapping[int, Choice], *, is_only_deltas: bool) -> None:
        """The tolerant path has read this chunk, None for one of another shape."""
        if chunk is None:
            self.values, self.changing = _NONE, None
            for choice in choices.values():
                choice.filter_results = None
            return
        x_groq: Any = chunk.x_groq  # None where it is missing
        is_id = x_groq is not None and not any(key in bytes(x_groq) for key in (b"usage", b"error"))
        self.values = (chunk.citations, chunk.search_results, x_groq if is_id else None)
        for wire in chunk.choices:
            if wire.index in choices:
                choices[wire.index].filter_results = wire.content_filter_results
        if not is_only_deltas:
            self.remember_changing(chunk)

    def remember_changing(self, chunk: Chunk) -> None:
        """The fields that may change are in the run's metadata."""
        self.changing = (chunk.service_tier, chunk.system_fingerprint, chunk.provider)

    def has(self, chunk: Chunk, choice: Choice | None) -> bool:
        """Whether this chunk has nothing else in these fields, but for those that may change. `choice`: that of the chunk, if
        it has one."""
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
        """The same of the fields that the tolerant path does not read in chunks of deltas alone."""
        return (chunk.service_tier, chunk.system_fingerprint, chunk.provider) == self.changing


def _is_same(value: Any, last: Any) -> bool:
    return value == last or value in NOTHING
