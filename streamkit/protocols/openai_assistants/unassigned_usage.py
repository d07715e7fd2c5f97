"""Tokens that belong to the run, but to no step of this stream."""

from __future__ import annotations

from ...events import Usage

__all__ = ["UnassignedUsage"]


class UnassignedUsage:
    """Adds up the tokens of steps that began in an earlier stream, until a step or the run of this one can take them.

    Attributes:
        has_step_usage: whether a step had tokens. Those of the run are their sum then, and not counted again.
    """

    def __init__(self) -> None:
        self.has_step_usage = False
        self._pending: list[Usage] = []

    @property
    def is_pending(self) -> bool:
        """Whether there are tokens that nothing has taken yet."""
        return bool(self._pending)

    def add(self, usage: Usage) -> None:
        """Tokens of a step that began in an earlier stream."""
        self._pending.append(usage)
        self.has_step_usage = True

    def take(self, usage: Usage | None = None) -> Usage:
        """Return what is pending, together with these tokens. At least one of both is needed."""
        usages = [*self._pending, *([] if usage is None else [usage])]
        self._pending.clear()
        self.has_step_usage = True
        return Usage(
            sum(one.input_tokens for one in usages),
            sum(one.output_tokens for one in usages),
            sum(one.total_tokens for one in usages),
            usages[-1].details,
        )
