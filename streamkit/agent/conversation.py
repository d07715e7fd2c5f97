"""Functions on a conversation, a list of flat messages that an agent sends with each request: its files, the images that a user
attaches, and output as a model reads it."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from ..errors import UsageError
from ..html_text import html_to_text
from ..messages import ImageMessage, Message, TextMessage
from ..messages.message import ROLES
from ..protocols.open_interpreter.input import truncate
from ..protocols.values import is_list

__all__ = [
    "UserInput",
    "as_messages",
    "changed",
    "displayed_text",
    "image_of_path",
    "image_text",
    "input_messages",
    "load_messages",
    "model_text",
    "replace_message",
    "save_messages",
    "with_image_data",
]


UserInput: TypeAlias = str | Message | Mapping[str, Any] | Sequence[Message | Mapping[str, Any]] | None
"""A user's input to a conversation: a text, one flat message or several, or nothing."""

_M = TypeVar("_M", bound=Message)


def as_messages(values: Iterable[Any]) -> list[Message]:
    """Messages, from messages and their dicts.

    Raises:
        UsageError: a value is neither, or has a role that no message has.
    """
    messages = [value if isinstance(value, Message) else Message.from_dict(value) for value in values]
    for message in messages:
        if message.role not in ROLES:  # no request would contain it
            raise UsageError(f"a message's role is one of {', '.join(ROLES)}, not {message.role!r}: {message!r}")
    return messages


def input_messages(value: Any) -> list[Message]:
    """Return the messages of a `UserInput`, which is checked here for callers without a type checker.

    Raises:
        UsageError: it is neither a text nor flat messages.
    """
    match value:
        case None:
            return []
        case str():
            return [TextMessage(role="user", content=value)]
        case Message() | Mapping():
            return as_messages([value])
        case _ if hasattr(value, "__iter__") and not isinstance(value, (bytes, bytearray)):
            return as_messages(value)
        case _:
            raise UsageError(f"the input of a stream is a text or flat messages, not {value!r}")


def changed(message: _M, **fields: Any) -> _M:
    """Return a copy of a message with other values of these fields. Messages themselves stay as they are."""
    copy = message.copy()
    if (content := fields.pop("content", None)) is not None:
        copy.replace_content(content)
    for name, value in fields.items():
        setattr(copy, name, value)
    return copy


def replace_message(messages: list[Message], message: Message, replacement: Message) -> None:
    """Put another message in the place of this one, in the list itself."""
    messages[:] = [replacement if one is message else one for one in messages]


def save_messages(messages: Iterable[Message], path: str | os.PathLike[str]) -> None:
    """Write a conversation to a file, as a JSON list. The file is replaced at once: it is never half written. Only its owner
    may read it."""
    text = json.dumps([message.to_dict() for message in messages], ensure_ascii=False, indent=1)
    complete = Path(f"{os.fspath(path)}.new")
    complete.unlink(missing_ok=True)  # one that is left over may be readable for others
    descriptor = os.open(complete, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8", errors="surrogatepass") as file:
        file.write(text + "\n")
    complete.replace(path)


def load_messages(path: str | os.PathLike[str]) -> list[Message]:
    """Read a conversation from a file.

    Raises:
        UsageError: the file does not contain a list of messages.
        OSError: it cannot be read.
    """
    try:
        values: Any = json.loads(Path(path).read_text(encoding="utf-8", errors="surrogatepass"))
    except ValueError as error:
        raise UsageError(f"{path} does not contain valid JSON: {error}") from error
    if not is_list(values):
        raise UsageError(f"{path} does not contain a list of messages")
    return as_messages(values)


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
        raise UsageError(f"the image {path!r} is not a PNG, JPEG, GIF or WebP image: models take no others")
    content = base64.b64encode(data).decode("ascii")
    fields = {**message.to_dict(), "format": f"base64.{format}", "content": content}
    return Message.from_dict({**fields, "metadata": {**message.metadata, "path": path}})


_MOST_SOURCE = 1000  # characters of a document's source that a model reads where the document has no text


def model_text(text: str, limit: int) -> str:
    """Return the text with its carriage returns carried out, in at most `limit` characters; the middle of a longer one
    is left out."""
    return truncate(_as_shown(text), limit)


def _as_shown(text: str) -> str:
    """Return the text as a terminal shows it: after a carriage return the line is overwritten from its beginning, as by progress
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
    """Return the text for a model in place of an output that it cannot see: the text that came with it, else that of an HTML
    document, else its source, or its kind."""
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
    """Return the text for a model in place of an image or a file: its kind, its location, and the text that came with it."""
    where = message.metadata.get("path") or (message.content if message.format in ("path", "file_id", "url") else "")
    text = message.metadata.get("text")
    return f"[{how}{message.type}{f': {where}' if where else ''}]" + (f" {text}" if isinstance(text, str) else "")
