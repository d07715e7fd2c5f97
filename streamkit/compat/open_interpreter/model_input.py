"""What stands in `interpreter.messages`, as any model can be told it: a user's images by path are read, files are named."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...errors import UsageError

__all__ = ["readable"]

_FORMATS = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".gif": "gif", ".webp": "webp"}


def readable(messages: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """These messages; the user's are such as a request can hold.

    Raises:
        UsageError: an image's file cannot be read, or is of no kind that models take.
    """
    for message in messages:
        if message.get("role", "user") != "user":
            yield message
            continue
        match message.get("type"), message.get("format"):
            case "image", "path":
                yield {**message, **_read(str(message.get("content")))}
            case "image", "base64":
                yield {**message, "format": "base64.png"}
            case "image", "description":
                yield {**message, "type": "message", "format": None}
            case "file", _:
                text = f"The user attached a file: {message.get('content')}"
                yield {**message, "type": "message", "format": None, "content": text}
            case _:
                yield message


def _read(path: str) -> dict[str, str]:
    known = _FORMATS.get(Path(path).suffix.lower())
    if known is None:
        raise UsageError(f"{path} is no image that models take: {', '.join(_FORMATS)}")
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"the image {path} cannot be read: {error.strerror}") from error
    return {"format": f"base64.{known}", "content": base64.b64encode(data).decode("ascii")}
