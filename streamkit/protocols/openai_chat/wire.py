"""The keys of a Chat Completions chunk, and readers of those that only Chat has.

A key that the decoder reads stands here, or in the table of a delta's keys (`DeltaReader.readers`), and nowhere else: the plain case
and the encoder take them from there. A value of an unexpected type reads as absent, and no reader here raises.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...messages import Status
from ..values import WireObject, as_object, as_text, error_object, is_list, is_object, json_text

__all__ = [
    "CHOICE_KEYS",
    "CHUNK_KEYS",
    "FILTER_RESULTS",
    "FINISH_REASON_STATUS",
    "METADATA_KEYS",
    "RAW_EVENT_KEYS",
    "REASONING_KEYS",
    "TRANSIENT_ERRORS",
    "error_of",
    "first_value",
    "holders_of",
    "thinking_text",
]

TRANSIENT_ERRORS = frozenset(
    (
        "server_error",
        "rate_limit_exceeded",
        "overloaded",
        "overloaded_error",
        "service_unavailable",
        "timeout",
        *map(str, (408, 429, *range(500, 600))),  # OpenRouter and others have the HTTP status
    )
)
"""The codes of errors in the midst of an answer after which another attempt may succeed."""

FINISH_REASON_STATUS: dict[str | None, Status] = {
    "length": "incomplete",
    "content_filter": "incomplete",
    "max_tokens": "incomplete",
    "model_length": "incomplete",  # Mistral
    "insufficient_system_resource": "incomplete",  # DeepSeek
    "error": "failed",  # OpenRouter, Mistral
    "network_error": "failed",  # Zhipu
}
"""How a finish_reason ends a choice's messages; any other completes them. The first two are OpenAI's."""

REASONING_KEYS = ("reasoning_content", "reasoning", "reasoning_text")
"""The keys at which a delta has its reasoning as text. Where several have it, it is the same text, and the first counts."""

METADATA_KEYS = ("service_tier", "system_fingerprint", "provider", "citations", "search_results", "x_groq")
"""Keys of a chunk that go into `Run.metadata`. Many servers have them in each chunk."""

RAW_EVENT_KEYS = ("moderation", "prompt_filter_results")
"""Keys of a chunk that no event expresses, so that the chunk is a raw event as well."""

CHUNK_KEYS = frozenset((*RAW_EVENT_KEYS, "usage", "error"))
"""Keys of a chunk that say more than its choices, besides `METADATA_KEYS`."""

CHOICE_KEYS = frozenset(("message", "finish_reason", "logprobs", "usage", "error"))
"""Keys of a choice that say more than its delta. What stands at others may go into `Run.metadata["choices"]`."""

FILTER_RESULTS = "content_filter_results"
"""The key of a choice at which Azure has what its filter found; in each chunk."""


def holders_of(chunk: WireObject, choices: Iterable[Any]) -> list[WireObject]:
    """Return where a chunk may have its `usage` and its `error`: in itself, in its choices (Moonshot), in `x_groq`
    (Groq)."""
    return [chunk, *map(as_object, (*choices, chunk.get("x_groq")))]


def first_value(key: str, holders: Iterable[WireObject]) -> Any:
    """Return the first value at this key that is not empty."""
    for holder in holders:
        if value := holder.get(key):
            return value
    return None


def error_of(chunk: WireObject, holders: Iterable[WireObject]) -> WireObject | None:
    """Return the error in a chunk, in any form that servers give it, as an object with a text as its `message`; else
    None.

    The forms: `error` in one of these places, as an object or as text; or, without `choices`, the error's own keys as the
    item.
    """
    error = first_value("error", holders)
    if error is None and "choices" not in chunk:
        is_error = "code" in chunk or chunk.get("type") == "error" or chunk.get("object") == "error"
        error = chunk if is_error and "message" in chunk else chunk.get("error")  # which may be an empty object
    if error is None or error is False or error == "":
        return None
    return error_object(
        error, json_text(error) if error and is_object(error) else "an error without details", message_keys=()
    )


def thinking_text(value: Any) -> str:
    """Return the text of a content part of type `thinking`: a list of text parts (Mistral), one such part, or text."""
    parts: list[Any] = value if is_list(value) else [value]
    return "".join(part if isinstance(part, str) else as_text(as_object(part).get("text")) for part in parts)
