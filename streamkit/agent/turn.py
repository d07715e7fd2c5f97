"""A turn: the course of one run, decided without any input or output.

Its steps follow each other: a model call; the calls of its tools; for each piece of code a confirmation and a run; then
the next model call. A step is over before the next one is taken, and its outcome is read from the stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeGuard, TypeVar

from ..answers import Confirmation
from ..events import ConfirmationCreated, ConsoleCreated, ConsoleDelta, ConsoleDone, Event, Run, RunDone
from ..messages import CodeMessage, ConsoleMessage, Message, ToolCallMessage
from ..streams.state import StreamState
from .calls import call_id_of, declined_output, failure_events
from .code import CODE_TOOL, RejectedCode, read_code, runs_without_confirmation
from .computer_protocol import Computing, supports_language
from .conversation import as_messages, replace_message
from .core import AgentCore
from .history import model_view
from .steps import CallModel, CallTools, EmitEvents, RunCode, Step
from .stream_state import (
    continues_in_next_source,
    decline_run,
    has_unanswered_calls,
    is_cut_short,
    raise_if_source_incomplete,
)
from .tools import Tool

__all__ = ["Turn"]

_M = TypeVar("_M", bound=Message)

_NOT_ANSWERED = "not answered"  # a confirmation's reason where it was declined because no answer came


class Turn:
    """One run of an agent.

    Args:
        agent: whose run it is.
        options: further arguments of its requests.
        on_start: called with the stream when the first step is taken.

    Attributes:
        stream: the stream that the run is in. To be set before the first step is taken.
        course: the steps. Take the next one when the one before it is over.
    """

    stream: StreamState

    def __init__(self, agent: AgentCore, options: Mapping[str, Any], on_start: Callable[[StreamState], object]) -> None:
        self.course: Iterator[Step] = self._course()
        self._agent = agent
        self._options = options
        self._on_start = on_start

    def executes(self, call: ToolCallMessage) -> bool:
        """Whether the agent answers a call itself, not the application. It answers calls of unknown tools as well."""
        agent = self._agent
        if call.name in agent.tools or (call.name == CODE_TOOL and agent.computer is not None):
            return True
        is_providers = "item_type" in call.metadata or "custom" in call.metadata  # a kind of tool that we do not offer
        return call.name not in agent.application_tools and not is_providers

    # -- the course

    def _course(self) -> Iterator[Step]:
        self._on_start(self.stream)
        answered: list[Confirmation] = []  # the provider's own questions, which the next request answers
        for _ in range(self._agent.max_steps):
            first, first_confirmation = len(self.stream.messages), len(self.stream.confirmations)
            yield CallModel(self._request(answered))
            raise_if_source_incomplete(self.stream)
            messages = self.stream.messages[first:]
            answered = [*self.stream.confirmations[first_confirmation:]]
            if not self._must_continue(messages, answered):
                return
            try:
                for confirmation in answered:
                    _raise_if_run_declined(confirmation)
                yield from self._execute(messages)
            except _RunDeclined:
                decline_run(self.stream)
                return
            if has_unanswered_calls(self.stream):
                return
        yield EmitEvents([RunDone(Run(status="incomplete", finish_reason="max_steps"))])

    def _request(self, answered: Sequence[Confirmation]) -> Callable[[], Any]:
        agent = self._agent
        agent.messages[:] = as_messages(agent.messages)  # the application may have added dicts
        view = model_view(agent.messages, limit=agent.output_limit, images=agent.images, answered=answered)
        run = self.stream.current_run
        metadata = None if run is None else run.metadata
        return agent.provider.request(
            agent.model, view, agent.instructions, agent.tool_schemas, self._options, metadata
        )

    def _must_continue(self, messages: Sequence[Message], answered: Sequence[Confirmation]) -> bool:
        """Whether the answer asks for something that the next request brings."""
        if is_cut_short(self.stream):
            return False
        return bool(answered) or any(map(_is_call, messages)) or continues_in_next_source(self.stream)

    # -- calls

    def _execute(self, messages: Sequence[Message]) -> Iterator[Step]:
        """Answer the calls among these messages: functions together, then code in its order."""
        calls, messages = self._with_distinct_ids(messages)
        tools = self._agent.tools
        approved: list[tuple[ToolCallMessage, Tool[..., Any]]] = []
        for call in calls:
            tool = tools.get(call.name or "")
            if tool is not None:
                final = (yield from self._confirm(call, call)) if tool.confirm else call
                approved += [] if final is None else [(final, tool)]
        if approved:
            yield CallTools(approved)
        for call in calls:
            if call.name in tools:
                continue
            if call.name == CODE_TOOL and self._agent.computer is not None:
                yield from self._run_code(call, messages, self._agent.computer)
            else:
                yield EmitEvents(self._unknown_tool(call))

    def _with_distinct_ids(self, messages: Sequence[Message]) -> tuple[list[ToolCallMessage], list[Message]]:
        """The calls that the agent answers, and all messages. Some models give several calls of an answer one id: all
        but the first then get another one, as does their code. The conversation changes as well."""
        calls = [message for message in messages if _is_call(message) and self.executes(message)]
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
                    rest[rest.index(code)] = replace_message(self._agent.messages, code, call_id=call.id)
                call = replace_message(self._agent.messages, call, call_id=call.id)
            elif id is not None:
                seen.add(id)
            distinct.append(call)
        return distinct, rest

    def _unknown_tool(self, call: ToolCallMessage) -> list[Event]:
        names = [*self._agent.tools, *self._agent.application_tools]
        names += [CODE_TOOL] if self._agent.computer is not None else []
        available = f"the available tools are: {', '.join(names)}" if names else "no tools are available"
        fault = f"there is no tool {call.name!r}; {available}"
        return failure_events(call, f"Error: {fault}", "unknown-tool", f"call {call_id_of(call)!r}: {fault}")

    # -- code

    def _run_code(self, call: ToolCallMessage, messages: Sequence[Message], computer: Computing) -> Iterator[Step]:
        code = read_code(call, (message for message in messages if isinstance(message, CodeMessage)))
        if isinstance(code, RejectedCode):
            fault = f"the code of call {call_id_of(call)!r} was not run: {code.reason}"
            yield EmitEvents(failure_events(call, f"Not run: {code.reason}.", "code-refused", fault))
            return
        if not supports_language(computer, code.language):
            yield EmitEvents(_unsupported_language(call, code.language, computer))
            return
        if not runs_without_confirmation(self._agent.auto_run, code.message):
            approved = yield from self._confirm(call, code.message)
            if approved is None:
                return
            code = code._replace(source=approved.content)
        first = len(self.stream.messages)
        yield RunCode(computer, code, call)
        if not any(message.role == "computer" for message in self.stream.messages[first:]):
            # Without any output an empty console shows, in a saved conversation too, that the code ran.
            yield EmitEvents([ConsoleDone(_console(call, ""))])

    # -- confirmations

    def _confirm(self, call: ToolCallMessage, subject: _M) -> Generator[Step, None, _M | None]:
        """Ask whether the subject may run: the call itself, or its code.

        Returns the subject, or its edited form, which replaces it in the conversation. If it was declined with a reason,
        the model reads that as the call's output, and the result is None.

        Raises:
            _RunDeclined: it was declined without a reason, or not answered.
        """
        number = len(self.stream.confirmations) + 1
        yield EmitEvents([ConfirmationCreated(Confirmation(f"confirmation-{number}", subject))])
        confirmation = self.stream.confirmations[-1]
        _raise_if_run_declined(confirmation)
        if confirmation.status != "approved":
            kind = "code" if isinstance(subject, CodeMessage) else "call"
            text = f"Not run: the user declined this {kind}. Reason: {confirmation.reason}"
            yield EmitEvents([declined_output(call, text, confirmation.reason)])
            return None
        if confirmation.edited in (None, subject.content):
            return subject
        metadata = {**subject.metadata, "edited": True}
        return replace_message(self._agent.messages, subject, content=confirmation.edited, metadata=metadata)


class _RunDeclined(Exception):
    """A confirmation was declined without a reason, or not answered: the run ends."""


def _raise_if_run_declined(confirmation: Confirmation) -> None:
    """Raises `_RunDeclined` if the run ends with this confirmation, which was decided."""
    if confirmation.status != "approved" and confirmation.reason in (None, "", _NOT_ANSWERED):
        raise _RunDeclined


def _is_call(message: Message) -> TypeGuard[ToolCallMessage]:
    """Whether the message is a call that the agent or the application answers."""
    return (
        isinstance(message, ToolCallMessage)
        and message.status == "completed"
        and not message.provider_executed
        and message.choice == 0
    )


def _console(call: ToolCallMessage, content: str | None = None) -> ConsoleMessage:
    return ConsoleMessage(f"{call.id}.console", call_id=call_id_of(call), content=content)


def _unsupported_language(call: ToolCallMessage, language: str, computer: Computing) -> list[Event]:
    text = f"{language} is not supported here; this computer runs: {', '.join(computer.languages)}\n"
    console = _console(call)
    return [
        ConsoleCreated(console),
        ConsoleDelta(console.id, text, metadata={"stream": "stderr"}),
        ConsoleDone(_console(call, text)),
    ]
