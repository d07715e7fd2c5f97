"""Encodes events as legacy Completions chunks. The table of `Encoder` states what the protocol cannot express."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...events import Event, Run, RunCreated, RunDone, StreamException, TextDelta, Usage
from ...messages import TextMessage
from .. import base
from ..values import as_object

__all__ = ["Encoder"]

_FINISH_REASONS = {
    **{reason: reason for reason in ("stop", "length", "content_filter")},
    **dict.fromkeys(("max_output_tokens", "max_tokens", "model_length"), "length"),
}


class Encoder(base.Encoder):
    """Events as `text_completion` items, the usage last, in a chunk without choices.

    | canonical | here |
    |---|---|
    | the assistant's text | `text` of its choice |
    | several texts of one choice | one: they are joined |
    | legacy logprobs in a delta's `metadata` | `logprobs` |
    | a run's id, model, created_at, usage | the same |
    | its finish_reason(s) | the same, or the word for it here: `max_output_tokens` is `length` |
    | any other finish_reason, or none | `length` if the run is incomplete, else `stop` |
    | a failed run, a failed stream | `{"error": …}`, which is not a chunk |
    | a `replace` delta | left out: what was sent cannot be taken back |
    | every other message: reasoning, calls, outputs, code, console, refusals, other roles | left out |
    | annotations, confirmations, steps, warnings, statuses of single messages, other `metadata` | left out |
    """

    name = "openai_completions"
    sse_ids = False
    done = b"[DONE]"

    def __init__(self) -> None:
        self._run = Run()
        self._usage: Usage | None = None
        self._choices: set[int] = set()
        self._has_failed = False

    def feed(self, event: Event) -> Iterator[dict[str, Any]]:
        """Yield the chunks of one event: none for what legacy Completions cannot express."""
        match event:
            case RunCreated(run=run):
                self._run = run
            case Usage():
                self._usage = event
            case TextDelta(snapshot=TextMessage(role="assistant") as message, replace=False):
                self._choices.add(message.choice)
                logprobs = as_object((event.metadata or {}).get("logprobs"))
                yield self._chunk(self._choice(message.choice, event.value, logprobs=dict(logprobs) or None))
            case RunDone(run=run):
                self._run = run
                yield from self._end(run)
            case StreamException(error=name, message=text) if not self._has_failed:
                self._has_failed = True
                yield {"error": {"message": text, "type": name}}
            case _:
                pass

    def _choice(self, index: int, text: str, **fields: Any) -> dict[str, Any]:
        return {"text": text, "index": index, "logprobs": None, "finish_reason": None, **fields}

    def _chunk(self, *choices: dict[str, Any], **fields: Any) -> dict[str, Any]:
        run = self._run
        head = {"id": run.id, "object": "text_completion", "created": int(run.created_at or 0)}
        return {**head, "choices": [*choices], "model": run.model or "", **fields}

    def _end(self, run: Run) -> Iterator[dict[str, Any]]:
        if run.status in ("failed", "expired"):
            self._has_failed = True
            yield {"error": {"message": f"the run ended as {run.status}", **(run.error or {})}}
            return
        choices = sorted(self._choices) or [0]
        reasons = {str(choices[0]): run.finish_reason, **as_object(run.metadata.get("finish_reasons"))}
        by_status = "length" if run.status == "incomplete" else "stop"
        for index in choices:
            reason = _FINISH_REASONS.get(str(reasons.get(str(index))), by_status)
            yield self._chunk(self._choice(index, "", finish_reason=reason))
        usage = run.usage or self._usage
        if usage is not None:
            counts = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
            yield self._chunk(usage={**usage.details, **counts, "total_tokens": usage.total_tokens})
