"""Which events bring content: what times and timeouts measure; and which messages are of the answer."""

from __future__ import annotations

from ..events import Delta, Done, Event
from ..messages import Message

__all__ = ["has_content", "is_content", "is_of_answer"]

_CONTENT_WHEN_EMPTY = frozenset({"tool_call", "tool_output"})  # a call without arguments is a call


def is_content(event: Event) -> bool:
    """Whether an event brings content: a delta that is not empty, or a complete message.

    An event may be as a decoder reports it. The beginning of a message is not content, nor is the end of an empty one; but a
    call without arguments, an output without text and encrypted reasoning are complete messages.
    """
    if isinstance(event, Delta):
        return bool(event.value)
    return isinstance(event, Done) and _is_complete_content(event.message)


def has_content(message: Message) -> bool:
    """Whether an event of a stream's message has brought content so far."""
    return bool(message.content) or (message.status != "in_progress" and _is_complete_content(message))


def _is_complete_content(message: Message) -> bool:
    return bool(message.content) or message.type in _CONTENT_WHEN_EMPTY or message.format == "redacted"


def is_of_answer(message: Message) -> bool:
    """Whether a message is of the assistant's answer (choice 0), and not of a sub-agent's."""
    return message.role == "assistant" and message.choice == 0 and message.parent_id is None
