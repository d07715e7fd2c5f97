"""A stream that is pushed: an agent's calls reach a handler as canonical events, without a source to pull from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from ...core.engine import Engine
from ...errors import UsageError
from ...events import Created, Delta, Event, MessageDone, StreamEnd
from ...handlers import Handler, needs_async
from ...messages import Message
from ...protocols.openai_chat.decoder import Decoder
from .normalise import as_chat_chunk, split_by_kind

__all__ = ["PushStream", "PushedMessage", "require_sync"]


def require_sync(handler: Handler) -> Handler:
    """Return the handler itself, if it can be called without an event loop.

    Raises:
        UsageError: One of its hooks is async.
    """
    if (name := needs_async(handler)) is not None:
        raise UsageError(f"{type(handler).__name__}.{name} is async, which cannot be awaited here: use an EventHandler")
    return handler


class PushStream:
    """One answer, emitted to a handler while it is pushed, either as chunks or as growing messages."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler.streamkit_attachable()
        self._engine = Engine()
        self._decoder = Decoder(self._engine.messages.new_id)
        self._open_message: PushedMessage | None = None

    def push_chunk(self, chunk: object) -> None:
        """Emit a Chat Completions chunk. A message of another kind ends the one before; empty chunks do nothing."""
        for kind, piece in split_by_kind(as_chat_chunk(chunk)):
            open_messages = [message for message in self._engine.messages.all if message.status == "in_progress"]
            self._emit(MessageDone(Message(message.id)) for message in open_messages if message.type != kind)
            self._emit(self._decoder.feed_items([piece]))

    def push_text(self, message: PushedMessage, text: str, *, replace: bool = False) -> None:
        """Emit more text of a message, or with `replace` its new text. Another open message ends."""
        if self._open_message is not message:
            self._end_message()
            self._open_message = message
        self._emit(message.events(text, replace=replace))

    def end(self) -> None:
        """End everything that is open, and the stream."""
        self._end_message()
        self._handle(chain(self._engine.source_done(complete=True), self._engine.end(), [StreamEnd()]))

    def _end_message(self) -> None:
        message, self._open_message = self._open_message, None
        if message is not None:
            self._emit([message.done()])

    def _emit(self, events: Iterable[Event]) -> None:
        self._handle(self._engine.complete(events))

    def _handle(self, events: Iterable[Event]) -> None:
        for event in events:
            self._handler.handle(event)


class PushedMessage:
    """A message that is pushed. If it grows again after its end, it is emitted as a new message.

    Args:
        header: The message without its text.
    """

    def __init__(self, header: Message) -> None:
        self._header = header
        self._count = 0  # how many messages it was emitted as
        self._is_open = False

    def events(self, text: str, *, replace: bool) -> Iterator[Event]:
        """Yield the events for more text, beginning with the message's created event if it is not open."""
        if not self._is_open:
            self._is_open = True
            self._count += 1
            yield self._created()
        if text or replace:
            yield self._delta(text, replace)

    def done(self) -> Event:
        """Return the event that ends it."""
        self._is_open = False
        return MessageDone(Message(self._id))

    @property
    def _id(self) -> str:
        return f"{self._header.id}.{self._count}"

    def _created(self) -> Created:
        header = self._header.header()
        header.id = self._id
        return header.created_event(header)

    def _delta(self, text: str, replace: bool) -> Delta:
        return self._header.delta_event(self._id, text, replace)
