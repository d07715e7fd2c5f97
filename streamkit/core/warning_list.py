"""The warnings of a stream: the repairs that were made, or in a strict stream the error that ends it."""

from __future__ import annotations

import msgspec

from ..errors import ProtocolError
from ..events import Event, StreamWarning

__all__ = ["ADVICE", "WarningList"]

_MOST_WARNINGS = 1000
_LONG_ITEM = 1 << 14  # bytes; `warnings` holds no longer items


ADVICE = frozenset({"missing-outputs"})
"""The codes of warnings about the application, not its source: a strict stream does not raise them."""


class WarningList:
    """The first 1000 warnings of one stream.

    Args:
        strict: raise `ProtocolError` in place of a warning about the source.

    Attributes:
        warnings: the first 1000 warnings.
        cause: the event that is being completed, or was last.
        item_index: the number of the item that `cause` came from.
    """

    __slots__ = (
        "_faults",
        "_strict",
        "cause",
        "item_index",
        "warnings",
    )

    def __init__(self, *, strict: bool) -> None:
        self.warnings: list[StreamWarning] = []
        self.cause: Event | None = None
        self.item_index: int | None = None
        self._strict = strict
        self._faults: dict[str, None] = {}  # the faults of the warnings

    def has_fault(self, fault: str) -> bool:
        """Whether a warning with this fault was added."""
        return fault in self._faults

    def warn(self, code: str, fault: str, cause: Event) -> StreamWarning:
        """Add the warning of a fault that the engine found in what this event reports.

        Raises:
            ProtocolError: the stream is strict.
        """
        index = self.item_index if cause is self.cause else cause.item_index
        return self.add_checked(
            StreamWarning(code, fault, index, cause.type, position=cause.position, raw_item=cause.raw_item)
        )

    def advise(self, code: str, fault: str) -> StreamWarning:
        """Add a warning about the application, not its source: a strict stream does not raise it."""
        return self.add(StreamWarning(code, fault))

    def add_checked(self, warning: StreamWarning) -> StreamWarning:
        """Add a warning about the source.

        Raises:
            ProtocolError: the stream is strict.
        """
        if self._strict and warning.code not in ADVICE:
            raise ProtocolError(warning.code, warning.fault, warning.index, warning.kind)
        return self.add(warning)

    def add(self, warning: StreamWarning) -> StreamWarning:
        """Add a warning, in a strict stream too."""
        if len(self.warnings) < _MOST_WARNINGS:
            raw = warning.raw_item
            is_long = isinstance(raw, bytes) and len(raw) > _LONG_ITEM
            self.warnings.append(msgspec.structs.replace(warning, raw_item=None) if is_long else warning)
            self._faults[warning.fault] = None
        return warning
