"""Messages and events as Open Interpreter's chunks, and as its static messages.

Every message is start, content, end; a chunk that was given away is never changed. Ids are sent only where messages
are open side by side, as Open Interpreter itself sends none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...answers import Confirmation
from ...events import (
    ActiveLine,
    ConfirmationCreated,
    Created,
    Delta,
    Done,
    Event,
    RawEvent,
    Run,
    RunDone,
    StreamEnd,
    StreamException,
)
from ...messages import Message
from .. import base
from ..values import is_object
from .chunks import FIELDS, KEYS, TRANSIENT, is_confirmation

__all__ = ["Encoder", "static_form", "with_format"]

_NOT_STORED = (*TRANSIENT, "status", "error")


class _Sent:
    """A message that was started: the keys that its chunks share, and what its start told besides."""

    def __init__(self, header: dict[str, Any], extra: dict[str, Any]) -> None:
        self.header = header
        self.extra = extra
        self.filled = False

    def content(self, value: str, replace: bool) -> dict[str, Any]:
        flag = {"replace": True} if replace else {}
        return {**with_format(self.header), "content": value, **flag}


class Encoder(base.Encoder):
    """Beyond Open Interpreter's own keys, a start or an end has `name`, `call_id`, `created_at`, `provider_executed`,
    `status` and the message's metadata where they are set; tool calls, their outputs, and reasoning with a format keep
    their types' names. Readers keep or pass over what they do not know.

    | what cannot be said | what becomes of it |
    |---|---|
    | annotations, usage, warnings, run steps, a run's model, a delta's metadata | left out |
    | how a run ended, besides completed and failed | expired: `error`; else nothing, at the end `complete` |
    | a message's group, index, run and step; choices but the first | left out |
    | a console without output, after another message of the computer | the reader does not store it |
    | a replacement by nothing; a format or a recipient that comes with a message's end | left out |
    | a confirmation's id and outcome | counted anew; what runs was approved |
    | a confirmation, a review or a command within a message | it ends that message |
    | a stored message of type review, command, confirmation, status or error | left out |
    | two pieces of one base64 image that both begin as an image does | two images |
    """

    name = "open_interpreter"
    choices = False
    fields = True
    done = b"[DONE]"

    def __init__(self) -> None:
        self._open: dict[str, _Sent] = {}
        self._running: str | None = None  # a console group without a message
        self._last_role: str | None = None
        self._ended = False

    def feed(self, event: Event) -> Iterator[dict[str, Any]]:
        match event:
            case Created(message=message) if message.type not in _NOT_STORED and not is_confirmation(message.type):
                yield from self._created(message)
            case Delta(message_id=id, value=value, replace=replace) if value and id in self._open:
                self._open[id].filled = True
                yield self._open[id].content(value, replace)
            case Done(message=message) if message.id in self._open:
                yield from self._done(message)
            case ActiveLine(message_id=id, line=line):
                yield from self._line(id, line)
            case ConfirmationCreated(confirmation=confirmation):
                yield from self._stop_running()
                yield _confirmation(confirmation)
            case RawEvent(name=name) if name in TRANSIENT:
                yield from self._stop_running()
                data: Any = event.data
                if is_object(data):
                    yield {**data}
            case RunDone(run=run):
                yield from self._stop_running()
                yield from self._run_done(run)
            case StreamException(message=text):
                yield from self._end("error", text)
            case StreamEnd():
                yield from self._end("status", "complete")
            case _:
                pass

    def _created(self, message: Message) -> Iterator[dict[str, Any]]:
        self._last_role = message.role
        if self._running is not None and self._running == message.id:
            running = self._open[message.id]
            self._open[message.id] = _Sent({**running.header, **static_form(message)}, {})
            self._running = None
            return
        yield from self._stop_running()
        sent = _Sent({**static_form(message), **self._id(message.id)}, _extra(message))
        self._open[message.id] = sent
        yield {**sent.header, **sent.extra, "start": True}

    def _done(self, message: Message) -> Iterator[dict[str, Any]]:
        sent = self._open.pop(message.id)
        if message.type == "console" and not sent.filled:
            yield {**sent.header, "format": "active_line", "content": None}
        extra = {key: value for key, value in _extra(message).items() if sent.extra.get(key) != value}
        if message.status not in ("completed", "in_progress"):
            extra["status"] = message.status
        yield {**sent.header, **extra, "end": True}

    def _line(self, id: str, line: int | None) -> Iterator[dict[str, Any]]:
        if id in self._open:
            sent = self._open[id]
            if line is None and id == self._running:
                yield from self._stop_running()  # null would ask the reader for a message
            elif line is not None or sent.filled:  # of an empty console its end says it
                yield {**sent.header, "format": "active_line", "content": line}
            return
        yield from self._stop_running()
        header = {"role": "computer", "type": "console", **self._id(id)}
        yield {**header, "start": True}
        if line is not None:
            self._running = id
            self._open[id] = _Sent(header, {})
            yield {**header, "format": "active_line", "content": line}
            return
        if self._last_role == "computer":
            yield {**header, "format": "active_line", "content": None}
        yield {**header, "end": True}

    def _stop_running(self) -> Iterator[dict[str, Any]]:
        if self._running is not None:
            sent = self._open.pop(self._running)
            self._running = None
            yield {**sent.header, "end": True}

    def _run_done(self, run: Run) -> Iterator[dict[str, Any]]:
        match run.status:
            case "failed" | "expired":
                yield from self._end("error", str((run.error or {}).get("message") or run.status))
            case "completed" | "requires_action" | "in_progress":
                yield from self._end("status", "complete")
            case _:
                pass  # the stream's end tells whether it failed

    def _end(self, type: str, content: str) -> Iterator[dict[str, Any]]:
        if not self._ended:
            self._ended = True
            yield {"role": "server", "type": type, "content": content}

    def _id(self, id: str) -> dict[str, Any]:
        return {"id": id} if self._open else {}


def static_form(message: Message) -> dict[str, Any]:
    """Open Interpreter's keys of a message, without its content. A console's pieces have its format, its flags have
    not."""
    type, format = message.type, message.format
    if type == "reasoning" and format is None:
        type, format = "message", "reasoning"
    header: dict[str, Any] = {"role": message.role, "type": type}
    if format and not (type == "console" and format == "output"):
        header["format"] = format
    if message.recipient:
        header["recipient"] = message.recipient
    return header


def with_format(header: dict[str, Any]) -> dict[str, Any]:
    return {**header, "format": "output"} if header["type"] == "console" and "format" not in header else header


def _extra(message: Message) -> dict[str, Any]:
    """What a message has beyond Open Interpreter's keys, as far as chunks carry it; its status apart."""
    extra = {key: value for key, value in message.metadata.items() if key not in KEYS and key not in FIELDS}
    for key in FIELDS:
        if key != "status" and (value := getattr(message, key, None)):
            extra[key] = value
    return extra


def _confirmation(confirmation: Confirmation) -> dict[str, Any]:
    subject = confirmation.subject
    content: Any = {"type": "code", "format": subject.format, "content": subject.content}
    if confirmation.malformed:
        content = subject.content  # no object, so that nobody takes it for something to approve
    elif subject.type == "tool_call":
        known = {key: value for key in ("name", "call_id") if (value := getattr(subject, key))}
        content = {"type": "tool_call", **known, "content": subject.content}
    return {"role": "computer", "type": "confirmation", "format": "execution", "content": content}
