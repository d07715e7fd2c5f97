"""What a provider sends along with an answer and wants back with it in the next request, unchanged.

Each compatible server has fields of its own for this in the assistant's message:

    reasoning_content        DeepSeek, Moonshot, Zhipu, Qwen: the text of the reasoning
    reasoning                Groq, OpenRouter, Ollama, vLLM: the same
    reasoning_details        OpenRouter: objects with texts, signatures and encrypted reasoning, in their order
    thinking_blocks          LiteLLM: Anthropic's blocks, with their signatures
    reasoning_opaque         GitHub Copilot: encrypted reasoning
    content                  Mistral: parts of the type `thinking`
    extra_content            Google, in the message and in its tool calls: signatures

The message that such a field came with has it in its metadata, under `openai_chat`. Where it is the message's content it
is None there, so that a text is not kept twice.
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
    "NO_PIECE",
    "OPAQUE_KEYS",
    "GrowingPiece",
    "emptied_thinking",
    "joined_thinking",
    "merge_blocks",
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
    """What stands under `KEY`: empty if the message did not come from this API, or nothing came with it."""
    return as_object(message.metadata.get(KEY))


def taken_fields(host: str | None) -> tuple[str, ...] | None:
    """The fields that the server at this address takes; None if it takes any, for all that is known."""
    if host is None:
        return None
    found = (fields for name, fields in _TAKEN.items() if host == name or host.endswith(f".{name}"))
    return next(found, None)


class GrowingPiece:
    """The last piece of a list, while others follow that only bring more of its text, as most do. These are held as text: a
    dict for each would take many times the memory.

    Args:
        held: the list, with this piece at its end.
        text_keys: the keys under which its pieces have text.
    """

    __slots__ = ("_held", "_joined", "_key", "_rest", "_texts")

    def __init__(self, held: list[Any], text_keys: Iterable[str]) -> None:
        self._held = held
        self._key = ""
        self._rest: Any = None
        self._texts: list[str] = []
        self._joined: list[str] = []  # those before
        piece: Mapping[str, Any] = held[-1] if held else {}
        keys = [key for key in text_keys if piece.get(key)]
        if len(keys) == 1 and isinstance(piece[keys[0]], str) and "signature" not in piece and "data" not in piece:
            self._key = keys[0]
            self._rest = {**piece, self._key: ""}

    def take(self, piece: WireObject) -> bool:
        """Take the text of a further piece, if that is all that it brings."""
        text: Any = piece.get(self._key)
        if text.__class__ is not str or {**piece, self._key: ""} != self._rest:
            return False
        self._texts.append(text)
        return True

    def join(self) -> str:
        """The text that was taken since the last time."""
        text = "".join(self._texts)
        if text:
            self._joined.append(text)
            self._texts.clear()
        return text

    def end(self) -> None:
        """Put all text into the piece, as another one follows, or none."""
        self.join()
        if self._joined:
            piece = self._held[-1]
            self._held[-1] = {**piece, self._key: "".join((piece[self._key], *self._joined))}


NO_PIECE = GrowingPiece([], ())
"""In the place of a piece where there is none."""


def merge_blocks(pieces: Iterable[Any], text_keys: Iterable[str]) -> list[dict[str, Any]]:
    """The objects of a list that came in pieces.

    A piece goes on with the object of its index and type, without an index with the newest one of its type, as long as
    that has no signature. Texts are joined; any other value replaces the one before. An object that has no text, such
    as an encrypted one, comes in one piece, which some servers repeat.
    """
    merged: list[dict[str, Any]] = []
    texts: list[dict[str, list[str]]] = []
    places = _Places(merged)
    for piece in filter(is_object, pieces):
        found = {key: as_text(piece[key]) for key in text_keys if as_text(piece.get(key))}
        place = places.of(piece, has_text=bool(found))
        if place is None:
            place = len(merged)
            merged.append({})
            texts.append({})
            places.begin(piece, place)
        target = merged[place]
        for key, value in piece.items():
            if key in found:
                texts[place].setdefault(key, []).append(found[key])
                value = ""
            elif key in target and value in (None, ""):
                continue
            if key not in target or target[key] != value:
                target[key] = value
                places.note(key, value, place)
    for target, joined in zip(merged, texts, strict=True):
        target |= {key: "".join(values) for key, values in joined.items()}
    return merged


class _Places:
    """Where the objects of a list are, so that each piece finds the one that it goes on with, however many there are.

    Args:
        merged: the list.
    """

    def __init__(self, merged: list[dict[str, Any]]) -> None:
        self._merged = merged
        self._newest: dict[bytes, int] = {}  # by type, index, and whether there is `data`
        self._by_value: dict[tuple[str, bytes], list[int]] = {}

    def begin(self, piece: WireObject, place: int) -> None:
        """An object begins there with this piece."""
        self._newest[_kind_of(piece)] = place

    def note(self, key: str, value: Any, place: int) -> None:
        """The object there has this value."""
        self._by_value.setdefault((key, json_key(value)), []).append(place)

    def of(self, piece: WireObject, *, has_text: bool) -> int | None:
        """The place of the object that a piece goes on with, None if it begins one."""
        if not has_text and not piece.get("signature"):
            return self._of_repeated(without_keys(piece))
        place = self._newest.get(_kind_of(piece))
        if place is None or piece.get("index") is not None:
            return place
        is_signed = self._merged[place].get("signature") and has_text
        return place if place == len(self._merged) - 1 and not is_signed else None

    def _of_repeated(self, values: WireObject) -> int | None:
        """The first place of an object that has these values."""
        found = [self._by_value.get((key, json_key(value)), []) for key, value in values.items()]
        places = min(found, key=len) if found else range(len(self._merged))
        merged = self._merged
        return min((place for place in places if {**merged[place], **values} == merged[place]), default=None)


def _kind_of(piece: WireObject) -> bytes:
    return json_key([piece.get("type"), piece.get("index"), "data" in piece])


def merge_fields(fields: dict[str, Any], more: WireObject) -> None:
    """Add fields to others of the same assistant's message: texts and lists go on, objects get further keys."""
    for key, value in more.items():
        if isinstance(value, str):
            fields[key] = as_text(fields.get(key)) + value
        elif key in LISTS:
            fields[key] = merge_blocks([*as_list(fields.get(key)), *as_list(value)], LISTS[key])
        elif is_object(value):
            fields[key] = {**as_object(fields.get(key)), **value}
        else:
            fields[key] = value


def emptied_thinking(part: WireObject) -> dict[str, Any]:
    """A content part of the type `thinking` without its text."""
    return {**part, "thinking": None} if isinstance(part.get("thinking"), str) else {**part, "thinking": [None]}


def joined_thinking(part: WireObject, text: str) -> dict[str, Any]:
    """An emptied part with this text."""
    is_text = part.get("thinking") is None
    return {**part, "thinking": text if is_text else [{"type": "text", "text": text}]}
