"""The times of a stream, computed from the moments that its manager noted: no clock is read here."""

from __future__ import annotations

import msgspec

__all__ = ["Times", "Timing", "timing_of"]


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
