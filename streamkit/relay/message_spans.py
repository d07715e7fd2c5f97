"""Which events that a producer writes are those of one message, from its first to its last one.

A log that knows them spares readers that only rebuild the state all lines but the last, which has the whole message.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..messages import Message
from .interface import LogWriter

__all__ = ["MessageSpans"]

_REPORT_AFTER = 256  # events: a reader goes over so few of them in no time


class MessageSpans:
    """Finds the messages whose events stand together, with nothing but their deltas in between, and reports them.

    Args:
        log: what the events are written with.
    """

    def __init__(self, log: LogWriter) -> None:
        self._log = log
        self._open: set[str] = set()
        self._newest: Message | None = None  # has begun while no other was open, and since then had only deltas
        self._first = 0  # the number of its first event
        self._call_id: str | None = None  # as its first event has it
        self._ended: list[tuple[int, int]] = []  # that are to be reported

    def resume(self, messages: Iterable[Message]) -> None:
        """These messages, which an earlier producer has written, are open."""
        self._open.update(message.id for message in messages)

    def begin(self, message: Message, number: int, written: int) -> None:
        """A message begins with the event that has this number, of which so many are written."""
        ended = self._ended
        if ended and number - ended[0][0] > _REPORT_AFTER and ended[-1][1] <= written:
            self._log.messages_ended(ended)
            self._ended = []
        self._newest = None if self._open else message
        self._first, self._call_id = number, message.call_id
        self._open.add(message.id)

    def end(self, message: Message, number: int) -> None:
        """A message ends with the event that has this number."""
        # Where it got its `call_id` meanwhile, it has answered the call since then, and not since it began.
        if self._newest is message and message.call_id == self._call_id:
            self._ended.append((self._first, number))
        self._newest = None
        self._open.discard(message.id)

    def interrupt(self) -> None:
        """Another event comes, which is no delta."""
        self._newest = None
