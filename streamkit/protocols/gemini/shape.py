"""The shape of Gemini's chunks, which no other item has. It is checked before the decoder is imported."""

from __future__ import annotations

from ..values import WireObject, as_object, is_list, is_object

__all__ = ["chunk_in", "recognises"]


def chunk_in(item: WireObject) -> WireObject:
    """Return the chunk in an item: itself, or what a proxy wrapped as `{"response": …}`."""
    inner = item.get("response")
    return inner if is_object(inner) and "candidates" not in item else item


def recognises(item: WireObject) -> bool:
    """Whether the item has candidates, what became of the prompt, or token counts under Gemini's name."""
    chunk = chunk_in(item)
    candidates = chunk.get("candidates")
    if is_list(candidates) and candidates:
        return all(is_object(candidate) for candidate in candidates)
    if as_object(chunk.get("promptFeedback")):
        return True
    return is_object(chunk.get("usageMetadata")) and ("modelVersion" in chunk or "responseId" in chunk)
