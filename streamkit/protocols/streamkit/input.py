"""Flat messages as input: their static form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...answers import Confirmation
from ...messages import Message

__all__ = ["to_input"]


def to_input(messages: Iterable[Message | Confirmation]) -> list[dict[str, Any]]:
    """Return the static form of each message. Confirmations are left out: they are not messages."""
    return [message.to_dict() for message in messages if isinstance(message, Message)]
