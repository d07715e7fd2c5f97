"""The engine completes what a decoder reports into well-formed events, for every protocol alike.

It keeps the brackets, and repairs what breaks them:

    run        created before anything in it, done after all of it; it has at least one step
    message    created once, empty, before its first delta; done once, after its last delta
    content    the sum of the deltas, and in the end the provider's own

What was not opened is opened. What stays open is closed, with a status that says how it ended. Repairs are reported as
warnings. Feeding an engine the events of another one changes nothing.

This module has the table of the methods that complete each class of events, and the ends of sources and of the stream.
`message_store` opens and closes messages, `message_content` completes their contents, `pending` has the questions that wait for
an answer, `run_tracker` the run and its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

from msgspec.structs import replace

from .. import events as e
from ..answers import NOT_ANSWERED, Confirmation
from .message_content import MessageContent
from .message_store import MessageStore
from .pending import PendingAnswers, wake_nothing
from .run_tracker import RunTracker
from .split_text import SplitDelta
from .warning_list import WarningList

__all__ = ["Engine"]

_T = TypeVar("_T")
_Completion = Callable[[Any, Any], Iterable[e.Event]]  # takes the engine and an event

_FAILED = ("failed", "expired", "incomplete", "cancelled")


class _Completions(dict[type[e.Event], _Completion]):
    """The method that completes an event, by the event's class. A class without an entry has that of its nearest base."""

    def __missing__(self, kind: type[e.Event]) -> _Completion:
        completion = self[kind] = next(self[base] for base in kind.__mro__ if base in self)
        return completion


class Engine:
    """Completes the events of one stream.

    Args:
        strict: raise `ProtocolError` where a lenient engine warns and repairs.
        wake: called in the answering thread when a question was answered.

    Attributes:
        messages: the messages, and which of them are open.
        content: completes their contents.
        pending: the confirmations and calls that wait for an answer.
        runs: the run and its steps.
        warning_list: the repairs.
        failure: the error event of a canonical source: the stream behind it failed.
        forgotten_deltas: how many deltas the messages had that `forget_oldest` removed.
        is_ending: whether the stream ends, so that what is open is closed.
        source_ends: the cursors of a canonical source's last events (`RunDone`, `StreamEnd` …), by their class. This stream's own
            events of these classes get the same cursors.
        ends_before: the classes of such events that the application has received already, before it resumed the stream.
    """

    __slots__ = (
        "__weakref__",
        "_forget_above",
        "content",
        "ends_before",
        "failure",
        "forgotten_deltas",
        "is_ending",
        "messages",
        "pending",
        "runs",
        "source_ends",
        "warning_list",
    )

    def __init__(self, *, strict: bool = False, wake: Callable[[], None] = wake_nothing) -> None:
        self.warning_list = WarningList(strict=strict)
        self.runs = RunTracker()
        self.pending = PendingAnswers(self.runs, self.warning_list, wake)
        self.messages = MessageStore(self.runs, self.pending, self.warning_list)
        self.content = MessageContent(self.messages, self.runs, self.pending, self.warning_list)
        self.failure: e.StreamException | None = None
        self.forgotten_deltas = 0
        self.is_ending = False
        self.source_ends: dict[type[e.Event], int | str | None] = {}
        self.ends_before: Collection[type[e.Event]] = ()
        self._forget_above = 0  # up to this length lists are left alone: little could be forgotten the last time

    # -- its memory

    def release(self) -> None:
        """Drop the references to the newest item and to the stream, because no more events come: so the garbage collector is
        not needed to free them. What users read stays: messages, the run and its steps, warnings."""
        self.messages.release()
        self.pending.release()
        self.warning_list.cause = None
        self.source_ends = {}

    def forget_oldest(self, limit: int) -> None:
        """Forget the oldest messages, confirmations and run steps that are over, so that about `limit` of each kind stay.

        A list is cut when it is an eighth longer than the limit, so that the cost for each item does not grow. If a cut leaves it
        longer, because little of it was over, the next cut comes when it is an eighth longer than that.
        """
        messages, confirmations, steps = self.messages.all, self.pending.confirmations, self.runs.steps
        most = max(limit + limit // 8, self._forget_above)
        if max(len(messages), len(confirmations), len(steps)) <= most:
            return
        for message in _cut(messages, limit, lambda message: message.status != "in_progress"):
            self.forgotten_deltas += message.delta_count
            self.messages.forget(message)
        self.messages.forget_retries(limit)
        _cut(confirmations, limit, lambda confirmation: confirmation.id not in self.pending.waiting)
        self.runs.forget_steps(_cut(steps, limit, lambda step: step is not self.runs.step))
        left = max(len(messages), len(confirmations), len(steps))
        self._forget_above = left + left // 8

    # -- completing events

    def complete(self, events: Iterable[e.Event]) -> Iterator[e.Event]:
        """Yield the completed events. Each one is completed after the caller has handled the one before."""
        for event in events:
            if self.append_delta(event):
                yield event
            else:
                yield from self.complete_event(event)

    def append_delta(self, event: Any) -> bool:
        """Append a delta of an open message: the common case, in which the event is complete as it is. Returns False
        for any other event, which `complete_event` is for."""
        message = self.messages.open_by_id.get(event.message_id)
        if message is None or type(event) is not message.delta_event or event.replace:
            return False
        self.messages.grow(message, event.value)
        event.snapshot = message
        return True

    def complete_event(self, event: e.Event) -> Iterable[e.Event]:
        """Complete any event. Yields it, with the events that belong before and after it. The caller handles each one before it
        takes the next, as in `complete`."""
        self.warning_list.cause, self.warning_list.item_index = event, event.item_index
        event.item_index = None
        return self.completions[event.__class__](self, event)

    def _emit(self, event: e.Event) -> Iterable[e.Event]:
        return (event,)

    def _emit_in_step(self, event: e.Event) -> Iterator[e.Event]:
        """Emit an event of a class that the application has declared. It is inside the run and its step as all others."""
        yield from self.runs.open_step(event)
        yield event

    def _note_failure(self, event: e.StreamException) -> Iterable[e.Event]:
        self.failure = event
        return self._note_source_end(event)

    def _note_source_end(self, event: e.Event) -> Iterable[e.Event]:
        """Note the cursor of a canonical source's last event, and emit nothing: this stream emits its own last events."""
        if self.pending.is_canonical:
            self.source_ends[type(event)] = event.position
        return ()

    # -- runs and steps

    def _complete_run_done(self, event: e.RunDone) -> Iterator[e.Event]:
        """Record how the source's run ended. `RunDone` is emitted at the end of the stream, because another source may
        follow."""
        outcome, runs = event.run, self.runs
        self._note_source_end(event)
        if runs.run is None:
            yield from runs.open(outcome, event)
        if not runs.steps:
            yield from runs.open_step(event)
        if outcome.status == "in_progress":
            outcome = replace(outcome, status="completed")
        runs.end_with(outcome)
        yield from self._close_open(outcome.status, event)

    def _complete_requires_action(self, event: e.RunRequiresAction) -> Iterator[e.Event]:
        yield from self.runs.open(e.Run(), event)
        yield from self.runs.require_action(event.run, event)

    def _complete_usage(self, event: e.Usage) -> Iterator[e.Event]:
        yield from self.runs.open_step(event)
        self.runs.count(replace(event, raw_item=None, position=None))  # the item may be large
        yield event

    # -- endings

    def _close_open(self, status: e.RunStatus, cause: e.Event) -> Iterator[e.Event]:
        """Close all open messages, because their run or its source ends with this status."""
        return self.content.close_all(e.OPEN_MESSAGE_STATUS[status], cause)

    def source_done(self, *, complete: bool) -> Iterator[e.Event]:
        """Close the messages of a source that has no more items. The step stays open for answers.

        Args:
            complete: whether the answer is complete by the rule of the source's protocol.
        """
        outcome = self.runs.outcome
        status: e.RunStatus = "completed" if complete else "incomplete"
        if outcome is not None:
            status = outcome.status
            self.runs.step_reason = self.runs.step_reason or outcome.finish_reason
        elif self.failure is not None:
            status = "failed"
        yield from self._close_open(status, e.StreamEnd())
        if not self.pending.waiting:
            return
        yield from self.pending.source_done()
        failed = outcome is not None and outcome.status in _FAILED
        if complete and not failed and not self.runs.requires_action and self.pending.open_calls:
            yield from self._complete_requires_action(e.RunRequiresAction(e.Run()))

    @property
    def cut_short(self) -> bool:
        """Whether the source reported that its answer is not complete."""
        return self.runs.outcome is not None and self.runs.outcome.status in ("incomplete", "cancelled")

    def next_source(self, *, same_step: bool = False) -> Iterator[e.Event]:
        """Go on with another source of the same run: in a new step, unless that source belongs to the step before."""
        if self.runs.step is not None and not same_step:
            yield from self.runs.end_step(e.RunStep(status="completed"), e.StreamEnd())
        self.runs.resume()
        self.source_ends = {}
        self.messages.end_source()

    # -- attempts

    def end_attempt(self, retry: e.StreamRetry) -> Iterator[e.Event]:
        """End the step and the messages of a failed attempt at the present source, and withdraw the messages."""
        yield from self._close_open("failed", e.StreamEnd())
        yield from self._end_withdrawn(retry)
        self.pending.not_approved = False
        yield from self.runs.fail_step({"type": retry.error, "message": retry.message})
        self.source_ends = {}
        self.messages.end_source()
        yield from self._complete_retry(retry)

    def _end_withdrawn(self, retry: e.StreamRetry) -> Iterator[e.Event]:
        """End the messages that are withdrawn, and the questions about them, as far as they are open."""
        ids = {*retry.withdrawn}
        yield from self.content.close_all("failed", e.StreamEnd(), ids)
        for confirmation in self.pending.undecided:
            if confirmation.subject.id in ids:
                yield from self.pending.settle(confirmation, "unanswered")

    def _complete_retry(self, event: e.StreamRetry) -> Iterator[e.Event]:
        """Withdraw the messages of an attempt, and the questions about them."""
        yield from self._end_withdrawn(event)
        ids = {*event.withdrawn}
        for message in self.messages.withdraw(event):
            self.forgotten_deltas += message.delta_count
        for key, waiting in [*self.pending.waiting.items()]:
            subject = waiting.subject if isinstance(waiting, Confirmation) else waiting
            if subject.id in ids:
                self.pending.drop(key)
        self.pending.confirmations[:] = [one for one in self.pending.confirmations if one.subject.id not in ids]
        self.runs.resume()
        yield event

    # -- the end

    def end(self, status: e.RunStatus | None = None, error: Mapping[str, Any] | None = None) -> Iterator[e.Event]:
        """Close everything that is open, and the run.

        Args:
            status: of the run; None for the one that the source reported.
            error: of a run that failed.
        """
        runs = self.runs
        if runs.ended:
            return
        self.is_ending = True
        outcome = "completed" if runs.outcome is None else runs.outcome.status
        if self.pending.has_open_questions and outcome in ("completed", "in_progress"):
            outcome = "requires_action"
        how: e.RunStatus = status or outcome
        yield from self._close_open(how, e.StreamEnd())
        if self.pending.waiting:
            yield from self._end_questions(is_early=status is not None)
        if how == "requires_action" and not runs.requires_action and runs.run is not None:
            yield from runs.require_action(e.Run(), e.StreamEnd())
        yield from runs.end_last_step(how, error)
        run_done = runs.end(how, error)
        if run_done is not None and self.assign_cursor(run_done):
            yield run_done

    def _end_questions(self, *, is_early: bool) -> Iterator[e.Event]:
        """Settle the questions that are still open at the end."""
        for confirmation in self.pending.undecided:
            if is_early:
                yield from self.pending.settle(confirmation, "declined", reason=NOT_ANSWERED)
            else:
                yield from self.pending.settle(confirmation, "unanswered")
        for call in self.pending.unanswered:
            if call.answer_slot is not None:
                call.answer_slot.close()

    def assign_cursor(self, event: e.Event) -> bool:
        """Give one of the stream's last events the cursor of the canonical source's. Returns whether to deliver it: False if
        the application has received it before it resumed the stream."""
        event.position = self.source_ends.get(event.__class__)
        return event.__class__ not in self.ends_before

    def _complete_confirmation_created(self, event: e.ConfirmationCreated) -> Iterator[e.Event]:
        return self.pending.confirmation_created(event, self.messages.get(event.confirmation.subject.id))

    # -- warnings

    @property
    def warnings(self) -> list[e.StreamWarning]:
        """The first 1000 repairs."""
        return self.warning_list.warnings

    completions: ClassVar[_Completions] = _Completions(
        {
            e.Event: _emit_in_step,
            e.RawEvent: _emit,
            e.Created: lambda engine, event: engine.messages.complete_created(event),
            e.NewMessage: lambda engine, event: engine.messages.complete_new_message(event),
            e.Delta: lambda engine, event: engine.content.complete_delta(event),
            SplitDelta: lambda engine, event: engine.content.complete_split_delta(event),
            e.Done: lambda engine, event: engine.content.complete_done(event),
            e.MessageEnded: lambda engine, event: engine.content.complete_message_ended(event),
            e.CallPassed: lambda engine, event: engine.content.complete_call_passed(event),
            e.PossibleRepeat: lambda engine, event: engine.content.complete_possible_repeat(event),
            e.ActiveLine: lambda engine, event: engine.content.complete_active_line(event),
            e.AnnotationAdded: lambda engine, event: engine.content.complete_annotation(event),
            e.MetadataHeld: lambda engine, event: engine.content.count_metadata(event),
            e.RunCreated: lambda engine, event: engine.runs.open(event.run, event),
            e.RunRequiresAction: _complete_requires_action,
            e.RunDone: _complete_run_done,
            e.RunStepCreated: lambda engine, event: engine.runs.begin_step(event.run_step, event),
            e.RunStepDone: lambda engine, event: engine.runs.end_step(event.run_step, event),
            e.Usage: _complete_usage,
            e.ConfirmationCreated: _complete_confirmation_created,
            e.ConfirmationDone: lambda engine, event: engine.pending.confirmation_done(event),
            e.StreamWarning: lambda engine, event: (engine.warning_list.add_checked(event),),
            e.StreamRetry: _complete_retry,
            e.StreamException: _note_failure,
            e.StreamTimeout: _note_source_end,
            e.StreamEnd: _note_source_end,
        }
    )


def _cut(items: list[_T], newest: int, is_over: Callable[[_T], bool]) -> list[_T]:
    """Remove the items that are over, but not the newest ones, and return them. The list changes in one step, because other
    threads read it."""
    old = items[:-newest]
    cut = [item for item in old if is_over(item)]
    if cut:
        items[: len(old)] = [item for item in old if not is_over(item)]
    return cut
