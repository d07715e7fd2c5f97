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
from ..messages.json_text import json_key
from ..shared_names import share_names

__all__ = ["Sizes"]

_MEASURE_AFTER = 1 << 24  # bytes
_NONE: dict[str, int] = {}  # in the place of the sizes of a stream in which nothing was measured


class Sizes:
    """The sizes of one stream's messages.

    Attributes:
        limits: the sizes that end the stream.
    """

    limits = DEFAULT_LIMITS
    _unmeasured = 0  # bytes of long items since all open messages were measured
    _total = 0  # characters of all messages, as far as they were measured
    # Made for the first message that has such a thing: most streams have none.
    _besides: dict[str, int] | None = None  # of what the open messages have beside their content
    _metadata: dict[str, int] | None = None  # of the part of it that is metadata

    _sizes = _NONE  # of the open messages, when they were measured

    def released(self) -> Sizes:
        """What a stream refers to when nothing more comes: its limits are left."""
        if self.limits is DEFAULT_LIMITS:
            return _OF_NOTHING
        self._sizes, self._besides, self._metadata = _NONE, None, None
        return self

    def measure(self, message: Message) -> None:
        """Compare the size of a message, and that of all messages, with the limits.

        Raises:
            LimitError: it is too long, or all messages together are.
        """
        size = message.size
        self._total += size - self._sizes.get(message.id, 0)
        if self._sizes is _NONE:
            self._sizes = {}
        self._sizes[message.id] = size
        if size > self.limits.message:
            raise LimitError("message", self.limits.message)
        if self._total > self.limits.total:
            raise LimitError("total", self.limits.total)

    def add_beside(self, id: str, size: int) -> None:
        """Count what a message has beside its content: characters of JSON text.

        Raises:
            LimitError: it is too much, or all messages together are too long.
        """
        if self._besides is None:
            self._besides = {}
        self._total += size
        self._besides[id] = beside = self._besides.get(id, 0) + size
        if beside > self.limits.message:
            raise LimitError("message", self.limits.message)
        if self._total > self.limits.total:
            raise LimitError("total", self.limits.total)

    def add_metadata(self, id: str, size: int) -> None:
        """Count metadata that a message has, or will have when it is done. Raises as `add_beside`."""
        if self._metadata is None:
            self._metadata = {}
        self._metadata[id] = self._metadata.get(id, 0) + size
        self.add_beside(id, size)

    def measure_metadata(self, id: str, metadata: Mapping[str, Any]) -> None:
        """Count what was not counted before of a message's metadata. Raises as `add_beside`."""
        counted = 0 if self._metadata is None else self._metadata.get(id, 0)
        if (more := len(json_key(metadata)) - counted) > 0:
            self.add_metadata(id, more)

    def add_ended(self, content: str, metadata: Mapping[str, Any] | None) -> bool:
        """Count a message that has ended. False, and nothing is counted, if it or all messages together are too long."""
        size, beside = len(content), len(json_key(metadata)) if metadata else 0
        total, limits = self._total + size + beside, self.limits
        if total > limits.total or size > limits.message or beside > limits.message:
            return False
        self._total = total
        return True

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
        for sizes in (self._sizes, self._besides, self._metadata):
            if sizes:
                sizes.pop(message.id, None)


_OF_NOTHING = Sizes()  # shared by the streams that have ended: they get no more messages
share_names(Sizes, "limits _unmeasured _total _sizes _besides _metadata")
