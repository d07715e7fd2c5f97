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

    __slots__ = ("changing", "values")

    def __init__(self) -> None:
        self.values: tuple[Any, Any, Any] = _NONE  # of citations, search_results and x_groq
        self.changing: tuple[Any, Any, Any] | None = None  # of the last chunk that had more than deltas

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
            self.changing = (_alone(chunk.service_tier), _alone(chunk.system_fingerprint), _alone(chunk.provider))

    def has(self, chunk: Chunk, choices: Mapping[int, Choice]) -> bool:
        """Whether this chunk has nothing else in these fields, but for those of `has_changing`."""
        for wire in chunk.choices:
            choice, results = choices.get(wire.index), wire.content_filter_results
            if choice is None or not (results == choice.filter_results or results in NOTHING):
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


_NONE = (None, None, None)


def _alone(value: Any) -> Any:
    """These bytes, without the chunk that they are a part of."""
    return None if value is None else value.copy()


def _is_same(value: Any, last: Any) -> bool:
    return value == last or value in NOTHING
