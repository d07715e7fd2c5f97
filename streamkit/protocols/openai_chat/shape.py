"""The shape of Chat Completions' chunks, which no other item has. It is checked before the decoder is imported."""

from __future__ import annotations

from ..values import WireObject, is_list, is_object

__all__ = ["CHUNK_OBJECTS", "recognises"]

CHUNK_OBJECTS = ("chat.completion.chunk", "chat.completion", "chat.completion.done")
"""What `object` may be: a chunk, a completion that was not streamed, and a completion that ends a stream."""


def recognises(item: WireObject) -> bool:
    """Whether the item's `object` is Chat's, or it has choices with deltas or messages."""
    if item.get("object") in CHUNK_OBJECTS:
        return True
    choices = item.get("choices")
    if not is_list(choices):
        return False
    if not choices:
        return "prompt_filter_results" in item  # Azure's first chunk
    return all(is_object(choice) and ("delta" in choice or "message" in choice) for choice in choices)
