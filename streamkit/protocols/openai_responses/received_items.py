"""Items as the provider sent them, for the way back.

The API takes its own items as input and wants them unchanged: reasoning by its id or its encrypted content, what its
tools found, a program by its fingerprint. So one message of each item has the item's final form in its metadata:

    message.metadata["openai_responses"] == {"item": {…}, "reasoning": "rs_1"}

`item` is without what its messages have as their contents: a text there is None, a list or an object is empty, until
`restore` puts the contents back. `reasoning` is the id of the reasoning item before it, to which the API ties it. It is
None there for reasoning that the API would not find again, because the response was not stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ...messages import (
    CodeMessage,
    ImageMessage,
    Message,
    ReasoningMessage,
    RefusalMessage,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
)
from ..values import WireObject, as_list, as_object, as_text, is_list, is_object, json_text, parse_json
from .item_types import CALLS, CODE_KEYS, CONTENT_PARTS, OUTPUT_KEYS

__all__ = ["KEY", "form_of", "received_item", "restore"]

KEY = "openai_responses"
"""The key of messages' metadata under which an item stands."""


def received_item(message: Message) -> WireObject:
    """Return the form of the item that the message came from; empty if it came from elsewhere, or another message has
    it."""
    return as_object(as_object(message.metadata.get(KEY)).get("item"))


class _ContentLocation(msgspec.Struct, frozen=True):
    """The location of a message's content in an item: at this key of this object. `part_list` names the list of
    content parts that the object is in, "" if it is the item; `part_index` is its index there."""

    holder: dict[str, Any]
    key: str
    classes: tuple[type[Message], ...]
    part_list: str = ""
    part_index: int = 0


def form_of(wire: WireObject) -> dict[str, Any]:
    """Return a copy of an item without the contents of its messages."""
    item = dict(wire)
    type = item.get("type")
    if type == "reasoning":
        _define_reasoning(item)
    has_parts = type.__class__ is str and type in _PART_CLASSES
    for name in item.keys() & _PART_LISTS:
        if is_list(parts := item[name]):
            item[name] = [_part_form(part, has_parts) for part in parts]
    if not has_parts:
        for key, _ in _contents_of(item):
            _empty(item, key, "")
        if type == "shell_call":
            item["action"] = {**as_object(item.get("action")), "commands": []}
    elif type == "reasoning" and item.get("encrypted_content"):
        item["encrypted_content"] = None
    return item


def _define_reasoning(item: dict[str, Any]) -> None:
    """Make a reasoning item what the API defines, where a server lists its texts as if they were a message's."""
    parts = as_list(item.get("content"))
    if any(as_object(part).get("type") in ("output_text", "text") for part in parts):
        item["content"] = [{"type": "reasoning_text", "text": as_object(part).get("text")} for part in parts]
        item["summary"] = item.get("summary") or []


def _part_form(part: Any, is_message: bool) -> Any:
    """Return a copy of a content part, without its content if that is a message's. Its type is the same text in all
    copies."""
    if part.__class__ is not dict and not is_object(part):
        return part
    form = dict(part)
    try:
        form["type"], key = _PART_KEYS[form["type"]]
    except (KeyError, TypeError):
        return form
    if is_message and key in form:
        _empty(form, key, None)
    return form


def _empty(holder: dict[str, Any], key: str, no_text: str | None) -> None:
    """Take a content out of its place, if it can be read from its message again; `no_text` stands for a text."""
    value = holder[key]
    if isinstance(value, str):
        holder[key] = no_text if value else ""
    elif (is_object(value) or is_list(value)) and parse_json(json_text(value)) == value:
        holder[key] = {} if is_object(value) else []
    if holder.get("logprobs"):
        holder["logprobs"] = None


def _copy(wire: WireObject) -> dict[str, Any]:
    item = dict(wire)
    for name in _PART_LISTS:
        if is_list(parts := item.get(name)):
            item[name] = [dict(part) if is_object(part) else part for part in parts]
    return item


def _key_of(part: WireObject) -> str:
    """Return where a content part has its content; "" if it has none."""
    try:
        _, key = _PART_KEYS[part["type"]]
    except (KeyError, TypeError):
        return ""
    return key if key in part else ""


def _locations(item: dict[str, Any]) -> Iterator[_ContentLocation]:
    type = as_text(item.get("type"))
    for name in _PART_LISTS if type in _PART_CLASSES else ():
        for index, part in enumerate(as_list(item.get(name))):
            if key := _key_of(as_object(part)):
                yield _ContentLocation(part, key, _PART_CLASSES[type], name, index)
    for key, message_class in _contents_of(item):
        yield _ContentLocation(item, key, (message_class,))


def _contents_of(item: WireObject) -> list[tuple[str, type[Message]]]:
    """Return where an item has contents that are in no content part: the keys, and the classes of their messages."""
    found: list[tuple[str, type[Message]]] = []
    for keys, message_class in _CONTENT_KEYS.get(as_text(item.get("type")), ()):
        for key in keys:
            if item.get(key) is not None:
                found.append((key, message_class))
                break
    return found


_PART_LISTS = ("summary", "content")
# By the types of content parts: the same text, and where a part has its content.
_PART_KEYS = {type: (type, "refusal" if kind == "refusal" else "text") for type, kind in CONTENT_PARTS.items()}
_PART_CLASSES: Mapping[str, tuple[type[Message], ...]] = {
    "message": (TextMessage, RefusalMessage),
    "reasoning": (ReasoningMessage,),
}


# Where an item without content parts has its contents: the keys, of which the first counts, and the class of the message.
_CONTENT_KEYS: dict[str, Sequence[tuple[Sequence[str], type[Message]]]] = {
    **{
        type: [(call.argument_keys, ToolCallMessage), (("results", "output"), ToolOutputMessage)]
        for type, call in CALLS.items()
    },
    **{type: [((key,), CodeMessage)] for type, key in CODE_KEYS.items()},
    **{type: [((key,), ToolOutputMessage)] for type, key in OUTPUT_KEYS.items()},
    "image_generation_call": [(("result",), ImageMessage)],
}


def restore(form: WireObject, messages: Sequence[Message]) -> dict[str, Any]:
    """Return the item as it was received, with the contents that its messages have now.

    A content part the message of which is not among them is left out.
    """
    item = _copy(form)
    left = [*messages]
    for location in _locations(item):
        if (message := _message_at(location, item, messages)) is not None:
            _fill(location, message)
            left = [one for one in left if one is not message]
        elif location.part_list and location.holder[location.key] is None:
            location.holder.clear()
    for name in ("summary", "content"):
        if is_list(parts := item.get(name)):
            item[name] = [part for part in parts if part != {}]
    if item.get("type") == "reasoning":
        _complete_reasoning(item, messages, left)
    if item.get("type") == "shell_call":
        commands = [message.content for message in messages if isinstance(message, CodeMessage)]
        item["action"] = {**as_object(item.get("action")), "commands": commands}
    if item.get("call_id") and messages[0].call_id:
        item["call_id"] = messages[0].call_id  # another one, if several calls had the same
    return item


def _complete_reasoning(item: dict[str, Any], messages: Sequence[Message], left: Sequence[Message]) -> None:
    """Complete encrypted reasoning, and the texts that were streamed as another kind than the item lists them as: `left`."""
    if "encrypted_content" in item:
        found = (message.metadata.get("encrypted_content") for message in messages)
        item["encrypted_content"] = next((text for text in found if text), item["encrypted_content"])
    for message in left:
        if message.content:
            name, other = ("summary", "content") if message.format == "summary" else ("content", "summary")
            part = {"type": "summary_text" if name == "summary" else "reasoning_text", "text": message.content}
            item[name] = [*as_list(item.get(name)), part]
            if not item.get(other):
                item.pop(other, None)
            item.setdefault("summary", [])


def _message_at(location: _ContentLocation, item: WireObject, messages: Sequence[Message]) -> Message | None:
    """Return the message that has the content at this location. Servers that do not count from 0 have their parts in
    order."""
    found = [message for message in messages if isinstance(message, location.classes)]
    if not location.part_list:
        return found[0] if found else None
    if location.part_list == "summary" or item.get("type") == "reasoning":
        found = [message for message in found if (message.format == "summary") is (location.part_list == "summary")]
    indexes = sorted(message.index for message in found)
    if indexes and indexes[-1] >= len(as_list(item.get(location.part_list))):
        return found[location.part_index] if location.part_index < len(found) else None
    return next((message for message in found if message.index == location.part_index), None)


def _fill(location: _ContentLocation, message: Message) -> None:
    holder, key = location.holder, location.key
    if holder[key] in (None, ""):
        holder[key] = message.content
    elif holder[key] in ({}, []):
        value = parse_json(message.content)
        if is_list(holder[key]):
            value = as_object(value).get(
                key, value
            )  # arguments that are a list are the value of its key, in the message
        holder[key] = holder[key] if value is None else value
    if "logprobs" in holder and holder["logprobs"] is None:
        holder["logprobs"] = message.metadata.get("logprobs")
