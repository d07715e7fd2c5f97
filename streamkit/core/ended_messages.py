"""Messages that had ended before a stream resumed: they stay in their encoded form until somebody reads them.

Nobody receives their events, so of each an engine needs only what later events may refer to: its id, its size, and the call
that it belongs to. To make a message takes ten times as long as that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from ..answers import Answer
from ..events import Done, Event
from ..messages import Message, ToolCallMessage

__all__ = ["EndedMessage", "EndedMessages", "answered_calls", "message_of"]


class EndedMessage(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The static form of a message that has ended and has no annotations."""

    id: str
    role: Literal["assistant", "computer", "user", "system"]
    type: str
    format: str | None = None
    recipient: str | None = None
    name: str | None = None
    call_id: str | None = None
    created_at: float | None = None
    group: str | None = None
    index: int = 0
    choice: int = 0
    run_id: str | None = None
    step_id: str | None = None
    provider_executed: bool = False
    status: Literal["completed", "incomplete", "cancelled", "failed"] = "completed"
    metadata: dict[str, object] | None = None
    content: str | None = None

    @property
    def wants_output(self) -> bool:
        """Whether it is a complete call that somebody else than its provider answers."""
        return self.type == "tool_call" and self.status == "completed" and not self.provider_executed

    @property
    def answers(self) -> str | None:
        """The id of the call that it answers, None if it answers none."""
        return self.call_id if self.role == "computer" or self.type == "tool_output" else None


class EndedMessages(Event):
    """Not an event of streams: messages that ended one after the other, before the cursor after which a stream resumes.

    Attributes:
        messages: their static forms.
        lines: they as they are encoded.
        decode: makes the event of a line, for an engine to complete.
        read: makes the event of a line whose message is read later on.
        are_created: whether each had been created in the log: one whose id was in use is another message then, and else the
            same one again.
    """

    messages: Sequence[EndedMessage]
    lines: Sequence[bytes]
    decode: Callable[[bytes], Event]
    read: Callable[[bytes], Event]
    are_created: bool


def answered_calls(messages: Sequence[EndedMessage]) -> set[str]:
    """The ids of the calls among these messages that a later one of them answers. Without ids that two calls have."""
    calls: set[str] = set()
    twice: set[str] = set()
    answered: set[str] = set()
    for message in messages:
        if message.type == "tool_call":
            if message.wants_output:
                ids = {message.id, message.call_id or message.id}
                twice |= ids & calls
                calls |= ids
        elif message.call_id in calls and (id := message.answers) is not None:
            answered.add(id)
    return answered - twice


def message_of(event: Event) -> Message:
    """The message that has ended with this event, as an engine leaves it."""
    assert isinstance(event, Done)
    message = event.message
    if message.content:
        message.replace_content(message.content)  # which counts as the one delta that it was
    message.finish()
    if isinstance(message, ToolCallMessage) and not message.provider_executed:
        message.answer_slot = Answer(f"tool call {message.call_id or message.id!r}", _nothing)
        message.answer_slot.close()
    return message


def _nothing() -> None:
    """Nothing waits for the answer."""
