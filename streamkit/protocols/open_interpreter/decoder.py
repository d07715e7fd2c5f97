"""Open Interpreter's chunks (0.2 to 0.4): flat messages, cut in pieces between a `start` and an `end`.

A chunk is a message's own keys (role, type, format, recipient, content) and the flags start, end and replace. Chunks
belong to the one open message, or, where they have an `id`, to the open message of that id.

Terminal rule: the source ends with nothing open. `{"role": "server", "type": "status", "content": "complete"}`,
`{"role": "server", "type": "error", …}` and an SSE `[DONE]` end the stream before that.

A message is told of when its first content arrives, or its end: until then a content chunk may still name its type
and its format, and a second start may take its place.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from ...answers import Confirmation
from ...events import ActiveLine, ConfirmationCreated, Event, MessageDone, RawEvent, Run, RunDone, StreamWarning
from ...messages import Message, Status
from .. import base
from ..framing import Frames, as_frame
from ..values import is_object
from .chunks import (
    CONSOLE,
    ROLE_OF,
    ROLES,
    TRANSIENT,
    Chunk,
    Group,
    as_text,
    begins_image,
    is_base64,
    is_known,
    is_runnable,
    line_of,
    question_in,
    question_of_text,
    question_within,
    same_subject,
    shortened,
    subject_of,
    without,
    word,
)

__all__ = ["Decoder", "WebsocketDecoder"]


class _Piece(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A content chunk with nothing unusual about it."""

    role: str
    type: str
    content: str
    format: str | None = None
    id: str | None = None


_OWN = ("message", "code", "console", "image", "file", "audio")  # types that are enough without a role
_OWN_KEYS = ("content", "start", "end", "format")
_FOREIGN_KEYS = ("message_id", "item_id", "message", "index", "delta", "message_type", "messageId", "object", "choices")

_decode_piece = msgspec.json.Decoder(_Piece).decode


class Decoder(base.Decoder):
    """Chunks, whatever their state. See DESIGN for what each type becomes.

    Besides messages: a `confirmation` is a `Confirmation` (its subject is the code message before it, if that is what
    it asks about), an `active_line` an `ActiveLine`, perhaps of a console message that never comes; `review`,
    `command` and the server's other words are `RawEvent`s.
    """

    name = "open_interpreter"
    pull_approves = True
    ids = True  # an `id` is a message's
    index: int

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._told: list[Event] = []
        self._groups: dict[str | None, Group] = {}
        self._plain: dict[str | None, Group] = {}  # those that a plain piece can be added to without a look
        self._used: set[str] = set()
        self._kind: str | None = None
        self._last_role: str | None = None  # of the last stored message
        self._runnable: dict[str, Message] = {}  # the last code, the last tool call
        self._asked = 0
        self._exhausted = False
        self._failed = False
        self._unreadable: int = -1  # the index of the last frame that was no JSON

    @classmethod
    def may_ask(cls, item: Any) -> bool:
        return question_within(item) is not None

    @classmethod
    def recognises(cls, item: Mapping[str, Any]) -> bool:
        type, role, content = item.get("type"), item.get("role"), item.get("content")
        foreign = any(key in item for key in _FOREIGN_KEYS)
        if not isinstance(type, str):
            computers = role == "computer" and is_runnable(content)
            return type is None and not foreign and ("executing" in item or computers)
        if type.strip().lower() == "confirmation":
            return role in (*ROLES, "server") or (not foreign and any(key in item for key in _OWN_KEYS))
        # Other protocols' whole messages have lists of parts, and other names for all that is around them.
        if isinstance(content, (list, tuple)):
            return False
        if role is None:
            return type in _OWN and not foreign and any(key in item for key in _OWN_KEYS)
        return role in (*ROLES, "server") and any(key in item for key in ("content", "start", "end"))

    # -- the common piece

    def feed_frames(self, frames: Frames) -> list[Event]:
        events: list[Event] = []
        self._first, self._frames = self.index, frames
        plain, ids = self._plain, self.ids
        for id, name, data in map(as_frame, frames):
            try:
                piece = _decode_piece(data)
            except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError):
                if self.exhausted:
                    break
                events += self.feed_frame(id, name, data)
                continue
            group = plain.get(piece.id if ids else None)
            content = piece.content
            if (
                group is None
                or not content
                or piece.type != group.type
                or piece.role != group.role
                or piece.format != group.format
            ):
                if self.exhausted:
                    break
                events += self.feed_frame(id, name, data)
                continue
            self.index += 1
            if group.pieces is not None:
                group.pieces.append(content)
            event = group.delta(group.id, content, raw_item=data)
            if id:
                event.position = id.decode("utf-8", "replace")
            events.append(event)
        return events

    def feed_frame(self, id: bytes, name: bytes, data: bytes) -> list[Event]:
        events = super().feed_frame(id, name, data)
        self.exhausted = self.exhausted or self._exhausted
        if events and isinstance(events[0], StreamWarning) and events[0].code == "not-json":
            self._unreadable = self.index - 1
            if not self._exhausted and (asked := question_of_text(data)):
                told = self._ask_in_place_of(*asked)
                for event in told:
                    event.raw_item, event.item_index, event.position = data, self.index - 1, events[0].position
                events += told
        return events

    def _guarded(self, item: Any) -> list[Event]:
        if not is_object(item) and not self._exhausted and (asked := question_within(item)):
            return self._ask_in_place_of(*asked)
        return super()._guarded(item)

    def _ask_in_place_of(self, content: Any, doubt: str) -> list[Event]:
        """The question of an item that is no chunk."""
        told: list[Event] = []
        self._told, self._kind = told, None
        self._confirmation(content, doubt)
        return told

    def feed_items(self, items: Iterable[Any]) -> list[Event]:
        events: list[Event] = []
        plain = self._plain
        item: Any
        for item in items:
            group = None
            if plain and item.__class__ is dict:
                key = item.get("id") if self.ids else None
                if key is None or key.__class__ is str:
                    group = plain.get(key)
            if group is not None:
                content = item.get("content")
                if (
                    content.__class__ is str
                    and content
                    and item.get("type") == group.type
                    and item.get("role") == group.role
                    and item.get("format") == group.format
                    and len(item) == 3 + ("format" in item) + ("id" in item)
                ):
                    self.index += 1
                    if group.pieces is not None:
                        group.pieces.append(content)
                    events.append(group.delta(group.id, content, raw_item=item))
                    continue
            events += super().feed_items((item,))
        return events

    # -- any item

    def feed(self, item: Mapping[str, Any]) -> list[Event]:
        told: list[Event] = []
        self._told = told
        role, type = word(item, "role"), word(item, "type")
        self._kind = type
        if self._exhausted:
            if not (self._failed and type == "status"):  # which the server sends after an error too
                self._warn("after-end", "it came after the end of the stream and was skipped")
        elif asked := question_in(item):
            self._confirmation_role(role)
            self._confirmation(*asked)
        elif role is None and type is None and "content" not in item and ("ack" in item or "auth" in item):
            pass  # the websocket's own frames
        elif role is None and type is None and item.get("error"):
            self._fail(item["error"], item)
        elif role == "server" or (role is None and type in ("status", "error")):
            self._server(role, type, item)
        else:
            self._chunk(item, role, type)
        return told

    def finish(self) -> list[Event]:
        told: list[Event] = []
        self._told, self._kind = told, None
        if not self._exhausted:
            cut = 0 <= self._unreadable == self.index - 1  # a line that the end of the stream cut short
            self.complete = not self._groups and not cut
            self._close_all("incomplete", "incomplete-at-eof", "the stream ended within it")
        return told

    def sentinel(self, data: bytes) -> list[Event]:
        told: list[Event] = []
        self._told, self._kind = told, None
        if data.strip() == b"[DONE]" and not self._exhausted:
            self._close_all("completed", "missing-end", "the stream was said to be over")
            self._exhausted = self.exhausted = self.complete = True
        return told

    def _warn(self, code: str, fault: str) -> None:
        self._told.append(self.warn(code, fault, self._kind))

    # -- a chunk of a message

    def _chunk(self, item: Mapping[str, Any], role: str | None, type: str | None) -> None:
        start, end, format = bool(item.get("start")), bool(item.get("end")), word(item, "format")
        content = item.get("content")
        empty = content is None or (isinstance(content, (str, bytes)) and not content)
        null = content is None and "content" in item and format == "active_line"
        if empty and not (start or end or null):
            if "content" not in item:
                self._warn("no-op-chunk", "it has no start, no end and no content, and was skipped")
            return
        group, key = self._find(item, role, type, start)
        identity = self._identify(group, role, type, start, None if empty else content)
        if identity is None:
            return
        chunk = Chunk(item, key, *identity, format)
        if start:
            group = self._start(group, chunk)
        if not empty or (null and chunk.type == "console"):
            group = self._content(group, chunk)
        if end:
            self._end(group, chunk)
        if chunk.type in TRANSIENT:
            self._told.append(RawEvent(chunk.type or "", dict(item)))

    def _find(
        self, item: Mapping[str, Any], role: str | None, type: str | None, start: bool
    ) -> tuple[Group | None, str | None]:
        """The open group that a chunk belongs to, and the key of the one that it would begin."""
        key = word(item, "id") if self.ids else None
        group = self._groups.get(key)
        if group is None and key is None and not start and self._groups:
            last = next(reversed(self._groups.values()))  # only its start may have had the id
            if last.takes(role or last.role, type or last.type, word(item, "format")):
                return last, last.key
        return group, key

    def _identify(
        self, group: Group | None, role: str | None, type: str | None, start: bool, content: Any
    ) -> tuple[str, str | None] | None:
        """The role and the type of a chunk that may lack them; None: it cannot be read. The type of a start that
        has none is yet to come."""
        if role is None:
            same = group is not None and type in (None, group.type)
            role = group.role if group is not None and same else ROLE_OF.get(type or "message", "assistant")
            self._warn("no-role", f"it has no role; it was taken as {role!r}")
        if type is not None:
            return role, type
        of_open = group.type if group is not None and not start and group.role == role else None
        if content is None and (start or (group is not None and group.untyped and group.role == role)):
            return role, of_open
        if content is not None and of_open is None and not isinstance(content, str):
            self._warn("no-type", "it has no type and no text, and was skipped")
            return None
        type = of_open if content is None else of_open or "message"
        self._warn("no-type", f"it has no type; it was taken as {type or 'the end of what is open'!r}")
        return role, type

    def _start(self, group: Group | None, chunk: Chunk) -> Group:
        if group is not None and group.touched:
            self._warn("missing-end", f"{group} had no end before the next start; it was closed")
            self._close(group)
        elif group is not None:
            self._warn("duplicate-start", f"{group} was started and had no content; it was dropped")
            del self._groups[group.key]
        return self._begin(chunk, word(chunk.item, "recipient"))

    def _begin(self, chunk: Chunk, recipient: str | None = None) -> Group:
        group = self._groups[chunk.key] = Group(chunk, recipient)
        group.keep(chunk.item)
        return group

    def _content(self, group: Group | None, chunk: Chunk) -> Group | None:
        content = chunk.item["content"]
        line = line_of(content)
        if chunk.is_line and line is None and content is not None:
            self._warn("bad-active-line", f"a line cannot be {shortened(content)}; it was dropped")
            return group
        if group is None:
            self._warn("missing-start", "it has content and no start; a message was begun for it")
            group = self._begin(chunk)
        elif not group.takes(chunk.role, chunk.type, chunk.format):
            self._warn("missing-end", f"{group} had no end before other content; it was closed")
            self._close(group)
            group = self._begin(chunk)
        else:
            group.keep(chunk.item)
        group.type = chunk.type
        if chunk.is_line:
            self._line(group, line)
        elif chunk.type not in TRANSIENT:
            if chunk.type == "console" and chunk.format is None and group.format in CONSOLE:
                self._warn("no-format", "console content without a format was taken as output")
            if not group.filled and chunk.format is not None:
                group.format = chunk.format
            self._piece(group, self._text(group, content), chunk.item)
        group.touched = True
        return group

    def _text(self, group: Group, content: Any) -> str:
        """Content of any kind as text."""
        if isinstance(content, str):
            return content
        kind: str = content.__class__.__name__
        data = bytes(content) if isinstance(content, (bytes, bytearray)) else None
        if data is not None and group.type == "audio":  # binary transports send it so
            return base64.b64encode(data).decode("ascii")
        self._warn("non-string-content", f"its content is a {kind}; it was turned into text")
        return as_text(content) if data is None else data.decode("utf-8", "replace")

    def _piece(self, group: Group, text: str, item: Mapping[str, Any]) -> None:
        """Add a text to the group's message, or begin its next one with it."""
        if not text:
            return
        recipient, replace = word(item, "recipient"), bool(item.get("replace"))
        if recipient is None and group.addressed:
            recipient = group.recipient
        if group.filled and not replace and (recipient != group.recipient or begins_image(group, text)):
            self._done(group)
        if not group.filled:
            group.recipient = recipient
        if group.type == "console" and group.format is None:
            group.format = "output"
        if not group.told:
            self._create(group)
        if group.pieces is not None:
            if replace:
                group.pieces.clear()
            group.pieces.append(text)
            if group.type == "audio" and (group.unjoinable or not is_base64(text)):
                group.unjoinable = not (replace and is_base64(text))
                text, replace = "".join(group.pieces), True
        self._told.append(group.delta(group.id, text, replace))
        group.filled = True
        if group.type not in ("image", "audio") and (group.recipient is None or group.addressed):
            self._plain[group.key] = group

    def _line(self, group: Group, line: int | None) -> None:
        if line is None and not group.told and self._last_role != "computer":
            self._create(group)  # it ran and printed nothing, which is to be seen
        elif not group.id:
            group.id = self._new_id(group.key)
        group.line = line
        self._told.append(ActiveLine(group.id, line))

    def _end(self, group: Group | None, chunk: Chunk) -> None:
        if group is None:
            self._warn("end-without-start", "it ends a message, and none is open; it was skipped")
            return
        if not group.ends_with(chunk):
            self._warn("end-mismatch", f"it ends another message than the open one; {group} was closed")
        else:
            group.keep(chunk.item)
            if not group.touched:
                group.type = group.type or chunk.type
                group.format = group.format or (None if chunk.is_line else chunk.format)
                group.recipient = group.recipient or word(chunk.item, "recipient")
        self._close(group)

    # -- messages begin and end

    def _new_id(self, key: str | None) -> str:
        """The wire's id for its first message, else a new one: never one that was given before."""
        wanted = key if key is not None and key not in self._used else self.new_id()
        free, number = wanted, 2
        while free in self._used:
            free, number = f"{wanted}.{number}", number + 1
        self._used.add(free)
        return free

    def _create(self, group: Group) -> None:
        type, format = group.type or "message", group.format
        if type == "code" and format is None:
            self._warn("no-format", "code without a language cannot be run")
        if not is_known(group.role, type, format):
            self._warn("unknown-type", f"role {group.role!r}, type {type!r}, format {format!r}: not known; it was kept")
        if not group.id:
            group.id = self._new_id(group.key)
        message = group.begin()
        self._last_role = group.role
        self._told.append(message.created_event(message))

    def _done(self, group: Group, status: Status = "completed") -> None:
        """The group's message is over; the group may go on with another."""
        fields = without(group.fields, "provider_executed")
        self._told.append(MessageDone(Message(group.id, status=status, metadata=dict(group.metadata), **fields)))
        if group.pieces is not None and group.role == "assistant":
            content = "".join(group.pieces)
            self._runnable[group.type or ""] = group.kind(group.id, format=group.format, content=content, **fields)
        self._plain.pop(group.key, None)
        group.renew()

    def _close(self, group: Group, status: Status | None = None) -> None:
        self._groups.pop(group.key, None)
        if group.type is None:
            self._warn("no-type", "a message was started and ended without a type and content; it was dropped")
        if group.type is None or group.type in TRANSIENT:
            return
        if group.line is not None:
            self._told.append(ActiveLine(group.id, None))
        if not group.told and (group.type != "console" or group.format not in CONSOLE):
            self._create(group)
        if group.told:
            self._done(group, status or group.status)

    def _close_all(self, status: Status, code: str = "", why: str = "") -> None:
        for group in [*self._groups.values()]:
            if code:
                self._warn(code, f"{group} had no end: {why}; it was closed")
            self._close(group, status)

    # -- what is no message

    def _server(self, role: str | None, type: str | None, item: Mapping[str, Any]) -> None:
        if role is None:
            self._warn("no-role", "it has no role; it was taken as the server's")
        match type, item.get("content"):
            case "error", content:
                self._fail(content, item)
            case "status", "complete":
                self._close_all("completed", "missing-end", "the run was said to be complete")
                self._told.append(RunDone(Run(status="completed", raw=dict(item))))
                self._exhausted = self.exhausted = self.complete = True
            case _:
                self._told.append(RawEvent(type or "server", dict(item)))

    def _fail(self, fault: Any, item: Mapping[str, Any]) -> None:
        self._close_all("failed")
        error: dict[str, Any] = dict(fault) if is_object(fault) else {}
        if not isinstance(error.get("message"), str):
            error["message"] = fault if isinstance(fault, str) else "" if fault is None else as_text(fault)
        self._told.append(RunDone(Run(status="failed", error=error, raw=dict(item))))
        self._exhausted = self.exhausted = self._failed = self.complete = True

    def _confirmation_role(self, role: str | None) -> None:
        if role is None:
            self._warn("no-role", "it has no role; it was taken as 'computer'")
        elif role != "computer":
            self._warn("unknown-type", f"a confirmation comes from the computer, not from {role!r}; it is asked")

    def _confirmation(self, content: Any, doubt: str | None) -> None:
        """A question; where there is a doubt what it asks, one that nothing can be approved by."""
        for group in [*self._groups.values()]:
            if group.key is None or (group.role == "assistant" and group.type == "code"):
                self._close(group)  # what is asked about must not grow
        self._asked += 1
        id = f"confirmation-{self._asked}"
        subject, fault = subject_of(content, f"{id}.subject")
        fault = doubt or fault
        known = self._runnable.get(subject.type)
        if fault is not None:
            self._warn("malformed-confirmation", f"{fault}; nothing can be approved by it")
        if fault is None and known is not None and same_subject(known, subject):
            subject = known
        else:
            while subject.id in self._used:
                subject.id += "."
            self._used.add(subject.id)
        self._told.append(ConfirmationCreated(Confirmation(id, subject, malformed=fault is not None)))


class WebsocketDecoder(Decoder):
    """The frames of Open Interpreter's websocket: an `id` is a delivery's there, not a message's."""

    ids = False
