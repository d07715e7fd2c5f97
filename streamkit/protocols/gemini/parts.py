"""Parts of Gemini's contents, restored from the messages that `candidate` made of them."""

from __future__ import annotations

from typing import Any

from ... import messages as m
from ...messages import Message
from ..values import WireObject, as_count, as_list, as_object, is_object, parse_json, without_keys

__all__ = ["arguments_of", "parts_of"]


def parts_of(message: Message) -> list[dict[str, Any]] | None:
    """Return the parts of an answer that a message becomes: as they came, if it came from Gemini. None if it fits in none.

    Reasoning has the signatures of the model that made it, so that only Gemini's own becomes parts.
    """
    own = as_object(message.metadata.get("gemini"))
    match message:
        case m.TextMessage():
            return _text_parts(message.content, own)
        case m.ReasoningMessage():
            parts = _text_parts(message.content, own) if own else []
            return [{"text": part["text"], "thought": True, **without_keys(part, "text")} for part in parts] or None
        case m.ToolCallMessage() if not message.provider_executed:
            arguments = {"args": arguments_of(message)} if message.content or not own else {}
            return [_restored(own, "functionCall", name=message.name or "", **arguments)]
        case Message(type="part") if own:
            return [dict(own)]
        case _:
            return _restored_parts(message, own)


def _restored_parts(message: Message, own: WireObject) -> list[dict[str, Any]] | None:
    """As `parts_of`, of what Gemini alone ran or made."""
    content = message.content
    match message:
        case m.ToolCallMessage() if "toolCall" in own:
            return [_restored(own, "toolCall", toolType=message.name, **_optional("args", content))]
        case m.ToolOutputMessage() if "toolResponse" in own:
            return [_restored(own, "toolResponse", toolType=message.name, **_optional("response", content))]
        case m.CodeMessage() if "executableCode" in own:
            return [_restored(own, "executableCode", code=content)]
        case m.ConsoleMessage() if "codeExecutionResult" in own:
            return [_restored(own, "codeExecutionResult", **({"output": content} if content else {}))]
        case m.ImageMessage() | m.AudioMessage() if "inlineData" in own:
            return [_restored(own, "inlineData", data=content)]
        case m.FileMessage() if "fileData" in own:
            return [_restored(own, "fileData", fileUri=content)]
        case _:
            return None


def _restored(own: WireObject, key: str, **content: Any) -> dict[str, Any]:
    """Return a part: what stands beside its content, and the content at this key."""
    return {**own, key: {**content, **as_object(own.get(key))}}


def _optional(key: str, content: str) -> dict[str, Any]:
    return {key: parse_json(content)} if content else {}


def _text_parts(content: str, own: WireObject) -> list[dict[str, Any]]:
    """Return the parts of a text. One that was changed has all of it in the first."""
    parts = [as_object(part) for part in as_list(own.get("parts"))]
    sizes = [as_count(part.get("text")) or 0 for part in parts]
    if not parts or sum(sizes) != len(content):
        sizes = [len(content), *[0] * (len(parts) - 1)]
    texts: list[dict[str, Any]] = []
    start = 0
    for part, size in zip(parts or [{}], sizes, strict=True):
        texts.append({"text": content[start : start + size], **without_keys(part, "text")})
        start += size
    return texts


def arguments_of(call: m.ToolCallMessage) -> WireObject:
    """Return the arguments of a call, which are an object. Anything else becomes one with the text at the key `input`."""
    found = None if call.metadata.get("custom") is True else parse_json(call.content or "{}")
    return found if is_object(found) else {"input": call.content}
