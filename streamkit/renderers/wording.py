"""What both renderers say in the same words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..answers import Confirmation
from ..events import Run
from ..messages import Message, TextMessage, ToolCallMessage
from .characters import one_line

if TYPE_CHECKING:
    from ..streams.state import StreamState

__all__ = ["has_told", "outcome", "sources", "summary", "told_in_fields"]


def told_in_fields(stream: StreamState | None, message: Message) -> bool:
    """Whether a message is a call that its fields are to tell of (`fields=`), so that it need not be shown as well."""
    return isinstance(message, ToolCallMessage) and stream is not None and stream.has_fields(message)


def has_told(stream: StreamState | None, call: Message) -> bool:
    """Whether fields of this call were told."""
    id = call.call_id or call.id
    told = reversed(stream.messages) if stream is not None else ()
    return any(message.call_id == id and "field" in message.metadata for message in told)


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
