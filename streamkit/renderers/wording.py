"""The texts that both renderers show alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..answers import Confirmation
from ..events import Run
from ..messages import AudioMessage, Message, TextMessage, ToolCallMessage
from .characters import one_line

if TYPE_CHECKING:
    from ..streams.state import StreamState

__all__ = [
    "describe_content",
    "describe_decision",
    "describe_run",
    "has_field_messages",
    "is_shown_by_fields",
    "sources",
]


def is_shown_by_fields(stream: StreamState | None, message: Message) -> bool:
    """Whether the arguments of a call become messages of their own (`fields=`), so the call itself is not shown."""
    return isinstance(message, ToolCallMessage) and stream is not None and stream.has_fields(message)


def has_field_messages(stream: StreamState | None, call: Message) -> bool:
    """Whether any argument of this call became a message of its own."""
    id = call.call_id or call.id
    messages = reversed(stream.messages) if stream is not None else ()
    return any(message.call_id == id and "field" in message.metadata for message in messages)


def describe_decision(confirmation: Confirmation) -> str:
    """How a confirmation was decided, and why: `declined: not now`."""
    changed = ", edited" if confirmation.edited is not None else ""
    reason = f": {one_line(confirmation.reason)}" if confirmation.reason else ""
    return f"{confirmation.status}{changed}{reason}"


def describe_run(run: Run) -> str:
    """How a run ended, and what it cost: `completed, 10 tokens in, 8 out`. Its error is shown separately."""
    text: str = run.status
    if run.finish_reason and run.status not in ("completed", "requires_action"):
        text += f" ({one_line(run.finish_reason)})"
    if run.usage is not None:
        text += f", {run.usage.input_tokens:,} tokens in, {run.usage.output_tokens:,} out"
    return text


def describe_content(message: Message) -> str:
    """An image, a file or audio in a line: its path or address, or its size if the data itself is there."""
    if isinstance(message, AudioMessage) or (message.format or "").startswith("base64"):
        return f"{len(message.content) * 3 // 4:,} bytes"
    return one_line(message.content)


def sources(message: TextMessage) -> Iterator[str]:
    """A numbered line for each source that a text cites, each source once: `[1] Title https://…`."""
    cited = ((a.title, a.url or a.file_id) for a in message.annotations)
    for number, (title, where) in enumerate(dict.fromkeys(cited), 1):
        if title or where:
            yield one_line(f"[{number}] {' '.join(filter(None, (title, where)))}")
