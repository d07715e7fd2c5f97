"""Assembles messages from chunks: start, content, end.

A chunk belongs to the open group of its `id`; one without an `id` belongs to the one group without, or to the last
group if that fits. A message is created when its first content arrives, or its end: until then a content chunk may
still name its type and its format, and a second start may replace the first.

What is missing or contradictory is repaired, with a warning.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from ...events import ActiveLine, Event, MessageDone, RawEvent
from ...messages import Message, Status
from ..message_ids import MessageIds
from ..values import text_or_none
from .chunk_group import ChunkGroup
from .wire import (
    CONSOLE_FORMATS,
    DEFAULT_ROLES,
    TRANSIENT_TYPES,
    Chunk,
    any_as_text,
    is_base64,
    is_specified,
    line_number,
    shown,
    without_key,
)

__all__ = ["MessageAssembler"]


class MessageAssembler:
    """The open groups of one stream, and the events of their messages.

    Args:
        new_id: returns a new message id.
        emit: receives the events, in order.
        warn: receives the code and the text of a warning, in order with the events.
        has_message_ids: whether the `id` of a chunk is that of its message.

    Attributes:
        ids: of the messages so far.
        plain: by key, the groups whose open message takes any text piece of the same role, type and format: nothing else
            has to be checked of one.
        latest_actions: by type, the assistant's last code and last tool call; a confirmation is normally about one of them.
    """

    def __init__(
        self,
        new_id: Callable[[], str],
        emit: Callable[[Event], None],
        warn: Callable[[str, str], None],
        *,
        has_message_ids: bool,
    ) -> None:
        self._emit = emit
        self._warn = warn
        self._has_message_ids = has_message_ids
        self._groups: dict[str | None, ChunkGroup] = {}
        self._last_role: str | None = None  # of the last message that was created
        self.ids = MessageIds(new_id)
        self.plain: dict[str | None, ChunkGroup] = {}
        self.latest_actions: dict[str, Message] = {}

    @property
    def has_open_groups(self) -> bool:
        """Whether a start came without its end."""
        return bool(self._groups)

    # -- one chunk

    def add(self, item: Mapping[str, Any], role: str | None, type: str | None) -> None:
        """Read one chunk of a message; role and type are None where it has none."""
        is_start, is_end, format = bool(item.get("start")), bool(item.get("end")), text_or_none(item.get("format"))
        content = item.get("content")
        has_content = content is not None and not (isinstance(content, (str, bytes)) and not content)
        is_idle = content is None and "content" in item and format == "active_line"  # no line runs any more
        if not (has_content or is_start or is_end or is_idle):
            if "content" not in item:
                self._warn("no-op-chunk", "it has no start, no end and no content; it was skipped")
            return
        group, key = self._find_group(item, role, type, format, is_start=is_start)
        role = role or self._assumed_role(group, type)
        if type is None:
            type = self._assumed_type(group, role, content if has_content else None, is_start=is_start)
            if type is None and has_content:
                has_content = False
                if not (is_start or is_end):
                    return
        chunk = Chunk(item, key, role, type, format)
        if is_start:
            group = self._start(group, chunk)
        if has_content or (is_idle and chunk.type == "console"):
            group = self._add_content(group, chunk)
        if is_end:
            self._end(group, chunk)
        if chunk.type in TRANSIENT_TYPES:
            self._emit(RawEvent(chunk.type or "", dict(item)))

    def _find_group(
        self, item: Mapping[str, Any], role: str | None, type: str | None, format: str | None, *, is_start: bool
    ) -> tuple[ChunkGroup | None, str | None]:
        """Return the open group that a chunk belongs to, and the key of the one that it would start."""
        key = text_or_none(item.get("id")) if self._has_message_ids else None
        group = self._groups.get(key)
        if group is None and key is None and not is_start and self._groups:
            last = next(reversed(self._groups.values()))  # perhaps only its start had the id
            if last.accepts(role or last.role, type or last.type, format):
                return last, last.key
        return group, key

    def _assumed_role(self, group: ChunkGroup | None, type: str | None) -> str:
        """Return the role of a chunk that names none: that of the open group, else the one that its type normally
        has."""
        continues = group is not None and type in (None, group.type)
        role = group.role if group is not None and continues else DEFAULT_ROLES.get(type or "message", "assistant")
        self._warn("no-role", f"it has no role; it was read as {role!r}")
        return role

    def _assumed_type(self, group: ChunkGroup | None, role: str, content: Any, *, is_start: bool) -> str | None:
        """Return the type of a chunk that names none: that of the open group, else of text `message`.

        None where there is no content (of a start, a later chunk names the type) or where the content cannot be read.
        """
        open_type = group.type if group is not None and not is_start and group.role == role else None
        if content is None:
            is_pending = group is not None and group.started_without_type and group.role == role
            if not (is_start or is_pending):
                self._warn("no-type", f"it has no type; it was read as {open_type or 'the end of what is open'!r}")
            return open_type
        if open_type is None and not isinstance(content, str):
            self._warn("no-type", "it has no type and its content is not text; the content was skipped")
            return None
        self._warn("no-type", f"it has no type; it was read as {open_type or 'message'!r}")
        return open_type or "message"

    # -- start, content, end

    def _start(self, group: ChunkGroup | None, chunk: Chunk) -> ChunkGroup:
        if group is not None and group.has_content:
            self._warn("missing-end", f"{group} was not ended before the next start; it was closed")
            self._close(group)
        elif group is not None:
            self._warn("duplicate-start", f"{group} was started again before any content; the first start was dropped")
            del self._groups[group.key]
        return self._open(chunk, text_or_none(chunk.item.get("recipient")))

    def _open(self, chunk: Chunk, recipient: str | None = None) -> ChunkGroup:
        group = self._groups[chunk.key] = ChunkGroup(chunk, recipient)
        group.add_further_keys(chunk.item)
        return group

    def _add_content(self, group: ChunkGroup | None, chunk: Chunk) -> ChunkGroup | None:
        content = chunk.item["content"]
        line = line_number(content)
        if chunk.is_active_line and line is None and content is not None:
            self._warn("bad-active-line", f"{shown(content)} is not a line number; it was ignored")
            if group is not None and group.accepts(chunk.role, chunk.type, chunk.format):
                group.add_further_keys(chunk.item)
            return group
        group = self._group_for_content(group, chunk)
        group.type = chunk.type
        if chunk.is_active_line:
            self._set_active_line(group, line)
        elif not group.is_transient:
            if chunk.type == "console" and chunk.format is None and group.format in CONSOLE_FORMATS:
                self._warn("no-format", "console content without a format was read as output")
            if not group.has_text and chunk.format is not None:
                group.format = chunk.format
            self._add_text(group, self._text_of(group, content), chunk.item)
        group.has_content = True
        return group

    def _group_for_content(self, group: ChunkGroup | None, chunk: Chunk) -> ChunkGroup:
        """Return the open group if the content belongs there, else a new one."""
        if group is None:
            self._warn("missing-start", "it has content but nothing was started; a message was created for it")
            return self._open(chunk)
        if not group.accepts(chunk.role, chunk.type, chunk.format):
            self._warn("missing-end", f"{group} was not ended before other content; it was closed")
            self._close(group)
            return self._open(chunk)
        group.add_further_keys(chunk.item)
        return group

    def _text_of(self, group: ChunkGroup, content: Any) -> str:
        """Content of any type as text."""
        if isinstance(content, str):
            return content
        data = bytes(content) if isinstance(content, (bytes, bytearray)) else None
        if data is not None and group.type == "audio":  # binary transports send it so
            return base64.b64encode(data).decode("ascii")
        kind: str = content.__class__.__name__
        self._warn("non-string-content", f"its content is of type {kind}; it was converted to text")
        return any_as_text(content) if data is None else data.decode("utf-8", "replace")

    def _add_text(self, group: ChunkGroup, text: str, item: Mapping[str, Any]) -> None:
        """Add text to the group's open message, or begin its next message with it."""
        if not text:
            return
        recipient, replace = text_or_none(item.get("recipient")), bool(item.get("replace"))
        if recipient is None and group.recipient_is_fixed:
            recipient = group.recipient
        if group.has_text and not replace and (recipient != group.recipient or group.is_next_image(text)):
            self._complete_message(group)
        if not group.has_text:
            group.recipient = recipient
        if group.type == "console" and group.format is None:
            group.format = "output"
        if not group.is_created:
            self._create_message(group)
        if group.pieces is not None:
            text, replace = _with_earlier_pieces(group, group.pieces, text, replace=replace)
        self._emit(group.delta_class(group.id, text, replace))
        group.has_text = True
        if group.type not in ("image", "audio") and (group.recipient is None or group.recipient_is_fixed):
            self.plain[group.key] = group

    def _set_active_line(self, group: ChunkGroup, line: int | None) -> None:
        if line is None and not group.is_created and self._last_role != "computer":
            self._create_message(group)  # code ran and printed nothing: an empty message shows that
        elif not group.id:
            group.id = self._message_id(group.key)
        group.active_line = line
        self._emit(ActiveLine(group.id, line))

    def _end(self, group: ChunkGroup | None, chunk: Chunk) -> None:
        if group is None:
            self._warn("end-without-start", "it ends a message, but none is open; it was skipped")
            return
        if not group.is_ended_by(chunk):
            self._warn("end-mismatch", f"it ends a message other than the open one; {group} was closed")
        else:
            group.add_further_keys(chunk.item)
            if not group.has_content:
                group.type = group.type or chunk.type
                group.format = group.format or (None if chunk.is_active_line else chunk.format)
                group.recipient = group.recipient or text_or_none(chunk.item.get("recipient"))
        self._close(group)

    # -- messages

    def _message_id(self, key: str | None) -> str:
        """Return the id of a new message: the chunks' own for the first message that has it, else a new one."""
        return self.ids.unused(key or "")

    def _create_message(self, group: ChunkGroup) -> None:
        type, format = group.type or "message", group.format
        if type == "code" and format is None:
            self._warn("no-format", "code without a language cannot be run")
        if not is_specified(group.role, type, format):
            identity = f"role {group.role!r}, type {type!r}, format {format!r}"
            self._warn("unknown-type", f"the protocol has no messages of {identity}; one was created all the same")
        if not group.id:
            group.id = self._message_id(group.key)
        message = group.create_message()
        self._last_role = group.role
        self._emit(message.created_event(message))

    def _complete_message(self, group: ChunkGroup, status: Status = "completed") -> None:
        """Emit the end of the group's message. The group may go on with another."""
        fields = without_key(group.fields, "provider_executed")
        self._emit(MessageDone(Message(group.id, status=status, metadata=dict(group.metadata), **fields)))
        if group.pieces is not None and group.role == "assistant":
            content = "".join(group.pieces)
            action = group.message_class(group.id, format=group.format, content=content, **fields)
            self.latest_actions[group.type or ""] = action
        self.plain.pop(group.key, None)
        group.reset_message()

    # -- closing

    def _close(self, group: ChunkGroup, status: Status | None = None) -> None:
        self._groups.pop(group.key, None)
        if group.type is None:
            self._warn("no-type", "a message was started and ended without a type or content; it was dropped")
        if group.type is None or group.is_transient:
            return
        if group.active_line is not None:
            self._emit(ActiveLine(group.id, None))
        if not group.is_created and not group.is_console:
            self._create_message(group)
        if group.is_created:
            self._complete_message(group, status or group.status)

    def close_all(self, status: Status, code: str = "", reason: str = "") -> None:
        """Close every open group; with a `code`, each with a warning that gives the reason."""
        for group in [*self._groups.values()]:
            if code:
                self._warn(code, f"{group} was not ended: {reason}; it was closed")
            self._close(group, status)

    def close_before_question(self) -> None:
        """Close the groups that a confirmation ends: those without an id, and the assistant's code. The code that
        would run must not change afterwards."""
        for group in [*self._groups.values()]:
            if group.key is None or (group.role == "assistant" and group.type == "code"):
                self._close(group)


def _with_earlier_pieces(group: ChunkGroup, pieces: list[str], text: str, *, replace: bool) -> tuple[str, bool]:
    """Add a text to the pieces of its message; return what to emit, and whether that replaces the content.

    Pieces of audio are joined as bytes. One that is not base64 is a part of a path, which is emitted complete each time.
    """
    if replace:
        pieces.clear()
    pieces.append(text)
    if group.type == "audio" and (group.is_path or not is_base64(text)):
        group.is_path = not (replace and is_base64(text))
        return "".join(pieces), True
    return text, replace
