"""What one Open Interpreter chunk says, and what lies between a start and an end.

The tables are those of the format: its roles, types and formats, and what is assumed where a chunk leaves one out.
Nothing here raises, whatever the types of the values.
"""

from __future__ import annotations

import base64
import copy
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from ... import messages as m
from ...events import Delta, MessageDelta
from ..values import is_list, is_object

__all__ = [
    "CONSOLE",
    "FIELDS",
    "KEYS",
    "ROLES",
    "ROLE_OF",
    "TRANSIENT",
    "Chunk",
    "Group",
    "as_text",
    "begins_image",
    "is_base64",
    "is_confirmation",
    "is_known",
    "is_runnable",
    "line_of",
    "question_in",
    "question_of_text",
    "question_within",
    "same_subject",
    "shortened",
    "subject_of",
    "without",
    "word",
]

ROLES = ("user", "assistant", "computer", "system")
ROLE_OF = {  # what a chunk's role is where it does not say
    "message": "assistant",
    "code": "assistant",
    "review": "assistant",
    "reasoning": "assistant",
    "tool_call": "assistant",
    "console": "computer",
    "image": "computer",
    "file": "computer",
    "tool_output": "computer",
    "audio": "user",
    "command": "user",
}
CONSOLE = (None, "output", "active_line")  # the formats that share a group
_FORMATS = {  # types whose formats are few; None: it has none
    "message": (None, "reasoning", "refusal"),
    "console": CONSOLE,
    "image": (None, "path", "description", "url", "file_id"),  # and all that begin with base64
    "file": (None, "path", "file_id"),
}
TRANSIENT = ("review", "command")  # told as they are, never stored
KEYS = frozenset(["role", "type", "format", "recipient", "content", "id", "start", "end", "replace"])
FIELDS = ("name", "call_id", "created_at", "provider_executed", "status")  # streamkit's own, as further keys
_SIGNATURES = {"png": "iVBORw0KGgo", "jpeg": "/9j/", "jpg": "/9j/", "gif": "R0lGOD", "webp": "UklGR"}
_QUESTIONS = ("confirmation", "executing")
_QUESTION = re.compile(r"""["']type\\?["']\s*:\s*\\?["'][\s_-]*confirm|["']executing\\?["']\s*:""", re.IGNORECASE)
_DEEPEST = 5  # levels of lists and objects around a question
_LARGEST = 2**53  # JSON numbers are exact up to here


class Chunk(NamedTuple):
    """A chunk, and its identity as far as it is known. `type` is None where it is yet to come."""

    item: Mapping[str, Any]
    key: str | None
    role: str
    type: str | None
    format: str | None

    @property
    def is_line(self) -> bool:
        return self.type == "console" and self.format == "active_line"


class Group:
    """What lies between a start and its end: one message; of a console perhaps none."""

    def __init__(self, chunk: Chunk, recipient: str | None = None) -> None:
        self.key = chunk.key
        self.role = chunk.role
        self.type = chunk.type
        self.format = None if chunk.is_line else chunk.format
        self.recipient = recipient
        self.addressed = recipient is not None  # by the start: pieces that name no recipient have this one
        self.untyped = chunk.type is None
        self.touched = False  # it had content, if only an active line
        self.line: int | None = None
        self.fields: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.status: m.Status = "completed"
        self.renew()

    def renew(self) -> None:
        """Ready for another message of the same group."""
        self.id = ""
        self.kind: type[m.Message] = m.Message
        self.delta: type[Delta] = MessageDelta
        self.told = False
        self.filled = False
        self.pieces: list[str] | None = None  # where the whole text is needed later
        self.unjoinable = False  # audio that is no base64: a path

    def __str__(self) -> str:
        return f"the {self.role}'s {self.type or 'message'}"

    def takes(self, role: str, type: str | None, format: str | None) -> bool:
        """Whether content with this identity belongs here."""
        if role != self.role or self.type not in (None, type):
            return False
        if type == "console" and format in CONSOLE and self.format in CONSOLE:
            return True
        return format is None or format == self.format or (self.format is None and not self.touched)

    def ends_with(self, chunk: Chunk) -> bool:
        """Whether an end with this identity is this group's own."""
        return chunk.role == self.role if chunk.type is None else self.takes(chunk.role, chunk.type, chunk.format)

    def begin(self) -> m.Message:
        """Its message, without content."""
        type, format = self.type or "message", self.format
        if type == "message" and format == "reasoning":
            type, format = "reasoning", None
        self.kind = m.message_class(type, format, self.role)
        self.delta = self.kind.delta_event
        self.told = True
        self.pieces = [] if type in ("code", "tool_call", "audio") else None
        return self.kind(
            self.id,
            role=self.role,
            type=type,
            format=format,
            recipient=self.recipient,
            status="in_progress",
            metadata=dict(self.metadata),
            **(self.fields if self.kind is m.ToolCallMessage else without(self.fields, "provider_executed")),
        )

    def keep(self, item: Mapping[str, Any]) -> None:
        """Take over the keys that are no chunk's own."""
        if item.keys() <= KEYS:
            return
        for key, value in item.items():
            match key, value:
                case str(), _ if key in KEYS:
                    pass
                case (("name" | "call_id"), str()):
                    self.fields[key] = value
                case "created_at", int() | float() if not isinstance(value, bool) and abs(value) < _LARGEST:
                    self.fields.setdefault(key, value)
                case "provider_executed", bool() if self.type == "tool_call":
                    self.fields[key] = value
                case "status", ("completed" | "incomplete" | "cancelled" | "failed") as status:
                    self.status = status
                case _:
                    self.metadata[str(key)] = _copied(value)


def word(item: Mapping[str, Any], key: str) -> str | None:
    """A text that says something; "" says nothing."""
    value = item.get(key)
    return value if isinstance(value, str) and value else None


def is_known(role: str, type: str, format: str | None) -> bool:
    if role not in ROLES or type not in ROLE_OF:
        return False
    known = type not in _FORMATS or format in _FORMATS[type]
    return known or (type == "image" and (format or "").startswith("base64"))


def line_of(value: Any) -> int | None:
    """A line number, from 1; None: it is none."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 10:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _LARGEST else None


def begins_image(group: Group, text: str) -> bool:
    """Whether a piece is the beginning of another image than the one so far."""
    if group.type != "image" or not (group.format or "").startswith("base64"):
        return False
    kind = (group.format or "").partition(".")[2]
    signatures = (_SIGNATURES[kind],) if kind in _SIGNATURES else tuple(_SIGNATURES.values())
    return text.startswith(signatures)


def is_base64(text: str) -> bool:
    try:
        return base64.b64encode(base64.b64decode(text, validate=True)).decode("ascii") == text
    except ValueError:
        return False


def as_text(value: Any) -> str:
    """A value that is no text, as one: numbers as they are, the rest as JSON."""
    try:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return str(value) if number else json.dumps(value, default=str)
    except Exception:  # what JSON cannot hold: a producer in this process can send any object
        return shortened(value)


def shortened(value: Any) -> str:
    """A value as a warning shows it."""
    try:
        text = repr(value)
    except Exception:  # an int of too many digits, or a foreign object
        return f"a {value.__class__.__name__}"
    return text if len(text) <= 40 else f"{text[:39]}…"


def without(fields: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != key}


def _copied(value: Any) -> Any:
    if isinstance(value, (str, int, float, type(None))):
        return value
    try:
        return copy.deepcopy(value)
    except Exception:  # an object that cannot be copied
        return shortened(value)


def subject_of(content: Any, id: str) -> tuple[m.Message, str | None]:
    """What a confirmation asks about, and what is wrong with it.

    Both forms are read, `format` with `content` and `language` with `code`. Where they differ nobody can tell what
    would run.
    """
    if not is_object(content):
        return m.CodeMessage(id, content=content if isinstance(content, str) else ""), "its content is no object"
    type = content.get("type")
    sources = [content[key] for key in ("content", "code") if content.get(key) is not None]
    languages = [content[key] for key in ("format", "language") if content.get(key) not in (None, "")]
    source = next((value for value in sources if isinstance(value, str)), "")
    language = next((value for value in languages if isinstance(value, str)), None)
    fault = None
    if not all(isinstance(value, str) for value in (*sources, *languages)):
        fault = "its source or its language is no text"
    elif not sources:
        fault = "it has no source"
    elif len(set(sources)) > 1 or len(set(languages)) > 1:
        fault = "it says two different things"
    elif type not in (None, "code", "tool_call"):
        fault = f"it asks about {shortened(type)}, not about code"
    if type == "tool_call":
        name, call_id = word(content, "name"), word(content, "call_id")
        return m.ToolCallMessage(id, name=name, call_id=call_id, content=source), fault
    return m.CodeMessage(id, format=language, content=source), fault


def same_subject(known: m.Message, asked: m.Message) -> bool:
    """Whether this message is what a confirmation asks about."""
    if known.content != asked.content or known.format != asked.format:
        return False
    return known.type == "code" or (known.name == asked.name and known.call_id == asked.call_id)


# -- what smells of a confirmation


def is_confirmation(type: str) -> bool:
    """Whether a type means a confirmation, however it is written."""
    return _folded(type).startswith("confirm")


def _folded(text: str) -> str:
    return "".join(filter(str.isalpha, text)).lower()


def is_runnable(content: Any) -> bool:
    """Whether content is an object as a confirmation has it: code, or a tool call."""
    if not is_object(content):
        return False
    type = word(content, "type")
    asks = type is not None and _folded(type) in ("code", "toolcall")
    return (asks or "language" in content or "format" in content) and ("content" in content or "code" in content)


def question_in(item: Mapping[str, Any]) -> tuple[Any, str | None] | None:
    """What an item asks about, and why that is in doubt; None: it asks nothing.

    A live producer runs its code when it is pulled past a question, so whatever may be one is one.
    """
    type, content = word(item, "type"), item.get("content")
    if type == "confirmation":
        return content, "it is another question besides" if "executing" in item else None
    if type is None and "executing" in item:
        return item["executing"], "it has no type"
    if type in ROLE_OF:
        if is_runnable(item.get("executing")):
            return item["executing"], f"its type is {shortened(type)}"
        if is_runnable(content) and _folded(word(item, "format") or "") == "execution":
            return content, f"its type is {shortened(type)}"
        return None
    if type is not None and is_confirmation(type):
        return content, f"its type is {shortened(type)}"
    if type == "error":
        return None
    if is_runnable(content):
        return content, f"its type is {shortened(type)}" if type else "it has no type"
    return _hidden_in(item, _DEEPEST, named=type is None)


def question_within(value: Any, depth: int = _DEEPEST) -> tuple[Any, str] | None:
    """What is asked somewhere inside a value that is no chunk."""
    if is_object(value):
        asked = question_in(value) if depth == _DEEPEST else _shallow(value, depth)
        return None if asked is None else (asked[0], asked[1] or "it is inside of something else")
    if isinstance(value, (str, bytes, bytearray)):
        return question_of_text(value) if depth == _DEEPEST else None
    if depth and (is_list(value) or isinstance(value, (tuple, set, frozenset))):
        for inner in cast("Iterable[Any]", value):
            if asked := question_within(inner, depth - 1):
                return asked
    return None


def question_of_text(value: str | bytes | bytearray) -> tuple[Any, str] | None:
    """What a text asks that should have been an object; nobody can tell about what."""
    text = value if isinstance(value, str) else bytes(value).decode("utf-8", "replace")
    return (text, "it is no object") if _QUESTION.search(text) else None


def _shallow(item: Mapping[str, Any], depth: int) -> tuple[Any, str | None] | None:
    """A question that is this object, or that it has inside."""
    type = word(item, "type")
    if (type is not None and is_confirmation(type)) or "executing" in item:
        return question_in(item)
    if is_runnable(item.get("content")) and type not in ROLE_OF:
        return item["content"], "it has no type"
    return _hidden_in(item, depth, named=type is None) if depth else None


def _hidden_in(item: Mapping[str, Any], depth: int, *, named: bool) -> tuple[Any, str] | None:
    """A question in one of an object's values; with `named` also by the name of a key, or by a word at its place."""
    for key, value in item.items():
        if named and _folded(str(key)) in _QUESTIONS:
            return value, f"it has the key {shortened(key)}"
        if named and key != "content" and isinstance(value, (str, bytes)):
            text = value if isinstance(value, str) else value.decode("utf-8", "replace")
            if _folded(text) == "confirmation":
                return item.get("content"), f"its {shortened(key)} is {shortened(text)}"
        if named and key == "type" and is_list(value) and any(isinstance(v, str) and is_confirmation(v) for v in value):
            return item.get("content"), "its type is a list"
        if isinstance(value, (Mapping, list, tuple)) and (asked := question_within(value, depth - 1)):
            return asked
    return None
