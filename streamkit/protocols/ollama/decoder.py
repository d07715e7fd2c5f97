"""Ollama's lines, of `/api/chat` and `/api/generate`, streamed or as one object.

Terminal rule: the answer is complete with a line that has `done: true`, or with an error. A stream that ends without either was cut
off: the server ends it so when the model breaks down.

There are no ids and no indexes. A text ends where reasoning or a call comes, and reasoning where a text or a call comes, so that a
model may think again. A call arrives in one piece, at any line, the last one included, and is a call of its own whatever its index:
some servers give all calls the index 0. Servers before 0.12 give calls no id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from ...events import Delta, Event, MessageEnded, NewMessage, RawEvent, Run, RunCreated, RunDone
from ...messages import ImageMessage, Message, ReasoningMessage, Status, TextMessage, ToolCallMessage
from .. import base
from ..dates import time_of
from ..message_ids import MessageIds
from ..values import (
    WireObject,
    as_list,
    as_object,
    as_text,
    error_object,
    is_object,
    text_or_json,
    text_or_none,
    usage_of,
    without,
    without_keys,
)
from .shape import recognises
from .wire import COUNTS, KEY, LINE_KEYS, PlainLine, image_format

__all__ = ["Decoder"]

_REASONS = {"load": "stop", "unload": "stop", "": "stop"}  # what a model was loaded for, or an old server does not say


class Decoder(base.Decoder):
    """Decodes the lines of a chat, or of a generated text."""

    name = "ollama"
    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset({b"error"})
    plain_item = PlainLine

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._ids = MessageIds(self.new_id)
        self._open: Message | None = None  # the text or the reasoning that grows
        self._has_begun = self._has_calls = False

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether the item says whether it is the last one, and has a message or a text."""
        return recognises(item)

    def plain(self, item: Any) -> Delta | None:
        """Return the delta of a line that is one piece of the open text or reasoning."""
        text, thinking = item.message.content, item.message.thinking
        kind = TextMessage if text else ReasoningMessage
        if item.done or self.complete or bool(text) is bool(thinking) or self._open.__class__ is not kind:
            return None
        assert self._open is not None
        return kind.delta_event(self._open.id, text or thinking or "")

    def feed(self, item: WireObject) -> Iterator[Event]:
        """Yield the events of one line. What stands in the last one comes before the end."""
        if self.complete or not (recognises(item) or item.get("error")):
            yield RawEvent(as_text(item.get("status")) or self.name, dict(item))
            return
        if not self._has_begun:
            self._has_begun = True
            model, created_at = text_or_none(item.get("model")), time_of(item.get("created_at"))
            yield RunCreated(run=Run(model=model, created_at=created_at))
        yield from self._read_message(item)
        if error := item.get("error"):
            self.complete = True
            yield from self._end_open("failed")
            yield RunDone(run=Run(status="failed", error={**without(item, LINE_KEYS), **error_object(error)}))
        elif item.get("done") is True:
            yield from self._read_end(item)

    # -- what a line says

    def _read_message(self, item: WireObject) -> Iterator[Event]:
        message = item.get("message")
        fields = message if is_object(message) else {**item, "content": item.get("response")}
        metadata = {"logprobs": logprobs} if (logprobs := as_list(item.get("logprobs"))) else None
        thinking, text = fields.get("thinking"), fields.get("content")
        yield from self._append(ReasoningMessage, thinking, None if text else metadata)
        yield from self._append(TextMessage, text, None if thinking and not text else metadata)
        for image in as_list(fields.get("images")):
            if data := as_text(image):
                yield from self._end_open()
                yield ImageMessage.done_event(ImageMessage(self.new_id(), format=image_format(data), content=data))
        calls = fields.get("tool_calls")
        if calls and not isinstance(calls, (list, tuple)):
            yield self.warn("bad-calls", "its `tool_calls` is not a list; it was skipped")
        for call in as_list(calls):
            yield from self._read_call(as_object(call))

    def _append(self, kind: type[Message], text: Any, metadata: WireObject | None) -> Iterator[Event]:
        """Extend the open message of this kind; begin one where another kind, or nothing, is open."""
        if text is not None and not isinstance(text, str):
            yield self.warn("bad-text", f"a piece of its {kind.default_type} is not text; it was skipped")
        elif text or (metadata and kind is TextMessage):
            if self._open.__class__ is not kind:
                yield from self._end_open()
                self._open = kind(self.new_id(), metadata={KEY: {}} if kind is ReasoningMessage else None)
                yield NewMessage(self._open.copy())
            assert self._open is not None
            yield kind.delta_event(self._open.id, text or "", metadata=metadata)

    def _read_call(self, call: WireObject) -> Iterator[Event]:
        """A call, which is complete. Without an id of its own it has none but the message's."""
        function = as_object(call.get("function"))
        if not (name := as_text(function.get("name"))):
            yield self.warn("bad-call", "one of its `tool_calls` has no function with a name; it was skipped")
            return
        yield from self._end_open()
        self._has_calls = True
        arguments = function.get("arguments")
        content = "{}" if arguments is None else text_or_json(arguments)
        id = self._ids.unused(as_text(call.get("id")))
        call_id, metadata = id if call.get("id") else None, {KEY: _own(call, function)}
        done = ToolCallMessage(id, name=name, call_id=call_id, content=content, metadata=metadata)
        yield NewMessage(done.header())  # so that it is none of an earlier answer, where a server gives an id again
        yield ToolCallMessage.done_event(done)

    def _read_end(self, item: WireObject) -> Iterator[Event]:
        self.complete = True
        stated = as_text(item.get("done_reason"))
        reason = _REASONS.get(stated, stated)
        status: Status = "incomplete" if reason == "length" else "completed"
        yield from self._end_open(status)
        if any(key in item for key in COUNTS):
            yield usage_of({key: item.get(key) for key in COUNTS}, *COUNTS)
        metadata = without(item, {*LINE_KEYS, *COUNTS})
        if stated and stated != reason:
            metadata["done_reason"] = stated
        reason = "tool_calls" if self._has_calls and reason == "stop" else reason
        yield RunDone(run=Run(status=status, finish_reason=reason, metadata=metadata))

    def _end_open(self, status: Status = "completed") -> Iterator[Event]:
        if self._open is not None:
            yield MessageEnded(self._open.id, status)
            self._open = None


def _own(call: WireObject, function: WireObject) -> dict[str, Any]:
    """Return what a call has beside what every protocol has: it goes back."""
    own = without_keys(call, "function")
    if more := without_keys(function, "name", "arguments"):
        own["function"] = more
    return own
