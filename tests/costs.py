"""Compares the CPU time of two pieces of work where instructions do not tell: most of it is done in C."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["assert_costs", "seconds_of"]

ROUNDS = 30


def seconds_of(work: Callable[[], object]) -> float:
    """The CPU time of this thread that a call takes."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


def assert_costs(cost: Callable[[], float], at_most: float, other: Callable[[], float]) -> None:
    """Fails if the least cost is more than so many times the least of the other, in thirty rounds.

    It ends at the first round after which that holds. On a busy machine a round may be slow; the least of many is not.
    """
    least = base = float("inf")
    for _ in range(ROUNDS):
        base, least = min(base, other()), min(least, cost())
        if least <= at_most * base:
            return
    raise AssertionError(f"{least / base:.1f} times the cost, not at most {at_most:g}")
