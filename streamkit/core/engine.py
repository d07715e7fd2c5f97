"""The engine: completes what a decoder reports into well-formed events, for every protocol alike.

It keeps the brackets, and repairs what breaks them:

    run        created before anything in it, done after all of it; it has at least one step
    message    created once, empty, before its first delta; done once, after its last delta
    content    the sum of the deltas, and in the end the provider's own

What was not opened is opened. What stays open is closed, with a status that says how it ended. Repairs are reported as
warnings. Feeding an engine the events of another one changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any, ClassVar, TypeVar

import msgspec

from .. import events as e
from ..errors import LimitError, ProtocolError
from ..limits import Limits
from ..messages import (
    COMPACT_AT,
    ConsoleMessage,
    Message,
    Status,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
    message_class,
    output_text,
)
from ..messages.json_text import decode_json, has_surrogates, join_surrogates, json_key
from .pending import PendingAnswers
from .run_tracker import RunTracker
from .split_text import SplitDelta
from .unique_ids import UniqueIds

__all__ = ["Engine"]

_T = TypeVar("_T")
_Completion = Callable[[Any, Any], Iterator[e.Event]]  # takes the engine and an event

_MOST_WARNINGS = 1000
_MEASURE_AFTER = 1 << 24  # bytes
_LONG_ITEM = 1 << 14  # bytes; `warnings` holds no longer items
_FAILED = ("failed", "expired", "incomplete", "cancelled")
_NO_CAUSE = e.StreamEnd()  # of events that no item of the source caused


class Engine(PendingAnswers):
    """One stream's state: its messages, its run, what is open and what waits for an answer.

    Args:
        strict: raise `ProtocolError` where a lenient engine warns and repairs.
        wake: called from the answering thread when something that waits was answered.

    Attributes:
        messages: all messages, in the order they were created; the open ones are live.
        runs: the run and its steps.
        warnings: the first 1000.
        failure: the failure that another stream reported, which is read as canonical events.
        find_open: the open message that a decoder's id refers to, None if there is none.
        new_id: gives message ids that no other message has.
        number_of: the number of the source's item that a delta came from; None where that is unknown.
        limits: the sizes that end the stream.
        forgotten_deltas: how many deltas the messages had that `forget_oldest` removed.
        is_canonical: whether the source is another stream's events, whose end is this stream's end.
        source_ends: the cursors of the events with which a canonical source ended, by their class.
        ends_before: those of them that stand before the cursor after which the stream resumes.
    """

    def __init__(self, *, strict: bool = False, wake: Callable[[], None] | None = None) -> None:
        super().__init__(wake)
        self.strict = strict
        self.limits = Limits()
        self._unmeasured = 0  # bytes of long items since all open messages were measured
        self._total = 0  # characters of all messages, as far as they were measured
        self._sizes: dict[str, int] = {}  # of the open messages, when they were measured
        self.messages: list[Message] = []
        self.runs = RunTracker()
        self.warnings: list[e.StreamWarning] = []
        self._faults: set[str] = set()  # those of the warnings
        self.failure: e.StreamException | None = None
        self.forgotten_deltas = 0
        self.is_canonical = False
        self.source_ends: dict[type[e.Event], int | str | None] = {}
        self.ends_before: frozenset[type[e.Event]] = frozenset()
        # Open messages by the id that the decoder uses. That is the message's own id in `_open`; `_renamed` holds those
        # whose id was taken by another message.
        self._open: dict[str, Message] = {}
        self._renamed: dict[str, Message] = {}
        # The first half of a surrogate pair, by the id of a message that ends with it. Meanwhile the message is in
        # `_renamed`, so that its next delta is completed here.
        self._halves: dict[str, str] = {}
        self.find_open: Callable[[Any], Message | None] = self._open.get
        self._by_id: dict[str, Message] = {}
        self._ids = UniqueIds(self._by_id)
        self.new_id = _ids_from(self._ids)
        self._early_lines: dict[str, int | None] = {}  # active lines of console messages that have not begun
        self._annotated: dict[str, set[bytes]] = {}
        # The event that is being completed, and the number of the item that it came from.
        self._cause: e.Event | None = None
        self._item_index: int | None = None
        self.number_of: Callable[[Any], int | None] = _unknown

    # -- sizes

    def compact(self, message: Message) -> None:
        """Join the deltas of an open message, and compare its size with the limits.

        Raises:
            LimitError: it is too long, or all messages together are.
        """
        message.compact()
        self._measure(message)

    def measure_open(self) -> None:
        """Compare the sizes of all open messages with the limits. Raises as `compact`."""
        for message in (*self._open.values(), *self._renamed.values()):
            self._measure(message)

    def long_item_came(self, size: int) -> None:
        """Items of this size may fill the memory long before the deltas of a message are joined."""
        self._unmeasured += size
        if self._unmeasured > _MEASURE_AFTER:
            self._unmeasured = 0
            self.measure_open()

    def _measure(self, message: Message) -> None:
        size = message.size
        self._total += size - self._sizes.get(message.id, 0)
        self._sizes[message.id] = size
        if size > self.limits.message:
            raise LimitError("message", self.limits.message)
        if self._total > self.limits.total:
            raise LimitError("total", self.limits.total)

    def release(self) -> None:
        """Refer no more to what drives the engine, so that both are freed as soon as nothing else refers to them."""
        self.wake, self.number_of = _nothing, _unknown

    def forget_oldest(self, limit: int) -> None:
        """Forget messages, confirmations and run steps that are over, the oldest first, where there are more than
        `limit` of one kind. An eighth of them at once, so that it is seldom done."""
        if max(len(self.messages), len(self.confirmations), len(self.runs.steps)) <= limit:
            return
        newest = limit - limit // 8
        for message in _cut(self.messages, newest, lambda message: message.status != "in_progress"):
            self.forgotten_deltas += message.delta_count
            self._by_id.pop(message.id, None)
            self._ids.forget(message.id)
            self._annotated.pop(message.id, None)
        _cut(self.confirmations, newest, lambda confirmation: confirmation.id not in self.pending)
        self.runs.forget_steps(_cut(self.runs.steps, newest, lambda step: step is not self.runs.step))

    # -- completing events

    def complete(self, events: Iterable[e.Event]) -> Iterator[e.Event]:
        """Complete events, each when the one before was handled."""
        for event in events:
            if self.append_delta(event):
                yield event
            else:
                yield from self.complete_event(event)
        for message in self._open.values():
            if len(message.pieces) >= COMPACT_AT:
                self.compact(message)

    def append_delta(self, event: Any) -> bool:
        """Append a delta of an open message: the common case, in which the event is complete as it is. False for any
        other event, which `complete_event` is for."""
        message = self.find_open(event.message_id)
        if message is None or type(event) is not message.delta_event or event.replace:
            return False
        message.pieces.append(event.value)
        event.snapshot = message
        return True

    def complete_event(self, event: e.Event) -> Iterator[e.Event]:
        """Any event, with everything that belongs before and after it."""
        self._cause, self._item_index, event.item_index = event, event.item_index, None
        yield from _completion_of(type(event))(self, event)
        self._cause = None  # the item that it came from may be large

    def _emit(self, event: e.Event) -> Iterator[e.Event]:
        yield event

    def _emit_in_step(self, event: e.Event) -> Iterator[e.Event]:
        """An application's own event stands inside the run, as any other."""
        yield from self.runs.open_step(event)
        yield event

    def _keep_failure(self, event: e.StreamException) -> Iterator[e.Event]:
        self.failure = event
        return self._drop(event)

    def _drop(self, event: e.Event) -> Iterator[e.Event]:
        """Another stream's end: this stream emits its own."""
        if self.is_canonical:
            self.source_ends[type(event)] = event.position
        return iter(())

    # -- messages

    def _message(self, id: str) -> Message | None:
        return self._by_id.get(id)

    def _find(self, id: str) -> Message | None:
        return self._open.get(id) or self._renamed.get(id)

    def _complete_created(self, event: e.Created) -> Iterator[e.Event]:
        template = event.message
        if self._find(template.id) is not None:
            fault = f"message {template.id!r} was created twice; the second was dropped"
            yield self._warn("duplicate-created", fault, event)
            return
        yield from self._create(template, event)

    def _create(self, template: Message, cause: e.Event) -> Iterator[e.Event]:
        """Create a message like this one, empty."""
        if len(self._open) + len(self._renamed) >= self.limits.open_messages:
            raise LimitError("open_messages", self.limits.open_messages)
        yield from self.runs.open_step(cause)
        if isinstance(template, ConsoleMessage):
            yield from self._code_runs()
        if isinstance(template, ToolOutputMessage) or (template.role == "computer" and template.call_id is not None):
            self._call_answered(template.call_id)  # what the code of a call shows answers the call as well
        if type(template) is not message_class(template.type, template.format, template.role):
            template = Message.from_dict(template.to_dict())
        message = template.header()
        message.id = self._id_for(template)
        if message.run_id is None and self.runs.run is not None:
            message.run_id = self.runs.run.id
        if message.step_id is None and self.runs.step is not None:
            message.step_id = self.runs.step.id
        if isinstance(message, ConsoleMessage):
            message.active_line = self._early_lines.pop(template.id, None)
        self._by_id[message.id] = message
        self.messages.append(message)
        (self._open if message.id == template.id else self._renamed)[template.id or message.id] = message
        yield message.created_event(message, position=cause.position, raw_item=cause.raw_item)

    def _id_for(self, template: Message) -> str:
        if not template.id:
            return self.new_id()
        return self._ids.free(template.id) if template.id in self._ids else template.id

    def _complete_delta(self, event: e.Delta) -> Iterator[e.Event]:
        if not (event.value or event.metadata or event.replace):
            return
        message = self._find(event.message_id)
        if message is None:
            yield from self._create_for(event, event)
            message = self.messages[-1]
        if self._halves:
            yield from self._end_half(event.message_id, message, event)
        if event.replace:
            message.replace_content(event.value)
        else:
            message.pieces.append(event.value)
        yield self._delta(message, event.value, event, replace=event.replace, metadata=event.metadata)

    def _create_for(self, delta: e.Delta, cause: e.Event) -> Iterator[e.Event]:
        """Create the message of a delta."""
        if delta.message_id in self._ids:
            fault = f"a delta came for message {delta.message_id!r}, which was done; it begins another message"
            yield self._warn("delta-after-done", fault, cause)
        # A delta of a family without hooks of its own is text.
        family = TextMessage if delta.family in (None, Message) else delta.family
        yield from self._create(family(delta.message_id), cause)

    def _complete_split_delta(self, event: SplitDelta) -> Iterator[e.Event]:
        """Emit the text up to the half of a surrogate pair that it ends with, and hold that half."""
        delta, id = event.delta, event.delta.message_id
        if self._find(id) is None:
            yield from self._create_for(delta, event)
        text = join_surrogates(self._take_half(id) + event.text)
        half = text[-1:] if has_surrogates(text) else ""
        delta.value = text.removesuffix(half)
        delta.position, delta.raw_item = event.position, event.raw_item
        yield from self._complete_delta(delta)
        if half:
            message = self._open.pop(id, None) or self._renamed[id]
            self._renamed[id] = message
            self._halves[id] = half

    def _take_half(self, id: str) -> str:
        """The half that is held for a message; "" if there is none. Its next deltas may be appended at once again."""
        half = self._halves.pop(id, "")
        if half and self._renamed[id].id == id:
            self._open[id] = self._renamed.pop(id)
        return half

    def _end_half(self, id: str, message: Message, cause: e.Event) -> Iterator[e.Event]:
        """The second half of a surrogate pair did not come: the first is U+FFFD."""
        if self._take_half(id):
            fault = (
                f"a text of message {message.id!r} ends in the middle of a surrogate pair; it was replaced by U+FFFD"
            )
            yield self._warn("lone-surrogate", fault, cause)
            message.pieces.append("\ufffd")
            yield self._delta(message, "\ufffd", cause)

    def _delta(
        self,
        message: Message,
        value: str,
        cause: e.Event,
        *,
        replace: bool = False,
        metadata: Mapping[str, Any] | None = None,
    ) -> e.Event:
        """The delta event of text that the message has already."""
        return message.delta_event(
            message.id, value, replace, metadata, message, position=cause.position, raw_item=cause.raw_item
        )

    def _complete_done(self, event: e.Done) -> Iterator[e.Event]:
        final = event.message
        message = self._find(final.id)
        if message is not None and self._halves:
            yield from self._end_half(final.id, message, event)
        if message is None:
            if final.id in self._ids:
                return  # it was done before: an item and the entire response repeat each other
            yield from self._create(final, event)
            message = self.messages[-1]
            if final.content:
                message.pieces.append(final.content)
                yield self._delta(message, final.content, event)
        elif final.has_content:
            yield from self._compare(message, final.content, event)
        if isinstance(message, ToolCallMessage) and isinstance(final, ToolCallMessage):
            message.answer_slot = final.answer_slot  # another stream's: that stream waits for the answer
        for key in ("name", "call_id", "format", "recipient", "created_at", "group"):
            if getattr(final, key) is not None:
                setattr(message, key, getattr(final, key))
        if final.metadata:
            message.metadata = {**message.metadata, **final.metadata}
        if isinstance(message, TextMessage) and isinstance(final, TextMessage):
            for annotation in final.annotations:
                yield from self._annotate(message, annotation, event)
        self._measure(message)
        yield from self._close(final.id or message.id, message, final.status, event)

    def _compare(self, message: Message, final: str, event: e.Event) -> Iterator[e.Event]:
        """Repair a message whose deltas are not the provider's final content: with a delta that adds what is missing,
        else with one that replaces it all."""
        content = message.content
        if content == final:
            return
        adds = final.startswith(content)
        if content:  # a message without deltas needs no repair
            how = "the rest was added" if adds else "it was replaced"
            fault = f"the final content of message {message.id!r} is not the sum of its deltas; {how}"
            yield self._warn("content-differs", fault, event)
        message.replace_content(final)
        yield self._delta(message, final[len(content) :] if adds else final, event, replace=not adds)

    def _close(self, key: str, message: Message, status: Status, cause: e.Event) -> Iterator[e.Event]:
        """A message is done. `key` is the id that the decoder uses for it."""
        status = "completed" if status == "in_progress" else status
        call = message if isinstance(message, ToolCallMessage) and not message.provider_executed else None
        pending_key = self._pending_ids.free(call.call_id or call.id) if call is not None else ""
        if call is not None and status == "completed":
            yield from self._check_arguments(call, pending_key, cause)  # it is open: if this raises, the end closes it
        self._open.pop(key, None)
        self._renamed.pop(key, None)
        message.status = status
        message.mark_complete()
        self._sizes.pop(message.id, None)
        if call is not None and status == "completed":
            self._expect_output(call, pending_key)
        yield message.done_event(message, position=cause.position, raw_item=cause.raw_item)

    def _close_open(self, status: e.RunStatus, cause: e.Event) -> Iterator[e.Event]:
        """All open messages are done, because their run or its source ends with this status."""
        for key, message in [*self._open.items(), *self._renamed.items()]:
            if self._halves:
                yield from self._end_half(key, message, cause)
            yield from self._close(key, message, e.OPEN_MESSAGE_STATUS[status], cause)

    def _complete_call_passed(self, event: e.CallPassed) -> Iterator[e.Event]:
        """The provider has begun another call after this one."""
        call = self._find(event.message.id)
        if isinstance(call, ToolCallMessage) and isinstance(_json(call.content), dict):
            done = e.ToolCallDone(event.message, position=event.position, raw_item=event.raw_item)
            yield from self._complete_done(done)

    def _check_arguments(self, call: ToolCallMessage, key: str, cause: e.Event) -> Iterator[e.Event]:
        if call.metadata.get("custom") is True or isinstance(_json(call.content or "{}"), dict):
            return
        fault = f"the arguments of tool call {key!r} are no JSON object; `arguments` is empty"
        if fault not in self._faults:  # another engine may have reported it
            yield self._warn("bad-arguments", fault, cause)

    def output(self, call: ToolCallMessage, value: object) -> Iterator[e.Event]:
        """Our answer to a tool call, as a message of the stream."""
        message = ToolOutputMessage(
            f"{call.id}.output",
            name=call.name,
            call_id=call.call_id or call.id,
            content=output_text(value),
            choice=call.choice,
        )
        yield from self._complete_done(e.ToolOutputDone(message))

    # -- about a message

    def _complete_active_line(self, event: e.ActiveLine) -> Iterator[e.Event]:
        message = self._find(event.message_id)
        if message is None and event.line is not None and event.message_id not in self._ids:
            yield from self.runs.open_step(event)
        yield from self._code_runs()
        if isinstance(message, ConsoleMessage):
            message.active_line = event.line
        elif message is None:
            self._early_lines[event.message_id] = event.line
        id, snapshot = (event.message_id, event.snapshot) if message is None else (message.id, message)
        yield e.ActiveLine(id, event.line, snapshot, position=event.position, raw_item=event.raw_item)

    def _complete_annotation(self, event: e.AnnotationAdded) -> Iterator[e.Event]:
        message = self._find(event.message_id)
        if isinstance(message, TextMessage):
            yield from self._annotate(message, event.annotation, event)
            return
        fault = f"an annotation came for {event.message_id!r}, which is no open text; it was dropped"
        yield self._warn("stray-annotation", fault, event)

    def _annotate(self, message: TextMessage, annotation: Any, cause: e.Event) -> Iterator[e.Event]:
        seen = self._annotated.setdefault(message.id, set())
        key = json_key(annotation)
        if key in seen:
            return  # it comes with its delta, and again with the complete item
        seen.add(key)
        message.annotations.append(annotation)
        yield e.AnnotationAdded(message.id, annotation, message, position=cause.position, raw_item=cause.raw_item)

    # -- runs and steps

    def _complete_run_created(self, event: e.RunCreated) -> Iterator[e.Event]:
        return self.runs.open(event.run, event)

    def _complete_run_done(self, event: e.RunDone) -> Iterator[e.Event]:
        """The source says how its run ended. `RunDone` itself comes when the stream ends: another source may follow."""
        outcome = event.run
        self._drop(event)
        yield from self.runs.open(outcome, event)
        if not self.runs.steps:
            yield from self.runs.open_step(event)
        if outcome.status == "in_progress":
            outcome = msgspec.structs.replace(outcome, status="completed")
        self.runs.end_with(outcome)
        yield from self._close_open(outcome.status, event)

    def _complete_requires_action(self, event: e.RunRequiresAction) -> Iterator[e.Event]:
        yield from self.runs.open_step(event)
        yield from self.runs.require_action(event.run, event)

    def _complete_step_created(self, event: e.RunStepCreated) -> Iterator[e.Event]:
        return self.runs.begin_step(event.run_step, event)

    def _complete_step_done(self, event: e.RunStepDone) -> Iterator[e.Event]:
        return self.runs.end_step(event.run_step, event)

    def _complete_usage(self, event: e.Usage) -> Iterator[e.Event]:
        yield from self.runs.open_step(event)
        self.runs.count(msgspec.structs.replace(event, raw_item=None, position=None))  # the item may be large
        yield event

    # -- endings

    def source_done(self, *, complete: bool) -> Iterator[e.Event]:
        """The source has no more items. Closes the messages; the step stays open for answers.

        `complete`: the source's protocol says that nothing is missing.
        """
        outcome = self.runs.outcome
        status: e.RunStatus = "completed" if complete else "incomplete"
        if outcome is not None:
            status = outcome.status
        elif self.failure is not None:
            status = "failed"
        yield from self._close_open(status, _NO_CAUSE)
        yield from self._decline_unanswerable()
        failed = outcome is not None and outcome.status in _FAILED
        open_calls = [call for call in self.unanswered if call.answer_slot is None or not call.answer_slot.given]
        if open_calls and complete and not failed and not self.runs.requires_action:
            yield from self._complete_requires_action(e.RunRequiresAction(e.Run()))

    @property
    def cut_short(self) -> bool:
        """Whether the source said that its answer is not complete."""
        return self.runs.outcome is not None and self.runs.outcome.status in ("incomplete", "cancelled")

    def next_source(self, *, same_step: bool = False) -> Iterator[e.Event]:
        """The run goes on with another source: in a new step, unless that source belongs to the step before."""
        if self.runs.step is not None and not same_step:
            yield from self.runs.end_step(e.RunStep(status="completed"), _NO_CAUSE)
        self.runs.resume()
        self.source_ends.clear()
        self._open.clear()
        self._renamed.clear()

    def end(self, status: e.RunStatus | None = None, error: Mapping[str, Any] | None = None) -> Iterator[e.Event]:
        """Close everything that is open, and the run. `status` says how, where the source did not."""
        if self.runs.ended:
            return
        outcome = self.runs.outcome.status if self.runs.outcome else "completed"
        if outcome in ("completed", "in_progress") and self.unanswered:
            outcome = "requires_action"
        how: e.RunStatus = status or outcome
        yield from self._close_open(how, _NO_CAUSE)
        for confirmation in self.pending_confirmations:
            yield from self.settle(confirmation, False, reason="not answered")
        for call in self.unanswered:
            if call.answer_slot is not None:
                call.answer_slot.close()
        for event in self.runs.end(how, error):
            yield from self.end_event(event) if isinstance(event, e.RunDone) else (event,)

    def end_event(self, event: e.Event) -> Iterator[e.Event]:
        """An event of the stream's end, with the cursor that it has in a canonical source. Nothing, where it was delivered
        before the cursor after which the stream resumes."""
        event.position = self.source_ends.get(type(event))
        if type(event) not in self.ends_before:
            yield event

    # -- warnings

    def _take_warning(self, event: e.StreamWarning) -> Iterator[e.Event]:
        yield self._checked(event)

    def _warn(self, code: str, fault: str, cause: e.Event) -> e.Event:
        """The warning of a fault that the engine found."""
        index = self._item_index if cause is self._cause else None
        if index is None:
            index = self.number_of(cause.raw_item)
        return self._checked(
            e.StreamWarning(code, fault, index, cause.type, position=cause.position, raw_item=cause.raw_item)
        )

    def _checked(self, warning: e.StreamWarning) -> e.Event:
        if self.strict:
            raise ProtocolError(warning.code, warning.fault, warning.index, warning.kind)
        return self._listed(warning)

    def advise(self, code: str, fault: str) -> e.Event:
        """A warning about the application, not its source: a strict stream does not raise it."""
        return self._listed(e.StreamWarning(code, fault))

    def _listed(self, warning: e.StreamWarning) -> e.Event:
        if len(self.warnings) < _MOST_WARNINGS:
            raw = warning.raw_item
            is_long = isinstance(raw, bytes) and len(raw) > _LONG_ITEM
            self.warnings.append(msgspec.structs.replace(warning, raw_item=None) if is_long else warning)
            self._faults.add(warning.fault)
        return warning

    # What completes the events of a class and of those derived from it.
    completions: ClassVar[dict[type[e.Event], _Completion]] = {
        e.Event: _emit_in_step,
        e.RawEvent: _emit,
        e.Created: _complete_created,
        e.Delta: _complete_delta,
        SplitDelta: _complete_split_delta,
        e.Done: _complete_done,
        e.CallPassed: _complete_call_passed,
        e.ActiveLine: _complete_active_line,
        e.AnnotationAdded: _complete_annotation,
        e.RunCreated: _complete_run_created,
        e.RunRequiresAction: _complete_requires_action,
        e.RunDone: _complete_run_done,
        e.RunStepCreated: _complete_step_created,
        e.RunStepDone: _complete_step_done,
        e.Usage: _complete_usage,
        e.ConfirmationCreated: PendingAnswers.confirmation_created,
        e.ConfirmationDone: PendingAnswers.confirmation_done,
        e.StreamWarning: _take_warning,
        e.StreamException: _keep_failure,
        e.StreamTimeout: _drop,
        e.StreamEnd: _drop,
    }


def _completion_of(kind: type[e.Event]) -> _Completion:
    completion = Engine.completions.get(kind)
    if completion is None:
        completion = next(Engine.completions[base] for base in kind.__mro__ if base in Engine.completions)
        Engine.completions[kind] = completion
    return completion


def _cut(items: list[_T], newest: int, is_over: Callable[[_T], bool]) -> list[_T]:
    """Take what is over out of a list, except for the newest items. In one step, for other threads read the list."""
    old = items[:-newest]
    cut = [item for item in old if is_over(item)]
    if cut:
        items[: len(old)] = [item for item in old if not is_over(item)]
    return cut


def _nothing() -> None:
    """What wakes a stream that nothing waits for."""


def _unknown(raw_item: object) -> None:
    """The number of an item that is unknown."""


def _ids_from(ids: UniqueIds) -> Callable[[], str]:
    """A function that gives ids which are free."""
    numbers = count(1)
    return lambda: ids.free(f"message-{next(numbers)}")


def _json(text: str) -> Any:
    try:
        return decode_json(text)
    except (ValueError, RecursionError):  # not JSON, or nested too deep to be read
        return None
