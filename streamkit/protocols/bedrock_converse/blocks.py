"""Converse's content blocks, restored from the messages that `decoder` made of them."""

from __future__ import annotations

import base64
from typing import Any

from ... import messages as m
from ...messages import Message
from ..values import WireObject, as_object, as_text, is_object, parse_json
from .wire import KEY

__all__ = ["arguments_of", "block_of", "own_of", "result_content"]


def own_of(message: Message) -> WireObject:
    """Return what this API wants back of a message."""
    return as_object(message.metadata.get(KEY))


def block_of(message: Message, call_id: str = "") -> dict[str, Any] | None:
    """Return the block of an assistant's turn that a message becomes; None if it did not come from one and fits in none. Blobs are
    bytes, as Amazon's client wants them.

    Args:
        message: the message.
        call_id: of a call, the id that is sent.
    """
    own = own_of(message)
    match message:
        case m.TextMessage() | m.RefusalMessage():
            return _text_block(message) if message.content else None
        case m.ReasoningMessage() if "redactedContent" in own:
            return {"reasoningContent": {"redactedContent": _blob(own["redactedContent"])}}
        case m.ReasoningMessage() if "signature" in own:
            text = {"text": message.content, "signature": own["signature"]}
            return {"reasoningContent": {"reasoningText": text}}
        case m.ToolCallMessage() if not message.provider_executed or own:
            call = {"toolUseId": call_id or message.call_id or message.id, "name": message.name or ""}
            return {"toolUse": {**call, **as_object(own.get("toolUse")), "input": dict(arguments_of(message))}}
        case m.ToolOutputMessage() if own:
            result = {"toolUseId": message.call_id or "", "content": result_content(message.content)}
            return {"toolResult": {**as_object(own.get("toolResult")), **result}}
        case m.ImageMessage() if (message.format or "").startswith("base64.") and (own or message.role == "user"):
            return image_block(message)
        case _:
            return None


def image_block(image: Message) -> dict[str, Any]:
    """Return the block of an image in base64."""
    format = (image.format or "").removeprefix("base64.").replace("jpg", "jpeg")
    return {"image": {"format": format, "source": {"bytes": _blob(image.content)}}}


def _text_block(message: Message) -> dict[str, Any]:
    """Return the block of a text. One that this API cited has its citations in it."""
    annotations = message.annotations if isinstance(message, m.TextMessage) else []
    citations = [dict(raw) for one in annotations if is_object(raw := one.raw) and "location" in raw]
    if citations:
        return {"citationsContent": {"content": [{"text": message.content}], "citations": citations}}
    return {"text": message.content}


def result_content(text: str) -> list[dict[str, Any]]:
    """Return the content of a result, which has no empty text."""
    value = parse_json(text)
    return [{"json": dict(value)}] if is_object(value) else [{"text": text}] if text.strip() else [{"json": {}}]


def arguments_of(call: m.ToolCallMessage) -> WireObject:
    """Return the arguments of a call, which are an object. Anything else becomes one with the text at the key `input`."""
    found = None if call.metadata.get("custom") is True else parse_json(call.content or "{}")
    return found if is_object(found) else {"input": call.content}


def _blob(value: Any) -> bytes:
    try:
        return base64.b64decode(as_text(value))
    except ValueError:
        return b""
