"""The engine: completes what a decoder reports into well-formed events, for every protocol alike.

It keeps the brackets, and repairs what breaks them:

    run        created before anything in it, done after all of it; it has at least one step
    message    created once, empty, before its first delta; done once, after its last delta
    content    the sum of the deltas, and in the end the provider's own

What was not opened is opened. What stays open is closed, with a status that says how it ended. Repairs are reported as
warnings. Feeding an engine the events of another one changes nothing.

Here is what completes each class of events, and how runs and sources end. The brackets of messages are kept in
`open_messages`, their content in `message_content`, and what waits for an answer in `pending`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Protocol, TypeVar

from msgspec.structs import replace

from .. import events as e
from ..answers import NOT_ANSWERED
from ..shared_names import share_names
from .message_content import MessageContent
from .open_messages import NOTHING
from .pending import NO_CONFIRMATIONS, NO_QUESTIONS, NOBODY, PendingAnswers, Waker
from .run_tracker import RunTracker
from .split_text import SplitDelta
from .warning_list import WarningList

__all__ = ["Engine"]

_T = TypeVar("_T")
_Completion = Callable[[Any, Any], Iterable[e.Event]]  # takes the engine and an event

_FAILED = ("failed", "expired", "incomplete", "cancelled")
_NO_CAUSE = e.StreamEnd()  # of events that no item of the source caused


class _Decoder(Protocol):
    exhausted: bool


class _NoDecoder:
    """In the place of a decoder, before there is one and after the end."""

    exhausted = False


_NO_DECODER = _NoDecoder()


class _Completions(dict[type[e.Event], _Completion]):
    """The method that completes an event, by the event's class. A class without an entry has that of its nearest base."""

    def __missing__(self, kind: type[e.Event]) -> _Completion:
        completion = self[kind] = next(self[base] for base in kind.__mro__ if base in self)
        return completion


class Engine(MessageContent):
    """One stream's state: its messages, its run, what is open and what waits for an answer.

    Args:
        strict: raise `ProtocolError` where a lenient engine warns and repairs.
        waker: its `answer_came` is called from the answering thread when something that waits was answered.

    Attributes:
        runs: the run and its steps.
        failure: the failure that another stream reported, which is read as canonical events.
        decoder: the present source's, which knows the numbers of the newest items.
        forgotten_deltas: how many deltas the messages had that `forget_oldest` removed.
        is_ending: whether the stream ends, so that what is open is closed.
        is_canonical: whether the source is another stream's events, whose end is this stream's end.
        source_ends: the cursors of the events with which a canonical source ended, by their class.
        ends_before: the classes of those among them that come before the cursor after which the stream resumes.
        cause: the event that is being completed, or was last.
    """

    failure: e.StreamException | None = None
    forgotten_deltas = 0
    _forget_above = 0  # how many of one kind there may be, because few were over when they were looked at last
    is_ending = False
    is_canonical = False
    source_ends: dict[type[e.Event], int | str | None] = NOTHING
    ends_before: frozenset[type[e.Event]] = frozenset()
    _warning_list: WarningList | None = None  # most streams have no warning
    cause: e.Event | None = None
    _item_index: int | None = None  # the number of the item that it came from
    decoder: _Decoder = _NO_DECODER

    def __init__(self, *, strict: bool = False, waker: Waker = NOBODY) -> None:
        super().__init__(waker)
        self.runs = RunTracker()
        self._strict = strict

    # -- what drives it, and what it forgets

    def release(self) -> None:
        """Nothing more comes. Refer no more to what drives the engine, so that both are freed as soon as nothing else
        refers to them, and keep no more than what users read: messages, the run and its steps, warnings."""
        super().release()
        self.waker, self.decoder = NOBODY, _NO_DECODER
        self.source_ends = self._halves = NOTHING
        if self.questions is not None:
            self.pending, self.confirmations = self.pending or NO_QUESTIONS, self.confirmations or NO_CONFIRMATIONS
        self.runs.release()
        self.cause = None

    def forget_oldest(self, limit: int) -> None:
        """Forget messages, confirmations and run steps that are over, the oldest first, so that the newest `limit` of each
        kind stay. An eighth of them at once, so that it is seldom done; where few were over, not before there are an eighth
        more."""
        most = max(limit + limit // 8, self._forget_above)
        if max(len(self._messages), len(self.confirmations), len(self.runs.steps)) <= most:
            return
        for message in _cut(self._messages, limit, lambda message: message.status != "in_progress"):
            self.forgotten_deltas += message.delta_count
            self._by_id.pop(message.id, None)
            self._ids.forget(message.id)
        _cut(self.confirmations, limit, lambda confirmation: confirmation.id not in self.pending)
        self.runs.forget_steps(_cut(self.runs.steps, limit, lambda step: step is not self.runs.step))
        left = max(len(self._messages), len(self.confirmations), len(self.runs.steps))
        self._forget_above = left + left // 8

    # -- completing events

    def complete(self, events: Iterable[e.Event]) -> Iterator[e.Event]:
        """Complete events, each when the one before was handled."""
        for event in events:
            if self.append_delta(event):
                yield event
            else:
                yield from self.complete_event(event)

    def append_delta(self, event: Any) -> bool:
        """Append a delta of an open message: the common case, in which the event is complete as it is. False for any
        other event, which `complete_event` is for."""
        message = self.open_by_id.get(event.message_id)
        if message is None or type(event) is not message.delta_event or event.replace:
            return False
        self.grow(message, event.value)
        event.snapshot = message
        return True

    def complete_event(self, event: e.Event) -> Iterable[e.Event]:
        """Any event, with everything that belongs before and after it: to be handled before another event is completed."""
        self.cause = event
        self._item_index = event.item_index
        event.item_index = None
        return _COMPLETIONS[event.__class__](self, event)

    def _emit(self, event: e.Event) -> Iterable[e.Event]:
        return (event,)

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
            self.source_ends = {**self.source_ends, type(event): event.position}
        return iter(())

    # -- runs and steps

    def _complete_run_created(self, event: e.RunCreated) -> Iterable[e.Event]:
        return self.runs.open(event.run, event)

    def _complete_run_done(self, event: e.RunDone) -> Iterator[e.Event]:
        """The source says how its run ended. `RunDone` itself comes when the stream ends: another source may follow."""
        outcome, runs = event.run, self.runs
        if self.is_canonical:
            self._drop(event)
        if runs.run is None:
            yield from runs.open(outcome, event)
        if not runs.steps:
            yield from runs.open_step(event)
        if outcome.status == "in_progress":
            outcome = replace(outcome, status="completed")
        runs.end_with(outcome)
        if self.open_by_id or self._renamed:
            yield from self._close_open(outcome.status, event)

    def _complete_requires_action(self, event: e.RunRequiresAction) -> Iterator[e.Event]:
        yield from self.runs.open(e.Run(), event)
        yield from self.runs.require_action(event.run, event)

    def _complete_step_created(self, event: e.RunStepCreated) -> Iterator[e.Event]:
        return self.runs.begin_step(event.run_step, event)

    def _complete_step_done(self, event: e.RunStepDone) -> Iterator[e.Event]:
        return self.runs.end_step(event.run_step, event)

    def _complete_usage(self, event: e.Usage) -> Iterator[e.Event]:
        yield from self.runs.open_step(event)
        self.count_in_step(event)
        yield event

    def count_in_step(self, event: e.Usage) -> bool:
        """Count tokens in the open step: then the event is complete as it is. False if no step is open."""
        runs = self.runs
        if (step := runs.step) is None:
            return False
        runs.count(step, replace(event, raw_item=None, position=None))  # the item may be large
        return True

    # -- endings

    def _close_open(self, status: e.RunStatus, cause: e.Event) -> Iterator[e.Event]:
        """All open messages are done, because their run or its source ends with this status."""
        for key, message in [*self.open_by_id.items(), *self._renamed.items()]:
            if self._halves:
                yield from self._end_half(key, message, cause)
            yield from self._close(key, message, e.OPEN_MESSAGE_STATUS[status], cause)

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
        if self.open_by_id or self._renamed:
            yield from self._close_open(status, _NO_CAUSE)
        if not self.pending:
            return
        yield from self._settle_unanswerable()
        failed = outcome is not None and outcome.status in _FAILED
        later = self.answered_later
        waiting = [call for call in self.unanswered if (call.call_id or call.id) not in later]
        open_calls = [call for call in waiting if call.answer_slot is None or not call.answer_slot.given]
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
        self.source_ends = self._renamed = NOTHING
        self.open_by_id.clear()

    def end(self, status: e.RunStatus | None = None, error: Mapping[str, Any] | None = None) -> Iterator[e.Event]:
        """Close everything that is open, and the run. `status` says how, where the source did not."""
        runs = self.runs
        if runs.ended:
            return
        self.is_ending = True
        outcome = "completed" if runs.outcome is None else runs.outcome.status
        if self.questions is not None and self.has_open_questions and outcome in ("completed", "in_progress"):
            outcome = "requires_action"
        how: e.RunStatus = status or outcome
        if self.open_by_id or self._renamed:
            yield from self._close_open(how, _NO_CAUSE)
        for confirmation in self.pending_confirmations:
            if status is None:
                yield from self.settle(confirmation, "unanswered")
            else:
                yield from self.settle(confirmation, "declined", reason=NOT_ANSWERED)
        for call in self.unanswered:
            if call.answer_slot is not None:
                call.answer_slot.close()
        if how == "requires_action" and not runs.requires_action and runs.run is not None:
            yield from runs.require_action(e.Run(), _NO_CAUSE)
        yield from runs.end_last_step(how, error)
        run_done = runs.end(how, error)
        if run_done is not None and self.takes_place(run_done):
            yield run_done

    def takes_place(self, event: e.Event) -> bool:
        """Give an event of the stream's end the cursor that it has in a canonical source. Returns False if it is not to be
        delivered, because it comes before the cursor after which the stream resumes."""
        event.position = self.source_ends.get(event.__class__)
        return event.__class__ not in self.ends_before

    # -- warnings

    @property
    def warning_list(self) -> WarningList:
        """The warnings, and what a strict engine raises."""
        if self._warning_list is None:
            self._warning_list = WarningList(strict=self._strict)
        return self._warning_list

    @property
    def warnings(self) -> list[e.StreamWarning]:
        """The first 1000."""
        return [] if self._warning_list is None else self._warning_list.warnings

    def _take_warning(self, event: e.StreamWarning) -> Iterator[e.Event]:
        yield self.warning_list.add_checked(event)

    def _warn(self, code: str, fault: str, cause: e.Event) -> e.Event:
        """The warning of a fault that the engine found."""
        index = self._item_index if cause is self.cause else cause.item_index
        return self.warning_list.add_checked(
            e.StreamWarning(code, fault, index, cause.type, position=cause.position, raw_item=cause.raw_item)
        )

    def advise(self, code: str, fault: str) -> e.Event:
        """A warning about the application, not its source: a strict stream does not raise it."""
        return self.warning_list.add(e.StreamWarning(code, fault))

    completions: ClassVar[_Completions] = _Completions(
        {
            e.Event: _emit_in_step,
            e.RawEvent: _emit,
            e.Created: MessageContent.complete_created,
            e.NewMessage: MessageContent.complete_new_message,
            e.Delta: MessageContent.complete_delta,
            SplitDelta: MessageContent.complete_split_delta,
            e.Done: MessageContent.complete_done,
            e.MessageEnded: MessageContent.complete_message_ended,
            e.CallPassed: MessageContent.complete_call_passed,
            e.PossibleRepeat: MessageContent.complete_possible_repeat,
            e.ActiveLine: MessageContent.complete_active_line,
            e.AnnotationAdded: MessageContent.complete_annotation,
            e.MetadataHeld: MessageContent.count_metadata,
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
    )


share_names(
    Engine,
    """questions pending waker confirmations changes _sizes _messages open_by_id _made_by_id _made_ids _numbered_id new_id runs _strict decoder
    takes_awaitables takes_edits pull_approves pull_approved has_outcomes is_canonical cause _item_index is_ending source_ends
    _halves _renamed _early_lines _annotated _open_calls _answered_early""",
)

_COMPLETIONS = Engine.completions


def _cut(items: list[_T], newest: int, is_over: Callable[[_T], bool]) -> list[_T]:
    """Take what is over out of a list, except for the newest items. In one step, for other threads read the list."""
    old = items[:-newest]
    cut = [item for item in old if is_over(item)]
    if cut:
        items[: len(old)] = [item for item in old if not is_over(item)]
    return cut
