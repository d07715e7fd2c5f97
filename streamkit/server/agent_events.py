"""The meaning of an agent's events for the run that a server makes of them."""

from __future__ import annotations

from collections.abc import Mapping

from ..agent.actions import is_question
from ..answers import Confirmation
from ..events import (
    ConfirmationCreated,
    ConfirmationDone,
    Event,
    RunRequiresAction,
    RunStepDone,
    ToolCallDone,
    ToolOutputDone,
)
from ..messages import ToolCallMessage

__all__ = ["goes_on_after", "is_before_wait", "question_in"]


def goes_on_after(event: Event) -> bool:
    """Whether the agent does more than wait after this event, although none of its own tools or code begins with it."""
    if isinstance(event, ConfirmationDone):
        subject = event.confirmation.subject
        return is_question(subject) or subject.parent_id is not None  # it is not this agent that acts on it
    return isinstance(event, RunStepDone)


def is_before_wait(event: Event, pending: Mapping[str, Confirmation | ToolCallMessage]) -> bool:
    """Whether the agent may wait after this event, with all that ran before it.

    Args:
        event: of the agent's stream.
        pending: what waits for an answer on that stream.
    """
    match event:
        case ConfirmationCreated() | RunRequiresAction() | RunStepDone():
            return True
        case ToolCallDone(message=ToolCallMessage() as call):
            return call.waiting
        case ToolOutputDone(message=message):
            return message.parent_id is None and any(map(_is_of_sub_agent, pending.values()))
        case _:
            return False


def _is_of_sub_agent(waiting: Confirmation | ToolCallMessage) -> bool:
    message = waiting.subject if isinstance(waiting, Confirmation) else waiting
    return message.parent_id is not None


def question_in(event: Event) -> Confirmation | ToolCallMessage | None:
    """Return what an event asks for an answer: a confirmation or a call; None for other events."""
    match event:
        case ConfirmationCreated(confirmation=confirmation):
            return confirmation
        case ToolCallDone(message=ToolCallMessage() as call):
            return call
        case _:
            return None
