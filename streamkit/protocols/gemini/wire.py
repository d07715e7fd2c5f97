"""The tables of Gemini's API, and readers of what only its chunks have."""

from __future__ import annotations

from typing import Any

from ...events import Usage
from ...messages import Status
from ..values import (
    WireObject,
    as_count,
    as_object,
    as_text,
    error_object,
    is_object,
    parse_json,
    text_or_json,
    without,
)

__all__ = [
    "AUDIO_TYPES",
    "PAYLOADS",
    "SEARCHES",
    "STATUS_OF_FINISH_REASON",
    "TRANSIENT_ERRORS",
    "enum_of",
    "error_of",
    "is_failure",
    "output_text_of",
    "response_of",
    "standard_base64",
    "updated",
    "usage_of",
]

_FINISH_REASONS = ("FINISH_REASON_UNSPECIFIED", "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER")
_OUTCOMES = ("OUTCOME_UNSPECIFIED", "OUTCOME_OK", "OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED")
# The names of enums by their numbers, which some clients request in place of the names.
_ENUMS = {"finishReason": _FINISH_REASONS, "outcome": _OUTCOMES, "language": ("", "PYTHON")}

_FILTERS = (
    *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"),
    *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
)
_FAILURES = (
    *("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"),
    *("MISSING_THOUGHT_SIGNATURE", "NO_IMAGE", "IMAGE_OTHER", "OTHER"),
)

STATUS_OF_FINISH_REASON: dict[str, Status] = {
    "MAX_TOKENS": "incomplete",
    **dict.fromkeys(_FILTERS, "incomplete"),
    **dict.fromkeys(_FAILURES, "failed"),
}
"""The status that a finishReason gives to an answer. Any other means `completed`: also those of calls are `STOP`."""

TRANSIENT_ERRORS = frozenset((*map(str, (408, 429, *range(500, 600))), "MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE"))
"""The codes of failed answers after which another attempt may succeed: what the model wrote wrong, it may write right."""

SEARCHES = frozenset(("GOOGLE_SEARCH_WEB", "GOOGLE_SEARCH_IMAGE", "GOOGLE_MAPS", "URL_CONTEXT", "FILE_SEARCH"))
"""The server tools that only read."""

PAYLOADS = (
    *("functionCall", "functionResponse", "executableCode", "codeExecutionResult"),
    *("toolCall", "toolResponse", "inlineData", "fileData"),
)
"""The members of a part that are its content, beside `text`: a part has one of them at most."""

AUDIO_TYPES = {"l16": "pcm16", "pcm": "pcm16", "mpeg": "mp3", "x-wav": "wav"}
"""The `format` of an audio message, by the subtype of its media type where these differ."""

_EMPTY: tuple[Any, ...] = (None, "", [], {})
_COUNTS = ("promptTokenCount", "candidatesTokenCount", "totalTokenCount")


def enum_of(wire: WireObject, key: str) -> str:
    """Return the name of an enum's value, which may be its number; "" if there is none."""
    value = wire.get(key)
    if (number := as_count(value)) is None:
        return as_text(value)
    names = _ENUMS.get(key, ())
    return names[number] if number < len(names) else str(number)


def is_failure(finish_reason: str | None) -> bool:
    """Whether an answer that ends for this reason has failed."""
    return STATUS_OF_FINISH_REASON.get(finish_reason or "") == "failed"


def usage_of(wire: WireObject) -> Usage:
    """Token counts. Gemini counts what its tools put into the request, and the thoughts, apart from the rest of the input and
    of the output."""
    counts = {key: as_count(wire.get(key)) or 0 for key in (*_COUNTS, "toolUsePromptTokenCount", "thoughtsTokenCount")}
    input_tokens = counts["promptTokenCount"] + counts["toolUsePromptTokenCount"]
    output_tokens = counts["candidatesTokenCount"] + counts["thoughtsTokenCount"]
    total = counts["totalTokenCount"] or input_tokens + output_tokens
    return Usage(input_tokens, output_tokens, total, without(wire, _COUNTS))


def error_of(value: Any) -> dict[str, Any]:
    """Return an error: `{"code": 503, "message": …, "status": "UNAVAILABLE"}`."""
    return error_object(value, "an error without details", message_keys=("status",))


def updated(held: dict[str, Any], more: WireObject) -> dict[str, Any]:
    """Add the values of an object to those that are held, also inside of objects; empty ones change nothing. Returns those that
    are new."""
    changed: dict[str, Any] = {}
    for key, value in more.items():
        before = held.get(key)
        if value in _EMPTY or value == before:
            continue
        changed[key] = value
        held[key] = {**as_object(before), **_filled(value)} if is_object(value) else value
    return changed


def _filled(value: WireObject) -> dict[str, Any]:
    return {key: one for key, one in value.items() if one not in _EMPTY}


def response_of(text: str, *, failed: bool) -> dict[str, Any]:
    """Return the `response` of a function, which is an object: an output that is none stands in one."""
    value = parse_json(text)
    return {"error": text} if failed else value if is_object(value) else {"result": text}  # type: ignore[return-value]


def output_text_of(response: Any) -> str:
    """Return the output in the `response` of a function."""
    wire = as_object(response)
    found = next((wire[key] for key in ("result", "error") if len(wire) == 1 and isinstance(wire.get(key), str)), None)
    return text_or_json(response) if found is None else found


def standard_base64(data: str) -> str:
    """Return base64 in the usual alphabet. Google's client writes it in the one for URLs."""
    return data.replace("-", "+").replace("_", "/")
