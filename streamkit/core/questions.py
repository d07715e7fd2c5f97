"""The mapping of what waits for an answer, as users read it."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView

from ..answers import Confirmation
from ..messages import ToolCallMessage

__all__ = ["Pending"]


class Pending(Mapping[str, Confirmation | ToolCallMessage]):
    """A live mapping of what waits for an answer. A loop over it goes over what waits when the loop begins."""

    def __init__(self, waiting: Mapping[str, Confirmation | ToolCallMessage]) -> None:
        self._waiting = waiting

    def __getitem__(self, key: str) -> Confirmation | ToolCallMessage:
        return self._waiting[key]

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[str]:
        return iter([*self._waiting])

    def items(self) -> ItemsView[str, Confirmation | ToolCallMessage]:
        return dict(self._waiting).items()

    def values(self) -> ValuesView[Confirmation | ToolCallMessage]:
        return dict(self._waiting).values()

    def __repr__(self) -> str:
        return repr(self._waiting)
