"""Reads what clients send, and checks its shape. Nothing in it can be trusted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import json

from ..errors import RequestError, UsageError
from ..messages import Message, TextMessage
from ..protocols.request_body import Fields
from ..protocols.values import is_list
from .problem import Problem

__all__ = [
    "PostedRun",
    "answer_in",
    "check_metadata",
    "checked_input",
    "fingerprint",
    "limit_in",
    "problem_of",
]

_MOST_METADATA = 65_536  # bytes of JSON: lists have that of each run

_FIELDS = ("id", "type", "format", "content", "name", "group")
_FORMATS = (None, "url", "base64", "base64.png", "base64.jpeg", "base64.gif", "base64.webp", "file_id")
_TYPES = ("message", "image", "file", "audio")


class PostedRun:
    """The body of `POST /runs`.

    Raises:
        RequestError: it is none.
    """

    def __init__(self, body: Any) -> None:
        fields = Fields(body, "")
        self.input = _input(fields)
        self.conversation = fields.optional_text("conversation")
        self.metadata: dict[str, Any] = dict(fields.inner("metadata").wire)
        self.stream = fields.is_set("stream")
        self.protocol = fields.optional_text("protocol") or "streamkit"
        self.on_disconnect = "continue"
        if fields.wire.get("on_disconnect") is not None:
            self.on_disconnect = fields.one_of("on_disconnect", ("continue", "cancel"))
        if self.conversation is not None:
            from .core import is_id

            if not is_id(self.conversation):
                raise fields.fail("conversation", "is not an id: those have letters, digits, `-` and `_`, 128 at most")


def _input(fields: Fields) -> list[Message]:
    value = fields.value("input")
    if isinstance(value, str):
        text = fields.text("input")
        if not text.strip():
            raise fields.fail("input", "is empty")
        return [TextMessage(role="user", content=text)]
    if not is_list(value) or not value:
        raise fields.fail("input", "is neither text nor a list of flat messages")
    return [_message(message) for message in fields.objects("input")]


def _message(fields: Fields) -> Message:
    if fields.optional_text("role") not in (None, "user"):
        raise fields.fail("role", "is not `user`")
    kind = fields.optional_text("type") or "message"
    if kind not in _TYPES:
        raise fields.fail("type", f"is not one of {', '.join(_TYPES)}")
    values = {key: value for key in _FIELDS if (value := fields.optional_text(key)) is not None}
    if not values.get("content"):
        raise fields.fail("content", "is missing")
    try:
        message = Message.from_dict({**values, "role": "user", "type": kind})
    except UsageError as error:
        raise RequestError(fields.path, str(error)) from error
    _check_message(message, fields.path)
    return message


def _check_message(message: Message, path: str) -> None:
    """Refuse a message of a client that names a file of the server."""
    if message.type != "message" and (message.format not in _FORMATS or message.format is None):
        raise RequestError(f"{path}.format" if path else "format", "is not a URL, base64 or a file's id")


def checked_input(messages: Iterable[Message]) -> list[Message]:
    """Return the user's new messages in what a user interface posted. Those that name a file of the server are refused.

    Raises:
        RequestError: one of them is another.
    """
    out: list[Message] = []
    for number, message in enumerate(messages):
        if message.role != "user":
            raise RequestError(f"messages[{number}].role", "is not `user`")
        _check_message(message, f"messages[{number}]")
        out.append(message)
    return out


def answer_in(body: Any, question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a question in a body.

    Raises:
        RequestError: it is none, or the question takes no such answer.
    """
    fields = Fields(body, "")
    if question.get("kind") == "tool_call":
        if ("output" in fields.wire) == ("error" in fields.wire):
            raise RequestError("", "has not either `output` or `error`")
        return {"error": fields.text("error")} if "error" in fields.wire else {"output": fields.wire["output"]}
    approved = fields.flag("approved")
    key, other = ("edited", "reason") if approved else ("reason", "edited")
    if fields.wire.get(other) is not None:
        raise fields.fail(other, f"does not go with `approved: {'true' if approved else 'false'}`")
    value = fields.optional_text(key)
    if key == "edited" and value is not None:
        if not question.get("editable"):
            raise fields.fail("edited", "cannot be: this question takes yes or no")
        if not value.strip():
            raise fields.fail("edited", "is empty; to run nothing, decline")
    return {"approved": approved, **({} if value is None else {key: value})}


def limit_in(query: Mapping[str, str]) -> int:
    """Return the `limit` of a list.

    Raises:
        Problem: it is out of range.
    """
    text = query.get("limit", "50")
    if not (text.isascii() and text.isdecimal() and len(text) < 4 and 1 <= int(text) <= 200):
        raise Problem("bad-query", "`limit` is a number from 1 to 200")
    return int(text)


def check_metadata(metadata: Mapping[str, Any]) -> None:
    """Refuse more metadata than is kept of a run.

    Raises:
        Problem: it is too large.
    """
    if len(json.encode(metadata)) > _MOST_METADATA:
        raise Problem("body-too-large", f"A run's metadata may have {_MOST_METADATA} bytes.")


def fingerprint(value: Any) -> str:
    """Return a hash that is equal for equal bodies, whatever the order of their keys."""
    return hashlib.sha256(json.encode(value, order="deterministic")).hexdigest()


def problem_of(error: RequestError) -> Problem:
    """Return the problem that a malformed request is answered with."""
    if error.code == "bad-json":
        return Problem("bad-json", error.fault)
    return Problem("invalid", str(error), extra={"errors": [{"path": error.path, "fault": error.fault}]})
