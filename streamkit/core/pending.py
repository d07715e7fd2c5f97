"""What waits for an answer: confirmations, and tool calls that the application is to answer.

    confirmation   pending -> approved | declined    by an answer; approved if its code runs all the same; declined at the end
    tool call      pending -> answered               by an output, ours or the source's

The engine makes an `Answer` only where the source can take one, so that an answer which would change nothing is refused
where it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .. import events as e
from ..answers import Answer, Confirmation
from ..messages import Message, ToolCallMessage
from .run_tracker import RunTracker
from .unique_ids import UniqueIds

__all__ = ["PendingAnswers"]


class PendingAnswers:
    """The part of the engine that knows what waits for an answer.

    Attributes:
        pending: what waits: confirmations by their id, tool calls by their call id.
        confirmations: all of them, in the order they came.
        declined: a confirmation was declined and pulling on would run it all the same, so nothing more is pulled.
        wake: called from the answering thread when something was answered or deferred.

    What the source can do with answers. Who opens a source sets the first and third; `then=`, an agent or a relay the rest:
        pull_approves: pulling on runs what a confirmation shows.
        takes_approvals: the next request carries the decisions.
        takes_edits: an approval may carry edited code.
        takes_outputs: outputs of tool calls lead somewhere.
        takes_awaitables: an output may be an awaitable.
        executes: whether the source itself answers a call.
        new_answer: makes the place for an answer.
    """

    messages: list[Message]
    runs: RunTracker

    def __init__(self, wake: Callable[[], None] | None) -> None:
        self.wake: Callable[[], None] = wake or _nothing
        self.pending: dict[str, Confirmation | ToolCallMessage] = {}
        self.confirmations: list[Confirmation] = []
        self.declined = False
        self.pull_approves = False
        self.takes_approvals = False
        self.takes_edits = False
        self.takes_outputs = False
        self.takes_awaitables = False
        self.executes: Callable[[ToolCallMessage], bool] = _never
        self.new_answer: type[Answer] = Answer
        self._pending_ids = UniqueIds(self.pending)

    def _warn(self, code: str, fault: str, cause: e.Event) -> e.Event:
        raise NotImplementedError("the engine's")

    # -- confirmations

    def confirmation_done(self, event: e.ConfirmationDone) -> Iterator[e.Event]:
        """The source decided: `settle` emits the outcome."""
        outcome = event.confirmation
        confirmation = self.pending.get(outcome.id)
        if isinstance(confirmation, Confirmation):
            approved = outcome.status == "approved"
            yield from self.settle(confirmation, approved, edited=outcome.edited, reason=outcome.reason)

    def confirmation_created(self, event: e.ConfirmationCreated) -> Iterator[e.Event]:
        """The source asks for a confirmation."""
        question = event.confirmation
        if isinstance(self.pending.get(question.id), Confirmation):
            yield self._warn("duplicate-confirmation", f"confirmation {question.id!r} came twice", event)
            return
        yield from self.runs.open_step(event)
        confirmation = Confirmation(
            self._pending_ids.free(question.id), self._subject(question.subject), malformed=question.malformed
        )
        if question.answer_slot is not None:  # another stream's: that stream waits for the answer
            confirmation.answer_slot = question.answer_slot
            confirmation.editable = question.editable
        elif (self.pull_approves or self.takes_edits or self.takes_approvals) and not question.malformed:
            confirmation.answer_slot = self.new_answer(f"confirmation {question.id!r}", self.wake)
            confirmation.editable = self.takes_edits
        self.pending[confirmation.id] = confirmation
        self.confirmations.append(confirmation)
        yield e.ConfirmationCreated(confirmation, position=event.position, raw_item=event.raw_item)
        if question.malformed:
            yield from self.settle(confirmation, False, reason="malformed")

    def _subject(self, subject: Message) -> Message:
        """The stream's own message of what wants to run, if it says the same as the confirmation, else the latter's."""
        for message in reversed(self.messages):
            if message.id == subject.id:
                shown = (message.type, message.format, message.content)
                return message if shown == (subject.type, subject.format, subject.content) else subject
        return subject

    def settle(
        self, confirmation: Confirmation, approved: bool, *, edited: str | None = None, reason: str | None = None
    ) -> Iterator[e.Event]:
        """Decide a confirmation, and emit the outcome. Nothing happens if it was decided before."""
        if self.pending.pop(confirmation.id, None) is None:
            return
        confirmation.settle(approved, edited=edited, reason=reason)
        if not approved:
            if self.pull_approves:
                self.declined = True
                self.end_declined()
            if confirmation.subject.call_id is not None:
                self._call_answered(confirmation.subject.call_id)  # a declined call gets no other output
        yield e.ConfirmationDone(confirmation)

    def end_declined(self) -> None:
        """The run ends here because a confirmation was declined."""
        self.runs.outcome = e.Run(status="completed", finish_reason="declined")
        if self.runs.run is not None:
            self.runs.run.finish_reason = "declined"

    def _code_runs(self) -> Iterator[e.Event]:
        """Code runs, so whoever could decide has approved it."""
        for confirmation in self._unanswerable():
            yield from self.settle(confirmation, True)

    def _decline_unanswerable(self) -> Iterator[e.Event]:
        for confirmation in self._unanswerable():
            yield from self.settle(confirmation, False, reason="not answered")

    def _unanswerable(self) -> list[Confirmation]:
        """The pending confirmations that take no answer of ours."""
        return [one for one in self.pending_confirmations if one.answer_slot is None]

    @property
    def pending_confirmations(self) -> list[Confirmation]:
        """The confirmations that were not decided yet."""
        return [waiting for waiting in self.pending.values() if isinstance(waiting, Confirmation)]

    # -- tool calls

    @property
    def unanswered(self) -> list[ToolCallMessage]:
        """The tool calls that want our output and have none."""
        return [waiting for waiting in self.pending.values() if isinstance(waiting, ToolCallMessage)]

    def _expect_output(self, call: ToolCallMessage) -> str:
        """A complete call wants an output, ours unless the source executes it. Returns the key that it has, or would have, in `pending`."""
        key = self._pending_ids.free(call.call_id or call.id)
        if not self.executes(call):
            if call.answer_slot is None and self.takes_outputs:
                call.answer_slot = self.new_answer(f"tool call {key!r}", self.wake, awaitables=self.takes_awaitables)
            self.pending[key] = call
        return key

    def _call_answered(self, call_id: str | None) -> None:
        """A call got its output."""
        for key, waiting in self.pending.items():
            if isinstance(waiting, ToolCallMessage) and call_id in (waiting.call_id, waiting.id):
                del self.pending[key]
                return

    def drop_calls(self) -> None:
        """The pending calls take no answer any more."""
        for key, waiting in [*self.pending.items()]:
            if isinstance(waiting, ToolCallMessage):
                del self.pending[key]
                if waiting.answer_slot is not None:
                    waiting.answer_slot.close()


def _nothing() -> None:
    """The `wake` of an engine that no stream waits on."""


def _never(call: ToolCallMessage) -> bool:
    return False
