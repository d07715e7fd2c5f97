"""What counts as content: where times and timeouts look for the first of it, or the next."""

from __future__ import annotations

from ..events import Delta, Done, Event

__all__ = ["is_content"]

_SAY_SOMETHING_EMPTY = frozenset({"tool_call", "tool_output"})  # a call without arguments is a call


def is_content(event: Event) -> bool:
    """Whether an event brings content: a delta that is not empty, or a message that came whole.

    An event may be as a decoder reports it. A message that has begun is no content, nor is one that ends empty; but a call
    without arguments, an output without text and encrypted reasoning came whole.
    """
    if isinstance(event, Delta):
        return bool(event.value)
    if not isinstance(event, Done):
        return False
    message = event.message
    return bool(message.content) or message.type in _SAY_SOMETHING_EMPTY or message.format == "redacted"
