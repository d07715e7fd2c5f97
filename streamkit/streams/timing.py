"""The times of a stream, and the deadlines of the answers that it waits for."""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec

from ..answers import Answer

__all__ = ["Deadlines", "Times", "Timing", "timing_of"]


class Times(msgspec.Struct, gc=False):
    """The moments of a stream, None as long as they have not come.

    Attributes:
        start: when its request was sent.
        first: its first content.
        end: its end.
        waiting: the seconds in which confirmations waited for their answers.
    """

    start: float | None = None
    first: float | None = None
    end: float | None = None
    waiting: float = 0.0

    def note_first(self, time: float) -> None:
        """Set `first`, unless it is set."""
        if self.first is None:
            self.first = time


class Timing(msgspec.Struct, frozen=True):
    """The times of a stream, in seconds from its start, which is when its request was sent.

    Attributes:
        first_delta: until the first delta that is not empty, or the first message that came whole; None before.
        duration: until the end; None before it.
        deltas: how many deltas arrived.
        deltas_per_second: their rate from the first one to the end, without the time in which a confirmation waited for
            its answer; None before the end.
    """

    first_delta: float | None
    duration: float | None
    deltas: int
    deltas_per_second: float | None


def timing_of(times: Times, deltas: int) -> Timing:
    """Return the timing of a stream with so many deltas."""
    flow = _seconds(times.first, times.end)  # from the first delta on
    flow = None if flow is None else flow - times.waiting
    return Timing(
        first_delta=_seconds(times.start, times.first),
        duration=_seconds(times.start, times.end),
        deltas=deltas,
        deltas_per_second=deltas / flow if flow is not None and flow > 0 else None,
    )


def _seconds(start: float | None, end: float | None) -> float | None:
    """Return the time between two moments, None if one of them has not come."""
    return None if start is None or end is None else end - start


class Deadlines:
    """The deadlines of deferred answers. If one is deferred again, its time begins anew."""

    def __init__(self) -> None:
        self._deferrals: dict[Answer, int] = {}  # the deferral that each one's time is of
        self._ends: list[tuple[float, int, int, Answer]] = []  # a heap: when, of which deferral, and an id to sort by

    def left(self, deferred: Iterable[Answer]) -> float | None:
        """Seconds until the first is over of these and of all before, None if none ever is."""
        from heapq import heappush  # few streams wait for anything

        now = time.monotonic()
        for answer in deferred:
            deferral, seconds = answer.deferrals, answer.timeout
            if self._deferrals.get(answer) != deferral:
                self._deferrals[answer] = deferral
                if seconds is not None:
                    heappush(self._ends, (now + seconds, deferral, id(answer), answer))
        self._drop_settled()
        return max(0.0, self._ends[0][0] - now) if self._ends else None

    def over(self) -> list[tuple[Answer, int]]:
        """Return those whose time is over without an answer, each with the number of its deferral."""
        from heapq import heappop

        now = time.monotonic()
        over: list[tuple[Answer, int]] = []
        self._drop_settled()
        while self._ends and self._ends[0][0] <= now:
            _, deferral, _, answer = heappop(self._ends)
            over.append((answer, deferral))
            self._drop_settled()
        return over

    def _drop_settled(self) -> None:
        """Drop what was answered, closed or deferred again from the front."""
        from heapq import heappop

        ends = self._ends
        while ends and (not ends[0][3].open or ends[0][3].deferrals != ends[0][1]):
            answer = heappop(ends)[3]
            if not answer.open:
                self._deferrals.pop(answer, None)
