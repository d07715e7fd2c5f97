"""Decodes Open Interpreter's chunks (0.2 to 0.4): flat messages, cut in pieces between a `start` and an `end`.

A chunk has a message's own keys (role, type, format, recipient, content) and the flags start, end and replace. `questions`
decides which chunks are questions to the user, `assembly` makes messages of the others.

Terminal rule: the source ends with nothing open. `{"role": "server", "type": "status", "content": "complete"}`,
`{"role": "server", "type": "error", …}` and an SSE `[DONE]` end the stream before that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec

from ...answers import Confirmation
from ...events import ConfirmationCreated, Delta, Event, RawEvent, Run, RunDone, StreamWarning
from .. import base
from ..values import is_object, text_or_none
from .assembly import MessageAssembler
from .confirmations import is_same_action, read_subject
from .questions import ReceivedQuestion, is_question_line, question_in_chunk, question_in_item, question_in_text
from .wire import any_as_text, is_chunk

__all__ = ["Decoder", "WebsocketDecoder"]


class _Piece(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A content chunk as it mostly comes."""

    role: str
    type: str
    content: str
    format: str | None = None
    id: str | None = None


class Decoder(base.Decoder):
    """Chunks, however malformed, as events.

    A `confirmation` becomes a `Confirmation`; its subject is the code message before it, if that is the code that would run.
    An `active_line` becomes an `ActiveLine`, perhaps of a console message that never comes. `review`, `command` and
    what else the server sends become `RawEvent`s.
    """

    name = "open_interpreter"
    pull_approves = True
    plain_item: ClassVar[Any] = _Piece
    has_message_ids = True  # the `id` of a chunk is that of its message
    index: int

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._events: list[Event] = []  # of the current item
        self._type: str | None = None  # of the current item
        self._messages = MessageAssembler(
            self.new_id, self._events.append, self._warn, has_message_ids=self.has_message_ids
        )
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

    def plain(self, item: _Piece) -> Delta | None:
        """Return the event of a piece of text for a message that is open."""
        group = self._messages.plain[item.id if self.has_message_ids else None]
        content = item.content
        if not content or item.type != group.type or item.role != group.role or item.format != group.format:
            return None
        if group.pieces is not None:
            group.pieces.append(content)
        return group.delta_class(group.id, content)

    # -- any other item

    def feed_frame(self, id: bytes, name: bytes, data: bytes) -> list[Event]:
        """Return the events of one frame. One that is not JSON may still be a question."""
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
        """Return the events of one item."""
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

    def _ask_without_chunk(self, question: ReceivedQuestion) -> list[Event]:
        """Return the events of a question in an item that is not a chunk."""
        self._begin_item()
        self._ask(question)
        return self._take_events()

    def _ask(self, question: ReceivedQuestion) -> None:
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
