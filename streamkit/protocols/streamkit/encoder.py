"""Canonical events to their wire form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...events import Event
from .. import base
from ..codec import event_to_dict

__all__ = ["Encoder"]


class Encoder(base.Encoder):
    """Canonical events in their wire form. Keeps everything but `raw`."""

    name = "streamkit"
    fields = True

    def feed(self, event: Event) -> Iterable[dict[str, Any]]:
        yield event_to_dict(event)

    def event_name(self, item: Mapping[str, Any]) -> str | None:
        name: str = item["type"]
        return name
