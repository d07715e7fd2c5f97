"""A turn: the course of one run, decided without any input or output.

It gives one step after the other, which the agent makes a source of the same stream: a model call; the calls of its
tools; for each piece of code a question and a run; then the next model call. What came of a step is read in the stream.
"""

# pyright: reportPrivateUsage=false
# The agent and its streams are one thing; their underscores keep users out.

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from ..answers import Confirmation
from ..events import ConfirmationCreated, ConsoleCreated, ConsoleDelta, ConsoleDone, Event, Run, RunDone, ToolOutputDone
from ..messages import CodeMessage, ConsoleMessage, Message, ToolCallMessage, ToolOutputMessage
from ..streams.state import StreamState
from .calls import refused
from .code import CODE_TOOL, Code, Refused, read_code
from .computer_protocol import Computing, runs
from .tools import Tool

if TYPE_CHECKING:
    from .agent import BaseAgent

__all__ = ["CallModel", "CallTools", "RunCode", "Step", "Tell", "Turn"]

_NOBODY = "not answered"  # the reason where a confirmation was decided without an answer


class CallModel(NamedTuple):
    """Ask the model: `send` gives the client's stream."""

    send: Callable[[], Any]


class CallTools(NamedTuple):
    """Call these functions."""

    calls: Sequence[tuple[ToolCallMessage, Tool[..., Any]]]


class RunCode(NamedTuple):
    """Run this code, for this call."""

    computer: Computing
    code: Code
    call: ToolCallMessage


class Tell(NamedTuple):
    """Tell these events."""

    events: list[Event]


Step = CallModel | CallTools | RunCode | Tell


class Turn:
    """One run of an agent.

    Args:
        said: what the user says first.
        options: for the requests.

    Attributes:
        stream: the stream that tells of it.
        course: its steps. Each is over before the next is asked for.
    """

    def __init__(self, agent: BaseAgent, said: Sequence[Message], options: Mapping[str, Any]) -> None:
        self.stream: StreamState
        self.course: Iterator[Step] = self._course()
        self.said = said
        self._agent = agent
        self._options = options

    def executes(self, call: ToolCallMessage) -> bool:
        """Whether the agent answers a call itself. Those of the application's own tools it does not."""
        agent = self._agent
        if call.name in agent.tools or (call.name == CODE_TOOL and agent.computer is not None):
            return True
        others = "item_type" in call.metadata or "custom" in call.metadata  # tools of the provider's making
        return call.name not in agent.names and not others

    # -- the course

    def _course(self) -> Iterator[Step]:
        agent, engine = self._agent, self.stream._engine
        agent._begin(self)
        answered: list[Confirmation] = []
        for _ in range(agent.max_steps):
            seen, asked = len(engine.messages), len(engine.confirmations)
            yield CallModel(agent._request(self._options, answered))
            source_decoder = self.stream._source_decoder
            if source_decoder is not None and not source_decoder.complete:
                raise source_decoder.incomplete()
            told = engine.messages[seen:]
            calls = [message for message in told if _is_call(message)]
            answered = engine.confirmations[asked:]  # what the provider itself asked
            if engine.cut_short or not (
                calls or answered or (source_decoder is not None and source_decoder.continues_in_next_source)
            ):
                return
            try:
                for confirmation in answered:
                    _check(confirmation)
                yield from self._execute(*self._apart([call for call in calls if self.executes(call)], told))
            except _Declined:
                engine.end_declined()
                return
            if engine.unanswered:
                return  # the application's own
        yield Tell([RunDone(Run(status="incomplete", finish_reason="max_steps"))])

    def _apart(
        self, calls: Sequence[ToolCallMessage], told: Sequence[Message]
    ) -> tuple[list[ToolCallMessage], list[Message]]:
        """These calls, each with an id of its own, in the conversation too, and what was told with them. Some models
        give several calls of an answer the same."""
        known: set[str] = set()
        codes: Counter[str | None] = Counter()
        out: list[ToolCallMessage] = []
        rest = [*told]
        for call in calls:
            id, number = call.call_id, codes[call.call_id]
            codes[id] += call.name == CODE_TOOL
            if id is not None and id in known:
                same = [m for m in told if isinstance(m, CodeMessage) and m.call_id == id]
                for code in same[number : codes[id]]:
                    rest[rest.index(code)] = self._agent._change(code, call_id=call.id)
                call = self._agent._change(call, call_id=call.id)
            known |= {id} if id is not None else set()
            out.append(call)
        return out, rest

    def _execute(self, calls: Sequence[ToolCallMessage], told: Sequence[Message]) -> Iterator[Step]:
        """Answer these calls: the functions all at once, then the code in its order."""
        tools = self._agent.tools
        ready: list[tuple[ToolCallMessage, Tool[..., Any]]] = []
        for call in calls:
            tool = tools.get(call.name or "")
            if tool is None:
                continue
            approved = (yield from self._confirmed(call)) if tool.confirm else call
            if approved is not None:
                ready.append((approved, tool))
        if ready:
            yield CallTools(ready)
        for call in calls:
            if call.name in tools:
                continue
            if call.name == CODE_TOOL and self._agent.computer is not None:
                yield from self._run(call, told, self._agent.computer)
            else:
                yield Tell(self._unknown(call))

    def _confirmed(self, call: ToolCallMessage) -> Generator[Step, None, ToolCallMessage | None]:
        """The call as it was approved, None if it was declined with a reason."""
        asked = yield from self._ask(call)
        if asked.status != "approved":
            yield Tell([_declined(call, asked)])
            return None
        if asked.edited in (None, call.content):
            return call
        return self._agent._edit(call, asked.edited)

    def _run(self, call: ToolCallMessage, told: Sequence[Message], computer: Computing) -> Iterator[Step]:
        code = read_code(call, (message for message in told if isinstance(message, CodeMessage)))
        if isinstance(code, Refused):
            fault = f"the code of call {call.call_id or call.id!r} was not run: {code.reason}"
            yield Tell(refused(call, f"Not run: {code.reason}.", "code-refused", fault))
            return
        if not runs(computer, code.language):
            yield Tell(_unsupported(call, code.language, computer))
            return
        if not self._agent._runs_unasked(code.message):
            asked = yield from self._ask(code.message)
            if asked.status != "approved":
                yield Tell([_declined(call, asked)])
                return
            if asked.edited not in (None, code.source):
                edited = self._agent._edit(code.message, asked.edited)
                code = code._replace(source=edited.content)
        engine = self.stream._engine
        before = len(engine.messages)
        yield RunCode(computer, code, call)
        if not any(message.role == "computer" for message in engine.messages[before:]):
            yield Tell([ConsoleDone(_console(call, ""))])  # that it ran can always be seen

    def _ask(self, subject: Message) -> Generator[Step, None, Confirmation]:
        """Ask, and wait for the answer.

        Raises:
            _Declined: the answer was no, without a reason, or there was none.
        """
        number = len(self.stream.confirmations) + 1
        yield Tell([ConfirmationCreated(Confirmation(f"confirmation-{number}", subject))])
        return _check(self.stream.confirmations[-1])

    def _unknown(self, call: ToolCallMessage) -> list[Event]:
        names = [*self._agent.tools, *self._agent.names]
        names += [CODE_TOOL] if self._agent.computer is not None else []
        there = f"there are: {', '.join(names)}" if names else "there are none"
        fault = f"there is no tool {call.name!r}; {there}"
        return refused(call, f"Error: {fault}", "unknown-tool", f"call {call.call_id or call.id!r}: {fault}")


class _Declined(Exception):
    """The user said no, and nothing more: the run ends."""


def _check(asked: Confirmation) -> Confirmation:
    """A question that was decided. Raises `_Declined` where the run ends with it."""
    if asked.status != "approved" and asked.reason in (None, "", _NOBODY):
        raise _Declined
    return asked


def _is_call(message: Message) -> TypeGuard[ToolCallMessage]:
    """Whether this wants an answer of ours or of the application's."""
    return (
        isinstance(message, ToolCallMessage)
        and message.status == "completed"
        and not message.provider_executed
        and message.choice == 0
    )


def _declined(call: ToolCallMessage, asked: Confirmation) -> ToolOutputDone:
    what = "this code" if isinstance(asked.subject, CodeMessage) else "this call"
    text = f"Not run: the user declined {what}. Reason: {asked.reason}"
    return ToolOutputDone(
        ToolOutputMessage(
            f"{call.id}.output",
            name=call.name,
            call_id=call.call_id or call.id,
            content=text,
            metadata={"declined": asked.reason},
        )
    )


def _console(call: ToolCallMessage, content: str | None = None) -> ConsoleMessage:
    return ConsoleMessage(f"{call.id}.console", call_id=call.call_id or call.id, content=content)


def _unsupported(call: ToolCallMessage, language: str, computer: Computing) -> list[Event]:
    text = f"{language} is not supported here; this computer runs: {', '.join(computer.languages)}\n"
    console = _console(call)
    return [
        ConsoleCreated(console),
        ConsoleDelta(console.id, text, metadata={"stream": "stderr"}),
        ConsoleDone(_console(call, text)),
    ]
