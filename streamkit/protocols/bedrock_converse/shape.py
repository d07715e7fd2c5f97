"""The shape of Converse's events, which no other item has. It is checked before the decoder is imported."""

from __future__ import annotations

from ..values import WireObject, as_object

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
    """Whether the item is an event under its name, with the key that each such event has."""
    name = event_in(item)
    return bool(name) and _KEYS[name] in as_object(item[name])
