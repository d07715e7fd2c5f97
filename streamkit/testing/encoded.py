"""The base of the APIs whose answers a protocol's own encoder writes.

The parts of a reply become canonical events, and a stream of these what the encoder makes of them, framed as the provider frames
it. So an API states its routes, its errors, and how an answer looks that is no stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from ..events import Delta, Event, Run, RunCreated, RunDone, RunStatus, StreamEnd, Usage
from ..messages import Message, ReasoningMessage, TextMessage, ToolCallMessage
from ..protocols.event_stream import provider_writer
from ..protocols.registry import find
from ..streams.api import stream as open_stream
from .dialect import CREATED, Dialect, Frame, Json
from .parts import CodeInterpreter, McpApproval, Part, Reasoning, ToolCall
from .replies import Reply, in_turns
from .requests import Request

__all__ = ["EncodedDialect"]


class EncodedDialect(Dialect):
    """An API whose answers its protocol's encoder writes. A subclass defines `routes`, `error_body` and `body`."""

    unsupported: ClassVar[tuple[type[Part], ...]] = (McpApproval, CodeInterpreter)

    def __init__(self, reply: Reply, request: Request, number: int, waiting_steps: dict[str, Json]) -> None:
        super().__init__(reply, request, number, waiting_steps)
        self._encoder = find(self.protocol).Encoder()
        self._writer = provider_writer(self._encoder)

    def frames(self) -> Iterator[Frame]:
        """Yield a frame for each event: an empty one where the protocol has nothing for it, which may count as a piece."""
        for event in self._completed():
            yield Frame(self._writer.event(event), isinstance(event, Delta))
        yield Frame(self._writer.ending())

    def error_frames(self) -> Iterator[Frame]:
        """Yield how the protocol says that the answer has failed."""
        error = {key: value for key, value in self.reply.error.to_dict().items() if value is not None}
        yield Frame(self._writer.event(RunDone(run=Run(status="failed", error=error))))
        yield Frame(self._writer.ending())

    def items(self) -> list[Any]:
        """Return the items of the complete stream."""
        return [item for event in self._completed() for item in self._encoder.items(event)]

    def usage(self) -> Usage:
        """Return the token counts, with the details that the protocol has."""
        tokens = self.reply.usage
        return Usage(tokens.input, tokens.output, tokens.input + tokens.output)

    def message_of(self, part: Part, id: str) -> Message:
        """Return the message that a part is, without its text. A refusal is a text here."""
        match part:
            case ToolCall():
                return ToolCallMessage(id, name=part.name, call_id=self.next_call_id(part))
            case Reasoning():
                return ReasoningMessage(id)
            case _:
                return TextMessage(id)

    def _completed(self) -> Iterator[Event]:
        with open_stream(self._events(), protocol="streamkit") as answer:
            yield from answer

    def _events(self) -> Iterator[Event]:
        yield RunCreated(run=Run(id=f"{self.protocol}-{self.number}", model=self.model, created_at=CREATED))
        for number, group in enumerate(self.reply.groups()):
            yield from self._events_of_group(group, f"message-{self.number}-{number}")
        yield self.usage()
        status: RunStatus = "incomplete" if self.reply.cut_short else "completed"
        yield RunDone(run=Run(status=status, finish_reason=self.reply.finish_reason))
        yield StreamEnd(status=status)

    def _events_of_group(self, group: Iterable[Part], id: str) -> Iterator[Event]:
        """Yield the events of parts that are sent at the same time."""
        parts = [*group]
        messages = [self.message_of(part, f"{id}-{place}") for place, part in enumerate(parts)]
        for message in messages:
            yield message.created_event(message)
        for place, piece in in_turns(parts):
            yield messages[place].delta_event(messages[place].id, piece)
        for message in messages:
            yield message.done_event(Message(message.id))
