"""The tables of AG-UI: types of events, the names of our own, and its plain item."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from ...events import Usage
from ..ui_parts import EXTRA_KEY
from ..values import WireObject, as_count, as_object, as_objects, without_keys

__all__ = [
    "CALL_DELTA",
    "CONSOLE",
    "EVENT_KEYS",
    "FILE",
    "KEY",
    "LEGACY",
    "OWN",
    "REASONING_DELTA",
    "TEXT_DELTA",
    "PlainAgUiDelta",
    "Version",
    "extra_of",
    "is_event",
    "others_of",
    "token_usage",
    "usage_of_list",
]

KEY = "ag_ui"
"""The key of messages' metadata under which the `metadata` of their events stands."""

Version: TypeAlias = Literal["0", "1.0"]
"""The protocol's version: the `protocolVersion` of a `RunAgentInput`; the clients of 0.x send none."""

CONSOLE = "CONSOLE"
"""The `activityType` of what code prints: `{output: [{stream, text}], activeLine, callId}`."""

FILE = "FILE"
"""The `activityType` of an image, audio or a file: `{url, mimeType}`."""

OWN = "streamkit."
"""What the names of our own CUSTOM events begin with."""

EVENT_KEYS: Mapping[str, tuple[str, ...]] = {
    "RUN_STARTED": ("threadId", "runId"),
    "RUN_FINISHED": ("threadId", "runId"),
    "RUN_ERROR": ("message",),
    "STEP_STARTED": ("stepName",),
    "STEP_FINISHED": ("stepName",),
    "TEXT_MESSAGE_START": ("messageId",),
    "TEXT_MESSAGE_CONTENT": ("messageId", "delta"),
    "TEXT_MESSAGE_END": ("messageId",),
    "TEXT_MESSAGE_CHUNK": (),
    "TOOL_CALL_START": ("toolCallId", "toolCallName"),
    "TOOL_CALL_ARGS": ("toolCallId", "delta"),
    "TOOL_CALL_END": ("toolCallId",),
    "TOOL_CALL_CHUNK": (),
    "TOOL_CALL_RESULT": ("toolCallId", "content"),
    "REASONING_START": ("messageId",),
    "REASONING_MESSAGE_START": ("messageId",),
    "REASONING_MESSAGE_CONTENT": ("messageId", "delta"),
    "REASONING_MESSAGE_END": ("messageId",),
    "REASONING_MESSAGE_CHUNK": (),
    "REASONING_END": ("messageId",),
    "REASONING_ENCRYPTED_VALUE": ("entityId", "encryptedValue"),
    "STATE_SNAPSHOT": ("snapshot",),
    "STATE_DELTA": ("delta",),
    "MESSAGES_SNAPSHOT": ("messages",),
    "ACTIVITY_SNAPSHOT": ("messageId", "activityType"),
    "ACTIVITY_DELTA": ("messageId", "activityType"),
    "SUBAGENT_STARTED": ("subagentRunId",),
    "SUBAGENT_FINISHED": ("subagentRunId",),
    "SUBAGENT_ERROR": ("subagentRunId",),
    "RAW": ("event",),
    "CUSTOM": ("name",),
    "THINKING_START": (),
    "THINKING_END": (),
    "THINKING_TEXT_MESSAGE_START": (),
    "THINKING_TEXT_MESSAGE_CONTENT": ("delta",),
    "THINKING_TEXT_MESSAGE_END": (),
}
"""The types of events, and the keys that each of them must have."""

LEGACY: Mapping[str, str] = {
    "THINKING_TEXT_MESSAGE_START": "REASONING_MESSAGE_START",
    "THINKING_TEXT_MESSAGE_CONTENT": "REASONING_MESSAGE_CONTENT",
    "THINKING_TEXT_MESSAGE_END": "REASONING_MESSAGE_END",
    "THINKING_START": "REASONING_START",
    "THINKING_END": "REASONING_END",
}
"""What the events of 0.x that 1.0 has removed are called there. They have no ids: one is open at a time."""


def is_event(item: WireObject) -> bool:
    """Whether an item has the type and the keys of an event."""
    kind: Any = item.get("type")
    keys = EVENT_KEYS.get(kind) if isinstance(kind, str) else None
    return keys is not None and all(key in item for key in keys)


# -- the plain case: a piece of a text or of a call's arguments, and nothing else

TEXT_DELTA, REASONING_DELTA, CALL_DELTA = "TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT", "TOOL_CALL_ARGS"


class PlainAgUiDelta(msgspec.Struct, gc=False):
    """A piece of a text, or of a call's arguments."""

    type: str
    value: str = msgspec.field(name="delta")
    id: str = msgspec.field(default="", name="messageId")
    call_id: str = msgspec.field(default="", name="toolCallId")
    metadata: None = None


# -- metadata and usage


def extra_of(wire: WireObject) -> WireObject:
    """Return the fields of our message that an event carries along."""
    return as_object(as_object(wire.get("metadata")).get(EXTRA_KEY))


def others_of(wire: WireObject) -> dict[str, Any]:
    """Return what another server sends along, as a message's metadata."""
    found = without_keys(as_object(wire.get("metadata")), EXTRA_KEY)
    return {KEY: found} if found else {}


def usage_of_list(value: Any) -> Usage | None:
    """Return the sum of the token counts of several models; None if there are none. `details` has what else was
    counted."""
    counts: dict[str, int] = {}
    for entry in as_objects(value):
        for key, count in entry.items():
            if (number := as_count(count)) is not None:
                counts[key] = counts.get(key, 0) + number
    if not counts:
        return None
    received, generated = counts.pop("inputTokens", 0), counts.pop("outputTokens", 0)
    return Usage(received, generated, counts.pop("totalTokens", received + generated), counts)


def token_usage(usage: dict[str, Any], model: str | None) -> list[dict[str, Any]]:
    """Token counts as AG-UI has them: a list with an entry for each model."""
    return [{**({"model": model} if model else {}), **usage}]
