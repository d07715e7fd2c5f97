"""The canonical events on the wire: JSON objects, one an event, tagged with `type`.

Computed from the event classes. A message is its static form, a delta names its message; `raw` and snapshots stay
behind: the reader's engine makes its own. Decoding what was encoded gives events that tell the same story.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Union, cast

import msgspec

from ..answers import Confirmation
from ..errors import StreamkitError
from ..events import EVENTS, Event, Run, RunStep
from ..messages import Message

__all__ = ["decode_event", "encode_event", "event_from_dict", "event_to_dict"]


def _strip(event: Event) -> Event:
    """The event without what belongs to this process alone."""
    changes: dict[str, Any] = {}
    for key in ("raw_item", "item_index", "snapshot", "exception"):
        if key in event.__struct_fields__ and getattr(event, key) is not None:
            changes[key] = None
    for key in ("run", "run_step"):
        if key in event.__struct_fields__:
            live: Run | RunStep = getattr(event, key)
            usage = None if live.usage is None else msgspec.structs.replace(live.usage, raw_item=None)
            changes[key] = msgspec.structs.replace(live, raw=None, usage=usage)
    return msgspec.structs.replace(event, **changes) if changes else event


def _to_builtin(value: Any) -> Any:
    match value:
        case Message() | Confirmation():
            return value.to_dict()
        case Mapping():
            return dict(cast("Mapping[str, Any]", value))  # a message's metadata, which came from JSON
        case _:
            return str(value)  # a provider's value of a kind that JSON lacks


class _Question(msgspec.Struct):
    """A confirmation's static form, without its subject."""

    id: str
    status: Literal["pending", "approved", "declined"] = "pending"
    edited: str | None = None
    reason: str | None = None
    malformed: bool = False


def _from_builtin(kind: type, value: Any) -> Any:
    if issubclass(kind, Message):
        return Message.from_dict(value)
    if issubclass(kind, Confirmation):
        known = msgspec.convert(value, _Question)
        return Confirmation(subject=Message.from_dict(value.get("subject")), **msgspec.structs.asdict(known))
    raise NotImplementedError(f"a field of type {kind.__name__}")


_ANY: Any = Union[tuple(EVENTS.values())]  # noqa: UP007  # a union of values
_encoder = msgspec.json.Encoder(enc_hook=_to_builtin)
_decoder = msgspec.json.Decoder(_ANY, dec_hook=_from_builtin)


def encode_event(event: Event) -> bytes:
    """The event as one line of JSON."""
    return _encoder.encode(_strip(event))


def event_to_dict(event: Event) -> dict[str, Any]:
    """The event as plain data."""
    plain: dict[str, Any] = msgspec.to_builtins(_strip(event), enc_hook=_to_builtin)
    return plain


def decode_event(data: bytes | str) -> Event:
    """The event of one JSON object.

    Raises:
        ValueError: it is no JSON, or no canonical event.
    """
    try:
        event: Event = _decoder.decode(data)
    except (StreamkitError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return event


def event_from_dict(value: Mapping[str, Any]) -> Event:
    """The event of plain data. Raises as `decode_event`."""
    kind = value.get("type") if isinstance(cast("object", value), Mapping) else None
    known = EVENTS.get(kind) if isinstance(kind, str) else None  # a union would be built anew by each call
    try:
        event: Event = msgspec.convert(value, known or _ANY, dec_hook=_from_builtin)
    except (StreamkitError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return event
