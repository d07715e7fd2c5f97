"""`interpreter.messages` and the chunks, from the same events: what Open Interpreter stores, and what it yields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...events import Created, Delta, Done, Event
from ...messages import Message, RefusalMessage
from ...protocols.open_interpreter import Encoder

__all__ = ["Kept", "chunks_of"]

_KEYS = ("role", "type", "format", "recipient", "content", "start", "end", "replace")


def chunks_of(encoder: Encoder, event: Event) -> Iterator[dict[str, Any]]:
    """The chunks of one event, with Open Interpreter's own keys alone."""
    for item in encoder.feed(event):
        if item["role"] != "server":
            yield {key: item[key] for key in _KEYS if key in item and not _is_foreign(key, item)}


def _is_foreign(key: str, item: Mapping[str, Any]) -> bool:
    """A refusal is a message as any other."""
    return key == "format" and item["type"] == "message"


class Kept:
    """Puts what is told into a list of plain dicts, the newest of which grows."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self._messages = messages
        self._open: dict[str, dict[str, Any]] = {}

    def feed(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case Created(message=message):
                    self._open[message.id] = kept = _header(message)
                    self._messages.append(kept)
                case Delta(message_id=id, value=value, replace=replace) if id in self._open:
                    kept = self._open[id]
                    kept["content"] = value if replace else kept["content"] + value
                case Done(message=message) if message.id in self._open:
                    self._done(self._open.pop(message.id), message)
                case _:
                    pass

    def _done(self, kept: dict[str, Any], message: Message) -> None:
        if message.format and message.type != "message":
            kept["format"] = message.format
        place = next(place for place, one in enumerate(self._messages) if one is kept)
        before = self._messages[place - 1] if place else {}
        if message.type == "console" and not kept["content"] and before.get("role") == "computer":
            del self._messages[place]  # that something ran can be seen already


def _header(message: Message) -> dict[str, Any]:
    header: dict[str, Any] = {"role": message.role, "type": message.type}
    if message.format and not isinstance(message, RefusalMessage):
        header["format"] = message.format
    if message.recipient:
        header["recipient"] = message.recipient
    return {**header, "content": ""}
