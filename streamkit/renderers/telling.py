"""What both renderers say in the same words."""

from __future__ import annotations

from collections.abc import Iterator

from ..answers import Confirmation
from ..events import Run
from ..messages import TextMessage
from .characters import one_line

__all__ = ["outcome", "sources", "summary"]


def outcome(confirmation: Confirmation) -> str:
    """How a question was decided, and why."""
    changed = ", edited" if confirmation.edited is not None else ""
    reason = f": {one_line(confirmation.reason)}" if confirmation.reason else ""
    return f"{confirmation.status}{changed}{reason}"


def summary(run: Run) -> str:
    """How a run ended, and what it cost. What it failed with is told by itself."""
    told: str = run.status
    if run.finish_reason and run.status not in ("completed", "requires_action"):
        told += f" ({one_line(run.finish_reason)})"
    if run.usage is not None:
        told += f", {run.usage.input_tokens:,} tokens in, {run.usage.output_tokens:,} out"
    return told


def sources(message: TextMessage) -> Iterator[str]:
    """A line for each thing that a text cites."""
    cited = ((a.title, a.url or a.file_id) for a in message.annotations)
    for number, (title, where) in enumerate(dict.fromkeys(cited), 1):
        if title or where:
            yield one_line(f"[{number}] {' '.join(filter(None, (title, where)))}")
