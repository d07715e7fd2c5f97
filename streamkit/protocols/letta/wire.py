"""What a Letta server sends: its kinds of items, how its runs end, and readers for values of any type.

What is not of the type that it should have reads as absent; nothing here raises. The deltas of text come in thousands:
for these there are typed structs, which accept an item only as it mostly comes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from ...events import RunStatus, Usage
from ..values import is_list, is_object

__all__ = [
    "ENDS",
    "PAYLOADS",
    "PIECES",
    "CallPiece",
    "Content",
    "Wire",
    "as_error",
    "decode_piece",
    "error_of",
    "integer",
    "json_text",
    "mapping",
    "read_content",
    "text",
    "usage_of",
]

Wire = Mapping[str, Any]

# The kinds of items, and the keys of which each has one at least.
PAYLOADS: dict[str, tuple[str, ...]] = {
    "reasoning_message": ("reasoning",),
    "hidden_reasoning_message": ("state",),
    "assistant_message": ("content", "assistant_message"),
    "tool_call_message": ("tool_call", "tool_calls"),
    "approval_request_message": ("tool_call", "tool_calls"),
    "tool_return_message": ("tool_return", "tool_returns"),
    "approval_response_message": ("approvals", "approve"),
    "user_message": ("content", "message"),
    "system_message": ("content", "message"),
    "summary_message": ("summary",),
    "event_message": ("event_type",),
    "ping": ("run_id", "id"),
    "error_message": ("message", "error_type"),
    "stop_reason": ("stop_reason",),
    "usage_statistics": ("total_tokens", "prompt_tokens", "completion_tokens"),
    "internal_monologue": ("internal_monologue",),
    "function_call": ("function_call",),
    "function_return": ("function_return",),
}

# What a stop_reason says of the run; any other ends it well. An answer that is cut by its length is no failure here,
# though the server calls it one: its caller gets what arrived.
ENDS: dict[str, RunStatus] = {
    "end_turn": "completed",
    "tool_rule": "completed",
    "max_steps": "completed",
    "requires_approval": "requires_action",
    "max_tokens_exceeded": "incomplete",
    "error": "failed",
    "llm_api_error": "failed",
    "invalid_llm_response": "failed",
    "invalid_tool_call": "failed",
    "no_tool_call": "failed",
    "insufficient_credits": "failed",
    "context_window_overflow_in_system_prompt": "failed",
    "cancelled": "cancelled",
}
_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")
_LARGEST = 2**53  # no counter of a real stream is beyond what every JSON reader can hold


# -- the fast path's view of an item: one piece of an open message, and nothing else


class Piece(msgspec.Struct, tag_field="message_type", gc=False):
    id: str | None = None
    otid: str | None = None
    run_id: str | None = None
    step_id: str | None = None
    seq_id: Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)] | None = None


_Value = Annotated[str, msgspec.Meta(min_length=1)]


class _ReasoningPiece(Piece, tag="reasoning_message", gc=False, kw_only=True):
    value: _Value = msgspec.field(name="reasoning")
    signature: None = None


class _TextPiece(Piece, tag="assistant_message", gc=False, kw_only=True):
    value: _Value = msgspec.field(name="content")


class _Fragment(msgspec.Struct, gc=False):
    tool_call_id: str
    arguments: _Value
    name: None = None


class CallPiece(Piece, tag="tool_call_message", gc=False, kw_only=True):
    fragment: _Fragment = msgspec.field(name="tool_calls")


PIECES: dict[str, type[Piece]] = {"reasoning_message": _ReasoningPiece, "assistant_message": _TextPiece}
decode_piece = msgspec.json.Decoder(_ReasoningPiece | _TextPiece | CallPiece).decode


# -- reading values of any type


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> Wire:
    return value if is_object(value) else {}


def integer(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= _LARGEST else None


def json_text(value: Any) -> str:
    """Text as it is, any other value as JSON text; "" for null."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    except (ValueError, RecursionError):
        return ""


class Content(NamedTuple):
    """What a message says: its text, the images in it (format and content), and whether there is more."""

    text: str = ""
    signature: str = ""
    images: Sequence[tuple[str, str]] = ()
    more: bool = False


def read_content(value: Any) -> Content:
    """Content as a string, a list of parts, or one part."""
    if isinstance(value, str) or value is None:
        return Content(value or "")
    said: list[str] = []
    images: list[tuple[str, str]] = []
    signature, more = "", False
    for part in value if is_list(value) else [value]:
        if isinstance(part, str):
            said.append(part)
        elif is_object(part) and isinstance(part.get("text"), str):
            said.append(part["text"])
            signature = text(part.get("signature")) or signature
        elif image := _image(mapping(part)):
            images.append(image)
        else:
            more = True
    return Content("".join(said), signature, images, more)


def _image(part: Wire) -> tuple[str, str] | None:
    source = mapping(part.get("source"))
    if part.get("type") != "image":
        return None
    if url := text(source.get("url")):
        return "url", url
    if data := text(source.get("data")):
        return f"base64.{text(source.get('media_type')).removeprefix('image/') or 'png'}", data
    file_id = text(source.get("file_id"))
    return ("file_id", file_id) if file_id else None


def usage_of(item: Wire) -> Usage:
    """The run's tokens. What was not reported is null, and is not in the details."""
    counts = [integer(item.get(key)) or 0 for key in _COUNTS]
    plain = (*_COUNTS, "message_type", "id", "date")
    details = {key: value for key, value in item.items() if key not in plain and value is not None}
    return Usage(counts[0], counts[1], counts[2] or counts[0] + counts[1], details)


def error_of(item: Wire) -> dict[str, Any]:
    """An error in any of its forms: an `error_message`, or what servers without these sent under `error`."""
    given = item.get("error")
    error: dict[str, Any] = {}
    if item.get("message_type") == "error_message":
        known = {"type": item.get("error_type"), **{key: item.get(key) for key in ("message", "detail", "code")}}
        error = {key: value for key, value in known.items() if value is not None}
    elif is_object(given):
        error = dict(given)
    elif given is not None:
        error = {"message": json_text(given), **{key: item[key] for key in ("code", "detail") if key in item}}
    if not text(error.get("message")):
        error["message"] = text(error.get("detail")) or text(error.get("type")) or "the run failed"
    return error


def as_error(data: bytes) -> bytes:
    """The data of an SSE event named `error` as an item that says so itself."""
    try:
        given = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        given = data.decode("utf-8", "replace").strip()
    if is_object(given) and (isinstance(given.get("message_type"), str) or "error" in given):
        return data
    return msgspec.json.encode({"error": given or "an error event without data"})
