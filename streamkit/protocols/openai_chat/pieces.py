"""Reads one choice of a typed chunk: a piece of a message, or the end of the choice.

A function returns None for what it does not read, before it has changed anything. The tolerant path reads that then, and
shares the open messages with these functions. Both give the same events.
"""

from __future__ import annotations

from typing import Any

from ...events import Event, ReasoningDelta, RefusalDelta, TextDelta, ToolCallDelta
from ..values import as_count
from .choice import Choice
from .typed_chunk import Delta, PlainDelta, PlainToolCall, TypedChoice

__all__ = ["call_event", "event_with_logprobs", "extended_event", "has_other_piece", "plain_event", "read_other_piece"]

# After so many deltas of which something is held, one takes the tolerant path, which reports the size of what is held.
_MOST_UNREPORTED = 64
_THINKING = {"type": "thinking", "thinking": [None]}  # a part of the content without its text


def plain_event(choice: Choice, delta: PlainDelta, data: bytes) -> Event | None:
    """The event of a plain delta, None if it does more than extend one open message."""
    if delta.tool_calls:
        return _fragment_event(choice, delta, delta.tool_calls[0], data)
    if reasoning := delta.reasoning_content or delta.reasoning:
        id = choice.open_reasoning_id
        is_more = delta.content or _is_new_key(choice, delta)
        return ReasoningDelta(id, reasoning, raw_item=data) if id is not None and not is_more else None
    if delta.content and choice.open_text_id is not None:
        return TextDelta(choice.open_text_id, delta.content, raw_item=data)
    return None


def _is_new_key(choice: Choice, delta: PlainDelta) -> bool:
    """Whether the reasoning comes under a key that its message does not note yet."""
    keys = choice.open_reasoning_keys
    if delta.reasoning_content and "reasoning_content" not in keys:
        return True
    return bool(delta.reasoning) and "reasoning" not in keys


def _fragment_event(choice: Choice, delta: PlainDelta | Delta, fragment: PlainToolCall, data: bytes) -> Event | None:
    """As `call_event`, of a delta that may have more."""
    if delta.content or delta.reasoning_content or delta.reasoning:
        return None
    return call_event(choice, fragment.index, fragment.id, fragment.function.arguments, data)


def call_event(choice: Choice, index: int, id: str | None, arguments: str, item: Any) -> Event | None:
    """The event of a fragment of an open call's arguments, None if it does more than extend them."""
    call = choice.tool_calls.by_index.get(index)
    if call is None or call.message_id is None or choice.is_reasoning:
        return None
    if not arguments or (id and id != call.call_id):
        return None
    choice.tool_calls.latest = call
    return ToolCallDelta(call.message_id, arguments, raw_item=item)


def extended_event(choice: Choice, wire: TypedChoice, data: bytes) -> Event | None:
    """The event of a typed chunk's choice that is one piece of an open message, None if it does more than extend that."""
    delta = wire.delta
    if delta.tool_calls:
        is_alone = not (delta.refusal or delta.reasoning_details)
        return _fragment_event(choice, delta, delta.tool_calls[0], data) if is_alone else None
    content, details = delta.content, delta.reasoning_details
    reasoning = delta.reasoning_content or delta.reasoning
    if details or reasoning:
        id = choice.open_reasoning_id
        keys = choice.open_reasoning_keys
        if content or delta.refusal or id is None or not reasoning:
            return None
        if (delta.reasoning and "reasoning" not in keys) or (
            delta.reasoning_content and "reasoning_content" not in keys
        ):
            return None
        if details:
            messages = choice.messages
            if messages.unreported >= _MOST_UNREPORTED:
                return None
            if len(details) == 1 and messages.growing_detail.take(details[0]):
                messages.unreported += 1
                return ReasoningDelta(id, reasoning, raw_item=data)
            for detail in details:
                if "signature" in detail or "data" in detail:
                    return None
            messages.add_returned_pieces("reasoning", "reasoning_details", details)
        return ReasoningDelta(id, reasoning, raw_item=data)
    if not content:
        id = choice.open_refusal_id
        return RefusalDelta(id, delta.refusal, raw_item=data) if delta.refusal and id is not None else None
    if delta.refusal:
        return None
    if isinstance(content, str):
        return TextDelta(choice.open_text_id, content, raw_item=data) if choice.open_text_id is not None else None
    thinking = content[0].thinking
    if len(thinking) != 1 or choice.open_reasoning_keys.get("content") != _THINKING or not thinking[0].text:
        return None
    id = choice.open_reasoning_id
    return ReasoningDelta(id, thinking[0].text, raw_item=data) if id is not None else None


def event_with_logprobs(choice: Choice, wire: TypedChoice, data: bytes, same_metadata: bool) -> Event | None:
    """As `extended_event`, for a choice that has log probabilities of its text. `same_metadata`: whether the run's metadata has the
    chunk's changing fields already."""
    logprobs, delta = wire.logprobs, wire.delta
    if logprobs is None or not logprobs.content:
        return extended_event(choice, wire, data) if logprobs is None or not logprobs.refusal else None
    id, content = choice.open_text_id, delta.content
    if id is None or not same_metadata or logprobs.refusal or not content or not isinstance(content, str):
        return None
    if delta.tool_calls or delta.reasoning or delta.reasoning_content or delta.refusal or delta.reasoning_details:
        return None  # more than a piece of text
    if choice.messages.unreported >= _MOST_UNREPORTED:
        return None
    tokens = logprobs.content
    choice.messages.extend_logprobs(tokens)
    return TextDelta(id, content, False, {"logprobs": tokens}, raw_item=data)


def has_other_piece(wire: TypedChoice) -> bool:
    """Whether a choice has another piece than plain text, or log probabilities."""
    delta = wire.delta
    return bool(
        delta.tool_calls
        or delta.reasoning_content
        or delta.reasoning
        or delta.reasoning_details
        or delta.refusal
        or wire.logprobs is not None
        or isinstance(delta.content, tuple)
    )


def read_other_piece(choice: Choice, wire: TypedChoice) -> list[Event] | None:
    """The events of a choice of which `has_other_piece` holds, without those of its finish_reason. None if the tolerant path has
    to read it, because it has several pieces, or neither a piece nor a finish_reason."""
    if not choice.takes_pieces:
        return None
    delta, reason = wire.delta, wire.finish_reason
    if delta.tool_calls:
        if delta.refusal or delta.reasoning_details or wire.logprobs or reason:
            return None
        if delta.content or delta.reasoning_content or delta.reasoning:
            return None
        fragment = delta.tool_calls[0]
        event = call_event(choice, fragment.index, fragment.id, fragment.function.arguments, None)
        return _begin_call(choice, delta, fragment) if event is None else [event]
    found = _piece_of(delta)
    if found is None:
        return None
    kind, text = found
    tokens = _tokens_of(wire, kind)
    if tokens is None or not (text or (reason and not delta.reasoning_details)):
        return None
    messages = choice.messages
    if kind == "reasoning" and "redacted" in messages.ids:
        return None
    if not messages.role:
        messages.take_role(delta.role)
    if kind == "reasoning":
        messages.add_returned("reasoning", _returned_fields(delta))
    events = messages.append(kind, text)
    if tokens:
        _attach(tokens, events[-1])
        messages.extend_metadata(kind, "logprobs", tokens)
    if delta.reasoning_details:
        messages.add_returned_pieces("reasoning", "reasoning_details", delta.reasoning_details)
    choice.update_fast_path()
    return events


def _begin_call(choice: Choice, delta: Delta, fragment: PlainToolCall) -> list[Event] | None:
    """The events of the first fragment of a call that has an index, an id and a name, as calls mostly have."""
    name, id, index = fragment.function.name, fragment.id, fragment.index
    if not (name and id) or index in choice.tool_calls.by_index or as_count(index) is None:
        return None
    if not choice.messages.role:
        choice.messages.take_role(delta.role)
    # Otherwise the call changes nothing of what the fast path may do.
    changes_fast_path = choice.is_reasoning or choice.messages.unreported
    events = choice.begin_call(index, id, name, fragment.function.arguments)
    if changes_fast_path:
        choice.update_fast_path()
    return events


def _piece_of(delta: Delta) -> tuple[str, str] | None:
    """The kind and the text of a delta's one piece, ("", "") if it has none, and None if it has several."""
    content = "" if isinstance(delta.content, tuple) else delta.content
    if not (delta.reasoning_content or delta.reasoning or delta.reasoning_details or content is not delta.content):
        if delta.refusal:
            return None if content else ("refusal", delta.refusal)
        return ("text", content) if content else ("", "")
    reasoning = _reasoning_of(delta)
    found = [(k, t) for k, t in (("reasoning", reasoning), ("text", content), ("refusal", delta.refusal)) if t]
    if reasoning is None or len(found) > 1:
        return None
    return found[0] if found else ("", "")


def _reasoning_of(delta: Delta) -> str | None:
    """The text of a delta's reasoning, None if it has something else about it."""
    text, details = delta.reasoning_content or delta.reasoning or "", delta.reasoning_details
    if isinstance(delta.content, tuple):
        return None if text or details else "".join(part.text for part in delta.content[0].thinking) or None
    if not details:
        return text
    if any(detail.get("signature") or detail.get("data") for detail in details):
        return None
    texts = [detail.get("text") or detail.get("summary") for detail in details]
    return text or ("".join(filter(None, texts)) if all(isinstance(text, str | None) for text in texts) else None)


def _returned_fields(delta: Delta) -> dict[str, Any]:
    """What goes back with the reasoning, for the place of its text."""
    fields: dict[str, Any] = {key: None for key in ("reasoning_content", "reasoning") if getattr(delta, key)}
    if isinstance(delta.content, tuple):
        fields["content"] = _THINKING
    return fields


def _tokens_of(wire: TypedChoice, kind: str) -> list[Any] | None:
    """The log probabilities of a piece's tokens, None if there are any of something else."""
    logprobs = wire.logprobs
    if logprobs is None:
        return []
    if kind == "text":
        return None if logprobs.refusal else logprobs.content or []
    if kind == "refusal":
        return None if logprobs.content else logprobs.refusal or []
    return None if logprobs.content or logprobs.refusal else []


def _attach(tokens: list[Any], delta: Any) -> None:
    """Give the log probabilities of its tokens to a delta."""
    delta.metadata = {"logprobs": tokens}
