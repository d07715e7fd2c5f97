"""Looks at the items of a source whose protocol is not known yet, and at the first bytes of one without any item."""

from __future__ import annotations

import re
from typing import Any

from ..events import Event
from ..messages.json_text import read_json
from ..messages.sdk_objects import as_item
from ..protocols import registry
from ..protocols.base import Decoder
from ..protocols.framing import is_frame
from ..protocols.values import is_object

__all__ = ["error_in", "is_plain", "parsed_item", "protocol_of"]

_SSE_FIELDS = (b"data", b"event", b"id", b"retry")


def protocol_of(item: Any, *, parsed: bool) -> type[Decoder] | None:
    """Return the decoder of the protocol that alone has such items; None if there is none. `parsed`: it is not a frame."""
    if not parsed:
        return registry.recognise(read_json(item[2]), item[1].decode("utf-8", "replace"))
    if isinstance(item, Event):
        kind: type[Decoder] = registry.find("streamkit").Decoder
        return kind
    return registry.recognise(as_item(item))


def parsed_item(held: Any) -> Any:
    """Return a held item, or a held frame's data: as JSON where it is JSON, else as text."""
    if not is_frame(held):
        return as_item(held)
    _, _, data = held
    value = read_json(data)
    return data.decode("utf-8", "replace") if value is None else value


def error_in(held: Any) -> dict[str, Any] | None:
    """Return the error in a held item or frame: under the key `error`, or the item itself if it is named so."""
    item = parsed_item(held)
    is_error = is_frame(held) and held[1] == b"error"
    if is_object(item) and item.get("event") == "error" and "data" in item:
        item, is_error = item["data"], True
    if is_object(item):
        error = item.get("error") or (item if is_error or item.get("type") == "error" else None)
    else:
        error = item if is_error else None
    if error is None:
        return None
    return dict(error) if is_object(error) else {"message": str(error)}


def is_plain(start: bytes) -> bool:
    """Whether a body that begins like this is neither Server-Sent Events nor JSON, even if only its beginning is here."""
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    field = re.split(rb"[:\r\n]", text, maxsplit=1)[0]
    return text[:1] not in (b"{", b"[") and not any(name.startswith(field) for name in _SSE_FIELDS)
