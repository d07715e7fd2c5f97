"""The internals of a stream that the handlers need: all accesses to private members of `streamkit.streams` are here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Any

from ...events import Event
from ...protocols import Decoder
from ...streams.aio import AsyncStreamManager
from ...streams.state import StreamState
from ...streams.sync import StreamManager

__all__ = ["decoder_of", "driver_of", "is_stopped", "read_nested", "read_nested_async"]


def decoder_of(stream: StreamState) -> Decoder | None:
    """The decoder of the source that is being read; None before its protocol was recognised."""
    return stream._decoder  # pyright: ignore[reportPrivateUsage]  # streams have no public accessor for it


def is_stopped(stream: StreamState) -> bool:
    """Whether `close` or `cancel` was called on the stream."""
    return bool(getattr(stream, "_closing", False))


def driver_of(stream: StreamState) -> int | None:
    """The id of the thread or task that drives the stream; None before it was started."""
    return getattr(stream, "_task" if isinstance(stream, AsyncStreamManager) else "_thread", None)


def read_nested(manager: StreamManager, source: Any) -> Generator[Event, None, None]:
    """Read a further source of the same run inside the stream. The events, each after the handlers were called."""
    return manager._read_nested(source)  # pyright: ignore[reportPrivateUsage]  # streams have no public accessor for it


def read_nested_async(manager: AsyncStreamManager, source: Any) -> AsyncGenerator[Event, None]:
    """As `read_nested`, on an async stream."""
    return manager._read_nested(source)  # pyright: ignore[reportPrivateUsage]  # streams have no public accessor for it
