"""The sizes of what a stream has received, compared with its limits.

A message's content is measured where its deltas are joined and where it is done, and all open ones after so many bytes of long
items: the memory is bounded without a look at each delta. Annotations and metadata are counted as they come.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import LimitError
from ..limits import DEFAULT_LIMITS
from ..messages import Message
from ..messages.json_text import held_size

__all__ = ["MessageSizes"]

_MEASURE_AFTER = 1 << 24  # bytes


class MessageSizes:
    """The sizes of one stream's messages.

    Attributes:
        limits: the sizes that end the stream.
    """

    __slots__ = (
        "_besides",
        "_contents",
        "_metadata",
        "_total",
        "_unmeasured",
        "limits",
    )

    def __init__(self) -> None:
        self.limits = DEFAULT_LIMITS
        self._unmeasured = 0  # bytes of long items since all open messages were measured
        self._total = 0  # characters of all messages, as far as they were measured
        self._contents: dict[str, int] = {}  # characters of the open messages, when they were measured
        self._besides: dict[str, int] = {}  # characters that they have beside their content
        self._metadata: dict[str, int] = {}  # the part of these that is metadata

    def measure(self, message: Message, *, is_last: bool = False) -> None:
        """Compare the size of a message, and that of all messages, with the limits.

        Args:
            is_last: whether the message is about to be done, so that it is not measured again.

        Raises:
            LimitError: it is too long, or all messages together are.
        """
        size = message.size
        self._total += size - self._contents.get(message.id, 0)
        if not is_last:
            self._contents[message.id] = size
        self._compare(size)

    def add_beside(self, id: str, size: int) -> None:
        """Count what a message has beside its content: characters of JSON text.

        Raises:
            LimitError: it is too much, or all messages together are too long.
        """
        self._total += size
        self._besides[id] = self._besides.get(id, 0) + size
        self._compare(self._besides[id])

    def _compare(self, size: int) -> None:
        """Compare the size of one message, and the total, with the limits."""
        if size > self.limits.message:
            raise LimitError("message", self.limits.message)
        if self._total > self.limits.total:
            raise LimitError("total", self.limits.total)

    def add_metadata(self, id: str, size: int) -> None:
        """Count metadata that a message has, or will have when it is done. Raises as `add_beside`."""
        self._metadata[id] = self._metadata.get(id, 0) + size
        self.add_beside(id, size)

    def measure_metadata(self, id: str, metadata: Mapping[str, Any]) -> None:
        """Count what was not counted before of a message's metadata. Raises as `add_beside`."""
        if (more := held_size(metadata) - self._metadata.get(id, 0)) > 0:
            self.add_metadata(id, more)

    def are_due(self, size: int) -> bool:
        """Whether all open messages are to be measured now that an item of this size came."""
        self._unmeasured += size
        if self._unmeasured > _MEASURE_AFTER:
            self._unmeasured = 0
            return True
        return False

    def message_done(self, message: Message) -> None:
        """Stop measuring a message that is done: its size stays in the total."""
        for sizes in (self._contents, self._besides, self._metadata):
            sizes.pop(message.id, None)
