"""The wire format of Open Interpreter: its roles, types and formats, the identity of a chunk, and readers of its values.

The tables are those of the format, with the defaults for what a chunk leaves out. Nothing here raises, whatever the
types of the values are.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..values import LARGEST_COUNT, is_object, text_or_none

__all__ = [
    "CHUNK_KEYS",
    "CONSOLE_FORMATS",
    "DEFAULT_ROLES",
    "FIELD_KEYS",
    "ROLES",
    "TRANSIENT_TYPES",
    "Chunk",
    "any_as_text",
    "begins_with_image_signature",
    "copied",
    "is_action",
    "is_base64",
    "is_chunk",
    "is_specified",
    "letters",
    "line_number",
    "shown",
    "without_key",
]

ROLES = ("user", "assistant", "computer", "system")
DEFAULT_ROLES = {  # by type: the role of a chunk that names none; its keys are all the types of messages
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
CONSOLE_FORMATS = (None, "output", "active_line")  # these alternate within one console message
TRANSIENT_TYPES = ("review", "command")  # passed on as raw events, never stored as messages
CHUNK_KEYS = frozenset(["role", "type", "format", "recipient", "content", "id", "start", "end", "replace"])
FIELD_KEYS = (
    "name",
    "call_id",
    "created_at",
    "provider_executed",
    "status",
)  # message fields that only streamkit sends

_FORMATS = {  # the formats of a type that has only these; None: it may have none
    "message": (None, "reasoning", "refusal"),
    "console": CONSOLE_FORMATS,
    "image": (None, "path", "description", "url", "file_id"),  # and all that begin with base64
    "file": (None, "path", "file_id"),
}
# The base64 text that an image file of this format begins with.
_IMAGE_SIGNATURES = {"png": "iVBORw0KGgo", "jpeg": "/9j/", "jpg": "/9j/", "gif": "R0lGOD", "webp": "UklGR"}

# For `is_chunk`: types that identify a chunk even without a role, keys that chunks have, keys that other protocols have.
_TYPES_WITHOUT_ROLE = ("message", "code", "console", "image", "file", "audio")
_OWN_KEYS = ("content", "start", "end", "format")
_FOREIGN_KEYS = ("message_id", "item_id", "message", "index", "delta", "message_type", "messageId", "object", "choices")


class Chunk(NamedTuple):
    """A chunk of a message, with its identity.

    Attributes:
        item: the chunk as received.
        key: the `id` of the message that it belongs to; None where it has none.
        type: None where a later chunk will name it.
    """

    item: Mapping[str, Any]
    key: str | None
    role: str
    type: str | None
    format: str | None

    @property
    def is_active_line(self) -> bool:
        """Whether its content is the number of the line that runs."""
        return self.type == "console" and self.format == "active_line"


def is_chunk(item: Mapping[str, Any]) -> bool:
    """Whether an item has a shape that only Open Interpreter's chunks have."""
    type, role, content = item.get("type"), item.get("role"), item.get("content")
    is_foreign = any(key in item for key in _FOREIGN_KEYS)
    if not isinstance(type, str):
        is_confirmation = "executing" in item or (role == "computer" and is_action(content))
        return type is None and not is_foreign and is_confirmation
    if type.strip().lower() == "confirmation":
        return role in (*ROLES, "server") or (not is_foreign and any(key in item for key in _OWN_KEYS))
    # The complete messages of other protocols have lists of parts, and other keys around them.
    if isinstance(content, (list, tuple)):
        return False
    if role is None:
        return type in _TYPES_WITHOUT_ROLE and not is_foreign and any(key in item for key in _OWN_KEYS)
    return role in (*ROLES, "server") and any(key in item for key in ("content", "start", "end"))


def is_specified(role: str, type: str, format: str | None) -> bool:
    """Whether the format has messages of this role, type and format."""
    if role not in ROLES or type not in DEFAULT_ROLES:
        return False
    has_format = type not in _FORMATS or format in _FORMATS[type]
    return has_format or (type == "image" and (format or "").startswith("base64"))


def is_action(content: Any) -> bool:
    """Whether content is an object that describes what to run, as a confirmation has it: code, or a tool call."""
    if not is_object(content):
        return False
    type = text_or_none(content.get("type"))
    has_kind = (type is not None and letters(type) in ("code", "toolcall")) or "language" in content
    return (has_kind or "format" in content) and ("content" in content or "code" in content)


def letters(text: str) -> str:
    """Return the letters of a text, in lower case: for words that are spelled with other separators or capitals."""
    return "".join(filter(str.isalpha, text)).lower()


def line_number(value: Any) -> int | None:
    """Return a line number, from 1, as a number or as digits; None if the value is neither."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 10:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < LARGEST_COUNT else None


def begins_with_image_signature(text: str, format: str) -> bool:
    """Whether base64 text begins as a file of this `base64.…` format does; as any image where it names no format."""
    kind = format.partition(".")[2]
    signatures = (_IMAGE_SIGNATURES[kind],) if kind in _IMAGE_SIGNATURES else tuple(_IMAGE_SIGNATURES.values())
    return text.startswith(signatures)


def is_base64(text: str) -> bool:
    """Whether a text is base64 in its canonical form."""
    try:
        return base64.b64encode(base64.b64decode(text, validate=True)).decode("ascii") == text
    except ValueError:
        return False


def any_as_text(value: Any) -> str:
    """Return a value that is not text, as text: a number as Python writes it, anything else as JSON."""
    try:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return str(value) if is_number else json.dumps(value, default=str)
    except Exception:  # JSON cannot hold it: a producer in this process can send any object
        return shown(value)


def shown(value: Any) -> str:
    """Return a value as a warning shows it, in at most 40 characters."""
    try:
        text = repr(value)
    except Exception:  # an int with too many digits, or an object whose `__repr__` fails
        return f"a {value.__class__.__name__}"
    return text if len(text) <= 40 else f"{text[:39]}…"


def without_key(fields: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the same fields but one."""
    return {name: value for name, value in fields.items() if name != key}


def copied(value: Any) -> Any:
    """Return a copy of a value, which the producer of the chunk may change; its `repr` where it cannot be copied."""
    if isinstance(value, (str, int, float, type(None))):
        return value
    try:
        return copy.deepcopy(value)
    except Exception:  # an object that cannot be copied
        return shown(value)
