"""Converts messages into the `prompt=` of a legacy Completions request.

What the user gave is either converted or refused with an error; it is never left out silently.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...answers import Confirmation
from ...messages import CodeMessage, Message, ReasoningMessage, TextMessage, ToolCallMessage, ToolOutputMessage
from ..request_content import cannot_take

__all__ = ["to_input"]

# Left out even if the role is the user's, as in Chat Completions.
_NEVER_OF_A_USER = (ReasoningMessage, ToolCallMessage, ToolOutputMessage, CodeMessage)


def to_input(messages: Iterable[Message | Confirmation]) -> list[str]:
    """Return the prompt, as a list of one text: the texts of all messages, joined without anything between them.

    The model continues that text. It has no roles, so that a model for conversations needs its own template, which this
    cannot know. The list is empty if there is no text, because a server would continue an empty prompt with anything.

    Left out by design: everything but the texts of the user, the system, the developer and the assistant; all choices
    but the first; confirmations.

    Raises:
        UsageError: the user gave an image, a file, audio, or a message of an unknown type.
    """
    prompt = "".join(_text_of(message) for message in messages if isinstance(message, Message) and not message.choice)
    return [prompt] if prompt else []


def _text_of(message: Message) -> str:
    if isinstance(message, TextMessage):
        return message.content
    if message.role == "user" and not isinstance(message, _NEVER_OF_A_USER):
        raise cannot_take("Legacy Completions", message)
    return ""
