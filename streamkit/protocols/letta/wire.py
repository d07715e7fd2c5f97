"""The tables of Letta's streams, and the content, usage and errors of its items.

The deltas of text come in thousands: for these there is a typed struct, which accepts the common form alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from ...events import RunStatus, StreamWarning, Usage
from .. import values
from ..values import LARGEST_COUNT, WireObject, as_object, as_text, error_object, is_list, is_object, text_or_json

__all__ = [
    "PAYLOAD_KEYS",
    "STATUS_OF_STOP_REASON",
    "PlainFragment",
    "PlainPiece",
    "WireContent",
    "check_content",
    "error_of",
    "read_content",
    "usage_of",
    "warning",
]

PAYLOAD_KEYS: dict[str, tuple[str, ...]] = {
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
"""The kinds of items, and the keys of which each has at least one."""

STATUS_OF_STOP_REASON: dict[str, RunStatus] = {
    "end_turn": "completed",
    "tool_rule": "completed",
    "max_steps": "completed",
    "requires_approval": "requires_action",
    # The server calls this a failure. Here it is none, so that the caller gets what arrived.
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
"""The status that a stop_reason gives to a run. Any other means `completed`."""


# -- the plain case: a piece of an open message, and nothing else


class PlainFragment(msgspec.Struct, gc=False):
    """A piece of the arguments of one call."""

    tool_call_id: str
    arguments: str
    name: None = None


class PlainPiece(msgspec.Struct, gc=False):
    """A piece of reasoning, of a text, or of a call's arguments."""

    message_type: str
    id: str | None = None
    otid: str | None = None
    run_id: str | None = None
    step_id: str | None = None
    seq_id: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_COUNT)] | None = None
    reasoning: str = ""
    content: str = ""
    signature: None = None
    fragment: PlainFragment | None = msgspec.field(default=None, name="tool_calls")


# -- objects


class WireContent(NamedTuple):
    """The content of a message.

    Attributes:
        text: its text.
        signature: of the text.
        images: their formats and contents.
        has_other_parts: whether it has more than these.
        is_malformed: whether anything in it is not a part of any type, or a text or an image that cannot be read.
    """

    text: str = ""
    signature: str = ""
    images: Sequence[tuple[str, str]] = ()
    has_other_parts: bool = False
    is_malformed: bool = False


def read_content(value: Any) -> WireContent:
    """Content that is a string, a list of parts, or one part."""
    if isinstance(value, str) or value is None:
        return WireContent(value or "")
    texts: list[str] = []
    images: list[tuple[str, str]] = []
    signature, has_other_parts, is_malformed = "", False, False
    for part in value if is_list(value) else [value]:
        if isinstance(part, str):
            texts.append(part)
        elif is_object(part) and isinstance(part.get("text"), str):
            texts.append(part["text"])
            signature = as_text(part.get("signature")) or signature
        elif image := _image(as_object(part)):
            images.append(image)
        else:
            has_other_parts = True
            is_malformed = is_malformed or as_text(as_object(part).get("type")) in ("", "text", "image")
    return WireContent("".join(texts), signature, images, has_other_parts, is_malformed)


def check_content(content: WireContent, kind: Any) -> Iterator[StreamWarning]:
    """Yield a warning about content that is malformed. `kind` is that of its item."""
    if content.is_malformed:
        yield warning("bad-content", "its content is not text, or has a part that is none, which was skipped", kind)


def _image(part: WireObject) -> tuple[str, str] | None:
    """Return the format and the content of an image part, None if it is none."""
    source = as_object(part.get("source"))
    if part.get("type") != "image":
        return None
    if url := as_text(source.get("url")):
        return "url", url
    if data := as_text(source.get("data")):
        return f"base64.{as_text(source.get('media_type')).removeprefix('image/') or 'png'}", data
    file_id = as_text(source.get("file_id"))
    return ("file_id", file_id) if file_id else None


def usage_of(item: WireObject) -> Usage:
    """Return the run's token counts. Counts that are null were not reported, and are not in the details."""
    return values.usage_of(item, "prompt_tokens", "completion_tokens", leave_out=("message_type", "id", "date"))


def error_of(item: WireObject) -> WireObject:
    """Return an error in any of its forms: an `error_message`, or what servers without these send under `error`."""
    error = item.get("error")
    if item.get("message_type") == "error_message":
        fields = {"type": item.get("error_type"), **{key: item.get(key) for key in ("message", "detail", "code")}}
        error = values.without_keys(fields)
    elif error is None:
        error = {}
    elif not is_object(error):
        error = {"message": text_or_json(error), **{key: item[key] for key in ("code", "detail") if key in item}}
    return error_object(error, message_keys=("detail", "type"))


def warning(code: str, fault: str, kind: Any = None) -> StreamWarning:
    """Return a warning about the current item. The decoder adds the item's index."""
    return StreamWarning(code, fault, kind=as_text(kind) or None)
