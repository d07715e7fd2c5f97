"""A turn: the course of one run, decided without any input or output.

Its steps follow each other: a model call; the calls of its tools; for each piece of code a confirmation and a run; then
the next model call. A step is over before the next one is taken, and its outcome is read from the stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard

from ..answers import Confirmation
from ..errors import UsageError
from ..events import ConfirmationCreated, ConsoleDone, Event, Run, RunDone, ToolCallDone
from ..messages import CodeMessage, Message, ToolCallMessage, ToolOutputMessage
from ..streams.state import StreamState
from .actions import WAITING, RecordedAction, belongs_to_calls, is_inside, is_question, messages_after
from .argument_schema import ArgumentsError
from .calls import PendingCall, call_id_of, declined_output, failure_events
from .code import (
    CODE_TOOL,
    CodeRun,
    RejectedCode,
    console_of,
    read_code,
    runs_without_confirmation,
    unsupported_language,
)
from .computer_protocol import Computing, supports_language
from .conversation import as_messages, changed, replace_message
from .core import AgentCore
from .history import model_view, unread_images
from .model_request import ModelRequest
from .outcomes import Outcomes
from .steps import (
    CallModel,
    CallTools,
    EmitEvents,
    ListTools,
    RunCode,
    SendRequest,
    Step,
    continues_in_next_source,
    decline_run,
    has_unanswered_calls,
    is_cut_short,
    raise_if_source_incomplete,
    without_withdrawn,
)
from .tool_context import ToolContext
from .tools import Tool

if TYPE_CHECKING:
    from .output import AgentOutput

__all__ = ["Turn"]


class Turn:
    """One run of an agent.

    Args:
        agent: whose run it is.
        options: further arguments of its requests.
        on_start: called with the stream when the first step is taken.
        deps: the application's own object, for the contexts of its tools.
        output: what the model is asked to answer with; None for a text.

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
        answered &= {call_id_of(message) for message in answer if _is_call(message)}
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
        for call in filter(_is_call, self.stream.messages[self._answer_begins :]):
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
        calls = [call for call in newest if _is_call(call) and self._agent.executes(call)]
        own = [confirmation for confirmation in self.stream.confirmations if confirmation.subject.parent_id is None]
        self._outcomes.finish(calls, own)

    # -- the course

    def _course(self) -> Iterator[Step]:
        self._on_start(self.stream)
        if (computer := self._agent.computer) is not None and computer.languages:
            computer.start(next(iter(computer.languages)))  # it gets ready while the model is asked
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
        return bool(answered) or any(map(_is_call, messages)) or continues_in_next_source(self.stream)

    def _answer(self, messages: Sequence[Message], questions: Sequence[Confirmation]) -> Generator[Step, None, bool]:
        """Answer the calls of an answer. Returns whether the run goes on."""
        if any(confirmation.status == "unanswered" for confirmation in questions):
            return False
        try:
            for confirmation in questions:
                _raise_if_run_declined(confirmation)
            yield from self._execute(messages)
        except _RunDeclined:
            decline_run(self.stream)
            return False
        except _Unanswered:
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

    # -- calls

    def _execute(self, messages: Sequence[Message]) -> Iterator[Step]:
        """Answer the calls among these messages: functions together, then code in its order."""
        self._take_marks_away()
        calls, messages = self._with_distinct_ids(messages)
        tools = self._agent.tools
        actions = [RecordedAction(call) for call in calls]
        self._outcomes.begin(actions)
        approved: list[tuple[RecordedAction, PendingCall]] = []
        for action in actions:
            tool = tools.get(action.call.name or "")
            if tool is not None and (yield from self._may_call(action, tool)):
                approved.append((action, self._pending_call(action.call, tool)))
        if approved:
            for action, call in approved:
                self._outcomes.start(action, call)
            yield CallTools([call for _, call in approved], self.stream.before_actions)
            self._outcomes.settle_calls(approved)
        if any(call.suspended for _, call in approved):
            raise _Unanswered
        for action in actions:
            if action.call.name in tools:
                continue
            if action.call.name == CODE_TOOL and self._agent.computer is not None:
                yield from self._run_code(action, messages, self._agent.computer)
            else:
                yield EmitEvents(self._unknown_tool(action.call))
            self._outcomes.settle([action])

    def _pending_call(self, call: ToolCallMessage, tool: Tool[..., Any]) -> PendingCall:
        if tool.agent is None:
            return PendingCall(call, tool, self.stream, self._deps)
        from .sub_agent import AgentCall  # only where an agent is a tool

        return AgentCall(call, tool, self.stream, self._deps, self._agent)

    def _has_begun(self, call: ToolCallMessage, tool: Tool[..., Any]) -> bool:
        """Whether a call has asked an agent already, whose run waited for an answer."""
        after = messages_after(call, self._agent.messages)
        return tool.agent is not None and any(is_inside(message, call_id_of(call)) for message in after)

    def _with_distinct_ids(self, messages: Sequence[Message]) -> tuple[list[ToolCallMessage], list[Message]]:
        """Return the calls that the agent answers, and all messages. Some models give several calls of an answer one
        id: all but the first then get another one, as does their code. The conversation changes as well."""
        calls = [message for message in messages if _is_call(message) and self._agent.executes(message)]
        distinct: list[ToolCallMessage] = []
        rest = [*messages]
        seen: set[str] = set()
        codes: Counter[str | None] = Counter()  # how many calls of code had an id so far
        for call in calls:
            id, number = call.call_id, codes[call.call_id]
            codes[id] += call.name == CODE_TOOL
            if id is not None and id in seen:
                same_id = [m for m in messages if isinstance(m, CodeMessage) and m.call_id == id]
                for code in same_id[number : codes[id]]:
                    index = next(index for index, message in enumerate(rest) if message is code)
                    rest[index] = changed(code, call_id=call.id)
                    replace_message(self._agent.messages, code, rest[index])
                other = changed(call, call_id=call.id)
                replace_message(self._agent.messages, call, other)
                call = other
            elif id is not None:
                seen.add(id)
            distinct.append(call)
        return distinct, rest

    def _may_call(self, action: RecordedAction, tool: Tool[..., Any]) -> Generator[Step, None, bool]:
        """Whether a call fits its tool, and needs no confirmation, or has one. Edited arguments are checked again."""
        decide = _asks_nothing if self._has_begun(action.call, tool) else tool.must_confirm
        asks = yield from self._checked(action, tool, decide)
        if not asks:
            return asks is not None
        return (yield from self._confirm_call(action)) and (
            yield from self._checked(action, tool, lambda _: True)
        ) is not None

    def _checked(
        self, action: RecordedAction, tool: Tool[..., Any], decide: Callable[[ToolContext[Any]], bool]
    ) -> Generator[Step, None, bool | None]:
        """Check a call's arguments, and return what `decide` says of it; None if either fails. What is wrong is the call's
        output: nobody is asked about it."""
        call = action.call
        try:
            return decide(ToolContext(call, self.stream, self._deps, tool.check(call.content)))
        except (Exception, SystemExit) as error:  # the function is the application's, and may raise anything
            fault = (
                str(error) if isinstance(error, (ArgumentsError, UsageError)) else f"{type(error).__name__}: {error}"
            )
        yield EmitEvents(failure_events(call, f"Error: {fault}", "tool-failed", f"tool {call.name}: {fault}"))
        self._outcomes.settle([action])
        return None

    def _unknown_tool(self, call: ToolCallMessage) -> list[Event]:
        names = [*self._agent.tools, *self._agent.toolbox.application_tools]
        names += [CODE_TOOL] if self._agent.computer is not None else []
        available = f"the available tools are: {', '.join(names)}" if names else "no tools are available"
        fault = f"there is no tool {call.name!r}; {available}"
        return failure_events(call, f"Error: {fault}", "unknown-tool", f"call {call_id_of(call)!r}: {fault}")

    # -- code

    def _run_code(self, action: RecordedAction, messages: Sequence[Message], computer: Computing) -> Iterator[Step]:
        call = action.call
        code = read_code(call, (message for message in messages if isinstance(message, CodeMessage)))
        if isinstance(code, RejectedCode):
            fault = f"the code of call {call_id_of(call)!r} was not run: {code.reason}"
            yield EmitEvents(failure_events(call, f"Not run: {code.reason}.", "code-refused", fault))
            return
        if not supports_language(computer, code.language):
            yield EmitEvents(unsupported_language(call, code.language, computer))
            return
        if not runs_without_confirmation(self._agent.auto_run, code.message):
            confirmation = yield from self._confirm(action, code.message)
            if confirmation is None:
                return
            if confirmation.edited not in (None, code.source):
                code = code._replace(source=confirmation.edited)
                metadata = {**code.message.metadata, "edited": True}
                edited = changed(code.message, content=confirmation.edited, metadata=metadata)
                replace_message(self._agent.messages, code.message, edited)
        first = len(self.stream.messages)
        run = CodeRun(computer, code, call, self.stream.before_actions, self.stream.around_tool)
        self._outcomes.start(action, run)
        yield RunCode(run)
        if not any(message.role == "computer" for message in self.stream.messages[first:]):
            # Without any output an empty console shows, in a saved conversation too, that the code ran.
            yield EmitEvents([ConsoleDone(console_of(call, ""))])

    # -- confirmations

    def _confirm_call(self, action: RecordedAction) -> Generator[Step, None, bool]:
        """Ask whether a call may be made. It may be edited."""
        confirmation = yield from self._confirm(action, action.call)
        if confirmation is not None and confirmation.edited not in (None, action.call.content):
            action.edit(self._agent.messages, confirmation.edited)
        return confirmation is not None

    def _confirm(self, action: RecordedAction, subject: Message) -> Generator[Step, None, Confirmation | None]:
        """Ask whether the subject may run: the call itself, or its code.

        Returns the approval. If it was declined with a reason, the model reads that as the call's output, and the result is
        None.

        Raises:
            _RunDeclined: it was declined without a reason.
            _Unanswered: nobody answered.
        """
        id = self._outcomes.ask(action, {confirmation.id for confirmation in self.stream.confirmations})
        yield EmitEvents([ConfirmationCreated(Confirmation(id, subject))])
        confirmation = self.stream.confirmations[-1]
        kind = "code" if isinstance(subject, CodeMessage) else "call"
        if confirmation.status == "approved":
            return confirmation
        if confirmation.status == "unanswered":
            raise _Unanswered
        text = f"Not run: the user declined this {kind}."
        self._outcomes.decline(action, text)
        _raise_if_run_declined(confirmation)
        text += f" Reason: {confirmation.reason}"
        yield EmitEvents([declined_output(action.call, text, confirmation.reason)])
        self._outcomes.settle([action])
        return None


class _RunDeclined(Exception):
    """A confirmation was declined without a reason: the run ends."""


class _Unanswered(Exception):
    """Nobody answered a confirmation: the run ends, and the next stream asks again."""


def _asks_nothing(context: ToolContext[Any]) -> bool:
    """In the place of `Tool.must_confirm`, for a call that was confirmed before."""
    return False


def _cut_short(limit: str) -> EmitEvents:
    """Return the end of a run that has reached a limit, which is its `finish_reason`."""
    return EmitEvents([RunDone(Run(status="incomplete", finish_reason=limit))])


def _raise_if_run_declined(confirmation: Confirmation) -> None:
    """Raises `_RunDeclined` if the run ends with this confirmation, which was decided."""
    if confirmation.status == "declined" and not confirmation.reason:
        raise _RunDeclined


def _is_call(message: Message) -> TypeGuard[ToolCallMessage]:
    """Whether the message is a call that the agent or the application answers."""
    return (
        isinstance(message, ToolCallMessage)
        and message.status == "completed"
        and not message.provider_executed
        and message.choice == 0
        and message.parent_id is None
    )
