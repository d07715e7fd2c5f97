"""The questions of a stream: what waits for an answer as users read it, and what an engine keeps of it."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Protocol

from ..answers import Answer, Confirmation
from ..messages import ToolCallMessage
from .unique_ids import UniqueIds

__all__ = ["Pending", "Questions"]


class _Engine(Protocol):
    pending: dict[str, Confirmation | ToolCallMessage]  # another one from its first question on


class Pending(Mapping[str, Confirmation | ToolCallMessage]):
    """What waits for an answer, as users read it: live. A loop over it goes over what waits when it begins."""

    def __init__(self, engine: _Engine) -> None:
        self._engine = engine

    @property
    def _pending(self) -> dict[str, Confirmation | ToolCallMessage]:
        return self._engine.pending

    def __getitem__(self, key: str) -> Confirmation | ToolCallMessage:
        return self._pending[key]

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[str]:
        return iter([*self._pending])

    def items(self) -> ItemsView[str, Confirmation | ToolCallMessage]:
        return dict(self._pending).items()

    def values(self) -> ValuesView[Confirmation | ToolCallMessage]:
        return dict(self._pending).values()

    def __repr__(self) -> str:
        return repr(self._pending)


class Questions:
    """What an engine has of questions, from its first one on.

    Attributes:
        ids: those of `pending`.
        changes: the answers that were given, deferred or decided since they were looked at last.
        own: the answers that were made here, each with its question's number and key.
        own_count: how many there were.
        confirmations: those of confirmations among them.
        undecided: the confirmations among `pending`, by their id.
        passive: the ids of those that nobody can answer, and the call ids that they are about.
        passive_by_call: those, by that call id.
        call_keys: the keys of calls, by call id and by their message's id; the one that is answered next comes first.

    What the changes have shown:
        ready: a heap of answers to deliver, by their questions' numbers.
        unstarted: those that are awaitables and were not started.
        awaited: those to wait for.
        deferred: new deferrals among them.
        undeferred: those of confirmations that nobody deferred.
    """

    __slots__ = (
        "awaited",
        "call_keys",
        "changes",
        "confirmations",
        "deferred",
        "ids",
        "own",
        "own_count",
        "passive",
        "passive_by_call",
        "ready",
        "undecided",
        "undeferred",
        "unstarted",
    )

    def __init__(self, pending: dict[str, Confirmation | ToolCallMessage]) -> None:
        self.ids = UniqueIds(pending)
        self.changes: deque[Answer] = deque()
        self.own: dict[Answer, tuple[int, str]] = {}
        self.own_count = 0
        self.confirmations: set[Answer] = set()
        self.undecided: dict[str, Confirmation] = {}
        self.passive: dict[str, str | None] = {}
        self.passive_by_call: dict[str | None, dict[str, Confirmation]] = {}
        self.call_keys: dict[str, OrderedDict[str, None]] = {}
        self.ready: list[tuple[int, Answer]] = []
        self.unstarted: list[Answer] = []
        self.awaited: dict[Answer, None] = {}
        self.deferred: list[Answer] = []
        self.undeferred: dict[Answer, None] = {}
