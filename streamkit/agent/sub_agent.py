"""An agent as a tool of another one.

The tool takes one text, `input`. Each call runs a copy of the agent with a conversation of its own. Its messages come on the stream of
the outer agent, between the call and its output: their `parent_id` is the call's id, and their ids begin with it and a slash. Its
questions come there too, with such ids, and are answered there.

The inner conversation is part of the outer one, as the messages with this `parent_id`. While the inner run waits for an
answer, the call has no output: the next stream takes the inner conversation up from these messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from .. import events as e
from ..answers import Answer, Confirmation
from ..errors import UsageError
from ..handlers import Handler
from ..messages import CodeMessage, Message, RefusalMessage, TextMessage, ToolCallMessage
from ..sources.interrupt import Stopped
from ..streams.state import StreamState
from .actions import is_inside, messages_after, open_calls, pending_of
from .calls import Mailbox, PendingCall, call_id_of
from .conversation import changed
from .tools import Tool

if TYPE_CHECKING:
    from .core import AgentCore

__all__ = ["AgentCall", "SubAgentTool", "ids_shown_again", "inner_pending", "pending_in"]

_DEEPEST = 8  # agents inside each other
_M = TypeVar("_M", bound=Message)


class SubAgentTool(Tool[[str], Any]):
    """The tool that `as_tool` returns. A call in Python runs a copy of the agent, apart from any stream."""

    def __init__(self, agent: AgentCore, name: str | None, description: str, *, is_async: bool, **options: Any) -> None:
        name = agent.name if name is None else name
        if not name:
            raise UsageError("an agent as a tool needs a name: `as_tool(name)`, or the agent's own (`name=`)")

        def ask(input: str) -> str:
            text: str = copy().stream(input).get_final_text()
            return text

        async def ask_async(input: str) -> str:
            text: str = await copy().stream(input).get_final_text()
            return text

        def copy() -> Any:  # `AgentCore` has no streams
            return agent.copy_inside(0)

        super().__init__(ask_async if is_async else ask, name=name, description=description, **options)
        self.agent, self.can_be_stopped = agent, True


class AgentCall(PendingCall):
    """A call of an agent, and its outcome.

    Args:
        call: the outer model's call.
        tool: the agent's.
        stream: the outer agent's stream.
        deps: the application's own object, for the inner run too.
        outer: the outer agent. Its conversation may contain an inner one to take up.

    Attributes:
        stream: the outer agent's stream.
        names: the ids of the inner messages on that stream.
    """

    def __init__(
        self, call: ToolCallMessage, tool: Tool[..., Any], stream: StreamState, deps: object, outer: AgentCore
    ) -> None:
        super().__init__(call, tool, stream, deps)
        self.stream = stream
        self.names = InnerNames(call_id_of(call))
        self._depth = outer.depth + 1
        self._earlier = self.names.conversation(call, outer.messages)
        self._agent: AgentCore | None = None

    def run(self) -> Any:
        """Run the agent. Returns its answer, or an awaitable of that. Raises what the inner stream does."""
        self.began = True
        arguments = self.tool.check(self.call.content)
        if self._depth > _DEEPEST:
            raise UsageError(f"agents are nested at most {_DEEPEST} deep")
        assert self.tool.agent is not None
        agent: Any = self.tool.agent.copy_inside(self._depth)
        self._agent = agent
        agent.messages = [*self._earlier]
        input = None if self._earlier else arguments["input"]
        stream = agent.stream(input, InnerEvents(self, self._mailbox), deps=self._deps)
        stream.before_actions, stream.on_wait = self.stream.before_actions, self._begin_wait
        return self._run_async(stream) if self.tool.is_async else self._run_sync(stream)

    def _begin_wait(self) -> None:
        """Note that the inner run does nothing but wait for answers."""
        self.waits = True
        self._mailbox.put_wait()

    def _run_sync(self, stream: Any) -> Any:
        try:
            text = stream.get_final_text()
        finally:
            stream.close()
        return stream.get_final_output() if self._has_output(stream) else self._answer(stream, text)

    async def _run_async(self, stream: Any) -> Any:
        try:
            text = await stream.get_final_text()
        finally:
            await stream.close()
        return await stream.get_final_output() if self._has_output(stream) else self._answer(stream, text)

    def _has_output(self, stream: Any) -> bool:
        """Whether the inner answer has a type, so that the call's output is its JSON."""
        typed = self._agent is not None and self._agent.output_type is not None
        return typed and stream.status == "completed" and stream.current_run.finish_reason != "declined"

    def _answer(self, stream: Any, text: str) -> str | None:
        """Return the call's output: the inner run's answer, or why there is none. None while the inner run waits."""
        run = stream.current_run
        match stream.status:
            case "requires_action":
                self.suspended = True
                return None
            case "cancelled" if self._is_stopped():
                raise Stopped
            case "cancelled":
                raise UsageError("the agent was stopped before it had answered")
            case _ if run.finish_reason == "declined":
                return _with_note(text, "the user declined what it wanted to do, so it stopped")
            case _ if (refusal := _refusal(stream)) is not None:
                return _with_note(text, refusal)
            case "incomplete":
                return _with_note(text, f"it was cut short: {run.finish_reason or 'incomplete'}")
            case _:
                return text

    def succeed(self, value: object) -> None:
        """Emit the output, unless the inner run waits."""
        if not self.suspended:
            super().succeed(value)

    @property
    def inner_messages(self) -> list[Message]:
        """The inner conversation so far, as the outer one has it: with the outcome of each action, and without its input."""
        if self._agent is None:
            return [self.names.outer(message) for message in self._earlier[1:]]
        return [self.names.outer(message) for message in self._agent.messages[1:]]


class InnerNames:
    """The ids of an inner run's messages on the outer stream, and back.

    Args:
        parent: the id of the outer call.
    """

    def __init__(self, parent: str) -> None:
        self.parent = parent
        self._prefix = f"{parent}/"

    def id(self, id: str) -> str:
        """Return an inner id as the outer stream has it."""
        return self._prefix + id

    def outer(self, message: _M) -> _M:
        """Return a copy of an inner message as the outer stream has it."""
        names = {key: None if value is None else self._prefix + value for key, value in _names_of(message).items()}
        parent = self.parent if message.parent_id is None else self._prefix + message.parent_id
        return self._renamed(message, {**names, "parent_id": parent})

    def inner(self, message: Message) -> Message:
        """Return a copy of an outer message as the inner conversation has it."""
        names = {key: value and value.removeprefix(self._prefix) for key, value in _names_of(message).items()}
        parent = None if message.parent_id == self.parent else (message.parent_id or "").removeprefix(self._prefix)
        return self._renamed(message, {**names, "parent_id": parent})

    def _renamed(self, message: _M, names: dict[str, Any]) -> _M:
        question = names.pop("question")
        copy = changed(message, **names)
        if question is not None:
            copy.metadata = {**copy.metadata, "confirmation": question}
        return copy

    def begun(self, message: Message) -> Message:
        """Return the beginning of an inner message as the outer stream has it."""
        beginning = self.outer(message).header()
        beginning.run_id = beginning.step_id = None
        return beginning

    def done(self, message: Message) -> Message:
        """Return an inner message that is done as the outer stream has it. A call still takes its answer."""
        done = self.outer(message)
        done.run_id = done.step_id = None
        if isinstance(done, ToolCallMessage) and isinstance(message, ToolCallMessage):
            done.answer_slot = message.answer_slot
        return done

    def confirmation(self, inner: Confirmation) -> Confirmation:
        """Return an inner confirmation as the outer stream has it. The inner run takes its answer."""
        outer = Confirmation(
            self.id(inner.id),
            self.done(inner.subject),
            status=inner.status,
            edited=inner.edited,
            reason=inner.reason,
            malformed=inner.malformed,
            expires_at=inner.expires_at,
        )
        outer.editable, outer.answer_slot = inner.editable, inner.answer_slot
        return outer

    def conversation(self, call: ToolCallMessage, messages: Sequence[Message]) -> list[Message]:
        """Return the inner conversation that an outer one contains, with its input; [] if it contains none."""
        after = messages_after(call, messages)
        inner = [self.inner(message) for message in after if is_inside(message, self.parent)]
        input = str(call.arguments.get("input", ""))
        return [TextMessage(role="user", content=input), *inner] if inner else []


def _names_of(message: Message) -> dict[str, str | None]:
    """Return the ids in a message, its own and those that it refers to, by field; `question` is in its metadata."""
    return {
        "id": message.id,
        "call_id": message.call_id,
        "group": message.group,
        "step_id": message.step_id,
        "question": message.metadata.get("confirmation"),
    }


class InnerEvents(Handler):
    """Puts the events of an inner stream into the mailbox of the outer one. It is the last handler of the inner stream.

    Events of its run, its steps and its end are left out: the outer call and its output are the bracket. The tokens of each step are
    added to those of the outer step.

    Args:
        call: the outer call.
        mailbox: of the outer stream's source.
    """

    def __init__(self, call: AgentCall, mailbox: Mailbox) -> None:
        self._call = call
        self._mailbox = mailbox

    def handle(self, event: e.Event, /) -> None:
        """Put an event into the mailbox."""
        names, put = self._call.names, self._mailbox.put
        self._mailbox.goes_on(self._call)
        match event:
            case e.Delta():
                delta = type(event)(names.id(event.message_id), event.value, event.replace, event.metadata)
                self._mailbox.put_delta(delta)
            case e.Created():
                put([type(event)(names.begun(event.message))])
            case e.Done(message=message):
                slot = message.answer_slot if isinstance(message, ToolCallMessage) else None
                self._ask(type(event)(names.done(message)), slot)
            case e.ActiveLine():
                put([e.ActiveLine(names.id(event.message_id), event.line)])
            case e.AnnotationAdded():
                put([e.AnnotationAdded(names.id(event.message_id), event.annotation)])
            case e.ConfirmationCreated(confirmation=confirmation):
                self._ask(e.ConfirmationCreated(names.confirmation(confirmation)), confirmation.answer_slot)
            case e.ConfirmationDone():
                put([e.ConfirmationDone(names.confirmation(event.confirmation))])
            case e.StreamRetry():
                put([replace(event, withdrawn=[*map(names.id, event.withdrawn)])])
            case e.RunStepDone(run_step=e.RunStep(usage=e.Usage() as usage)):
                self._mailbox.put_later(lambda: self._added(usage))
            case e.RunEvent() | e.RunStepEvent() | e.Usage() | e.RawEvent():
                pass
            case e.StreamTimeout() | e.StreamException() | e.StreamEnd():
                pass
            case _:
                put([replace(event, position=None, item_index=None)])

    def _ask(self, event: e.Event, slot: Answer | None) -> None:
        """Put an event that may need an answer into the mailbox. The inner stream waits until the handlers of all outer streams
        have been called."""
        if slot is not None:
            self._mailbox.put_later(self._record)  # an application may save the conversation while it waits
        if slot is not None and slot.answered:
            slot.is_settled = True
        if slot is None or not slot.open or (slot.deferred and slot.deferrals != slot.forwarded):
            self._mailbox.put([event])
            return
        slot.defer(None)
        slot.forwarded = deferral = slot.deferrals
        self._mailbox.put([event])

        def stop_waiting() -> Sequence[e.Event]:
            if slot.open and slot.deferrals == deferral:  # nobody has answered or deferred it
                slot.expire(deferral)
                slot.wake()
            return ()

        self._mailbox.put_later(stop_waiting)

    def _record(self) -> Sequence[e.Event]:
        self._call.record()
        return ()

    def _added(self, usage: e.Usage) -> Sequence[e.Event]:
        """Return the tokens of the outer step, with these."""
        step = self._call.stream.current_run_step_snapshot
        before = None if step is None else step.usage
        own = e.Usage(usage.input_tokens, usage.output_tokens, usage.total_tokens, usage.details)
        return [own if before is None else before + own]


def inner_pending(agent: AgentCore) -> Mapping[str, Confirmation | ToolCallMessage]:
    """Return the questions of the inner runs of an agent's open calls, by their ids on the outer stream."""
    pending: dict[str, Confirmation | ToolCallMessage] = {}
    for call in agent.open_calls():
        tool = agent.tools.get(call.name or "")
        names = InnerNames(call_id_of(call))
        if tool is None or tool.agent is None or not (conversation := names.conversation(call, agent.messages)):
            continue
        inner = tool.agent.copy_inside(agent.depth + 1)
        inner.messages = conversation
        for waiting in inner.pending.values():
            outer = names.confirmation(waiting) if isinstance(waiting, Confirmation) else names.outer(waiting)
            pending[outer.id if isinstance(outer, Confirmation) else call_id_of(outer)] = outer
    return pending


def pending_in(messages: Sequence[Message]) -> Mapping[str, Confirmation | ToolCallMessage]:
    """Return what the open calls of a conversation wait for, and the agents that they have asked, by the ids that it has on its
    stream. Which of the calls the agent itself answers is not known here."""
    calls = open_calls(messages)
    pending = pending_of(messages, calls)
    for call in calls:
        names = InnerNames(call_id_of(call))
        for waiting in pending_in(names.conversation(call, messages)).values():
            outer = names.confirmation(waiting) if isinstance(waiting, Confirmation) else names.outer(waiting)
            pending[outer.id if isinstance(outer, Confirmation) else call_id_of(outer)] = outer
    return pending


def _refusal(stream: Any) -> str | None:
    """Return the note that the inner model refused to answer; None if it did not."""
    own = [one for one in stream.messages if isinstance(one, RefusalMessage) and one.parent_id is None]
    if not own and stream.current_run.finish_reason != "refusal":
        return None
    return ": ".join(["it refused to answer", *(one.content for one in own)])


def ids_shown_again(messages: Sequence[Message]) -> set[str]:
    """Return the ids of the messages that the next stream of a conversation repeats: its open calls with their code, and those
    of their sub-agents."""
    calls = open_calls(messages)
    call_ids = {call_id_of(call) for call in calls}
    ids = {call.id for call in calls}
    ids |= {message.id for message in messages if isinstance(message, CodeMessage) and message.call_id in call_ids}
    for names in map(InnerNames, call_ids):
        ids |= {
            names.id(id)
            for id in ids_shown_again([names.inner(one) for one in messages if is_inside(one, names.parent)])
        }
    return ids


def _with_note(text: str, note: str) -> str:
    """Return a text, followed by how the run ended. Both are for the outer model."""
    return "\n".join(part for part in (text, f"({note})") if part)
