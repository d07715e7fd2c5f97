"""Texts for an agent's own calls and code, for answers that show them: one for each message."""

from __future__ import annotations

from typing import Literal, TypeAlias

from .. import messages as m
from ..answers import Confirmation
from ..messages import Message
from .request_content import fenced_block, image_url

__all__ = ["Activity", "activity_text", "question_text"]

Activity: TypeAlias = Literal["hidden", "reasoning", "text"]
"""How an answer shows what the agent itself calls and runs: not at all, among the reasoning, or in the text."""

_MOST = 2000  # characters of an output
_MOST_IMAGE = 2**20  # characters of a data URL


def activity_text(message: Message, *, fenced: bool, limit: int | None = _MOST) -> str:
    """Return the text of a call, of code, or of what came of them; "" for nothing.

    Args:
        message: the message, which is complete.
        fenced: whether it stands in fenced blocks of Markdown.
        limit: characters that are shown of a longer one; None for no limit.
    """
    content = message.content
    match message:
        case m.ToolCallMessage():
            text = f"{message.name}({content})"
            return fenced_block(text) if fenced else text
        case m.CodeMessage():
            return fenced_block(content, message.format)
        case m.ImageMessage() if message.format == "url" or (message.format or "").startswith("base64."):
            url = image_url(message)
            return f"![image]({url})" if len(url) <= _MOST_IMAGE else "[image]"
        case m.ToolOutputMessage() | m.ConsoleMessage():
            shown = content if limit is None or len(content) <= limit else f"{content[:limit]}…"
            return fenced_block(shown.rstrip("\n")) if fenced and shown.strip() else shown.strip()
        case _:
            return ""


def question_text(confirmation: Confirmation, id: str) -> str:
    """Return the text of a question at the end of an answer. All of what may run is in it."""
    return f"May this run?\n\n{activity_text(confirmation.subject, fenced=True, limit=None)}\n\n[approval {id}]"
