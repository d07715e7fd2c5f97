"""Messages as Open Interpreter takes them: as input of `interpreter.chat`, and as the chunks of stored messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...answers import Confirmation
from ...events import MessageDelta
from ...messages import Message
from .encoder import Encoder, header_of, with_console_format

__all__ = ["explode", "to_input", "truncate"]

_INPUT_TYPES = ("message", "code", "console", "image", "file", "audio")
_INPUT_FORMATS: dict[str, tuple[str | None, ...]] = {"image": ("path", "description"), "file": (None, "path")}


def explode(messages: Iterable[Message]) -> Iterator[dict[str, Any]]:
    """Yield the chunks of finished messages, in order. Decoding them gives the messages again, except for what the
    table of `Encoder` lists."""
    encoder = Encoder()
    for message in messages:
        yield from encoder.chunks(message.created_event(message))
        if message.content:
            yield from encoder.chunks(MessageDelta(message.id, message.content))
        yield from encoder.chunks(message.done_event(message))


def to_input(messages: Iterable[Message | Confirmation]) -> list[dict[str, Any]]:
    """Return the messages as `interpreter.chat` and `interpreter.messages` take them: dicts of role, type, format,
    recipient and content.

    Open Interpreter raises on types that it does not have, so reasoning, tool calls, their outputs and confirmations are
    left out, and so are images and files that are neither a path nor data. A refusal becomes a normal message.
    """
    return [_static_form(message) for message in messages if isinstance(message, Message) and _is_input(message)]


def _is_input(message: Message) -> bool:
    type, format = message.type, message.format
    if type == "message":
        return format in (None, "refusal")
    has_format = type not in _INPUT_FORMATS or format in _INPUT_FORMATS[type] or (format or "").startswith("base64")
    return type in _INPUT_TYPES and has_format


def _static_form(message: Message) -> dict[str, Any]:
    header = with_console_format(header_of(message))
    if message.type == "message":
        header.pop("format", None)
    return {**header, "content": message.content}


def truncate(text: str, limit: int) -> str:
    """Return the text in at most `limit` characters, to show it to a model: its beginning, how many characters were
    left out, and its end. Where the limit has no room for that, only the count, which may then be longer than the
    limit."""
    if len(text) <= limit:
        return text
    room = max(0, limit - len(_left_out(len(text))))
    tail = room - room // 2
    return text[: room // 2] + _left_out(len(text) - room) + text[len(text) - tail :]


def _left_out(count: int) -> str:
    return f"\n[{count} characters left out]\n"
