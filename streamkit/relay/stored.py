"""What of an event a log in memory keeps, and what each reader gets of it.

An event is kept as it is when it is written: without its source and its snapshot, and with a copy of what is still
live in it. What asks for an answer keeps the producer's own; each reader gets a copy whose answer is handed on, so that
a reader who leaves takes back no more than his own.
"""

# pyright: reportPrivateUsage=false
# An answer is the engine's and the relay's; its underscore keeps users from it.

from __future__ import annotations

from typing import Any

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
    Usage,
)
from ..messages import Message, ToolCallMessage

__all__ = ["asks", "for_reader", "kept"]


def kept(event: Event) -> Event:
    """An event as the log keeps it: never seen by the one who wrote it."""
    if isinstance(event, Delta):
        return type(event)(event.message_id, event.value, event.replace, event.metadata)
    replace = msgspec.structs.replace
    changes: dict[str, Any] = {"raw_item": None, "item_index": None, "position": None}
    match event:
        case Created():
            changes["message"] = event.message.header()
        case Done():
            # Its content is joined now: readers in several threads would do it at once.
            changes["message"] = _still(event.message)
        case ConfirmationCreated() | ConfirmationDone():
            changes["confirmation"] = _asked(event.confirmation, done=isinstance(event, ConfirmationDone))
        case RunCreated() | RunDone() | RunRequiresAction():
            changes["run"] = _still_run(event.run)
        case RunStepCreated() | RunStepDone():
            changes["run_step"] = _still_run(event.run_step)
        case StreamException():
            changes["exception"] = None
        case _ if "snapshot" in event.__struct_fields__:
            changes["snapshot"] = None
        case _:
            pass
    return replace(event, **changes)


def _still(message: Message) -> Message:
    """A message that nobody changes any more, not even by reading it."""
    if message.status == "in_progress":
        return message.copy()
    _ = message.content
    return message


def _still_run(live: Run | RunStep) -> Run | RunStep:
    usage: Usage | None = None if live.usage is None else msgspec.structs.replace(live.usage, raw_item=None)
    return msgspec.structs.replace(live, raw=None, usage=usage)


def _asked(given: Confirmation, *, done: bool) -> Confirmation:
    subject = _still(given.subject)
    asked = Confirmation(given.id, subject, malformed=given.malformed)
    if done:
        asked.status, asked.edited, asked.reason = given.status, given.edited, given.reason
        return asked
    asked.answer_slot = given.answer_slot
    asked.editable = given.editable
    return asked


def asks(event: Event) -> bool:
    """Whether an event that is kept waits for an answer."""
    match event:
        case ConfirmationCreated(confirmation=asked):
            return asked.answer_slot is not None
        case Done(message=ToolCallMessage() as call):
            return call.answer_slot is not None
        case _:
            return False


def for_reader(event: Event) -> Event:
    """One reader's copy of an event that asks."""
    match event:
        case ConfirmationCreated(confirmation=given) if given.answer_slot is not None:
            asked = _asked(given, done=False)
            asked.answer_slot = _HandedOn(given.answer_slot)
            return msgspec.structs.replace(event, confirmation=asked)
        case Done(message=ToolCallMessage() as given) if given.answer_slot is not None:
            call = given.copy()
            call.answer_slot = _HandedOn(given.answer_slot)
            return msgspec.structs.replace(event, message=call)
        case _:
            return event


class _HandedOn(Answer):
    """One reader's part in an answer that several can give: the first wins."""

    __slots__ = ("_handed_on", "_theirs")

    def __init__(self, theirs: Answer) -> None:
        super().__init__(theirs.what, self._hand_on, awaitables=theirs.awaitables)
        self._theirs = theirs
        self._handed_on = 0  # deferrals

    @property
    def open(self) -> bool:
        return super().open and self._theirs.open

    @property
    def answered(self) -> bool:
        return super().answered or self._theirs.answered

    def _hand_on(self) -> None:
        if self.given:
            self._theirs.give(self.value)
        elif self.deferrals != self._handed_on:
            self._handed_on = self.deferrals
            self._theirs.defer(self.timeout)

    def _check(self) -> None:
        super()._check()
        self._theirs._check()
