"""Unique ids: one that is in use already gets a number appended."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

__all__ = ["NumberedIds", "UniqueIds"]


class UniqueIds:
    """The ids that are in use. Finding a free form of an id takes one look-up, however often it came before.

    Args:
        used: the container that holds them, if it is another object's.
        separator: stands before the number.
    """

    __slots__ = ("_own", "_separator", "_times", "used")

    def __init__(self, used: Container[Any] | None = None, *, separator: str = ".") -> None:
        self._separator = separator
        self._own: dict[str, None] | None = None
        if used is None:
            used = self._own = {}
        self.used: Container[Any] = used
        self._times: dict[str, int] = {}  # how often ids came that were in use

    def __len__(self) -> int:
        return len(self._own or ())

    def __contains__(self, id: str) -> bool:
        return id in self.used

    def free(self, id: str) -> str:
        """Return this id if it is free, else the next of `id.2`, `id.3` … that is. It is not marked as used."""
        free = id
        while free in self.used:
            self._times[id] = self._times.get(id, 1) + 1
            free = f"{id}{self._separator}{self._times[id]}"
        return free

    def forget(self, id: str) -> None:
        """Mark an id as free again."""
        if self._own is not None:
            self._own.pop(id, None)
        self._times.pop(id, None)

    def unused(self, id: str) -> str:
        """Return what `free` returns, and mark it as used."""
        if id in self.used:
            id = self.free(id)
        if self._own is not None:
            self._own[id] = None
        return id


class NumberedIds:
    """Returns the ids `message-1`, `message-2` …, each once."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def __call__(self) -> str:
        """Return the next one."""
        self._count += 1
        return f"message-{self._count}"
