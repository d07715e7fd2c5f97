"""Functions on a conversation: a list of flat messages, which an agent sends with each request."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from ..errors import UsageError
from ..messages import Message, TextMessage
from ..messages.message import ROLES
from ..protocols.values import is_list

__all__ = ["UserInput", "as_messages", "changed", "input_messages", "load_messages", "replace_message", "save_messages"]

UserInput: TypeAlias = str | Message | Mapping[str, Any] | Sequence[Message | Mapping[str, Any]] | None
"""What a user adds to a conversation: a text, one flat message or several, or nothing."""

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
