"""Canonical events on their way out, as Chat Completions chunks. The table says what the protocol cannot tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ... import events as e
from ... import messages as m
from ...messages import Message
from .. import base
from ..values import is_list, is_object
from .wire import mapping

__all__ = ["Encoder"]

# The finish_reasons of Chat, and what other protocols and servers call them. Those that are nowhere here are told by
# how the run ended.
_REASONS = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "function_call": "function_call",
    "max_output_tokens": "length",
    "max_tokens": "length",
    "model_length": "length",
}
# What Responses calls the parts of `usage`.
_DETAILS = {"input_tokens_details": "prompt_tokens_details", "output_tokens_details": "completion_tokens_details"}


class Encoder(base.Encoder):
    """Canonical events as `chat.completion.chunk` items, the usage last, in a chunk without choices.

    | canonical | here |
    |---|---|
    | the assistant's text, refusal, reasoning | `delta.content`, `.refusal`, `.reasoning_content` |
    | its audio, its tool calls | `delta.audio`, `.tool_calls` |
    | audio transcripts (`metadata["audio_transcript"]`) | `delta.audio.transcript` |
    | several texts of one choice | one: they are joined; so are reasonings with nothing between them |
    | annotations | `delta.annotations`: type, url, title, start, end, quote and file_id |
    | logprobs, signatures and encrypted reasoning in `metadata` | `logprobs`, `delta.reasoning_details` |
    | a run's id, model, created_at, usage | the same |
    | its finish_reason(s) | the same, or Chat's word for it: `max_output_tokens` is `length` |
    | no finish_reason, or one without such a word | `length` if incomplete, `tool_calls` where calls wait, else `stop` |
    | a failed run, a failed stream | `{"error": …}`, which is no chunk |
    | the type of a call of a custom tool | left out: chunks know only `function` |
    | a `replace` delta | left out: what was sent cannot be taken back |
    | code, console, tool outputs, images, files, provider-executed calls, other roles and types | left out |
    | what else is in `metadata`, the run's and the messages' | left out |
    | confirmations, active lines, steps, warnings, statuses of single messages | left out |
    """

    name = "openai_chat"
    done = b"[DONE]"

    def __init__(self) -> None:
        self._run = e.Run()
        self._usage: e.Usage | None = None
        self._begun: set[int] = set()  # choices whose role was told
        self._called: dict[int, dict[str, int]] = {}  # the indexes of each choice's calls, by message id
        self._failed = False

    def feed(self, event: e.Event) -> Iterable[dict[str, Any]]:
        match event:
            case e.RunCreated(run=run):
                self._run = run
            case e.Usage():
                self._usage = event
            case e.RunDone(run=run):
                self._run = run
                yield from self._ending(run)
            case e.StreamException(error=name, message=message) if not self._failed:
                self._failed = True
                yield {"error": {"message": message, "type": name}}
            case e.Created(message=message) if _expressible(message):
                yield from self._begin(message)
            case e.Delta(snapshot=Message() as message, replace=False) if _expressible(message):
                if event.value or event.metadata:
                    yield from self._begin(message)
                    yield self._piece(event, message)
            case e.AnnotationAdded(snapshot=Message() as message) if _expressible(message):
                yield self._chunk(message.choice, {"annotations": [_wire_annotation(event.annotation)]})
            case e.Done(message=message) if _expressible(message):
                yield from self._finish_message(message)
            case _:
                pass

    def _chunk(self, choice: int, delta: dict[str, Any], **more: Any) -> dict[str, Any]:
        return self._item([{"index": choice, "delta": delta, "finish_reason": None, **more}])

    def _item(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        run = self._run
        created = int(run.created_at or 0)
        return {
            "id": run.id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": run.model or "",
            "choices": choices,
        }

    def _begin(self, message: Message) -> Iterator[dict[str, Any]]:
        """What comes before a message's first piece: its choice's role, a call's name and id."""
        if message.choice not in self._begun:
            self._begun.add(message.choice)
            yield self._chunk(message.choice, {"role": message.role, "content": ""})
        calls = self._called.setdefault(message.choice, {})
        if isinstance(message, m.ToolCallMessage) and message.id not in calls:
            calls[message.id] = len(calls)
            kind, text = ("custom", "input") if message.metadata.get("custom") else ("function", "arguments")
            call: dict[str, Any] = {"index": len(calls) - 1, "id": message.call_id or message.id}
            if kind == "function":
                call["type"] = kind
            call[kind] = {"name": message.name or "", text: ""}
            yield self._chunk(message.choice, {"tool_calls": [call]})

    def _piece(self, event: e.Delta, message: Message) -> dict[str, Any]:
        tokens = _wire_tokens((event.metadata or {}).get("logprobs"))
        match message:
            case m.ToolCallMessage():
                kind, text = ("custom", "input") if message.metadata.get("custom") else ("function", "arguments")
                call = {"index": self._called[message.choice][message.id], kind: {text: event.value}}
                return self._chunk(message.choice, {"tool_calls": [call]})
            case m.ReasoningMessage():
                return self._chunk(message.choice, {"reasoning_content": event.value})
            case m.AudioMessage():
                return self._chunk(message.choice, {"audio": {"data": event.value}})
            case m.RefusalMessage():
                more = {"logprobs": {"content": None, "refusal": tokens}} if tokens else {}
                return self._chunk(message.choice, {"refusal": event.value}, **more)
            case _ if message.metadata.get("audio_transcript"):
                return self._chunk(message.choice, {"audio": {"transcript": event.value}})
            case _:
                more = {"logprobs": {"content": tokens, "refusal": None}} if tokens else {}
                return self._chunk(message.choice, {"content": event.value}, **more)

    def _finish_message(self, message: Message) -> Iterator[dict[str, Any]]:
        """What only a done message knows."""
        known = message.metadata
        if isinstance(message, m.ReasoningMessage) and known.get("reasoning_details"):
            yield self._chunk(message.choice, {"reasoning_details": known["reasoning_details"]})
        elif isinstance(message, m.AudioMessage) and known.get("audio_id"):
            audio = {"id": known["audio_id"], "expires_at": known.get("expires_at")}
            yield self._chunk(message.choice, {"audio": audio})

    def _ending(self, run: e.Run) -> Iterator[dict[str, Any]]:
        if run.status in ("failed", "expired"):
            self._failed = True
            yield {"error": {"message": f"the run ended as {run.status}", **(run.error or {})}}
            return
        reasons = mapping(run.metadata.get("finish_reasons"))
        for choice in sorted(self._begun) or [0]:
            given = run.finish_reason if choice == min(self._begun, default=0) else reasons.get(str(choice))
            reason = _REASONS.get(given) if isinstance(given, str) else None
            if reason is None:
                ends = {"incomplete": "length", "requires_action": "tool_calls"}
                reason = ends.get(run.status) or ("tool_calls" if self._called.get(choice) else "stop")
            yield self._item([{"index": choice, "delta": {}, "finish_reason": reason}])
        if (used := run.usage or self._usage) is not None:
            counts = (used.input_tokens, used.output_tokens, used.total_tokens)
            names = ("prompt_tokens", "completion_tokens", "total_tokens")
            details = {_DETAILS.get(key, key): value for key, value in used.details.items()}
            yield {**self._item([]), "usage": {**details, **dict(zip(names, counts, strict=True))}}


def _expressible(message: Message) -> bool:
    if message.role != "assistant" or (isinstance(message, m.ToolCallMessage) and message.provider_executed):
        return False
    kinds = (m.TextMessage, m.RefusalMessage, m.ReasoningMessage, m.AudioMessage, m.ToolCallMessage)
    return isinstance(message, kinds)


def _wire_tokens(tokens: Any) -> list[Any] | None:
    """Log probabilities; Responses leaves out the alternatives where there are none."""
    if not is_list(tokens):
        return None
    return [{"top_logprobs": [], **token} if is_object(token) and "logprob" in token else token for token in tokens]


def _wire_annotation(annotation: m.Annotation) -> dict[str, Any]:
    given = {
        "url": annotation.url,
        "file_id": annotation.file_id,
        "title": annotation.title,
        "content": annotation.quote,
        "start_index": annotation.start,
        "end_index": annotation.end,
    }
    body = {key: value for key, value in given.items() if value is not None}
    return {"type": annotation.type, annotation.type: body}
