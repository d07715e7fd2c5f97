"""The confirmations and tool calls that wait for an answer.

    confirmation   pending -> approved | declined    by an answer; approved if its code runs all the same; declined where the
                                                     stream is closed or cancelled, or fails
                   pending -> unanswered             where the source cannot continue without an answer: its run requires action
    tool call      pending -> answered               by an output, ours or the source's

The engine makes an `Answer` only where the source can take one, so that an answer which would change nothing is refused
at once.

Thousands of calls may be pending at once, and they are looked at after every batch. So nothing here walks through
all of them: an answer that changes appends itself to `changes`, and calls are found by their ids.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator

from .. import events as e
from ..answers import Answer, Confirmation, Outcome
from ..messages import Message, ToolCallMessage
from .run_tracker import RunTracker
from .unique_ids import UniqueIds
from .warning_list import WarningList

__all__ = ["PendingAnswers", "wake_nothing"]


def wake_nothing() -> None:
    """Nothing waits for answers."""


def _never(call: ToolCallMessage) -> bool:
    return False


class PendingAnswers:
    """The confirmations and tool calls of one stream that wait for an answer.

    Args:
        runs: the run, which begins with a confirmation and may end with it.
        warning_list: takes the repairs.
        wake: called in the answering thread when something was answered or deferred.

    Attributes:
        waiting: confirmations by their id, tool calls by their call id.
        confirmations: all of them, in the order they came.
        changes: the answers that came, or were deferred or decided, since they were looked at last. Any thread appends.
        removed: the keys of questions that wait no longer; None unless a log takes them.
        answered_later: the ids of confirmations, and of calls with a promised output, that a recording answers after the
            source's end.
        not_approved: a confirmation was not approved and pulling on would run it all the same, so nothing more is pulled.

    These say what the source can do with answers. Opening a source sets the first and third; `then=`, an agent or a relay
    the rest:
        pull_approves: the next pull runs the subject of a confirmation.
        pull_approved: it did so when the source was recorded. The recording has the outcomes of its confirmations.
        has_outcomes: the source is a recording that has the outcomes of all its confirmations.
        is_canonical: the source is another stream's events, which have the outcomes.
        takes_approvals: the next request carries the decisions.
        takes_edits: an approval may carry edited code.
        takes_outputs: the next request carries outputs of tool calls.
        takes_awaitables: an output may be an awaitable.
        executes: whether the source itself answers a call.
    """

    __slots__ = (
        "_awaited",
        "_call_keys",
        "_deferred",
        "_ids",
        "_own",
        "_own_approvals",
        "_own_count",
        "_passive",
        "_passive_by_call",
        "_ready",
        "_runs",
        "_undecided",
        "_undeferred",
        "_unstarted",
        "_wake",
        "_warning_list",
        "answered_later",
        "changes",
        "confirmations",
        "executes",
        "has_outcomes",
        "is_canonical",
        "not_approved",
        "pull_approved",
        "pull_approves",
        "removed",
        "takes_approvals",
        "takes_awaitables",
        "takes_edits",
        "takes_outputs",
        "waiting",
    )

    def __init__(self, runs: RunTracker, warning_list: WarningList, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.waiting: dict[str, Confirmation | ToolCallMessage] = {}
        self.confirmations: list[Confirmation] = []
        self.changes: list[Answer] = []
        self.removed: list[str] | None = None
        self.answered_later: Collection[str] = ()
        self.not_approved = False
        self.pull_approves = self.pull_approved = self.has_outcomes = self.is_canonical = False
        self.takes_approvals = self.takes_edits = self.takes_outputs = self.takes_awaitables = False
        self.executes: Callable[[ToolCallMessage], bool] = _never
        self._runs = runs
        self._warning_list = warning_list
        self._ids = UniqueIds(self.waiting)
        self._own: dict[Answer, tuple[int, str]] = {}  # answers that were made here, by their question's number and key
        self._own_count = 0
        self._own_approvals: dict[Answer, None] = {}  # those of confirmations among them
        self._undecided: dict[str, Confirmation] = {}  # the confirmations among `waiting`
        # Those that nobody can answer: their call ids by their ids, and themselves by these call ids.
        self._passive: dict[str, str | None] = {}
        self._passive_by_call: dict[str | None, dict[str, Confirmation]] = {}
        # The keys of calls, by call id and by their message's id. The one that is answered next comes first.
        self._call_keys: dict[str, OrderedDict[str, None]] = {}
        # The changes, sorted:
        self._ready: list[tuple[int, Answer]] = []  # a heap of answers to deliver, by their questions' numbers
        self._unstarted: list[Answer] = []  # awaitables that were not started
        self._awaited: dict[Answer, None] = {}  # those to wait for
        self._deferred: list[Answer] = []  # new deferrals among them
        self._undeferred: dict[Answer, None] = {}  # confirmations that nobody deferred

    def release(self) -> None:
        """Refer to the stream and the source no more, because nothing more comes."""
        self._wake = wake_nothing
        self.executes = _never

    # -- confirmations

    def confirmation_created(self, event: e.ConfirmationCreated, own: Message | None) -> Iterator[e.Event]:
        """Add a confirmation that the source asks for. `own` is the stream's message with the id of its subject, if
        there is one."""
        question = event.confirmation
        if isinstance(self.waiting.get(question.id), Confirmation):
            fault = f"confirmation {question.id!r} was created twice; the second was dropped"
            yield self._warning_list.warn("duplicate-confirmation", fault, event)
            return
        yield from self._runs.open_step(event)
        confirmation = Confirmation(
            self._ids.free(question.id),
            _subject(question.subject, own),
            malformed=question.malformed,
            expires_at=question.expires_at,
        )
        confirmation.editable = question.editable
        if question.answer_slot is not None:  # another stream's: that stream waits for the answer
            confirmation.answer_slot = question.answer_slot
        elif (self.pull_approves or self.takes_edits or self.takes_approvals) and not question.malformed:
            confirmation.answer_slot = answer = self._new_answer(f"confirmation {question.id!r}", confirmation.id)
            confirmation.editable = self.takes_edits
            self._own_approvals[answer] = self._undeferred[answer] = None
        elif not (self.pull_approved or self.has_outcomes or self.is_canonical):
            self._passive[confirmation.id] = call_id = confirmation.subject.call_id
            self._passive_by_call.setdefault(call_id, {})[confirmation.id] = confirmation
        self.waiting[confirmation.id] = self._undecided[confirmation.id] = confirmation
        self.confirmations.append(confirmation)
        yield e.ConfirmationCreated(confirmation, position=event.position, raw_item=event.raw_item)
        if question.malformed:
            yield from self.settle(confirmation, "unanswered", reason="malformed")

    def confirmation_done(self, event: e.ConfirmationDone) -> Iterator[e.Event]:
        """Settle a confirmation as the source decided it."""
        outcome = event.confirmation
        confirmation = self.waiting.get(outcome.id)
        if isinstance(confirmation, Confirmation):
            status = "unanswered" if outcome.status == "pending" else outcome.status
            yield from self.settle(confirmation, status, edited=outcome.edited, reason=outcome.reason)

    def settle(
        self, confirmation: Confirmation, outcome: Outcome, *, edited: str | None = None, reason: str | None = None
    ) -> Iterator[e.Event]:
        """Decide a confirmation, and emit the outcome. Does nothing if it was decided before."""
        if confirmation.id not in self.waiting:
            return
        self._remove(confirmation.id)
        confirmation.settle(outcome, edited=edited, reason=reason)
        if outcome != "approved" and (self.pull_approves or self.pull_approved):
            self.not_approved = True
            if outcome == "declined":
                self.end_declined()
        # A call that is not approved gets no other output, and one that the next request approves is run by the source.
        if (call_id := confirmation.subject.call_id) is not None and (outcome != "approved" or self._is_passive):
            self.call_answered(call_id)
        yield e.ConfirmationDone(confirmation)

    @property
    def _is_passive(self) -> bool:
        """Whether the source takes answers with the next request alone (`then=`)."""
        return self.takes_approvals and self.takes_outputs and not (self.takes_edits or self.pull_approves)

    def end_declined(self) -> None:
        """Record that the run ends here because a confirmation was declined."""
        self._runs.outcome = e.Run(status="completed", finish_reason="declined")
        if self._runs.run is not None:
            self._runs.run.finish_reason = "declined"

    def code_runs(self, call_id: str | None) -> Iterator[e.Event]:
        """Settle as approved the confirmations that only another process could decide, because the code of this call runs. One
        of another call stays open."""
        for confirmation in [*self._passive_by_call.get(call_id, {}).values()]:
            yield from self.settle(confirmation, "approved")

    def source_done(self) -> Iterator[e.Event]:
        """Settle as unanswered the confirmations that could not be answered here, because the source has ended."""
        for confirmation in [self._undecided[id] for id in self._passive if id not in self.answered_later]:
            yield from self.settle(confirmation, "unanswered")

    @property
    def undecided(self) -> list[Confirmation]:
        """The confirmations that are not decided."""
        return [*self._undecided.values()]

    @property
    def has_open_questions(self) -> bool:
        """Whether the run cannot go on without an answer: to a confirmation that is not decided, or to a tool call."""
        if not self.confirmations:
            return bool(self.waiting)
        undecided = ("pending", "unanswered")
        return any(confirmation.status in undecided for confirmation in self.confirmations) or bool(self.unanswered)

    # -- tool calls

    @property
    def unanswered(self) -> list[ToolCallMessage]:
        """The tool calls that wait for an output of ours."""
        return [waiting for waiting in self.waiting.values() if isinstance(waiting, ToolCallMessage)]

    @property
    def open_calls(self) -> list[ToolCallMessage]:
        """The tool calls that have no answer yet, and get none after the source's end."""
        waiting = [call for call in self.unanswered if (call.call_id or call.id) not in self.answered_later]
        return [call for call in waiting if call.answer_slot is None or not call.answer_slot.has_answer]

    def unanswered_with(self, id: str | None) -> list[ToolCallMessage]:
        """Return the tool calls that wait and have this call id, or are the message with this id."""
        waiting = [self.waiting[key] for key in self._call_keys.get(id, ())] if id is not None else []
        return [call for call in waiting if isinstance(call, ToolCallMessage)]

    def free_key(self, call: ToolCallMessage) -> str:
        """Return a key under which nothing waits for a call: its call id, or that with a number."""
        return self._ids.free(call.call_id or call.id)

    def expect_output(self, call: ToolCallMessage, key: str) -> None:
        """Add a complete call that wants an output, ours unless the source executes it. `key` is its key in
        `waiting`."""
        if self.executes(call):
            return
        if call.answer_slot is None and self.takes_outputs:
            call.answer_slot = self._new_answer(f"tool call {key!r}", key, awaitables=self.takes_awaitables)
        self.waiting[key] = call
        for id in {call.call_id or call.id, call.id}:
            self._call_keys.setdefault(id, OrderedDict())[key] = None

    def call_answered(self, call_id: str) -> bool:
        """Remove a call that got its output, so that it takes none of ours. Returns whether one with this id was
        pending."""
        if keys := self._call_keys.get(call_id):
            self.drop(next(iter(keys)))
            return True
        return False

    def drop_calls(self) -> None:
        """Remove the pending calls: they take no answer any more."""
        for key, waiting in [*self.waiting.items()]:
            if isinstance(waiting, ToolCallMessage):
                self.drop(key)

    def drop(self, key: str) -> None:
        """Remove a question by its key: it takes no answer any more."""
        slot = self.waiting[key].answer_slot
        self._remove(key)
        if slot is not None:
            slot.close()

    # -- answers of ours

    def _new_answer(self, what: str, key: str, *, awaitables: bool = False) -> Answer:
        """Make the `Answer` to the question with this key."""
        answer = Answer(what, self._wake, awaitables=awaitables, changes=self.changes)
        self._own_count += 1
        self._own[answer] = (self._own_count, key)
        return answer

    def is_own(self, answer: Answer) -> bool:
        """Whether an answer was made here, not by another stream."""
        return answer in self._own

    def key_of(self, waiting: Confirmation | ToolCallMessage) -> str:
        """Return the key in `waiting` of something that waits."""
        own = self._own.get(waiting.answer_slot) if waiting.answer_slot is not None else None
        if own is not None:
            return own[1]
        return waiting.call_id or waiting.id if isinstance(waiting, ToolCallMessage) else waiting.id

    def _remove(self, key: str) -> None:
        """Remove a question by its key."""
        waiting = self.waiting.pop(key)
        if self.removed is not None:
            self.removed.append(key)
        if isinstance(waiting, ToolCallMessage):
            for id in {waiting.call_id or waiting.id, waiting.id}:
                keys = self._call_keys[id]
                del keys[key]
                if not keys:
                    del self._call_keys[id]
        else:
            del self._undecided[key]
            if key in self._passive:
                del self._passive_by_call[self._passive.pop(key)][key]
        if (answer := waiting.answer_slot) is not None and self._own.pop(answer, None) is not None:
            for answers in (self._awaited, self._undeferred, self._own_approvals):
                answers.pop(answer, None)

    def _take_changes(self, *, leaves_ready: bool = False) -> None:
        """Sort the answers that have changed, or only those that are not ready to be delivered."""
        ready: list[Answer] = []
        changes = self.changes[:]
        del self.changes[: len(changes)]  # another thread may have appended more
        for answer in changes:
            if answer not in self._own:
                continue  # its question was settled meanwhile
            if answer.ready and leaves_ready:
                ready.append(answer)
                continue
            if answer.ready:
                from heapq import heappush  # few streams have questions

                heappush(self._ready, (self._own[answer][0], answer))
            elif answer.has_answer:
                self._unstarted.append(answer)
            elif answer.deferred:
                self._deferred.append(answer)
            if answer.has_answer or answer.deferred:
                self._awaited[answer] = None
                self._undeferred.pop(answer, None)
            else:  # its time is over
                self._awaited.pop(answer, None)
                if answer in self._own_approvals:
                    self._undeferred[answer] = None
        self.changes.extend(ready)

    def next_answered(self) -> Confirmation | ToolCallMessage | None:
        """Return the first confirmation or call with an answer that was not returned here before; None if there is
        none."""
        self._take_changes()
        while self._ready:
            from heapq import heappop

            _, answer = heappop(self._ready)
            if answer in self._own:
                waiting = self.waiting[self._own[answer][1]]
                if isinstance(waiting, ToolCallMessage):  # it is this one's output that comes next, whatever its id
                    key = self._own[answer][1]
                    self._call_keys[waiting.call_id or waiting.id].move_to_end(key, last=False)
                return waiting
        return None

    def take_awaitables(self) -> list[Answer]:
        """Return the answers that are awaitables and were not returned here before. Others stay among the changes, for
        the delta loop."""
        self._take_changes(leaves_ready=True)
        unstarted, self._unstarted = self._unstarted, []
        return unstarted

    def take_deferred(self) -> list[Answer]:
        """Return the answers that were deferred since the last time."""
        deferred, self._deferred = self._deferred, []
        return deferred

    def must_wait(self, *, at_end: bool) -> bool:
        """Whether the source cannot go on before something is answered. Confirmations that nobody deferred are `unanswered`
        from then on."""
        if not (at_end or self.pull_approves):
            return False
        undeferred, self._undeferred = self._undeferred, {}
        for answer in undeferred:
            answer.decide(("unanswered", None))
        return bool(self._own_approvals or (at_end and self._awaited))


def _subject(subject: Message, own: Message | None) -> Message:
    """Return the stream's own message of the subject, if it equals the confirmation's, else the latter."""
    if own is None:
        return subject
    shown = (own.type, own.format, own.content)
    return own if shown == (subject.type, subject.format, subject.content) else subject
