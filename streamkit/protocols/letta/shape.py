"""The shape of Letta's items, which no other item has. It is checked before the decoder is imported."""

from __future__ import annotations

from ..values import WireObject
from .legacy import is_legacy
from .wire import PAYLOAD_KEYS

__all__ = ["recognises"]


def recognises(item: WireObject) -> bool:
    """Whether it has a `message_type` of Letta's and a key that belongs to it, or is an item of 2024."""
    kind = item.get("message_type")
    if isinstance(kind, str):
        return any(key in item for key in PAYLOAD_KEYS.get(kind, ()))
    return is_legacy(item)
