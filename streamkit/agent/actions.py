"""The record in the conversation of the model's actions: never run, running, interrupted, finished.

An action is a call that the agent answers: of a function, or of the tool that runs code. Its record is plain messages, so
it is in a saved conversation, and in what any `to_input` makes of it:

| what happened | what the conversation has |
|---|---|
| it waits | the call has `metadata["action"] == "waiting"`, and its question's id in `metadata["confirmation"]` once there is one |
| it began | the call has `metadata["action"] == "began"` |
| it finished | its output; the call has no mark |
| it never ran | a tool output that says so, with `metadata["action"] == "not_run"` |
| it was interrupted | a tool output that says so, with what came before and `metadata["action"] == "interrupted"` |

A record is never guessed. Where a program ended before it could write what became of an action that had begun, the next
turn records it as interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ..answers import Confirmation
from ..messages import CodeMessage, ConsoleMessage, Message, ReasoningMessage, ToolCallMessage, ToolOutputMessage
from .conversation import changed, model_text, replace_message

__all__ = [
    "BEGAN",
    "NOT_RUN",
    "WAITING",
    "RecordedAction",
    "as_waiting",
    "belongs_to_calls",
    "complete_records",
    "interrupted_output",
    "is_inside",
    "is_question",
    "messages_after",
    "not_run_output",
    "open_calls",
    "pending_of",
    "reopen_calls",
]

WAITING, BEGAN = "waiting", "began"
NOT_RUN = "Not run: the conversation went on without it."
_INTERRUPTED = "It was interrupted before it finished, and may have had effects."


class RecordedAction:
    """A call that the agent answers, and its mark in the conversation.

    Attributes:
        call: the call as it runs, without the mark.
        settled: whether the conversation has its outcome.
    """

    def __init__(self, call: ToolCallMessage) -> None:
        metadata = {key: value for key, value in call.metadata.items() if key not in ("action", "confirmation")}
        self.call = call if len(metadata) == len(call.metadata) else changed(call, metadata=metadata)
        self.settled = False
        self._present = call  # the conversation's own message of it
        self.question: str | None = call.metadata.get("confirmation")

    def mark(self, messages: list[Message], state: str) -> None:
        """Record the state in the conversation."""
        question = {} if self.question is None else {"confirmation": self.question}
        self._put(messages, changed(self.call, metadata={**self.call.metadata, "action": state, **question}))

    def edit(self, messages: list[Message], arguments: str) -> None:
        """Record that other arguments were approved in place of the call's."""
        self.call = changed(self.call, content=arguments, metadata={**self.call.metadata, "edited": True})
        self._put(messages, self.call)

    def settle(self, messages: list[Message]) -> None:
        """Remove the mark, because the conversation has the outcome."""
        self.settled = True
        self._put(messages, self.call)

    def suspend(self, messages: list[Message]) -> None:
        """Record that the action has begun, and waits: a later stream takes it up, without another confirmation."""
        self.question = None
        self.mark(messages, WAITING)

    def results(self, messages: Sequence[Message]) -> list[Message]:
        """Return the call's results in the conversation so far."""
        index = next((index for index, message in enumerate(messages) if message is self._present), 0)
        call_id = self.call.call_id or self.call.id
        return [message for message in messages[index:] if message.role == "computer" and message.call_id == call_id]

    def _put(self, messages: list[Message], message: ToolCallMessage) -> None:
        replace_message(messages, self._present, message)
        self._present = message


def is_inside(message: Message, call_id: str) -> bool:
    """Whether a message is of this call's sub-agent, or of one inside that."""
    parent = message.parent_id
    return parent is not None and (parent == call_id or parent.startswith(f"{call_id}/"))


def messages_after(call: ToolCallMessage, messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages that come after a call. Some servers give calls of other answers the same `call_id`."""
    index = next((index for index in range(len(messages) - 1, -1, -1) if messages[index].id == call.id), -1)
    return messages[index + 1 :]


def is_question(message: Message) -> bool:
    """Whether the message is the provider's own question, which is a confirmation: whether a call may go to an MCP server."""
    return message.metadata.get("item_type") == "mcp_approval_request"


def not_run_output(call: ToolCallMessage, text: str = NOT_RUN) -> ToolOutputMessage:
    """Return the record that a call never ran. `text` is what the model reads."""
    return _output(call, text, "not_run")


def interrupted_output(call: ToolCallMessage, before: str = "", *, limit: int) -> ToolOutputMessage:
    """Return the record that a call was interrupted.

    Args:
        call: the call.
        before: what it had put out by then.
        limit: characters of that which the model reads.
    """
    before = model_text(before, limit)
    rest = f" Its output so far:\n{before}" if before else " It had no output so far."
    return _output(call, _INTERRUPTED + rest, "interrupted")


def _output(call: ToolCallMessage, text: str, action: str) -> ToolOutputMessage:
    return ToolOutputMessage(
        f"{call.id}.output",
        name=call.name,
        call_id=call.call_id or call.id,
        content=text,
        status="cancelled",
        metadata={"action": action},
        run_id=call.run_id,
        step_id=call.step_id,
    )


# -- the records of a conversation


def open_calls(messages: Sequence[Message]) -> list[ToolCallMessage]:
    """Return the calls without a result in the model's newest answer, if no message follows it: they can still be
    answered."""
    reader = _ConversationReader()
    for message in messages:
        reader.add(message)
    return [*reader.open.values()]


def pending_of(
    messages: Sequence[Message], calls: Sequence[ToolCallMessage]
) -> dict[str, Confirmation | ToolCallMessage]:
    """Return what these open calls wait for, by the ids that it has on a stream: confirmations that nobody decided, and
    outputs."""
    codes = {message.call_id: message for message in messages if isinstance(message, CodeMessage)}
    pending: dict[str, Confirmation | ToolCallMessage] = {}
    for call in calls:
        question = call.id if is_question(call) else call.metadata.get("confirmation")
        if question is not None:
            pending[question] = Confirmation(question, codes.get(call.call_id or call.id, call), status="unanswered")
        elif "action" not in call.metadata:
            pending[call.call_id or call.id] = call
    return pending


def as_waiting(messages: Sequence[Message], run_id: str) -> list[Message]:
    """Return the conversation, with a run's begun actions recorded as waiting: for a run in which none can have begun."""
    return [
        changed(message, metadata={**message.metadata, "action": WAITING})
        if message.run_id == run_id and message.metadata.get("action") == BEGAN
        else message
        for message in messages
    ]


def reopen_calls(messages: list[Message], executes: Callable[[ToolCallMessage], bool]) -> None:
    """Record the calls of the newest answer that have no outcome as waiting: for a run in which none can have begun.

    Args:
        messages: the conversation, which is changed.
        executes: whether the agent answers a call.
    """
    for call in filter(executes, open_calls(messages)):
        RecordedAction(call).mark(messages, WAITING)


def complete_records(messages: Sequence[Message], *, at_end: bool, limit: int) -> list[Message]:
    """Return the conversation, with an output for each action that waited or had begun when the conversation went on.

    Args:
        messages: the conversation.
        at_end: whether it goes on after its last message, so that the calls of its last answer are over too. Without it
            those that wait still wait.
        limit: characters of an interrupted action's output that the model reads.
    """
    reader = _ConversationReader()
    complete: list[Message] = []
    for message in messages:
        _record(complete, reader.add(message), reader, limit)
        complete.append(message)
    rest = [call for call in reader.open.values() if at_end or call.metadata.get("action") == BEGAN]
    _record(complete, rest, reader, limit)
    return complete


def _record(complete: list[Message], over: Sequence[ToolCallMessage], reader: _ConversationReader, limit: int) -> None:
    """Append the outputs of calls that can have no result any more, and take their marks away."""
    for call in over:
        if not _is_marked(call):
            continue
        state = call.metadata["action"]
        RecordedAction(call).settle(complete)
        if is_question(call):
            continue  # it is sent with its answer alone
        before = reader.began.pop(call.call_id or call.id, [])
        partial = [message for message in before if isinstance(message, ToolOutputMessage)]
        complete[:] = [message for message in complete if all(message is not one for one in partial)]
        text = "".join(m.content for m in before if isinstance(m, ToolOutputMessage | ConsoleMessage))
        has_begun = state == BEGAN or (call.call_id or call.id) in reader.begun
        complete.append(interrupted_output(call, text, limit=limit) if has_begun else not_run_output(call))


class _ConversationReader:
    """Reads a conversation, message by message.

    Attributes:
        open: the calls of the newest answer that have no result, by the id of the call.
        began: the messages of actions that had begun, which may be all of their output or the beginning of it.
        begun: the ids of the calls with sub-agents that have begun.
    """

    def __init__(self) -> None:
        self.open: dict[str, ToolCallMessage] = {}
        self.began: dict[str, list[Message]] = {}
        self.begun: set[str] = set()
        self._answer: tuple[str | None, str | None] = (None, None)  # run and step of the newest answer

    def add(self, message: Message) -> list[ToolCallMessage]:
        """Take the next message. Returns the calls that were open when the conversation went on with it."""
        over: list[ToolCallMessage] = []
        if message.parent_id is not None:  # of a sub-agent, which has its own conversation
            self.begun.add(message.parent_id)
            return over
        answer = (message.run_id, message.step_id)
        if message.role in ("user", "system") or (message.role == "assistant" and answer != self._answer):
            over = [*self.open.values()]
            self.open.clear()
        if message.role == "assistant":
            self._answer = answer
        if isinstance(message, ToolCallMessage):
            if message.status == "completed" and (not message.provider_executed or _is_marked(message)):
                self.open[message.call_id or message.id] = message
        elif message.role == "computer":
            self._take_result(message)
        return over

    def _take_result(self, message: Message) -> None:
        if message.call_id is None:  # the application's own: it belongs to the newest call
            if self.open:
                self.open.popitem()
            return
        call = self.open.get(message.call_id)
        is_output = isinstance(message, ToolOutputMessage) and message.status != "in_progress"
        if call is not None and call.metadata.get("action") == BEGAN and not is_output:
            self.began.setdefault(message.call_id, []).append(message)
        else:
            self.open.pop(message.call_id, None)


def _is_marked(call: ToolCallMessage) -> bool:
    return call.metadata.get("action") in (WAITING, BEGAN)


def belongs_to_calls(message: Message, call_ids: Collection[str | None]) -> bool:
    """Whether a request with these calls needs the message."""
    if isinstance(message, ReasoningMessage):
        return bool(call_ids) and message.status == "completed"
    return (message.call_id or message.id) in call_ids and message.status == "completed"
