"""Encodes events as those of Cohere's chat. The table of `Encoder` states what the protocol cannot express."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...events import AnnotationAdded, Created, Delta, Done, Event, Run, RunCreated, RunDone, StreamException, Usage
from ...messages import Annotation, Message, ReasoningMessage, RefusalMessage, TextMessage, ToolCallMessage
from .. import base
from ..values import as_object, as_text, is_list, json_text, without, without_keys
from .wire import is_plan

__all__ = ["Encoder", "arguments_of"]

_CLASSES = (TextMessage, RefusalMessage, ReasoningMessage, ToolCallMessage)
_REASONS = {
    "stop": "COMPLETE",
    "tool_calls": "TOOL_CALL",
    "length": "MAX_TOKENS",
    **dict.fromkeys(("max_output_tokens", "max_tokens", "model_length"), "MAX_TOKENS"),
}
_REASON_OF_STATUS = {"incomplete": "MAX_TOKENS", "requires_action": "TOOL_CALL"}
_BEGINNING: Mapping[str, Any] = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
_END_KEYS = frozenset(("finish_reason", "usage", "error", "error_type"))


class Encoder(base.Encoder):
    """Events as those of one chat, the usage in the last one.

    | canonical | here |
    |---|---|
    | the assistant's text, its refusal | a block of content of the type `text` |
    | its reasoning | a block of the type `thinking`; a plan of Cohere's: `tool_plan` |
    | its tool calls | the same; one that is not completed has no end |
    | the input of a custom tool, which is text | an object with it as `input`, once the call is done |
    | annotations of a text | citations; of another provider's the words, the place, and one source with its title and address |
    | logprobs in a delta's `metadata` | the same |
    | a run's id, its other metadata | the same |
    | its usage | `tokens`, and the details that are `billed_units` and `cached_tokens`; other details are left out |
    | its finish_reason | the same, or Cohere's word for it |
    | none, or one without such a word | `MAX_TOKENS` if incomplete, `TOOL_CALL` if calls wait, else `COMPLETE` |
    | a failed run, a failed stream | the finish_reason `ERROR`, with its message and its type |
    | a run's model and its time, choices, ids of messages, other metadata of messages | left out |
    | a `replace` delta | left out: what was sent cannot be taken back |
    | code, console, tool outputs, images, files, audio, provider-executed calls, other roles and types | left out |
    | confirmations, active lines, steps, warnings, statuses of texts | left out |
    """

    name = "cohere"
    choices = False
    sse_ids = False
    done = b"[DONE]"

    def __init__(self) -> None:
        self._run = Run()
        self._usage: Usage | None = None
        self._indexes: dict[str, int] = {}  # of blocks and calls, by message id
        self._counts = {"content": 0, "call": 0, "citation": 0}
        self._has_begun = self._is_over = False

    def event_name(self, item: Mapping[str, Any]) -> str | None:
        """Return the item's type."""
        name: str = item["type"]
        return name

    def feed(self, event: Event) -> Iterator[dict[str, Any]]:
        """Yield the items of one event, after the start of the message."""
        for item in self._items(event):
            if not self._has_begun:
                self._has_begun = True
                yield {"id": self._run.id, "type": "message-start", "delta": {"message": {**_BEGINNING}}}
            yield item

    def _items(self, event: Event) -> Iterator[dict[str, Any]]:
        match event:
            case RunCreated(run=run):
                self._run = run
            case Usage():
                self._usage = event
            case Created(message=message) if _is_expressible(message) and not message.metadata.get("custom"):
                yield from self._begin(message)
            case Delta(snapshot=Message() as message, replace=False) if message.id in self._indexes or is_plan(message):
                if event.value or event.metadata:
                    yield self._piece(message, event)
            case AnnotationAdded(snapshot=TextMessage() as message) if message.id in self._indexes:
                yield from self._citation(self._indexes[message.id], event.annotation)
            case Done(message=message) if _is_expressible(message):
                yield from self._finish(message)
            case RunDone(run=run) if not self._is_over:
                yield self._end(run)
            case StreamException(error=name, message=text) if not self._is_over:
                yield self._end(Run(status="failed", error={"message": text, "type": name}))
            case _:
                pass

    # -- messages

    def _begin(self, message: Message) -> Iterator[dict[str, Any]]:
        if is_plan(message):
            return  # it has no beginning
        kind = "call" if isinstance(message, ToolCallMessage) else "content"
        index = self._indexes[message.id] = self._counts[kind]
        self._counts[kind] += 1
        if kind == "call":
            function = {"name": message.name or "", "arguments": ""}
            call = {"id": message.call_id or message.id, "type": "function", "function": function}
            yield _item("tool-call-start", index, tool_calls=call)
        else:
            key = _text_key(message)
            yield _item("content-start", index, content={"type": key, key: ""})

    def _piece(self, message: Message, delta: Delta) -> dict[str, Any]:
        if is_plan(message):
            return _item("tool-plan-delta", None, tool_plan=delta.value)
        index = self._indexes[message.id]
        if isinstance(message, ToolCallMessage):
            return _item("tool-call-delta", index, tool_calls={"function": {"arguments": delta.value}})
        item = _item("content-delta", index, content={_text_key(message): delta.value})
        logprobs = (delta.metadata or {}).get("logprobs")
        return {**item, "logprobs": logprobs} if logprobs else item

    def _citation(self, block: int, annotation: Annotation) -> Iterator[dict[str, Any]]:
        index, self._counts["citation"] = self._counts["citation"], self._counts["citation"] + 1
        raw = as_object(annotation.raw)
        wire = {**raw} if is_list(raw.get("sources")) else _wire_citation(annotation)
        yield _item("citation-start", index, citations={**wire, "content_index": block})
        yield {"type": "citation-end", "index": index}

    def _finish(self, message: Message) -> Iterator[dict[str, Any]]:
        if message.metadata.get("custom") and isinstance(message, ToolCallMessage):
            yield from self._begin(message)
            function = {"arguments": arguments_of(message)}
            yield _item("tool-call-delta", self._indexes[message.id], tool_calls={"function": function})
        is_call = isinstance(message, ToolCallMessage)
        if message.id in self._indexes and (not is_call or message.status == "completed"):
            yield {"type": "tool-call-end" if is_call else "content-end", "index": self._indexes[message.id]}

    # -- the run

    def _end(self, run: Run) -> dict[str, Any]:
        self._is_over = True
        delta: dict[str, Any] = {**without(run.metadata, _END_KEYS), "finish_reason": self._finish_reason(run)}
        if run.status in ("failed", "expired"):
            error = run.error or {}
            delta["error"] = as_text(error.get("message")) or f"the run ended as {run.status}"
            if kind := as_text(error.get("type")):
                delta["error_type"] = kind
        delta["usage"] = _wire_usage(run.usage or self._usage)
        return {"type": "message-end", "delta": delta}

    def _finish_reason(self, run: Run) -> str:
        if run.status in ("failed", "expired"):
            return "TIMEOUT" if run.finish_reason == "timeout" else "ERROR"
        stated, reason = as_text(run.metadata.get("finish_reason")), as_text(run.finish_reason)
        by_status = _REASON_OF_STATUS.get(run.status) or ("TOOL_CALL" if self._counts["call"] else "COMPLETE")
        return stated or _REASONS.get(reason) or (reason if reason.isupper() else by_status)


def arguments_of(call: ToolCallMessage) -> str:
    """Return the arguments of a call as the JSON text of an object, which the API wants."""
    if call.metadata.get("custom"):
        return json_text({"input": call.content})
    return json_text(call.arguments) if call.malformed else call.content or "{}"


def _is_expressible(message: Message) -> bool:
    if message.role != "assistant" or (isinstance(message, ToolCallMessage) and message.provider_executed):
        return False
    return isinstance(message, _CLASSES)


def _text_key(message: Message) -> str:
    return "thinking" if isinstance(message, ReasoningMessage) else "text"


def _item(type: str, index: int | None, **message: Any) -> dict[str, Any]:
    position = {} if index is None else {"index": index}
    return {"type": type, **position, "delta": {"message": message}}


def _wire_citation(annotation: Annotation) -> dict[str, Any]:
    id = annotation.file_id or annotation.url or annotation.title or "source"
    document = without_keys({"id": id, "title": annotation.title, "url": annotation.url})
    span = without_keys({"start": annotation.start, "end": annotation.end})
    sources = [{"type": "document", "id": id, "document": document}]
    return {**span, "text": annotation.quote or "", "sources": sources, "type": "TEXT_CONTENT"}


def _wire_usage(usage: Usage | None) -> dict[str, Any]:
    """Return the counts: those of the model, what is charged, and what came from the cache."""
    if usage is None:
        return {}
    apart = {key: usage.details[key] for key in ("billed_units", "cached_tokens") if key in usage.details}
    tokens = {key: count for key, count in usage.details.items() if key not in apart and isinstance(count, int)}
    return {**apart, "tokens": {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, **tokens}}
