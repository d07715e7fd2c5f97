"""`fields=`: string arguments of tools as messages of their own, which stream beside their calls.

    sk.stream(source, fields={"send_message.message": "text", "execute.code": "code"})

A stage between the decoder and the engine, so the same for every protocol: events in, the same events and more out.

The rule: fields add messages and change no other event of a stream. A field's message begins with its first character,
after its call did. It ends just before its call does, because until then the same key may come again. Such a repeated key
is emitted as more text if it continues what was emitted, else as one replacement, once its text is complete. The message
is completed if its call is and the arguments are complete; its content then is what `json.loads` returns of the arguments
at that path. Otherwise it ends as its call does, or as `incomplete` if the call is completed nevertheless.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from ..events import (
    OPEN_MESSAGE_STATUS,
    CallPassed,
    Created,
    Delta,
    Done,
    Event,
    MessageEnded,
    RunDone,
    RunStatus,
    ToolCallCreated,
    ToolCallDelta,
)
from ..messages import Message, Status, TextMessage, ToolCallMessage, message_class
from ..messages.json_text import has_surrogates, join_surrogates
from .field_choices import FieldChoices
from .field_messages import CallFields, caused_by
from .split_text import SplitDelta, with_text

__all__ = ["ArgumentFields"]


class ArgumentFields:
    """Makes messages of the arguments of one stream's tool calls: events in, the same events and the fields' out.

    Args:
        fields: `tool.path` to `text`, `reasoning`, `code` or `code:python`. A path is as `JsonFields` takes it, and `*`
            in the tool's place is any tool. Of several that fit, the first counts that names the tool.

    Raises:
        UsageError: a key names no argument of a tool, or a kind is none of these.
    """

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._choices = FieldChoices(fields)
        self.fields = dict(fields)
        self._open: dict[
            str, CallFields | None
        ] = {}  # by message id, as in the engine; None for any message but a call
        self._ids: set[str] = set()
        self._repeats: dict[str, int] = {}
        self._dropped: set[str] = set()
        self._halves: dict[str, str] = {}  # of surrogate pairs, by message id

    def has_fields(self, name: str | None) -> bool:
        """Whether arguments of this tool become messages."""
        return bool(self._choices.of_tool(name))

    def feed(self, events: Iterable[Event]) -> list[Event]:
        """Return these events, with the events of fields among them. Fields that the source itself emits are left
        out."""
        out: list[Event] = []
        call_with, is_open, dropped = self._open.get, self._open, self._dropped
        event: Any  # a comparison of its class narrows no type
        for event in events:
            id = event.message_id
            if (call := call_with(id)) is not None and event.__class__ is ToolCallDelta and id not in dropped:
                out.append(event)
                call.extend(out, event)  # the common case
                continue
            if isinstance(event, SplitDelta):
                out += self._split(event)
                continue
            if id is not None and id in dropped:
                continue
            if id in is_open and isinstance(event, Delta):
                out.append(event)
                if (call := is_open[id]) is not None:
                    call.extend(out, event)
                continue
            match event:
                case Delta():
                    out += self._delta(event)
                case Created():
                    out += self._created(event)
                case Done():
                    out += self._done(event)
                case MessageEnded():
                    out += self._done(event.as_done())
                case CallPassed():
                    out += self._passed(event)
                case RunDone(run=run):
                    out += self._end(run.status, event)
                    out.append(event)
                case _:
                    out.append(event)
        return out

    def _split(self, event: SplitDelta) -> Iterator[Event]:
        """Return a delta with half of a surrogate pair at its beginning or end as it is, for the engine joins them.
        Fields are read from the text up to that half, which comes with the next such delta."""
        id = event.delta.message_id
        text = join_surrogates(self._halves.get(id, "") + event.text)
        self._halves[id] = half = text[-1:] if has_surrogates(text) else ""
        delta = with_text(event, text.removesuffix(half))
        for one in self.feed([delta]):
            yield event if one is delta else one

    def finish(self, status: RunStatus) -> list[Event]:
        """Return the ends of fields whose calls are still open at the source's end, if the run ends with this
        status."""
        return [*self._end(status, Event())]

    def _end(self, status: RunStatus, cause: Event) -> Iterator[Event]:
        how = OPEN_MESSAGE_STATUS.get(status) or cast("Status", status)  # an emitter may send a status of its own
        for call in self._open.values():
            if call is not None:
                yield from call.end(how, cause)
        self._open.clear()

    def _delta(self, event: Delta) -> Iterator[Event]:
        """Begin a message with a delta that has none open, unless the delta is empty."""
        begins = bool(event.value or event.metadata or event.replace)
        family = event.family or TextMessage
        if begins and self._choices.is_made_of_field(family(event.message_id)):
            self._dropped.add(event.message_id)
            return
        yield event
        if begins and (call := self._begin(family(event.message_id))) is not None:
            yield from call.feed(event)

    def _created(self, event: Created) -> Iterator[Event]:
        message = event.message
        if self._choices.is_made_of_field(message):
            self._dropped.add(message.id)
            return
        yield event
        if message.id not in self._open:
            self._begin(message)

    def _done(self, event: Done) -> Iterator[Event]:
        message = event.message
        if message.id in self._dropped or self._choices.is_made_of_field(message):
            return
        if message.id not in self._open:
            if message.id in self._ids:
                yield event
                return
            call = self._begin(message)
            if call is not None and call.reads_arguments and message.content:
                yield caused_by(event, ToolCallCreated(message))
        call = self._open.pop(message.id)
        if call is not None:
            yield from call.finish(message, event)
        yield event

    def _passed(self, event: CallPassed) -> Iterator[Event]:
        """End the fields of a call after which another one begins, if it has all its arguments, as the engine does."""
        call = self._open.get(event.message.id)
        if call is not None and call.has_complete_arguments:
            del self._open[event.message.id]
            yield from call.finish(event.message, event)
        yield event

    def _begin(self, message: Message) -> CallFields | None:
        """Note a message that begins. A repeated id gets a number appended, as the engine does it."""
        id = base = message.id
        if id in self._ids:
            self._repeats[id] = self._repeats.get(id, 1) + 1
            base = f"{id}.{self._repeats[id]}"
        self._ids.add(id)
        is_call = message_class(message.type, message.format, message.role) is ToolCallMessage
        is_call = is_call and message.parent_id is None  # a sub-agent has fields of its own
        self._open[id] = call = CallFields(message, base, self._choices) if is_call else None
        return call
