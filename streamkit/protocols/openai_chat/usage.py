"""The token counts of an answer.

Most servers send one usage for all choices, at the end; some send it in each chunk, more each time. llama.cpp sends one for each
choice, in a chunk of its own after that choice has finished; these are added up.
"""

from __future__ import annotations

from ...events import Usage
from ..values import WireObject, usage_of

__all__ = ["AnswerUsage"]

_COUNT_KEYS = ("prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens")


class AnswerUsage:
    """The usage of one answer, as far as it has arrived."""

    __slots__ = ("_finished", "_latest", "_others", "_wire")

    def __init__(self) -> None:
        self._wire: WireObject | None = None
        self._latest = Usage()  # the one that came last
        self._others: Usage | None = None  # that of the choices before it
        self._finished = 0  # choices that had finished when a usage came alone

    def take(self, wire: WireObject, finished: int, *, is_alone: bool) -> Usage | None:
        """Return the usage of the answer after this one has arrived; None if it says nothing new.

        Args:
            finished: how many choices have finished.
            is_alone: whether it is in a chunk without choices.
        """
        is_of_another_choice = is_alone and 0 < self._finished < finished
        if is_of_another_choice:
            self._others = self._latest if self._others is None else _sum(self._others, self._latest)
        elif wire == self._wire:
            return None
        if is_alone:
            self._finished = finished
        self._wire, self._latest = {**wire}, _read(wire)  # a producer may change its own, and yield it again
        return self._latest if self._others is None else _sum(self._others, self._latest)


def _read(wire: WireObject) -> Usage:
    """Token counts under Chat's keys, or under those of Responses, which some servers use."""
    input_key = "prompt_tokens" if "prompt_tokens" in wire else "input_tokens"
    output_key = "completion_tokens" if "completion_tokens" in wire else "output_tokens"
    return usage_of(wire, input_key, output_key, leave_out=_COUNT_KEYS)


def _sum(one: Usage, other: Usage) -> Usage:
    """Return both together, with the details of the second."""
    return Usage(
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.total_tokens + other.total_tokens,
        other.details,
    )
