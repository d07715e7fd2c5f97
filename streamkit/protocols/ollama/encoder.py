"""Encodes events as Ollama's lines of a chat. The table of `Encoder` states what the protocol cannot express."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...events import Delta, Done, Event, Run, RunCreated, RunDone, StreamException, Usage
from ...messages import ImageMessage, ReasoningMessage, RefusalMessage, TextMessage, ToolCallMessage
from .. import base
from ..dates import date_of
from ..values import as_list, as_object, as_text, without
from .wire import COUNTS, own_fields

__all__ = ["Encoder"]

_REASONS = {"max_output_tokens": "length", "max_tokens": "length", "model_length": "length", "length": "length"}


class Encoder(base.Encoder):
    """Events as the lines of a chat, the counts in the last one.

    | canonical | here |
    |---|---|
    | the assistant's text, its refusal | `message.content` |
    | its reasoning | `message.thinking` |
    | its tool calls | `message.tool_calls`, each in one piece, once it is done |
    | the input of a custom tool, which is text | an object with it as `input` |
    | calls that are not completed, calls with arguments that are no JSON object | left out: a reader would make them |
    | its images in base64 | `message.images`, without their format |
    | several texts with nothing between them | one: they are joined; so are reasonings |
    | logprobs in a delta's `metadata` | `logprobs` |
    | a run's model, created_at, metadata | the same; each line has the model and the time |
    | its usage | `prompt_eval_count`, `eval_count`; other counts are left out |
    | its finish_reason | `length` if incomplete, the reason of a model that was loaded, else `stop` |
    | a failed run, a failed stream | a line with `error` |
    | a `replace` delta | left out: what was sent cannot be taken back |
    | ids of messages and of the run, choices, annotations, other metadata of messages | left out |
    | code, console, tool outputs, other images, files, audio, provider-executed calls, other roles and types | left out |
    | confirmations, active lines, steps, warnings, statuses of single messages | left out |
    """

    name = "ollama"
    choices = False
    in_lines = True
    sse_ids = False

    def __init__(self) -> None:
        self._run = Run()
        self._usage: Usage | None = None
        self._is_over = False

    def feed(self, event: Event) -> Iterator[dict[str, Any]]:
        """Yield the lines of one event: none for what Ollama cannot express."""
        match event:
            case RunCreated(run=run):
                self._run = run
            case Usage():
                self._usage = event
            case Delta(snapshot=ReasoningMessage(role="assistant"), replace=False) if event.value:
                yield self._line(event, thinking=event.value)
            case Delta(snapshot=TextMessage(role="assistant") | RefusalMessage(), replace=False):
                if event.value or event.metadata:
                    yield self._line(event, content=event.value)
            case Done(message=ToolCallMessage(provider_executed=False, status="completed") as call) if (
                not call.malformed
            ):
                yield self._line(None, tool_calls=[wire_call(call, call.call_id)])
            case Done(message=ImageMessage(role="assistant") as image) if (image.format or "").startswith("base64."):
                yield self._line(None, images=[image.content])
            case RunDone(run=run):
                yield from self._end(run)
            case StreamException(message=message) if not self._is_over:
                self._is_over = True
                yield {"error": message}
            case _:
                pass

    def _line(self, event: Delta | None, **message: Any) -> dict[str, Any]:
        """Return a line with a piece of the message, and what came along with it."""
        logprobs = as_list((event.metadata or {}).get("logprobs")) if event is not None else ()
        more = {"logprobs": logprobs} if logprobs else {}
        return {**self._head(), "message": {"role": "assistant", "content": "", **message}, "done": False, **more}

    def _head(self) -> dict[str, Any]:
        time = date_of(self._run.created_at).replace("+00:00", "Z")
        return {"model": self._run.model or "", "created_at": time}

    def _end(self, run: Run) -> Iterator[dict[str, Any]]:
        self._is_over = True
        if run.status in ("failed", "expired"):
            message = as_text((run.error or {}).get("message")) or f"the run ended as {run.status}"
            yield {**(run.error or {}), "error": message}
            return
        line = {**self._head(), "message": {"role": "assistant", "content": ""}, "done": True}
        by_status = "length" if run.status == "incomplete" else "stop"
        stated = as_text(run.metadata.get("done_reason"))
        line["done_reason"] = stated or _REASONS.get(run.finish_reason or "", by_status)
        if (usage := run.usage or self._usage) is not None:
            counts = zip(COUNTS, (usage.input_tokens, usage.output_tokens), strict=True)
            line |= {key: count for key, count in counts if count}
        yield {**without(run.metadata, {*line, "error"}), **line}


def wire_call(call: ToolCallMessage, id: str | None) -> dict[str, Any]:
    """Return a call as Ollama sends and takes it, with what it had beside its name and arguments when it came from there."""
    own = own_fields(call)
    is_text = bool(call.metadata.get("custom"))
    arguments = {"input": call.content} if is_text else call.arguments
    function = {**as_object(own.pop("function", None)), "name": call.name or "", "arguments": arguments}
    return {**own, **({"id": id} if id else {}), "function": function}
