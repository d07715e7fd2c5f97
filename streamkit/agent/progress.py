"""Progress: what a tool tells while it runs."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

__all__ = ["progress", "telling"]

telling: ContextVar[Callable[[str], None] | None] = ContextVar("telling", default=None)


def progress(text: str) -> None:
    """Tell how far a tool is, from within it, in whatever thread or task it runs: `on_tool_output_delta` is told at once.

    The model is told of what the tool returns alone: then a delta with `replace` takes the place of the progress. In a
    thread this is where a tool ends whose stream was cancelled. Outside of an agent's tool it does nothing.
    """
    tell = telling.get()
    if tell is not None and text:
        tell(text)
