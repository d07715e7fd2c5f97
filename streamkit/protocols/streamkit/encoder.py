"""Encodes canonical events in their wire form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...events import Event
from .. import base
from ..codec import event_to_dict
from ..values import WireObject

__all__ = ["Encoder"]


class Encoder(base.Encoder):
    """Canonical events in their wire form. Only `raw` is lost."""

    name = "streamkit"
    fields = True
    sub_agents = True
    withdraws = True

    def feed(self, event: Event) -> Iterable[dict[str, Any]]:
        """Yield the wire form of one event."""
        yield event_to_dict(event)

    def event_name(self, item: WireObject) -> str | None:
        """Return the event's type."""
        name: str = item["type"]
        return name
