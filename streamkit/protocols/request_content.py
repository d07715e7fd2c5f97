"""Content of requests that several protocols build alike: the URLs of images, fenced blocks, and refusals.

Rule: what the user gave is either converted or refused with an error; it is never left out silently.
"""

from __future__ import annotations

from ..errors import UsageError
from ..messages import Message

__all__ = ["cannot_take", "fenced_block", "image_url"]


def image_url(image: Message) -> str:
    """The URL of an image: a data URL for one in base64, else its content."""
    format = image.format or ""
    if format.startswith("base64."):
        return f"data:image/{format.removeprefix('base64.')};base64,{image.content}"
    return image.content


def fenced_block(content: str, language: str | None = None) -> str:
    """Code or output as a fenced block of Markdown, for models that get it as text."""
    return f"```{language or ''}\n{content}\n```"


def cannot_take(api: str, message: Message, alternatives: str = "") -> UsageError:
    """The error about what a user gave and an API has no place for. `alternatives` states what the API does take."""
    format = f" with the format {message.format!r}" if message.format else ""
    what = f"the user's {message.type} {message.id!r}{format}"
    return UsageError(f"{api} cannot take {what}{'; ' if alternatives else ''}{alternatives}")
