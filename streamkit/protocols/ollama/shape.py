"""The shape of Ollama's lines, which no other item has. It is checked before the decoder is imported."""

from __future__ import annotations

from ..values import WireObject, is_object

__all__ = ["recognises"]


def recognises(item: WireObject) -> bool:
    """Whether the item says whether it is the last one, and has a message (chat) or a text (generate)."""
    has_content = is_object(item.get("message")) or isinstance(item.get("response"), str)
    return isinstance(item.get("done"), bool) and has_content and "model" in item
