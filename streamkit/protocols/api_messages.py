"""Reads what the requests of all model APIs have: messages, media, and fields that an agent has no use for."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeVar

from .. import messages as m
from ..messages import Message
from .request_body import Fields
from .ui_answers import ToolResult
from .ui_files import file_fields
from .values import as_object

__all__ = ["FieldTable", "ReceivedMessages", "RequestMessages", "only_text", "refuse", "sort_fields"]

_M = TypeVar("_M", bound=Message)

_NO_OUTPUT = "No output of this call was recorded."
_SHOWN_IMAGE = re.compile(r"!\[[^\]\n]*\]\(data:[^)\s]*\)")
_BEGINS = {"image": "image/*", "audio": "audio/*", "file": "application/octet-stream"}


# -- fields


class FieldTable(NamedTuple):
    """The fields of an API's requests.

    Attributes:
        read: those that an `ApiRequest` is made of.
        options: the canonical names of others.
        refused: those that a client would misread the answer without: each a function that returns the fault of a value, None
            if there is none.
    """

    read: Collection[str]
    options: Mapping[str, str]
    refused: Mapping[str, Callable[[Any], str | None]]


def refuse(fault: str, *harmless: Any) -> Callable[[Any], str | None]:
    """Return the function that finds this fault in all values but these."""
    return lambda value: None if value in harmless else fault


def only_text(value: Any) -> str | None:
    """Return the fault of a format of the answer, None for text."""
    return None if as_object(value).get("type") == "text" else "is not supported but for text"


def sort_fields(fields: Fields, table: FieldTable, wanted: Collection[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the options among these fields, and the names of those that have no effect.

    Args:
        wanted: the canonical names of the options.

    Raises:
        RequestError: a field is not supported, and cannot be ignored.
    """
    options: dict[str, Any] = {}
    ignored: list[str] = []
    for key, value in fields.wire.items():
        name = table.options.get(key, key)
        if value is None or key in table.read:
            continue
        if name in wanted:
            options[name] = value
        elif key not in table.refused:
            ignored.append(key)
        elif (fault := table.refused[key](value)) is not None:
            raise fields.fail(key, fault)
    return options, ignored


# -- messages


class RequestMessages(NamedTuple):
    """The messages of a request, as `ApiRequest` has them."""

    system: str
    history: list[Any]
    input: list[Any]
    answers: list[ToolResult]


class ReceivedMessages:
    """The flat messages of a request, while its messages are read."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._system: list[str] = []

    def add_system(self, text: str) -> None:
        """Add a system prompt, wherever it stands."""
        if text:
            self._system.append(text)

    def add(self, kind: type[_M], **fields: Any) -> _M:
        """Add a message."""
        message = kind(f"request-{len(self._messages) + 1}", **fields)  # not as a stream names its own
        self._messages.append(message)
        return message

    def add_text(self, role: str, text: str, group: str) -> None:
        """Add a text, without the images that our own answers had in it."""
        if text:
            shown = _SHOWN_IMAGE.sub("[image]", text) if role == "assistant" else text
            self.add(m.TextMessage, role=role, content=shown, group=group)

    def add_media(self, fields: Fields, key: str, kind: str, **more: Any) -> None:
        """Add an image, audio or a file whose URL stands at this key: one of http(s), or one with the bytes in it.

        Raises:
            RequestError: it is another one.
        """
        url = fields.text(key, empty=False)
        if not url.startswith(("http://", "https://", "data:")):
            raise fields.fail(key, "is neither a URL of http or https nor one that holds the data")
        media_type = _BEGINS[kind]
        if url.startswith("data:"):
            head, comma, data = url.removeprefix("data:").partition(",")
            if not (comma and data and head.endswith(";base64")):
                raise fields.fail(key, "has no data in base64")
            media_type = (head.partition(";")[0] or media_type).replace("image/jpg", "image/jpeg")
            url = f"data:{media_type};base64,{data}"
        message_class, format, content = file_fields(url, media_type)
        self.add(message_class, **{"role": "user", **more}, format=format, content=content)

    def finish(self) -> RequestMessages:
        """Return the messages. Calls without an output get one that says so: none of them is open."""
        messages = self._messages
        start = len(messages)
        while start and messages[start - 1].role == "user":
            start -= 1
        history, input = messages[:start], messages[start:]
        end = len(history)
        while end and history[end - 1].role == "computer":
            end -= 1
        outputs = [one for one in history[end:] if isinstance(one, m.ToolOutputMessage)]
        answers = [
            ToolResult(call_id=one.call_id or "", output=one.content, failed=one.metadata.get("error") is True)
            for one in outputs
        ]
        return RequestMessages("\n\n".join(self._system), _with_outputs(history), input, answers)


def _with_outputs(history: list[Message]) -> list[Message]:
    """Return the messages, with an output of each call that has none."""
    answered = {one.call_id for one in history if isinstance(one, m.ToolOutputMessage)}
    complete: list[Message] = []
    for message in history:
        complete.append(message)
        if isinstance(message, m.ToolCallMessage) and message.call_id not in answered:
            id = f"{message.id}.output"
            complete.append(m.ToolOutputMessage(id, call_id=message.call_id, name=message.name, content=_NO_OUTPUT))
    return complete
