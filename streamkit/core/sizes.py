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
from ..shared_names import share_names

__all__ = ["NO_SIZES", "Sizes"]

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
            return NO_SIZES
        self._sizes, self._besides, self._metadata = _NONE, None, None
        return self

    def measure(self, message: Message, *, is_last: bool = False) -> None:
        """Compare the size of a message, and that of all messages, with the limits.

        Args:
            is_last: whether the message is about to be done, so that it is not measured again.

        Raises:
            LimitError: it is too long, or all messages together are.
        """
        id, size = message.id, message.size
        sizes, limits = self._sizes, self.limits
        self._total = total = self._total + size - sizes.get(id, 0)
        if not is_last:
            if sizes is _NONE:
                self._sizes = sizes = {}
            sizes[id] = size
        if size > limits.message:
            raise LimitError("message", limits.message)
        if total > limits.total:
            raise LimitError("total", limits.total)

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
        if (more := held_size(metadata) - counted) > 0:
            self.add_metadata(id, more)

    def are_due(self, size: int) -> bool:
        """Whether all open messages are to be measured now that an item of this size came."""
        self._unmeasured += size
        if self._unmeasured > _MEASURE_AFTER:
            self._unmeasured = 0
            return True
        return False

    def message_done(self, message: Message) -> None:
        """The message is done: its size stays in the total, and is not looked up again."""
        if self._sizes:
            self._sizes.pop(message.id, None)
        if self._besides is not None:
            self._besides.pop(message.id, None)
            if self._metadata is not None:
                self._metadata.pop(message.id, None)


NO_SIZES = Sizes()
"""Of the streams in which nothing was measured yet, and of those that have ended. It has the usual limits, and is never changed."""

share_names(Sizes, "limits _unmeasured _total _sizes _besides _metadata")
