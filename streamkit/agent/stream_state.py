"""The one place where an agent reads and sets the internal state of its stream."""

from __future__ import annotations

from collections.abc import Callable

from ..messages import ToolCallMessage
from ..streams.state import StreamState

__all__ = [
    "continues_in_next_source",
    "decline_run",
    "has_unanswered_calls",
    "is_cut_short",
    "prepare_for_agent",
    "raise_if_source_incomplete",
]


def prepare_for_agent(stream: StreamState, executes: Callable[[ToolCallMessage], bool]) -> None:
    """Let the stream's tool calls be answered.

    Args:
        stream: the agent's stream, before it starts.
        executes: whether the agent answers a call itself.
    """
    stream.engine.pending.takes_outputs = True
    stream.engine.pending.executes = executes
    stream.engine.pending.takes_approvals = True  # the next request answers what the provider itself asks


def raise_if_source_incomplete(stream: StreamState) -> None:
    """Check the source that the stream has read.

    Raises:
        IncompleteStreamError: it stopped before its protocol's end.
    """
    decoder = stream.source_decoder
    if decoder is not None and not decoder.complete:
        raise decoder.incomplete()


def continues_in_next_source(stream: StreamState) -> bool:
    """Whether the provider paused its answer, which the next request continues."""
    decoder = stream.source_decoder
    return decoder is not None and decoder.continues_in_next_source


def is_cut_short(stream: StreamState) -> bool:
    """Whether the provider cut the answer short, by its length or a filter."""
    return stream.engine.cut_short


def has_unanswered_calls(stream: StreamState) -> bool:
    """Whether calls wait for an answer of the application's."""
    return bool(stream.engine.pending.unanswered)


def decline_run(stream: StreamState) -> None:
    """End the run as declined by the user."""
    stream.engine.pending.end_declined()
