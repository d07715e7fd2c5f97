"""The sizes of what a stream has received, compared with its limits.

A message is measured where its deltas are joined and where it is done, and all open ones after so many bytes of long items: the
memory is bounded without a look at each delta.
"""

from __future__ import annotations

from ..errors import LimitError
from ..limits import DEFAULT_LIMITS
from ..messages import Message

__all__ = ["Sizes"]

_MEASURE_AFTER = 1 << 24  # bytes


class Sizes:
    """The sizes of one stream's messages.

    Attributes:
        limits: the sizes that end the stream.
    """

    limits = DEFAULT_LIMITS
    _unmeasured = 0  # bytes of long items since all open messages were measured
    _total = 0  # characters of all messages, as far as they were measured

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}  # of the open messages, when they were measured

    def measure(self, message: Message) -> None:
        """Compare the size of a message, and that of all messages, with the limits.

        Raises:
            LimitError: it is too long, or all messages together are.
        """
        size = message.size
        self._total += size - self._sizes.get(message.id, 0)
        self._sizes[message.id] = size
        if size > self.limits.message:
            raise LimitError("message", self.limits.message)
        if self._total > self.limits.total:
            raise LimitError("total", self.limits.total)

    def check_open(self, count: int) -> None:
        """Compare the number of open messages with the limit before another one begins.

        Raises:
            LimitError: there are as many as there may be.
        """
        if count >= self.limits.open_messages:
            raise LimitError("open_messages", self.limits.open_messages)

    def are_due(self, size: int) -> bool:
        """Whether all open messages are to be measured now that an item of this size came."""
        self._unmeasured += size
        if self._unmeasured > _MEASURE_AFTER:
            self._unmeasured = 0
            return True
        return False

    def message_done(self, message: Message) -> None:
        """The message grows no more: its size stays in the total."""
        self._sizes.pop(message.id, None)
