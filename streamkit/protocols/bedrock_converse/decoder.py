"""Converse's events, each an object with the event's name: `{"contentBlockDelta": {"contentBlockIndex": 0, "delta": {…}}}`.

Terminal rule: `messageStop`, or an exception. The run ends with the source, because the usage follows. A source that ends before was
cut off, though Amazon's client ends then as if all were well.

Blocks are told apart by their index. A text or reasoning has no start, and no message before its first piece. A text stays open
until something else begins: a text that follows it goes on with it (Nova sends each piece as a block), unless one of them has citations,
which may come before their text, or in a block after it. A call whose arguments are a JSON object is done where its block stops, any
other with the answer, as the stopReason means.

The bodies of models that know plain text alone are read as such events (`plain_text`).

A run's `finish_reason` is the stopReason; its metadata has what `metadata` has besides the usage, and `additionalModelResponseFields`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ... import messages as m
from ...events import (
    AnnotationAdded,
    CallPassed,
    Delta,
    Event,
    MessageDone,
    MessageEnded,
    NewMessage,
    Run,
    RunCreated,
    RunDone,
)
from .. import base
from ..held_values import add_values
from ..message_ids import MessageIds
from ..output import Output
from ..values import (
    WireObject,
    as_count,
    as_index,
    as_object,
    as_objects,
    as_text,
    json_text,
    text_or_none,
    without_keys,
)
from .plain_text import STATUS_OF_REASON, as_converse
from .shape import EVENTS, recognises
from .wire import (
    KEY,
    SERVER_TOOL,
    STATUS_OF_STOP_REASON,
    TRANSIENT_ERRORS,
    PlainEvent,
    annotation_of,
    blob_text,
    error_in,
    usage_of,
)

__all__ = ["Decoder"]

_STATUS_OF: dict[str, m.Status] = {**STATUS_OF_STOP_REASON, **STATUS_OF_REASON}


class Decoder(base.Decoder):
    """A stream of Converse."""

    name = KEY
    plain_item = PlainEvent
    transient_errors = TRANSIENT_ERRORS
    searches = frozenset(("nova_grounding",))

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._output = Output("ConverseStreamOutput")
        self._ids = MessageIds(self.new_id)
        self._blocks: dict[int, m.Message] = {}  # what grows at an index: without its content
        self._idle: m.Message | None = None  # the newest text, whose block has stopped
        self._held: dict[int, list[m.Annotation]] = {}  # the citations of blocks without a text so far
        self._cited: set[str] = set()  # the ids of texts with citations
        self._choice = 0  # that of the present piece
        self._stop_reason: str | None = None
        self._metadata: dict[str, Any] = {}
        self._has_begun = self._has_ended = False

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether the item is an event under its name, with the key that each such event has."""
        return recognises(item)

    def plain(self, item: Any) -> Delta | None:
        """Return the delta of a piece of an open text."""
        wire = item.contentBlockDelta
        message, text = self._blocks[wire.contentBlockIndex], wire.delta.text
        is_plain = bool(text) and message.__class__ is m.TextMessage and not self._output.reports
        return m.TextMessage.delta_event(message.id, text) if is_plain else None

    def feed(self, item: WireObject) -> Iterable[Event]:
        """Return the events of one item, then its warnings."""
        self._output.begin(item)
        item = as_converse(item)
        error = error_in(item)
        names = [name for name in item if name in EVENTS]
        if self._has_ended or not (names or error):
            self._output.emit_raw(next(iter(item), self.name))
        elif not self._has_begun:
            self._has_begun = True
            self._output.emit(RunCreated(Run()))
        for name in () if self._has_ended else names:
            self._readers[name](self, as_object(item[name]))
        if error is not None and not self._has_ended:
            self._end(error)
        return self._output.take(self.index)

    def finish(self) -> Iterable[Event]:
        """Return the end of the run if the answer is complete, else the end of its messages as incomplete."""
        if self.complete and not self._has_ended:
            self._end(None)
        elif not self._has_ended:
            self._end_all("incomplete")
            if self._metadata:
                self._output.emit(RunCreated(Run(metadata={**self._metadata})))
        return self._output.take(self.index)

    # -- blocks

    def _index_of(self, wire: WireObject) -> int:
        index = as_index(wire.get("contentBlockIndex"), self._output.warn)
        if index is None:
            index = max(self._blocks, default=0)
            self._output.warn("bad-index", "it has no index of a block; the newest one's was used")
        return index

    def _new(self, kind: type[m.Message], index: int, id: str = "", **fields: Any) -> m.Message:
        """Begin the message of a block."""
        self._end_idle()
        self._end_block(index, "completed")
        message = kind(self._ids.unused(id), index=index, **fields)
        self._output.emit(NewMessage(message.header()))
        self._blocks[index] = message
        return message

    def _start(self, wire: WireObject) -> None:
        index, start = self._index_of(wire), as_object(wire.get("start"))
        if call := as_object(start.get("toolUse")):
            self._start_call(index, call)
        elif result := as_object(start.get("toolResult")):
            own = {KEY: {"toolResult": without_keys(result, "toolUseId")}}
            self._new(m.ToolOutputMessage, index, call_id=text_or_none(result.get("toolUseId")), metadata=own)
        elif image := as_object(start.get("image")):
            format = f"base64.{as_text(image.get('format')) or 'png'}"
            self._new(m.ImageMessage, index, format=format, metadata={KEY: {"image": {}}})

    def _start_call(self, index: int, wire: WireObject) -> None:
        id, name, type = (as_text(wire.get(key)) for key in ("toolUseId", "name", "type"))
        own = {KEY: {"toolUse": {"type": type}}} if type else {}
        fields = {"name": name or None, "call_id": id or None, "metadata": own}
        self._new(m.ToolCallMessage, index, id, provider_executed=type == SERVER_TOOL, **fields)

    def _delta(self, wire: WireObject) -> None:
        index, delta = self._index_of(wire), as_object(wire.get("delta"))
        self._choice = as_count(wire.get("choice")) or 0
        for name, value in delta.items():
            if (read := self._delta_readers.get(name)) is not None:
                read(self, index, value)
            else:
                self._output.emit_raw(f"contentBlockDelta.{name}")

    def _add_text(self, index: int, value: Any) -> None:
        if not isinstance(value, str):
            self._output.warn("bad-text", "a piece of a text is not text; it was skipped")
        elif value:
            self._output.emit(m.TextMessage.delta_event(self._text_at(index).id, value))

    def _text_at(self, index: int) -> m.Message:
        """Return the text of a block. One begins where none goes on."""
        text, citations = self._blocks.get(index), self._held.pop(index, ())
        if isinstance(text, m.TextMessage):
            return text
        if citations or self._idle is None or self._idle.id in self._cited:
            text = self._new(m.TextMessage, index, choice=self._choice)
        else:
            text, self._idle = self._idle, None
        self._blocks[index] = text
        for annotation in citations:
            self._cite(text, annotation)
        return text

    def _cite(self, text: m.Message, annotation: m.Annotation) -> None:
        self._cited.add(text.id)
        self._output.emit(AnnotationAdded(text.id, annotation))

    def _add_citation(self, index: int, value: Any) -> None:
        """A citation, of the text of its block, which may follow, else of the text before."""
        annotation = annotation_of(as_object(value))
        text = self._blocks.get(index)
        if isinstance(text, m.TextMessage):
            self._cite(text, annotation)
        else:
            self._held.setdefault(index, []).append(annotation)

    def _place_citations(self, index: int) -> None:
        """The block with these citations has no text."""
        for annotation in self._held.pop(index, ()):
            if self._idle is not None:
                self._cite(self._idle, annotation)
            else:
                self._output.warn("stray-citation", "a citation came without any text; it was skipped")

    def _add_reasoning(self, index: int, value: Any) -> None:
        wire, message = as_object(value), self._blocks.get(index)
        if redacted := blob_text(wire.get("redactedContent")):
            self._new(m.ReasoningMessage, index, format="redacted", metadata={KEY: {"redactedContent": redacted}})
            self._end_block(index, "completed")
            return
        text, signature = as_text(wire.get("text")), as_text(wire.get("signature"))
        if not isinstance(message, m.ReasoningMessage) and (text or signature):
            message = self._new(m.ReasoningMessage, index)
        if message is not None and text:
            self._output.emit(m.ReasoningMessage.delta_event(message.id, text))
        if message is not None and signature:
            before = as_text(as_object(message.metadata.get(KEY)).get("signature"))
            message.metadata = {KEY: {"signature": before + signature}}
            self._output.hold(message.id, signature)

    def _add_arguments(self, index: int, value: Any) -> None:
        call, text = self._blocks.get(index), as_text(as_object(value).get("input"))
        if isinstance(call, m.ToolCallMessage):
            if text:
                self._output.emit(m.ToolCallMessage.delta_event(call.id, text))
        elif text:
            self._output.warn(
                "stray-delta", "arguments came for a call that never began, or has ended; they were skipped"
            )

    def _add_result(self, index: int, value: Any) -> None:
        """Parts of the result of a tool that the server ran: text or JSON."""
        output = self._blocks.get(index)
        if not isinstance(output, m.ToolOutputMessage):
            self._output.warn("stray-delta", "a result came for a block that is none; it was skipped")
            return
        for part in as_objects(value):
            text = as_text(part.get("text")) or (json_text(part["json"]) if "json" in part else "")
            if text:
                self._output.emit(m.ToolOutputMessage.delta_event(output.id, text))

    def _add_image(self, index: int, value: Any) -> None:
        image = self._blocks.get(index)
        data = blob_text(as_object(as_object(value).get("source")).get("bytes"))
        if isinstance(image, m.ImageMessage) and data:
            self._output.emit(m.ImageMessage.delta_event(image.id, data))

    _delta_readers: Mapping[str, Callable[[Any, int, Any], None]] = {
        "text": _add_text,
        "citation": _add_citation,
        "reasoningContent": _add_reasoning,
        "toolUse": _add_arguments,
        "toolResult": _add_result,
        "image": _add_image,
    }

    def _stop(self, wire: WireObject) -> None:
        index = self._index_of(wire)
        message = self._blocks.get(index)
        self._place_citations(index)
        if isinstance(message, m.ToolCallMessage):
            self._output.emit(CallPassed(message))
        elif isinstance(message, m.TextMessage):
            self._end_idle()
            self._idle = self._blocks.pop(index, None)
        else:
            self._end_block(index, "completed")

    def _end_block(self, index: int, status: m.Status) -> None:
        message = self._blocks.pop(index, None)
        if message is None:
            return
        if isinstance(message, m.ReasoningMessage) and message.metadata:
            message.status = status
            self._output.emit(MessageDone(message))
        else:
            self._output.emit(MessageEnded(message.id, status))

    def _end_idle(self, status: m.Status = "completed") -> None:
        """A text whose block has stopped is done, because something else begins."""
        if (text := self._idle) is not None:
            self._idle = None
            self._output.emit(MessageEnded(text.id, status))

    def _end_all(self, status: m.Status) -> None:
        for index in [*self._held]:
            self._place_citations(index)
        for index in [*self._blocks]:
            self._end_block(index, status)
        self._end_idle(status)

    # -- the run

    def _begin(self, wire: WireObject) -> None:
        """The message begins. Its role is always the assistant's."""

    def _message_stop(self, wire: WireObject) -> None:
        self.complete = True
        self._stop_reason = text_or_none(wire.get("stopReason"))
        self._add_metadata(without_keys(wire, "stopReason", "p"))

    def _read_metadata(self, wire: WireObject) -> None:
        if usage := as_object(wire.get("usage")):
            self._output.emit(usage_of(usage))
        self._add_metadata(without_keys(wire, "usage", "p"))

    def _add_metadata(self, values: WireObject) -> None:
        if changed := add_values(self._metadata, values):
            self._output.hold(None, changed)

    _readers: Mapping[str, Callable[[Any, WireObject], None]] = {
        "messageStart": _begin,
        "contentBlockStart": _start,
        "contentBlockDelta": _delta,
        "contentBlockStop": _stop,
        "messageStop": _message_stop,
        "metadata": _read_metadata,
    }

    def _end(self, error: WireObject | None) -> None:
        """End the run: with an error, or as the stopReason means."""
        self._has_ended = self.complete = True
        status: m.Status = _STATUS_OF.get(self._stop_reason or "", "completed")
        if error is None and status == "failed":
            error = {"message": f"the model ended its answer with {self._stop_reason}", "code": self._stop_reason}
        status = status if error is None else "failed"
        self._end_all(status)
        run = Run(status=status, error=error, finish_reason=self._stop_reason, metadata={**self._metadata})
        self._output.emit(RunDone(run))
