"""The objects that an Assistants encoder has begun and not ended: steps, their tool calls, and messages of the thread.

They only hold the state; `run_writer`, `call_writer` and `message_writer` make the events.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from ...messages import CodeMessage, Message, Status, ToolCallMessage
from ..values import WireObject

__all__ = ["Item", "OpenCall", "OpenStep", "OpenThreadMessage"]

Item: TypeAlias = dict[str, Any]
"""An object of the API, as it is sent."""


class OpenStep:
    """A step that was created.

    Attributes:
        type: `message_creation` or `tool_calls`.
        message_id: of the message that it creates.
        number: its place among all steps; the key under which it is open.
        status: the first status of its calls that is not completed.
        unfinished: the ids of its flat messages, of calls and consoles, that are not done.
        awaiting_output: its calls whose output is yet to come, by call id.
    """

    def __init__(self, id: str, type: str, message_id: str, created_at: float | None, number: int) -> None:
        self.id = id
        self.type = type
        self.message_id = message_id
        self.created_at = created_at
        self.number = number
        self.calls: list[OpenCall] = []
        self.unfinished: set[str] = set()
        self.awaiting_output: dict[str, OpenCall] = {}
        self.status = "completed"
        self.is_closed = False


class OpenCall:
    """A tool call that was created.

    Attributes:
        type: the kind of the call.
        index: its place in its step.
        body: the value under its kind, as it is at this time.
        content_key: the key of the body whose text grows; "" if there is none.
    """

    def __init__(self, id: str, message: Message, step: OpenStep) -> None:
        self.id = id
        self.type = _call_type(message)
        self.step = step
        self.index = len(step.calls)
        self.body: Item = {}
        self.content_key = ""
        match self.type:
            case "code_interpreter":
                self.content_key, self.body = "input", {"input": "", "outputs": []}
            case "function":
                name = message.name or ""
                self.content_key, self.body = "arguments", {"name": name, "arguments": "", "output": None}
            case _:
                pass

    @property
    def final(self) -> Item:
        """The call as a completed step has it."""
        return {"id": self.id, "type": self.type, self.type: self.body}


class OpenThreadMessage:
    """A message of the thread that was created.

    Attributes:
        key: under which it is open: its group, or its own id.
        content: its parts.
        open_part: the id of the flat message that is its part in progress, None between parts.
        last_delta_part: the index of the part that had the last delta, -1 before the first.
        step: that creates it, if it is the assistant's.
    """

    def __init__(self, id: str, key: tuple[Any, ...], message: Message) -> None:
        self.id = id
        self.key = key
        self.role = "user" if message.role == "user" else "assistant"
        self.created_at = message.created_at
        self.content: list[Item] = []
        self.step: OpenStep | None = None
        self.open_part: str | None = None
        self.last_delta_part = -1
        self.status: Status = "completed"
        self.metadata: WireObject = {}
        self._citation_counts: dict[int, int] = {}
        self.add_metadata(message)

    def add_metadata(self, message: Message) -> None:
        """Add the metadata of one of its parts."""
        self.metadata = {**self.metadata, **message.metadata}

    def next_citation_index(self, part: int) -> int:
        """Return the index of the next citation in a part."""
        index = self._citation_counts.get(part, 0)
        self._citation_counts[part] = index + 1
        return index


def _call_type(message: Message) -> str:
    """Return the kind of tool call that a flat message becomes."""
    if isinstance(message, CodeMessage):
        return "code_interpreter"
    is_executed = isinstance(message, ToolCallMessage) and message.provider_executed
    return "file_search" if is_executed and message.name == "file_search" else "function"
