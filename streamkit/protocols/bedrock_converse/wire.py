"""The tables of Bedrock's Converse API, and readers of what only it has."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from ...events import Usage
from ...messages import Annotation, Status
from ..values import WireObject, as_count, as_object, as_objects, as_text, error_object, text_or_none, without_keys

__all__ = [
    "KEY",
    "SERVER_TOOL",
    "STATUS_OF_STOP_REASON",
    "TRANSIENT_ERRORS",
    "PlainEvent",
    "annotation_of",
    "blob_text",
    "error_in",
    "usage_of",
]

KEY = "bedrock_converse"
"""Where the metadata of a message has what this API wants back."""

SERVER_TOOL = "server_tool_use"
"""The type of a call that the server runs. That of any other, `tool_use` too, is ours."""

STATUS_OF_STOP_REASON: dict[str, Status] = {
    **dict.fromkeys(("max_tokens", "model_context_window_exceeded"), "incomplete"),
    **dict.fromkeys(("guardrail_intervened", "content_filtered"), "incomplete"),
    **dict.fromkeys(("malformed_model_output", "malformed_tool_use"), "failed"),
}
"""The status that a stopReason gives to an answer. Any other means `completed`."""

TRANSIENT_ERRORS = frozenset(
    (
        *("throttlingException", "serviceUnavailableException", "internalServerException", "modelTimeoutException"),
        *("modelStreamErrorException", "InternalFailure", "malformed_model_output", "malformed_tool_use"),
    )
)
"""The codes of failed answers after which another attempt may succeed."""

_COUNTS = ("inputTokens", "outputTokens", "totalTokens")


class _PlainText(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    text: str


class _PlainDelta(msgspec.Struct, gc=False):
    contentBlockIndex: int
    delta: _PlainText


class PlainEvent(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """An event that is one piece of a text."""

    contentBlockDelta: _PlainDelta


def blob_text(value: Any) -> str:
    """Return a blob as base64. Amazon's client gives bytes."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else as_text(value)


def usage_of(wire: WireObject) -> Usage:
    """Token counts. `inputTokens` excludes what was read from a cache or written to one, `totalTokens` does not."""
    input_tokens, output_tokens, total = (as_count(wire.get(key)) or 0 for key in _COUNTS)
    return Usage(input_tokens, output_tokens, total or input_tokens + output_tokens, without_keys(wire, *_COUNTS))


def error_in(item: WireObject) -> dict[str, Any] | None:
    """Return the error of an exception, with its type as the code, or of an `error`; None if the item is neither."""
    for name, value in item.items():
        if name == "error" or name.endswith("Exception"):
            code = {} if name == "error" else {"code": name}
            return {**error_object(value, "the answer failed"), **code}
    return None


def annotation_of(citation: WireObject) -> Annotation:
    """Return a citation. Its place is one in the source, and stands in `raw`."""
    location = as_object(citation.get("location"))
    kind = next(iter(location), "citation")
    place = as_object(location.get(kind))
    quote = "".join(as_text(part.get("text")) for part in as_objects(citation.get("sourceContent")))
    source = as_text(citation.get("source"))
    url = text_or_none(place.get("url")) or (source if source.startswith(("http://", "https://")) else None)
    return Annotation(
        type=kind, url=url, title=text_or_none(citation.get("title")), quote=quote or None, raw=dict(citation)
    )
