"""Decodes Open Interpreter's chunks (0.2 to 0.4): flat messages, cut in pieces between a `start` and an `end`.

A chunk has a message's own keys (role, type, format, recipient, content) and the flags start, end and replace. `questions`
decides which chunks are questions to the user, `assembly` makes messages of the others.

Terminal rule: the source ends with nothing open. `{"role": "server", "type": "status", "content": "complete"}`,
`{"role": "server", "type": "error", …}` and an SSE `[DONE]` end the stream before that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from ...answers import Confirmation
from ...events import ConfirmationCreated, Event, RawEvent, Run, RunDone, StreamWarning
from ...messages.json_text import NOT_JSON, has_surrogates
from ...messages.typed_json import decoder
from .. import base
from ..framing import Frames, as_frame
from ..values import is_object, text_or_none
from .assembly import MessageAssembler
from .confirmations import is_same_action, read_subject
from .questions import Question, is_question_line, question_in_chunk, question_in_item, question_in_text
from .wire import any_as_text, is_chunk

__all__ = ["Decoder", "WebsocketDecoder"]


class _Piece(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A content chunk as it mostly comes; any other takes the tolerant path."""

    role: str
    type: str
    content: str
    format: str | None = None
    id: str | None = None


_decode_piece = decoder(_Piece).decode


class Decoder(base.Decoder):
    """Chunks, however malformed, as events.

    A `confirmation` becomes a `Confirmation`; its subject is the code message before it, if that is the code that would run.
    An `active_line` becomes an `ActiveLine`, perhaps of a console message that never comes. `review`, `command` and
    what else the server sends become `RawEvent`s.
    """

    name = "open_interpreter"
    pull_approves = True
    has_message_ids = True  # the `id` of a chunk is that of its message
    index: int

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._events: list[Event] = []  # of the current item
        self._type: str | None = None  # of the current item
        self._messages = MessageAssembler(
            self.new_id, self._events.append, self._warn, has_message_ids=self.has_message_ids
        )
        self._plain = self._messages.plain
        self._confirmation_count = 0
        self._is_over = False  # as `exhausted`, which a live source may read only after the frame that ends it
        self._has_failed = False
        self._unreadable_index: int = -1  # of the last frame that was not JSON

    @classmethod
    def may_ask(cls, item: Any) -> bool:
        """Whether an item is a question, or has one inside; see `questions`."""
        return question_in_item(item) is not None

    @classmethod
    def is_question_line(cls, line: bytes) -> bool:
        """Whether a line is a chunk with a question; see `questions`."""
        return is_question_line(line)

    @classmethod
    def recognises(cls, item: Mapping[str, Any]) -> bool:
        """Whether only Open Interpreter has items of this shape."""
        return is_chunk(item)

    # -- the fast path: a piece of text for a message that is open

    def feed_frames(self, frames: Frames) -> list[Event]:
        """The events of frames. A plain piece is added without a look at anything else."""
        events: list[Event] = []
        start, self.frames = self.index, frames
        plain, has_message_ids = self._plain, self.has_message_ids
        for id, name, data in map(as_frame, frames):
            try:
                piece = _decode_piece(data)
            except NOT_JSON:
                if self.exhausted:
                    self.frames = frames[: self.index - start]
                    break
                events += self.feed_frame(id, name, data)
                continue
            group = plain.get(piece.id if has_message_ids else None)
            content = piece.content
            if (
                group is None
                or not content
                or piece.type != group.type
                or piece.role != group.role
                or piece.format != group.format
            ):
                if self.exhausted:
                    self.frames = frames[: self.index - start]
                    break
                events += self._first_piece(id, piece, data) or self.feed_frame(id, name, data)
                continue
            self.index += 1
            if group.pieces is not None:
                group.pieces.append(content)
            event = group.delta_class(group.id, content, raw_item=data)
            if id:
                event.position = id.decode("utf-8", "replace")
            events.append(event)
        return events

    def _first_piece(self, id: bytes, piece: _Piece, data: bytes) -> list[Event]:
        """The events of the first piece of a message that was started; none if it is no such piece."""
        self._begin_item(piece.type)
        key = text_or_none(piece.id) if self.has_message_ids else None
        if self._is_over or not piece.content or self.foreign_decoder is not None:
            return []
        if not self._messages.begin_plain(key, piece.role, piece.type, piece.format, piece.content):
            return []
        return self._typed(self._take_events(), data, id)

    def feed_item(self, item: Any) -> list[Event]:
        return self.feed_items((item,))

    def feed_items(self, items: Iterable[Any]) -> list[Event]:
        """The events of parsed items. A plain piece is added without a look at anything else."""
        events: list[Event] = []
        plain = self._plain
        item: Any
        for item in items:
            group = None
            if plain and item.__class__ is dict:
                key = item.get("id") if self.has_message_ids else None
                if key is None or key.__class__ is str:
                    group = plain.get(key)
            if group is not None:
                content = item.get("content")
                if (
                    content.__class__ is str
                    and content
                    and not has_surrogates(content)
                    and item.get("type") == group.type
                    and item.get("role") == group.role
                    and item.get("format") == group.format
                    and len(item) == 3 + ("format" in item) + ("id" in item)
                ):
                    self.index += 1
                    if group.pieces is not None:
                        group.pieces.append(content)
                    events.append(group.delta_class(group.id, content, raw_item=item))
                    continue
            events += super().feed_items((item,))
            if self.exhausted:
                break
        return events

    # -- the tolerant path: any item

    def feed_frame(self, id: bytes, name: bytes, data: bytes) -> list[Event]:
        """The events of one frame. One that is not JSON may still be a question."""
        events = super().feed_frame(id, name, data)
        self.exhausted = self.exhausted or self._is_over
        if events and isinstance(events[0], StreamWarning) and events[0].code == "not-json":
            self._unreadable_index = self.index - 1
            if not self._is_over and (question := question_in_text(data)):
                emitted = self._ask_without_chunk(question)
                for event in emitted:
                    event.raw_item, event.item_index, event.position = data, self.index - 1, events[0].position
                events += emitted
        return events

    def _guarded(self, item: Any) -> list[Event]:
        if not is_object(item) and not self._is_over and (question := question_in_item(item)):
            return self._ask_without_chunk(question)
        return super()._guarded(item)

    def feed(self, item: Mapping[str, Any]) -> list[Event]:
        """The events of one item."""
        role, type = text_or_none(item.get("role")), text_or_none(item.get("type"))
        self._begin_item(type)
        if self._is_over:
            if not (self._has_failed and type == "status"):  # the server sends its status after an error too
                self._warn("after-end", "it came after the end of the stream; it was skipped")
        elif question := question_in_chunk(item):
            self._warn_of_confirmation_role(role)
            self._ask(question)
        elif role is None and type is None and "content" not in item and ("ack" in item or "auth" in item):
            pass  # acknowledgements of the websocket
        elif role is None and type is None and item.get("error"):
            self._fail(item["error"], item)
        elif role == "server" or (role is None and type in ("status", "error")):
            self._read_server_item(role, type, item)
        else:
            self._messages.add(item, role, type)
        return self._take_events()

    def finish(self) -> list[Event]:
        """Close what is open, as incomplete."""
        self._begin_item()
        if not self._is_over:
            is_cut = self.is_cut or 0 <= self._unreadable_index == self.index - 1  # the stream ended within a line
            self.complete = not self._messages.has_open_groups and not is_cut
            self._messages.close_all("incomplete", "incomplete-at-eof", "the stream ended within it")
        return self._take_events()

    def sentinel(self, data: bytes) -> list[Event]:
        """Close what is open, as completed."""
        self._begin_item()
        if data.strip() == b"[DONE]" and not self._is_over:
            self._messages.close_all("completed", "missing-end", "the stream was declared done")
            self._end()
        return self._take_events()

    def _begin_item(self, type: str | None = None) -> None:
        self._events.clear()
        self._type = type

    def _take_events(self) -> list[Event]:
        events = self._events.copy()
        self._events.clear()
        return events

    def _warn(self, code: str, fault: str) -> None:
        self._events.append(self.warn(code, fault, self._type))

    # -- what the server reports

    def _read_server_item(self, role: str | None, type: str | None, item: Mapping[str, Any]) -> None:
        if role is None:
            self._warn("no-role", "it has no role; it was read as the server's")
        match type, item.get("content"):
            case "error", content:
                self._fail(content, item)
            case "status", "complete":
                self._messages.close_all("completed", "missing-end", "the server reported that the run is complete")
                self._events.append(RunDone(Run(status="completed", raw=dict(item))))
                self._end()
            case _:
                self._events.append(RawEvent(type or "server", dict(item)))

    def _fail(self, fault: Any, item: Mapping[str, Any]) -> None:
        self._messages.close_all("failed")
        error: dict[str, Any] = dict(fault) if is_object(fault) else {}
        if not isinstance(error.get("message"), str):
            error["message"] = fault if isinstance(fault, str) else "" if fault is None else any_as_text(fault)
        self._events.append(RunDone(Run(status="failed", error=error, raw=dict(item))))
        self._has_failed = True
        self._end()

    def _end(self) -> None:
        self._is_over = self.exhausted = self.complete = True

    # -- questions

    def _warn_of_confirmation_role(self, role: str | None) -> None:
        if role is None:
            self._warn("no-role", "it has no role; it was read as 'computer'")
        elif role != "computer":
            self._warn("unknown-type", f"a confirmation comes from the computer; this one, from {role!r}, counts too")

    def _ask_without_chunk(self, question: Question) -> list[Event]:
        """The events of a question in an item that is not a chunk."""
        self._begin_item()
        self._ask(question)
        return self._take_events()

    def _ask(self, question: Question) -> None:
        """Emit the confirmation. One that leaves a doubt is malformed, so that it cannot be approved."""
        self._messages.close_before_question()
        self._confirmation_count += 1
        id = f"confirmation-{self._confirmation_count}"
        subject, fault = read_subject(question.content, f"{id}.subject")
        fault = question.doubt or fault
        if fault is not None:
            self._warn("malformed-confirmation", f"{fault}; it cannot be approved")
        latest = self._messages.latest_actions.get(subject.type)
        if fault is None and latest is not None and is_same_action(latest, subject):
            subject = latest
        else:
            subject.id = self._messages.ids.unused(subject.id)
        self._events.append(ConfirmationCreated(Confirmation(id, subject, malformed=fault is not None)))


class WebsocketDecoder(Decoder):
    """The frames of Open Interpreter's websocket. The `id` of a frame there is that of a delivery, not of a message."""

    has_message_ids = False
