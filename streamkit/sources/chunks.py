"""A stream's events as chunks of a protocol: what `manager.chunks(…)` returns."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Any

from ..answers import Confirmation
from ..events import ConfirmationCreated
from ..protocols import Encoder

__all__ = ["AsyncChunks", "Chunks", "SyncChunks"]


class Chunks:
    """A stream's events as the chunks of a protocol, one at a time. Closing them closes the stream.

    Another stream may read them as its source. It then passes its answers on to the stream that they come from.

    Args:
        manager: the stream.
        encoder: encodes the protocol. Its name is the chunks' `protocol`.
    """

    def __init__(self, manager: Any, encoder: Encoder) -> None:
        self.manager = manager
        self.protocol = encoder.name
        self._encode = encoder.items
        self._ready: deque[dict[str, Any]] = deque()

    @property
    def question(self) -> Confirmation | None:
        """The confirmation that the newest chunk asks for, None if it asks for none."""
        event = self.manager.current_event
        return event.confirmation if type(event) is ConfirmationCreated else None


class SyncChunks(Chunks, Iterator[dict[str, Any]]):
    """The chunks of a sync stream, as an iterator."""

    def __init__(self, manager: Any, encoder: Encoder) -> None:
        super().__init__(manager, encoder)
        self._events = iter(manager)

    def __next__(self) -> dict[str, Any]:
        while not self._ready:
            self._ready.extend(self._encode(next(self._events)))
        return self._ready.popleft()

    def close(self) -> None:
        """Close the stream."""
        self.manager.close()


class AsyncChunks(Chunks, AsyncIterator[dict[str, Any]]):
    """The chunks of an async stream, as an async iterator."""

    def __init__(self, manager: Any, encoder: Encoder) -> None:
        super().__init__(manager, encoder)
        self._events = aiter(manager)

    async def __anext__(self) -> dict[str, Any]:
        while not self._ready:
            self._ready.extend(self._encode(await anext(self._events)))
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Close the stream."""
        await self.manager.close()
