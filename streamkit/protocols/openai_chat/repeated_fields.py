"""The fields that a server repeats in each chunk, such as the citations of the entire answer.

The tolerant path takes them into the run's metadata. A chunk in which they have the same bytes as in the last chunk that
the tolerant path read changes nothing about them, so that it need not take that path.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .typed_chunk import Chunk

__all__ = ["NOTHING", "RepeatedFields"]

NOTHING = (None, *map(msgspec.Raw, (b"null", b"{}", b"[]", b'""')))
"""The bytes of values that change nothing; None for a missing one."""


class RepeatedFields:
    """The bytes of such fields in the last chunk that the tolerant path read."""

    def __init__(self) -> None:
        self._citations: Any = None
        self._search_results: Any = None
        self._x_groq: Any = None
        self._filter_results: dict[int, Any] = {}  # by the index of their choice
        self._changing: tuple[Any, Any, Any] | None = None  # of the last chunk that had more than deltas

    def remember(self, chunk: Chunk | None, *, is_only_deltas: bool) -> None:
        """The tolerant path has read this chunk, None for one of another shape."""
        if chunk is None:
            self.__init__()
            return
        self._citations, self._search_results = chunk.citations, chunk.search_results
        is_id = chunk.x_groq is not None and not any(key in bytes(chunk.x_groq) for key in (b"usage", b"error"))
        self._x_groq = chunk.x_groq if is_id else None
        for choice in chunk.choices:
            self._filter_results[choice.index] = choice.content_filter_results
        if not is_only_deltas:
            self._changing = _changing(chunk)

    def has(self, chunk: Chunk) -> bool:
        """Whether this chunk has nothing else in these fields, but for those of `has_changing`."""
        return (
            _is_same(chunk.citations, self._citations)
            and _is_same(chunk.search_results, self._search_results)
            and _is_same(chunk.x_groq, self._x_groq)
            and all(
                _is_same(choice.content_filter_results, self._filter_results.get(choice.index))
                for choice in chunk.choices
            )
        )

    def has_changing(self, chunk: Chunk) -> bool:
        """The same of the fields that the tolerant path does not read in chunks of deltas alone."""
        return self._changing == _changing(chunk)


def _changing(chunk: Chunk) -> tuple[Any, Any, Any]:
    return chunk.service_tier, chunk.system_fingerprint, chunk.provider


def _is_same(value: Any, last: Any) -> bool:
    return value == last or value in NOTHING
