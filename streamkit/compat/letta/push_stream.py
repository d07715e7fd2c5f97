"""Telling one handler a stream that is not pulled but called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from ...core.engine import Engine
from ...errors import UsageError
from ...events import Created, Delta, Event, MessageDone, StreamEnd
from ...handlers import Handler, needs_async
from ...messages import Message
from ...protocols.openai_chat.decoder import Decoder
from .normalise import as_chat_chunk, in_parts

__all__ = ["Part", "Telling", "told_here"]


def told_here(handler: Handler) -> Handler:
    """This handler, if it can be told without an event loop.

    Raises:
        UsageError: it cannot.
    """
    if (name := needs_async(handler)) is not None:
        raise UsageError(f"{type(handler).__name__}.{name} is async, and nobody awaits it here: use an EventHandler")
    return handler


class Telling:
    """One answer, told to a handler as it is called in."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._engine = Engine()
        self._decoder = Decoder(self._engine.new_id)
        self._speaker: Part | None = None

    def chunk(self, chunk: object) -> None:
        """A Chat Completions chunk; one without choices says nothing."""
        for kind, piece in in_parts(as_chat_chunk(chunk)):
            over = [message for message in self._engine.messages if message.status == "in_progress"]
            self.tell(MessageDone(Message(message.id)) for message in over if message.type != kind)
            self.tell(self._decoder.feed_items([piece]))

    def grow(self, part: Part, text: str, *, replace: bool = False) -> None:
        """More of a part. The one that spoke before is over."""
        if self._speaker is not part:
            self._end_speaker()
            self._speaker = part
        self.tell(part.more(text, replace=replace))

    def tell(self, events: Iterable[Event]) -> None:
        self._hand_out(self._engine.complete(events))

    def end(self) -> None:
        """All is over."""
        self._end_speaker()
        rest = chain(self._engine.source_done(complete=True), self._engine.end(), [StreamEnd()])
        self._hand_out(rest)

    def _end_speaker(self) -> None:
        speaker, self._speaker = self._speaker, None
        if speaker is not None:
            self.tell([speaker.done()])

    def _hand_out(self, events: Iterable[Event]) -> None:
        for event in events:
            self._handler.handle(event)


class Part:
    """One message of an answer that is told as a whole again and again. `header` is the message without its text."""

    def __init__(self, header: Message) -> None:
        self._header = header
        self._times = 0
        self._open = False

    def more(self, text: str, *, replace: bool = False) -> Iterator[Event]:
        if not self._open:
            self._open = True
            self._times += 1
            yield self._created()
        if text or replace:
            yield self._delta(text, replace)

    def done(self) -> Event:
        self._open = False
        return MessageDone(Message(self._id))

    @property
    def _id(self) -> str:
        return f"{self._header.id}.{self._times}"

    def _created(self) -> Created:
        header = self._header.header()
        header.id = self._id
        return header.created_event(header)

    def _delta(self, text: str, replace: bool) -> Delta:
        return self._header.delta_event(self._id, text, replace)
