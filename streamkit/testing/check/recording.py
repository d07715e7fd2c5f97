"""A recorded stream, in the form that a check needs: the complete body, and its frames, to truncate and damage."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ...errors import UsageError
from ...protocols import Decoder
from ...protocols.framing import Frame, SseFramer, as_frame, framer_for, sse_frame
from ...protocols.values import is_object

__all__ = ["Recording", "Source", "read_recording"]

Source: TypeAlias = bytes | str | PathLike[str] | Iterable[Mapping[str, Any]]
"""A body, a path to one, or items."""


class Recording(NamedTuple):
    """A recorded stream as frames, which are the places where it may be truncated and damaged."""

    name: str
    body: bytes
    frames: list[Frame]
    is_ndjson: bool

    def pieces(self, frames: Iterable[Frame]) -> list[bytes]:
        """Frames as they stand in a body, one piece each."""
        if self.is_ndjson:
            return [data + b"\n" for _, _, data in frames]
        return [sse_frame(data, name.decode() or None, id.decode() or None) for id, name, data in frames]


def read_recording(decoder: type[Decoder], source: Source, name: str) -> Recording:
    """Return a recording from bytes, a path or items. `name` is what it is called if it has no path.

    Raises:
        UsageError: it has no items.
    """
    if isinstance(source, (str, PathLike)):
        path = Path(source)
        name, source = str(path), path.read_bytes()
    if isinstance(source, bytes):
        body = source
    else:
        body = b"".join(sse_frame(*_data_and_name(decoder, item)) for item in source)
    framer = framer_for(body) or SseFramer()
    is_ndjson = not isinstance(framer, SseFramer)
    frames = [as_frame(frame) for frame in (*framer.feed(body), *framer.finish())]
    if not frames:
        raise UsageError(f"{name} has no items")
    return Recording(name, body, frames, is_ndjson)


def _data_and_name(decoder: type[Decoder], item: Any) -> tuple[bytes, str | None]:
    """Return an item as the data and the name of an SSE event."""
    if decoder.wraps_event_name and is_object(item) and "event" in item and "data" in item:
        return json.dumps(item["data"]).encode(), item["event"]
    return json.dumps(item).encode(), None
