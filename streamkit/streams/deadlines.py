"""The deadlines of deferred answers, for the manager, which has the clock."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable

from ..answers import Answer

__all__ = ["Deadlines"]


class Deadlines:
    """The deadlines of deferred answers. If one is deferred again, its time begins anew."""

    def __init__(self) -> None:
        self._deferrals: dict[Answer, int] = {}  # the deferral that each one's time is of
        self._ends: list[tuple[float, int, int, Answer]] = []  # a heap: when, of which deferral, and an id to sort by

    def left(self, deferred: Iterable[Answer]) -> float | None:
        """Seconds until the first is over of these and of all before, None if none ever is."""
        now = time.monotonic()
        for answer in deferred:
            deferral, seconds = answer.deferrals, answer.timeout
            if self._deferrals.get(answer) != deferral:
                self._deferrals[answer] = deferral
                if seconds is not None:
                    heapq.heappush(self._ends, (now + seconds, deferral, id(answer), answer))
        self._drop_settled()
        return max(0.0, self._ends[0][0] - now) if self._ends else None

    def over(self) -> list[tuple[Answer, int]]:
        """Return those whose time is over without an answer, each with the number of its deferral."""
        now = time.monotonic()
        over: list[tuple[Answer, int]] = []
        self._drop_settled()
        while self._ends and self._ends[0][0] <= now:
            _, deferral, _, answer = heapq.heappop(self._ends)
            over.append((answer, deferral))
            self._drop_settled()
        return over

    def _drop_settled(self) -> None:
        """Drop what was answered, closed or deferred again from the front."""
        ends = self._ends
        while ends and (not ends[0][3].open or ends[0][3].deferrals != ends[0][1]):
            answer = heapq.heappop(ends)[3]
            if not answer.open:
                self._deferrals.pop(answer, None)
