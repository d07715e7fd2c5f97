"""Ids that must differ: another one is made of an id that is taken already."""

from __future__ import annotations

from collections.abc import Container

__all__ = ["UniqueIds"]


class UniqueIds:
    """Ids that are in use. Making another one of an id that came often costs one look-up.

    Args:
        used: what keeps them, where something else does.
    """

    def __init__(self, used: Container[str] | None = None) -> None:
        self._own: set[str] = set()
        self.used: Container[str] = self._own if used is None else used
        self._times: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._own)

    def __contains__(self, id: str) -> bool:
        return id in self.used

    def free(self, id: str) -> str:
        """This id, or the next of `id.2`, `id.3` … that is not used."""
        free = id
        while free in self.used:
            self._times[id] = self._times.get(id, 1) + 1
            free = f"{id}.{self._times[id]}"
        return free

    def add(self, id: str) -> None:
        """It is used from now on."""
        self._own.add(id)

    def forget(self, id: str) -> None:
        """It is used no longer."""
        self._own.discard(id)
        self._times.pop(id, None)

    def unused(self, id: str) -> str:
        """The same as `free`; it is used from now on."""
        free = self.free(id)
        self._own.add(free)
        return free
