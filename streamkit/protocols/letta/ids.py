"""The ids of messages, and their places in Letta's own messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..dates import time_of
from ..message_ids import MessageIds
from ..values import WireObject, as_text, text_or_none

__all__ = ["GroupPositions", "LettaMessageIds"]


class LettaMessageIds(MessageIds):
    """The ids of messages, of which those that come complete may be repeated."""

    __slots__ = ("_of_complete",)

    def __init__(self, new_id: Callable[[], str]) -> None:
        super().__init__(new_id)
        self._of_complete: dict[tuple[str, str], str] = {}

    def of_complete(self, kind: str, *candidates: str) -> str:
        """As `unused`, for a message that comes complete in one item. A repeated item gets the same id again."""
        key = (kind, next(filter(None, candidates), ""))
        if not key[1]:
            return self.unused()
        if key not in self._of_complete:
            self._of_complete[key] = self.unused(*candidates)
        return self._of_complete[key]


class GroupPositions:
    """Counts the messages that come from each of Letta's own messages, which are their groups."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def next_in(self, wire: WireObject) -> dict[str, Any]:
        """Return the fields of the next message that comes from an item: its group, index, step_id and created_at."""
        group = as_text(wire.get("id"))
        index = self._counts.get(group, 0)
        if group:
            self._counts[group] = index + 1
        return {
            "group": group or None,
            "step_id": text_or_none(wire.get("step_id")),
            "index": index,
            "created_at": time_of(wire.get("date")),
        }
