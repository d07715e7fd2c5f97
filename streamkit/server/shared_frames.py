"""Frames that the readers of a run share: in the native protocol they are the same bytes for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..relay import Entry

__all__ = ["SharedFrames"]


class SharedFrames:
    """The newest frames of one run. Who reads at the same place has the same entries, which are made into frames once."""

    def __init__(self) -> None:
        self._newest: tuple[Sequence[Entry], bytes] = ((), b"")

    def of(self, entries: Sequence[Entry], make: Callable[[Sequence[Entry]], bytes]) -> bytes:
        """The frames of these entries, which `make` makes unless they are the newest ones."""
        newest, frames = self._newest
        if entries != newest:  # almost always the same objects, so that no bytes are compared
            frames = make(entries)
            self._newest = entries, frames
        return frames
