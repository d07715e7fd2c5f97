"""The base of encoders, which turn events into the items of a protocol: the counterpart of `base.Decoder`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ..answers import Confirmation
from ..events import Event
from ..messages import TextMessage
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
        sub_agents: True if the protocol has a place for the messages of sub-agents, which have a `parent_id`. If False they, and
            questions about them, are left out: the output of the call that began the sub-agent has what it answered.
        withdraws: True if messages that were sent can be taken back, as a `StreamRetry` wants it.
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
    withdraws: bool = False

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
        message: Any = getattr(event, "snapshot", None)
        if message is None:
            confirmation: Any = getattr(event, "confirmation", None)
            is_inner = isinstance(confirmation, Confirmation) and confirmation.subject.parent_id is not None
            return () if is_inner and not self.sub_agents else self.feed(event)
        if message.parent_id is not None and not self.sub_agents:
            return ()
        if message.choice and not self.choices:
            return ()
        if "field" in message.metadata and not self.fields and not isinstance(message, TextMessage):
            return ()
        return self.feed(event)

    def event_name(self, item: Mapping[str, Any]) -> str | None:
        """Return the SSE event name of an item, None if the protocol does not use event names."""
        return None
