"""The shape of an agent session's events, which no other item has. It is checked before the decoder is imported."""

from __future__ import annotations

from ..values import WireObject, as_text

__all__ = ["recognises"]


def recognises(item: WireObject) -> bool:
    """Whether the item's type is that of an event of a session, or of an agent's output in it."""
    return as_text(item.get("type")).startswith(("agent.session.", "agent.output."))
