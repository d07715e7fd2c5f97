"""The events, each declared once: its class is the only declaration.

Everything else is computed from the class: the wire type (its name in snake case), the hooks, the entry in the codec, and
through `family` the class of messages that it is about. A decoder makes events, the engine completes them, and hooks
get them. Nothing changes an event once it was delivered.

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
from typing import Any, ClassVar, Literal

import msgspec

from . import messages as m
from .answers import Confirmation

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

EVENTS: dict[str, type[Event]] = {}
"""Every event class by its wire type."""

_declarations = itertools.count(1)
_version = 0


def version() -> int:
    """A number that changes with each event class that is declared, for what is computed from all of them."""
    return _version


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


class Event(msgspec.Struct, kw_only=True, gc=False, omit_defaults=True, tag_field="type", tag=_snake):
    """One thing that happened. The root of all events, the application's own too.

    Attributes:
        type: the wire type, a class attribute: `text_delta` of `TextDelta`.
        raw: the provider's item that it came from, a dict where it was JSON; None if there is none.
        cursor: where to resume after it; None if its source cannot resume.
    """

    type: ClassVar[str] = "event"
    hook: ClassVar[str] = ""
    hooks: ClassVar[tuple[str, ...]] = ()
    family: ClassVar[_MessageClass | None] = None
    message_id: ClassVar[Any] = None

    position: int | str | None = msgspec.field(default=None, name="cursor")
    raw_item: Any = None
    item_index: int | None = None  # which of its source's items, for warnings; not known of every delta

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.type = _snake(cls.__name__)
        _register(cls)

    @property
    def cursor(self) -> str | None:
        """Where to resume after it; None if its source cannot resume."""
        return None if self.position is None else str(self.position)

    @property
    def raw(self) -> Any:
        """The source's own item. JSON text is parsed at each reading; other text is returned as it is."""
        if not isinstance(self.raw_item, bytes):
            return self.raw_item
        try:
            return msgspec.json.decode(self.raw_item)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self.raw_item.decode("utf-8", "replace")

    def arguments(self) -> tuple[Any, ...]:
        """The arguments that this event's hooks are called with."""
        return (self,)


_ABSTRACT = ("created", "delta", "done", "run_event", "run_step_event", "retell")  # the wire types of what is no event


def _register(kind: type[Event]) -> None:
    """Enter an event class in `EVENTS`, find its hooks, and tell its family of messages about it.

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
    _version = next(_declarations)
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
        kind.hooks = (kind.hook, MessageDelta.hook) if of_any else kind.hooks
    elif issubclass(kind, Done):
        family.done_event = kind
        kind.hooks = (kind.hook, MessageDone.hook) if of_any else kind.hooks


# -- messages: three phases, one signature each


class Created(Event):
    """A message begins, empty. `message` is its live snapshot."""

    message: m.Message

    @property
    def snapshot(self) -> m.Message:
        return self.message

    def arguments(self) -> tuple[Any, ...]:
        return (self.message,)


class Delta(Event):
    """A piece of a message. `value` is the new text; with `replace` it takes the place of all before it.

    `snapshot` is the message with this piece in it. A decoder leaves it out.
    """

    message_id: str  # type: ignore[misc]  # None for events that tell of no message
    value: str
    replace: bool = False
    metadata: Mapping[str, Any] | None = None
    snapshot: Any = None

    def arguments(self) -> tuple[Any, ...]:
        return (self, self.snapshot)

    def __str__(self) -> str:
        return self.value


class Done(Event):
    """A message is over; its `status` tells how. It never changes after this.

    A decoder gives a message with the same id; its content, where it is known, is checked against the deltas, and
    what else it has (status, name, call_id, format, metadata) is taken over.
    """

    message: m.Message

    @property
    def snapshot(self) -> m.Message:
        return self.message

    def arguments(self) -> tuple[Any, ...]:
        return (self.message,)


class MessageCreated(Created):
    family = m.Message


class MessageDelta(Delta):
    family = m.Message


class MessageDone(Done):
    family = m.Message


class TextCreated(Created):
    family = m.TextMessage


class TextDelta(Delta):
    family = m.TextMessage


class TextDone(Done):
    family = m.TextMessage


class ReasoningCreated(Created):
    family = m.ReasoningMessage


class ReasoningDelta(Delta):
    family = m.ReasoningMessage


class ReasoningDone(Done):
    family = m.ReasoningMessage


class RefusalCreated(Created):
    family = m.RefusalMessage


class RefusalDelta(Delta):
    family = m.RefusalMessage


class RefusalDone(Done):
    family = m.RefusalMessage


class CodeCreated(Created):
    family = m.CodeMessage


class CodeDelta(Delta):
    family = m.CodeMessage


class CodeDone(Done):
    family = m.CodeMessage


class ConsoleCreated(Created):
    family = m.ConsoleMessage


class ConsoleDelta(Delta):
    """A piece of console output. `metadata["stream"]` is `stdout` or `stderr` where the source tells them apart."""

    family = m.ConsoleMessage
    hook = "on_console_output"


class ConsoleDone(Done):
    family = m.ConsoleMessage


class ToolCallCreated(Created):
    family = m.ToolCallMessage


class ToolCallDelta(Delta):
    family = m.ToolCallMessage


class ToolCallDone(Done):
    family = m.ToolCallMessage


class ToolOutputCreated(Created):
    family = m.ToolOutputMessage


class ToolOutputDelta(Delta):
    family = m.ToolOutputMessage


class ToolOutputDone(Done):
    family = m.ToolOutputMessage


class ImageFileDone(Done):
    family = m.ImageMessage


class FileDone(Done):
    family = m.FileMessage


# -- about a message


class ActiveLine(Event):
    """The line (from 1) that running code is at; None when nothing runs."""

    message_id: str  # type: ignore[misc]
    line: int | None
    snapshot: Any = None

    def arguments(self) -> tuple[Any, ...]:
        return (self.line, self.snapshot)


class AnnotationAdded(Event):
    """A citation was added to a text."""

    hook = "on_annotation"
    message_id: str  # type: ignore[misc]
    annotation: m.Annotation
    snapshot: Any = None

    def arguments(self) -> tuple[Any, ...]:
        return (self.annotation, self.snapshot)


# -- runs


class Usage(Event):
    """Tokens of the answer so far, as the provider counts them. `details` holds the provider's finer counts."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    details: Mapping[str, Any] = {}


class Run(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One answer. A live view: it changes until it is done.

    `id` is the provider's, and the newest one where `then=` joined several responses to one run. `error` is the
    provider's error, as a dict with `message` and perhaps `code`; `raw` is the provider's own object.
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
    """One model call and the tool and code runs it asked for. A live view, as `Run`."""

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
    """The root of what is about a run. `run` is live until it is done."""

    run: Run

    def arguments(self) -> tuple[Any, ...]:
        return (self.run,)


class RunCreated(RunEvent):
    """A run begins."""


class RunRequiresAction(RunEvent):
    """The run can go no further before its tool calls are answered (see `stream.pending`)."""


class RunDone(RunEvent):
    """The run is over; `run.status` tells how."""


class RunStepEvent(Event):
    """The root of what is about a run step. `run_step` is live until it is done."""

    run_step: RunStep

    def arguments(self) -> tuple[Any, ...]:
        return (self.run_step,)


class RunStepCreated(RunStepEvent):
    """A run step begins."""


class RunStepDone(RunStepEvent):
    """A run step is over."""


# -- questions, warnings, and the stream itself


class ConfirmationCreated(Event):
    """Something wants to run. See `Confirmation`."""

    hook = "on_confirmation"
    confirmation: Confirmation

    def arguments(self) -> tuple[Any, ...]:
        return (self.confirmation,)


class ConfirmationDone(Event):
    """A confirmation was decided."""

    confirmation: Confirmation

    def arguments(self) -> tuple[Any, ...]:
        return (self.confirmation,)


class StreamWarning(Event):
    """The source did something odd, which was repaired; a strict stream raises `ProtocolError` in its place.

    `code` names the fault in a word, `fault` says what was wrong and what was done, `index` counts the source's
    items from 0, `kind` is the item's type.
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
    """What the source said and no other event is for: `name` is its own name for it, `data` the whole item."""

    hook = "on_event"
    name: str
    data: Any = None


class StreamTimeout(Event):
    """The source timed out; a `StreamException` follows."""

    hook = "on_timeout"

    def arguments(self) -> tuple[Any, ...]:
        return ()


class StreamException(Event):
    """The stream failed. `error` is the name of the error's class, `exception` the error itself (not on the wire)."""

    hook = "on_exception"
    error: str
    message: str = ""
    details: Mapping[str, Any] = {}
    exception: Any = None

    def arguments(self) -> tuple[Any, ...]:
        return (self.exception,)


class StreamEnd(Event):
    """The last event of every stream, told exactly once. `status` tells how the stream ended."""

    hook = "on_end"
    status: str = "completed"

    def arguments(self) -> tuple[Any, ...]:
        return ()
