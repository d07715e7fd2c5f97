"""Flat messages as what the Assistants API takes: messages of a thread, or the outputs that a run waits for.

A thread takes text and images of the user and the assistant; what tools and code did is the run's own and stays there.
The outputs of our functions go to `submit_tool_outputs`, and only while the run waits for them.
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
    """What continues a conversation of these messages.

    If the last one is the output of a function of ours, the run waits: gives `[{"tool_call_id", "output"}, …]`, the
    outputs given in that step, for `tool_outputs=`; so `to_input(stream.messages, …)` is right in `then=`. Else gives
    `[{"role", "content": [part, …]}, …]`, for `messages=` of a thread: adjacent messages of one role and `group` are
    the parts of one; a file is an attachment of its message.

    Left out of a thread by design: confirmations, reasoning, tool calls and their outputs, code, console output, images and audio that
    are not the user's, and messages of a provider's own type that are not the user's.

    Raises:
        UsageError: a thread cannot take what a user gave (an image that is data or a path, a file that is a path,
            audio, a message of an unknown type), or the system (it goes into the run's `instructions`).
    """
    given = [message for message in messages if isinstance(message, Message)]
    executed = {m.call_id or m.id for m in given if isinstance(m, ToolCallMessage) and m.provider_executed}
    if given and isinstance(given[-1], ToolOutputMessage) and given[-1].call_id not in executed:
        return _outputs(given, executed)
    items: list[Item] = []
    before: tuple[Any, ...] | None = None
    for message in given:
        if (part := _part(message)) is None:
            continue
        key = (message.role, message.group) if message.group is not None else None
        if key is None or key != before:
            items.append({"role": message.role, "content": []})
        before = key
        if isinstance(message, FileMessage):
            tools = [{"type": "file_search"}, {"type": "code_interpreter"}]
            items[-1].setdefault("attachments", []).append({**part, "tools": tools})
        else:
            items[-1]["content"].append(part)
    return [_whole(item) for item in items]


def _outputs(given: Sequence[Message], executed: set[str]) -> list[Item]:
    """The outputs of the last step's calls, in order."""
    step = given[-1].step_id
    found: list[Item] = []
    for message in reversed(given):
        if "field" in message.metadata:
            continue  # a part of a call
        if not isinstance(message, (ToolOutputMessage, ToolCallMessage)):
            break
        if message.step_id != step:
            break
        if isinstance(message, ToolOutputMessage) and message.call_id not in executed:
            found.append({"tool_call_id": message.call_id or message.id, "output": message.content})
    return found[::-1]


def _whole(item: Item) -> Item:
    """A file alone needs some text beside it: a thread takes no message without content."""
    return item if item["content"] else {**item, "content": [{"type": "text", "text": " "}]}


def _part(message: Message) -> Item | None:
    """A message as a part of a thread's message; None of what a thread does not take."""
    format = message.format or ""
    match message:
        case TextMessage() | RefusalMessage() if message.role == "system":
            what = f"the system's message {message.id!r}: give it as the run's `instructions`"
            raise UsageError(f"a thread cannot take {what}")
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
            what = f"the user's {message.type} {message.id!r}" + (f", whose format is {format!r}" if format else "")
            raise UsageError(f"a thread cannot take {what}; it takes text, images by file id or URL, and files by id")
