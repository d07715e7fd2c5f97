"""A conversation as turns, for APIs whose requests are a list of messages: which flat messages go into each, and which go nowhere.

The rules of all such APIs are here: an answer is one turn, however many flat messages it has; each call has its result,
right after the turn that calls, in the order of the calls; code and console output are texts where no call has them. How a turn is
written, its protocol decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import NamedTuple

from ..answers import Confirmation
from ..messages import (
    CodeMessage,
    ConsoleMessage,
    ImageMessage,
    Message,
    ReasoningMessage,
    RefusalMessage,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
)
from .request_content import LeftOut, Report, fenced_block, is_of_executed_call

__all__ = ["Result", "Turn", "call_id_of", "reason_to_leave_out", "turns_of"]

_ANSWERS = (TextMessage, RefusalMessage, ReasoningMessage, CodeMessage, ToolCallMessage)


class Result(NamedTuple):
    """The result of a call.

    Attributes:
        call: the call.
        content: its text.
    """

    call: ToolCallMessage
    content: str


class Turn(NamedTuple):
    """One turn of the conversation.

    Attributes:
        role: `system`, `user`, `assistant` or `tool`.
        parts: the messages in it, in order: texts; of the assistant also reasoning, refusals and calls; of the user whatever it
            attached. Code and console output are texts.
        results: of a turn of the role `tool`, those of the calls of the turn before it, in their order.
    """

    role: str
    parts: list[Message]
    results: Sequence[Result] = ()

    @property
    def text(self) -> str:
        """The texts and refusals of the turn as one. Fenced blocks stand on lines of their own."""
        text = ""
        for part in self.parts:
            if isinstance(part, (TextMessage, RefusalMessage)):
                is_apart = part.content.startswith("```") or text.endswith("\n```")
                text += f"\n{part.content}" if text and is_apart else part.content
        return text

    @property
    def reasoning(self) -> list[ReasoningMessage]:
        """The reasoning of the turn."""
        return [part for part in self.parts if isinstance(part, ReasoningMessage)]

    @property
    def calls(self) -> list[ToolCallMessage]:
        """The calls of the turn, without those that the provider ran."""
        return [part for part in self.parts if isinstance(part, ToolCallMessage) and not part.provider_executed]


def turns_of(messages: Iterable[Message | Confirmation], report: Report, own: str = "") -> list[Turn]:
    """Return the turns of a conversation. `report` is called with what no such API has a place for: confirmations, other choices than
    the first, calls that a provider ran or that are not complete, with their outputs, and what the assistant and the computer made
    that is not text.

    Args:
        messages: the conversation.
        report: called with each message that is left out.
        own: the protocol whose own calls, outputs and images go back in the assistant's turn: the key of their metadata.
    """
    conversation: list[Message] = []
    for message in messages:
        if isinstance(message, Message) and message.choice == 0:
            conversation.append(message)
        else:
            is_message = isinstance(message, Message)
            report(LeftOut(message, "it is of another choice" if is_message else "the API has no place for it"))
    turns = _Turns(conversation, report, own)
    for message in conversation:
        turns.add(message)
    return turns.finish()


def call_id_of(call: ToolCallMessage) -> str:
    """Return the id by which the output of a call names it."""
    return call.call_id or call.id


class _Turns:
    """The turns while they are built."""

    def __init__(self, conversation: Sequence[Message], report: Report, own: str) -> None:
        self._report = report
        self._own = own
        self._turns: list[Turn] = []
        self._is_answered = False  # a call of the newest turn has its result
        calls = [call for call in conversation if isinstance(call, ToolCallMessage)]
        self._sent = {call_id_of(call) for call in calls if call.status == "completed" and not call.provider_executed}
        self._sent_count = 0
        self._newest: dict[str, int] = {}  # the number of a call by its id, which may come again in a later run
        self._outputs: dict[int, str] = {}  # the output of a call, by its number
        self._printed: dict[int, str] = {}

    def add(self, message: Message) -> None:
        match message:
            case ToolCallMessage() if call_id_of(message) in self._sent and not message.provider_executed:
                self._turn("assistant").append(message)
                self._newest[call_id_of(message)] = self._sent_count
                self._sent_count += 1
            case ToolCallMessage(provider_executed=True) | ToolOutputMessage() | ImageMessage() if self._is_own(
                message
            ):
                self._turn("assistant").append(message)
            case ToolOutputMessage() if message.call_id in self._newest and not is_of_executed_call(message):
                self._answer(self._outputs, message)
            case ConsoleMessage() if message.call_id in self._newest:
                self._answer(self._printed, message)
            case CodeMessage() if message.call_id in self._sent:
                pass  # the call has it
            case ConsoleMessage():
                self._turn("user").append(_text(message, "user", fenced_block(message.content, "output")))
            case CodeMessage():
                text = fenced_block(message.content, message.format)
                self._turn("assistant").append(_text(message, "assistant", text))
            case TextMessage(role="system" | "developer"):
                self._turns.append(Turn("system", [message]))
            case RefusalMessage() | ReasoningMessage() | TextMessage(role="assistant"):
                self._turn("assistant").append(message)
            case Message(role="user") if isinstance(message, TextMessage) or not isinstance(message, _ANSWERS):
                self._turn("user").append(message)
            case _:
                self._report(LeftOut(message, reason_to_leave_out(message)))

    def finish(self) -> list[Turn]:
        """Return the turns, each that calls followed by the results. One with nothing but reasoning is left out."""
        turns: list[Turn] = []
        contents, numbers = {**self._printed, **self._outputs}, count()
        for turn in self._turns:
            reasoning = turn.reasoning
            if len(reasoning) == len(turn.parts):
                for part in reasoning:
                    self._report(LeftOut(part, "nothing of its answer goes back"))
                continue
            turns.append(turn)
            numbered = [*zip(turn.calls, numbers, strict=False)]  # in this order, so that no number is lost
            if results := [Result(call, contents[number]) for call, number in numbered if number in contents]:
                turns.append(Turn("tool", [], results))
        return turns

    def _is_own(self, message: Message) -> bool:
        return bool(self._own) and self._own in message.metadata

    def _turn(self, role: str) -> list[Message]:
        """Return the parts of the turn of this role that is being written. The result of a call ends the assistant's."""
        if not self._turns or self._turns[-1].role != role or (self._is_answered and role == "assistant"):
            self._turns.append(Turn(role, []))
        self._is_answered = False
        return self._turns[-1].parts

    def _answer(self, contents: dict[int, str], message: Message) -> None:
        """Add a call's output, which may come in several messages."""
        number = self._newest[message.call_id or ""]
        contents[number] = contents.get(number, "") + message.content
        self._is_answered = True


def _text(message: Message, role: str, content: str) -> TextMessage:
    return TextMessage(message.id, role=role, content=content)


def reason_to_leave_out(message: Message) -> str:
    """Return why a message that has no place in any turn goes nowhere."""
    match message:
        case ToolCallMessage(provider_executed=True):
            return "its provider ran this call"
        case ToolCallMessage():
            return "the call is not complete"
        case ToolOutputMessage():
            return "its call does not go back"
        case _:
            return "the API has no place for it"
