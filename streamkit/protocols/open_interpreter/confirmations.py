"""The subject of a confirmation: the code, or the tool call, that would run.

The content of a confirmation is `{"type": "code", "format": language, "content": source}`; before 0.2 it was
`{"language": language, "code": source}`. Both are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...answers import Confirmation
from ...messages import CodeMessage, Message, ToolCallMessage
from ..values import is_object, text_or_none
from .wire import shown

__all__ = ["confirmation_content", "is_same_action", "read_subject"]


def read_subject(content: Any, id: str) -> tuple[Message, str | None]:
    """Return the message that a confirmation's content describes, and what is wrong with it (None: nothing).

    Where the two forms are mixed and contradict each other, it is not certain what would run; that is a fault.
    """
    if not is_object(content):
        return CodeMessage(id, content=content if isinstance(content, str) else ""), "its content is not an object"
    sources = [content[key] for key in ("content", "code") if content.get(key) is not None]
    languages = [content[key] for key in ("format", "language") if content.get(key) not in (None, "")]
    source = next((value for value in sources if isinstance(value, str)), "")
    language = next((value for value in languages if isinstance(value, str)), None)
    fault = _fault(content.get("type"), sources, languages)
    if content.get("type") == "tool_call":
        name, call_id = text_or_none(content.get("name")), text_or_none(content.get("call_id"))
        return ToolCallMessage(id, name=name, call_id=call_id, content=source), fault
    return CodeMessage(id, format=language, content=source), fault


def _fault(type: Any, sources: list[Any], languages: list[Any]) -> str | None:
    if not all(isinstance(value, str) for value in (*sources, *languages)):
        return "its source or its language is not text"
    if not sources:
        return "it has no source"
    if len(set(sources)) > 1 or len(set(languages)) > 1:
        return "its two sources, or its two languages, contradict each other"
    if type not in (None, "code", "tool_call"):
        return f"it is about {shown(type)}, not about code"
    return None


def is_same_action(message: Message, subject: Message) -> bool:
    """Whether a confirmation of this subject is about this code, or this tool call: running either is the same."""
    if message.content != subject.content or message.format != subject.format:
        return False
    return message.type == "code" or (message.name == subject.name and message.call_id == subject.call_id)


def confirmation_content(confirmation: Confirmation) -> Mapping[str, Any] | str:
    """Return the content of the confirmation's chunk."""
    subject = confirmation.subject
    if confirmation.malformed:
        return subject.content  # not an object, so that no reader takes it for something that can be approved
    if subject.type == "tool_call":
        identity = {key: value for key in ("name", "call_id") if (value := getattr(subject, key))}
        return {"type": "tool_call", **identity, "content": subject.content}
    return {"type": "code", "format": subject.format, "content": subject.content}
