"""Encodes events as Converse's. The table of `Encoder` states what the protocol cannot express."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ... import messages as m
from ...events import AnnotationAdded, Created, Delta, Done, Event, Run, RunCreated, RunDone, StreamException, Usage
from ...messages import Annotation, Message
from .. import base
from ..values import WireObject, as_object, as_text, is_object, json_text
from .blocks import arguments_of, own_of
from .wire import KEY, SERVER_TOOL, STATUS_OF_STOP_REASON

__all__ = ["Encoder"]

_STOP_REASONS = {
    **{reason: reason for reason in ("end_turn", "tool_use", "stop_sequence", *STATUS_OF_STOP_REASON)},
    "stop": "end_turn",
    "tool_calls": "tool_use",
    **dict.fromkeys(("length", "max_output_tokens"), "max_tokens"),
    **dict.fromkeys(("content_filter", "refusal"), "content_filtered"),
}
_GROWING = (m.TextMessage, m.RefusalMessage, m.ReasoningMessage, m.ToolCallMessage, m.ToolOutputMessage)


class Encoder(base.Encoder):
    """Events as objects with an event's name, `{"contentBlockDelta": {…}}`, the stopReason and the usage last.

    | canonical | here |
    |---|---|
    | the assistant's text | a block of text; its annotations are citations in it |
    | a refusal | a block of text |
    | reasoning, its signature; encrypted reasoning of this API | `reasoningContent` |
    | a call | a block with `toolUse`: one that is not completed does not stop |
    | a call that the provider ran, and its output | `toolUse` of the type `server_tool_use`, `toolResult` |
    | arguments of a custom tool | an object with the text at `input` |
    | an image in base64 | a block with `image` |
    | a run's usage, and what this API stated in its metadata | `metadata` |
    | its finish_reason | the same, or the word for it here: `length` is `max_tokens` |
    | any other, or none | `max_tokens` if incomplete, `tool_use` after calls, else `end_turn` |
    | a failed run, a failed stream | an exception, which ends the stream |
    | a `replace` delta | left out: what was sent cannot be taken back |
    | code, console, audio, files, other images; other choices, roles and types | left out |
    | the run's id, model and created_at; messages' ids but those of calls, other `metadata` | left out |
    | places of annotations; confirmations, active lines, steps, warnings; statuses | left out |
    """

    name = KEY
    choices = False

    def __init__(self) -> None:
        self._usage: Usage | None = None
        self._blocks: dict[str, int] = {}  # the indexes of open blocks, by message id
        self._count = 0
        self._has_begun = self._is_over = False
        self._waiting: set[str] = set()  # the ids of calls for us that have no output

    def feed(self, event: Event) -> Iterator[dict[str, Any]]:
        """Yield the items of one event: none for what Converse cannot express."""
        match event:
            case RunCreated():
                if not self._has_begun:
                    self._has_begun = True
                    yield {"messageStart": {"role": "assistant"}}
            case Usage():
                self._usage = event
            case RunDone(run=run):
                yield from self._end(run)
            case StreamException(error=name, message=message) if not self._is_over:
                self._is_over = True
                yield _exception({"code": name, "message": message})
            case Created(message=message) if _grows(message):
                yield from self._start(message)
            case Delta(snapshot=Message() as message, replace=False) if event.value and _grows(message):
                yield from self._grow(message, event.value)
            case AnnotationAdded(snapshot=m.TextMessage() as message) if message.id in self._blocks:
                yield self._delta(message, {"citation": _citation(event.annotation)})
            case Done(message=message) if message.role in ("assistant", "computer"):
                if isinstance(message, m.ToolOutputMessage):
                    self._waiting.discard(message.call_id or "")
                yield from self._done(message)
            case _:
                pass

    def _start(self, message: Message) -> Iterator[dict[str, Any]]:
        """Yield the start of a block, once. A text, and reasoning, have none."""
        if message.id in self._blocks:
            return
        index = self._blocks[message.id] = self._count
        self._count += 1
        own, id = own_of(message), message.call_id or message.id
        start: dict[str, Any] = {}
        if isinstance(message, m.ToolCallMessage):
            type = {"type": SERVER_TOOL} if message.provider_executed else {}
            if not message.provider_executed:
                self._waiting.add(id)
            start["toolUse"] = {"toolUseId": id, "name": message.name or "", **type, **as_object(own.get("toolUse"))}
        elif isinstance(message, m.ToolOutputMessage):
            start["toolResult"] = {"toolUseId": id, **as_object(own.get("toolResult"))}
        elif isinstance(message, m.ImageMessage):
            start["image"] = {"format": (message.format or "").removeprefix("base64.")}
        if start:
            yield {"contentBlockStart": {"contentBlockIndex": index, "start": start}}

    def _delta(self, message: Message, delta: WireObject) -> dict[str, Any]:
        return {"contentBlockDelta": {"contentBlockIndex": self._blocks[message.id], "delta": dict(delta)}}

    def _grow(self, message: Message, value: str) -> Iterator[dict[str, Any]]:
        yield from self._start(message)
        match message:
            case m.ReasoningMessage():
                yield self._delta(message, {"reasoningContent": {"text": value}})
            case m.ToolCallMessage() if message.metadata.get("custom") is not True:
                yield self._delta(message, {"toolUse": {"input": value}})
            case m.ToolOutputMessage():
                yield self._delta(message, {"toolResult": [{"text": value}]})
            case m.TextMessage() | m.RefusalMessage():
                yield self._delta(message, {"text": value})
            case _:
                pass

    def _done(self, message: Message) -> Iterator[dict[str, Any]]:
        own = own_of(message)
        match message:
            case m.ReasoningMessage(format="redacted") if "redactedContent" in own:
                yield from self._start(message)
                yield self._delta(message, {"reasoningContent": {"redactedContent": own["redactedContent"]}})
            case m.ReasoningMessage() if "signature" in own and message.id in self._blocks:
                yield self._delta(message, {"reasoningContent": {"signature": own["signature"]}})
            case m.ToolCallMessage() if message.metadata.get("custom") is True and message.id in self._blocks:
                yield self._delta(message, {"toolUse": {"input": json_text(arguments_of(message))}})
            case m.ImageMessage(role="assistant") if (message.format or "").startswith("base64."):
                yield from self._start(message)
                yield self._delta(message, {"image": {"source": {"bytes": message.content}}})
            case _:
                pass
        if message.id in self._blocks:
            index = self._blocks.pop(message.id)
            if not isinstance(message, m.ToolCallMessage) or message.status == "completed":
                yield {"contentBlockStop": {"contentBlockIndex": index}}

    def _end(self, run: Run) -> Iterator[dict[str, Any]]:
        if self._is_over:
            return
        self._is_over = True
        reason = as_text(run.finish_reason)
        is_failure = STATUS_OF_STOP_REASON.get(reason) == "failed"
        if (run.status in ("failed", "expired") or run.error is not None) and not is_failure:
            yield _exception({"message": f"the run ended as {run.status}", **(run.error or {})})
            return
        by_status = "max_tokens" if run.status == "incomplete" else "tool_use" if self._waiting else "end_turn"
        yield {"messageStop": {"stopReason": _STOP_REASONS.get(reason, by_status)}}
        metadata = {key: run.metadata[key] for key in ("metrics", "trace", "performanceConfig") if key in run.metadata}
        usage = run.usage or self._usage
        if usage is not None:
            counts = {"inputTokens": usage.input_tokens, "outputTokens": usage.output_tokens}
            details = {key: value for key, value in usage.details.items() if "_" not in key}
            metadata["usage"] = {**details, **counts, "totalTokens": usage.total_tokens}
        if metadata:
            yield {"metadata": metadata}


def _grows(message: Message) -> bool:
    """Whether a message is a block that comes piece by piece."""
    if isinstance(message, m.ToolOutputMessage):
        return bool(own_of(message))
    is_redacted = isinstance(message, m.ReasoningMessage) and message.format == "redacted"
    return isinstance(message, _GROWING) and message.role == "assistant" and not is_redacted


def _citation(annotation: Annotation) -> dict[str, Any]:
    raw = annotation.raw
    if is_object(raw) and "location" in raw:
        return dict(raw)
    quote = [{"text": annotation.quote}] if annotation.quote else []
    return {"title": annotation.title or "", "sourceContent": quote, "location": {"web": {"url": annotation.url or ""}}}


def _exception(error: WireObject) -> dict[str, Any]:
    """Return an exception, under the name that its code is, if it is one of this API's."""
    code = as_text(error.get("code"))
    name = code if code.endswith("Exception") else "internalServerException"
    return {name: {key: value for key, value in error.items() if key != "code"}}
