"""`interpreter.messages` and the chunks, from the same events: what Open Interpreter stores, and what it yields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...events import Created, Delta, Done, Event
from ...messages import Message, RefusalMessage
from ...protocols.open_interpreter import Encoder

__all__ = ["MessageHistory", "chunks_of"]

_KEYS = ("role", "type", "format", "recipient", "content", "start", "end", "replace")


def chunks_of(encoder: Encoder, event: Event) -> Iterator[dict[str, Any]]:
    """Yield the chunks of one event that is in order, with the keys that Open Interpreter has and no others."""
    for item in encoder.chunks(event):
        if item["role"] != "server":
            yield {key: item[key] for key in _KEYS if key in item and not _is_our_extension(key, item)}


def _is_our_extension(key: str, item: Mapping[str, Any]) -> bool:
    """Whether Open Interpreter has no such key here: its messages have no format, which marks our refusals."""
    return key == "format" and item["type"] == "message"


class MessageHistory:
    """Appends a stream's messages to a list, as plain dicts of which the open ones grow.

    Args:
        messages: the list.
    """

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self._messages = messages
        self._open: dict[str, dict[str, Any]] = {}  # by the message's id

    def feed(self, events: Iterable[Event]) -> None:
        """Take in the stream's next events."""
        for event in events:
            match event:
                case Created(message=message):
                    self._open[message.id] = entry = _new_entry(message)
                    self._messages.append(entry)
                case Delta(message_id=id, value=value, replace=replace) if id in self._open:
                    entry = self._open[id]
                    entry["content"] = value if replace else entry["content"] + value
                case Done(message=message) if message.id in self._open:
                    self._finish(self._open.pop(message.id), message)
                case _:
                    pass

    def _finish(self, entry: dict[str, Any], message: Message) -> None:
        if message.format and message.type != "message":
            entry["format"] = message.format
        index = next(index for index, one in enumerate(self._messages) if one is entry)
        before = self._messages[index - 1] if index else {}
        if message.type == "console" and not entry["content"] and before.get("role") == "computer":
            del self._messages[index]  # the message before it shows already that the code ran


def _new_entry(message: Message) -> dict[str, Any]:
    entry: dict[str, Any] = {"role": message.role, "type": message.type}
    if message.format and not isinstance(message, RefusalMessage):
        entry["format"] = message.format
    if message.recipient:
        entry["recipient"] = message.recipient
    return {**entry, "content": ""}
