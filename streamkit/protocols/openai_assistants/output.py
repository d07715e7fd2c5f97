"""The objects of the Assistants API that canonical events make: complete, and as strict clients want them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...events import Run, RunStep, StreamException, Usage
from ...messages import Annotation, ImageMessage, Message, RefusalMessage, TextMessage
from .entries import StepEntry, ThreadEntry
from .wire import Wire, integer, mapping, objects, text

__all__ = [
    "cited",
    "content_part",
    "error_object",
    "run_object",
    "step_object",
    "thread_message",
]

Item = dict[str, Any]

_RUN_CODES = ("server_error", "rate_limit_exceeded", "invalid_prompt")
_CUT = ("content_filter", "max_tokens", "run_cancelled", "run_expired", "run_failed")
_CUT_BY: dict[str, str] = {"cancelled": "run_cancelled", "failed": "run_failed"}
# Why a run is incomplete: this API's words, and what others call them.
_REASONS = {
    "max_completion_tokens": "max_completion_tokens",
    "max_prompt_tokens": "max_prompt_tokens",
    "length": "max_completion_tokens",
    "max_tokens": "max_completion_tokens",
    "max_output_tokens": "max_completion_tokens",
    "model_length": "max_completion_tokens",
}


# -- what a run says of itself, where it is as this API has it


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return integer(value) is not None


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_tags(value: Any) -> bool:
    wire = mapping(value)
    return bool(wire) and all(isinstance(one, str) for one in wire.values())


def _is_tool(wire: Wire) -> bool:
    function = mapping(wire.get("function"))
    if wire.get("type") == "function":
        return isinstance(function.get("name"), str) and isinstance(function.get("parameters", {}), dict)
    return wire.get("type") in ("code_interpreter", "file_search")


def _is_tools(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_tool, objects(value)))


def _is_choice(value: Any) -> bool:
    return value in ("none", "auto", "required") if isinstance(value, str) else _is_tool(mapping(value))


def _is_format(value: Any) -> bool:
    return value == "auto" or mapping(value).get("type") in ("text", "json_object")


def _is_truncation(value: Any) -> bool:
    wire = mapping(value)
    last = wire.get("last_messages")
    return wire.get("type") in ("auto", "last_messages") and (last is None or _is_count(last))


_FACTS: dict[str, Callable[[Any], bool]] = {
    "assistant_id": _is_text,
    "thread_id": _is_text,
    "instructions": _is_text,
    "tools": _is_tools,
    "metadata": _is_tags,
    "temperature": _is_number,
    "top_p": _is_number,
    "started_at": _is_count,
    "expires_at": _is_count,
    "failed_at": _is_count,
    "cancelled_at": _is_count,
    "max_completion_tokens": _is_count,
    "max_prompt_tokens": _is_count,
    "parallel_tool_calls": lambda value: isinstance(value, bool),
    "truncation_strategy": _is_truncation,
    "response_format": _is_format,
    "tool_choice": _is_choice,
}


def _when(value: float | None) -> int | None:
    return None if value is None else int(value)


def run_object(run: Run, *, status: str = "in_progress", known: Wire | None = None) -> Item:
    """The run, as it begins; with a `status`, as it ends, `known` being how it began."""
    facts = {key: run.metadata[key] for key, fits in _FACTS.items() if fits(run.metadata.get(key))}
    told: Item = {
        "id": run.id,
        "object": "thread.run",
        "created_at": _when(run.created_at) or 0,
        "assistant_id": "",
        "thread_id": "",
        "status": status,
        "started_at": None,
        "expires_at": None,
        "cancelled_at": None,
        "failed_at": None,
        "completed_at": None,
        "required_action": None,
        "last_error": None,
        "model": run.model or "",
        "instructions": "",
        "tools": [],
        "metadata": {},
        "max_completion_tokens": None,
        "max_prompt_tokens": None,
        "truncation_strategy": {"type": "auto", "last_messages": None},
        "incomplete_details": None,
        "usage": None,
        "response_format": "auto",
        "tool_choice": "auto",
        "parallel_tool_calls": True,
    }
    told |= facts
    if known is None:
        return told
    # The id and the time were told when the run began; clients go on with these.
    told |= {key: known[key] for key in ("id", "created_at")}
    told |= {key: known[key] for key in ("assistant_id", "thread_id", "model") if not told[key]}
    told["completed_at"] = _when(run.completed_at) if status == "completed" else None
    told["usage"] = None if run.usage is None else _usage(run.usage)
    if run.finish_reason in _REASONS or status == "incomplete":
        told["incomplete_details"] = {"reason": _REASONS.get(run.finish_reason or "")}
    if status in ("failed", "expired") and (run.error or status == "failed"):
        told["last_error"] = _last_error(run.error, _RUN_CODES)
    return told


def _last_error(error: Wire | None, codes: tuple[str, ...]) -> Item:
    wire = error or {}
    code = wire.get("code")
    return {
        "code": code if code in codes else codes[0],
        "message": text(wire.get("message")) or "the run failed",
    }


def _usage(usage: Usage) -> Item:
    counts = {"input_tokens", "output_tokens", "total_tokens", "prompt_tokens", "completion_tokens"}
    return {
        **{key: value for key, value in usage.details.items() if key not in counts},
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    }


def error_object(event: StreamException) -> Item:
    """An error of the stream itself."""
    code = event.details.get("code")
    return {
        "code": code if isinstance(code, str) else None,
        "message": event.message,
        "param": None,
        "type": event.error,
    }


def step_object(step: StepEntry, run: Wire, status: str, known: RunStep | None = None) -> Item:
    """A step; `known` is what is known of it at its end."""
    details: Item = {"type": "message_creation", "message_creation": {"message_id": step.message_id}}
    if step.type == "tool_calls":
        details = {"type": "tool_calls", "tool_calls": [call.final for call in step.calls]}
    error = known.error if known is not None else None
    return {
        "id": step.id,
        "object": "thread.run.step",
        "created_at": _when(step.created_at) or run["created_at"],
        "run_id": run["id"],
        "assistant_id": run["assistant_id"],
        "thread_id": run["thread_id"],
        "type": step.type,
        "status": status,
        "cancelled_at": None,
        "completed_at": _when(known.completed_at) if known is not None and status == "completed" else None,
        "expired_at": None,
        "failed_at": None,
        "last_error": _last_error(error, _RUN_CODES[:2]) if error and status == "failed" else None,
        "metadata": None,
        "step_details": details,
        "usage": _usage(known.usage) if known is not None and known.usage is not None else None,
    }


def thread_message(entry: ThreadEntry, run: Wire, status: str) -> Item:
    """A message of the thread."""
    over = status != "in_progress"
    reason = mapping(entry.metadata.get("incomplete_details")).get("reason")
    cut = _CUT_BY.get(status, "max_tokens")
    tags = entry.metadata.get("metadata")
    files = entry.metadata.get("attachments")
    return {
        "id": entry.id,
        "object": "thread.message",
        "created_at": _when(entry.created_at) or run["created_at"],
        "assistant_id": run["assistant_id"] if entry.role == "assistant" else None,
        "thread_id": run["thread_id"],
        "run_id": run["id"] if entry.role == "assistant" else None,
        "status": status if status in ("in_progress", "completed") else "incomplete",
        "incomplete_details": {"reason": reason if reason in _CUT else cut} if over and status != "completed" else None,
        "incomplete_at": None,
        "completed_at": None,
        "role": entry.role,
        "content": list(entry.content) if over else [],
        "attachments": files if isinstance(files, list) and all(map(_is_attachment, objects(files))) else [],
        "metadata": dict(mapping(tags)) if _is_tags(tags) else {},
    }


def _is_attachment(wire: Wire) -> bool:
    tools = wire.get("tools")
    known = ("code_interpreter", "file_search")
    fits = tools is None or (isinstance(tools, list) and all(tool.get("type") in known for tool in objects(tools)))
    return fits and isinstance(wire.get("file_id"), str)


def content_part(message: Message, content: str) -> Item | None:
    """A message as a part of the thread's, with this content; None where there is no such part."""
    format = message.format or ""
    match message:
        case TextMessage():
            wires = [wire for one in message.annotations if (wire := cited(one)) is not None] if content else []
            return {"type": "text", "text": {"value": content, "annotations": wires}}
        case RefusalMessage():
            return {"type": "refusal", "refusal": content}
        case ImageMessage():
            detail = message.metadata.get("detail")
            more = {"detail": detail} if detail in ("auto", "low", "high") else {}
            if format == "file_id":
                return {"type": "image_file", "image_file": {"file_id": content, **more}}
            if format.startswith("base64."):
                content = f"data:image/{format.removeprefix('base64.')};base64,{content}"
            elif format not in ("", "url"):
                return None
            return {"type": "image_url", "image_url": {"url": content, **more}}
        case _:
            return None


def cited(annotation: Annotation) -> Item | None:
    """A citation of a file, as the API tells it; None of anything else."""
    if annotation.type not in ("file_citation", "file_path") or annotation.file_id is None:
        return None
    raw = mapping(annotation.raw)
    body: Item = {"file_id": annotation.file_id}
    quote = mapping(raw.get(annotation.type)).get("quote", annotation.quote)
    if isinstance(quote, str) and annotation.type == "file_citation":
        body["quote"] = quote
    return {
        "type": annotation.type,
        "text": text(raw.get("text")),
        "start_index": annotation.start or 0,
        "end_index": annotation.end or 0,
        annotation.type: body,
    }
