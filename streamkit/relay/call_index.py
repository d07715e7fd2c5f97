"""Finds the calls among a run's messages, for the outputs and the confirmations that an emitter writes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from ..messages import CodeMessage, Message, ToolCallMessage

__all__ = ["CallIndex"]


class CallIndex:
    """The calls among messages that grow at their end, and may be forgotten at their beginning. Each message is looked at
    once, so that thousands of calls cost as much as a few, each.

    Attributes:
        newest_call: the newest tool call; None if there is none.
        newest_subject: the newest tool call or code, which can be confirmed; None if there is none.
    """

    def __init__(self) -> None:
        self.newest_call: ToolCallMessage | None = None
        self.newest_subject: CodeMessage | ToolCallMessage | None = None
        self._calls: dict[str, ToolCallMessage] = {}  # by message id and by call id
        self._open: list[ToolCallMessage] = []  # the call id of which may come later
        self._seen: Message | None = None

    def update(self, messages: Sequence[Message]) -> None:
        """Look at the messages that are new."""
        if len(self._calls) > 4 * len(messages):  # most of them were forgotten
            self._calls.clear()
            self._seen = None
        new = [*takewhile(lambda message: message is not self._seen, reversed(messages))]
        for message in reversed(new):
            if isinstance(message, (CodeMessage, ToolCallMessage)):
                self.newest_subject = message
            if isinstance(message, ToolCallMessage):
                self.newest_call = message
                self._open.append(message)
        for call in self._open:
            self._calls[call.id] = self._calls[call.call_id or call.id] = call
        self._open = [call for call in self._open if call.status == "in_progress"]
        self._seen = messages[-1] if messages else None

    def name_of(self, id: str | None) -> str | None:
        """Return the name of the newest call that has this call id, or is the message with this id."""
        call = self._calls.get(id) if id is not None else None
        return call.name if call is not None else None
