"""The outcomes of the actions of one turn, written into the conversation as they happen, and when the stream ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial

from ..answers import Confirmation
from ..messages import ConsoleMessage, Message, ToolCallMessage, ToolOutputMessage
from .actions import (
    BEGAN,
    WAITING,
    RecordedAction,
    interrupted_output,
    is_inside,
    is_question,
    messages_after,
    not_run_output,
)
from .calls import PendingCall, call_id_of
from .code import CodeRun, console_of
from .conversation import replace_message
from .core import AgentCore

__all__ = ["Outcomes"]


class Outcomes:
    """The actions of a turn's newest answer.

    Args:
        agent: its `messages` are the conversation that is written.
    """

    def __init__(self, agent: AgentCore) -> None:
        self._agent = agent
        self._actions: Sequence[RecordedAction] = ()
        self._work: dict[RecordedAction, PendingCall | CodeRun] = {}  # of actions that were started
        self._declined: dict[RecordedAction, str] = {}  # what the model reads of those that the user declined

    # -- while the turn goes on

    def begin(self, actions: Sequence[RecordedAction]) -> None:
        """Begin with the actions of the newest answer. None of them has begun."""
        self._actions = actions
        self._work.clear()
        for action in actions:
            action.mark(self._agent.messages, WAITING)

    def ask(self, action: RecordedAction, used: Collection[str]) -> str:
        """Record that an action waits for a confirmation. Returns the question's id, the same each time.

        Args:
            action: the action.
            used: the ids of other questions of this stream.
        """
        if action.question is None:
            id = first = f"confirmation-{call_id_of(action.call)}"
            number = 1
            while id in used:
                number += 1
                id = f"{first}.{number}"
            action.question = id
            action.mark(self._agent.messages, WAITING)
        return action.question

    def decline(self, action: RecordedAction, text: str) -> None:
        """Record that the user declined an action. `text` is what the model reads."""
        self._declined[action] = text

    def start(self, action: RecordedAction, work: PendingCall | CodeRun) -> None:
        """Record that an action begins with the next step."""
        self._work[action] = work
        if isinstance(work, PendingCall):
            work.record = partial(self._put_inner, action, work)
        action.mark(self._agent.messages, BEGAN)

    def settle_calls(self, calls: Iterable[tuple[RecordedAction, PendingCall]]) -> None:
        """Record the ends of these functions. A call waits as long as its sub-agent waits for an answer."""
        for action, call in calls:
            self._put_inner(action, call)
            if call.suspended:
                action.suspend(self._agent.messages)
            else:
                action.settle(self._agent.messages)

    def settle(self, actions: Iterable[RecordedAction]) -> None:
        """Record that the conversation has the outcomes of these, because the stream has emitted them."""
        for action in actions:
            action.settle(self._agent.messages)

    # -- when the stream has ended

    def finish(self, calls: Iterable[ToolCallMessage], confirmations: Sequence[Confirmation]) -> None:
        """Write what became of each action without an outcome, but for those that can still be confirmed.

        Args:
            calls: those of the newest answer that the agent answers.
            confirmations: all of the stream.
        """
        questions = [confirmation for confirmation in confirmations if is_question(confirmation.subject)]
        for confirmation in questions:
            self._finish_question(confirmation)
        is_open = any(map(_is_unanswered, confirmations[-1:])) or any(map(_is_unanswered, questions))
        is_open = is_open or any(work.suspended for work in self._work.values() if isinstance(work, PendingCall))
        if not self._actions:  # the turn did not come to answering the calls
            self._actions = [RecordedAction(call) for call in calls]
        for action in self._actions:
            if not action.settled:
                self._finish(action, is_open=is_open)

    def _finish_question(self, confirmation: Confirmation) -> None:
        """Record whether the provider's own question was answered: without an answer it comes again."""
        messages = self._agent.messages
        for message in messages:
            if isinstance(message, ToolCallMessage) and message.id == confirmation.subject.id:
                if _is_unanswered(confirmation):
                    RecordedAction(message).mark(messages, WAITING)
                else:
                    RecordedAction(message).settle(messages)
                return

    def _finish(self, action: RecordedAction, *, is_open: bool) -> None:
        messages = self._agent.messages
        match self._work.get(action):
            case PendingCall(suspended=True):
                return  # it waits already
            case PendingCall(began=True) as call:
                self._put_inner(action, call)
                self._put_output(action, call.output or self._interrupted(action, call.progress))
                self._put_media(action, call.media)
            case CodeRun(began=True) as run:
                self._put_run(action, run)
            case _ if is_open:
                action.mark(messages, WAITING)
                return
            case _:
                output = not_run_output(action.call, *self._reasons(action))
                if action in self._declined:
                    output.metadata = {**output.metadata, "declined": None}
                self._put_output(action, output)
        action.settle(messages)

    def _reasons(self, action: RecordedAction) -> list[str]:
        return [self._declined[action]] if action in self._declined else []

    def _interrupted(self, action: RecordedAction, before: str) -> ToolOutputMessage:
        return interrupted_output(action.call, before, limit=self._agent.output_limit)

    def _put_output(self, action: RecordedAction, output: ToolOutputMessage) -> None:
        """Put the call's one output in the place of what the stream emitted of it."""
        messages = self._agent.messages
        emitted = [m for m in action.results(messages) if isinstance(m, ToolOutputMessage)]
        output.run_id, output.step_id = action.call.run_id, action.call.step_id
        if emitted:
            replace_message(messages, emitted[-1], output)
        else:
            messages.append(output)

    def _put_inner(self, action: RecordedAction, call: PendingCall) -> None:
        """Put the conversation of a call's sub-agent in the place of what the stream emitted of it."""
        messages, parent = self._agent.messages, call_id_of(action.call)
        inner = call.inner_messages
        if not inner:
            return
        for message in inner:
            message.run_id = action.call.run_id
        after = messages_after(action.call, messages)
        begin = len(messages) - len(after)
        first = next((index for index, one in enumerate(after, begin) if is_inside(one, parent)), len(messages))
        others = [message for message in messages[first:] if not is_inside(message, parent)]
        messages[first:] = [*inner, *others]

    def _put_media(self, action: RecordedAction, media: Sequence[Message]) -> None:
        """Add the images, files and audio of a function's output that the stream did not emit any more."""
        messages = self._agent.messages
        emitted = {message.id for message in action.results(messages)}
        for one in media:
            if one.id not in emitted:
                one.run_id, one.step_id = action.call.run_id, action.call.step_id
                messages.append(one)

    def _put_run(self, action: RecordedAction, run: CodeRun) -> None:
        """Put all messages of a run of code in the place of those that the stream emitted; and if it did not come to its
        end, add the record of that."""
        messages, call = self._agent.messages, action.call
        emitted = action.results(messages)
        complete = run.messages()
        for number, message in enumerate(complete):
            message.run_id, message.step_id = call.run_id, call.step_id
            if number < len(emitted):
                message.id = emitted[number].id
                replace_message(messages, emitted[number], message)
            else:
                messages.append(message)
        if not run.finished:
            text = "".join(message.content for message in complete if isinstance(message, ConsoleMessage))
            messages.append(self._interrupted(action, text))
        elif not complete:
            messages.append(console_of(call, ""))


def _is_unanswered(confirmation: Confirmation) -> bool:
    """Whether the application did not answer it, so that the question can come again."""
    slot = confirmation.answer_slot
    return confirmation.status != "approved" and slot is not None and not slot.answered
