"""Cohere's events of a chat, streamed or as one answer.

Terminal rule: the answer is complete with `message-end`, whatever follows. Failures come in it, too: there is no event for them. A
stream that ends before, with `[DONE]` or without, was cut off.

Indexes count from 0 for each kind: blocks of content, calls, citations. A block of text stays open until the end, because citations
of it may come after it. A plan, which has no beginning and no end, ends where anything else comes; it is reasoning, as are blocks of
thinking. A citation of either is a raw event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from ...events import AnnotationAdded, Delta, Event, MessageEnded, NewMessage, RawEvent, Run, RunCreated, RunDone, Usage
from ...messages import Message, ReasoningMessage, Status, TextMessage, ToolCallMessage
from .. import base
from ..message_ids import MessageIds
from ..values import WireObject, as_index, as_object, as_text, error_object, text_or_none, usage_of, without_keys
from .shape import is_whole_answer, recognises
from .wire import FAILED, KEY, REASONS, PlainDelta, as_stream, citation_of, counts_of, first_object

__all__ = ["Decoder"]

_PLAN = ("plan", 0)
_TEXT_KEYS = {"text": TextMessage, "thinking": ReasoningMessage}
_DELTA_KEYS = ("finish_reason", "usage", "error", "error_type")


class Decoder(base.Decoder):
    """Decodes the events of a chat."""

    name = "cohere"
    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset({b"error"})
    plain_item = PlainDelta
    transient_errors = frozenset(("INVALID_TOOL_GENERATION", *FAILED))

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._ids = MessageIds(self.new_id)
        self._open: dict[tuple[str, int], Message] = {}  # by kind and index
        self._newest_text = ""
        self._answer_id: str | None = None
        self._count = 0  # of the messages so far
        self._has_begun = False

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether it is an event that says something, or an answer without a stream."""
        return recognises(item)

    def plain(self, item: Any) -> Delta | None:
        """Return the delta of a piece of what is open."""
        message, other = item.delta.message, None
        if (content := message.content) is not None and item.type == "content-delta":
            open, value, other = self._open["content", item.index], content.text, content.thinking
            if open.__class__ is ReasoningMessage:
                value, other = other, value
        elif message.tool_calls is not None and item.type == "tool-call-delta":
            open, value = self._open["call", item.index], message.tool_calls.function.arguments
        elif item.type == "tool-plan-delta":
            open, value = self._open[_PLAN], message.tool_plan
        else:
            return None
        if not value or other or self.complete or (_PLAN in self._open and item.type != "tool-plan-delta"):
            return None
        return open.delta_event(open.id, value)

    def feed(self, item: WireObject) -> Iterator[Event]:
        """Yield the events of one item."""
        if is_whole_answer(item):
            for event in as_stream(item):
                yield from self.feed(event)
            return
        kind = as_text(item.get("type"))
        read = self._readers.get(kind)
        if (error := item.get("error")) and not self.complete:
            yield from self._end({"finish_reason": "ERROR", "error": error})
        elif read is None or self.complete:
            if kind != "debug":
                yield RawEvent(kind or self.name, dict(item))
        else:
            if kind != "tool-plan-delta":
                yield from self._close(_PLAN)
            yield from self._begin(item)
            yield from read(self, item)

    def sentinel(self, data: bytes) -> Iterable[Event]:
        """`[DONE]` completes nothing: `message-end` comes before it."""
        return ()

    # -- the items

    def _begin(self, item: WireObject) -> Iterator[Event]:
        if not self._has_begun:
            self._has_begun = True
            self._answer_id = text_or_none(item.get("id"))
            yield RunCreated(run=Run(id=self._answer_id or ""))

    def _read_nothing(self, item: WireObject) -> Iterable[Event]:
        return ()

    def _read_content(self, item: WireObject) -> Iterator[Event]:
        """Begin or extend a block. Which kind it is, its type says, and the key of a piece."""
        content = first_object(_message(item).get("content"))
        wanted = as_text(content.get("type")) or next((key for key in _TEXT_KEYS if as_text(content.get(key))), "")
        key = "content", as_index(item.get("index"), self._ignore) or 0
        if wanted and wanted not in _TEXT_KEYS:
            yield RawEvent(f"content {wanted}", dict(item))
            return
        if key not in self._open and wanted:
            is_text = wanted == "text"
            yield self._open_message(key, TextMessage if is_text else ReasoningMessage, {} if is_text else {KEY: {}})
            self._newest_text = self._open[key].id if is_text else self._newest_text
        open = self._open.get(key)
        text = content.get("text" if isinstance(open, TextMessage) else "thinking")
        yield from self._append(open, text, item.get("logprobs"))

    def _read_content_end(self, item: WireObject) -> Iterator[Event]:
        key = "content", as_index(item.get("index"), self._ignore) or 0
        if isinstance(self._open.get(key), ReasoningMessage):
            yield from self._close(key)

    def _read_plan(self, item: WireObject) -> Iterator[Event]:
        if _PLAN not in self._open and _message(item).get("tool_plan"):
            yield self._open_message(_PLAN, ReasoningMessage, {KEY: {"tool_plan": True}})
        yield from self._append(self._open.get(_PLAN), _message(item).get("tool_plan"))

    def _read_call(self, item: WireObject) -> Iterator[Event]:
        """Begin a call, or extend it."""
        call = first_object(_message(item).get("tool_calls"))
        function = as_object(call.get("function"))
        key = "call", as_index(item.get("index"), self._ignore) or 0
        if name := as_text(function.get("name")):
            yield from self._close(key)
            call_id = text_or_none(call.get("id"))
            yield self._open_message(key, ToolCallMessage, {}, id=call_id or "", call_id=call_id, name=name)
        if key not in self._open:
            yield self.warn("unknown-call", "it extends a call that has not begun; it was skipped", item.get("type"))
        else:
            yield from self._append(self._open[key], function.get("arguments"))

    def _read_call_end(self, item: WireObject) -> Iterator[Event]:
        yield from self._close(("call", as_index(item.get("index"), self._ignore) or 0))

    def _read_citation(self, item: WireObject) -> Iterator[Event]:
        """A citation of a text. Older streams do not say of which."""
        wire = first_object(_message(item).get("citations"))
        block = self._open.get(("content", as_index(wire.get("content_index"), self._ignore) or 0))
        id = block.id if isinstance(block, TextMessage) else self._newest_text
        if not id or wire.get("type", "TEXT_CONTENT") != "TEXT_CONTENT":
            yield RawEvent("citation-start", dict(item))
        else:
            yield AnnotationAdded(id, citation_of(wire))

    def _read_end(self, item: WireObject) -> Iterator[Event]:
        return self._end(as_object(item.get("delta")))

    _readers: ClassVar[dict[str, Callable[[Any, WireObject], Iterable[Event]]]] = {
        "message-start": _read_nothing,
        "content-start": _read_content,
        "content-delta": _read_content,
        "content-end": _read_content_end,
        "tool-plan-delta": _read_plan,
        "tool-call-start": _read_call,
        "tool-call-delta": _read_call,
        "tool-call-end": _read_call_end,
        "citation-start": _read_citation,
        "citation-end": _read_nothing,
        "message-end": _read_end,
    }

    # -- messages and the run

    def _open_message(
        self, key: tuple[str, int], kind: type[Message], metadata: Any, id: str = "", **fields: Any
    ) -> Event:
        id = self._ids.unused(id)
        fields |= {"group": self._answer_id, "index": self._count, "metadata": metadata}
        self._open[key] = kind(id, **fields)
        self._count += 1
        return NewMessage(kind(id, **fields))

    def _append(self, message: Message | None, text: Any, logprobs: Any = None) -> Iterator[Event]:
        if text is not None and not isinstance(text, str):
            yield self.warn("bad-text", "a piece of it is not text; it was skipped")
        elif message is not None and (text or logprobs):
            metadata = {"logprobs": logprobs} if logprobs else None
            yield message.delta_event(message.id, text or "", metadata=metadata)

    def _close(self, key: tuple[str, int], status: Status = "completed") -> Iterator[Event]:
        if (message := self._open.pop(key, None)) is not None:
            yield MessageEnded(message.id, status)

    def _end(self, delta: WireObject) -> Iterator[Event]:
        """End the run, as its finish_reason means."""
        self.complete = True
        stated = as_text(delta.get("finish_reason"))
        reason = REASONS.get(stated, stated.lower() if stated in FAILED else stated)
        status: Status = "failed" if stated in FAILED else "incomplete" if reason == "length" else "completed"
        for key in [*self._open]:
            yield from self._close(key, "completed" if key[0] == "plan" else status)
        if (usage := _usage_of(counts_of(delta.get("usage")))) is not None:
            yield usage
        metadata = without_keys(delta, *_DELTA_KEYS)
        if REASONS.get(stated) == "stop" and stated != "COMPLETE":
            metadata["finish_reason"] = stated
        error = None
        if status == "failed":
            default = f"the provider ended its answer with the finish_reason {stated!r}"
            error = {"type": as_text(delta.get("error_type")) or stated, **error_object(delta.get("error"), default)}
        yield RunDone(run=Run(status=status, finish_reason=reason or None, error=error, metadata=metadata))

    @staticmethod
    def _ignore(code: str, fault: str) -> None:
        """An odd index reads as 0."""


def _message(item: WireObject) -> WireObject:
    return as_object(as_object(item.get("delta")).get("message"))


def _usage_of(counts: WireObject) -> Usage | None:
    """Return what the model processed; what is charged, and what came from the cache, are details."""
    tokens = as_object(counts.get("tokens"))
    return usage_of({**tokens, **without_keys(counts, "tokens")}) if counts else None
