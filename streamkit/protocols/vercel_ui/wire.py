"""The tables of Vercel's UI message stream: types of chunks, reasons for the end, media types; its plain item."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from ...events import RunStatus
from ..ui_parts import EXTRA_KEY
from ..values import WireObject, as_object

__all__ = [
    "CHUNK_KEYS",
    "FINISH_REASONS",
    "KEY",
    "STATUS_OF_FINISH_REASON",
    "PlainUiDelta",
    "Version",
    "extra_of",
    "finish_reason_of",
    "is_chunk",
]

KEY = "vercel_ui"
"""The key of messages' metadata under which the `providerMetadata` of their chunks stands."""

Version: TypeAlias = Literal[5, 6, 7]
"""The major version of the `ai` package that reads the stream."""

CHUNK_KEYS: Mapping[str, tuple[str, ...]] = {
    "start": (),
    "message-metadata": ("messageMetadata",),
    "start-step": (),
    "finish-step": (),
    "reset-step": (),
    "text-start": ("id",),
    "text-delta": ("id", "delta"),
    "text-end": ("id",),
    "reasoning-start": ("id",),
    "reasoning-delta": ("id", "delta"),
    "reasoning-end": ("id",),
    "reasoning-file": ("url", "mediaType"),
    "tool-input-start": ("toolCallId", "toolName"),
    "tool-input-delta": ("toolCallId", "inputTextDelta"),
    "tool-input-available": ("toolCallId", "toolName"),
    "tool-input-error": ("toolCallId", "errorText"),
    "tool-output-available": ("toolCallId",),
    "tool-output-error": ("toolCallId", "errorText"),
    "tool-output-denied": ("toolCallId",),
    "tool-approval-request": ("approvalId", "toolCallId"),
    "tool-approval-response": ("approvalId", "approved"),
    "source-url": ("sourceId", "url"),
    "source-document": ("sourceId", "mediaType"),
    "file": ("url", "mediaType"),
    "custom": ("kind",),
    "steering-message": ("id", "parts"),
    "error": ("errorText",),
    "abort": (),
    "finish": (),
}
"""The types of chunks, and the keys that each of them must have. Those that begin with `data-` have `data`."""

STATUS_OF_FINISH_REASON: Mapping[str, RunStatus] = {
    "stop": "completed",
    "tool-calls": "completed",
    "length": "incomplete",
    "content-filter": "incomplete",
    "interrupted": "cancelled",
    "error": "failed",
}
"""The status that a `finishReason` gives to a run. Any other means `completed`."""

FINISH_REASONS: Mapping[str, str] = {
    **dict.fromkeys(("stop", "end_turn", "completed", "stop_sequence"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "model_length", "max_tokens_exceeded"), "length"),
    **dict.fromkeys(("content-filter", "content_filter", "refusal"), "content-filter"),
    **dict.fromkeys(("tool-calls", "tool_calls", "tool_use", "requires_approval", "function_call"), "tool-calls"),
}
"""The `finishReason` for what providers call it."""

_STATUS_REASONS: Mapping[RunStatus, str] = {
    "requires_action": "tool-calls",
    "incomplete": "length",
    "failed": "error",
    "expired": "error",
}


def finish_reason_of(status: RunStatus, reason: str | None) -> str:
    """Return the `finishReason` of a run. A reader takes from it the same status, as far as that is possible."""
    found = FINISH_REASONS.get(reason or "", "other" if reason else "")
    by_status = _STATUS_REASONS.get(status, "stop")
    if status == "incomplete":
        return found if found in ("length", "content-filter") else ("other" if found else by_status)
    if status != "completed":
        return by_status
    return found if found in ("stop", "tool-calls", "other") else by_status


# -- the plain case: a piece of a text or of a call's arguments, and nothing else


class PlainUiDelta(msgspec.Struct, gc=False):
    """A piece of a text, or of a call's arguments."""

    type: str
    id: str = ""
    value: str = msgspec.field(default="", name="delta")
    call_id: str = msgspec.field(default="", name="toolCallId")
    input: str = msgspec.field(default="", name="inputTextDelta")
    metadata: None = msgspec.field(default=None, name="providerMetadata")


def extra_of(wire: WireObject, key: str = "providerMetadata") -> WireObject:
    """Return the fields of our message that a chunk, or a part, carries along."""
    return as_object(as_object(wire.get(key)).get(EXTRA_KEY))


def is_chunk(item: WireObject) -> bool:
    """Whether an item has the type and the keys of a chunk."""
    kind: Any = item.get("type")
    if not isinstance(kind, str):
        return False
    if kind.startswith("data-"):
        return "data" in item
    keys = CHUNK_KEYS.get(kind)
    return keys is not None and all(key in item for key in keys)
