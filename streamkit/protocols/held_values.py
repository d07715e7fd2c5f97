"""Values that a decoder holds until a message or the run is done: added in place, and measured for the stream's
limits."""

from __future__ import annotations

from typing import Any

import msgspec

from ..messages.json_text import held_size
from .values import WireObject

__all__ = ["HeldSize", "add_values"]

_REPORTED_SIZE = 4096  # characters


def add_values(held: dict[str, Any], more: WireObject) -> WireObject:
    """Add the values of an object to those that are held. Returns those that are new, or other than they were."""
    if not held:
        held.update(more)
        return more
    changed = {key: value for key, value in more.items() if key not in held or held[key] != value}
    held.update(changed)
    return changed


class HeldSize(msgspec.Struct, eq=False):
    """Counts what is held, so that some kilobytes are reported at once."""

    unreported: int = 0

    def add(self, value: object) -> int:
        """Count a value, as `held_size` does. Returns how many are to be reported now, mostly 0."""
        self.unreported += held_size(value)
        if self.unreported <= _REPORTED_SIZE:
            return 0
        size, self.unreported = self.unreported, 0
        return size
