"""The shape of Cohere's events, which no other item has. It is checked before the decoder is imported."""

from __future__ import annotations

from ..values import WireObject, as_object, as_text, is_list, is_object

__all__ = ["is_whole_answer", "recognises"]

_TYPES = frozenset(
    (
        *("message-start", "content-start", "content-delta", "tool-plan-delta", "tool-call-start", "tool-call-delta"),
        *("citation-start", "message-end"),
    )
)


def recognises(item: WireObject) -> bool:
    """Whether it is an event of a stream that says something, or an answer without a stream."""
    return (as_text(item.get("type")) in _TYPES and is_object(item.get("delta"))) or is_whole_answer(item)


def is_whole_answer(item: WireObject) -> bool:
    """Whether it is an answer that was not streamed."""
    message = as_object(item.get("message"))
    return (
        "type" not in item and "finish_reason" in item and (is_list(message.get("content")) or "tool_calls" in message)
    )
