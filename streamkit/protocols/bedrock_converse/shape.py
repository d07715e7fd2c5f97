"""The shape of Converse's events, which no other item has. It is checked before the decoder is imported."""

from __future__ import annotations

from ..values import WireObject, as_object
from .plain_text import is_plain_text

__all__ = ["EVENTS", "event_in", "recognises"]

EVENTS = frozenset(
    ("messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata")
)
"""The names of the events."""

_KEYS = {
    "messageStart": "role",
    "contentBlockStart": "contentBlockIndex",
    "contentBlockDelta": "contentBlockIndex",
    "contentBlockStop": "contentBlockIndex",
    "messageStop": "stopReason",
    "metadata": "usage",
}


def event_in(item: WireObject) -> str:
    """Return the name of the event in an item, "" if there is none. Nova's have metrics beside it."""
    return next((name for name in item if name in EVENTS), "")


def recognises(item: WireObject) -> bool:
    """Whether the item is an event under its name, with the key that each such event has, or of a body of plain text."""
    name = event_in(item)
    return _KEYS[name] in as_object(item[name]) if name else is_plain_text(item)
