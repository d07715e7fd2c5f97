"""A turn: the course of one run, decided without any input or output.

Its steps follow each other: a model call; the calls of its tools; for each piece of code a confirmation and a run; then
the next model call. A step is over before the next one is taken, and its outcome is read from the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..answers import Confirmation
from ..events import ConfirmationCreated, Run, RunDone, ToolCallDone
from ..messages import CodeMessage, Message, ToolOutputMessage
from ..streams.state import StreamState
from .actions import WAITING, RecordedAction, belongs_to_calls, is_question
from .call_executor import CallExecutor, RunDeclined, Unanswered, is_call, raise_if_run_declined
from .calls import call_id_of
from .conversation import as_messages
from .core import AgentCore
from .history import model_view, unread_images
from .model_request import ModelRequest
from .outcomes import Outcomes
from .steps import (
    CallModel,
    EmitEvents,
    ListTools,
    SendRequest,
    Step,
    continues_in_next_source,
    decline_run,
    has_unanswered_calls,
    is_cut_short,
    raise_if_source_incomplete,
    without_withdrawn,
)

if TYPE_CHECKING:
    from .output import AgentOutput

__all__ = ["AgentTurn"]


class AgentTurn:
    """One run of an agent.

    Args:
        agent: the one that runs.
        options: further arguments of its requests.
        on_start: called with the stream when the first step is taken.
        deps: the application's own object, for the contexts of its tools.
        output: the typed output that the requests ask for; None for a text.

    Attributes:
        stream: the stream that the run is in. To be set before the first step is taken.
        course: the steps. Take the next one when the one before it is over.
        presents_again: whether the stream emits messages that are in the conversation already.
    """

    stream: StreamState

    def __init__(
        self,
        agent: AgentCore,
        options: Mapping[str, Any],
        on_start: Callable[[StreamState], object],
        deps: object = None,
        output: AgentOutput | None = None,
    ) -> None:
        self.course: Iterator[Step] = self._course()
        self.presents_again = False
        self._agent = agent
        self._options = options
        self._on_start = on_start
        self._deps = deps
        self._output = output
        self._outcomes = Outcomes(agent)
        self._marked: list[RecordedAction] = []  # those that wait for the turn to come to them
        self._answer_begins = 0  # where in the stream's messages the model's newest answer begins
        self._answer_is_complete = True

    def withdraw_failed_answer(self) -> None:
        """Take an answer that failed before its end out of the conversation: no request sends the fragment.

        Calls that the application has answered by then stay, with their outputs and the reasoning before them: the model
        must not ask for the same action again.
        """
        self._take_marks_away()
        if self._answer_is_complete or self.stream.error is None:
            return
        answer = self.stream.messages[self._answer_begins :]
        answered = {message.call_id for message in answer if isinstance(message, ToolOutputMessage)}
        answered &= {call_id_of(message) for message in answer if is_call(message)}
        withdrawn = {id(message) for message in answer if not belongs_to_calls(message, answered)}
        self._agent.messages[:] = [message for message in self._agent.messages if id(message) not in withdrawn]

    def withdraw(self, ids: Iterable[str]) -> None:
        """Take the messages of a failed attempt, which have these ids, out of the conversation."""
        self._agent.messages[:] = without_withdrawn(self.stream, self._agent.messages, ids)

    def mark_calls(self) -> None:
        """The run requires action. Where that is before the turn has come to the calls of the answer, they are marked as waiting,
        because the conversation may be saved now."""
        if self._answer_is_complete:
            return
        marked = {action.call.id for action in self._marked}
        for call in filter(is_call, self.stream.messages[self._answer_begins :]):
            if self._agent.executes(call) and call.id not in marked:
                self._marked.append(RecordedAction(call))
                self._marked[-1].mark(self._agent.messages, WAITING)

    def _take_marks_away(self) -> None:
        for action in self._marked:
            action.settle(self._agent.messages)
        self._marked.clear()

    def finish(self) -> None:
        """The stream has ended: record what became of each action that has no outcome in the conversation yet."""
        self._take_marks_away()
        failed = self.stream.error is not None and not self._answer_is_complete
        newest = () if failed else self.stream.messages[self._answer_begins :]
        calls = [call for call in newest if is_call(call) and self._agent.executes(call)]
        own = [confirmation for confirmation in self.stream.confirmations if confirmation.subject.parent_id is None]
        self._outcomes.finish(calls, own)

    # -- the course

    def _course(self) -> Iterator[Step]:
        self._on_start(self.stream)
        if (computer := self._agent.computer) is not None and computer.languages:
            computer.start(next(iter(computer.languages)))  # it gets ready while the model answers
        if not self._agent.images and (unread := unread_images(self._agent.messages)):
            yield EmitEvents(unread)
        if (toolbox := self._agent.toolbox).sessions:
            yield ListTools(partial(toolbox.list_sessions, all=True), may_fail=False)
        answered = yield from self._answer_open_calls()  # the provider's own questions, which the next request answers
        if answered is None:
            return
        for number in range(self._agent.max_steps):
            if number and self._is_beyond_tokens():
                yield _cut_short("max_total_tokens")
                return
            if number and any(session.has_changed for session in toolbox.sessions):
                yield ListTools(partial(toolbox.list_sessions, all=False), may_fail=True)
            first_confirmation = len(self.stream.confirmations)
            self._answer_begins = len(self.stream.messages)
            self._outcomes.begin([])
            self._answer_is_complete = False
            request = partial(self._request, number + 1, answered)
            yield CallModel(request, self._agent.before_request, self._sending, len(self._agent.fallbacks))
            raise_if_source_incomplete(self.stream)
            self._answer_is_complete = True
            messages = self.stream.messages[self._answer_begins :]
            answered = [*self.stream.confirmations[first_confirmation:]]
            if not self._must_continue(messages, answered):
                if self._output is None or number + 1 == self._agent.max_steps:
                    return
                if (warning := self._output.ask_again(self.stream, self._agent.messages)) is None:
                    return
                yield EmitEvents([warning])
            elif not (yield from self._answer(messages, answered)):
                return
        yield _cut_short("max_steps")

    def _is_beyond_tokens(self) -> bool:
        """Whether the run has used more tokens than it may."""
        most, usage = self._agent.max_total_tokens, self.stream.usage
        return most is not None and usage is not None and usage.total_tokens > most

    def _request(self, step: int, answered: Sequence[Confirmation], attempt: int, fallback: int) -> ModelRequest:
        """Return the request of an attempt at a model call."""
        agent = self._agent
        client, model = agent.fallbacks[fallback - 1] if fallback else (agent.provider.client, agent.model)
        agent.messages[:] = as_messages(agent.messages)  # the application may have added dicts
        view = model_view(agent.messages, limit=agent.output_limit, images=agent.images, answered=answered)
        options, tools = dict(self._options), agent.tool_schemas
        instructions = agent.instructions if self._output is None else self._output.instructions(agent.instructions)
        return ModelRequest(client, model, view, instructions, tools, options, step, attempt, self._deps)

    def _sending(self, request: ModelRequest) -> SendRequest:
        """Return what sends a request."""
        run, provider = self.stream.current_run, self._agent.provider_of(request)
        self.stream.announce_request(provider.protocol, request)
        output = None if self._output is None else self._output.native_format
        metadata = None if run is None else run.metadata
        return SendRequest(provider.protocol, provider.request(request, metadata, output))

    def _must_continue(self, messages: Sequence[Message], answered: Sequence[Confirmation]) -> bool:
        """Whether the answer asks for something that the next request brings."""
        if is_cut_short(self.stream):
            return False
        return bool(answered) or any(map(is_call, messages)) or continues_in_next_source(self.stream)

    def _answer(self, messages: Sequence[Message], questions: Sequence[Confirmation]) -> Generator[Step, None, bool]:
        """Answer the calls of an answer. Returns whether the run goes on."""
        if any(confirmation.status == "unanswered" for confirmation in questions):
            return False
        try:
            for confirmation in questions:
                raise_if_run_declined(confirmation)
            self._take_marks_away()
            yield from CallExecutor(self._agent, self.stream, self._deps, self._outcomes).execute(messages)
        except RunDeclined:
            decline_run(self.stream)
            return False
        except Unanswered:
            return False
        return not has_unanswered_calls(self.stream)

    def _answer_open_calls(self) -> Generator[Step, None, list[Confirmation] | None]:
        """Ask again what the conversation ends with: confirmations and calls that nobody answered. Returns the provider's
        own questions that were answered, or None if the run ends here."""
        messages = self._agent.messages
        calls = self._agent.open_calls()
        if not calls:
            return []
        questions = [call for call in calls if is_question(call)]
        self.presents_again = True
        # Copies, because the conversation's own calls take no answer any more: they were on a stream that has ended.
        yield EmitEvents([ToolCallDone(RecordedAction(call).call.copy()) for call in calls])
        self.presents_again = False
        self._answer_begins = len(self.stream.messages)
        if questions:
            yield EmitEvents(
                [ConfirmationCreated(Confirmation(call.id, RecordedAction(call).call)) for call in questions]
            )
        answered = [*self.stream.confirmations]
        codes = [message for message in messages if isinstance(message, CodeMessage)]
        ours = [call for call in calls if call not in questions]
        return answered if (yield from self._answer([*ours, *codes], answered)) else None


def _cut_short(limit: str) -> EmitEvents:
    """Return the end of a run that has reached a limit, which is its `finish_reason`."""
    return EmitEvents([RunDone(Run(status="incomplete", finish_reason=limit))])
