"""Encodes messages and events as Open Interpreter's chunks, and writes the static form of messages.

Every message is start, content, end, one after the other (`sequence`); a chunk is never changed after it was returned.
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
from .confirmations import confirmation_content
from .questions import is_confirmation_type
from .sequence import MessageSequencer
from .wire import CHUNK_KEYS, FIELD_KEYS, TRANSIENT_TYPES

__all__ = ["Encoder", "header_of", "with_console_format"]

_NOT_STORED = (*TRANSIENT_TYPES, "status", "error")


class _OpenMessage:
    """A message that was started: the keys that all its chunks have, and the further keys that its start had."""

    def __init__(self, header: dict[str, Any], further_keys: dict[str, Any]) -> None:
        self.header = header
        self.further_keys = further_keys
        self.has_text = False

    def content_chunk(self, value: str, replace: bool) -> dict[str, Any]:
        flag = {"replace": True} if replace else {}
        return {**with_console_format(self.header), "content": value, **flag}


# What a provider wants back in the next request, which a reader of chunks cannot send.
_RETURNED_KEYS = ("openai_responses", "openai_chat")


class Encoder(base.Encoder):
    """Events as chunks.

    Beyond Open Interpreter's own keys, a start or an end has `name`, `call_id`, `created_at`, `provider_executed`,
    `status` and the message's metadata where they are set; tool calls, their outputs, and reasoning with a format have
    types that Open Interpreter lacks. Its readers store or ignore what they do not understand.

    | what cannot be expressed | what becomes of it |
    |---|---|
    | what a provider wants back (`metadata["openai_responses"]`, `["openai_chat"]`) | left out |
    | annotations, usage, warnings, run steps, a run's model, a delta's metadata | left out |
    | how a run ended | failed and expired: `error`; others: nothing, or with `status` that it is complete |
    | a message's group, index, run and step; choices but the first | left out |
    | a console without output, after another message of the computer | the reader does not store it |
    | a replacement by nothing; a format or a recipient that comes with a message's end | left out |
    | a confirmation's id and outcome | the reader counts ids anew; code that runs counts as approved |
    | a confirmation, a review or a command within a message | it ends that message |
    | messages that grow side by side | one after the other; a text that goes on is a message more |
    | a call whose code is a message | left out; its output, if the code did not run, is console output |
    | a stored message of type review, command, confirmation, status or error | left out |
    | two pieces of one base64 image that both begin as an image does | two images |

    Args:
        status: end with `{"role": "server", "type": "status", "content": "complete"}`, as Open Interpreter's own server does.
            Readers of its other streams would append that to the last message.
        left_out: classes of messages that are left out.
    """

    name = "open_interpreter"
    choices = False
    fields = True
    done = b"[DONE]"

    def __init__(self, *, status: bool = False, left_out: tuple[type[Message], ...] = ()) -> None:
        self._status = status
        self._sequencer = MessageSequencer(left_out)
        self._open: dict[str, _OpenMessage] = {}  # by message id
        self._idle_console: str | None = None  # the id of an open console group that has lines but no message
        self._last_role: str | None = None
        self._has_ended = False

    def feed(self, event: Event) -> Iterator[dict[str, Any]]:
        """Yield the chunks of the stream's next event."""
        for one in self.in_order(event):
            yield from self.chunks(one)

    def in_order(self, event: Event) -> Iterator[Event]:
        """Return the events that follow from the stream's next one, so that at most one message is open."""
        return self._sequencer.feed(event)

    def chunks(self, event: Event) -> Iterator[dict[str, Any]]:
        """Yield the chunks of one of the events that `in_order` returned."""
        match event:
            case Created(message=message) if message.type not in _NOT_STORED and not is_confirmation_type(message.type):
                yield from self._created(message)
            case Delta(message_id=id, value=value, replace=replace) if value and id in self._open:
                self._open[id].has_text = True
                yield self._open[id].content_chunk(value, replace)
            case Done(message=message) if message.id in self._open:
                yield from self._done(message)
            case ActiveLine(message_id=id, line=line):
                yield from self._active_line(id, line)
            case ConfirmationCreated(confirmation=confirmation):
                yield from self._end_idle_console()
                yield _confirmation_chunk(confirmation)
            case RawEvent(name=name) if name in TRANSIENT_TYPES:
                yield from self._end_idle_console()
                data: Any = event.data
                if is_object(data):
                    yield {**data}
            case RunDone(run=run):
                yield from self._end_idle_console()
                yield from self._run_done(run)
            case StreamException(message=text):
                yield from self._end("error", text)
            case StreamEnd() if self._status:
                yield from self._end("status", "complete")
            case _:
                pass

    def _created(self, message: Message) -> Iterator[dict[str, Any]]:
        self._last_role = message.role
        if self._idle_console is not None and self._idle_console == message.id:
            started = self._open[message.id]
            self._open[message.id] = _OpenMessage({**started.header, **header_of(message)}, {})
            self._idle_console = None
            return
        yield from self._end_idle_console()
        sent = self._open[message.id] = _OpenMessage(header_of(message), _further_keys(message))
        yield {**sent.header, **sent.further_keys, "start": True}

    def _done(self, message: Message) -> Iterator[dict[str, Any]]:
        sent = self._open.pop(message.id)
        if message.type == "console" and not sent.has_text:
            yield {**sent.header, "format": "active_line", "content": None}
        changed = {k: value for k, value in _further_keys(message).items() if sent.further_keys.get(k) != value}
        if message.status not in ("completed", "in_progress"):
            changed["status"] = message.status
        yield {**sent.header, **changed, "end": True}

    def _active_line(self, id: str, line: int | None) -> Iterator[dict[str, Any]]:
        if id in self._open:
            sent = self._open[id]
            if line is None and id == self._idle_console:
                yield from self._end_idle_console()  # a chunk with null would make the reader create a message
            elif line is not None or sent.has_text:  # the end of an empty console has that chunk with null
                yield {**sent.header, "format": "active_line", "content": line}
            return
        yield from self._end_idle_console()
        header = {"role": "computer", "type": "console"}
        yield {**header, "start": True}
        if line is not None:
            self._idle_console = id
            self._open[id] = _OpenMessage(header, {})
            yield {**header, "format": "active_line", "content": line}
            return
        if self._last_role == "computer":
            yield {**header, "format": "active_line", "content": None}
        yield {**header, "end": True}

    def _end_idle_console(self) -> Iterator[dict[str, Any]]:
        if self._idle_console is not None:
            sent = self._open.pop(self._idle_console)
            self._idle_console = None
            yield {**sent.header, "end": True}

    def _run_done(self, run: Run) -> Iterator[dict[str, Any]]:
        match run.status:
            case "failed" | "expired":
                yield from self._end("error", str((run.error or {}).get("message") or run.status))
            case "completed" | "requires_action" | "in_progress" if self._status:
                yield from self._end("status", "complete")
            case _:
                pass  # the end of the stream shows whether it failed

    def _end(self, type: str, content: str) -> Iterator[dict[str, Any]]:
        if not self._has_ended:
            self._has_ended = True
            yield {"role": "server", "type": type, "content": content}


def header_of(message: Message) -> dict[str, Any]:
    """Open Interpreter's keys of a message but its content, as its start and its end have them.

    A console's have no format; its pieces and its static form do (`with_console_format`).
    """
    type, format = message.type, message.format
    if type == "reasoning" and format is None:
        type, format = "message", "reasoning"
    header: dict[str, Any] = {"role": message.role, "type": type}
    if format and not (type == "console" and format == "output"):
        header["format"] = format
    if message.recipient:
        header["recipient"] = message.recipient
    return header


def with_console_format(header: dict[str, Any]) -> dict[str, Any]:
    """Return the same keys; those of a console with the format of its output."""
    return {**header, "format": "output"} if header["type"] == "console" and "format" not in header else header


def _further_keys(message: Message) -> dict[str, Any]:
    """Return what a message has beyond Open Interpreter's keys, except its status."""
    left_out = (*CHUNK_KEYS, *FIELD_KEYS, *_RETURNED_KEYS)
    further = {k: value for k, value in message.metadata.items() if k not in left_out}
    for key in FIELD_KEYS:
        if key != "status" and (value := getattr(message, key, None)):
            further[key] = value
    return further


def _confirmation_chunk(confirmation: Confirmation) -> dict[str, Any]:
    content = confirmation_content(confirmation)
    return {"role": "computer", "type": "confirmation", "format": "execution", "content": content}
