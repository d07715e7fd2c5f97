"""The shape of Responses' items, which no other protocol's have. It is checked before the decoder is imported."""

from __future__ import annotations

from ..values import WireObject, as_text, is_list

__all__ = ["recognises"]


def recognises(item: WireObject) -> bool:
    """Whether the item's type is an event's of this API, or the item is a response with an output."""
    if as_text(item.get("type")).startswith("response."):
        return True
    return item.get("object") == "response" and is_list(item.get("output"))
