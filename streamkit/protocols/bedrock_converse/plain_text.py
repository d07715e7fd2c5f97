"""The bodies of models that InvokeModelWithResponseStream had before Converse, as Converse's events: plain text and no more.

Titan's, Llama's, those of Cohere's old Command, and of Claude's old text completions. A finish reason stays the model's own word. An
answer of several texts has one for each index; they are choices.
Documented at https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters.html.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...messages import Status
from ..values import WireObject, as_object, as_text, without_keys

__all__ = ["STATUS_OF_REASON", "as_converse", "is_plain_text"]

STATUS_OF_REASON: dict[str, Status] = {
    **dict.fromkeys(("LENGTH", "length", "MAX_TOKENS"), "incomplete"),
    **dict.fromkeys(("CONTENT_FILTERED", "ERROR_TOXIC"), "incomplete"),
    "ERROR": "failed",
}
"""The status that a finish reason gives to an answer, beside Converse's. Any other means `completed`."""

_METRICS, _TRACE = "amazon-bedrock-invocationMetrics", "amazon-bedrock-trace"
_COUNTS = {"inputTokenCount": "inputTokens", "outputTokenCount": "outputTokens"}


class _Body(NamedTuple):
    """The keys of a model family's objects: of the text, of the finish reason, and those that all of them have."""

    text: str
    reason: str
    always: frozenset[str]


_BODIES = (
    _Body("outputText", "completionReason", frozenset({"outputText", "index"})),  # Titan
    _Body("generation", "stop_reason", frozenset({"generation", "generation_token_count"})),  # Llama
    _Body("text", "finish_reason", frozenset({"is_finished"})),  # Cohere
    _Body("completion", "stop_reason", frozenset({"completion", "stop_reason"})),  # Claude
)


def _body_of(item: WireObject) -> _Body | None:
    if "event_type" in item:
        return None  # of Cohere's chat, whose events have `is_finished`, too
    return next((body for body in _BODIES if body.always <= item.keys()), None)


def is_plain_text(item: WireObject) -> bool:
    """Whether it is an object of such a body."""
    return _body_of(item) is not None


def as_converse(item: WireObject) -> WireObject:
    """Return an object of such a body as Converse's events; any other item as it is."""
    body = _body_of(item)
    if body is None:
        return item
    index = item.get("index") or 0
    events: dict[str, Any] = {}
    if item.get(body.text) is not None:
        delta = {"text": item[body.text]}
        events["contentBlockDelta"] = {"contentBlockIndex": index, "choice": index, "delta": delta}
    reason = as_text(item.get(body.reason)) or ("guardrail_intervened" if _TRACE in item else "")
    if reason:
        events["messageStop"] = {"stopReason": reason}
    if metrics := as_object(item.get(_METRICS)):
        usage = {name: metrics[key] for key, name in _COUNTS.items() if key in metrics}
        events["metadata"] = {"usage": usage, "metrics": without_keys(metrics, *_COUNTS)}
    if _TRACE in item:
        events.setdefault("metadata", {})["trace"] = item[_TRACE]
    return events or {"contentBlockDelta": {"contentBlockIndex": index, "delta": {}}}
