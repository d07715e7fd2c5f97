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

    __slots__ = ("citations", "provider", "search_results", "service_tier", "system_fingerprint", "x_groq")

    def __init__(self) -> None:
        self.citations: Any = None
        self.search_results: Any = None
        self.x_groq: Any = None
        self._forget_changing()

    def _forget_changing(self) -> None:
        # Of the last chunk that had more than deltas. No chunk has an Ellipsis there.
        self.service_tier: Any = ...
        self.system_fingerprint: Any = ...
        self.provider: Any = ...

    def remember(self, chunk: Chunk | None, choices: Mapping[int, Choice], *, is_only_deltas: bool) -> None:
        """The tolerant path has read this chunk, None for one of another shape."""
        if chunk is None:
            self.citations = self.search_results = self.x_groq = None
            self._forget_changing()
            for choice in choices.values():
                choice.filter_results = None
            return
        self.citations, self.search_results = chunk.citations, chunk.search_results
        is_id = chunk.x_groq is not None and not any(key in bytes(chunk.x_groq) for key in (b"usage", b"error"))
        self.x_groq = chunk.x_groq if is_id else None
        for wire in chunk.choices:
            if wire.index in choices:
                choices[wire.index].filter_results = wire.content_filter_results
        if not is_only_deltas:
            self.service_tier, self.provider = chunk.service_tier, chunk.provider
            self.system_fingerprint = chunk.system_fingerprint

    def has(self, chunk: Chunk, choices: Mapping[int, Choice]) -> bool:
        """Whether this chunk has nothing else in these fields, but for those of `has_changing`."""
        for wire in chunk.choices:
            if wire.index not in choices:
                return False
            if not _is_same(wire.content_filter_results, choices[wire.index].filter_results):
                return False
        is_same = (
            _is_same(chunk.citations, self.citations)
            and _is_same(chunk.search_results, self.search_results)
            and _is_same(chunk.x_groq, self.x_groq)
        )
        if is_same:  # empty ones are absent in some chunks, and null in others
            self.citations, self.search_results, self.x_groq = chunk.citations, chunk.search_results, chunk.x_groq
            for wire in chunk.choices:
                choices[wire.index].filter_results = wire.content_filter_results
        return is_same

    def has_changing(self, chunk: Chunk) -> bool:
        """The same of the fields that the tolerant path does not read in chunks of deltas alone."""
        if chunk.service_tier != self.service_tier or chunk.system_fingerprint != self.system_fingerprint:
            return False
        return bool(chunk.provider == self.provider)


def _is_same(value: Any, last: Any) -> bool:
    return value == last or value in NOTHING
