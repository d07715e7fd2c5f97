"""The calls of one answer of the model: which may be made, the steps that make them, and their outputs.

Functions run together, then code in its order. A call that does not fit its tool, or that the user declines, gets an output that
says so, and nothing runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, TypeGuard

from ..answers import Confirmation
from ..errors import UsageError
from ..events import ConfirmationCreated, ConsoleDone, Event
from ..messages import CodeMessage, Message, ToolCallMessage
from ..streams.state import StreamState
from .actions import RecordedAction, is_inside, messages_after
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
from .conversation import changed, replace_message
from .core import AgentCore
from .outcomes import Outcomes
from .steps import CallTools, EmitEvents, RunCode, Step
from .tool_context import ToolContext
from .tools import Tool

__all__ = ["CallExecutor", "RunDeclined", "Unanswered", "is_call", "raise_if_run_declined"]


class RunDeclined(Exception):
    """A confirmation was declined without a reason: the run ends."""


class Unanswered(Exception):
    """Nobody answered a confirmation: the run ends, and the next stream asks again."""


class CallExecutor:
    """Answers the calls of one answer.

    Args:
        agent: has the tools, the computer and the conversation.
        stream: the stream of the run.
        deps: the application's own object, for the contexts of the tools.
        outcomes: records what becomes of each call.
    """

    def __init__(self, agent: AgentCore, stream: StreamState, deps: object, outcomes: Outcomes) -> None:
        self._agent = agent
        self._stream = stream
        self._deps = deps
        self._outcomes = outcomes

    def execute(self, messages: Sequence[Message]) -> Iterator[Step]:
        """Answer the calls among these messages: functions together, then code in its order.

        Raises:
            RunDeclined: a confirmation was declined without a reason.
            Unanswered: a confirmation, or a call of a sub-agent, has no answer.
        """
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
            yield CallTools([call for _, call in approved], self._stream.before_actions)
            self._outcomes.settle_calls(approved)
        if any(call.suspended for _, call in approved):
            raise Unanswered
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
            return PendingCall(call, tool, self._stream, self._deps)
        from .sub_agent import AgentCall  # only where an agent is a tool

        return AgentCall(call, tool, self._stream, self._deps, self._agent)

    def _has_begun(self, call: ToolCallMessage, tool: Tool[..., Any]) -> bool:
        """Whether a call's sub-agent has begun already, and waited for an answer."""
        after = messages_after(call, self._agent.messages)
        return tool.agent is not None and any(is_inside(message, call_id_of(call)) for message in after)

    def _with_distinct_ids(self, messages: Sequence[Message]) -> tuple[list[ToolCallMessage], list[Message]]:
        """Return the calls that the agent answers, and all messages. Some models give several calls of an answer one
        id: all but the first then get another one, as does their code. The conversation changes as well."""
        calls = [message for message in messages if is_call(message) and self._agent.executes(message)]
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
        output, without a confirmation."""
        call = action.call
        try:
            return decide(ToolContext(call, self._stream, self._deps, tool.check(call.content)))
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
        first = len(self._stream.messages)
        run = CodeRun(computer, code, call, self._stream.before_actions, self._stream.around_tool)
        self._outcomes.start(action, run)
        yield RunCode(run)
        if not any(message.role == "computer" for message in self._stream.messages[first:]):
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
            RunDeclined: it was declined without a reason.
            Unanswered: nobody answered.
        """
        id = self._outcomes.ask(action, {confirmation.id for confirmation in self._stream.confirmations})
        yield EmitEvents([ConfirmationCreated(Confirmation(id, subject))])
        confirmation = self._stream.confirmations[-1]
        kind = "code" if isinstance(subject, CodeMessage) else "call"
        if confirmation.status == "approved":
            return confirmation
        if confirmation.status == "unanswered":
            raise Unanswered
        text = f"Not run: the user declined this {kind}."
        self._outcomes.decline(action, text)
        raise_if_run_declined(confirmation)
        text += f" Reason: {confirmation.reason}"
        yield EmitEvents([declined_output(action.call, text, confirmation.reason)])
        self._outcomes.settle([action])
        return None


def _asks_nothing(context: ToolContext[Any]) -> bool:
    """In the place of `Tool.must_confirm`, for a call that was confirmed before."""
    return False


def raise_if_run_declined(confirmation: Confirmation) -> None:
    """Raises `RunDeclined` if the run ends with this confirmation, which was decided."""
    if confirmation.status == "declined" and not confirmation.reason:
        raise RunDeclined


def is_call(message: Message) -> TypeGuard[ToolCallMessage]:
    """Whether the message is a call that the agent or the application answers."""
    return (
        isinstance(message, ToolCallMessage)
        and message.status == "completed"
        and not message.provider_executed
        and message.choice == 0
        and message.parent_id is None
    )
