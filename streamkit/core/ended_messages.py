"""Messages that had ended before the cursor after which a stream resumes. They stay encoded until somebody reads them.

Nobody receives their events, so of each the engine needs only what later events may refer to: its id, its size, and the call
that it belongs to. Making the whole message takes ten times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import msgspec

from ..answers import Answer
from ..events import Done, Event
from ..messages import Message, ToolCallMessage

__all__ = ["EndedMessage", "EndedMessages", "answered_calls", "message_of"]


class EndedMessage(msgspec.Struct, gc=False, forbid_unknown_fields=True, kw_only=True):
    """The static form of a message that has ended, as our writers write it, and has no annotations."""

    id: Annotated[str, msgspec.Meta(min_length=1)]
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
    run_id: str
    step_id: str
    provider_executed: bool = False
    status: Literal["completed", "incomplete", "cancelled", "failed"] = "completed"
    metadata: dict[str, object] | None = None
    content: str

    @property
    def wants_output(self) -> bool:
        """Whether it is a complete call that waits for an output, which the provider does not give itself."""
        return self.type == "tool_call" and self.status == "completed" and not self.provider_executed

    @property
    def answers(self) -> str | None:
        """The id of the call whose output it is; None if it is no output."""
        return self.call_id if self.role == "computer" or self.type == "tool_output" else None


class EndedMessages(Event):
    """Messages that ended one after the other before the cursor. Only the engine receives this event; no hook has it.

    Attributes:
        messages: their static forms.
        lines: their encoded forms, one line each.
        decode: returns the event of a line, for the engine to complete now.
        read: returns the event of a line whose message is only read later.
        are_created: whether each was created in the log. If so, one whose id was in use already is another message; if not,
            it is the same message once more.
    """

    messages: Sequence[EndedMessage]
    lines: Sequence[bytes]
    decode: Callable[[bytes], Event]
    read: Callable[[bytes], Event]
    are_created: bool


def answered_calls(messages: Sequence[EndedMessage]) -> set[str]:
    """The ids of the calls among these messages that a later one of them answers, without ids that two calls share."""
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
        message.replace_content(message.content)  # the content counts as one delta
    message.finish()
    if isinstance(message, ToolCallMessage) and not message.provider_executed:
        message.answer_slot = Answer(f"tool call {message.call_id or message.id!r}", _nothing)
        message.answer_slot.close()
    return message


def _nothing() -> None:
    """Nothing waits for the answer."""
