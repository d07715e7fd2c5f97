"""Decides whether an item, or a line of bytes, is a question to the user: a request to approve something.

Open Interpreter has a quirk: its producer is a generator in this process that runs the code when it is pulled past the
confirmation chunk. Pulling on means yes. So a live producer must not be pulled past anything that may be such a chunk,
however damaged, and everything that decides this is in this module:

- `question_in_item(item)`: any item of a source, of whatever type;
- `question_in_chunk(item)`: an item that is a JSON object;
- `question_in_text(text)`: text that should have been JSON and is not;
- `is_question_line(line)`: a line of SSE or of JSON lines, before it is parsed.

A well-formed question has the type `confirmation`. Anything else that resembles one (another spelling, a missing type,
one inside an envelope) gives a `ReceivedQuestion` with a `doubt`, and nothing can be approved through that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from ...messages.json_text import read_json
from ..values import is_list, is_object, text_or_none
from .shape import may_be_question_line
from .wire import DEFAULT_ROLES, is_action, is_chunk, letters, shown

__all__ = [
    "ReceivedQuestion",
    "is_confirmation_type",
    "is_question_line",
    "question_in_chunk",
    "question_in_item",
    "question_in_text",
]

_QUESTION_KEYS = ("confirmation", "executing")  # 0.1 had `{"executing": {…}}`
_QUESTION_TEXT = re.compile(r"""["']type\\?["']\s*:\s*\\?["'][\s_-]*confirm|["']executing\\?["']\s*:""", re.IGNORECASE)
_DEPTH = 5  # levels of lists and objects that are searched


class ReceivedQuestion(NamedTuple):
    """A request to approve something, as far as it could be read.

    Attributes:
        content: what would run, as received: an object with code or a tool call if it is well-formed.
        doubt: why it is not certain that this is a question, or what would run; None if the item is well-formed.
    """

    content: Any
    doubt: str | None


def is_confirmation_type(type: str) -> bool:
    """Whether a type means a confirmation, in whatever spelling."""
    return letters(type).startswith("confirm")


def is_question_line(line: bytes) -> bool:
    """Whether a line of a body (`data: {…}` or `{…}`) is a chunk with a question."""
    if not may_be_question_line(line):
        return False
    item = read_json(line.strip().removeprefix(b"data:"))
    return is_object(item) and is_chunk(item) and question_in_item(item) is not None


def question_in_item(item: Any) -> ReceivedQuestion | None:
    """Return the question that an item is, or has inside; None if there is none."""
    if is_object(item):
        return question_in_chunk(item)
    if isinstance(item, (str, bytes, bytearray)):
        return question_in_text(item)
    return _question_in_list(item, _DEPTH)


def question_in_chunk(item: Mapping[str, Any]) -> ReceivedQuestion | None:
    """Return the question that a chunk is, or has inside; None if there is none."""
    type, content = text_or_none(item.get("type")), item.get("content")
    if type == "confirmation":
        return ReceivedQuestion(content, "it has a second question under 'executing'" if "executing" in item else None)
    if type is None and "executing" in item:
        return ReceivedQuestion(item["executing"], _type_doubt(type))
    if type in DEFAULT_ROLES:
        if is_action(item.get("executing")):
            return ReceivedQuestion(item["executing"], _type_doubt(type))
        if is_action(content) and letters(text_or_none(item.get("format")) or "") == "execution":
            return ReceivedQuestion(content, _type_doubt(type))
        return None
    if type is not None and is_confirmation_type(type):
        return ReceivedQuestion(content, _type_doubt(type))
    if type == "error":
        return None
    if is_action(content):
        return ReceivedQuestion(content, _type_doubt(type))
    return _question_in_values(item, _DEPTH, by_name=type is None)


def question_in_text(text: str | bytes | bytearray) -> ReceivedQuestion | None:
    """Return the question of text that should have been JSON. What it is about cannot be read."""
    text = text if isinstance(text, str) else bytes(text).decode("utf-8", "replace")
    return ReceivedQuestion(text, "it is not an object") if _QUESTION_TEXT.search(text) else None


def _type_doubt(type: str | None) -> str:
    return "it has no type" if type is None else f"its type is {shown(type)}"


def _question_inside(value: Any, depth: int) -> ReceivedQuestion | None:
    """Return the question in a value inside an item, searched down to `depth` levels. Text inside is only text."""
    if not is_object(value):
        return _question_in_list(value, depth)
    question = _question_in_inner_object(value, depth)
    return question and question._replace(doubt=question.doubt or "it is inside another item")


def _question_in_list(value: Any, depth: int) -> ReceivedQuestion | None:
    if depth and isinstance(value, (list, tuple, set, frozenset)):
        # The cast: `isinstance` leaves the type of the elements unknown, and any will do.
        for element in cast("Iterable[Any]", value):
            if question := _question_inside(element, depth - 1):
                return question
    return None


def _question_in_inner_object(item: Mapping[str, Any], depth: int) -> ReceivedQuestion | None:
    """Return the question that an object inside an item is, or has inside."""
    type = text_or_none(item.get("type"))
    if (type is not None and is_confirmation_type(type)) or "executing" in item:
        return question_in_chunk(item)
    if is_action(item.get("content")) and type not in DEFAULT_ROLES:
        return ReceivedQuestion(item["content"], "it has no type")
    return _question_in_values(item, depth, by_name=type is None) if depth else None


def _question_in_values(item: Mapping[str, Any], depth: int, *, by_name: bool) -> ReceivedQuestion | None:
    """Return the question in one of an object's values; with `by_name`, also one that a key or a short text gives
    away."""
    for key, value in item.items():
        if by_name and (question := _question_by_name(item, key, value)):
            return question
        if isinstance(value, (Mapping, list, tuple)) and (question := _question_inside(value, depth - 1)):
            return question
    return None


def _question_by_name(item: Mapping[str, Any], key: Any, value: Any) -> ReceivedQuestion | None:
    if letters(str(key)) in _QUESTION_KEYS:
        return ReceivedQuestion(value, f"it has the key {shown(key)}")
    if key != "content" and isinstance(value, (str, bytes)):
        text = value if isinstance(value, str) else value.decode("utf-8", "replace")
        if letters(text) == "confirmation":
            return ReceivedQuestion(item.get("content"), f"its {shown(key)} is {shown(text)}")
    if key == "type" and is_list(value) and any(isinstance(one, str) and is_confirmation_type(one) for one in value):
        return ReceivedQuestion(item.get("content"), "its type is a list")
    return None
