"""Stored events: what a log in memory holds of an event, and what each reader receives.

A stored event has no live part of its writer's: no snapshot, no raw item, a copy of each message, run and confirmation.
Only a question (a confirmation or a tool call that waits for an answer) still refers to the producer's own answer.
Each reader receives a copy of it with an answer of the reader's own, so that a reader that leaves closes only that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from ..answers import Answer, Confirmation
from ..events import (
    ConfirmationCreated,
    ConfirmationDone,
    Created,
    Delta,
    Done,
    Event,
    Run,
    RunCreated,
    RunDone,
    RunRequiresAction,
    RunStep,
    RunStepCreated,
    RunStepDone,
    StreamException,
)
from ..messages import Message, ToolCallMessage
from .shared_answer import ReaderAnswer

if TYPE_CHECKING:
    from .reader import Reading

__all__ = ["for_reader", "is_question", "stored"]


def stored(event: Event) -> Event:
    """A copy of an event that no later change reaches. It has no cursor yet."""
    if isinstance(event, Delta):
        return type(event)(event.message_id, event.value, event.replace, event.metadata)
    changes = {field: copy(getattr(event, field)) for field, copy in _live_fields(type(event))}
    return msgspec.structs.replace(event, **changes, raw_item=None, item_index=None, position=None)


@cache
def _live_fields(kind: type[Event]) -> list[tuple[str, Callable[[Any], object]]]:
    """The fields of this class of event that may change after it was written, each with what copies it."""
    fields = kind.__struct_fields__
    return [(field, copy) for base, field, copy in _COPIES if issubclass(kind, base) and field in fields]


def _copy_header(message: Message) -> Message:
    return message.header()


def _copy_message(message: Message) -> Message:
    if message.status == "in_progress":
        return message.copy()
    _ = message.content  # joined now: readers in several threads would join it at the same time
    return message


def _copy_run(run: Run | RunStep) -> Run | RunStep:
    usage = None if run.usage is None else msgspec.structs.replace(run.usage, raw_item=None)
    return msgspec.structs.replace(run, raw=None, usage=usage)


def _copy_question(confirmation: Confirmation) -> Confirmation:
    """A confirmation that can still be answered."""
    question = Confirmation(confirmation.id, _copy_message(confirmation.subject), malformed=confirmation.malformed)
    question.answer_slot, question.editable = confirmation.answer_slot, confirmation.editable
    return question


def _copy_outcome(confirmation: Confirmation) -> Confirmation:
    """A confirmation that was decided, without the slot for its answer."""
    outcome = Confirmation(confirmation.id, _copy_message(confirmation.subject), malformed=confirmation.malformed)
    outcome.status, outcome.edited, outcome.reason = confirmation.status, confirmation.edited, confirmation.reason
    return outcome


def _drop(value: object) -> None:
    """Not stored."""


_Classes: TypeAlias = type[Event] | tuple[type[Event], ...]

_COPIES: list[tuple[_Classes, str, Callable[[Any], object]]] = [
    (Created, "message", _copy_header),
    (Done, "message", _copy_message),
    (ConfirmationCreated, "confirmation", _copy_question),
    (ConfirmationDone, "confirmation", _copy_outcome),
    ((RunCreated, RunDone, RunRequiresAction), "run", _copy_run),
    ((RunStepCreated, RunStepDone), "run_step", _copy_run),
    (StreamException, "exception", _drop),
    (Event, "snapshot", _drop),
]


def is_question(event: Event) -> bool:
    """Whether a stored event waits for an answer."""
    match event:
        case ConfirmationCreated(confirmation=confirmation):
            return confirmation.answer_slot is not None
        case Done(message=ToolCallMessage() as call):
            return call.answer_slot is not None
        case _:
            return False


def for_reader(event: Event, reading: Reading | None = None) -> Event:
    """One reader's copy of a stored event that is a question; any other event itself. A deferral counts as long as
    `reading` is there."""
    match event:
        case ConfirmationCreated(confirmation=Confirmation(answer_slot=Answer() as answer) as confirmation):
            confirmation = _copy_question(confirmation)
            confirmation.answer_slot = ReaderAnswer(answer, reading)
            return msgspec.structs.replace(event, confirmation=confirmation)
        case Done(message=ToolCallMessage(answer_slot=Answer() as answer) as call):
            call = call.copy()
            call.answer_slot = ReaderAnswer(answer, reading)
            return msgspec.structs.replace(event, message=call)
        case _:
            return event
