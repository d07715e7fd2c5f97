"""The shape of the Assistants API's items, which no other protocol's have. It is checked before the decoder is
imported."""

from __future__ import annotations

from typing import Any

from ..values import WireObject, as_object, as_text

__all__ = ["name_and_data", "recognises", "wraps_event_name"]

wraps_event_name = True
"""As `Decoder.wraps_event_name`: the SSE event names are part of the items."""

_DELTA_OBJECTS = ("thread.message.delta", "thread.run.step.delta")
_STATUS_OBJECTS = ("thread.run", "thread.run.step", "thread.message")


def recognises(item: WireObject) -> bool:
    """Whether the item's event, or its object, is one of a thread."""
    return name_and_data(item)[0].startswith("thread.")


def name_and_data(item: WireObject) -> tuple[str, Any]:
    """Return the event name and the data of an item. Data without a name is named by its own `object` and `status`."""
    is_bare = "event" not in item and "data" not in item
    name, data = ("", item) if is_bare else (as_text(item.get("event")), item.get("data"))
    if name.startswith("thread.") or name in ("error", "done"):
        return name, data
    wire = as_object(data)
    object = as_text(wire.get("object"))
    if object in _DELTA_OBJECTS:
        return object, data
    if object in _STATUS_OBJECTS:
        return f"{object}.{as_text(wire.get('status'))}", data
    if object == "thread":
        return "thread.created", data
    return ("error", data) if wire.get("error") else (name, data)
