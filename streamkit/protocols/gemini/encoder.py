"""Encodes events as Gemini's chunks. The table of `Encoder` states what the protocol cannot express."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ... import messages as m
from ...events import Created, Delta, Done, Event, Run, RunCreated, RunDone, StreamException, Usage
from ...messages import Annotation, Message
from .. import base
from ..dates import date_of
from ..values import WireObject, as_count, as_object, as_text, parse_json, without_keys
from .parts import arguments_of, parts_of
from .wire import AUDIO_TYPES, STATUS_OF_FINISH_REASON, is_failure

__all__ = ["Encoder"]

# What other protocols call the reasons. A run with any other reason than these and Gemini's own gets one by its status.
_FINISH_REASONS = {
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens"), "MAX_TOKENS"),
    **dict.fromkeys(("content_filter", "refusal"), "SAFETY"),
}
_CANDIDATE_KEYS = (
    *("groundingMetadata", "citationMetadata", "urlContextMetadata", "safetyRatings"),
    *("finishMessage", "avgLogprobs", "logprobsResult", "tokenCount"),
)
_MEDIA_TYPES = {format: f"audio/{subtype}" for subtype, format in reversed(AUDIO_TYPES.items())}
# Where other protocols have what Gemini counts too: the key in the details of the usage, and in that.
_FOREIGN_COUNTS = (
    ("prompt_tokens_details", "cached_tokens", "cachedContentTokenCount"),
    ("input_tokens_details", "cached_tokens", "cachedContentTokenCount"),
    ("completion_tokens_details", "reasoning_tokens", "thoughtsTokenCount"),
    ("output_tokens_details", "reasoning_tokens", "thoughtsTokenCount"),
    ("output_tokens_details", "thinking_tokens", "thoughtsTokenCount"),
)


class Encoder(base.Encoder):
    """Events as GenerateContentResponse chunks, the finishReason and the usage last.

    | canonical | here |
    |---|---|
    | the assistant's text, its reasoning | a part for each delta, of reasoning with `thought` |
    | signatures of a text or of reasoning | parts with an empty text, after it |
    | a call, with its arguments | a whole `functionCall`, once it is done: one that is not completed is left out |
    | arguments that are not an object; those of a custom tool | an object with the text at `input` |
    | a call that the provider ran, and its output | `toolCall`, `toolResponse` |
    | code, and what it printed | `executableCode`, `codeExecutionResult`, once they are done |
    | an image or audio in base64, a file by id | `inlineData`, `fileData` |
    | a refusal | `promptFeedback` with the text as `blockReasonMessage` |
    | annotations | `groundingMetadata`, if they have a place in their text |
    | several texts, or reasonings, with nothing between them | one: they are joined |
    | a run's id, model, created_at, usage; what Gemini stated of the answer in its metadata | the same |
    | its finish_reason(s) | the same, or Gemini's word for it: `length` is `MAX_TOKENS` |
    | any other finish_reason, or none | `MAX_TOKENS` if incomplete, else `STOP` |
    | a failed run, a failed stream | `{"error": …}`, which ends the stream |
    | a `replace` delta | left out: what was sent cannot be taken back |
    | other images, audio and files; encrypted reasoning of others; other roles and types | left out |
    | messages' ids but those of calls, other `metadata`, statuses of single messages | left out |
    | confirmations, active lines, steps, warnings | left out |
    """

    name = "gemini"
    sse_ids = False

    def __init__(self) -> None:
        self._run = Run()
        self._usage: Usage | None = None
        self._choices: set[int] = set()
        self._sent_bytes: dict[int, int] = {}  # of the texts that are done, by choice
        self._sources: dict[int, list[dict[str, Any]]] = {}  # the grounding of other protocols' texts, by choice
        self._refusal = ""
        self._is_over = False

    def feed(self, event: Event) -> Iterator[dict[str, Any]]:
        """Yield the chunks of one event: none for what Gemini's API cannot express."""
        match event:
            case RunCreated(run=run):
                self._run = run
            case Usage():
                self._usage = event
            case RunDone(run=run):
                self._run = run
                yield from self._end(run)
            case StreamException(error=name, message=message) if not self._is_over:
                self._is_over = True
                yield {"error": _error({"message": message, "code": name})}
            case Created(message=Message(role="assistant") as message) if not isinstance(message, m.RefusalMessage):
                self._choices.add(message.choice)
            case Delta(snapshot=Message(role="assistant") as message, replace=False) if event.value:
                yield from self._delta(message, event.value)
            case Done(message=message) if message.role in ("assistant", "computer"):
                yield from self._done(message)
            case _:
                pass

    def _chunk(self, choice: int, *parts: WireObject, **fields: Any) -> dict[str, Any]:
        self._choices.add(choice)
        return self._item(
            candidates=[
                {"content": {"parts": [dict(part) for part in parts], "role": "model"}, **fields, "index": choice}
            ]
        )

    def _item(self, **fields: Any) -> dict[str, Any]:
        run = self._run
        created = {} if run.created_at is None else {"createTime": date_of(run.created_at)}
        return {**fields, "modelVersion": run.model or "", **created, "responseId": run.id}

    # -- messages

    def _delta(self, message: Message, value: str) -> Iterator[dict[str, Any]]:
        match message:
            case m.TextMessage():
                yield self._chunk(message.choice, {"text": value})
            case m.ReasoningMessage() if message.format != "redacted":
                yield self._chunk(message.choice, {"text": value, "thought": True})
            case m.AudioMessage():
                yield self._chunk(message.choice, _with_data(message, value))
            case _:
                pass

    def _done(self, message: Message) -> Iterator[dict[str, Any]]:
        match message:
            case m.RefusalMessage():
                self._refusal += message.content
            case m.TextMessage() | m.ReasoningMessage():
                if isinstance(message, m.TextMessage):
                    self._cite(message)
                signed = [part for part in parts_of(message) or () if without_keys(part, "text", "thought")]
                yield from (self._chunk(message.choice, {**part, "text": ""}) for part in signed)
            case m.ToolCallMessage() if message.status != "completed":
                pass
            case _ if (part := _part_of(message)) is not None:
                yield self._chunk(message.choice, part)
            case _:
                pass

    def _cite(self, message: m.TextMessage) -> None:
        """Note the citations of a text. Their places are bytes, of all texts of the choice."""
        choice, content = message.choice, message.content
        before = self._sent_bytes.get(choice, 0)
        self._sent_bytes[choice] = before + len(content.encode("utf-8", "surrogatepass"))
        for annotation in message.annotations:
            self._sources.setdefault(choice, []).append(_grounded(annotation, content, before))

    # -- the run

    def _end(self, run: Run) -> Iterator[dict[str, Any]]:
        if self._is_over:
            return
        self._is_over = True
        if (run.status in ("failed", "expired") or run.error is not None) and not is_failure(run.finish_reason):
            yield {"error": _error({"message": f"the run ended as {run.status}", **(run.error or {})})}
            return
        metadata, last = run.metadata, dict[str, Any]()
        usage = run.usage or self._usage
        if usage is not None:
            last["usageMetadata"] = _usage(usage)
        if feedback := as_object(metadata.get("promptFeedback")):
            last["promptFeedback"] = dict(feedback)
        elif self._refusal:
            last["promptFeedback"] = {"blockReason": "SAFETY", "blockReasonMessage": self._refusal}
        choices = sorted(self._choices) or ([] if "promptFeedback" in last else [0])
        for choice in choices[:-1]:
            yield self._last_chunk(run, choice)
        yield {**(self._last_chunk(run, choices[-1]) if choices else self._item()), **last}

    def _last_chunk(self, run: Run, choice: int) -> dict[str, Any]:
        """Return the chunk with the finishReason. The lowest choice has the run's; the others have theirs in its metadata."""
        is_lowest, metadata = choice == min(self._choices, default=0), run.metadata
        own = metadata if is_lowest else as_object(as_object(metadata.get("choices")).get(str(choice)))
        reason = run.finish_reason if is_lowest else as_object(metadata.get("finish_reasons")).get(str(choice))
        fields = {key: own[key] for key in _CANDIDATE_KEYS if key in own}
        if "groundingMetadata" not in fields and (found := self._sources.get(choice)):
            fields["groundingMetadata"] = {
                "groundingChunks": [source["groundingChunk"] for source in found],
                "groundingSupports": [
                    {"segment": source["segment"], "groundingChunkIndices": [index]}
                    for index, source in enumerate(found)
                    if source["segment"]
                ],
            }
        by_status = "MAX_TOKENS" if run.status == "incomplete" else "STOP"
        text = as_text(reason)
        name = text if text in STATUS_OF_FINISH_REASON else _FINISH_REASONS.get(text, by_status)
        return self._chunk(choice, finishReason=name, **fields)


def _part_of(message: Message) -> dict[str, Any] | None:
    """Return the part of a message that comes complete; None if it has none."""
    own = "gemini" in message.metadata
    call_id = message.call_id or message.id
    match message:
        case m.AudioMessage():
            return None  # its deltas are
        case m.ToolCallMessage() if not own and message.provider_executed:
            return {"toolCall": {"toolType": message.name, "args": dict(arguments_of(message)), "id": call_id}}
        case m.ToolCallMessage() if not own:
            return {"functionCall": {"name": message.name or "", "args": dict(arguments_of(message)), "id": call_id}}
        case m.ToolOutputMessage() if not own:
            response = as_object(parse_json(message.content)) or {"result": message.content}
            return {"toolResponse": {"toolType": message.name, "response": dict(response), "id": call_id}}
        case m.CodeMessage(role="assistant") if not own:
            language = (message.format or "python").upper()
            return {"executableCode": {"language": language, "code": message.content, "id": call_id}}
        case m.ConsoleMessage() if not own:
            outcome = "OUTCOME_OK" if message.status == "completed" else "OUTCOME_FAILED"
            return {"codeExecutionResult": {"outcome": outcome, "output": message.content, "id": call_id}}
        case m.ImageMessage(role="assistant") if not own and (message.format or "").startswith("base64."):
            return _with_data(message, message.content)
        case m.FileMessage(role="assistant", format="file_id") if not own:
            return {"fileData": {"fileUri": message.content}}
        case _:
            return next(iter(parts_of(message) or ()), None)


def _with_data(message: Message, data: str) -> dict[str, Any]:
    """Return the part of a message with such data, of the media type that it came with, or that its format means."""
    own = as_object(message.metadata.get("gemini"))
    format = message.format or ""
    kind = f"image/{format.removeprefix('base64.')}" if message.type == "image" else f"audio/{format}"
    return {
        **own,
        "inlineData": {"mimeType": _MEDIA_TYPES.get(format, kind), **as_object(own.get("inlineData")), "data": data},
    }


def _grounded(annotation: Annotation, content: str, before: int) -> dict[str, Any]:
    """Return the source of a citation, and its segment of the text; {} for one without a place."""
    source = {"web": without_keys({"uri": annotation.url, "title": annotation.title})}
    start, end = annotation.start, annotation.end
    segment: dict[str, Any] = {}
    if start is not None and end is not None:
        begins, ends = (before + len(content[:place].encode("utf-8", "surrogatepass")) for place in (start, end))
        segment = {"startIndex": begins, "endIndex": ends, "text": annotation.quote or content[start:end]}
    return {"groundingChunk": source, "segment": segment}


def _error(error: WireObject) -> dict[str, Any]:
    """Return an error whose code is an HTTP status, which Google's client reads as a number."""
    code = str(error.get("code") or "")
    is_status = code.isascii() and code.isdigit() and len(code) == 3
    name = as_text(error.get("status")) or ("" if is_status else code) or "INTERNAL"
    return {**error, "code": int(code) if is_status else 500, "status": name}


def _usage(usage: Usage) -> dict[str, Any]:
    """Return token counts under Gemini's names, which have no underscores. It counts thoughts, and what its tools put into the
    request, apart."""
    details = {key: value for key, value in usage.details.items() if "_" not in key}
    for key, count, name in _FOREIGN_COUNTS:
        if (number := as_count(as_object(usage.details.get(key)).get(count))) is not None:
            details[name] = number
    tool_use, thoughts = (as_count(details.get(key)) or 0 for key in ("toolUsePromptTokenCount", "thoughtsTokenCount"))
    return {
        "promptTokenCount": max(usage.input_tokens - tool_use, 0),
        "candidatesTokenCount": max(usage.output_tokens - thoughts, 0),
        "totalTokenCount": usage.total_tokens,
        **details,
    }
