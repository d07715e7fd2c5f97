"""Frames: single items as they stand on the wire, with their names and data in bytes.

Nothing is parsed here, and nothing is cut: `framing` cuts bytes into frames.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TypeAlias, TypeGuard

__all__ = ["KEEPALIVE", "Frame", "Frames", "as_data", "as_frame", "is_frame", "sse_frame"]

KEEPALIVE = b": hb\n\n"
"""A comment, which clients skip, sent while there is nothing else to send. It keeps the connection open, and a write that fails
shows that the client has left."""

Frame: TypeAlias = tuple[bytes, bytes, bytes]
"""One item on the wire: the SSE `id` and `event` fields (b"" where absent) and its data."""

Frames: TypeAlias = Sequence[Frame | bytes]
"""Frames. One with no id and an event name the decoder ignores may be given as plain `bytes`."""


def is_frame(item: object) -> TypeGuard[Frame]:
    """Whether an item of a batch is a frame: no item that was parsed already is a tuple."""
    return isinstance(item, tuple)


def as_frame(frame: Frame | bytes) -> Frame:
    """Return a frame with its id and its name. Those of plain data are empty."""
    return (b"", b"", frame) if isinstance(frame, bytes) else frame


def as_data(frames: Frames, names: Container[bytes]) -> Frames:
    """Return these frames, as plain data where they have no id and none of these event names."""
    return [frame if isinstance(frame, bytes) or frame[0] or frame[1] in names else frame[2] for frame in frames]


def sse_frame(data: bytes, name: str | None = None, id: str | None = None) -> bytes:
    """Return one SSE block. `data` must be one line, as compact JSON text is."""
    if not name and not id:
        return b"data: %b\n\n" % data
    lines = [b"id: " + id.encode() if id else b"", b"event: " + name.encode() if name else b"", b"data: " + data]
    return b"\n".join(line for line in lines if line) + b"\n\n"
