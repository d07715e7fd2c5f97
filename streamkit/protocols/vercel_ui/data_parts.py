"""The data parts that our encoder writes, read again: what the protocol has no chunk for. See the table in `encoder`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ... import events as e
from ... import messages as m
from ...errors import UsageError
from ...messages import Annotation, Message
from ...messages.typed_json import converter
from ..ui_parts import message_fields
from ..values import WireObject, as_count, as_object, as_text, text_or_none
from .calls import IncomingToolParts

__all__ = ["DataParts"]

_Events = Iterator[e.Event] | None
_as_annotation = converter(Annotation)


class DataParts:
    """Reads the data parts of one stream.

    Args:
        calls: the tool parts of the stream.
    """

    def __init__(self, calls: IncomingToolParts) -> None:
        self._calls = calls
        self._open_consoles: set[str] = set()

    def read(self, name: str, item: WireObject) -> _Events:
        """Return the events of a data part, None if it is none of ours."""
        id, data = as_text(item.get("id")), as_object(item.get("data"))
        if not (id and data):
            return None
        match name:
            case "code":
                return self._code(id, data)
            case "console":
                return self._console(id, data)
            case "console-delta":
                return self._console_delta(id, data)
            case "active-line":
                return self._active_line(id, data)
            case "confirmation":
                return self._confirmation(id, data)
            case "annotation":
                return self._annotation(id, data)
            case "replacement":
                return self._replacement(id, data)
            case "message":
                return self._message(id, data)
            case _:
                return None

    def _code(self, id: str, data: WireObject) -> _Events:
        return iter(()) if self._calls.has(as_text(data.get("callId"))) else None

    def _console(self, id: str, data: WireObject) -> _Events:
        output, status = data.get("output"), as_text(data.get("status"))
        if not isinstance(output, str):
            return None
        return self._console_events(id, data, output, status)

    def _console_events(self, id: str, data: WireObject, output: str, status: Any) -> Iterator[e.Event]:
        call_id = text_or_none(data.get("callId"))
        fields = message_fields(as_object(data.get("fields")), call_id)
        for key in ("metadata", "status"):
            fields.pop(key, None)
        if id not in self._open_consoles:
            self._open_consoles.add(id)
            self._calls.consoles.update(filter(None, (call_id, fields.get("call_id"))))
            yield e.ConsoleCreated(m.ConsoleMessage(id, **fields))
        if status in ("completed", "incomplete", "cancelled", "failed"):
            yield e.ConsoleDone(m.ConsoleMessage(id, content=output, status=status))

    def _console_delta(self, id: str, data: WireObject) -> _Events:
        value, stream = data.get("value"), text_or_none(data.get("stream"))
        if not isinstance(value, str) or id not in self._open_consoles:
            return None
        return iter([e.ConsoleDelta(id, value, False, {"stream": stream} if stream else None)])

    def _active_line(self, id: str, data: WireObject) -> _Events:
        message_id, line = as_text(data.get("messageId")), data.get("line")
        if not message_id or (line is not None and as_count(line) is None):
            return None
        return iter([e.ActiveLine(message_id, line)])

    def _confirmation(self, id: str, data: WireObject) -> _Events:
        status = as_text(data.get("status"))
        if status == "pending":
            return self._calls.ask({"approvalId": id, "toolCallId": data.get("toolCallId")})
        if status not in ("approved", "declined"):
            return None
        reason, edited = text_or_none(data.get("reason")), text_or_none(data.get("edited"))
        return self._calls.decide(id, approved=status == "approved", reason=reason, edited=edited)

    def _annotation(self, id: str, data: WireObject) -> _Events:
        try:
            annotation = _as_annotation(data.get("annotation"))
        except msgspec.ValidationError:
            return None
        return iter([e.AnnotationAdded(id, annotation)])

    def _replacement(self, id: str, data: WireObject) -> _Events:
        content = data.get("content")
        return iter([e.TextDelta(id, content, replace=True)]) if isinstance(content, str) else None

    def _message(self, id: str, data: WireObject) -> _Events:
        try:
            return iter([e.MessageDone(Message.from_dict(data))])
        except (UsageError, TypeError, AttributeError):
            return None
