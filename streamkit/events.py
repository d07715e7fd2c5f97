"""The events, each declared once: its class is the only declaration.

Everything else is computed from the class: the wire type (its name in snake case), the hooks, the entry in the codec, and
through `family` the class of messages that it is about. A decoder makes events, the engine completes them, and hooks
receive them. An event does not change once it was delivered; the snapshots that it refers to grow until they are done.

An application declares its own in the same way. It then has a hook, a wire form, a place in recordings and relays:

    class SearchQuery(sk.Event):
        \"""The agent searches the web.\"""

        query: str

    class Terminal(sk.EventHandler):
        def on_search_query(self, event: SearchQuery) -> None:
            print("searching for", event.query)

    emitter.emit(SearchQuery("streaming engines"))
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from . import messages as m
from .answers import Confirmation
from .messages.json_text import decode_json, read_json
from .messages.sdk_objects import as_item

__all__ = [
    "EVENTS",
    "ActiveLine",
    "AnnotationAdded",
    "CodeCreated",
    "CodeDelta",
    "CodeDone",
    "ConfirmationCreated",
    "ConfirmationDone",
    "ConsoleCreated",
    "ConsoleDelta",
    "ConsoleDone",
    "Created",
    "Delta",
    "Done",
    "Event",
    "FileDone",
    "ImageFileDone",
    "MessageCreated",
    "MessageDelta",
    "MessageDone",
    "RawEvent",
    "ReasoningCreated",
    "ReasoningDelta",
    "ReasoningDone",
    "RefusalCreated",
    "RefusalDelta",
    "RefusalDone",
    "Run",
    "RunCreated",
    "RunDone",
    "RunRequiresAction",
    "RunStatus",
    "RunStep",
    "RunStepCreated",
    "RunStepDone",
    "StreamEnd",
    "StreamException",
    "StreamRetry",
    "StreamTimeout",
    "StreamWarning",
    "TextCreated",
    "TextDelta",
    "TextDone",
    "ToolCallCreated",
    "ToolCallDelta",
    "ToolCallDone",
    "ToolOutputCreated",
    "ToolOutputDelta",
    "ToolOutputDone",
    "Usage",
]

RunStatus = Literal["in_progress", "requires_action", "completed", "incomplete", "cancelled", "failed", "expired"]

OPEN_MESSAGE_STATUS: Mapping[RunStatus, m.Status] = {
    "in_progress": "completed",
    "requires_action": "completed",
    "completed": "completed",
    "incomplete": "incomplete",
    "cancelled": "cancelled",
    "failed": "failed",
    "expired": "failed",
}
"""The status of a message that is still open when its run, or its run step, ends with this status."""

_MessageClass = type[m.Message]  # inside an event class, `type` is its wire type
_LIVE: Any = None  # to type checkers the snapshot of each kind of delta: the live message

EVENTS: dict[str, type[Event]] = {}
"""Every event class by its wire type."""

_declarations = itertools.count(1)
_version = 0


def version() -> int:
    """Return a number that changes with each event class that is declared: a cache of results about all of them
    compares it."""
    return _version


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


_ORIGIN = ("position", "raw_item", "item_index")  # the fields that say where an event came from


# Events that lead to what can be answered, and by that to their stream, or to an exception, are seen by the garbage collector
# (`gc=True`): otherwise a stream that is dropped at a question, or an error whose traceback has the event, would never be freed.
class Event(msgspec.Struct, kw_only=True, gc=False, omit_defaults=True, tag_field="type", tag=_snake):
    """One thing that happened. The root of all events, the application's own too.

    Attributes:
        type: the wire type, a class attribute: `text_delta` of `TextDelta`.
        raw: the provider's item that it came from, a dict where it was JSON; None if there is none.
        cursor: where to resume after it; None if its source cannot resume.
        message_id: the id of the message that a delta, annotation or active line belongs to; None for other events.
        hook: the name of the event's own hook, a class attribute.
        other_hook: another name of that hook; "" if it has none.
        declared: `version()` when it was declared, a class attribute.
        hooks: the names of all hooks that it calls, in order, after `on_event`; a class attribute.
        family: the class of messages that it is about, None if it is about none; a class attribute.
        position: `cursor` in the type that the source counts in. For decoders and relays.
        raw_item: `raw` as it arrived, perhaps as JSON text. For decoders.
        item_index: which of its source's items it came from, counted from 0. For warnings.
    """

    type: ClassVar[str] = "event"
    declared: ClassVar[int] = 0
    hook: ClassVar[str] = ""
    other_hook: ClassVar[str] = ""
    hooks: ClassVar[tuple[str, ...]] = ()
    family: ClassVar[_MessageClass | None] = None
    message_id: ClassVar[Any] = None

    position: int | str | None = msgspec.field(default=None, name="cursor")
    raw_item: Any = None
    item_index: int | None = None

    def __repr__(self) -> str:
        """Return the event's own fields that have a value. Where it came from is in `raw` and `cursor`."""
        values = ((field, getattr(self, field)) for field in self.__struct_fields__ if field not in _ORIGIN)
        shown = (f"{field}={value!r}" for field, value in values if value is not None and value is not False)
        return f"{type(self).__name__}({', '.join(shown)})"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.type = _snake(cls.__name__)
        _register(cls)

    @property
    def cursor(self) -> str | None:
        """The cursor to resume after this event; None if its source cannot resume."""
        return None if self.position is None else str(self.position)

    @property
    def raw(self) -> Any:
        """The provider's item that the event came from. JSON text is parsed at each reading, and so is an SDK's object;
        other text stays a str."""
        if not isinstance(self.raw_item, bytes):
            return as_item(self.raw_item)
        try:
            return decode_json(self.raw_item)
        except (ValueError, RecursionError):
            value = read_json(self.raw_item)
            return self.raw_item.decode("utf-8", "replace") if value is None else value

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments that this event's hooks are called with."""
        return (self,)


# The wire types of abstract classes, and of what only an engine gets.
_ABSTRACT = (
    "created",
    "delta",
    "done",
    "run_event",
    "run_step_event",
    "resume_point",
    "new_message",
    "message_ended",
    "possible_repeat",
    "call_passed",
    "metadata_held",
    "split_delta",
    "snapshot",
)


def _register(kind: type[Event]) -> None:
    """Enter an event class in `EVENTS`, find its hooks, and note it in its family of messages.

    A message's own hooks stand inside those of any message: `on_message_created` comes first, `on_message_delta` and
    `on_message_done` come last.
    """
    if kind.type in _ABSTRACT:
        return
    other = EVENTS.get(kind.type)
    if other is not None and (other.__module__, other.__qualname__) != (kind.__module__, kind.__qualname__):
        raise TypeError(
            f"an event of the wire type {kind.type!r} exists already: {other.__module__}.{other.__qualname__}"
        )
    kind.hook = kind.__dict__.get("hook") or f"on_{kind.type}"
    kind.hooks = () if kind.hook == "on_event" else (kind.hook,)  # `on_event` gets every event anyway
    global _version
    _version = kind.declared = next(_declarations)
    EVENTS[kind.type] = kind
    family: Any = kind.family
    if family is None:
        return
    of_any = family is not m.Message
    if issubclass(kind, Created):
        family.created_event = kind
        kind.hooks = (MessageCreated.hook, kind.hook) if of_any else kind.hooks
    elif issubclass(kind, Delta):
        family.delta_event = kind
        names = (kind.hook, kind.other_hook) if kind.other_hook else (kind.hook,)
        kind.hooks = (*names, MessageDelta.hook) if of_any else kind.hooks
    elif issubclass(kind, Done):
        family.done_event = kind
        kind.hooks = (kind.hook, MessageDone.hook) if of_any else kind.hooks


# -- messages: three phases, one signature each


class Created(Event):
    """The root of the events that begin a message.

    Attributes:
        message: the message's live snapshot. It is empty and grows until the message is done.
    """

    message: m.Message

    @property
    def snapshot(self) -> m.Message:
        """The same as `message`."""
        return self.message

    def arguments(self) -> tuple[Any, ...]:
        """Return the hook's arguments: the message."""
        return (self.message,)


class Delta(Event):
    """The root of the events that add a piece of content to a message. `str(delta)` is its `value`.

    Attributes:
        message_id: the message's id.
        value: the new text; for audio, base64.
        replace: whether `value` replaces all content before it, in place of being added.
        metadata: what one provider sends along, for example log probabilities; None if there is nothing.
        snapshot: the message with this delta in it. The engine sets it; decoders leave it out.
    """

    message_id: str  # type: ignore[misc]  # a class attribute of other events, so that it can be read of any event
    value: str
    replace: bool = False
    metadata: Mapping[str, Any] | None = None
    snapshot: Any = None

    def arguments(self) -> tuple[Any, ...]:
        """Return the hook's arguments: this event and the snapshot."""
        return (self, self.snapshot)

    def __str__(self) -> str:
        return self.value


class Done(Event):
    """The root of the events that end a message.

    A decoder makes one with a message of its own. If that has content, it is compared with the content of the deltas;
    its status, name, call id, format and metadata are copied to the stream's message.

    Attributes:
        message: the complete message; `message.status` says how it ended. It does not change any more.
    """

    message: m.Message

    @property
    def snapshot(self) -> m.Message:
        """The same as `message`."""
        return self.message

    def arguments(self) -> tuple[Any, ...]:
        """Return the hook's arguments: the message."""
        return (self.message,)


class MessageCreated(Created):
    """A message that has no kind of its own begins, for example a document to display."""

    family = m.Message


class MessageDelta(Delta):
    """A piece of a message that has no kind of its own."""

    family = m.Message
    if TYPE_CHECKING:
        snapshot: m.Message = _LIVE


class MessageDone(Done):
    """A message that has no kind of its own has ended."""

    family = m.Message


class TextCreated(Created):
    """A text for the reader begins."""

    family = m.TextMessage


class TextDelta(Delta):
    """A piece of a text for the reader."""

    family = m.TextMessage
    if TYPE_CHECKING:
        snapshot: m.TextMessage = _LIVE


class TextDone(Done):
    """A text for the reader has ended."""

    family = m.TextMessage


class ReasoningCreated(Created):
    """The model's reasoning begins."""

    family = m.ReasoningMessage


class ReasoningDelta(Delta):
    """A piece of the model's reasoning."""

    family = m.ReasoningMessage
    if TYPE_CHECKING:
        snapshot: m.ReasoningMessage = _LIVE


class ReasoningDone(Done):
    """The model's reasoning has ended."""

    family = m.ReasoningMessage


class RefusalCreated(Created):
    """The model begins to refuse the request."""

    family = m.RefusalMessage


class RefusalDelta(Delta):
    """A piece of a refusal."""

    family = m.RefusalMessage
    if TYPE_CHECKING:
        snapshot: m.RefusalMessage = _LIVE


class RefusalDone(Done):
    """A refusal has ended."""

    family = m.RefusalMessage


class CodeCreated(Created):
    """Code that is meant to be run begins."""

    family = m.CodeMessage


class CodeDelta(Delta):
    """A piece of code."""

    family = m.CodeMessage
    if TYPE_CHECKING:
        snapshot: m.CodeMessage = _LIVE


class CodeDone(Done):
    """Code is complete. It has not run yet."""

    family = m.CodeMessage


class ConsoleCreated(Created):
    """Running code prints for the first time."""

    family = m.ConsoleMessage


class ConsoleDelta(Delta):
    """A piece of console output. `metadata["stream"]` is `stdout` or `stderr` where the source distinguishes them."""

    family = m.ConsoleMessage
    if TYPE_CHECKING:
        snapshot: m.ConsoleMessage = _LIVE
    hook = "on_console_output"
    other_hook = "on_console_delta"


class ConsoleDone(Done):
    """The output of code has ended."""

    family = m.ConsoleMessage


class ToolCallCreated(Created, gc=True):
    """A tool call begins; `message.name` is the tool."""

    family = m.ToolCallMessage


class ToolCallDelta(Delta, gc=True):
    """A piece of a tool call's arguments, as JSON text."""

    family = m.ToolCallMessage
    if TYPE_CHECKING:
        snapshot: m.ToolCallMessage = _LIVE


class ToolCallDone(Done, gc=True):
    """A tool call is complete. `message.arguments` are its parsed arguments."""

    family = m.ToolCallMessage


class NewMessage(Created):
    """Not an event of streams: a decoder reports that a message begins, with a message that nothing else refers to.

    The engine uses that message itself as the snapshot, and emits the event of its class, such as `TextCreated`. The message of
    any other `Created` event is copied.

    Attributes:
        message: has no content, and is of the class that belongs to its type and format.
    """


class MessageEnded(Event):
    """Not an event of streams: a decoder reports that an open message has ended with the content that its deltas gave it.

    Attributes:
        message_id: the id that the decoder uses in the message's deltas.
        status: how it ended.
    """

    message_id: str  # type: ignore[misc]  # as of `Delta`
    status: m.Status = "completed"

    def as_done(self) -> MessageDone:
        """Return the `MessageDone` that means the same."""
        message = m.Message(self.message_id, status=self.status)
        return MessageDone(message, position=self.position, raw_item=self.raw_item, item_index=self.item_index)


class PossibleRepeat(Event):
    """Not an event of streams: a decoder reports a complete message that may say again what another message ends with.

    The engine creates it, unless it is such a repetition.

    Attributes:
        message: the message as its `Done` event would have it.
        message_id: the id that the decoder uses for the other message.
    """

    message: m.Message
    message_id: str  # type: ignore[misc]  # as of `Delta`


# What warnings about them name.
NewMessage.type, MessageEnded.type, PossibleRepeat.type = MessageCreated.type, MessageDone.type, MessageDone.type


class CallPassed(Event):
    """Not an event of streams: a decoder reports that its provider has begun another tool call after this one.

    The engine ends the call if its arguments are a JSON object, to which nothing can be added. Otherwise the calls
    interleave, and it stays open. For protocols that do not say where a call ends.

    Attributes:
        message: the call as its `ToolCallDone` would have it.
    """

    message: m.Message


class MetadataHeld(Event):
    """Not an event of streams: a decoder reports that it holds more for a message than it emitted, such as metadata, so that the engine can
    compare its size with the stream's limits.

    Attributes:
        held_for: the id of the message; None if it has not begun.
        size: how much more, in characters of JSON text.
    """

    held_for: str | None
    size: int


class ToolOutputCreated(Created):
    """A tool's output begins; `message.call_id` is the id of the call."""

    family = m.ToolOutputMessage


class ToolOutputDelta(Delta):
    """A piece of a tool's output."""

    family = m.ToolOutputMessage
    if TYPE_CHECKING:
        snapshot: m.ToolOutputMessage = _LIVE


class ToolOutputDone(Done):
    """A tool's output is complete."""

    family = m.ToolOutputMessage


class ImageFileDone(Done):
    """An image is complete."""

    family = m.ImageMessage


class FileDone(Done):
    """A file is complete."""

    family = m.FileMessage


# -- about a message


class ActiveLine(Event):
    """Running code reached another line.

    Attributes:
        message_id: the id of the console message.
        line: counts from 1; None when nothing runs any more.
        snapshot: the console message, None as long as nothing was printed.
    """

    message_id: str  # type: ignore[misc]  # as in `Delta`
    line: int | None
    snapshot: Any = None

    def arguments(self) -> tuple[Any, ...]:
        """Return the hook's arguments: the line and the snapshot."""
        return (self.line, self.snapshot)


class AnnotationAdded(Event):
    """A citation was added to a text.

    Attributes:
        message_id: the id of the text.
        annotation: the citation.
        snapshot: the text, with the citation in it.
    """

    hook = "on_annotation"
    message_id: str  # type: ignore[misc]  # as in `Delta`
    annotation: m.Annotation
    snapshot: Any = None

    def arguments(self) -> tuple[Any, ...]:
        """Return the hook's arguments: the annotation and the snapshot."""
        return (self.annotation, self.snapshot)


# -- runs


class Usage(Event):
    """The provider's token counts so far.

    Attributes:
        input_tokens: tokens of the request.
        output_tokens: tokens of the answer, reasoning included.
        total_tokens: both together, as the provider adds them up.
        details: the provider's finer counts under its own names, for example cached tokens.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    details: Mapping[str, Any] = {}

    def __add__(self, other: Usage) -> Usage:
        """Return the tokens of both together. Of the details, numbers are added; of others the second one's stay."""
        details = {**self.details, **other.details}
        for key, value in self.details.items():
            more = other.details.get(key)
            if isinstance(value, (int, float)) and isinstance(more, (int, float)):
                details[key] = value + more
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.total_tokens + other.total_tokens,
            details,
        )


class Run(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One complete answer of an agent, with all of its model calls. It is live: it changes until the run is done.

    Attributes:
        id: the provider's id; of the newest response where `then=` joined several to one run.
        status: `in_progress`, then how it ended: `completed`, `incomplete` (cut off or at a limit), `requires_action`,
            `cancelled`, `failed` or `expired`.
        model: the model that the provider names.
        usage: the tokens of all run steps together; None if none were counted.
        error: the provider's error, a dict with `message` and perhaps `code`.
        finish_reason: why the model stopped, in the provider's word.
        created_at: when it began, in Unix seconds.
        completed_at: when it ended, in Unix seconds.
        metadata: what one provider has alone.
        raw: the provider's own object.
    """

    id: str = ""
    status: RunStatus = "in_progress"
    model: str | None = None
    usage: Usage | None = None
    error: Mapping[str, Any] | None = None
    finish_reason: str | None = None
    created_at: float | None = None
    completed_at: float | None = None
    metadata: Mapping[str, Any] = {}
    raw: Any = None


class RunStep(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One model call, with the tool and code runs that it asks for. It is live, as `Run` is.

    Attributes:
        id: the provider's id, or one that the stream made.
        status: `in_progress`, then how it ended: `completed`, `incomplete` (cut off or at a limit), `requires_action`,
            `cancelled`, `failed` or `expired`.
        run_id: the id of the run.
        type: the provider's kind of step, for example `message_creation` or `tool_calls`.
        usage: the tokens of this step; None if none were counted.
        error: the provider's error, a dict with `message` and perhaps `code`.
        finish_reason: why the model stopped, in the provider's word.
        created_at: when it began, in Unix seconds.
        completed_at: when it ended, in Unix seconds.
        metadata: what one provider has alone.
        raw: the provider's own object.
    """

    id: str = ""
    status: RunStatus = "in_progress"
    run_id: str | None = None
    type: str | None = None
    usage: Usage | None = None
    error: Mapping[str, Any] | None = None
    finish_reason: str | None = None
    created_at: float | None = None
    completed_at: float | None = None
    metadata: Mapping[str, Any] = {}
    raw: Any = None


class RunEvent(Event):
    """The root of the events of a run. `run` is the run, live until it is done."""

    run: Run

    def arguments(self) -> tuple[Any, ...]:
        """Return the hook's arguments: the run."""
        return (self.run,)


class RunCreated(RunEvent):
    """A run begins."""


class RunRequiresAction(RunEvent):
    """The run cannot continue until its tool calls or confirmations are answered; `stream.pending` holds them."""


class RunDone(RunEvent):
    """The run has ended; `run.status` says how."""


class RunStepEvent(Event):
    """The root of the events of a run step. `run_step` is the step, live until it is done."""

    run_step: RunStep

    def arguments(self) -> tuple[Any, ...]:
        """Return the hook's arguments: the run step."""
        return (self.run_step,)


class RunStepCreated(RunStepEvent):
    """A run step begins."""


class RunStepDone(RunStepEvent):
    """A run step has ended; `run_step.status` says how."""


# -- questions, warnings, and the stream itself


class ConfirmationCreated(Event, gc=True):
    """Code or a tool call needs approval before it runs. `confirmation` takes the answer."""

    hook = "on_confirmation"
    confirmation: Confirmation

    def arguments(self) -> tuple[Any, ...]:
        """Return the hook's arguments: the confirmation."""
        return (self.confirmation,)


class ConfirmationDone(Event, gc=True):
    """A confirmation was approved or declined, or nobody answered it; `confirmation.status` says which."""

    confirmation: Confirmation

    def arguments(self) -> tuple[Any, ...]:
        """Return the hook's arguments: the confirmation."""
        return (self.confirmation,)


class StreamWarning(Event):
    """The source sent something malformed, which was repaired. A strict stream raises `ProtocolError` instead.

    Attributes:
        code: names the fault in a word, for programs.
        fault: what was wrong and how it was repaired, for people.
        index: which of the source's items it was, counted from 0; None if it was not a single item.
        kind: the type of that item, if it could be read.
    """

    hook = "on_warning"
    code: str
    fault: str
    index: int | None = None
    kind: str | None = None

    def __str__(self) -> str:
        where = "" if self.index is None else f"item {self.index}: "
        return f"{where}{self.fault} [{self.code}]"


class RawEvent(Event):
    """An item of the source that no other event stands for. It calls `on_event` alone.

    Attributes:
        name: the provider's name for it.
        data: the complete item.
    """

    hook = "on_event"
    name: str
    data: Any = None


class StreamRetry(Event, gc=True):
    """The source has failed, and is tried again, or its fallback is. What the failed attempt began has ended.

    Attributes:
        attempt: the number of the attempt that follows, counted over the fallbacks too: 2 is the first that repeats.
        error: the name of the error's class.
        message: the error's text.
        delay: the seconds to wait before the attempt.
        withdrawn: the ids of the failed attempt's messages. They are not in `stream.messages` any more, and no request has
            them: whoever shows them takes them back.
        exception: the error itself; None if the event was decoded from the wire, which does not carry it.
    """

    hook = "on_retry"
    attempt: int
    error: str
    message: str = ""
    delay: float = 0.0
    withdrawn: list[str] = []
    exception: Any = None


class StreamTimeout(Event):
    """The source timed out; a `StreamException` follows."""

    hook = "on_timeout"

    def arguments(self) -> tuple[Any, ...]:
        """Return no arguments."""
        return ()


class StreamException(Event, gc=True):
    """The stream failed.

    Attributes:
        error: the name of the error's class.
        message: the error's text.
        details: the error's own fields, for example `status_code` or `code`.
        exception: the error itself; None if the event was decoded from the wire, which does not carry it.
    """

    hook = "on_exception"
    error: str
    message: str = ""
    details: Mapping[str, Any] = {}
    exception: Any = None

    def arguments(self) -> tuple[Any, ...]:
        """Return the hook's arguments: the exception."""
        return (self.exception,)


class StreamEnd(Event):
    """The last event of every stream; there is exactly one.

    Attributes:
        status: how the stream ended: `completed`, `incomplete`, `requires_action`, `cancelled` or `failed`.
    """

    hook = "on_end"
    status: str = "completed"

    def arguments(self) -> tuple[Any, ...]:
        """Return no arguments."""
        return ()
