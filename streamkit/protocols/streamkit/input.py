"""Messages as they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...answers import Confirmation
from ...messages import Message

__all__ = ["to_input"]


def to_input(messages: Iterable[Message | Confirmation]) -> list[dict[str, Any]]:
    """Flat messages, in their static form. Confirmations are none, and left out."""
    return [message.to_dict() for message in messages if isinstance(message, Message)]
