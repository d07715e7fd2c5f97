"""Fields that a provider sends along with an answer and wants back in the next request, unchanged.

Each compatible server has fields of its own for this in the assistant's message:

    reasoning_content        DeepSeek, Moonshot, Zhipu, Qwen: the text of the reasoning
    reasoning                Groq, OpenRouter, Ollama, vLLM: the same; as any other key in `REASONING_KEYS` (`wire.py`)
    reasoning_details        OpenRouter: objects with texts, signatures and encrypted reasoning, in their order
    thinking_blocks          LiteLLM: Anthropic's blocks, with their signatures
    reasoning_opaque         GitHub Copilot: encrypted reasoning
    content                  Mistral: parts of the type `thinking`
    extra_content            Google, in the message and in its tool calls: signatures

The message that such a field came with has it in its metadata, under `openai_chat`. Where the field's text is the message's
content, the metadata has the key alone, with None, so that a text is not kept twice: it goes back at the key at which it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...messages import Message
from ...messages.json_text import json_key
from ..values import WireObject, as_list, as_object, as_text, is_object, without_keys

__all__ = [
    "CALL_KEYS",
    "KEY",
    "LISTS",
    "OPAQUE_KEYS",
    "Blocks",
    "emptied_thinking",
    "joined_thinking",
    "merge_fields",
    "returned_fields",
    "taken_fields",
]

KEY = "openai_chat"
"""The key of messages' metadata under which the fields stand."""

CALL_KEYS = frozenset(("index", "id", "type", "function", "custom", "name", "arguments", "input"))
"""The keys of a tool call that its message has fields for. The others go back as they came."""

LISTS = {"reasoning_details": ("text", "summary"), "thinking_blocks": ("thinking",)}
"""The fields that are lists of objects, and the keys under which their pieces have text."""

OPAQUE_KEYS = ("reasoning_opaque",)
"""The fields that are text in every piece, and are joined."""

# The servers that refuse fields which they do not know, and the fields that they take. Others get what came to us.
_TAKEN: Mapping[str, tuple[str, ...]] = {
    "api.openai.com": (),
    "openai.azure.com": (),
    "api.deepseek.com": ("reasoning_content",),
    "api.moonshot.ai": ("reasoning_content",),
    "api.moonshot.cn": ("reasoning_content",),
    "openrouter.ai": ("reasoning", "reasoning_content", "reasoning_details"),
    "api.groq.com": ("reasoning",),
    "api.mistral.ai": ("content",),
    "generativelanguage.googleapis.com": ("extra_content",),
}


def returned_fields(message: Message) -> WireObject:
    """Return the fields under `KEY`: none if the message did not come from this API, or nothing came with it."""
    return as_object(message.metadata.get(KEY))


def taken_fields(host: str | None) -> tuple[str, ...] | None:
    """Return the fields that the server at this address takes; None if it takes any, for all that is known."""
    if host is None:
        return None
    found = (fields for name, fields in _TAKEN.items() if host == name or host.endswith(f".{name}"))
    return next(found, None)


class Blocks:
    """The objects of a list that comes in pieces. Each piece finds the one that it continues, however many there are.

    A piece goes on with the object of its index and type, without an index with the newest one of its type, as long as
    that has no signature. Texts are joined; any other value replaces the one before. An object that has no text, such
    as an encrypted one, comes in one piece, which some servers repeat.

    Args:
        text_keys: the keys under which the pieces have text.
    """

    __slots__ = ("_blocks", "_by_value", "_newest", "_text_keys", "_texts")

    def __init__(self, text_keys: Iterable[str]) -> None:
        self._text_keys = text_keys
        self._blocks: list[dict[str, Any]] = []
        self._texts: list[dict[str, list[str]]] = []
        self._newest: dict[bytes, int] = {}  # the newest object by type, index, and whether there is `data`
        self._by_value: dict[tuple[str, bytes], list[int]] = {}  # the objects with a value at a key

    def add(self, piece: WireObject) -> None:
        """Add a piece."""
        texts = {key: text for key in self._text_keys if (text := as_text(piece.get(key)))}
        position = self._continued_by(piece, has_text=bool(texts))
        if position is None:
            position = self._newest[_kind_of(piece)] = len(self._blocks)
            self._blocks.append({})
            self._texts.append({})
        for key, text in texts.items():
            self._texts[position].setdefault(key, []).append(text)
        block = self._blocks[position]
        for key, value in {**piece, **dict.fromkeys(texts, "")}.items():
            if key in block and (block[key] == value or (value in (None, "") and key not in texts)):
                continue
            block[key] = value
            self._by_value.setdefault((key, json_key(value)), []).append(position)

    def joined(self) -> list[dict[str, Any]]:
        """Return the objects, each with all of its text."""
        pairs = zip(self._blocks, self._texts, strict=True)
        return [{**block, **{key: "".join(pieces) for key, pieces in texts.items()}} for block, texts in pairs]

    def _continued_by(self, piece: WireObject, *, has_text: bool) -> int | None:
        """Return the index of the object that a piece goes on with, None if it begins one."""
        if not has_text and not piece.get("signature"):
            return self._repeated_by(without_keys(piece))
        position = self._newest.get(_kind_of(piece))
        if position is None or piece.get("index") is not None:
            return position
        is_signed = self._blocks[position].get("signature") and has_text
        return position if position == len(self._blocks) - 1 and not is_signed else None

    def _repeated_by(self, values: WireObject) -> int | None:
        """Return the index of the first object that has these values."""
        blocks = self._blocks
        found = [self._by_value.get((key, json_key(value)), []) for key, value in values.items()]
        positions = min(found, key=len) if found else range(len(blocks))
        repeated = (position for position in positions if {**blocks[position], **values} == blocks[position])
        return min(repeated, default=None)


def _kind_of(piece: WireObject) -> bytes:
    return json_key([piece.get("type"), piece.get("index"), "data" in piece])


def merge_fields(fields: dict[str, Any], more: WireObject) -> None:
    """Add fields to others of the same assistant's message: texts and lists go on, objects get further keys."""
    for key, value in more.items():
        if isinstance(value, str):
            fields[key] = as_text(fields.get(key)) + value
        elif key in LISTS:
            blocks = Blocks(LISTS[key])
            for piece in filter(is_object, (*as_list(fields.get(key)), *as_list(value))):
                blocks.add(piece)
            fields[key] = blocks.joined()
        elif is_object(value):
            fields[key] = {**as_object(fields.get(key)), **value}
        else:
            fields[key] = value


def emptied_thinking(part: WireObject) -> dict[str, Any]:
    """Return a content part of the type `thinking` without its text."""
    return {**part, "thinking": None} if isinstance(part.get("thinking"), str) else {**part, "thinking": [None]}


def joined_thinking(part: WireObject, text: str) -> dict[str, Any]:
    """Return an emptied part with this text."""
    is_text = part.get("thinking") is None
    return {**part, "thinking": text if is_text else [{"type": "text", "text": text}]}
