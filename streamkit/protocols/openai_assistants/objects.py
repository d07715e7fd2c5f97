"""The objects of the Assistants API, made from canonical events: with every field that strict clients want."""

from __future__ import annotations

from typing import Any

from ...events import Run, RunStep, StreamException, Usage
from ...messages import Annotation, ImageMessage, Message, RefusalMessage, TextMessage
from ..values import WireObject, as_object, as_objects, as_text, is_list
from .open_objects import Item, OpenStep, OpenThreadMessage
from .run_fields import is_tags, run_fields

__all__ = [
    "citation_object",
    "content_part",
    "ended_run_object",
    "is_file_citation",
    "run_object",
    "step_object",
    "stream_error_object",
    "thread_message",
]

_RUN_ERROR_CODES = ("server_error", "rate_limit_exceeded", "invalid_prompt")
_STEP_ERROR_CODES = ("server_error", "rate_limit_exceeded")
# Why a run is incomplete: the words of this API, and those of other providers.
_RUN_REASONS = {
    "max_completion_tokens": "max_completion_tokens",
    "max_prompt_tokens": "max_prompt_tokens",
    "length": "max_completion_tokens",
    "max_tokens": "max_completion_tokens",
    "max_output_tokens": "max_completion_tokens",
    "model_length": "max_completion_tokens",
}
# Why a message is incomplete: the words of this API, and the ones for our statuses.
_MESSAGE_REASONS = ("content_filter", "max_tokens", "run_cancelled", "run_expired", "run_failed")
_REASON_OF_STATUS: dict[str, str] = {"cancelled": "run_cancelled", "failed": "run_failed"}


def _seconds(value: float | None) -> int | None:
    return None if value is None else int(value)


def run_object(run: Run, status: str = "in_progress") -> Item:
    """Return the run as it begins."""
    return {
        "id": run.id,
        "object": "thread.run",
        "created_at": _seconds(run.created_at) or 0,
        "status": status,
        "completed_at": None,
        "required_action": None,
        "last_error": None,
        "model": run.model or "",
        "incomplete_details": None,
        "usage": None,
        **run_fields(run.metadata),
    }


def ended_run_object(run: Run, status: str, begun: WireObject) -> Item:
    """Return the run as it ends with this status; `begun` is the object with which it began."""
    wire = run_object(run, status)
    # Clients have the id and the time from the beginning of the run; they must not change.
    wire |= {key: begun[key] for key in ("id", "created_at")}
    wire |= {key: begun[key] for key in ("assistant_id", "thread_id", "model") if not wire[key]}
    wire["completed_at"] = _seconds(run.completed_at) if status == "completed" else None
    wire["usage"] = None if run.usage is None else _usage_object(run.usage)
    if run.finish_reason in _RUN_REASONS or status == "incomplete":
        wire["incomplete_details"] = {"reason": _RUN_REASONS.get(run.finish_reason or "")}
    if status in ("failed", "expired") and (run.error or status == "failed"):
        wire["last_error"] = _last_error(run.error, _RUN_ERROR_CODES)
    return wire


def _last_error(error: WireObject | None, codes: tuple[str, ...]) -> Item:
    wire = error or {}
    code = wire.get("code")
    return {
        "code": code if code in codes else codes[0],
        "message": as_text(wire.get("message")) or "the run failed",
    }


def _usage_object(usage: Usage) -> Item:
    counts = ("input_tokens", "output_tokens", "total_tokens", "prompt_tokens", "completion_tokens")
    return {
        **{key: value for key, value in usage.details.items() if key not in counts},
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    }


def stream_error_object(event: StreamException) -> Item:
    """Return an error of the stream itself."""
    code = event.details.get("code")
    return {
        "code": code if isinstance(code, str) else None,
        "message": event.message,
        "param": None,
        "type": event.error,
    }


def step_object(step: OpenStep, run: WireObject, status: str, ended: RunStep | None = None) -> Item:
    """Return a step of a run; `ended` is the canonical step that it is the end of."""
    details: Item = {"type": "message_creation", "message_creation": {"message_id": step.message_id}}
    if step.type == "tool_calls":
        details = {"type": "tool_calls", "tool_calls": [call.final for call in step.calls]}
    wire: Item = {
        "id": step.id,
        "object": "thread.run.step",
        "created_at": _seconds(step.created_at) or run["created_at"],
        "run_id": run["id"],
        "assistant_id": run["assistant_id"],
        "thread_id": run["thread_id"],
        "type": step.type,
        "status": status,
        "cancelled_at": None,
        "completed_at": None,
        "expired_at": None,
        "failed_at": None,
        "last_error": None,
        "metadata": None,
        "step_details": details,
        "usage": None,
    }
    if ended is not None and status == "completed":
        wire["completed_at"] = _seconds(ended.completed_at)
    if ended is not None and ended.error and status == "failed":
        wire["last_error"] = _last_error(ended.error, _STEP_ERROR_CODES)
    if ended is not None and ended.usage is not None:
        wire["usage"] = _usage_object(ended.usage)
    return wire


def thread_message(message: OpenThreadMessage, run: WireObject, status: str) -> Item:
    """Return a message of the thread; without its content while it is in progress."""
    is_over = status != "in_progress"
    is_assistant = message.role == "assistant"
    tags = message.metadata.get("metadata")
    return {
        "id": message.id,
        "object": "thread.message",
        "created_at": _seconds(message.created_at) or run["created_at"],
        "assistant_id": run["assistant_id"] if is_assistant else None,
        "thread_id": run["thread_id"],
        "run_id": run["id"] if is_assistant else None,
        "status": status if status in ("in_progress", "completed") else "incomplete",
        "incomplete_details": _incomplete_details(message, status) if is_over and status != "completed" else None,
        "incomplete_at": None,
        "completed_at": None,
        "role": message.role,
        "content": list(message.content) if is_over else [],
        "attachments": _attachments(message.metadata.get("attachments")),
        "metadata": dict(as_object(tags)) if is_tags(tags) else {},
    }


def _incomplete_details(message: OpenThreadMessage, status: str) -> Item:
    reason = as_object(message.metadata.get("incomplete_details")).get("reason")
    return {"reason": reason if reason in _MESSAGE_REASONS else _REASON_OF_STATUS.get(status, "max_tokens")}


def _attachments(value: Any) -> list[Any]:
    """Return the attachments of a message, if they are such as this API has."""
    return value if is_list(value) and all(map(_is_attachment, as_objects(value))) else []


def _is_attachment(wire: WireObject) -> bool:
    tools = wire.get("tools")
    types = ("code_interpreter", "file_search")
    has_tools = isinstance(tools, list) and all(tool.get("type") in types for tool in as_objects(tools))
    return (tools is None or has_tools) and isinstance(wire.get("file_id"), str)


def content_part(message: Message, content: str) -> Item | None:
    """Return a message as a part of the thread's, with this content; None where there is no such part."""
    match message:
        case TextMessage():
            cited = [one for one in message.annotations if is_file_citation(one)] if content else []
            citations = [citation_object(one, index, content) for index, one in enumerate(cited)]
            return {"type": "text", "text": {"value": content, "annotations": citations}}
        case RefusalMessage():
            return {"type": "refusal", "refusal": content}
        case ImageMessage():
            return _image_part(message, content)
        case _:
            return None


def _image_part(message: ImageMessage, content: str) -> Item | None:
    format = message.format or ""
    detail = message.metadata.get("detail")
    more = {"detail": detail} if detail in ("auto", "low", "high") else {}
    if format == "file_id":
        return {"type": "image_file", "image_file": {"file_id": content, **more}}
    if format.startswith("base64."):
        content = f"data:image/{format.removeprefix('base64.')};base64,{content}"
    elif format not in ("", "url"):
        return None
    return {"type": "image_url", "image_url": {"url": content, **more}}


def is_file_citation(citation: Annotation) -> bool:
    """Whether this API has such a citation: one of a file."""
    return citation.type in ("file_citation", "file_path") and citation.file_id is not None


def citation_object(citation: Annotation, index: int, content: str) -> Item:
    """Return a citation of a file as this API has it.

    Its `text` is the marker in the content that stands for the citation, which readers replace. Where the content has
    none it is one that does not occur there, and never empty: replacing an empty text would change every character.

    Args:
        citation: the citation.
        index: its index among those of the same text.
        content: the text, as far as it is known.
    """
    raw = as_object(citation.raw)
    body: Item = {"file_id": citation.file_id}
    quote = as_object(raw.get(citation.type)).get("quote", citation.quote)
    if isinstance(quote, str) and citation.type == "file_citation":
        body["quote"] = quote
    return {
        "type": citation.type,
        "text": as_text(raw.get("text")) or _absent_marker(f"{index}†{citation.file_id}", content),
        "start_index": citation.start or 0,
        "end_index": citation.end or 0,
        citation.type: body,
    }


def _absent_marker(name: str, content: str) -> str:
    """Return a marker in the form of this API's own that does not occur in a text."""
    marker = f"【{name}】"
    while marker in content:
        marker = f"【{marker}】"
    return marker
