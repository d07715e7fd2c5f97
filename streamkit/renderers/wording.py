"""The texts that both renderers show alike."""

from __future__ import annotations

import base64
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..answers import Confirmation
from ..events import Run, StreamRetry
from ..messages import (
    AudioMessage,
    ConsoleMessage,
    ImageMessage,
    Message,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
)
from .characters import one_line

if TYPE_CHECKING:
    from ..streams.state import StreamState

__all__ = [
    "describe_content",
    "describe_decision",
    "describe_failure",
    "describe_question",
    "describe_retry",
    "describe_run",
    "has_field_messages",
    "is_shown_by_decision",
    "is_shown_by_fields",
    "shown_text",
    "sources",
    "withdrawn_message",
]

_SHORTEST_WAIT = 0.1  # seconds that are worth a word


def is_shown_by_fields(stream: StreamState | None, message: Message) -> bool:
    """Whether the arguments of a call become messages of their own (`fields=`), so the call itself is not shown."""
    return isinstance(message, ToolCallMessage) and stream is not None and stream.has_fields(message)


def has_field_messages(stream: StreamState | None, call: Message) -> bool:
    """Whether any argument of this call became a message of its own."""
    id = call.call_id or call.id
    messages = reversed(stream.messages) if stream is not None else ()
    return any(message.call_id == id and "field" in message.metadata for message in messages)


def is_shown_by_decision(stream: StreamState | None, message: Message) -> bool:
    """Whether it only tells the model that its call was declined, and why, which the line of the decision shows."""
    if not isinstance(message, ToolOutputMessage) or stream is None or "declined" not in message.metadata:
        return False
    declined = (one.subject for one in stream.confirmations if one.status == "declined")
    return any(subject.call_id == message.call_id for subject in declined)


def describe_failure(message: Message) -> str | None:
    """How code ended that did not complete, as its console output says: `failed`. None for all other messages."""
    execution = message.metadata.get("execution") if isinstance(message, ConsoleMessage) else None
    return one_line(execution.replace("_", " ")) if isinstance(execution, str) else None


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


def describe_question(subject: Message) -> str:
    """Return a confirmation's question: `may this code run?`, `may this call of pay run?`."""
    is_call = subject.type == "tool_call" and subject.name
    return f"may this {one_line(f'call of {subject.name}' if is_call else subject.type)} run?"


def withdrawn_message(stream: StreamState | None, retry: StreamRetry) -> Message | None:
    """A message that a retry has taken back: the line about it stands where that stood. None if it has taken none back."""
    found = () if stream is None else map(stream.engine.messages.get, retry.withdrawn)
    return next(filter(None, found), None)


def describe_retry(retry: StreamRetry) -> str:
    """Return that the answer begins again, or the request if nothing had come, and why."""
    again = "the answer begins again" if retry.withdrawn else "asking again"
    wait = f" in {retry.delay:.1f} s" if retry.delay >= _SHORTEST_WAIT else ""
    return f"{again}{wait}: {one_line(f'{retry.error}: {retry.message}')}"


def describe_content(message: Message, pictures: str | os.PathLike[str] | None = None) -> str:
    """An image, a file or audio in a line: its path or address, or its size if the data itself is there. A picture whose
    data is there is saved in the folder `pictures`, if there is one, and its path is shown."""
    is_picture = isinstance(message, ImageMessage) and (message.format or "").startswith("base64.")
    if is_picture and pictures is not None and message.status == "completed":
        return _saved(message, Path(pictures))
    if isinstance(message, AudioMessage) or (message.format or "").startswith("base64"):
        return f"{len(message.content) * 3 // 4:,} bytes"
    return one_line(message.content)


def _saved(message: Message, folder: Path) -> str:
    """Save a picture; returns its path, or why it could not be saved. Nobody else can read it."""
    kind = re.sub(r"[^a-z0-9]", "", (message.format or "").removeprefix("base64."))[:8] or "bin"
    try:
        data = base64.b64decode(message.content, validate=True)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}.{kind}"
        with open(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
    except (OSError, ValueError) as error:
        return one_line(f"{len(message.content) * 3 // 4:,} bytes, not saved: {error}")
    return one_line(str(folder / name))


def shown_text(message: Message) -> str | None:
    """Return a text for a document that code displayed (HTML, for example): its own, or its size. None for other messages."""
    if message.type != "code" or message.role != "computer":
        return None
    text = message.metadata.get("text")
    if not isinstance(text, str):
        return f"({message.format or 'a document'}, {len(message.content):,} characters)"
    return f"\n{text}" if "\n" in text else text  # the columns of a table stay below each other


def sources(message: TextMessage) -> Iterator[str]:
    """A numbered line for each source that a text cites, each source once: `[1] Title https://…`."""
    cited = ((a.title, a.url or a.file_id) for a in message.annotations)
    for number, (title, where) in enumerate(dict.fromkeys(cited), 1):
        if title or where:
            yield one_line(f"[{number}] {' '.join(filter(None, (title, where)))}")
