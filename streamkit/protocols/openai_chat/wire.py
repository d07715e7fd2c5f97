"""What a Chat Completions chunk may hold: its keys, and readers of what only Chat has.

A value of an unexpected type reads as absent, and no reader here raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...events import Delta, Event, Usage
from ...messages import Status
from ..values import (
    LARGEST_COUNT,
    WireObject,
    as_object,
    as_text,
    is_list,
    is_object,
    json_text,
    usage_of,
    without_keys,
)

__all__ = [
    "CHANGING_METADATA_KEYS",
    "CHOICE_KEYS",
    "FINISH_REASON_STATUS",
    "METADATA_KEYS",
    "RAW_EVENT_KEYS",
    "REASONING_KEYS",
    "error_of",
    "has_unread_keys",
    "is_only_deltas",
    "read_usage",
    "thinking_text",
    "usage_in",
]

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
"""Where a delta has its reasoning as text. Some servers send both, with the same text."""

METADATA_KEYS = ("citations", "search_results", "prompt_filter_results", "x_groq")
"""Keys of a chunk that go into `Run.metadata`."""

CHANGING_METADATA_KEYS = ("service_tier", "system_fingerprint", "provider")
"""Keys that go there too, but not from plain deltas, which have them all and for which the fast path skips them."""

RAW_EVENT_KEYS = ("moderation", "prompt_filter_results")
"""Keys of a chunk that no event expresses, so that the chunk is a raw event as well."""

CHOICE_KEYS = frozenset(("index", "delta", "message", "finish_reason", "logprobs", "usage", "error"))
"""Keys of a choice that are read. The others go into `Run.metadata["choices"]`."""

# Keys that are read or mean nothing. A chunk without events that has other keys is a raw event.
_CHUNK_KEYS = frozenset(
    (
        *METADATA_KEYS,
        *CHANGING_METADATA_KEYS,
        *RAW_EVENT_KEYS,
        *("id", "object", "created", "model", "choices", "usage", "error", "obfuscation"),
    )
)
_DELTA_KEYS = frozenset(
    (
        *REASONING_KEYS,
        *("role", "content", "refusal", "tool_calls", "function_call", "audio", "images", "annotations", "index"),
        *("reasoning_details", "thinking_blocks", "reasoning_opaque", "extra_content", "executed_tools"),
    )
)
_COUNT_BITS = (
    LARGEST_COUNT.bit_length() - 1
)  # of all counts but the largest; a negative one has more, however it is shifted
_CHAT_KEYS: tuple[str, ...] = ("prompt_tokens", "completion_tokens", "total_tokens")
_OTHER_COUNT_KEYS = frozenset({"input_tokens", "output_tokens"})
_COUNT_KEYS = (*_CHAT_KEYS, *_OTHER_COUNT_KEYS)


# -- readers


def _first_value(key: str, chunk: WireObject, choices: Iterable[Any]) -> Any:
    """The first value at this key that is not empty: in the chunk, in its choices (Moonshot), in `x_groq` (Groq)."""
    places = (chunk, *map(as_object, choices), as_object(chunk.get("x_groq")))
    return next((place[key] for place in places if place.get(key)), None)


def usage_in(chunk: WireObject, choices: Iterable[Any]) -> Any:
    """The `usage` of a chunk, wherever the server puts it, None if there is none."""
    return _first_value("usage", chunk, choices)


def read_usage(usage: WireObject) -> Usage:
    """Token counts under Chat's keys, or under those of Responses, which some servers use."""
    prompt: Any
    completion: Any
    total: Any
    prompt, completion, total = map(usage.get, _CHAT_KEYS)
    # The common form first: some servers send it in each chunk.
    if (
        prompt.__class__ is int
        and completion.__class__ is int
        and total.__class__ is int
        and total
        and not (prompt | completion | total) >> _COUNT_BITS
    ):
        if len(usage) == 3:
            return Usage(prompt, completion, total, {})
        details = {**usage}
        del details["prompt_tokens"], details["completion_tokens"], details["total_tokens"]
        if None in details.values() or not _OTHER_COUNT_KEYS.isdisjoint(details):
            details = without_keys(details, *_COUNT_KEYS)
        return Usage(prompt, completion, total, details)
    input_key = "prompt_tokens" if "prompt_tokens" in usage else "input_tokens"
    output_key = "completion_tokens" if "completion_tokens" in usage else "output_tokens"
    return usage_of(usage, input_key, output_key, leave_out=_COUNT_KEYS)


def error_of(chunk: WireObject, choices: Iterable[Any]) -> WireObject | None:
    """The error in a chunk, in any form that servers give it, as an object with a text as its `message`; else None.

    The forms: `error` in the chunk, in a choice or in `x_groq`, as an object or as text; or, without `choices`, the
    error's own keys as the item.
    """
    error = _first_value("error", chunk, choices)
    if error is None and "choices" not in chunk:
        is_error = "code" in chunk or chunk.get("type") == "error" or chunk.get("object") == "error"
        error = chunk if "message" in chunk and is_error else chunk.get("error")  # which may be an empty object
    if error is None or error is False or error == "":
        return None
    if not is_object(error):
        return {"message": error if isinstance(error, str) else json_text(error)}
    message = error.get("message")
    if not isinstance(message, str):
        message = json_text(message if message is not None else dict(error)) if error else "an error without details"
    return {**error, "message": message}


def thinking_text(value: Any) -> str:
    """The text of a content part of type `thinking`: a list of text parts (Mistral), one such part, or text."""
    parts: list[Any] = value if is_list(value) else [value]
    return "".join(part if isinstance(part, str) else as_text(as_object(part).get("text")) for part in parts)


def has_unread_keys(chunk: WireObject) -> bool:
    """Whether a chunk, or one of its deltas, has a value at a key that no event expresses."""
    if any(chunk[key] for key in chunk if key not in _CHUNK_KEYS):
        return True
    choices = chunk.get("choices")
    deltas = [as_object(as_object(choice).get("delta")) for choice in (choices if is_list(choices) else ())]
    return any(delta[key] for delta in deltas for key in delta if key not in _DELTA_KEYS)


def is_only_deltas(events: Sequence[Event]) -> bool:
    """Whether a chunk gave deltas of open messages and nothing more, as the fast path's chunks do."""
    return bool(events) and all(isinstance(event, Delta) and event.metadata is None for event in events)
