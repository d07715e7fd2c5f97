"""The activities and custom events that our encoder writes, read again. See the table in `encoder`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ... import events as e
from ... import messages as m
from ...errors import UsageError
from ...messages import Annotation, Message
from ...messages.typed_json import converter
from ..ui_files import file_fields
from ..ui_parts import message_fields, restored_event
from ..values import WireObject, as_count, as_object, as_objects, as_seconds, as_text, text_or_none
from .calls_in import IncomingCalls
from .wire import CONSOLE, FILE, OWN, extra_of, others_of

__all__ = ["ActivityReader"]

_Events = Iterator[e.Event] | None
_as_annotation = converter(Annotation)


class ActivityReader:
    """Reads the activities and custom events of one stream.

    Args:
        calls: the calls of the stream.
    """

    def __init__(self, calls: IncomingCalls) -> None:
        self._calls = calls
        self._consoles: dict[str, m.ConsoleMessage | None] = {}  # open ones; None before their first output

    def read(self, item: WireObject) -> _Events:
        """Return the events of an item, None if it is none of ours."""
        kind, id = item.get("type"), as_text(item.get("messageId"))
        activity = item.get("activityType")
        if kind == "CUSTOM":
            return self._read_custom(as_text(item.get("name")), item.get("value"))
        if kind == "ACTIVITY_SNAPSHOT" and activity == CONSOLE and id:
            return self._begin_console(id, item)
        if kind == "ACTIVITY_SNAPSHOT" and activity == FILE and id:
            return self._file(id, item)
        if kind == "ACTIVITY_DELTA" and activity == CONSOLE and id in self._consoles:
            return self._change_console(id, item)
        return None

    # -- consoles and files

    def _begin_console(self, id: str, item: WireObject) -> _Events:
        call_id = text_or_none(as_object(item.get("content")).get("callId"))
        self._consoles[id] = _console_of(id, item, call_id)
        return iter(())

    def _change_console(self, id: str, item: WireObject) -> Iterator[e.Event]:
        for change in as_objects(item.get("patch")):
            path, value = change.get("path"), change.get("value")
            console = self._consoles.get(id)
            if path == "/activeLine" and (value is None or as_count(value) is not None):
                yield e.ActiveLine(id, value)
            elif path == "/callId" and console is not None:
                self._consoles[id] = _console_of(id, item, text_or_none(value))
            elif path == "/output/-":
                yield from self._create(id)
                text, stream = as_text(as_object(value).get("text")), text_or_none(as_object(value).get("stream"))
                if text:
                    yield e.ConsoleDelta(id, text, False, {"stream": stream} if stream else None)
            elif path == "/status":
                yield from self._create(id)
                status: Any = value if value in ("incomplete", "cancelled", "failed") else "completed"
                yield e.ConsoleDone(m.ConsoleMessage(id, status=status))

    def _create(self, id: str) -> Iterator[e.Event]:
        """Begin the console, if it has not begun."""
        console, self._consoles[id] = self._consoles.get(id), None
        if console is not None:
            yield e.ConsoleCreated(console)

    def _file(self, id: str, item: WireObject) -> _Events:
        content = as_object(item.get("content"))
        url = as_text(content.get("url"))
        if not url:
            return None
        message_class, format, data = file_fields(url, as_text(content.get("mimeType")))
        fields = message_fields(extra_of(item))
        for key in ("metadata", "status"):
            fields.pop(key, None)
        fields["format"] = format
        return iter([e.MessageDone(message_class(id, content=data, metadata=others_of(item), **fields))])

    # -- custom events

    def _read_custom(self, name: str, value: Any) -> _Events:
        data = as_object(value)
        match name.removeprefix(OWN) if name.startswith(OWN) else "":
            case "confirmation":
                return self._confirmation(data)
            case "confirmation_done":
                return self._confirmation_done(data)
            case "annotation":
                return self._annotation(data)
            case "replacement":
                return self._replacement(data)
            case "message":
                return self._message(data)
            case _:
                own = restored_event(name, value)
                return None if own is None else iter([own])

    def _confirmation(self, value: WireObject) -> _Events:
        id, call_id = as_text(value.get("id")), as_text(value.get("toolCallId"))
        return self._calls.ask(id, call_id, as_seconds(value.get("expires_at")))

    def _confirmation_done(self, value: WireObject) -> _Events:
        return self._calls.decide(as_text(value.get("id")), value)

    def _annotation(self, value: WireObject) -> _Events:
        try:
            annotation = _as_annotation(value.get("annotation"))
        except msgspec.ValidationError:
            return None
        return iter([e.AnnotationAdded(as_text(value.get("messageId")), annotation)])

    def _replacement(self, value: WireObject) -> _Events:
        id, content = as_text(value.get("messageId")), value.get("content")
        return self._replace(id, content) if id and isinstance(content, str) else None

    def _replace(self, id: str, content: str) -> Iterator[e.Event]:
        yield from self._create(id) if id in self._consoles else ()
        yield e.TextDelta(id, content, replace=True)

    def _message(self, value: WireObject) -> _Events:
        try:
            return iter([e.MessageDone(Message.from_dict(value))])
        except (UsageError, TypeError, AttributeError):
            return None


def _console_of(id: str, item: WireObject, call_id: str | None) -> m.ConsoleMessage:
    fields = message_fields(extra_of(item), call_id)
    for key in ("metadata", "status"):
        fields.pop(key, None)
    return m.ConsoleMessage(id, metadata=others_of(item), **fields)
