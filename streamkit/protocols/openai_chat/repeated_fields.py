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


class RepeatedFields:
    """The bytes of such fields in the last chunk that the tolerant path read, or that had nothing else in them.

    The filter results of a choice stand in the choice.
    """

    __slots__ = ("changing", "citations", "search_results", "x_groq")

    def __init__(self) -> None:
        self.citations: Any = None
        self.search_results: Any = None
        self.x_groq: Any = None
        self.changing: tuple[Any, Any, Any] | None = None  # of the last chunk that had more than deltas

    def remember(self, chunk: Chunk | None, choices: Mapping[int, Choice], *, is_only_deltas: bool) -> None:
        """The tolerant path has read this chunk, None for one of another shape."""
        if chunk is None:
            self.citations = self.search_results = self.x_groq = self.changing = None
            for choice in choices.values():
                choice.filter_results = None
            return
        self.citations, self.search_results = chunk.citations, chunk.search_results
        x_groq: Any = chunk.x_groq  # None where it is missing
        is_id = x_groq is not None and not any(key in bytes(x_groq) for key in (b"usage", b"error"))
        self.x_groq = x_groq if is_id else None
        for wire in chunk.choices:
            if wire.index in choices:
                choices[wire.index].filter_results = wire.content_filter_results
        if not is_only_deltas:
            self.changing = (_kept(chunk.service_tier), _kept(chunk.system_fingerprint), _kept(chunk.provider))

    def has(self, chunk: Chunk, choices: Mapping[int, Choice]) -> bool:
        """Whether this chunk has nothing else in these fields, but for those of `has_changing`."""
        for wire in chunk.choices:
            choice, results = choices.get(wire.index), wire.content_filter_results
            if choice is None or not (results == choice.filter_results or results in NOTHING):
                return False
            choice.filter_results = results
        last = (self.citations, self.search_results, self.x_groq)
        values = (chunk.citations, chunk.search_results, chunk.x_groq)
        if values != last:
            if not all(map(_is_same, values, last)):
                return False
            self.citations, self.search_results, self.x_groq = values  # empty ones are absent in some chunks, else null
        return True

    def has_changing(self, chunk: Chunk) -> bool:
        """The same of the fields that the tolerant path does not read in chunks of deltas alone."""
        return (chunk.service_tier, chunk.system_fingerprint, chunk.provider) == self.changing


def _kept(value: Any) -> Any:
    """These bytes, without the chunk that they are a part of."""
    return None if value is None else value.copy()


def _is_same(value: Any, last: Any) -> bool:
    return value == last or value in NOTHING
