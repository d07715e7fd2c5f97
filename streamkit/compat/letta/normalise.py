"""Reading what agents hand over: messages and chunks as dicts, as objects of any library, or as our own.

The rule: what is not there, or not of its type, reads as absent; nothing here raises.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from ...messages import Message, ReasoningMessage, ToolCallMessage

__all__ = [
    "Call",
    "as_chat_chunk",
    "as_chat_message",
    "as_given",
    "call_id_of",
    "calls_of",
    "date_of",
    "get",
    "in_parts",
    "items_of",
    "json_object",
    "text_of",
    "text_or_none",
]


def get(value: object, key: str) -> Any:
    """A field of a dict, or of an object; None where there is none."""
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value).get(key)
    return getattr(value, key, None)


def text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def items_of(value: object) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else ()


def text_of(content: object) -> str | None:
    """Content as text: a string, or a list of parts."""
    if isinstance(content, str) or content is None:
        return content
    parts = (part if isinstance(part, str) else text_or_none(get(part, "text")) for part in items_of(content))
    return "".join(filter(None, parts))


def json_object(text: str | None) -> dict[str, Any] | None:
    """The object that a JSON text is, None where it is none. Control characters may stand in its strings: models
    write them there."""
    try:
        value = json.loads(text or "", strict=False)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def date_of(created_at: object, *, seconds: bool = False) -> str | None:
    """A time in ISO form, in UTC, to the second if so asked. A time without a zone is taken to be in UTC; text is kept as it is."""
    if isinstance(created_at, str):
        return created_at
    if isinstance(created_at, (int, float)):
        try:
            created_at = datetime.fromtimestamp(created_at, UTC)
        except (ValueError, OverflowError, OSError):
            return None
    if not isinstance(created_at, datetime):
        return None
    known = created_at if created_at.tzinfo else created_at.replace(tzinfo=UTC)
    try:
        return known.astimezone(UTC).isoformat(timespec="seconds" if seconds else "auto")
    except OverflowError:
        return known.isoformat()


class Call(NamedTuple):
    """A tool call, or a piece of one."""

    id: str | None
    name: str | None
    arguments: str | None
    place: int = 0


def calls_of(message: object) -> list[Call]:
    """The tool calls of a message, or of a chunk's delta; the `function_call` of older ones, too."""
    if isinstance(message, ToolCallMessage):
        return [Call(message.call_id, message.name, message.content)]
    found = [_call(call, place) for place, call in enumerate(items_of(get(message, "tool_calls")))]
    function = get(message, "function_call")
    return found or ([_call({"function": function}, 0)] if function is not None else [])


def _call(call: object, place: int) -> Call:
    function, index = get(call, "function"), get(call, "index")
    arguments = get(function, "arguments")
    if isinstance(arguments, Mapping):
        arguments = json.dumps(arguments, ensure_ascii=False, default=str)
    name = text_or_none(get(function, "name"))
    return Call(text_or_none(get(call, "id")), name, text_or_none(arguments), index if type(index) is int else place)


def call_id_of(message: object) -> str | None:
    """The id of the call that a message answers."""
    return text_or_none(get(message, "tool_call_id")) or text_or_none(get(message, "call_id"))


def as_chat_chunk(chunk: object) -> dict[str, Any]:
    """A piece of an answer as a Chat Completions chunk."""
    choices = [_as_choice(choice, place) for place, choice in enumerate(items_of(get(chunk, "choices")))]
    known = {"id": text_or_none(get(chunk, "id")) or "", "model": text_or_none(get(chunk, "model")) or ""}
    return {**known, "object": "chat.completion.chunk", "created": 0, "choices": choices}


def in_parts(chunk: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What a chunk's first choice says, a kind of message at a time: `message`, then `tool_call`."""
    for choice in chunk["choices"][:1]:
        content, calls = choice["delta"]["content"], choice["delta"].get("tool_calls")
        if content:
            yield "message", {**chunk, "choices": [{**choice, "delta": {"content": content}}]}
        if calls:
            yield "tool_call", {**chunk, "choices": [{**choice, "delta": {"tool_calls": calls}}]}


def _as_choice(choice: object, place: int) -> dict[str, Any]:
    given, index = get(choice, "delta"), get(choice, "index")
    calls = [
        {"index": call.place, "id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls_of(given)
    ]
    delta: dict[str, Any] = {"content": text_of(get(given, "content")), **({"tool_calls": calls} if calls else {})}
    # Whether the answer is over, who calls says.
    return {"index": index if type(index) is int else place, "delta": delta, "finish_reason": None}


def as_given(message: object) -> object:
    """A message as a dict, as far as it can be one: what it has, under its own names."""
    for name in ("to_openai_dict", "to_dict", "model_dump"):
        convert = getattr(message, name, None)
        if callable(convert):
            return convert()
    return message


def as_chat_message(message: object) -> dict[str, Any]:
    """A message as Chat Completions has it. The assistant's content is its inner monologue there; what it says is a
    call of `send_message`."""
    if isinstance(message, Message):
        return _own(message)
    convert = getattr(message, "to_openai_dict", None)
    given: object = convert() if callable(convert) else message
    content = get(given, "content")
    said = text_of(content if content is not None else get(given, "text"))
    return _chat(text_or_none(get(given, "role")) or "", said, calls_of(given))


def _own(message: Message) -> dict[str, Any]:
    content = message.content
    match message:
        case ToolCallMessage():
            return _chat("assistant", None, calls_of(message))
        case ReasoningMessage():
            return _chat("assistant", content)
        case Message(role="assistant"):
            arguments = json.dumps({"message": content}, ensure_ascii=False)
            return _chat("assistant", None, [Call(None, "send_message", arguments)])
        case _:
            return _chat("tool" if message.role == "computer" else message.role, content)


def _chat(role: str, content: str | None, calls: Sequence[Call] = ()) -> dict[str, Any]:
    return {"role": role, "content": content, "tool_calls": calls}
