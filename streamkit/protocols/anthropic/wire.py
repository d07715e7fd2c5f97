"""What the Messages API sends, read so that no value of an unexpected type can do harm.

A value of the wrong type reads as if it were absent. The deltas of text come in thousands: for these there are typed
structs, which accept an event only as it mostly comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec

from ... import messages as m
from ...events import Usage
from ..values import is_list, is_object

__all__ = [
    "CODE",
    "ENDS",
    "GROWN",
    "LANGUAGES",
    "PAUSES",
    "SYNTHESIZED",
    "annotation_of",
    "decode_grown",
    "error_of",
    "index_of",
    "items_of",
    "json_text",
    "mapping",
    "parsed",
    "text",
    "usage_of",
    "without",
]

Wire = Mapping[str, Any]

# What a stop_reason says of the answer; any other ends it well.
ENDS: dict[str, m.Status] = {
    "max_tokens": "incomplete",
    "model_context_window_exceeded": "incomplete",
    "refusal": "incomplete",  # classifiers cut the answer short, as a content filter does
    "pause_turn": "incomplete",  # it goes on in the answer to a request that sends it back
    "compaction": "incomplete",  # so does this one
}
PAUSES = ("pause_turn", "compaction")
# The server tools that run code: its language, and where in their input it is.
CODE = {"code_execution": ("python", "code"), "bash_code_execution": ("shell", "command")}
LANGUAGES = {"shell": "bash_code_execution", "bash": "bash_code_execution", "sh": "bash_code_execution"}
# What the SDK's helper adds to the events; each repeats one of them.
SYNTHESIZED = frozenset(("text", "input_json", "thinking", "citation", "signature", "compaction"))
_LIMIT = 2**53  # no counter of a real stream is beyond what every JSON reader can hold
_encode = msgspec.json.Encoder(enc_hook=str).encode
_decode = msgspec.json.Decoder().decode


# -- the fast path's view of an event: one piece of an open block, and nothing else


_Piece = Annotated[str, msgspec.Meta(min_length=1)]


class _GrownText(msgspec.Struct, tag_field="type", tag="text_delta", gc=False):
    value: _Piece = msgspec.field(name="text")


class _GrownThinking(msgspec.Struct, tag_field="type", tag="thinking_delta", gc=False):
    value: _Piece = msgspec.field(name="thinking")


class _GrownInput(msgspec.Struct, tag_field="type", tag="input_json_delta", gc=False):
    value: _Piece = msgspec.field(name="partial_json")


class _Grown(msgspec.Struct, tag_field="type", tag="content_block_delta", gc=False):
    index: int
    delta: _GrownText | _GrownThinking | _GrownInput


GROWN: dict[str, type] = {
    "text_delta": _GrownText,
    "thinking_delta": _GrownThinking,
    "input_json_delta": _GrownInput,
}
decode_grown = msgspec.json.Decoder(_Grown).decode


# -- reading values of any type


def text(value: Any) -> str:
    """A wire value as text; "" if it is none."""
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> Wire:
    """A wire value as an object; an empty one if it is none."""
    return value if is_object(value) else {}


def items_of(value: Any) -> list[Any]:
    """A wire value as a list; an empty one if it is none."""
    return value if is_list(value) else []


def without(wire: Wire, *keys: str) -> dict[str, Any]:
    """What an object says beside these keys."""
    return {key: wire[key] for key in wire if key not in keys and wire[key] is not None}


def json_text(value: Any) -> str:
    """Any value as JSON text."""
    try:
        return _encode(value).decode()
    except (TypeError, ValueError, RecursionError):  # what no JSON text gives: typed objects
        return str(value)


def parsed(content: str | bytearray) -> Any:
    """What JSON text holds; None if it is none."""
    try:
        return _decode(content)
    except (ValueError, RecursionError):
        return None


def index_of(value: Any, fault: Callable[[str, str], None]) -> int | None:
    """An index; None where there is none that can be used. `fault` is told what is odd about it."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        fault("bad-index", f"the index {value!r} is a string; read as a number")
        return int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LIMIT:
        return value
    fault("bad-index", "its index is no number that counts; it was taken as that of the newest block")
    return None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LIMIT else None


def annotation_of(citation: Wire) -> m.Annotation:
    """A citation. Where it points to in its document is in `raw`: no citation says what part of the text it is for,
    which is all of it."""
    source = text(citation.get("source"))
    return m.Annotation(
        type=text(citation.get("type")) or "citation",
        url=text(citation.get("url")) or (source if source.startswith(("http://", "https://")) else None),
        file_id=text(citation.get("file_id")) or None,
        title=text(citation.get("title")) or text(citation.get("document_title")) or None,
        quote=text(citation.get("cited_text")) or None,
        raw=dict(citation),
    )


def usage_of(wire: Wire) -> Usage:
    """Tokens, as the provider counts them: `input_tokens` is without what was read from a cache or written to one,
    which `details` counts, and `total_tokens` has."""
    counts = {key: _count(wire.get(key)) or 0 for key in ("input_tokens", "output_tokens")}
    cached = ("cache_creation_input_tokens", "cache_read_input_tokens")
    total = sum(counts.values()) + sum(_count(wire.get(key)) or 0 for key in cached)
    return Usage(**counts, total_tokens=total, details=without(wire, *counts))


def error_of(item: Wire) -> dict[str, Any]:
    """The error that an event tells of."""
    given = item.get("error")
    if is_object(given):
        error = dict(given)
    elif given is not None:
        error = {"message": given if isinstance(given, str) else json_text(given)}
    else:
        error = without(item, "type")
    if request := text(item.get("request_id")):
        error["request_id"] = request
    if not text(error.get("message")):
        error["message"] = text(error.get("type")) or "the answer failed"
    return error
