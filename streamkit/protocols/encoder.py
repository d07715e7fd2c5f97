"""The base of encoders, which turn events into the items of a protocol: the counterpart of `base.Decoder`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any, ClassVar

from msgspec.structs import replace

from ..answers import Confirmation
from ..core.content import has_content
from ..events import (
    ConfirmationCreated,
    ConfirmationDone,
    Created,
    Done,
    Event,
    Run,
    RunDone,
    StreamException,
    StreamRetry,
)
from ..messages import Message, TextMessage
from .frames import KEEPALIVE

__all__ = ["Encoder"]


class Encoder:
    """Turns completed events into a protocol's wire items, as dicts.

    One encoder serves one stream, and gets every event of it in order. A subclass defines `name` and `feed`.

    Attributes:
        name: the protocol's name, as the decoder's.
        done: the data of the SSE event that follows the last item, None if there is none.
        keepalive: what is sent while there is nothing else to send: by default a comment, which clients skip.
        choices: False if the protocol has no place for choices other than the first. Their events are then left out.
        fields: True if the protocol has a place for the code and reasoning that `fields=` extracts from the arguments of a
            call. If False they are left out, as the call has them too.
        sub_agents: True if the protocol has a place for the messages of sub-agents, which have a `parent_id`. If False they are
            left out: the output of the call that began the sub-agent has what it answered.
        questions: True if the client answers confirmations. It then gets those of sub-agents too, with the calls that they are
            about and what these give. If False they are left out.
        withdraws: True if messages that were sent can be taken back, as a `StreamRetry` wants it. If False the run ends there for
            the reader, with the error, where it has any content of them.
        headers: what an HTTP response in this protocol has besides the headers of every event stream.
        in_lines: True if the provider sends its items as lines of JSON, not as Server-Sent Events.
        sse_ids: False if the provider's own client cannot read the `id:` and `retry:` of an event stream: it takes a block of
            either without data for an event.
    """

    name: ClassVar[str]
    done: bytes | None = None
    keepalive: bytes = KEEPALIVE
    headers: ClassVar[Mapping[str, str]] = {}
    in_lines: ClassVar[bool] = False
    sse_ids: ClassVar[bool] = True
    choices: ClassVar[bool] = True
    fields: ClassVar[bool] = False
    sub_agents: ClassVar[bool] = False
    questions: ClassVar[bool] = False
    withdraws: bool = False
    _is_over = False
    _hidden: Set[str] = frozenset()  # the ids of messages of sub-agents that are left out
    _irrevocable: Set[str] = frozenset()  # the ids of messages that were sent and cannot be taken back
    _asked: Set[str] = frozenset()  # the call ids of sub-agents' calls that are shown, because of their questions

    def feed(self, event: Event) -> Iterable[dict[str, Any]]:
        """Return the wire items of one event, in order."""
        raise NotImplementedError(f"{type(self).__name__}.feed")

    def items(self, event: Event) -> Iterable[dict[str, Any]]:
        """Return the wire items of one event of a stream that may have `fields=`: what callers use.

        Text that was extracted from a call is encoded as text. Code is not: a reader would think that it ran. What else
        was extracted is left out, as it is part of the call.

        A reader with the same `fields=` gets an extracted text once where the protocol keeps its id. Where texts have
        no id, in Chat Completions and Anthropic Messages, it gets the text twice: as the model's own, and from the call.
        """
        if self._is_over:
            return ()
        message: Any = getattr(event, "snapshot", None)
        if message is None:
            return self._items_of_other(event)
        if not self.shows(message):
            if isinstance(event, Created):
                self._hidden |= {message.id}
            return ()
        if message.choice and not self.choices:
            return ()
        if "field" in message.metadata and not self.fields and not isinstance(message, TextMessage):
            return ()
        if not self.withdraws and isinstance(event, Done) and has_content(message):
            self._irrevocable |= {message.id}
        return self.feed(event)

    def _items_of_other(self, event: Event) -> Iterable[dict[str, Any]]:
        """Return the items of an event that is about no message. Where an answer begins again of which the reader has a part
        that cannot be taken back, the run ends for it, with the error."""
        match event:
            case StreamRetry(error=kind, message=text) if not self._irrevocable.isdisjoint(event.withdrawn):
                self._is_over = True
                run = Run(status="failed", error={"type": kind, "message": text})
                return [*self.feed(RunDone(run)), *self.feed(StreamException(kind, text))]
            case StreamRetry(withdrawn=ids) if not self._hidden.isdisjoint(ids):
                shown = [id for id in ids if id not in self._hidden]
                return self.feed(replace(event, withdrawn=shown)) if shown else ()
            case ConfirmationCreated() | ConfirmationDone() if not self.shows_question(event.confirmation):
                return ()
            case _:
                return self.feed(event)

    def shows_question(self, confirmation: Confirmation) -> bool:
        """Whether a question has a place in the protocol. If so, what it is about is shown from then on."""
        subject = confirmation.subject
        if subject.parent_id is None or self.sub_agents:
            return True
        if self.questions:
            self._asked |= {subject.call_id or subject.id}
        return self.questions

    def shows(self, message: Message) -> bool:
        """Whether a message has a place in the protocol: all but those of sub-agents that no question is about."""
        return message.parent_id is None or self.sub_agents or (message.call_id or message.id) in self._asked

    def event_name(self, item: Mapping[str, Any]) -> str | None:
        """Return the SSE event name of an item, None if the protocol does not use event names."""
        return None
