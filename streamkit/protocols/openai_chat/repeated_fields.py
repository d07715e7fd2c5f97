"""The fields that a server repeats in each chunk, such as the citations of the entire answer.

They are copied into the run's metadata where they are new. A later chunk that repeats the same bytes has nothing new there, so
they need not be parsed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import msgspec

from ...messages.json_text import decode_json
from ..values import WireObject, as_object
from .choice import Choice
from .typed_chunk import Chunk, TextChunk
from .wire import CHANGING_METADATA_KEYS

__all__ = ["NOTHING", "RepeatedFields"]

NOTHING = (None, *map(msgspec.Raw, (b"null", b"{}", b"[]", b'""')))
"""The bytes of values that change nothing; None for a missing one."""

_NONE = (None, None, None)
_KEYS = ("citations", "search_results", "x_groq", "content_filter_results")
_READ_EACH_TIME = frozenset(("usage", "error"))  # the keys in `x_groq` that the tolerant path reads in each chunk
_value = itemgetter(1)  # of a pair of a key and its value


class RepeatedFields(msgspec.Struct, eq=False):
    """The values of these fields in the last chunk. The filter results of a choice are in the choice.

    Attributes:
        values: the bytes of `citations`, `search_results` and `x_groq`.
        changing: `service_tier`, `system_fingerprint` and `provider`, as the run's metadata has them. The tolerant path does not
            look at them in a chunk of nothing but deltas; None if they have to be read again.
    """

    values: tuple[Any, Any, Any] = _NONE
    changing: tuple[str | None, ...] | None = None

    def remember(self, chunk: TextChunk | Chunk | None, choices: Mapping[int, Choice], *, is_only_deltas: bool) -> None:
        """Note the fields of a chunk that the tolerant path has read. A `TextChunk` has no `values`.

        Args:
            chunk: None for a chunk that has no typed struct: then the fields are forgotten.
            is_only_deltas: whether the chunk made nothing but deltas, so that its changing fields were not read.
        """
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
        """Note the changing fields of a chunk. Returns those that have a value, by key, for the run's metadata."""
        self.changing = changing = (chunk.service_tier, chunk.system_fingerprint, chunk.provider)
        return dict(filter(_value, zip(CHANGING_METADATA_KEYS, changing, strict=True)))

    def has(self, chunk: Chunk, choice: Choice) -> bool:
        """Whether a chunk repeats `values`, and the filter results of its choice, or has empty ones, which it then notes."""
        results, values = chunk.choices[0].content_filter_results, (chunk.citations, chunk.search_results, chunk.x_groq)
        if not (_is_same(results, choice.filter_results) and all(map(_is_same, values, self.values))):
            return False
        self.values, choice.filter_results = values, results  # empty ones are absent in some chunks, and null in others
        return True

    def take(self, chunk: Chunk, choice: Choice | None) -> WireObject | None:
        """The values of these fields that are new, by key, and note them as the last ones. None if the tolerant path has to read
        them.

        Args:
            choice: the chunk's choice; None if it has none.
        """
        results: Any = None if choice is None else chunk.choices[0].content_filter_results
        values = (chunk.citations, chunk.search_results, chunk.x_groq)
        found: dict[str, Any] = {}
        last = (*self.values, None if choice is None else choice.filter_results)
        for key, value, before in zip(_KEYS, (*values, results), last, strict=True):
            if not _is_same(value, before):
                try:
                    found[key] = decode_json(bytes(value))
                except (ValueError, RecursionError):
                    return None
        if not _READ_EACH_TIME.isdisjoint(as_object(found.get("x_groq"))):
            return None
        self.values = values
        if choice is not None:
            choice.filter_results = results
        return found

    def has_changing(self, chunk: TextChunk | Chunk) -> bool:
        """Whether a chunk repeats the changing fields."""
        return (chunk.service_tier, chunk.system_fingerprint, chunk.provider) == self.changing


def _values_of(chunk: Chunk) -> tuple[Any, Any, Any]:
    """The `values` to note of a chunk, without an `x_groq` that has to be read in each chunk."""
    x_groq: Any = chunk.x_groq  # None where it is missing
    is_id = x_groq is not None and not any(key.encode() in bytes(x_groq) for key in _READ_EACH_TIME)
    return chunk.citations, chunk.search_results, x_groq if is_id else None


def _is_same(value: Any, last: Any) -> bool:
    return value == last or value in NOTHING
