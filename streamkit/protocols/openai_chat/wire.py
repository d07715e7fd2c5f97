"""What a Chat Completions chunk may hold: its keys, its bare form, and readers for values of any type.

What is not of the type that it should have reads as absent; nothing here raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ... import events as e
from ... import messages as m
from ..values import is_list, is_object

__all__ = [
    "ENDS",
    "KEPT",
    "KEPT_SOMETIMES",
    "KNOWN_OF_CHOICE",
    "OBJECTS",
    "RAW",
    "REASONING",
    "BareCall",
    "BareDelta",
    "annotation_of",
    "arguments_of",
    "as_error",
    "count",
    "decode_bare",
    "error_of",
    "has_more",
    "index_of",
    "is_whole",
    "joined",
    "json_text",
    "list_of",
    "mapping",
    "name_of",
    "only_deltas",
    "string",
    "time_of",
]

# What a finish_reason says of the answer; any other ends it well. The first two are OpenAI's.
ENDS: dict[str, m.Status] = {
    "length": "incomplete",
    "content_filter": "incomplete",
    "max_tokens": "incomplete",
    "model_length": "incomplete",  # Mistral
    "insufficient_system_resource": "incomplete",  # DeepSeek
    "error": "failed",  # OpenRouter, Mistral
    "network_error": "failed",  # Zhipu
}
OBJECTS = ("chat.completion.chunk", "chat.completion", "chat.completion.done")
REASONING = ("reasoning_content", "reasoning")
# Chunk keys kept in `Run.metadata`: from every chunk, and from those that tell more than a piece of text.
KEPT = ("citations", "search_results", "prompt_filter_results", "x_groq")
KEPT_SOMETIMES = ("service_tier", "system_fingerprint", "provider")
RAW = ("moderation", "prompt_filter_results")  # told whole as well: no event is for them
# Keys that are understood, or mean nothing. An item that tells nothing and has others is told as it came.
_KNOWN = frozenset(
    (*KEPT, *KEPT_SOMETIMES, *RAW, "id", "object", "created", "model", "choices", "usage", "error", "obfuscation")
)
KNOWN_OF_CHOICE = frozenset(("index", "delta", "message", "finish_reason", "logprobs", "usage", "error"))
_KNOWN_OF_DELTA = frozenset(
    ("role", "content", "refusal", "tool_calls", "function_call", "audio", "images", "annotations", "index")
).union((*REASONING, "reasoning_details"))
_LIMIT = 2**53
_encode = msgspec.json.Encoder(enc_hook=str).encode


# -- the fast path's view of a chunk: one choice with one piece of an open message, and nothing else


class _BareFunction(msgspec.Struct, gc=False):
    arguments: str


class BareCall(msgspec.Struct, gc=False):
    index: int
    function: _BareFunction
    id: str | None = None
    custom: None = None


class BareDelta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[BareCall] | None = None
    refusal: None = None
    function_call: None = None
    audio: None = None
    annotations: None = None
    reasoning_details: None = None
    images: None = None


class _BareChoice(msgspec.Struct, gc=False):
    delta: BareDelta
    index: int = 0
    finish_reason: None = None
    logprobs: None = None
    message: None = None
    usage: None = None
    error: None = None
    content_filter_results: None = None


class _BareChunk(msgspec.Struct, gc=False):
    choices: tuple[_BareChoice]
    usage: None = None
    error: None = None
    citations: None = None
    search_results: None = None
    prompt_filter_results: None = None
    x_groq: None = None
    moderation: None = None


decode_bare = msgspec.json.Decoder(_BareChunk).decode


# -- reading values of any type


def index_of(value: Any, fault: Callable[[str, str], None]) -> int | None:
    """An index; None where there is none that can be used. `fault` is told what is odd about it."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        fault("bad-index", f"the index {value!r} is a string; read as a number")
        return int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LIMIT:
        return value
    if value is not None:
        fault("bad-index", "an index is no number that counts; it was taken as missing")
    return None


def string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> Mapping[str, Any]:
    return value if is_object(value) else {}


def list_of(value: Any) -> list[Any] | None:
    """A list; empty for null, None for what is neither."""
    return [] if value is None else value if is_list(value) else None


def count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LIMIT else 0


def time_of(value: Any) -> float | None:
    return (
        float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _LIMIT else None
    )


def json_text(value: Any) -> str:
    try:
        return _encode(value).decode()
    except (TypeError, ValueError, RecursionError):  # what no JSON text gives: typed objects
        return str(value)


def arguments_of(value: Any) -> str:
    """Arguments are a string, or null; some servers send the object itself."""
    return value if isinstance(value, str) else "" if value is None else json_text(value)


def is_whole(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, ValueError):
        return False


def joined(parts: Any) -> str:
    """The texts of thinking parts: a list of text parts, or the text itself."""
    if not is_list(parts):
        return string(parts)
    return "".join(part if isinstance(part, str) else string(mapping(part).get("text")) for part in parts)


def annotation_of(given: Mapping[str, Any]) -> m.Annotation:
    """`{type: url_citation, url_citation: {url, title, start_index, end_index}}`, or the same flat."""
    kind = string(given.get("type")) or "annotation"
    body = mapping(given.get(kind)) or given
    start, end = body.get("start_index"), body.get("end_index")
    return m.Annotation(
        type=kind,
        url=string(body.get("url")) or None,
        file_id=string(body.get("file_id")) or None,
        title=string(body.get("title")) or None,
        quote=string(body.get("content")) or None,
        start=count(start) if isinstance(start, int) else None,
        end=count(end) if isinstance(end, int) else None,
        raw=given,
    )


def error_of(item: Mapping[str, Any], choices: list[Any]) -> Mapping[str, Any] | None:
    """The error that an item tells of, in any of the forms that servers have for it."""
    places = (item, *(mapping(choice) for choice in choices), mapping(item.get("x_groq")))
    error = next((place["error"] for place in places if place.get("error")), None)
    if error is None and "choices" not in item:
        flat = "message" in item and ("code" in item or item.get("type") == "error" or item.get("object") == "error")
        error = item if flat else item.get("error")  # an error may be an empty object
    if error is None or error is False or error == "":
        return None
    if not is_object(error):
        return {"message": error if isinstance(error, str) else json_text(error)}
    message = error.get("message")
    if not isinstance(message, str):
        message = json_text(message if message is not None else dict(error)) if error else "an error of no kind"
    return {**error, "message": message}


def as_error(data: bytes) -> bytes:
    """The data of an SSE event named `error` as an item that says so itself."""
    try:
        given = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        given = data.decode("utf-8", "replace")
    if is_object(given) and ("error" in given or "choices" in given):
        return data
    return _encode({"error": given or "an error event without data"})


def has_more(item: Mapping[str, Any]) -> bool:
    """Whether an item that told nothing says something that no event is for."""
    if any(item[key] for key in item if key not in _KNOWN):
        return True
    for choice in list_of(item.get("choices")) or ():
        delta = mapping(mapping(choice).get("delta"))
        if any(delta[key] for key in delta if key not in _KNOWN_OF_DELTA):
            return True
    return False


def name_of(item: Mapping[str, Any]) -> str:
    return string(item.get("type")) or string(item.get("object")) or "chat.completion.chunk"


def only_deltas(told: list[e.Event]) -> bool:
    """Whether an item told pieces of open messages and no more, as the fast path's items do."""
    return bool(told) and all(isinstance(event, e.Delta) and event.metadata is None for event in told)
