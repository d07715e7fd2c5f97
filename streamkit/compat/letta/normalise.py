"""Reads what agents pass to an interface: messages and chunks, as dicts, objects of any library or streamkit's own.

The rule: a field that is missing or has another type reads as absent; nothing here raises.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ...messages import Message, ReasoningMessage, ToolCallMessage
from ...protocols import is_object
from ...protocols.values import as_list

__all__ = [
    "FunctionCall",
    "as_chat_chunk",
    "as_chat_message",
    "as_dict",
    "call_id_of",
    "calls_of",
    "get",
    "items_of",
    "json_object",
    "split_by_kind",
    "string_or_none",
    "text_of",
    "utc_date",
]


def get(value: object, key: str) -> Any:
    """Return a field of a dict, or an attribute of an object; None if there is none."""
    return value.get(key) if is_object(value) else getattr(value, key, None)


def string_or_none(value: object) -> str | None:
    """Return a string unchanged; None for anything else."""
    return value if isinstance(value, str) else None


def items_of(value: object) -> Sequence[Any]:
    """Return a list or tuple unchanged; an empty sequence for anything else."""
    return as_list(value)


def text_of(content: object) -> str | None:
    """Return a message's content, a string or a list of parts, as one string; None if there is no content."""
    if isinstance(content, str) or content is None:
        return content
    parts = (part if isinstance(part, str) else string_or_none(get(part, "text")) for part in items_of(content))
    return "".join(filter(None, parts))


def json_object(text: str | None) -> Mapping[str, Any] | None:
    """Return the object in a JSON text; None if it is anything else. Control characters in strings are allowed."""
    try:
        value = json.loads(text or "", strict=False)
    except (ValueError, RecursionError):
        return None
    return value if is_object(value) else None


def utc_date(created_at: object, *, seconds: bool = False) -> str | None:
    """Return a time as ISO text in UTC; with `seconds`, without fractions. Text is returned unchanged.

    Args:
        created_at: A `datetime` (in UTC if it has no time zone), Unix seconds, or text. Anything else has no date.
    """
    if isinstance(created_at, str):
        return created_at
    if isinstance(created_at, (int, float)):
        try:
            created_at = datetime.fromtimestamp(created_at, UTC)
        except (ValueError, OverflowError, OSError):
            return None
    if not isinstance(created_at, datetime):
        return None
    date = created_at if created_at.tzinfo else created_at.replace(tzinfo=UTC)
    try:
        return date.astimezone(UTC).isoformat(timespec="seconds" if seconds else "auto")
    except OverflowError:
        return date.isoformat()


class FunctionCall(NamedTuple):
    """A tool call, or a piece of one. `position` is its index among the calls of its message."""

    id: str | None
    name: str | None
    arguments: str | None
    position: int = 0


def calls_of(message: object) -> list[FunctionCall]:
    """Return the tool calls of a message or of a chunk's delta, including the `function_call` of older ones."""
    if isinstance(message, ToolCallMessage):
        return [FunctionCall(message.call_id, message.name, message.content)]
    calls = [_call(call, position) for position, call in enumerate(items_of(get(message, "tool_calls")))]
    function = get(message, "function_call")
    return calls or ([_call({"function": function}, 0)] if function is not None else [])


def _call(call: object, position: int) -> FunctionCall:
    function, index = get(call, "function"), get(call, "index")
    arguments = get(function, "arguments")
    if is_object(arguments):
        arguments = json.dumps(arguments, ensure_ascii=False, default=str)
    name = string_or_none(get(function, "name"))
    id = string_or_none(get(call, "id"))
    return FunctionCall(id, name, string_or_none(arguments), index if type(index) is int else position)


def call_id_of(message: object) -> str | None:
    """Return the id of the call that a message answers."""
    return string_or_none(get(message, "tool_call_id")) or string_or_none(get(message, "call_id"))


def as_chat_chunk(chunk: object) -> dict[str, Any]:
    """Return a chunk of an answer as a Chat Completions chunk, without a finish reason."""
    return {
        "id": string_or_none(get(chunk, "id")) or "",
        "model": string_or_none(get(chunk, "model")) or "",
        "object": "chat.completion.chunk",
        "created": 0,
        "choices": [_as_choice(choice, position) for position, choice in enumerate(items_of(get(chunk, "choices")))],
    }


def _as_choice(choice: object, position: int) -> dict[str, Any]:
    chunk_delta, index = get(choice, "delta"), get(choice, "index")
    delta: dict[str, Any] = {"content": text_of(get(chunk_delta, "content"))}
    if calls := calls_of(chunk_delta):
        delta["tool_calls"] = [
            {"index": call.position, "id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    # The end of the answer comes from the interface's `stream_end`, not from a finish reason.
    return {"index": index if type(index) is int else position, "delta": delta, "finish_reason": None}


def split_by_kind(chunk: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a Chat Completions chunk, split by the kind of message in its first choice: `message`, then `tool_call`."""
    for choice in chunk["choices"][:1]:
        content, calls = choice["delta"]["content"], choice["delta"].get("tool_calls")
        if content:
            yield "message", {**chunk, "choices": [{**choice, "delta": {"content": content}}]}
        if calls:
            yield "tool_call", {**chunk, "choices": [{**choice, "delta": {"tool_calls": calls}}]}


def as_dict(message: object) -> object:
    """Return a message as a dict with its own field names; an object that has no such form is returned unchanged."""
    for name in ("to_openai_dict", "to_dict", "model_dump"):
        convert = getattr(message, name, None)
        if callable(convert):
            return convert()
    return message


def as_chat_message(message: object) -> dict[str, Any]:
    """Return a message with the fields `role`, `content` and `tool_calls` (a list of `FunctionCall`).

    As in MemGPT, the assistant's content is its inner monologue, and a text to its user is a call of `send_message`.
    """
    if isinstance(message, Message):
        return _from_streamkit(message)
    convert = getattr(message, "to_openai_dict", None)
    fields: object = convert() if callable(convert) else message
    content = get(fields, "content")
    text = text_of(content if content is not None else get(fields, "text"))
    return _chat_message(string_or_none(get(fields, "role")) or "", text, calls_of(fields))


def _from_streamkit(message: Message) -> dict[str, Any]:
    content = message.content
    match message:
        case ToolCallMessage():
            return _chat_message("assistant", None, calls_of(message))
        case ReasoningMessage():
            return _chat_message("assistant", content)
        case Message(role="assistant"):
            arguments = json.dumps({"message": content}, ensure_ascii=False)
            return _chat_message("assistant", None, [FunctionCall(None, "send_message", arguments)])
        case _:
            return _chat_message("tool" if message.role == "computer" else message.role, content)


def _chat_message(role: str, content: str | None, calls: Sequence[FunctionCall] = ()) -> dict[str, Any]:
    return {"role": role, "content": content, "tool_calls": calls}
