"""Vercel's UI message stream, as `ai` 5, 6 and 7 write it.

Terminal rule: a stream is complete with `finish`, `abort`, `error` or `[DONE]`. One that ends before was cut off.

A text or a reasoning has an id while it is open; in the next step the same id may stand for another one, so such a message
gets an id of its own. A stream is one run; its id is the UI message's. A run that ends while a call waits for an approval,
or for its output, ends `requires_action`.

Parts that stand for nothing of ours are raw events: `data-…` of another server, `custom`, `reasoning-file`,
`steering-message`, `reset-step`, sources that belong to no text, and metadata of the message. What our encoder adds so that
a stream comes back as it was stands in `providerMetadata.streamkit` and in parts named `data-…`; see `encoder`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from ... import events as e
from ...errors import RunFailedError
from ...messages import Annotation
from ..ui_decoder import UiDecoder
from ..ui_files import file_fields
from ..ui_parts import message_fields, restored_event, seconds_of, usage_of
from ..values import WireObject, as_object, as_text, text_or_none, without_keys
from . import wire as w
from .calls import IncomingToolParts, provider_metadata
from .data_parts import DataParts

__all__ = ["Decoder"]

_STATUSES: tuple[str, ...] = ("completed", "incomplete", "requires_action", "cancelled", "failed", "expired")
_ENDS = ("finish", "abort", "error")
_OWN_METADATA = ("model", "createdAt", "completedAt", "usage", "status", "finishReason", "error")


class Decoder(UiDecoder):
    """Decodes a UI message stream."""

    name = "vercel_ui"
    plain_item: ClassVar[Any] = w.PlainUiDelta
    text_deltas, text_id = {"text": "text-delta", "reasoning": "reasoning-delta"}, "id"
    call_delta, call_piece = "tool-input-delta", "input"
    extra_of, metadata_of = w.extra_of, provider_metadata

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._calls = IncomingToolParts(self._ids.unused, self.warn)
        self._growing_calls = self._calls.growing
        self._data = DataParts(self._calls)
        self._newest_text = ""  # the id of the text that began last
        self._text_metadata: dict[str, Any] = {}  # of the newest delta that had any, by message id
        self._has_begun = False
        self._status: e.RunStatus | None = None

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether it has a type of this protocol, and what chunks of this type have."""
        return w.is_chunk(item)

    def feed(self, item: WireObject) -> Iterable[e.Event]:
        """Return the events of one chunk."""
        kind = as_text(item.get("type"))
        if self._step_is_over and kind not in _ENDS:
            self._step_is_over = False
            return [e.RunStepDone(e.RunStep()), *self._read(kind, item)]
        return self._read(kind, item)

    def _read(self, kind: str, item: WireObject) -> Iterable[e.Event]:
        match kind.partition("-")[0]:
            case "text" | "reasoning" if kind != "reasoning-file":
                return self._read_text(kind, item)
            case "tool":
                return self._read_tool(kind, item)
            case "data" if kind != "data":
                return self._read_data(kind, item)
            case _:
                return self._read_other(kind, item)

    def _read_text(self, kind: str, item: WireObject) -> Iterable[e.Event]:
        text, _, phase = kind.partition("-")
        match phase:
            case "start":
                return self._begin_text(text, item)
            case "delta":
                return self._text_delta(text, item)
            case "end":
                return self._end_text(text, item)
            case _:
                return self._unknown(kind, item)

    def _read_tool(self, kind: str, item: WireObject) -> Iterable[e.Event]:
        calls = self._calls
        match kind.removeprefix("tool-"):
            case "input-start":
                return calls.start(item)
            case "input-delta":
                return calls.delta(item)
            case "input-available":
                return calls.available(item)
            case "input-error":
                return calls.failed(item)
            case "output-available":
                return calls.output(item)
            case "output-error":
                return calls.output_error(item)
            case "output-denied":
                return calls.deny(item)
            case "approval-request":
                return calls.ask(item)
            case "approval-response":
                return calls.respond(item)
            case _:
                return self._unknown(kind, item)

    def _read_other(self, kind: str, item: WireObject) -> Iterable[e.Event]:
        match kind:
            case "start":
                return self._start(item)
            case "start-step":
                return [e.RunStepCreated(e.RunStep())]
            case "finish-step":
                return self._finish_step()
            case "message-metadata":
                return self._message_metadata(item)
            case "source-url" | "source-document":
                return self._source(item)
            case "file":
                return self._file(item)
            case "error":
                return self._fail(item)
            case "abort":
                return self._abort(item)
            case "finish":
                return self._finish(item)
            case _:
                return self._unknown(kind, item)

    def _unknown(self, kind: str, item: WireObject) -> Iterable[e.Event]:
        """Return the events of an item that stands for nothing of ours, or is none of this protocol."""
        if kind in w.CHUNK_KEYS:
            return [e.RawEvent(kind, item)]
        if "error" in item:  # of the server in front
            return self._fail({"errorText": as_text(as_object(item["error"]).get("message")) or as_text(item["error"])})
        return [self.warn("unknown-type", f"its type {kind!r} is none of this protocol's; it was skipped", kind)]

    def sentinel(self, data: bytes) -> Iterable[e.Event]:
        """`[DONE]` ends the run, if nothing did before."""
        self.complete = True
        if self._status is None:
            yield from self._end("completed")

    # -- the message and its steps

    def _start(self, item: WireObject) -> Iterator[e.Event]:
        metadata = as_object(item.get("messageMetadata"))
        more = without_keys(metadata, *_OWN_METADATA)
        run = e.Run(
            id=as_text(item.get("messageId")),
            model=text_or_none(metadata.get("model")),
            created_at=seconds_of(metadata.get("createdAt")),
            metadata={w.KEY: more} if more else {},
        )
        self._has_begun = True
        yield e.RunCreated(run)

    def _finish_step(self) -> Iterator[e.Event]:
        if self._texts or self._calls.growing:
            yield e.RunStepDone(e.RunStep())
        else:
            self._step_is_over = True

    def _message_metadata(self, item: WireObject) -> Iterator[e.Event]:
        metadata = as_object(item.get("messageMetadata"))
        usage = as_object(metadata.get("stepUsage"))
        if usage:
            self._has_step_usage = True
            yield usage_of(usage)
        elif without_keys(metadata, *_OWN_METADATA):
            yield e.RawEvent("message-metadata", item)
        elif metadata:
            yield from self._usage(metadata)

    def _usage(self, metadata: WireObject) -> Iterator[e.Event]:
        """Yield the tokens of the run, if those of its steps did not come."""
        usage = as_object(metadata.get("usage"))
        if usage and not self._has_step_usage:
            yield usage_of(usage)

    # -- texts

    def _open_text(self, kind: str, id: str, item: WireObject) -> e.Event:
        event = super()._open_text(kind, id, item)
        if kind == "text":
            self._newest_text = self._texts[kind, id][0]
        return event

    def _text_delta(self, kind: str, item: WireObject) -> Iterator[e.Event]:
        yield from super()._text_delta(kind, item)
        if metadata := provider_metadata(item):
            self._text_metadata[self._texts[kind, as_text(item.get("id"))][0]] = metadata

    def _metadata_at_end(self, message_id: str, item: WireObject) -> dict[str, Any] | None:
        return provider_metadata(item) or self._text_metadata.pop(message_id, None)

    # -- files and sources

    def _file(self, item: WireObject) -> Iterator[e.Event]:
        url, media_type, extra = as_text(item.get("url")), as_text(item.get("mediaType")), w.extra_of(item)
        message_class, format, content = file_fields(url, media_type)
        fields = message_fields(extra)
        fields.pop("metadata", None)
        fields["format"] = format
        id = self._ids.unused(as_text(extra.get("id")))
        yield e.MessageDone(message_class(id, content=content, metadata=provider_metadata(item), **fields))

    def _source(self, item: WireObject) -> Iterator[e.Event]:
        extra = w.extra_of(item)
        message_id = as_text(extra.get("message_id")) or self._newest_text
        if not message_id or message_id not in (open_id for open_id, _ in self._texts.values()):
            yield e.RawEvent(as_text(item.get("type")), item)
            return
        url = text_or_none(item.get("url"))
        file_id = None if url else text_or_none(extra.get("file_id")) or text_or_none(item.get("sourceId"))
        start, end = extra.get("start"), extra.get("end")
        annotation = Annotation(
            type=as_text(extra.get("type")) or ("url_citation" if url else "file_citation"),
            url=url,
            file_id=file_id,
            title=text_or_none(item.get("title")) if extra.get("title") is not False else None,
            quote=text_or_none(extra.get("quote")),
            start=start if type(start) is int else None,
            end=end if type(end) is int else None,
            raw=None if extra else dict(item),
        )
        yield e.AnnotationAdded(message_id, annotation)

    # -- data parts

    def _read_data(self, kind: str, item: WireObject) -> Iterator[e.Event]:
        name = kind.removeprefix("data-")
        events = self._data.read(name, item)
        if events is None:
            yield restored_event(name.replace("-", "_"), item.get("data")) or e.RawEvent(kind, item)
        else:
            yield from events

    # -- endings

    def _fail(self, item: WireObject) -> Iterator[e.Event]:
        self.complete = True
        message = as_text(item.get("errorText")) or "the run failed"
        if self._status is None:
            yield from self._end("failed", {"message": message})
        elif self._status != "failed":  # what came after the run failed
            yield e.StreamException(RunFailedError.__name__, message)

    def _abort(self, item: WireObject) -> Iterator[e.Event]:
        self.complete = True
        yield from self._end("cancelled", finish_reason=text_or_none(item.get("reason")))

    def _finish(self, item: WireObject) -> Iterator[e.Event]:
        self.complete = True
        metadata, reason = as_object(item.get("messageMetadata")), as_text(item.get("finishReason"))
        yield from self._usage(metadata)
        if self._status is not None:
            return  # the error or the abort before it says more
        status: Any = as_text(metadata.get("status"))
        if status not in _STATUSES:
            status = w.STATUS_OF_FINISH_REASON.get(reason, "completed")
        seconds = seconds_of(metadata.get("completedAt"))
        error = {"message": "the run failed"} if status == "failed" else None
        finish_reason = text_or_none(metadata.get("finishReason")) or reason or None
        yield from self._end(status, error, finish_reason=finish_reason, completed_at=seconds)

    def _end(self, status: e.RunStatus, error: Any = None, **fields: Any) -> Iterator[e.Event]:
        if self._status is not None:
            return
        if self._calls.pending and status == "completed":
            status = "requires_action"
        self._status = status
        run = e.Run(status=status, error=error, **fields)
        if self._calls.pending:
            yield e.RunRequiresAction(e.Run())
        yield e.RunDone(run)
