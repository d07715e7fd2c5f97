"""`interpreter.messages` in a form that every model accepts: images given by path are read, attached files are named,
displayed documents have their text."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ...html_text import html_to_text

__all__ = ["messages_for_model"]

_FORMATS = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".gif": "gif", ".webp": "webp"}


def messages_for_model(messages: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the messages, with those of the user changed to forms that a request can hold.

    Raises:
        UsageError: the file of an image cannot be read, or has a type that models do not accept.
    """
    for message in messages:
        if message.get("role", "user") != "user":
            yield _with_text(message)
            continue
        match message.get("type"), message.get("format"):
            case "image", "path":
                yield {**message, **_image_from_file(str(message.get("content")))}
            case "image", "base64":
                yield {**message, "format": "base64.png"}
            case "image", "description":
                yield {**message, "type": "message", "format": None}
            case "file", _:
                text = f"The user attached a file: {message.get('content')}"
                yield {**message, "type": "message", "format": None, "content": text}
            case _:
                yield message


def _with_text(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a document that was displayed, together with its text, which is what a model reads of it."""
    content = message.get("content")
    if (message.get("role"), message.get("format")) != ("computer", "html") or not isinstance(content, str):
        return message
    return {**message, "metadata": {"text": html_to_text(content), **message.get("metadata", {})}}


def _image_from_file(path: str) -> dict[str, str]:
    format = _FORMATS.get(Path(path).suffix.lower())
    if format is None:
        raise UsageError(f"{path} is not an image that models accept; they accept {', '.join(_FORMATS)}")
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"the image {path} cannot be read: {error.strerror}") from error
    return {"format": f"base64.{format}", "content": base64.b64encode(data).decode("ascii")}
