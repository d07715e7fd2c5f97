"""Finds out which of a producer's events belong to one message, and reports them to the log once the message has ended.

The last of these events has all of the message. So a reader that only rebuilds the state of a run need not read the others.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..messages import Message
from .interface import LogWriter

__all__ = ["MessageSpans"]

_REPORT_AFTER = 256  # events; leaving out fewer of them would save a reader hardly any time


class MessageSpans:
    """Finds the messages whose events follow each other in the log, with nothing else in between, and reports them.

    Args:
        log: what the events are written with.
    """

    def __init__(self, log: LogWriter) -> None:
        self._log = log
        self._open: set[str] = set()
        # The newest message, if no other was open when it began, and only deltas of it came since.
        self._newest: Message | None = None
        self._first = 0  # the number of its first event
        self._call_id: str | None = None  # as its first event has it
        self._ended: list[tuple[int, int]] = []  # the spans that are to be reported: numbers of first and last events

    def resume(self, messages: Iterable[Message]) -> None:
        """Note the messages that are open when this producer takes over the run from another one."""
        self._open.update(message.id for message in messages)

    def begin(self, message: Message, number: int, written: int) -> None:
        """A message begins.

        Args:
            number: that of the event with which it begins.
            written: how many events are in the log so far.
        """
        ended = self._ended
        if ended and number - ended[0][0] > _REPORT_AFTER and ended[-1][1] <= written:
            self._log.messages_ended(ended)
            self._ended = []
        self._newest = None if self._open else message
        self._first, self._call_id = number, message.call_id
        self._open.add(message.id)

    def end(self, message: Message, number: int) -> None:
        """A message ends with the event that has this number."""
        # If it got its `call_id` later than its first event, the call was open in between, which its last event alone cannot show.
        if self._newest is message and message.call_id == self._call_id:
            self._ended.append((self._first, number))
        self._newest = None
        self._open.discard(message.id)

    def interrupt(self) -> None:
        """An event comes that is neither a delta nor the beginning or end of a message."""
        self._newest = None
