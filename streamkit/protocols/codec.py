"""The canonical events on the wire: JSON objects, one for each event, tagged with `type`.

The codec follows from the event classes: there is no second list of them. A message is encoded in its static form, and a
delta with its message's id. `raw`, snapshots and exceptions stay behind, as the reader's engine makes its own. Events that
were encoded and decoded again describe the same stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Literal, Union

import msgspec

from ..answers import Confirmation
from ..core.resume import Snapshot
from ..errors import StreamkitError
from ..events import EVENTS, Delta, Event, Run, RunStep, version
from ..messages import Message
from ..messages.json_text import TOO_DEEP, bounded, is_nested_too_deep, is_too_deep, read_leniently, well_formed
from ..messages.typed_json import converter, decoder
from .values import is_object

__all__ = [
    "decode_event",
    "delta_decoder",
    "encode_delta",
    "encode_event",
    "encode_snapshot",
    "event_from_dict",
    "event_to_dict",
    "line_decoder",
    "message_to_dict",
    "snapshot_from",
]


def encode_event(event: Event) -> bytes:
    """Return the event as one line of JSON, without the newline. What no reader would take is as in `event_to_dict`."""
    if isinstance(event, Delta) and event.metadata is None and event.__struct_fields__ == Delta.__struct_fields__:
        try:  # the common case, in a twentieth of the time
            return _encoder.encode(msgspec.structs.replace(event, snapshot=None, raw_item=None, item_index=None))
        except (ValueError, TypeError, RecursionError):
            pass
    try:
        data = _encoder.encode(_portable(event))
        if not is_too_deep(b"[" + data):  # a recording has it inside of an object
            return data
    except (ValueError, TypeError, RecursionError):  # half of a surrogate pair is a ValueError, too
        pass
    return msgspec.json.encode(event_to_dict(event))


def encode_delta(event: Delta) -> bytes:
    """As `encode_event`, faster, for a delta that has no snapshot and no raw item."""
    if event.metadata is None:
        try:
            return _encoder.encode(event)
        except ValueError:  # half of a surrogate pair
            pass
    return encode_event(event)


def event_to_dict(event: Event, *, keep_surrogates: bool = False) -> dict[str, Any]:
    """Return the event as plain JSON values. Half of a surrogate pair, which cannot be encoded, is U+FFFD if it is not
    kept. None stands for what is nested too deep, and for numbers of thousands of digits; keys that JSON lacks are
    text."""
    portable = _portable(event)
    try:
        plain: dict[str, Any] = msgspec.to_builtins(portable, enc_hook=_to_builtin)
    except (ValueError, TypeError, RecursionError):
        values = {name: bounded(value) for name, value in msgspec.structs.asdict(portable).items()}
        portable = msgspec.structs.replace(portable, **values)
        plain = msgspec.to_builtins(portable, enc_hook=lambda value: bounded(_to_builtin(value)))
    try:
        if not is_too_deep(b"[" + msgspec.json.encode(plain)):
            return plain
    except (ValueError, TypeError, RecursionError):
        pass  # what is not JSON about it is replaced
    plain = bounded(plain)
    cleaned: dict[str, Any] = plain if keep_surrogates else well_formed(plain).value
    return cleaned


def message_to_dict(message: Message) -> dict[str, Any]:
    """Return a message's static form as plain JSON values, as in an event."""
    plain: dict[str, Any] = msgspec.to_builtins(message.to_dict(), enc_hook=_to_builtin)
    cleaned: dict[str, Any] = well_formed(plain).value
    return cleaned


def decode_event(data: bytes | str) -> Event:
    """Return the event of one JSON object.

    Raises:
        ValueError: the text is not JSON, or not a canonical event.
    """
    if is_too_deep(data):
        raise ValueError(TOO_DEEP)
    try:
        event: Event = _event_decoder(version())(data)
    except (StreamkitError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    except ValueError:
        if (lenient := read_leniently(data)) is None:
            raise
        return event_from_dict(lenient.value)
    return event


def line_decoder() -> Callable[[bytes], Event]:
    """Return a fast decoder of lines that `encode_event` made, for as long as no event class is declared. It raises for other
    lines: `decode_event` decodes those, or explains the fault."""
    return _event_decoder(version())


def delta_decoder() -> Callable[[bytes], Delta]:
    """Return a decoder of deltas alone, of any kind: faster, and it raises `msgspec.DecodeError` for what is not quite
    JSON too."""
    return _delta_decoder(version())


def event_from_dict(value: Mapping[str, Any]) -> Event:
    """Return the event of plain JSON values. Raises as `decode_event`."""
    if is_nested_too_deep(value):
        raise ValueError(TOO_DEEP)
    name = value.get("type") if is_object(value) else None
    # The class alone, where it is known: msgspec builds the union anew in each call.
    kind = EVENTS.get(name) or _any_event(version()) if isinstance(name, str) else _any_event(version())
    try:
        event = _event_converter(kind)(value)
    except (StreamkitError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return event


class _SnapshotFrame(msgspec.Struct):
    """A snapshot's line, except for its `type`, which is `snapshot`."""

    dropped: int = 0
    events: list[dict[str, Any]] = []


_decode_snapshot: Callable[[bytes], _SnapshotFrame] = decoder(_SnapshotFrame).decode
_as_snapshot = converter(_SnapshotFrame)


def encode_snapshot(events: Iterable[bytes], dropped: int) -> bytes:
    """Return the line of a snapshot, of these encoded events."""
    return b'{"type":"snapshot","dropped":%d,"events":[%b]}' % (dropped, b",".join(events))


def snapshot_from(value: bytes | Mapping[str, Any]) -> Snapshot:
    """Return the snapshot of its line, or of its plain JSON values. Raises as `decode_event`."""
    frame = _decode_snapshot(value) if isinstance(value, bytes) else _as_snapshot(value)
    return Snapshot(events=[event_from_dict(event) for event in frame.events], dropped=frame.dropped)


def _portable(event: Event) -> Event:
    """Return the event without what belongs to this process alone: its source's item, live snapshots and exceptions."""
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
    """Return the JSON form of what msgspec cannot encode by itself."""
    match value:
        case Message() | Confirmation():
            return value.to_dict()
        case _ if is_object(value):
            return dict(value)  # the metadata of a message is a read-only mapping
        case _:
            return str(value)  # a value that a provider's client made, of a type that JSON lacks


class _ConfirmationState(msgspec.Struct):
    """The static form of a confirmation, except for its subject."""

    id: str
    status: Literal["pending", "approved", "declined", "unanswered"] = "pending"
    edited: str | None = None
    reason: str | None = None
    malformed: bool = False
    editable: bool = False
    expires_at: float | None = None


_as_confirmation_state = converter(_ConfirmationState)


def _from_builtin(kind: type, value: Any) -> Any:
    """Return the message or confirmation of a static form."""
    if issubclass(kind, Message):
        return Message.from_dict(value)
    if issubclass(kind, Confirmation):
        state = _as_confirmation_state(value)
        fields = msgspec.structs.asdict(state)
        editable = fields.pop("editable")
        confirmation = Confirmation(subject=Message.from_dict(value.get("subject")), **fields)
        confirmation.editable = editable
        return confirmation
    raise NotImplementedError(f"a field of type {kind.__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_to_builtin)


@cache
def _event_converter(kind: Any) -> Callable[[Any], Event]:
    return converter(kind, dec_hook=_from_builtin)


@cache
def _any_event(version: int) -> Any:
    """Return the union of all event classes. `version` is that of the events: applications may declare more."""
    return Union[tuple(EVENTS.values())]  # noqa: UP007  # the classes are values, not written out


@cache
def _delta_decoder(version: int) -> Callable[[bytes], Delta]:
    kinds = tuple(kind for kind in EVENTS.values() if issubclass(kind, Delta))
    return decoder(Union[kinds]).decode  # noqa: UP007  # as above


@cache
def _event_decoder(version: int) -> Callable[[bytes | str], Event]:
    """Return the decoder of any event's JSON text."""
    return decoder(_any_event(version), dec_hook=_from_builtin).decode
