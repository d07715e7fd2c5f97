"""The ids of a source's messages, made of the provider's."""

from __future__ import annotations

from collections.abc import Callable

from ..core.unique_ids import UniqueIds

__all__ = ["MessageIds"]


class MessageIds:
    """The ids of the messages of one source: the provider's own, each for one message, and new ones where it gives none.

    Args:
        new_id: returns an id for a message to which the provider gives none.
    """

    __slots__ = ("_new_id", "_used")

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._used = UniqueIds()

    def unused(self, *wanted: str) -> str:
        """Return the first of these ids that is not empty, without one a new id. If a message has it already, a number is
        appended. No other message gets it from here on."""
        return self._used.unused(next(filter(None, wanted), "") or self._new_id())

    def new(self) -> str:
        """Return a new id that no message has, without reserving it."""
        return self._used.free(self._new_id())
