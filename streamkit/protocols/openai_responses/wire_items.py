"""Builds the wire form of output items and of their parts from messages: the reverse of `item` and `final_items`."""

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
from ..values import as_count, as_object, as_text, without_keys
from .input import call_item
from .item_types import CALLS, OUTPUT_KEYS, PARTS
from .received_items import received_item
from .wire import json_or_text

__all__ = [
    "annotation_object",
    "call_arguments",
    "content_part",
    "item_type_of",
    "new_item",
    "own_metadata",
    "part_kind_of",
    "usage_object",
]

_SHELLS = ("shell", "bash", "sh", "zsh")
# The keys of a message's metadata that its item has, too.
_METADATA_KEYS = {
    "message": ("phase",),
    "function_call": ("namespace", "caller"),
    "custom_tool_call": ("namespace", "caller"),
    "mcp_call": ("approval_request_id",),
    "image_generation_call": ("background", "output_format", "prompt", "quality", "revised_prompt", "size"),
    "shell_call": ("environment",),
    "tool_search_output": ("execution",),
}
# The details of usage: what Chat Completions calls them, and the counts that clients of this API require.
_USAGE_DETAILS = {
    "input_tokens_details": ("prompt_tokens_details", ("cached_tokens", "cache_write_tokens")),
    "output_tokens_details": ("completion_tokens_details", ("reasoning_tokens",)),
}


# -- which item a message belongs to


def part_kind_of(message: Message) -> str:
    """Return the kind of part that a message is, if it is not in the item of a call or of code; "" if there is none for
    it."""
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
        case CodeMessage() if message.metadata.get("item_type") == "program":
            return "program"
        case CodeMessage():
            return "command" if format in _SHELLS else "code"
        case ConsoleMessage():
            return "console"
        case ImageMessage() if format.startswith("base64.") or format == "url":
            return "image"
        case _:
            return ""


def item_type_of(message: Message, kind: str) -> str:
    """Return the type of the item that a message of this kind is a part of."""
    if kind == "other":
        return message.type
    if PARTS[kind].item:
        return PARTS[kind].item
    item_type, is_custom = as_text(message.metadata.get("item_type")), message.metadata.get("custom") is True
    if kind == "result":
        if item_type in OUTPUT_KEYS:
            return item_type
        return "custom_tool_call_output" if is_custom else "function_call_output"
    is_executed = isinstance(message, ToolCallMessage) and message.provider_executed
    call = CALLS.get(item_type)
    if call is not None and (call.is_executed == is_executed or item_type == "tool_search_call"):
        return item_type
    if is_executed:
        return "mcp_approval_request" if message.metadata.get("requires_approval") else "mcp_call"
    return "custom_tool_call" if is_custom else "function_call"


# -- items


def new_item(message: Message, type: str) -> dict[str, Any]:
    """Return an item of this type that begins with this message."""
    if type == message.type and message.__class__ is Message:
        return dict(received_item(message))
    call_id, name, metadata = message.call_id or message.id, message.name or "", message.metadata
    fields: dict[str, Any]
    match type:
        case "message":
            fields = {"role": message.role, "content": []}
        case "reasoning":
            fields = {"summary": [], "content": []}
        case "code_interpreter_call":
            fields = {"code": "", "container_id": metadata.get("container_id", ""), "outputs": []}
        case "program":
            fields = {"call_id": call_id, "code": "", "fingerprint": metadata.get("fingerprint", "")}
        case "shell_call":
            limits = {key: metadata.get(key) for key in ("max_output_length", "timeout_ms")}
            fields = {"call_id": call_id, "action": {"commands": [], **limits}}
        case "shell_call_output":
            fields = {"call_id": call_id, "output": []}
        case "function_call":
            fields = {"call_id": call_id, "name": name, "arguments": ""}
        case "custom_tool_call":
            fields = {"call_id": call_id, "name": name, "input": ""}
        case "mcp_call" | "mcp_approval_request":
            fields = {"server_label": metadata.get("server_label", ""), "name": name, "arguments": ""}
            if type == "mcp_call":
                fields |= {"approval_request_id": None, "output": None, "error": None}
        case "image_generation_call":
            format = (message.format or "").removeprefix("base64.")
            fields = {"result": None} if format in ("png", "url") else {"result": None, "output_format": format}
        case _ if type in OUTPUT_KEYS:
            fields = {"call_id": message.call_id, OUTPUT_KEYS[type]: ""}
        case "web_search_call" | "file_search_call" if call_id == message.id:  # the API's own have no call_id
            fields = call_arguments(type, message)
        case _:
            fields = {"call_id": call_id, **call_arguments(type, message)}
    return {"id": message.id, "type": type, "status": "in_progress", **fields, **own_metadata(type, message)}


def own_metadata(type: str, message: Message) -> dict[str, Any]:
    """Return the metadata of a message that an item of this type has, too."""
    return {key: message.metadata[key] for key in _METADATA_KEYS.get(type, ()) if key in message.metadata}


def call_arguments(type: str, message: Message) -> dict[str, Any]:
    """Return the arguments of a call, for a type of item that has them as an object and not as text."""
    value = json_or_text(message.content)
    match type:
        case "web_search_call":
            return {"action": value} if isinstance(value, dict) else {"arguments": message.content}
        case "file_search_call":
            return {"queries": as_object(value).get("queries", [message.content])}
        case "tool_search_call":
            is_executed = isinstance(message, ToolCallMessage) and message.provider_executed
            return {"arguments": value, "execution": "server" if is_executed else "client"}
        case _:
            assert isinstance(message, ToolCallMessage)
            keys = ("action", "actions", "operation", "pending_safety_checks")
            item = call_item(message)
            return {key: item[key] for key in keys if key in item}


# -- what items contain


def content_part(type: str, content: str) -> dict[str, Any]:
    """Return a content part of this type."""
    if type == "refusal":
        return {"type": type, "refusal": content}
    part: dict[str, Any] = {"type": type, "text": content}
    return part | {"annotations": [], "logprobs": []} if type == "output_text" else part


def annotation_object(annotation: Annotation) -> dict[str, Any]:
    """Return a citation: the provider's own object if it is one of this API."""
    raw = as_object(annotation.raw)
    if raw.get("type") == annotation.type:
        return dict(raw)
    fields = {
        "type": annotation.type,
        "url": annotation.url,
        "file_id": annotation.file_id,
        "title": annotation.title,
        "start_index": annotation.start,
        "end_index": annotation.end,
    }
    return without_keys(fields)


def usage_object(usage: Usage) -> dict[str, Any]:
    """Usage under this API's keys, also if it came from Chat Completions."""
    details = dict(usage.details)
    required: dict[str, dict[str, Any]] = {}
    for key, (chat_key, counts) in _USAGE_DETAILS.items():
        found = {**as_object(details.pop(chat_key, None)), **as_object(details.pop(key, None))}
        required[key] = {**found, **{name: as_count(found.get(name)) or 0 for name in counts}}
    return {
        **details,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        **required,
    }
