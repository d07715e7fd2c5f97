"""The chunks from a start to its end.

They are normally one message. They are several, one after another, where the recipient changes or another image begins;
and a console that printed nothing has none, as long as nothing else shows that it ran.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...events import Delta, MessageDelta
from ...messages import Message, Status, ToolCallMessage, message_class
from ..values import LARGEST_COUNT
from .wire import (
    CHUNK_KEYS,
    CONSOLE_FORMATS,
    TRANSIENT_TYPES,
    Chunk,
    begins_with_image_signature,
    copied,
    without_key,
)

__all__ = ["ChunkGroup"]


class ChunkGroup:
    """One group of chunks, and the message of it that is open or comes next.

    Attributes:
        key: the `id` that its chunks have; None where they have none.
        type, format: None where no chunk has named them so far.
        recipient_is_fixed: the start named the recipient; pieces that name none have this one.
        started_without_type: a later chunk names the type.
        has_content: a content chunk came, if only the number of a line.
        active_line: the line that runs; None before the first.
        fields, metadata, status: of its messages, from the further keys of its chunks.
        id: of the message that is open; "" while it has none.
        message_class, delta_class: of the message that is open.
        is_created: the message that is open was emitted as created.
        has_text: that message has content.
        pieces: that message's content so far, where the complete text is needed later.
        is_path: that message is audio by its path: its pieces are not base64.
    """

    def __init__(self, chunk: Chunk, recipient: str | None = None) -> None:
        self.key = chunk.key
        self.role = chunk.role
        self.type = chunk.type
        self.format = None if chunk.is_active_line else chunk.format
        self.recipient = recipient
        self.recipient_is_fixed = recipient is not None
        self.started_without_type = chunk.type is None
        self.has_content = False
        self.active_line: int | None = None
        self.fields: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.status: Status = "completed"
        self.reset_message()

    def reset_message(self) -> None:
        """Prepare for the next message of the group."""
        self.id = ""
        self.message_class: type[Message] = Message
        self.delta_class: type[Delta] = MessageDelta
        self.is_created = False
        self.has_text = False
        self.pieces: list[str] | None = None
        self.is_path = False

    def __str__(self) -> str:
        return f"the {self.role}'s {self.type or 'message'}"

    @property
    def is_console(self) -> bool:
        """Whether it is a console of the common formats, which has a message only if that has content."""
        return self.type == "console" and self.format in CONSOLE_FORMATS

    @property
    def is_transient(self) -> bool:
        """Whether its chunks are passed on as raw events and make no message."""
        return self.type in TRANSIENT_TYPES

    def accepts(self, role: str, type: str | None, format: str | None) -> bool:
        """Whether content of this role, type and format belongs to this group."""
        if role != self.role or self.type not in (None, type):
            return False
        if type == "console" and format in CONSOLE_FORMATS and self.format in CONSOLE_FORMATS:
            return True
        return format is None or format == self.format or (self.format is None and not self.has_content)

    def is_ended_by(self, chunk: Chunk) -> bool:
        """Whether an end with this identity is meant for this group."""
        return chunk.role == self.role if chunk.type is None else self.accepts(chunk.role, chunk.type, chunk.format)

    def is_next_image(self, text: str) -> bool:
        """Whether a piece begins another image than the one that is open."""
        format = self.format or ""
        return self.type == "image" and format.startswith("base64") and begins_with_image_signature(text, format)

    def create_message(self) -> Message:
        """Return the next message of the group, without content; it is open from now on."""
        type, format = self.type or "message", self.format
        if type == "message" and format == "reasoning":
            type, format = "reasoning", None
        self.message_class = message_class(type, format, self.role)
        self.delta_class = self.message_class.delta_event
        self.is_created = True
        self.pieces = [] if type in ("code", "tool_call", "audio") else None
        is_call = self.message_class is ToolCallMessage
        return self.message_class(
            self.id,
            role=self.role,
            type=type,
            format=format,
            recipient=self.recipient,
            status="in_progress",
            metadata=dict(self.metadata),
            **(self.fields if is_call else without_key(self.fields, "provider_executed")),
        )

    def add_further_keys(self, item: Mapping[str, Any]) -> None:
        """Take the keys of a chunk that are not Open Interpreter's: streamkit's fields, the rest as metadata."""
        if item.keys() <= CHUNK_KEYS:
            return
        for key, value in item.items():
            match key, value:
                case str(), _ if key in CHUNK_KEYS:
                    pass
                case (("name" | "call_id"), str()):
                    self.fields[key] = value
                case "created_at", int() | float() if not isinstance(value, bool) and abs(value) < LARGEST_COUNT:
                    self.fields.setdefault(key, value)
                case "provider_executed", bool() if self.type == "tool_call":
                    self.fields[key] = value
                case "status", ("completed" | "incomplete" | "cancelled" | "failed") as status:
                    self.status = status
                case _:
                    self.metadata[str(key)] = copied(value)
