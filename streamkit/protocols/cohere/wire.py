"""The fields of Cohere's events that other protocols do not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from ...messages import Annotation, Message
from ..values import WireObject, as_count, as_list, as_object, as_objects, as_text, text_or_none, without_keys

__all__ = ["FAILED", "KEY", "REASONS", "PlainDelta", "as_stream", "citation_of", "counts_of", "first_object", "is_plan"]

KEY = "cohere"
"""The key of a message's metadata at which reasoning of Cohere's has what it is."""

REASONS = {"COMPLETE": "stop", "STOP_SEQUENCE": "stop", "TOOL_CALL": "tool_calls", "MAX_TOKENS": "length"}
"""The canonical word for each finish_reason."""

FAILED = ("ERROR", "TIMEOUT")
"""The finish_reasons of answers that failed. There is no other report of that in a stream."""


class _Content(msgspec.Struct, gc=False):
    text: str | None = None
    thinking: str | None = None


class _PlainFunction(msgspec.Struct, gc=False):
    arguments: str


class _Call(msgspec.Struct, gc=False):
    function: _PlainFunction


class _Message(msgspec.Struct, gc=False):
    content: _Content | None = None
    tool_calls: _Call | None = None
    tool_plan: str | None = None


class _Delta(msgspec.Struct, gc=False):
    message: _Message


class PlainDelta(msgspec.Struct, gc=False):
    """One piece of a text, of reasoning, of a plan or of a call's arguments."""

    type: Literal["content-delta", "tool-call-delta", "tool-plan-delta"]
    delta: _Delta
    index: int = 0
    logprobs: None = None


def is_plan(message: Message) -> bool:
    """Whether reasoning is a plan of Cohere's: what the model is about to do with its tools."""
    return as_object(message.metadata.get(KEY)).get("tool_plan") is True


def first_object(value: Any) -> WireObject:
    """Return an object, or the first of a list, as which early versions sent it."""
    found = as_objects(value)
    return found[0] if found else as_object(value)


def counts_of(value: Any) -> dict[str, Any]:
    """Return the counts in an object, and those of objects in it. The SDK makes fractions of them."""
    counts: dict[str, Any] = {}
    for key, count in as_object(value).items():
        whole = int(count) if isinstance(count, float) and count.is_integer() else count
        found = counts_of(count) if as_object(count) else as_count(whole)
        if found is not None:
            counts[key] = found
    return counts


def citation_of(wire: WireObject) -> Annotation:
    """Return a citation, with the title and the address of its first source. Where it begins and ends is counted in characters."""
    sources = as_objects(wire.get("sources"))
    document = as_object(sources[0].get("document") if sources else None)
    return Annotation(
        type=as_text(wire.get("type")) or "citation",
        url=text_or_none(document.get("url")),
        file_id=next((text_or_none(source.get("id")) for source in sources), None),
        title=text_or_none(document.get("title")),
        quote=text_or_none(wire.get("text")),
        start=as_count(wire.get("start")),
        end=as_count(wire.get("end")),
        raw=dict(wire),
    )


def as_stream(answer: WireObject) -> Iterator[WireObject]:
    """Yield the events of a stream that says what an answer without a stream says."""
    message = as_object(answer.get("message"))
    yield {**answer, "type": "message-start", "delta": {}}
    for index, block in enumerate(as_objects(message.get("content"))):
        yield _event("content-start", index, content=block)
    if plan := message.get("tool_plan"):
        yield _event("tool-plan-delta", None, tool_plan=plan)
    for index, call in enumerate(as_objects(message.get("tool_calls"))):
        yield _event("tool-call-start", index, tool_calls=call)
        yield {"type": "tool-call-end", "index": index}
    for index, citation in enumerate(as_list(message.get("citations"))):
        yield _event("citation-start", index, citations=citation)
    yield {"type": "message-end", "delta": without_keys(answer, "id", "message")}


def _event(type: str, index: int | None, **message: Any) -> WireObject:
    event = {"type": type, "delta": {"message": message}}
    return event if index is None else {**event, "index": index}
