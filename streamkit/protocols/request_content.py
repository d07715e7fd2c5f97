"""Content of requests that several protocols build alike: the URLs of images, fenced blocks, and refusals.

Rule: what the user gave is either converted or refused with an error; it is never left out silently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import UsageError
from ..messages import Message
from .values import as_text

__all__ = ["LeftOut", "Report", "cannot_take", "fenced_block", "image_url", "is_of_executed_call", "report_nothing"]


class LeftOut(NamedTuple):
    """The messages and parts that a conversion left out.

    Attributes:
        message: the message, or the confirmation, that it is about.
        reason: why it was left out, as part of a sentence: "reasoning of another provider".
    """

    message: Any
    reason: str

    def __str__(self) -> str:
        kind = getattr(self.message, "type", "confirmation")
        return f"{kind} {self.message.id!r} was left out: {self.reason}"


Report = Callable[[LeftOut], object]
"""Called with each thing that a conversion leaves out."""


def report_nothing(left_out: LeftOut) -> None:
    """The report that nobody reads."""


# What marks an output as the provider's own: the type of its block (Anthropic), its item (Responses), its tool (Groq).
_MARKS = ("block_type", "openai_responses", "executed_tool")
# The types of items of which the provider gives the outputs, too.
_EXECUTED_ITEMS = ("mcp_call", "web_search_call", "file_search_call")


def is_of_executed_call(output: Message) -> bool:
    """Whether an output is of a call that its provider ran, so that no request may bring it as an output of ours."""
    metadata = output.metadata
    return any(mark in metadata for mark in _MARKS) or as_text(metadata.get("item_type")) in _EXECUTED_ITEMS


def image_url(image: Message) -> str:
    """Return the URL of an image: a data URL for one in base64, else its content."""
    format = image.format or ""
    if format.startswith("base64."):
        return f"data:image/{format.removeprefix('base64.')};base64,{image.content}"
    return image.content


def fenced_block(content: str, language: str | None = None) -> str:
    """Code or output as a fenced block of Markdown, for models that get it as text."""
    return f"```{language or ''}\n{content}\n```"


def cannot_take(api: str, message: Message, alternatives: str = "") -> UsageError:
    """Return the error about what a user gave and an API has no place for. `alternatives` states what the API does
    take."""
    format = f" with the format {message.format!r}" if message.format else ""
    what = f"the user's {message.type} {message.id!r}{format}"
    return UsageError(f"{api} cannot take {what}{'; ' if alternatives else ''}{alternatives}")
