"""The answers of clients of model APIs to what has to be confirmed, in the conversation.

Such a client says yes with the user's next words. The run that goes on then has the answer in its conversation, on the call that it is
about, until the call runs: beside it there may be others that are asked one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..agent.actions import RecordedAction, is_question, not_run_output, open_calls
from ..agent.conversation import changed
from ..answers import Confirmation
from ..messages import Message
from ..protocols.ui_parts import DENIED

__all__ = ["decision_of", "decisions_in", "with_decision", "without_actions"]

_DECISION = "decision"  # in the metadata of a call
_YES, _NO = ("yes", "y", "ok", "okay", "approve", "approved"), ("no", "n")


def decision_of(input: Iterable[Message]) -> dict[str, Any]:
    """Return what the user decides with these words: yes, no, or no with the words as the reason."""
    said = "\n".join(message.content for message in input if message.type == "message").strip()
    word = said.lower().rstrip(".!")
    return {"approved": True} if word in _YES else {"approved": False, "reason": DENIED if word in _NO else said}


def decisions_in(messages: Iterable[Message]) -> dict[str, Any]:
    """Return the answers to confirmations that a conversation has, by their ids: one that the agent asks beside others waits until
    these are answered, too."""
    return {_question_of(one): one.metadata[_DECISION] for one in messages if _DECISION in one.metadata}


def _question_of(message: Message) -> str:
    id: str = message.id if is_question(message) else message.metadata.get("confirmation", "")
    return id


def with_decision(messages: Sequence[Message], asked: Confirmation, decision: Mapping[str, Any]) -> list[Message]:
    """Return a conversation with the answer to a confirmation of it."""
    return [
        changed(one, metadata={**one.metadata, _DECISION: decision}) if _question_of(one) == asked.id else one
        for one in messages
    ]


_ELSEWHERE = (
    "The user has answered the question about this call. What came of it, and whether it has run, is in another answer that is not "
    "part of this conversation."
)


def without_actions(messages: Sequence[Message]) -> list[Message]:
    """Return a conversation in which what has to be confirmed is over: its answer is taken, and it runs once, whoever repeats the
    request. What came of it is in the run that this answer began."""
    over = [*messages]
    for call in open_calls(messages):
        if "action" in call.metadata or is_question(call):
            RecordedAction(call).settle(over)
            over.append(not_run_output(call, _ELSEWHERE))
    return over
