"""The warnings of a stream: the repairs that were made, or in a strict stream the error that ends it."""

from __future__ import annotations

import msgspec

from ..errors import ProtocolError
from ..events import StreamWarning

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
        warnings: those warnings.
    """

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self.warnings: list[StreamWarning] = []
        self._faults: set[str] | None = None  # those of the warnings, once there are any

    def has_fault(self, fault: str) -> bool:
        """Whether one of the warnings is about this fault."""
        return self._faults is not None and fault in self._faults

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
            self._faults = self._faults or set()
            self._faults.add(warning.fault)
        return warning
