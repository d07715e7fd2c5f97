"""The engine: completes what a decoder saw into a well-formed story, for every protocol alike.

It holds the brackets. A run is created before anything in it and done after all of it, with at least one step; a
message is created once, empty, before its first delta, and done once, after its last. What was not opened is
opened, what stays open is closed with a status that tells how it ended, content is compared with the provider's
own, and what had to be repaired is told as a warning. Feeding it its own events changes nothing.
"""

# pyright: reportPrivateUsage=false
# The engine is the one writer of messages and answers; their underscores keep users from writing.

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any

import msgspec

from .. import events as e
from ..answers import Answer, Confirmation
from ..errors import ProtocolError
from ..messages import (
    ConsoleMessage,
    Message,
    Status,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
    append_piece,
    compact,
    mark_complete,
    message_class,
    output_text,
    replace_content,
)
from .run_tracker import RunTracker, merge
from .unique_ids import UniqueIds

__all__ = ["Engine"]

# How a message ends that is still open when its run ends so.
_OPEN_ENDS: dict[str, Status] = {
    "completed": "completed",
    "requires_action": "completed",
    "incomplete": "incomplete",
    "cancelled": "cancelled",
    "failed": "failed",
    "expired": "failed",
}


class Engine:
    """One stream's state: its messages, its run, what is open and what waits.

    Args:
        strict: raise `ProtocolError` where a lenient engine would warn and repair.
        wake: called when something that waits was answered, from the answering thread.
    """

    def __init__(self, *, strict: bool = False, wake: Callable[[], None] | None = None) -> None:
        self.strict = strict
        self.wake: Callable[[], None] = wake or _nobody
        self.messages: list[Message] = []
        self.runs = RunTracker()
        self.warnings: list[e.StreamWarning] = []
        self.pending: dict[str, Confirmation | ToolCallMessage] = {}
        self.confirmations: list[Confirmation] = []
        # What the source can do with answers. Whoever opens the source sets these.
        self.pull_approves = False  # pulling on runs what a confirmation shows, so that declining ends the run
        self.declined = False  # such a confirmation was declined
        self.takes_approvals = False
        self.takes_edits = False
        self.takes_outputs = False
        self.takes_awaitables = False
        self.executes: Callable[[ToolCallMessage], bool] = lambda call: False  # whether the source itself answers it
        self.failure: e.StreamException | None = None  # what another stream, read as canonical events, failed with
        self._open: dict[str, Message] = {}  # by the id that the decoder uses, which is the message's own …
        self._aliased: dict[str, Message] = {}  # … or is not, because that id was taken
        self.find_open: Callable[[Any], Message | None] = self._open.get
        self._ids = UniqueIds()
        self._asked = UniqueIds(self.pending)
        self._lines: dict[str, int | None] = {}
        self._annotated: dict[str, set[bytes]] = {}
        self._run_over = False
        self._cause: e.Event | None = None  # what the decoder saw last that was not a common step …
        self._item: int | None = None  # … and the number of the item that it saw it in
        self.number_of: Callable[[Any], int | None] = _unknown  # … or what knows it
        self.new_id = _ids_from(self._ids)

    def let_go(self) -> None:
        """It is over: refer no more to who drives it, so that both are freed as soon as nobody else has them."""
        self.wake, self.number_of = _nobody, _unknown

    # -- the common step, and the others

    def append_delta(self, event: e.Event) -> bool:
        """The common step: a piece for an open message is taken in, and the event is told as it is. False for any
        other event, which `complete_event` is for."""
        message = self.find_open(event.message_id)
        if message is None or type(event) is not message.delta_event or event.replace:
            return False
        append_piece(message, event.value)
        event.snapshot = message
        return True

    def compact(self) -> None:
        """Join the loose pieces of messages that have many: what is held stays near the text's own size."""
        for message in self._open.values():
            compact(message)

    def complete(self, events: Iterable[e.Event]) -> Iterator[e.Event]:
        """The story that these events tell, each told only when the one before was handled."""
        for event in events:
            if self.append_delta(event):
                yield event
            else:
                yield from self.complete_event(event)
        self.compact()

    def complete_event(self, event: e.Event) -> Iterator[e.Event]:
        """What any event tells, with all that it needs before and after it."""
        self._cause, self._item, event.item_index = event, event.item_index, None
        step = _STEPS.get(type(event)) or _step_of(type(event))
        yield from step(self, event)
        self._cause = None  # what it came from may be large

    def _told(self, event: e.Event) -> Iterator[e.Event]:
        yield event

    def _take_warning(self, event: e.StreamWarning) -> Iterator[e.Event]:
        yield self._warned(event)

    def _take_failure(self, event: e.StreamException) -> Iterator[e.Event]:
        self.failure = event
        return iter(())

    def _take_end(self, event: e.Event) -> Iterator[e.Event]:
        return iter(())  # told again where this stream ends

    # -- messages

    def _created(self, event: e.Created) -> Iterator[e.Event]:
        given = event.message
        if self._find(given.id) is not None:
            yield self._warn(
                "duplicate-created", f"message {given.id!r} was begun twice; the second was dropped", event
            )
            return
        yield from self._begin(given, event)

    def _begin(self, given: Message, cause: e.Event) -> Iterator[e.Event]:
        yield from self.runs.open_step(cause)
        if isinstance(given, ConsoleMessage):
            yield from self._ran()
        if isinstance(given, ToolOutputMessage) or (given.role == "computer" and given.call_id is not None):
            self._answered(given.call_id)  # what its code shows answers a call, too
        if type(given) is not message_class(given.type, given.format, given.role):
            given = Message.from_dict(given.to_dict())
        message = given.header()
        if not given.id:
            message.id = self.new_id()
        elif given.id in self._ids:
            message.id = self._ids.free(given.id)
        if message.run_id is None and self.runs.run is not None:
            message.run_id = self.runs.run.id
        if message.step_id is None and self.runs.step is not None:
            message.step_id = self.runs.step.id
        if isinstance(message, ConsoleMessage):
            message.active_line = self._lines.pop(given.id, None)
        self._ids.add(message.id)
        self.messages.append(message)
        (self._open if message.id == given.id else self._aliased)[given.id or message.id] = message
        yield message.created_event(message, position=cause.position, raw_item=cause.raw_item)

    def _find(self, id: str) -> Message | None:
        return self._open.get(id) or self._aliased.get(id)

    def _delta(self, event: e.Delta) -> Iterator[e.Event]:
        message = self._find(event.message_id)
        if not (event.value or event.metadata or event.replace):
            return
        if message is None:
            if event.message_id in self._ids:
                fault = f"a delta came for message {event.message_id!r}, which was done; it begins another message"
                yield self._warn("delta-after-done", fault, event)
            family = (
                event.family if event.family not in (None, Message) else TextMessage
            )  # what has no other kind is text
            yield from self._begin(family(event.message_id), event)
            message = self.messages[-1]
        if event.replace:
            replace_content(message, event.value)
        else:
            append_piece(message, event.value)
        yield message.delta_event(
            message.id,
            event.value,
            event.replace,
            event.metadata,
            message,
            position=event.position,
            raw_item=event.raw_item,
        )

    def _done(self, event: e.Done) -> Iterator[e.Event]:
        given = event.message
        message = self._find(given.id)
        if message is None:
            if given.id in self._ids:
                return  # done before: items and the whole response repeat each other
            yield from self._begin(given, event)
            message = self.messages[-1]
            if given.content:
                append_piece(message, given.content)
                yield message.delta_event(
                    message.id, given.content, snapshot=message, position=event.position, raw_item=event.raw_item
                )
        elif given.has_content:
            yield from self._compare(message, given, event)
        if isinstance(message, ToolCallMessage) and isinstance(given, ToolCallMessage):
            message.answer_slot = given.answer_slot  # another stream's: it is that stream which waits
        for key in ("name", "call_id", "format", "recipient", "created_at", "group"):
            if getattr(given, key) is not None:
                setattr(message, key, getattr(given, key))
        if given.metadata:
            message.metadata = {**message.metadata, **given.metadata}
        if isinstance(message, TextMessage) and isinstance(given, TextMessage):
            for annotation in given.annotations:
                yield from self._annotate(message, annotation, event)
        yield from self._close(given.id or message.id, message, given.status, event)

    def _compare(self, message: Message, given: Message, event: e.Event) -> Iterator[e.Event]:
        """Law 2: the final content is the provider's own."""
        told, final = message.content, given.content
        if told == final:
            return
        missing = final.startswith(told)  # then a delta can add what is missing, else one must replace
        if told:  # an item that is told only whole has no deltas, and needs no repair
            how = "the rest was added" if missing else "it was replaced"
            fault = f"the final content of message {message.id!r} is not the sum of its deltas; {how}"
            yield self._warn("content-differs", fault, event)
        replace_content(message, final)
        value = final[len(told) :] if missing else final
        yield message.delta_event(
            message.id, value, not missing, snapshot=message, position=event.position, raw_item=event.raw_item
        )

    def _close(self, key: str, message: Message, status: Status, cause: e.Event) -> Iterator[e.Event]:
        self._open.pop(key, None)
        self._aliased.pop(key, None)
        message.status = "completed" if status == "in_progress" else status
        mark_complete(message)
        if isinstance(message, ToolCallMessage) and not message.provider_executed and message.status == "completed":
            yield from self._expect_output(message, cause)
        yield message.done_event(message, position=cause.position, raw_item=cause.raw_item)

    def _about(self, event: e.ActiveLine | e.AnnotationAdded) -> Iterator[e.Event]:
        message = self._find(event.message_id)
        if isinstance(event, e.AnnotationAdded):
            if isinstance(message, TextMessage):
                yield from self._annotate(message, event.annotation, event)
            else:
                fault = f"an annotation came for {event.message_id!r}, which is no open text; it was dropped"
                yield self._warn("stray-annotation", fault, event)
            return
        if message is None and event.line is not None and event.message_id not in self._ids:
            yield from self.runs.open_step(event)
        yield from self._ran()
        if isinstance(message, ConsoleMessage):
            message.active_line = event.line
        elif message is None:
            self._lines[event.message_id] = event.line  # for the console message that may come
        snapshot = message if message is not None else event.snapshot
        yield e.ActiveLine(
            message.id if message else event.message_id,
            event.line,
            snapshot,
            position=event.position,
            raw_item=event.raw_item,
        )

    def _annotate(self, message: TextMessage, annotation: Any, cause: e.Event) -> Iterator[e.Event]:
        told = self._annotated.setdefault(message.id, set())
        key = msgspec.json.encode(annotation, enc_hook=repr)
        if key in told:
            return  # told with the delta, and again with the whole item
        told.add(key)
        message.annotations.append(annotation)
        yield e.AnnotationAdded(message.id, annotation, message, position=cause.position, raw_item=cause.raw_item)

    # -- runs and steps

    def _run_event(self, event: e.Event) -> Iterator[e.Event]:
        match event:
            case e.RunCreated(run=given):
                yield from self.runs.open(given, event)
            case e.RunDone(run=given):
                yield from self.runs.open(given, event)
                if not self.runs.steps:
                    yield from self.runs.open_step(event)
                assert self.runs.run is not None
                if given.status == "in_progress":
                    given = msgspec.structs.replace(given, status="completed")
                merge(self.runs.run, given, keep=("status", "usage"))
                self.runs.outcome = given
                yield from self._close_open(_OPEN_ENDS[given.status], event)
            case e.RunRequiresAction(run=given):
                yield from self.runs.open_step(event)
                assert self.runs.run is not None
                merge(self.runs.run, given, keep=("usage",))
                self.runs.run.status = "requires_action"
                self.runs.asked_for_action = True
                yield e.RunRequiresAction(self.runs.run, position=event.position, raw_item=event.raw_item)
            case e.RunStepCreated(run_step=given):
                yield from self.runs.begin_step(given, event)
            case e.RunStepDone(run_step=given):
                yield from self.runs.end_step(given, event)
            case e.Usage():
                yield from self.runs.open_step(event)
                self.runs.count(
                    msgspec.structs.replace(event, raw_item=None, position=None)
                )  # its source may be the whole response
                yield event
            case _:
                pass

    # -- what waits

    def _confirmation(self, event: e.ConfirmationCreated | e.ConfirmationDone) -> Iterator[e.Event]:
        given = event.confirmation
        known = self.pending.get(given.id)
        if isinstance(event, e.ConfirmationDone):
            if isinstance(known, Confirmation):
                yield from self.settle(known, given.status == "approved", edited=given.edited, reason=given.reason)
            return
        if isinstance(known, Confirmation):
            yield self._warn("duplicate-confirmation", f"confirmation {given.id!r} was asked twice", event)
            return
        yield from self.runs.open_step(event)
        subject = self._subject(given.subject)
        asked = Confirmation(self._asked.free(given.id), subject, malformed=given.malformed)
        if given.answer_slot is not None:  # another stream's: it is that stream which waits
            asked.answer_slot = given.answer_slot
            asked.editable = given.editable
        elif (self.pull_approves or self.takes_edits or self.takes_approvals) and not given.malformed:
            asked.answer_slot = Answer(f"confirmation {given.id!r}", self.wake)
            asked.editable = self.takes_edits
        self.pending[asked.id] = asked
        self.confirmations.append(asked)
        yield e.ConfirmationCreated(asked, position=event.position, raw_item=event.raw_item)
        if given.malformed:
            yield from self.settle(asked, False, reason="malformed")

    def _subject(self, given: Message) -> Message:
        """The stream's own message of what wants to run; the given one unless they say the same."""
        for message in reversed(self.messages):
            if message.id == given.id:
                same = (message.type, message.format, message.content) == (given.type, given.format, given.content)
                return message if same else given
        return given

    def settle(
        self, asked: Confirmation, approved: bool, *, edited: str | None = None, reason: str | None = None
    ) -> Iterator[e.Event]:
        """Decide a confirmation, and tell the outcome."""
        if self.pending.pop(asked.id, None) is not None:
            asked.settle(approved, edited=edited, reason=reason)
            if not approved and self.pull_approves:
                self.declined = True
                self.decline()
            if not approved and asked.subject.call_id is not None:
                self._answered(asked.subject.call_id)  # it gets no other
            yield e.ConfirmationDone(asked)

    def _ran(self) -> Iterator[e.Event]:
        """What runs was approved, by whoever answers where we cannot."""
        for asked in [p for p in self.pending.values() if isinstance(p, Confirmation) and p.answer_slot is None]:
            yield from self.settle(asked, True)

    def _expect_output(self, call: ToolCallMessage, cause: e.Event) -> Iterator[e.Event]:
        key = self._asked.free(call.call_id or call.id)
        if call.answer_slot is None and self.takes_outputs and not self.executes(call):
            call.answer_slot = Answer(f"tool call {key!r}", self.wake, awaitables=self.takes_awaitables)
        if call.metadata.get("custom") is not True and not isinstance(_json(call.content or "{}"), dict):
            fault = f"the arguments of tool call {key!r} are no JSON object; `arguments` is empty"
            if all(known.fault != fault for known in self.warnings):  # another engine may have told it
                yield self._warn("bad-arguments", fault, cause)
        if not self.executes(call):
            self.pending[key] = call

    def output(self, call: ToolCallMessage, value: object) -> Iterator[e.Event]:
        """Our answer to a tool call, as a message of the stream."""
        text = output_text(value)
        message = ToolOutputMessage(
            f"{call.id}.output", name=call.name, call_id=call.call_id or call.id, content=text, choice=call.choice
        )
        yield from self._done(e.ToolOutputDone(message))

    def _answered(self, call_id: str | None) -> None:
        for key, waiting in [*self.pending.items()]:
            if isinstance(waiting, ToolCallMessage) and call_id in (waiting.call_id, waiting.id):
                del self.pending[key]
                return

    @property
    def unanswered(self) -> list[ToolCallMessage]:
        """The tool calls that want our answer and have none."""
        return [p for p in self.pending.values() if isinstance(p, ToolCallMessage)]

    # -- endings

    def source_done(self, *, complete: bool) -> Iterator[e.Event]:
        """The source has no more items. Closes the messages; the step stays open for answers."""
        end: Status = (
            _OPEN_ENDS[self.runs.outcome.status] if self.runs.outcome else "completed" if complete else "incomplete"
        )
        nothing = e.Event()
        yield from self._close_open(end, nothing)
        for asked in [p for p in self.pending.values() if isinstance(p, Confirmation) and p.answer_slot is None]:
            yield from self.settle(asked, False, reason="not answered")
        failed = self.runs.outcome is not None and self.runs.outcome.status not in (
            "completed",
            "requires_action",
            "in_progress",
        )
        open_calls = [call for call in self.unanswered if call.answer_slot is None or not call.answer_slot.given]
        if open_calls and complete and not failed and not self.runs.asked_for_action:
            yield from self._run_event(e.RunRequiresAction(e.Run()))

    @property
    def cut_short(self) -> bool:
        """Whether the source said that its answer is not whole."""
        return self.runs.outcome is not None and self.runs.outcome.status in ("incomplete", "cancelled")

    def next_source(self, *, same_step: bool = False) -> Iterator[e.Event]:
        """The run goes on with another source: a new step, unless that source belongs to the one before."""
        if self.runs.step is not None and not same_step:
            yield from self.runs.end_step(e.RunStep(status="completed"), e.Event())
        self.runs.outcome = None
        if self.runs.run is not None:
            self.runs.run.status = "in_progress"
        self._open.clear()
        self._aliased.clear()

    def end(self, status: e.RunStatus | None = None, error: Mapping[str, Any] | None = None) -> Iterator[e.Event]:
        """Close all that is open, and the run. `status` says how, where the source did not."""
        if self._run_over:
            return
        outcome = self.runs.outcome.status if self.runs.outcome else "completed"
        if outcome in ("completed", "in_progress") and self.unanswered:
            outcome = "requires_action"
        how: e.RunStatus = status or outcome
        nothing = e.Event()
        yield from self._close_open(_OPEN_ENDS[how], nothing)
        for asked in [p for p in self.pending.values() if isinstance(p, Confirmation)]:
            yield from self.settle(asked, False, reason="not answered")
        for call in self.unanswered:
            if call.answer_slot is not None:
                call.answer_slot.close()
        if self.runs.run is not None and not self.runs.steps:
            yield from self.runs.open_step(nothing)
        if self.runs.step is not None:
            step_status = "completed" if how == "requires_action" else how
            yield from self.runs.end_step(e.RunStep(status=step_status, error=error), nothing)
        self._run_over = True
        if self.runs.run is not None:
            self.runs.run.status = how
            if error is not None and self.runs.run.error is None:
                self.runs.run.error = error
            yield e.RunDone(self.runs.run)

    def decline(self) -> None:
        """The run ends here by our own no."""
        self.runs.outcome = e.Run(status="completed", finish_reason="declined")
        if self.runs.run is not None:
            self.runs.run.finish_reason = "declined"

    def _close_open(self, status: Status, cause: e.Event) -> Iterator[e.Event]:
        for key, message in [*self._open.items(), *self._aliased.items()]:
            yield from self._close(key, message, status, cause)

    # -- warnings

    def _warn(self, code: str, fault: str, cause: e.Event) -> e.Event:
        where = self._item if cause is self._cause else None
        if where is None:
            where = self.number_of(cause.raw_item)
        return self._warned(
            e.StreamWarning(code, fault, where, cause.type, position=cause.position, raw_item=cause.raw_item)
        )

    def _warned(self, warning: e.StreamWarning) -> e.Event:
        if self.strict:
            raise ProtocolError(warning.code, warning.fault, warning.index, warning.kind)
        if len(self.warnings) < 1000:
            self.warnings.append(warning)
        return warning


# What an event is completed by. `_step_of` finds it for the classes that follow from these.
_STEPS: dict[type[e.Event], Callable[[Engine, Any], Iterator[e.Event]]] = {
    e.Event: Engine._told,
    e.Delta: Engine._delta,
    e.Created: Engine._created,
    e.Done: Engine._done,
    e.ActiveLine: Engine._about,
    e.AnnotationAdded: Engine._about,
    **dict.fromkeys((e.RunCreated, e.RunDone, e.RunRequiresAction), Engine._run_event),
    **dict.fromkeys((e.RunStepCreated, e.RunStepDone, e.Usage), Engine._run_event),
    e.ConfirmationCreated: Engine._confirmation,
    e.ConfirmationDone: Engine._confirmation,
    e.StreamWarning: Engine._take_warning,
    e.StreamException: Engine._take_failure,
    e.StreamTimeout: Engine._take_end,
    e.StreamEnd: Engine._take_end,
}


def _nobody() -> None:
    """Who waits where nobody does."""


def _unknown(source: object) -> None:
    """The number of an item where nothing knows it."""


def _ids_from(ids: UniqueIds) -> Callable[[], str]:
    """Gives ids that are free."""
    numbers = count(1)
    return lambda: ids.free(f"message-{next(numbers)}")


def _step_of(kind: type[e.Event]) -> Callable[[Engine, Any], Iterator[e.Event]]:
    step = _STEPS[kind] = next(_STEPS[base] for base in kind.__mro__ if base in _STEPS)
    return step


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):  # no JSON, or nested too deep to be read
        return None
