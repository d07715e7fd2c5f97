"""Flat messages as input of the Assistants API: messages of a thread, or the outputs that a run waits for.

A thread takes text and images of the user and the assistant. What tools and code did belongs to the run and stays there.
The outputs of the caller's own functions go to `submit_tool_outputs`, and only while the run waits for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...answers import Confirmation
from ...errors import UsageError
from ...messages import (
    FileMessage,
    ImageMessage,
    Message,
    RefusalMessage,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
)

__all__ = ["to_input"]

Item = dict[str, Any]


def to_input(messages: Iterable[Message | Confirmation]) -> list[Item]:
    """Return the items that continue a conversation of these messages.

    If the last one is the output of one of the caller's functions, the run waits for it: returns
    `[{"tool_call_id", "output"}, …]`, the outputs of that step, for `tool_outputs=`; so `to_input(stream.messages, …)` is
    right in `then=`. Otherwise returns `[{"role", "content": [part, …]}, …]`, for `messages=` of a thread: adjacent
    messages of one role and `group` are the parts of one; a file is an attachment of its message.

    Left out of a thread by design: confirmations, reasoning, tool calls and their outputs, code, console output, images
    and audio that are not the user's, and messages of a provider's own type that are not the user's.

    Raises:
        UsageError: a thread cannot take a message of the user (an image that is data or a path, a file that is a path,
            audio, a message of an unknown type), or of the system (it goes into the run's `instructions`).
    """
    flat = [message for message in messages if isinstance(message, Message)]
    executed = {m.call_id or m.id for m in flat if isinstance(m, ToolCallMessage) and m.provider_executed}
    if flat and isinstance(flat[-1], ToolOutputMessage) and flat[-1].call_id not in executed:
        return _tool_outputs(flat, executed)
    items: list[Item] = []
    previous_key: tuple[Any, ...] | None = None
    for message in flat:
        if (part := _part(message)) is None:
            continue
        key = (message.role, message.group) if message.group is not None else None
        if key is None or key != previous_key:
            items.append({"role": message.role, "content": []})
        previous_key = key
        if isinstance(message, FileMessage):
            tools = [{"type": "file_search"}, {"type": "code_interpreter"}]
            items[-1].setdefault("attachments", []).append({**part, "tools": tools})
        else:
            items[-1]["content"].append(part)
    return [_with_content(item) for item in items]


def _tool_outputs(messages: Sequence[Message], executed: set[str]) -> list[Item]:
    """Return the outputs of the last step's calls, in order, except those of calls that the provider executed."""
    last_step = messages[-1].step_id
    outputs: list[Item] = []
    for message in reversed(messages):
        if "field" in message.metadata:
            continue  # `fields=` took it out of a call's arguments
        if not isinstance(message, (ToolOutputMessage, ToolCallMessage)) or message.step_id != last_step:
            break
        if isinstance(message, ToolOutputMessage) and message.call_id not in executed:
            outputs.append({"tool_call_id": message.call_id or message.id, "output": message.content})
    return outputs[::-1]


def _with_content(item: Item) -> Item:
    """Return an item with a blank text if it has only files: a thread takes no message without content."""
    return item if item["content"] else {**item, "content": [{"type": "text", "text": " "}]}


def _part(message: Message) -> Item | None:
    """Return a message as a part of a thread's message; None if it is left out."""
    format = message.format or ""
    match message:
        case TextMessage() | RefusalMessage() if message.role == "system":
            advice = "pass it as the run's `instructions`"
            raise UsageError(f"a thread cannot take the system's message {message.id!r}: {advice}")
        case TextMessage() | RefusalMessage() if message.role in ("user", "assistant"):
            return {"type": "text", "text": message.content}
        case _ if message.role != "user":
            return None
        case ImageMessage() if format == "file_id":
            return {"type": "image_file", "image_file": {"file_id": message.content}}
        case ImageMessage() if format in ("", "url"):
            return {"type": "image_url", "image_url": {"url": message.content}}
        case FileMessage() if format in ("", "file_id"):
            return {"file_id": message.content}
        case _:
            what = f"the user's {message.type} {message.id!r}" + (f" of the format {format!r}" if format else "")
            raise UsageError(f"a thread cannot take {what}; it takes text, images by file id or URL, and files by id")
