"""Encodes events as Chat Completions chunks. The table of `Encoder` states what the protocol cannot express."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...events import AnnotationAdded, Created, Delta, Done, Event, Run, RunCreated, RunDone, StreamException, Usage
from ...messages import (
    Annotation,
    AudioMessage,
    Message,
    ReasoningMessage,
    RefusalMessage,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
)
from .. import base
from ..values import as_object, as_text, is_list, is_object, without_keys
from .returned_fields import returned_fields
from .wire import REASONING_KEYS

__all__ = ["Encoder"]

_CLASSES = (TextMessage, RefusalMessage, ReasoningMessage, AudioMessage, ToolCallMessage)
# Chat's finish_reasons, and what other protocols and servers call them. A run with any other reason gets one by its
# status.
_FINISH_REASONS = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "function_call": "function_call",
    "max_output_tokens": "length",
    "max_tokens": "length",
    "model_length": "length",
}
_FINISH_REASON_OF_STATUS = {"incomplete": "length", "requires_action": "tool_calls"}
# What Responses calls the parts of `usage`.
_USAGE_DETAILS = {
    "input_tokens_details": "prompt_tokens_details",
    "output_tokens_details": "completion_tokens_details",
}


class Encoder(base.Encoder):
    """Events as `chat.completion.chunk` items, the usage last, in a chunk without choices.

    | canonical | here |
    |---|---|
    | the assistant's text, refusal, reasoning | `delta.content`, `.refusal`, `.reasoning_content` |
    | what servers of this API want back (`extra_content` …) | the same, once the message is done |
    | its audio, its tool calls | `delta.audio`, `.tool_calls` |
    | audio transcripts (`metadata["audio_transcript"]`) | `delta.audio.transcript` |
    | several texts of one choice | one: they are joined; so are reasonings with nothing between them |
    | annotations | `delta.annotations`: type, url, title, start, end, quote and file_id |
    | logprobs, signatures and encrypted reasoning in `metadata` | `logprobs`, `delta.reasoning_details` |
    | a run's id, model, created_at, usage | the same |
    | its finish_reason(s) | the same, or Chat's word for it: `max_output_tokens` is `length` |
    | no finish_reason, or one without such a word | `length` if incomplete, `tool_calls` if calls wait, else `stop` |
    | a failed run, a failed stream | `{"error": …}`, which is not a chunk |
    | the type of a call of a custom tool | left out: chunks have only `function` |
    | a `replace` delta | left out: what was sent cannot be taken back |
    | code, console, tool outputs, images, files, provider-executed calls, other roles and types | left out |
    | other `metadata`, of the run and of the messages | left out |
    | confirmations, active lines, steps, warnings, statuses of single messages | left out |
    """

    name = "openai_chat"
    sse_ids = False
    done = b"[DONE]"

    def __init__(self) -> None:
        self._run = Run()
        self._usage: Usage | None = None
        self._begun_choices: set[int] = set()  # their role was sent
        self._call_indexes: dict[int, dict[str, int]] = {}  # by choice and message id
        self._waiting: dict[str, int] = {}  # the choices of the calls that have no output, by call id
        self._has_failed = False

    def feed(self, event: Event) -> Iterable[dict[str, Any]]:
        """Yield the chunks of one event: none for what Chat cannot express."""
        match event:
            case RunCreated(run=run):
                self._run = run
            case Usage():
                self._usage = event
            case RunDone(run=run):
                self._run = run
                yield from self._end(run)
            case StreamException(error=name, message=message) if not self._has_failed:
                self._has_failed = True
                yield {"error": {"message": message, "type": name}}
            case Created(message=message) if _is_expressible(message):
                yield from self._begin(message)
            case Delta(snapshot=Message() as message, replace=False) if _is_expressible(message):
                if event.value or event.metadata:
                    yield from self._begin(message)
                    yield self._delta(event, message)
            case AnnotationAdded(snapshot=Message() as message) if _is_expressible(message):
                yield self._chunk(message.choice, {"annotations": [_annotation(event.annotation)]})
            case Done(message=ToolOutputMessage(call_id=str(call_id))):
                self._waiting.pop(call_id, None)
            case Done(message=message) if _is_expressible(message):
                yield from self._done(message)
            case _:
                pass

    def _chunk(self, choice: int, delta: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return self._item([{"index": choice, "delta": delta, "finish_reason": None, **fields}])

    def _item(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        run = self._run
        return {
            "id": run.id,
            "object": "chat.completion.chunk",
            "created": int(run.created_at or 0),
            "model": run.model or "",
            "choices": choices,
        }

    # -- messages

    def _begin(self, message: Message) -> Iterator[dict[str, Any]]:
        """Yield the chunks before a message's first delta, if they were not sent: its choice's role, a call's name and
        id."""
        if message.choice not in self._begun_choices:
            self._begun_choices.add(message.choice)
            yield self._chunk(message.choice, {"role": message.role, "content": ""})
        indexes = self._call_indexes.setdefault(message.choice, {})
        if isinstance(message, ToolCallMessage) and message.id not in indexes:
            indexes[message.id] = len(indexes)
            self._waiting[message.call_id or message.id] = message.choice
            kind, text_key = _call_keys(message)
            call: dict[str, Any] = {"index": indexes[message.id], "id": message.call_id or message.id}
            if kind == "function":
                call["type"] = kind
            call[kind] = {"name": message.name or "", text_key: ""}
            yield self._chunk(message.choice, {"tool_calls": [call]})

    def _delta(self, event: Delta, message: Message) -> dict[str, Any]:
        choice, value = message.choice, event.value
        match message:
            case ToolCallMessage():
                kind, text_key = _call_keys(message)
                call = {"index": self._call_indexes[choice][message.id], kind: {text_key: value}}
                return self._chunk(choice, {"tool_calls": [call]})
            case ReasoningMessage():
                return self._chunk(choice, {_reasoning_key(message): value})
            case AudioMessage():
                return self._chunk(choice, {"audio": {"data": value}})
            case RefusalMessage():
                return self._chunk(choice, {"refusal": value}, **_logprobs(event, "refusal"))
            case _ if message.metadata.get("audio_transcript"):
                return self._chunk(choice, {"audio": {"transcript": value}})
            case _:
                return self._chunk(choice, {"content": value}, **_logprobs(event, "content"))

    def _done(self, message: Message) -> Iterator[dict[str, Any]]:
        """Yield what only a done message has: the details of reasoning, the id of audio, and what goes back with the
        message."""
        metadata = message.metadata
        returned = without_keys(returned_fields(message), "reasoning_details", *REASONING_KEYS, "content")
        if isinstance(message, ToolCallMessage) and returned:
            call = {"index": self._call_indexes[message.choice][message.id], **returned}
            yield self._chunk(message.choice, {"tool_calls": [call]})
        elif returned:
            yield from self._begin(message)
            yield self._chunk(message.choice, returned)
        if isinstance(message, ReasoningMessage) and metadata.get("reasoning_details"):
            yield self._chunk(message.choice, {"reasoning_details": metadata["reasoning_details"]})
        elif isinstance(message, AudioMessage) and metadata.get("audio_id"):
            audio = {"id": metadata["audio_id"], "expires_at": metadata.get("expires_at")}
            yield self._chunk(message.choice, {"audio": audio})

    # -- the run

    def _end(self, run: Run) -> Iterator[dict[str, Any]]:
        if run.status in ("failed", "expired"):
            self._has_failed = True
            yield {"error": {"message": f"the run ended as {run.status}", **(run.error or {})}}
            return
        for choice in sorted(self._begun_choices) or [0]:
            yield self._item([{"index": choice, "delta": {}, "finish_reason": self._finish_reason(run, choice)}])
        usage = run.usage or self._usage
        if usage is not None:
            yield {**self._item([]), "usage": _usage(usage)}

    def _finish_reason(self, run: Run, choice: int) -> str:
        """The lowest choice has the run's reason; the others have theirs in its metadata."""
        is_lowest = choice == min(self._begun_choices, default=0)
        reasons = as_object(run.metadata.get("finish_reasons"))
        reason = run.finish_reason if is_lowest else reasons.get(str(choice))
        by_status = _FINISH_REASON_OF_STATUS.get(run.status) or (
            "tool_calls" if choice in self._waiting.values() else "stop"
        )
        return _FINISH_REASONS.get(as_text(reason), by_status)


def _is_expressible(message: Message) -> bool:
    if message.role != "assistant" or (isinstance(message, ToolCallMessage) and message.provider_executed):
        return False
    return isinstance(message, _CLASSES)


def _call_keys(call: ToolCallMessage) -> tuple[str, str]:
    """Return where a call has its name and text, and the key of the text there."""
    return ("custom", "input") if call.metadata.get("custom") else ("function", "arguments")


def _reasoning_key(message: Message) -> str:
    """Return where reasoning is: where it came from, if it came from this API."""
    keys = returned_fields(message).keys()
    return next((key for key in REASONING_KEYS if key in keys), REASONING_KEYS[0])


def _logprobs(event: Delta, kind: str) -> Mapping[str, Any]:
    """Return the `logprobs` of a choice, if the delta has any. Responses leaves out the alternatives where there are
    none."""
    tokens = (event.metadata or {}).get("logprobs")
    if not is_list(tokens) or not tokens:
        return {}
    complete: list[Any] = [
        {"top_logprobs": [], **token} if is_object(token) and "logprob" in token else token for token in tokens
    ]
    return {"logprobs": {"content": None, "refusal": None, kind: complete}}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        **{_USAGE_DETAILS.get(key, key): value for key, value in usage.details.items()},
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    }


def _annotation(annotation: Annotation) -> dict[str, Any]:
    fields = {
        "url": annotation.url,
        "file_id": annotation.file_id,
        "title": annotation.title,
        "content": annotation.quote,
        "start_index": annotation.start,
        "end_index": annotation.end,
    }
    return {"type": annotation.type, annotation.type: without_keys(fields)}
