"""Where a source shows too little: its items before its protocol is recognised, the first bytes of one without items, and its end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..errors import IncompleteStreamError, ProtocolError, StreamkitError
from ..events import Event, Run, RunDone, StreamWarning
from ..messages.json_text import read_json
from ..messages.sdk_objects import as_item
from ..protocols import registry
from ..protocols.base import Decoder
from ..protocols.frameworks.shape import source_of_framework
from ..protocols.framing import is_frame
from ..protocols.values import is_object
from .live import decoder_of_possible_question

__all__ = ["cut_off", "events_at_end", "failed_run", "is_complete", "is_text", "parsed_item", "protocol_among"]

_UNRECOGNISED_LIMIT = 200  # items held while the protocol is not recognised
_SHOWN = 60  # bytes of an unknown source that an error shows
_PLAIN_ITEMS = (str, bytes, dict, tuple)  # any of which may be an item of a protocol: a frame is a tuple

_SSE_FIELDS = (b"data", b"event", b"id", b"retry")
_MOST_SPACE = 1_000  # characters that are held before the first that is no white space
_NO_TEXT = (b"{", b"[", b"\0")  # with which JSON and Amazon's messages begin


def protocol_among(items: Sequence[Any], start: int, *, parsed: bool, may_ask: bool) -> type[Decoder] | None:
    """Return the decoder of the first of these items that only one protocol has; None if there is none yet.

    Args:
        items: all items of the source.
        start: the index of the first that was not looked at before.
        parsed: whether these are parsed items, and not frames.
        may_ask: whether an item may be a malformed question of a live producer.

    Raises:
        ProtocolError: there is an item that no protocol has, or there are too many that several have.
    """
    for number, item in enumerate(items[start:], start):
        kind = _protocol_of(item, parsed=parsed)
        if kind is None and may_ask:
            kind = decoder_of_possible_question(parsed_item(item))
        if kind is not None:
            return kind
        if parsed and _is_of_no_protocol(item):
            raise _unrecognised(item)
        if number >= _UNRECOGNISED_LIMIT:
            raise _unrecognised(items[0])
    return None


def _protocol_of(item: Any, *, parsed: bool) -> type[Decoder] | None:
    """Return the decoder of the protocol that alone has such items; None if there is none. `parsed`: it is not a frame."""
    if not parsed:
        return registry.recognise(read_json(item[2]), item[1].decode("utf-8", "replace"))
    if isinstance(item, Event):
        kind: type[Decoder] = registry.find("streamkit").Decoder
        return kind
    return registry.recognise_object(item) or registry.recognise(as_item(item))


def _is_of_no_protocol(item: Any) -> bool:
    """Whether an item is an object that no decoder reads: it is no JSON, no frame, no event, and has no JSON form."""
    return not isinstance(item, (Event, *_PLAIN_ITEMS)) and not is_object(as_item(item))


def parsed_item(held: Any) -> Any:
    """Return a held item, or a held frame's data: as JSON where it is JSON, else as text."""
    if not is_frame(held):
        return as_item(held)
    _, _, data = held
    value = read_json(data)
    return data.decode("utf-8", "replace") if value is None else value


def _error_in(held: Any) -> dict[str, Any] | None:
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


def _is_plain(start: bytes) -> bool:
    """Whether a body that begins like this is neither Server-Sent Events nor JSON nor Amazon's messages, even if only its beginning is here."""
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    return text[:1] not in _NO_TEXT and not any(name.startswith(_field(text)) for name in _SSE_FIELDS)


def is_text(start: str) -> bool | None:
    """Whether text that begins like this is no Server-Sent Events and no JSON; None if that is too little to decide."""
    text = start.removeprefix("\ufeff").lstrip().encode("utf-8", "surrogatepass")
    if not text:
        return None if len(start) < _MOST_SPACE else True
    if text[:1] in _NO_TEXT or not any(name.startswith(_field(text)) for name in (*_SSE_FIELDS, b"error")):
        return text[:1] not in _NO_TEXT
    return None if _field(text) == text else False


def _field(text: bytes) -> bytes:
    """Return what stands where Server-Sent Events have the name of a field."""
    return re.split(rb"[:\r\n]", text, maxsplit=1)[0]


def failed_run(held: Sequence[Any]) -> Sequence[Event]:
    """Return the failed run of a source that was nothing but an error, which has about the same shape in every protocol.
    Nothing for one that has only `[DONE]`: it is complete, and empty.

    Raises:
        ProtocolError: none of the items is an error.
    """
    if all(parsed_item(item) == "[DONE]" for item in held):
        return []
    for item in held:
        if (error := _error_in(item)) is not None:
            return [RunDone(Run(status="failed", error=error, raw=parsed_item(item)))]
    raise _unrecognised(held[0])


def _unrecognised(first: Any) -> ProtocolError:
    """Return the error about a source whose protocol was not recognised, by its first item."""
    kind, hint = "", f"give `protocol=`, one of: {', '.join(registry.names())}, or text for plain text"
    if not isinstance(first, _PLAIN_ITEMS):
        kind = f"the {type(first).__module__}.{type(first).__qualname__} "
        hint = source_of_framework(first) or (
            "objects of another framework are not a stream of a protocol: pass the stream of the model's client, or report what "
            "they say with an `Emitter`"
        )
    return ProtocolError(
        "unknown-protocol", f"no protocol has items like {kind}{repr(parsed_item(first))[:200]}; {hint}", index=0
    )


# -- the end


def events_at_end(decoder: Decoder) -> list[Event]:
    """Return what a decoder reports at the end. A fault that it finds there is no single item's."""
    events = [*decoder.finish()]
    for event in events:
        if isinstance(event, StreamWarning) and event.index == decoder.index:
            event.index = None
    return events


def is_complete(data: bytes) -> bool:
    """Whether the data of a frame that only the end of the stream closed is complete."""
    return data.startswith(b"[DONE") or read_json(data) is not None


def _unknown_framing(beginning: bytes) -> ProtocolError:
    """Return the error about a source that is text, but neither Server-Sent Events nor lines of JSON."""
    return ProtocolError(
        "unknown-protocol",
        f"the source is text in no known framing: it begins with {beginning!r}. Known are Server-Sent Events and lines of "
        'JSON. Plain text is read with `protocol="text"`',
        index=0,
    )


def cut_off(decoder: Decoder | None, seen: bytes, *, in_item: bool, has_run: bool) -> StreamkitError:
    """Return the error about a source that was cut off, or never was a stream.

    Args:
        decoder: None if its protocol was not recognised.
        seen: its first bytes, until there is a decoder.
        in_item: whether it ended in the middle of an item of its protocol.
        has_run: whether a run began.
    """
    if decoder is None and _is_plain(seen):
        return _unknown_framing(seen[:_SHOWN])
    if decoder is None:
        how = f"without {'a complete' if seen else 'any'} item"
        shown = "; one that was read before has none left"
        if seen:
            shown = f'; it begins with {seen[:_SHOWN]!r}. If it is plain text, pass `protocol="text"`'
        return IncompleteStreamError(f"the source was cut off: it ended {how}, before its protocol's end{shown}")
    if not has_run and decoder.index:
        return IncompleteStreamError(
            f"none of the source's {decoder.index} items is one of {decoder.name}; is `protocol=` right?"
        )
    how = "in the middle of an item" if in_item else f"after {decoder.index} items"
    unread_index, unread_message = decoder.unread
    message = unread_message if unread_index == decoder.index - 1 else ""
    shown = f"; its last item says: {message}" if message else ""
    return IncompleteStreamError(
        f"the {decoder.name} stream was cut off: it ended {how}, before its protocol's end{shown}"
    )
