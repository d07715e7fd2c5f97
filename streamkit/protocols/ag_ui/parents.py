"""Which message of the assistant a tool call belongs to: the same for what is streamed and for what is sent as history."""

from __future__ import annotations

__all__ = ["Parents"]


class Parents:
    """The `parentMessageId` of the calls of one stream.

    Calls belong to the text before them, or to the first of several calls, as long as no other message came in between.
    Clients of 0.x would otherwise make a second message with the same id.
    """

    def __init__(self) -> None:
        self._newest = ""  # the message of the assistant that is the last of all, "" if the last is another's

    def text(self, id: str, role: str) -> None:
        """A text begins."""
        self._newest = id if role == "assistant" else ""

    def other(self) -> None:
        """Another message begins, or a step: later calls do not belong to what came before."""
        self._newest = ""

    def call(self, id: str) -> str:
        """Begin a call. Returns the id of its message, "" if it makes one of its own, which has the call's id."""
        parent, self._newest = self._newest, self._newest or id
        return parent
