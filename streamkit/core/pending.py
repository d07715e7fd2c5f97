"""What waits for an answer: confirmations, and tool calls that the application is to answer.

    confirmation   pending -> approved | declined    by an answer; approved if its code runs all the same; declined where the
                                                     stream is closed or cancelled, or fails
                   pending -> unanswered             where the source cannot continue without an answer: its run requires action
    tool call      pending -> answered               by an output, ours or the source's

The engine makes an `Answer` only where the source can take one, so that an answer which would change nothing is refused
where it is given.

Thousands of calls may be pending at once, and what waits is looked at after every batch. So nothing here walks through
all of it: an answer that changes says so (`Answer.changes`), and calls are found by their ids.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from .. import events as e
from ..answers import Answer, Confirmation, Outcome
from ..messages import Message, ToolCallMessage
from .questions import Questions
from .run_tracker import RunTracker

__all__ = ["NOBODY", "NO_CONFIRMATIONS", "NO_QUESTIONS", "PendingAnswers", "Waker"]

NO_CONFIRMATIONS: list[Confirmation] = []
"""Of the streams without any, which are most: nothing is added to it."""

NO_QUESTIONS: dict[str, Confirmation | ToolCallMessage] = {}
"""The same of what waits for an answer."""


class Waker(Protocol):
    """Who waits for answers. It is no function, which would be one more object in each stream."""

    def answer_came(self) -> None:
        """Something was answered or deferred, perhaps in another thread."""
        ...


class _Nobody:
    """In the place of a stream where none waits."""

    def answer_came(self) -> None:
        """Nobody looks."""


NOBODY = _Nobody()


def _never(call: ToolCallMessage) -> bool:
    return False


class PendingAnswers:
    """The part of the engine that knows what waits for an answer.

    Attributes:
        questions: everything about what waits for an answer or did before; None if nothing ever did.
        pending: what waits: confirmations by their id, tool calls by their call id.
        confirmations: all of them, in the order they came.
        answered_later: the ids of confirmations, and of calls that were promised an output, whose answer comes after the
            source's end, as a recording has it.
        not_approved: a confirmation was not approved and pulling on would run it all the same, so nothing more is pulled.
        waker: its `answer_came` is called from the answering thread when something was answered or deferred.

    What the source can do with answers. Who opens a source sets the first and third; `then=`, an agent or a relay the rest:
        pull_approves: pulling on runs what a confirmation shows.
        pull_approved: it did so when the source was recorded. The recording has the outcomes of its confirmations.
        has_outcomes: the source is a recording that has the outcomes of all its confirmations.
        takes_approvals: the next request carries the decisions.
        takes_edits: an approval may carry edited code.
        takes_outputs: outputs of tool calls lead somewhere.
        takes_awaitables: an output may be an awaitable.
        executes: whether the source itself answers a call.
        new_answer: makes the place for an answer.
        changes: the answers that were given, deferred or decided since they were looked at last. Any thread appends.
        removed: the keys of what is pending no longer; None unless somebody takes them.
    """

    runs: RunTracker
    is_canonical: bool
    answered_later: frozenset[str] = frozenset()
    not_approved = False
    pull_approves = False
    pull_approved = False
    has_outcomes = False
    takes_approvals = False
    takes_edits = False
    takes_outputs = False
    takes_awaitables = False
    executes: Callable[[ToolCallMessage], bool] = staticmethod(_never)
    new_answer: type[Answer] = Answer
    questions: Questions | None = None  # most streams have none
    pending: dict[str, Confirmation | ToolCallMessage] = NO_QUESTIONS
    confirmations = NO_CONFIRMATIONS
    changes: Collection[Answer] = ()
    removed: list[str] | None = None

    def __init__(self, waker: Waker) -> None:
        self.waker = waker

    @property
    def _made_questions(self) -> Questions:
        """The questions of the stream, which are created if there was none yet."""
        if self.questions is None:
            self.pending = {}
            self.questions = Questions(self.pending)
            self.changes = self.questions.changes
        return self.questions

    def message_with(self, id: str) -> Message | None:
        """Return the message with this id; None if there is none."""
        raise NotImplementedError("the engine's")

    def _warn(self, code: str, fault: str, cause: e.Event) -> e.Event:
        raise NotImplementedError("the engine's")

    # -- confirmations

    def confirmation_done(self, event: e.ConfirmationDone) -> Iterator[e.Event]:
        """The source decided: `settle` emits the outcome."""
        outcome = event.confirmation
        confirmation = self.pending.get(outcome.id)
        if isinstance(confirmation, Confirmation):
            status = "unanswered" if outcome.status == "pending" else outcome.status
            yield from self.settle(confirmation, status, edited=outcome.edited, reason=outcome.reason)

    def confirmation_created(self, event: e.ConfirmationCreated) -> Iterator[e.Event]:
        """The source asks for a confirmation."""
        question = event.confirmation
        if isinstance(self.pending.get(question.id), Confirmation):
            yield self._warn("duplicate-confirmation", f"confirmation {question.id!r} came twice", event)
            return
        yield from self.runs.open_step(event)
        questions = self._made_questions
        confirmation = Confirmation(
            questions.ids.free(question.id),
            self._subject(question.subject),
            malformed=question.malformed,
            expires_at=question.expires_at,
        )
        confirmation.editable = question.editable
        if question.answer_slot is not None:  # another stream's: that stream waits for the answer
            confirmation.answer_slot = question.answer_slot
        elif (self.pull_approves or self.takes_edits or self.takes_approvals) and not question.malformed:
            confirmation.answer_slot = self._new_answer(f"confirmation {question.id!r}", confirmation.id)
            confirmation.editable = self.takes_edits
            questions.confirmations.add(confirmation.answer_slot)
            questions.undeferred[confirmation.answer_slot] = None
        elif not (self.pull_approved or self.has_outcomes or self.is_canonical):
            questions.passive[confirmation.id] = call_id = confirmation.subject.call_id
            questions.passive_by_call.setdefault(call_id, {})[confirmation.id] = confirmation
        self.pending[confirmation.id] = questions.undecided[confirmation.id] = confirmation
        if self.confirmations is NO_CONFIRMATIONS:
            self.confirmations = []
        self.confirmations.append(confirmation)
        yield e.ConfirmationCreated(confirmation, position=event.position, raw_item=event.raw_item)
        if question.malformed:
            yield from self.settle(confirmation, "unanswered", reason="malformed")

    def _subject(self, subject: Message) -> Message:
        """The stream's own message of what wants to run, if it says the same as the confirmation, else the latter's."""
        message = self.message_with(subject.id)
        if message is None:
            return subject
        shown = (message.type, message.format, message.content)
        return message if shown == (subject.type, subject.format, subject.content) else subject

    def settle(
        self, confirmation: Confirmation, outcome: Outcome, *, edited: str | None = None, reason: str | None = None
    ) -> Iterator[e.Event]:
        """Decide a confirmation, and emit the outcome. Nothing happens if it was decided before."""
        if confirmation.id not in self.pending:
            return
        self._remove(confirmation.id)
        confirmation.settle(outcome, edited=edited, reason=reason)
        if outcome != "approved":
            if self.pull_approves or self.pull_approved:
                self.not_approved = True
                if outcome == "declined":
                    self.end_declined()
            if confirmation.subject.call_id is not None:
                self._call_answered(confirmation.subject.call_id)  # a call that is not approved gets no other output
        yield e.ConfirmationDone(confirmation)

    def end_declined(self) -> None:
        """The run ends here because a confirmation was declined."""
        self.runs.outcome = e.Run(status="completed", finish_reason="declined")
        if self.runs.run is not None:
            self.runs.run.finish_reason = "declined"

    def _code_runs(self, call_id: str | None) -> Iterator[e.Event]:
        """Code of this call runs, so whoever could decide has approved it. A question about another call stays open."""
        if (questions := self.questions) is not None:
            for confirmation in [*questions.passive_by_call.get(call_id, {}).values()]:
                yield from self.settle(confirmation, "approved")

    def _settle_unanswerable(self) -> Iterator[e.Event]:
        """The source has ended: nobody has answered what nobody could answer here."""
        if (questions := self.questions) is not None:
            later = self.answered_later
            for confirmation in [questions.undecided[id] for id in questions.passive if id not in later]:
                yield from self.settle(confirmation, "unanswered")

    @property
    def has_undecided(self) -> bool:
        """Whether there are confirmations that were not decided yet."""
        return self.questions is not None and bool(self.questions.undecided)

    @property
    def pending_confirmations(self) -> list[Confirmation]:
        """The confirmations that were not decided yet."""
        return [] if self.questions is None else [*self.questions.undecided.values()]

    @property
    def has_open_questions(self) -> bool:
        """Whether the run cannot go on before somebody answers: a confirmation that nobody decided, or a tool call."""
        undecided = ("pending", "unanswered")
        return any(confirmation.status in undecided for confirmation in self.confirmations) or bool(self.unanswered)

    # -- tool calls

    @property
    def unanswered(self) -> list[ToolCallMessage]:
        """The tool calls that want our output and have none."""
        if not self.pending:
            return []
        return [waiting for waiting in self.pending.values() if isinstance(waiting, ToolCallMessage)]

    def unanswered_with(self, id: str | None) -> list[ToolCallMessage]:
        """Those of them that have this call id, or are the message with this id."""
        if (questions := self.questions) is None:
            return []
        waiting = [self.pending[key] for key in questions.call_keys.get(id, ())] if id is not None else []
        return [call for call in waiting if isinstance(call, ToolCallMessage)]

    def _expect_output(self, call: ToolCallMessage, key: str) -> None:
        """A complete call wants an output, ours unless the source executes it. `key` is its key in `pending`."""
        if not self.executes(call):
            if call.answer_slot is None and self.takes_outputs:
                call.answer_slot = self._new_answer(f"tool call {key!r}", key, awaitables=self.takes_awaitables)
            questions = self._made_questions
            self.pending[key] = call
            for id in {call.call_id or call.id, call.id}:
                questions.call_keys.setdefault(id, OrderedDict())[key] = None

    def _call_answered(self, call_id: str | None) -> bool:
        """A call got its output: it takes none of ours any more. Returns whether one with this id was pending."""
        questions = self.questions
        if questions is not None and call_id is not None and (keys := questions.call_keys.get(call_id)):
            self._drop_call(next(iter(keys)))
            return True
        return False

    def drop_calls(self) -> None:
        """The pending calls take no answer any more."""
        for key, waiting in [*self.pending.items()]:
            if isinstance(waiting, ToolCallMessage):
                self._drop_call(key)

    def _drop_call(self, key: str) -> None:
        slot = self.pending[key].answer_slot
        self._remove(key)
        if slot is not None:
            slot.close()

    # -- answers of ours

    def _new_answer(self, what: str, key: str, *, awaitables: bool = False) -> Answer:
        """The place for the application's answer to what `pending` holds under this key."""
        questions = self._made_questions
        answer = self.new_answer(what, self.waker.answer_came, awaitables=awaitables, changes=questions.changes)
        questions.own_count += 1
        questions.own[answer] = (questions.own_count, key)
        return answer

    def is_own(self, answer: Answer) -> bool:
        """Whether an answer was made here, not by another stream."""
        return self.questions is not None and answer in self.questions.own

    def key_of(self, waiting: Confirmation | ToolCallMessage) -> str:
        """The key in `pending` of something that waits."""
        own = self._made_questions.own.get(waiting.answer_slot) if waiting.answer_slot is not None else None
        if own is not None:
            return own[1]
        return waiting.call_id or waiting.id if isinstance(waiting, ToolCallMessage) else waiting.id

    def _remove(self, key: str) -> None:
        """What was pending under this key waits no longer."""
        waiting, questions = self.pending.pop(key), self._made_questions
        if self.removed is not None:
            self.removed.append(key)
        if isinstance(waiting, ToolCallMessage):
            for id in {waiting.call_id or waiting.id, waiting.id}:
                keys = questions.call_keys[id]
                del keys[key]
                if not keys:
                    del questions.call_keys[id]
        else:
            del questions.undecided[key]
            if key in questions.passive:
                del questions.passive_by_call[questions.passive.pop(key)][key]
        if (answer := waiting.answer_slot) is not None and questions.own.pop(answer, None) is not None:
            questions.awaited.pop(answer, None)
            questions.undeferred.pop(answer, None)
            questions.confirmations.discard(answer)

    def _take_changes(self, questions: Questions, *, leaves_ready: bool = False) -> None:
        """Sort out what has changed, or only what is not ready to be delivered."""
        ready: list[Answer] = []
        while questions.changes:
            answer = questions.changes.popleft()
            if answer not in questions.own:
                continue  # its question was settled meanwhile
            if answer.ready and leaves_ready:
                ready.append(answer)
                continue
            if answer.ready:
                from heapq import heappush  # few streams have questions

                heappush(questions.ready, (questions.own[answer][0], answer))
            elif answer.given:
                questions.unstarted.append(answer)
            elif answer.deferred:
                questions.deferred.append(answer)
            if answer.given or answer.deferred:
                questions.awaited[answer] = None
                questions.undeferred.pop(answer, None)
            else:  # its time is over
                questions.awaited.pop(answer, None)
                if answer in questions.confirmations:
                    questions.undeferred[answer] = None
        questions.changes.extend(ready)

    def next_answered(self) -> Confirmation | ToolCallMessage | None:
        """The first of the pending questions whose answer has come and was not returned here before; None if there is none."""
        if (questions := self.questions) is None:
            return None
        self._take_changes(questions)
        while questions.ready:
            from heapq import heappop

            _, answer = heappop(questions.ready)
            if answer in questions.own:
                key = questions.own[answer][1]
                waiting = self.pending[key]
                if isinstance(waiting, ToolCallMessage):  # it is this one's output that comes next, whatever its id
                    questions.call_keys[waiting.call_id or waiting.id].move_to_end(key, last=False)
                return waiting
        return None

    def take_awaitables(self) -> list[Answer]:
        """The answers that are awaitables and were not returned here before. Others stay among the changes, after which the
        delta loop looks."""
        if (questions := self.questions) is None:
            return []
        self._take_changes(questions, leaves_ready=True)
        unstarted = [*questions.unstarted]
        questions.unstarted.clear()
        return unstarted

    def take_deferred(self) -> list[Answer]:
        """The answers that were deferred since the last time."""
        if (questions := self.questions) is None:
            return []
        deferred, questions.deferred = questions.deferred, []
        return deferred

    def must_wait(self, *, at_end: bool) -> bool:
        """Whether the source cannot go on before something is answered. Confirmations that nobody deferred are `unanswered`
        from then on."""
        questions = self.questions
        if questions is None or not (at_end or self.pull_approves):
            return False
        undeferred, questions.undeferred = questions.undeferred, {}
        for answer in undeferred:
            answer.give_up(("unanswered", None))
        return bool(questions.confirmations or (at_end and questions.awaited))
