"""How long a stream took, computed from the moments that its manager took down: no clock is read here."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

__all__ = ["Timing", "timing_of"]


class Timing(msgspec.Struct, frozen=True):
    """How long a stream took. Times are in seconds from its start, which is when its request was sent.

    Attributes:
        first_delta: until the first delta; None as long as there was none.
        duration: until the end; None before it.
        deltas: how many deltas arrived.
        deltas_per_second: their rate from the first one to the end, without the time in which a confirmation waited for
            its answer; None before the end.
    """

    first_delta: float | None
    duration: float | None
    deltas: int
    deltas_per_second: float | None


def timing_of(times: Mapping[str, float], deltas: int) -> Timing:
    """The timing of a stream with so many deltas.

    Args:
        times: the moments of its `start`, of its `first` delta and of its `end`, as far as they have come; as `asking`, the
            seconds in which confirmations waited for their answers.
        deltas: their number.
    """
    start, first, end = (times.get(key) for key in ("start", "first", "end"))
    flow = _seconds(first, end)  # from the first delta on
    flow = None if flow is None else flow - times.get("asking", 0.0)
    return Timing(
        first_delta=_seconds(start, first),
        duration=_seconds(start, end),
        deltas=deltas,
        deltas_per_second=deltas / flow if flow is not None and flow > 0 else None,
    )


def _seconds(start: float | None, end: float | None) -> float | None:
    """The time between two moments, None if one of them has not come."""
    return None if start is None or end is None else end - start
