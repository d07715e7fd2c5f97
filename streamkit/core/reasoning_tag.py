"""`reasoning_tag=`: reasoning that a model writes into its text, as `<think>…</think>`, becomes a message of its own.

    sk.stream(source, reasoning_tag="think")

A stage between the decoder and the engine, as `fields=` is, so the same for every protocol. A text that begins with the tag, after
white space, is a reasoning message up to the closing tag; what follows, without the white space before it, is the text. Only at
the beginning of a text: a tag further on is text. What may still become a tag is held back, so that how the text is cut makes no
difference. Without a closing tag all of it is reasoning, and there is no text. `metadata["reasoning_tag"]` of the reasoning has the
tag: `to_input` sends none of it back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from ..errors import UsageError
from ..events import (
    Created,
    Delta,
    Done,
    Event,
    MessageDone,
    MessageEnded,
    ReasoningCreated,
    ReasoningDelta,
    RunDone,
    TextDelta,
)
from ..messages import Message, ReasoningMessage, TextMessage, message_class
from ..messages.json_text import has_surrogates, join_surrogates
from .field_messages import caused_by
from .split_text import SplitDelta, with_text

__all__ = ["ReasoningTag", "overlap"]

_E = TypeVar("_E", bound=Event)


class ReasoningTag:
    """Makes reasoning messages of the beginnings of one stream's texts: events in, events out.

    Args:
        tag: the name of the tag, as in `<think>`.

    Raises:
        UsageError: it is not a name.
    """

    def __init__(self, tag: str) -> None:
        if not isinstance(tag, str) or not re.fullmatch(r"[\w:.-]+", tag):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"`reasoning_tag` is the name of a tag, such as 'think', not {tag!r}")
        self.tag = tag
        self._texts: dict[str, _TaggedText] = {}  # those that are open, by id
        self._others: set[str] = set()  # the open messages other than texts, by id
        self._halves: dict[str, str] = {}  # of surrogate pairs, by id

    def feed(self, events: Iterable[Event]) -> list[Event]:
        """Return these events, with reasoning taken out of the texts."""
        return [one for event in events for one in self._events_of(event)]

    def finish(self) -> list[Event]:
        """Return what is still held back at the end of a source."""
        left = [one for text in self._texts.values() for one in text.release(None)]
        self._texts.clear()
        self._others.clear()
        return left

    def _events_of(self, event: Event) -> Iterable[Event]:
        match event:
            case Delta():
                return self._delta(event)
            case SplitDelta():
                return self._split(event)
            case Created():
                return self._created(event)
            case Done():
                return self._done(event, event.message)
            case MessageEnded() if event.message_id in self._texts:
                return self._done(event, Message(event.message_id, status=event.status))
            case RunDone():
                return [*self.finish(), event]
            case _:
                return (event,)

    def _created(self, event: Created) -> Iterable[Event]:
        message = event.message
        if not _is_answer(message):
            self._others.add(message.id)
            return (event,)
        self._texts[message.id] = text = _TaggedText(message.id, self.tag, event)
        return text.add(message.content, event) if message.content else ()

    def _delta(self, event: Delta) -> Iterable[Event]:
        id = event.message_id
        if (text := self._texts.get(id)) is None:
            if not isinstance(event, TextDelta) or id in self._others:
                return (event,)
            text = self._texts[id] = _TaggedText(id, self.tag, None)
        return (event,) if text.is_plain else text.add_delta(event)

    def _split(self, event: SplitDelta) -> Iterable[Event]:
        """Return a delta that has half of a surrogate pair: as it is, but in reasoning, where the half waits for the other."""
        id = event.delta.message_id
        text = self._texts.get(id)
        if text is None or text.is_plain:
            return (event,)
        joined = join_surrogates(self._halves.pop(id, "") + event.text)
        if has_surrogates(joined[-1:]):
            self._halves[id], joined = joined[-1], joined[:-1]
        return text.add_delta(with_text(event, joined))

    def _done(self, event: Done | MessageEnded, message: Message) -> Iterable[Event]:
        text = self._texts.pop(message.id, None)
        self._others.discard(message.id)
        if text is None:
            if not _is_answer(message) or not message.content.lstrip().startswith(f"<{self.tag}>"):
                return (event,)
            text = _TaggedText(message.id, self.tag, None)
        return text.end(event, message)


class _TaggedText:
    """A text, of which the beginning may be reasoning.

    Args:
        id: the text's id.
        tag: the name of the tag.
        created: the event with which it was created, if there was one; it waits until there is text.

    Attributes:
        is_plain: whether all that comes is text.
    """

    def __init__(self, id: str, tag: str, created: Created | None) -> None:
        self.is_plain = False
        self._opening, self._closing = f"<{tag}>", f"</{tag}>"
        self._id, self._reasoning_id, self._tag = id, f"{id}.reasoning", tag
        self._created = created
        self._held: list[Delta] = []  # those before the tag, or its absence, is certain
        self._text = ""  # what is held back
        self._state = "beginning"  # then "reasoning", "between" the closing tag and the text; "over"
        self._is_tagged = False  # the text began with the tag
        self._has_reasoning = False  # there was some in it

    def add_delta(self, event: Delta) -> list[Event]:
        """Add a piece of the text. One that replaces the text begins it anew, if no text was emitted."""
        if event.replace:
            self._held.clear()
            self._text = ""
        if self._state == "beginning":
            self._held.append(event)
        return self.add(event.value, event)

    def add(self, piece: str, cause: Event) -> list[Event]:
        """Return the events that a piece of the text makes certain."""
        self._text += piece
        if self._state == "beginning":
            self._text = begun = self._text.lstrip()
            if self._opening.startswith(begun):
                return []
            if not begun.startswith(self._opening):
                return self.release(cause)
            self._held.clear()
            self._text, self._state, self._is_tagged = begun[len(self._opening) :], "reasoning", True
        if self._state == "reasoning":
            return self._reason(cause)
        return self._begin_text(cause)

    def _reason(self, cause: Event) -> list[Event]:
        reasoning, closing, rest = self._text.partition(self._closing)
        held = 0 if closing else overlap(reasoning, self._closing)
        self._text = rest if closing else reasoning[len(reasoning) - held :]
        events = self._reasoning(reasoning[: len(reasoning) - held], cause)
        if not closing:
            return events
        self._state = "between"
        if self._has_reasoning:
            events.append(caused_by(cause, MessageEnded(self._reasoning_id)))
        return [*events, *self._begin_text(cause)]

    def _reasoning(self, text: str, cause: Event) -> list[Event]:
        if not text:
            return []
        events: list[Event] = []
        if not self._has_reasoning:
            self._has_reasoning = True
            message = ReasoningMessage(self._reasoning_id, metadata={"reasoning_tag": self._tag})
            events.append(caused_by(cause, ReasoningCreated(message)))
        return [*events, caused_by(cause, ReasoningDelta(self._reasoning_id, text))]

    def _begin_text(self, cause: Event) -> list[Event]:
        self._text = text = self._text.lstrip()
        if not text:
            return []
        self._text, self._state, self.is_plain = "", "over", True
        return [*self._creation(cause), caused_by(cause, TextDelta(self._id, text))]

    def _creation(self, cause: Event | None) -> Iterator[Event]:
        created, self._created = self._created, None
        if created is not None:
            yield created if cause is None else _positioned(cause, created)

    def release(self, cause: Event | None) -> list[Event]:
        """Return what was held back: a text without a tag as it came, the beginning of a closing tag as reasoning.

        Args:
            cause: the event that made it certain; None at the end of the source.
        """
        if self._state == "reasoning":
            text, self._text = self._text, ""
            return self._reasoning(text, cause or Event())
        if self._state != "beginning":
            return []
        held, self._held = self._held, []
        self._text, self._state, self.is_plain = "", "over", True
        return [*self._creation(cause), *(one if cause is None else _positioned(cause, one) for one in held)]

    def end(self, event: Done | MessageEnded, message: Message) -> list[Event]:
        """Return the end of the text, and of its reasoning. A message that comes whole is divided."""
        content = message.content
        is_whole = self._state == "beginning" and not self._held
        events = [*(self.add(content, event) if is_whole and content else ()), *self.release(event)]
        if self._state == "reasoning" and self._has_reasoning:
            events.append(caused_by(event, MessageEnded(self._reasoning_id, message.status)))
        if not self._is_tagged:
            return [*events, event]
        if not self.is_plain:
            return events  # there is no text
        if not content.lstrip().startswith(self._opening):
            return [*events, event]
        text = message.copy()
        text.replace_content(content.partition(self._closing)[2].lstrip())
        return [*events, caused_by(event, MessageDone(text))]


def _is_answer(message: Message) -> bool:
    """Whether a message is a text of the model."""
    kind = message_class(message.type, message.format, message.role)
    return kind is TextMessage and message.role == "assistant" and message.parent_id is None


def overlap(text: str, tag: str) -> int:
    """Return how many characters at the end of a text may begin the tag."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if tag.startswith(text[-size:])), 0)


def _positioned(cause: Event, event: _E) -> _E:
    """Return an event that was held back, at the position at which it comes now."""
    return msgspec.structs.replace(event, position=cause.position)
