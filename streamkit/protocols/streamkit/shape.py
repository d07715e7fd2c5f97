"""The shape of streamkit's events as JSON, which no other item has. It is checked before the decoder is imported."""

from __future__ import annotations

from ...events import EVENTS, Created, Delta
from ..values import WireObject

__all__ = ["recognises"]


def recognises(item: WireObject) -> bool:
    """Whether it has the `type` of an event, and a key that no other protocol has with this type."""
    name = item.get("type")
    if name == "snapshot":
        return "dropped" in item and "events" in item
    kind = EVENTS.get(name) if isinstance(name, str) else None
    if kind is None:
        return False
    needed = "message_id" if issubclass(kind, Delta) else "message" if issubclass(kind, Created) else None
    return needed in item if needed else kind.type != "usage" or "input_tokens" in item
