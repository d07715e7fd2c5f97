"""Messages as Open Interpreter takes them: what `interpreter.chat` is given, and stored messages as chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...answers import Confirmation
from ...events import MessageDelta
from ...messages import Message
from .encoder import Encoder, static_form, with_format

__all__ = ["explode", "to_input", "truncate"]

_INPUT = ("message", "code", "console", "image", "file", "audio")
_INPUT_FORMATS: dict[str, tuple[str | None, ...]] = {"image": ("path", "description"), "file": (None, "path")}


def explode(messages: Iterable[Message]) -> Iterator[dict[str, Any]]:
    """The chunks of finished messages, in order. Decoding them gives the messages again, as far as the table of
    `Encoder` says."""
    encoder = Encoder()
    for message in messages:
        yield from encoder.feed(message.created_event(message))
        if message.content:
            yield from encoder.feed(MessageDelta(message.id, message.content))
        yield from encoder.feed(message.done_event(message))


def to_input(messages: Iterable[Message | Confirmation]) -> list[dict[str, Any]]:
    """What `interpreter.chat` and `interpreter.messages` take: role, type, format, recipient and content alone.

    Open Interpreter raises on what it does not know, so reasoning, tool calls, their outputs and confirmations are left
    out, and so are images and files that are neither a path nor data. A refusal is a message as any other.
    """
    taken: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, Confirmation):
            continue
        type, format = message.type, message.format
        if type not in _INPUT or (type == "message" and format not in (None, "refusal")):
            continue
        if type in _INPUT_FORMATS and format not in _INPUT_FORMATS[type] and not (format or "").startswith("base64"):
            continue
        header = with_format(static_form(message))
        if type == "message":
            header.pop("format", None)
        taken.append({**header, "content": message.content})
    return taken


def truncate(text: str, limit: int) -> str:
    """The text in at most `limit` characters, for showing it to a model: its head, how many characters were left out,
    and its tail. Where the limit has no room for that: the count alone."""
    if len(text) <= limit:
        return text
    kept = max(0, limit - len(_left_out(len(text))))
    tail = kept - kept // 2
    return text[: kept // 2] + _left_out(len(text) - kept) + text[len(text) - tail :]


def _left_out(count: int) -> str:
    return f"\n[{count} characters left out]\n"
