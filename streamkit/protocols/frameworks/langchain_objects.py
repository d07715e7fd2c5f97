"""LangChain's messages as dicts, with what is read of them."""

from __future__ import annotations

from typing import Any

from ..values import as_list, as_object, json_text

__all__ = ["is_message", "item_of_message"]

_METADATA = ("id", "finish_reason", "stop_reason", "incomplete_details", "model_name")


def is_message(value: Any) -> bool:
    """Whether a value is a message or a chunk of one."""
    return hasattr(value, "response_metadata") and isinstance(getattr(value, "type", None), str)


def item_of_message(message: Any) -> dict[str, Any]:
    """Return a dict of a message or of a chunk."""
    item: dict[str, Any] = {"type": message.type, "id": message.id}
    if message.type == "tool":
        item |= {"tool_call_id": message.tool_call_id, "name": message.name, "status": message.status}
        return item | {"content": _output_text(message.content)}
    if message.type not in ("ai", "AIMessageChunk"):
        return item | {"content": message.content}
    item["content"] = _content_of(message)
    if calls := _calls_of(message):
        item["tool_calls"] = calls
    metadata = {key: message.response_metadata[key] for key in _METADATA if message.response_metadata.get(key)}
    for key, value in (
        ("response_metadata", metadata),
        ("usage_metadata", message.usage_metadata),
        ("chunk_position", getattr(message, "chunk_position", None)),
    ):
        if value:
            item[key] = value
    return item


def _content_of(message: Any) -> Any:
    """Return the content: a text, or blocks in the form that is the same for all providers."""
    content = message.content
    if isinstance(content, str) and "reasoning_content" not in message.additional_kwargs:
        return content
    try:
        return [*message.content_blocks]
    except Exception:  # a provider's blocks that LangChain itself cannot read
        return content


def _calls_of(message: Any) -> list[dict[str, Any]]:
    """Return the calls of a message, with their arguments as text."""
    if message.type == "AIMessageChunk":
        return [*message.tool_call_chunks]
    calls = enumerate((*message.tool_calls, *message.invalid_tool_calls))
    return [{**call, "index": index, "args": _arguments(call.get("args"))} for index, call in calls]


def _arguments(args: Any) -> str:
    return args if isinstance(args, str) else json_text(args or {})


def _output_text(content: Any) -> Any:
    """Return the content of an output: the text of its blocks, if they are nothing else."""
    blocks = as_list(content)
    texts = [block if isinstance(block, str) else as_object(block).get("text") for block in blocks]
    joined = [text for text in texts if isinstance(text, str)]
    return "".join(joined) if blocks and len(joined) == len(blocks) else content
