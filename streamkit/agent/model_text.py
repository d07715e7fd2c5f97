"""Output as a model reads it: what a terminal would show of it, in a bounded number of characters."""

from __future__ import annotations

from ..html_text import html_to_text
from ..messages import ImageMessage, Message
from ..protocols.open_interpreter.input import truncate

__all__ = ["displayed_text", "image_text", "model_text"]

_MOST_SOURCE = 1000  # characters of a document's source that a model reads where the document has no text


def model_text(text: str, limit: int) -> str:
    """Return the text with its carriage returns carried out, in at most `limit` characters; the middle of a longer one
    is left out."""
    return truncate(_as_shown(text), limit)


def _as_shown(text: str) -> str:
    """Return what a terminal shows: what follows a carriage return overwrites the line from its beginning, as progress
    bars do."""
    if "\r" not in text:
        return text
    return "\n".join(map(_overwritten, text.split("\n")))


def _overwritten(line: str) -> str:
    shown = ""
    for piece in line.split("\r"):
        shown = piece + shown[len(piece) :]
    return shown


def displayed_text(message: Message) -> str:
    """Return what a model reads of something that code displayed and that it cannot see: the text that came with it,
    else that of an HTML document, else its source, or what it was."""
    content = message.content
    if isinstance(message, ImageMessage) or message.type == "file":
        return image_text(message, "displayed: ") + "\n"
    text = message.metadata.get("text")
    if not (isinstance(text, str) and text.strip()) and message.format == "html":
        text = html_to_text(content)
    if isinstance(text, str) and text.strip():
        return text if text.endswith("\n") else f"{text}\n"
    return f"[displayed: {message.format or message.type}]\n" + (
        f"{truncate(content, _MOST_SOURCE)}\n" if content else ""
    )


def image_text(message: Message, how: str = "") -> str:
    """Return what a model reads in place of an image or a file: what it is, where it is, and the text that came with
    it."""
    where = message.metadata.get("path") or (message.content if message.format in ("path", "file_id", "url") else "")
    text = message.metadata.get("text")
    return f"[{how}{message.type}{f': {where}' if where else ''}]" + (f" {text}" if isinstance(text, str) else "")
