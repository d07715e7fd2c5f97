"""The events of the texts of a Letta stream: fragments of reasoning and answers, and messages that come complete."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from ... import events as e
from ... import messages as m
from ..values import WireObject, as_text, without_keys
from .fragments import LettaTextPart, TextParts
from .ids import GroupPositions, LettaMessageIds
from .wire import PlainPiece, check_content, read_content, warning

__all__ = ["GROWING_TEXTS", "OpenText", "Texts"]

GROWING_TEXTS: dict[str, tuple[type[m.Message], str]] = {
    "reasoning_message": (m.ReasoningMessage, "reasoning"),
    "hidden_reasoning_message": (m.ReasoningMessage, ""),
    "assistant_message": (m.TextMessage, "content"),
}
"""The kinds of items that are fragments of a text: the class of its message, and the key of the fragment's text."""

_METADATA_KEYS = ("name", "sender_id", "is_err", "source", "state", "hidden_reasoning")


class OpenText(NamedTuple):
    """The text whose fragment came last: the kind, id and otid of the fragment; then the message's id, and what makes its
    events."""

    kind: str = ""
    id: str | None = None
    otid: str | None = None
    message_id: str = ""
    delta_event: Any = None


_NO_TEXT = OpenText()


class Texts:
    """The texts of one stream.

    Attributes:
        growing: the text that a plain piece continues; one without a kind if there is none.
    """

    def __init__(self, ids: LettaMessageIds, positions: GroupPositions) -> None:
        self.growing = _NO_TEXT
        self._ids = ids
        self._positions = positions
        self._parts = TextParts()

    def plain(self, item: PlainPiece) -> e.Delta | None:
        """Return the event of a piece of the text whose fragment came last; None for any other piece."""
        growing, text = self.growing, item.reasoning if item.message_type == "reasoning_message" else item.content
        if not text or item.message_type != growing.kind or item.otid != growing.otid or item.id != growing.id:
            return None
        event: e.Delta = growing.delta_event(growing.message_id, text)
        return event

    def fragment(self, kind: str, wire: WireObject, item: WireObject) -> Iterator[e.Event]:
        """Yield the events of a fragment. `wire` is the item in today's form."""
        self.growing = _NO_TEXT
        message_class, key = GROWING_TEXTS[kind]
        value = wire.get(key)
        if key == "reasoning" and not isinstance(value, str | None):
            yield warning("bad-reasoning", f"its reasoning is a {type(value).__name__}, and was skipped", kind)
            value = None
        content = read_content(value)
        yield from check_content(content, kind)
        if content.has_other_parts or content.images:
            yield e.RawEvent(kind, item)
        signature = as_text(wire.get("signature")) or content.signature
        if not (content.text or signature or not key):
            return
        id, otid = as_text(wire.get("id")), as_text(wire.get("otid"))
        part = self._parts.find(kind, id, otid)
        if part is None:
            part = yield from self._begin(kind, wire, id, otid)
        if signature:
            part.metadata["signature"] = signature
        if not key:
            part.metadata |= _metadata(wire)
        elif content.text:
            delta_event = message_class.delta_event
            yield delta_event(part.message_id, content.text)
            self.growing = OpenText(kind, id or None, otid or None, part.message_id, delta_event)

    def _begin(self, kind: str, wire: WireObject, id: str, otid: str) -> Generator[e.Event, None, LettaTextPart]:
        yield from self.end_parts(id, otid)
        part = LettaTextPart(kind=kind, message_id=self._ids.unused(otid, id), id=id, otid=otid)
        fields = self._positions.next_in(wire)
        if kind == "hidden_reasoning_message":
            fields["format"] = "redacted"
        message_class = GROWING_TEXTS[kind][0]
        yield e.MessageCreated(message_class(part.message_id, metadata=_metadata(wire), **fields))
        self._parts.add(part)
        return part

    def end_parts(self, id: str, otid: str) -> Iterator[e.Event]:
        """Yield the ends of the texts that are over where another part of the message with this id begins."""
        for part in self._parts.ended_by(id, otid):
            yield self._end(part, "completed")

    def close(self, status: m.Status) -> Iterator[e.Event]:
        """Yield the ends of all open texts."""
        for part in [*self._parts.open]:
            yield self._end(part, status)

    def _end(self, part: LettaTextPart, status: m.Status) -> e.Event:
        self._parts.close(part)
        self.growing = _NO_TEXT
        message_class, key = GROWING_TEXTS[part.kind]
        content = None if key else ""  # hidden reasoning has no text
        return e.MessageDone(
            message_class(part.message_id, content=content, status=status, metadata=part.metadata or None)
        )

    def read_whole(self, kind: str, wire: WireObject, item: WireObject) -> Iterator[e.Event]:
        """Yield the events of a message of the user or the system, or of a summary of the context, which come
        complete."""
        is_summary = kind == "summary_message"
        value = wire.get("summary" if is_summary else "content")
        content = read_content(value)
        yield from check_content(content, kind)
        if content.has_other_parts or not (content.text or content.images):
            yield e.RawEvent(kind, item)
        fields: dict[str, Any] = {
            "role": "user" if kind == "user_message" else "system",
            **self._positions.next_in(wire),
        }
        id = self._ids.of_complete(kind, as_text(wire.get("otid")), as_text(wire.get("id")))
        if is_summary and content.text:
            metadata = without_keys({"compaction_stats": wire.get("compaction_stats")})
            yield e.MessageDone(m.Message(id, type="summary", content=content.text, metadata=metadata, **fields))
        elif content.text:
            yield e.MessageDone(m.TextMessage(id, content=content.text, **fields))
        for number, (format, data) in enumerate(content.images):
            yield e.MessageDone(m.ImageMessage(f"{id}.image.{number}", format=format, content=data, **fields))


def _metadata(wire: WireObject) -> dict[str, Any]:
    return {key: wire[key] for key in _METADATA_KEYS if wire.get(key)}
