"""The fields of Ollama's lines that other protocols do not have."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ...messages import Message
from ..values import as_object

__all__ = ["COUNTS", "KEY", "LINE_KEYS", "PlainLine", "image_format", "is_own", "own_fields"]

KEY = "ollama"
"""The key of a message's metadata at which it has what goes back to Ollama with it."""

LINE_KEYS = frozenset(
    ("model", "created_at", "message", "response", "thinking", "tool_calls", "done", "done_reason", "logprobs")
)
"""Those that are read of a line. The others of the last one go into `Run.metadata`."""

COUNTS = ("prompt_eval_count", "eval_count")
"""The tokens of the input and of the output. A count that is 0 or unknown is left out: so is that of a cached prompt."""

_IMAGE_SIGNATURES = {"/9j/": "jpeg", "R0lGOD": "gif", "UklGR": "webp"}


class _PlainMessage(msgspec.Struct, gc=False):
    content: str = ""
    thinking: str | None = None
    tool_calls: tuple[()] | None = None
    images: tuple[()] | None = None


class PlainLine(msgspec.Struct, gc=False):
    """A line of a chat that is one piece of its text or of its reasoning."""

    message: _PlainMessage
    done: bool
    error: None = None
    logprobs: None = None
    done_reason: Literal[""] | None = None


def image_format(data: str) -> str:
    """Return the format of an image in base64, of which the lines say nothing."""
    kinds = (kind for signature, kind in _IMAGE_SIGNATURES.items() if data.startswith(signature))
    return f"base64.{next(kinds, 'png')}"


def is_own(message: Message) -> bool:
    """Whether a message came over this protocol."""
    return KEY in message.metadata


def own_fields(message: Message) -> dict[str, Any]:
    """Return what a message had beside what every protocol has."""
    return {**as_object(message.metadata.get(KEY))}
