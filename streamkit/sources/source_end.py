"""The end of a source: its last frame, the last events of its decoder, and the error if it was cut off."""

from __future__ import annotations

from ..errors import IncompleteStreamError, ProtocolError, StreamkitError
from ..events import Event, StreamWarning
from ..messages.json_text import read_json
from ..protocols.base import Decoder
from .held_items import is_plain

__all__ = ["cut_off", "events_at_end", "is_complete"]

_SHOWN = 60  # bytes of an unknown source that an error shows


def events_at_end(decoder: Decoder) -> list[Event]:
    """Return what a decoder reports at the end. A fault that it finds there is no single item's."""
    events = [*decoder.finish()]
    for event in events:
        if isinstance(event, StreamWarning) and event.index == decoder.index:
            event.index = None
    return events


def is_complete(data: bytes) -> bool:
    """Whether the data of a frame that only the end of the stream closed is complete."""
    return data.startswith(b"[DONE") or read_json(data) is not None


def _unknown_framing(beginning: bytes) -> ProtocolError:
    """Return the error about a source that is text, but neither Server-Sent Events nor lines of JSON."""
    return ProtocolError(
        "unknown-protocol",
        f"the source is text in no known framing: it begins with {beginning!r}. Known are Server-Sent Events and lines of "
        'JSON. Plain text is read with `protocol="text"`',
        index=0,
    )


def cut_off(decoder: Decoder | None, seen: bytes, *, in_item: bool, has_run: bool) -> StreamkitError:
    """Return the error about a source that was cut off, or never was a stream.

    Args:
        decoder: None if its protocol was not recognised.
        seen: its first bytes, until there is a decoder.
        in_item: whether it ended in the middle of an item of its protocol.
        has_run: whether a run began.
    """
    if decoder is None and is_plain(seen):
        return _unknown_framing(seen[:_SHOWN])
    if decoder is None:
        how = f"without {'a complete' if seen else 'any'} item"
        shown = "; one that was read before has none left"
        if seen:
            shown = f'; it begins with {seen[:_SHOWN]!r}. If it is plain text, pass `protocol="text"`'
        return IncompleteStreamError(f"the source was cut off: it ended {how}, before its protocol's end{shown}")
    if not has_run and decoder.index:
        return IncompleteStreamError(
            f"none of the source's {decoder.index} items is one of {decoder.name}; is `protocol=` right?"
        )
    how = "in the middle of an item" if in_item else f"after {decoder.index} items"
    unread_index, unread_message = decoder.unread
    message = unread_message if unread_index == decoder.index - 1 else ""
    shown = f"; its last item says: {message}" if message else ""
    return IncompleteStreamError(
        f"the {decoder.name} stream was cut off: it ended {how}, before its protocol's end{shown}"
    )
