"""Attachments of a user: an image on this machine is read when it is put into the conversation."""

from __future__ import annotations

import base64
from pathlib import Path

from ..errors import UsageError
from ..messages import ImageMessage, Message

__all__ = ["image_of_path", "with_image_data"]

_FORMATS = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif"}


def with_image_data(message: Message) -> Message:
    """Return the message itself; in place of a user's image that is a path, the image as base64 with the path in its
    metadata.

    Raises:
        UsageError: the file cannot be read, or is not a PNG, JPEG, GIF or WebP image.
    """
    is_path = isinstance(message, ImageMessage) and (message.role, message.format) == ("user", "path")
    return image_of_path(message) if is_path else message


def image_of_path(message: Message) -> Message:
    """Return an image that is a path, as base64 with the path in its metadata. Raises as `with_image_data`."""
    path = message.content
    try:
        data = Path(path).expanduser().read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
        raise UsageError(f"the image {path!r} cannot be read: {error}") from error
    format = next((format for start, format in _FORMATS.items() if data.startswith(start)), None)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        format = "webp"
    if format is None:
        raise UsageError(f"the image {path!r} is not a PNG, JPEG, GIF or WebP image, which are what models take")
    content = base64.b64encode(data).decode("ascii")
    fields = {**message.to_dict(), "format": f"base64.{format}", "content": content}
    return Message.from_dict({**fields, "metadata": {**message.metadata, "path": path}})
