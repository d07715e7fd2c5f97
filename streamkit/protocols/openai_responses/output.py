"""The output items that messages make: the way back from `openai_responses_items`."""

from __future__ import annotations

from typing import Any

from ...events import Usage
from ...messages import (
    Annotation,
    CodeMessage,
    ConsoleMessage,
    ImageMessage,
    Message,
    ReasoningMessage,
    RefusalMessage,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
)
from .input import call_item, parsed
from .items import CALLS, OUTPUTS
from .wire import integer, mapping

__all__ = [
    "EXTRAS",
    "REASONS",
    "begun",
    "cited",
    "content_part",
    "item_type",
    "kind_of",
    "public",
    "seal",
    "searched",
    "url_of",
    "usage_of",
]

_SHELLS = ("shell", "bash", "sh", "zsh")
# What of a message's metadata its item has a place for.
EXTRAS = {
    "message": ("phase",),
    "function_call": ("namespace", "caller"),
    "custom_tool_call": ("namespace", "caller"),
    "mcp_call": ("approval_request_id",),
    "image_generation_call": ("background", "output_format", "prompt", "quality", "revised_prompt", "size"),
    "shell_call": ("environment",),
    "tool_search_output": ("execution",),
}
# The details of usage: what Chat Completions calls them, and the counts that clients of this API insist on.
_DETAILS = {
    "input_tokens_details": ("prompt_tokens_details", ("cached_tokens", "cache_write_tokens")),
    "output_tokens_details": ("completion_tokens_details", ("reasoning_tokens",)),
}
# Why a response is incomplete: this API's words, and what others call them.
REASONS = {
    "max_output_tokens": "max_output_tokens",
    "max_messages": "max_messages",
    "content_filter": "content_filter",
    "steered": "steered",
    "length": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "model_length": "max_output_tokens",
}


def kind_of(message: Message) -> str:
    """The kind of part that tells of a message that stands for itself; "" where there is none."""
    format = message.format or ""
    match message:
        case TextMessage():
            return "text"
        case RefusalMessage():
            return "refusal"
        case ReasoningMessage():
            return format if format in ("summary", "redacted") else "reasoning"
        case ToolCallMessage():
            return "call"
        case ToolOutputMessage():
            return "result"
        case CodeMessage():
            return "command" if format in _SHELLS else "code"
        case ConsoleMessage():
            return "console"
        case ImageMessage() if format.startswith("base64.") or format == "url":
            return "image"
        case _:
            return ""


def item_type(message: Message, kind: str) -> str:
    """The type of the item that such a message is a part of."""
    match kind:
        case "text" | "refusal":
            return "message"
        case "reasoning" | "summary" | "redacted":
            return "reasoning"
        case "code":
            return "code_interpreter_call"
        case "command":
            return "shell_call"
        case "console":
            return "shell_call_output"
        case "image":
            return "image_generation_call"
        case "result":
            told = message.metadata.get("item_type")
            custom = message.metadata.get("custom") is True
            return told if told in OUTPUTS else "custom_tool_call_output" if custom else "function_call_output"
        case _:
            return _call_type(message)


def _call_type(message: Message) -> str:
    found = message.metadata.get("item_type")
    executed = isinstance(message, ToolCallMessage) and message.provider_executed
    if isinstance(found, str) and found in CALLS and (CALLS[found].executed == executed or found == "tool_search_call"):
        return found
    if executed:
        return "mcp_call"
    return "custom_tool_call" if message.metadata.get("custom") is True else "function_call"


def begun(message: Message, type: str) -> dict[str, Any]:
    """The item of a message that begins."""
    wire: dict[str, Any] = {"id": message.id, "type": type, "status": "in_progress"}
    call_id, name, extra = message.call_id or message.id, message.name or "", message.metadata
    match type:
        case "message":
            wire |= {"role": message.role, "content": []}
        case "reasoning":
            wire |= {"summary": [], "content": []}
        case "code_interpreter_call":
            wire |= {"code": "", "container_id": extra.get("container_id", ""), "outputs": []}
            wire["_call_id"] = message.call_id  # by which its outputs name it
        case "shell_call":
            limits = {key: extra.get(key) for key in ("max_output_length", "timeout_ms")}
            wire |= {"call_id": call_id, "action": {"commands": [], **limits}}
        case "shell_call_output":
            wire |= {"call_id": call_id, "output": []}
        case "function_call":
            wire |= {"call_id": call_id, "name": name, "arguments": ""}
        case "custom_tool_call":
            wire |= {"call_id": call_id, "name": name, "input": ""}
        case "mcp_call" | "mcp_approval_request":
            wire |= {"server_label": extra.get("server_label", ""), "name": name, "arguments": ""}
            if type == "mcp_call":
                wire |= {"approval_request_id": None, "output": None, "error": None}
        case "image_generation_call":
            format = (message.format or "").removeprefix("base64.")
            wire |= {"result": None} if format in ("png", "url") else {"result": None, "output_format": format}
        case _ if type in OUTPUTS:
            wire |= {"call_id": message.call_id, OUTPUTS[type]: ""}
        case _:
            wire |= {"call_id": call_id} | searched(type, message)
    return wire | {key: extra[key] for key in EXTRAS.get(type, ()) if key in extra}


def searched(type: str, message: Message) -> dict[str, Any]:
    """The arguments of a call that has them as an object."""
    value = parsed(message.content)
    executed = isinstance(message, ToolCallMessage) and message.provider_executed
    match type:
        case "web_search_call":
            return {"action": value} if isinstance(value, dict) else {"arguments": message.content}
        case "file_search_call":
            return {"queries": mapping(value).get("queries", [message.content])}
        case "tool_search_call":
            return {"arguments": value, "execution": "server" if executed else "client"}
        case _:
            assert isinstance(message, ToolCallMessage)
            item = call_item(message)
            return {
                key: item[key] for key in ("action", "actions", "operation", "pending_safety_checks") if key in item
            }


def public(wire: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in wire.items() if not key.startswith("_")}


def content_part(type: str, content: str) -> dict[str, Any]:
    if type == "refusal":
        return {"type": type, "refusal": content}
    part: dict[str, Any] = {"type": type, "text": content}
    return part | {"annotations": [], "logprobs": []} if type == "output_text" else part


def seal(wire: dict[str, Any], message: Message) -> None:
    if (sealed := message.metadata.get("encrypted_content")) is not None:
        wire["encrypted_content"] = sealed


def cited(annotation: Annotation) -> dict[str, Any]:
    """A citation as the API tells it."""
    raw = mapping(annotation.raw)
    if raw.get("type") == annotation.type:
        return dict(raw)
    told = {
        "type": annotation.type,
        "url": annotation.url,
        "file_id": annotation.file_id,
        "title": annotation.title,
        "start_index": annotation.start,
        "end_index": annotation.end,
    }
    return {key: value for key, value in told.items() if value is not None}


def url_of(message: Message) -> str:
    format = message.format or ""
    if format.startswith("base64."):
        return f"data:image/{format.removeprefix('base64.')};base64,{message.content}"
    return message.content


def usage_of(usage: Usage) -> dict[str, Any]:
    """Usage as the API tells it, also where Chat Completions gave it."""
    details = dict(usage.details)
    told: dict[str, dict[str, Any]] = {}
    for key, (other, counts) in _DETAILS.items():
        found = {**mapping(details.pop(other, None)), **mapping(details.pop(key, None))}
        told[key] = {**found, **{name: integer(found.get(name)) or 0 for name in counts}}
    return {
        **details,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        **told,
    }
