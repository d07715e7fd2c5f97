"""How many deltas of a stream leave the fast path of their decoder, and what the others cost in it.

A delta is slow if the tolerant path of its decoder made it, which parses the entire item. `VARIANTS` has streams as
different providers send them: all of their deltas, but for the first ones, are to be fast. What a delta costs is counted
in bytecode instructions of the decoder alone, for which the rest of the way of a delta is the same everywhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import streamkit as sk
from streamkit import protocols
from streamkit.events import Delta, Event
from streamkit.protocols.framing import Frame, framer_for

from .opcodes import opcodes

__all__ = [
    "LIMIT",
    "MOST_OPCODES",
    "VARIANTS",
    "DeltaItem",
    "delta_items",
    "frames_in",
    "items_of_recordings",
    "opcodes_to_a_hook",
    "slow_share",
]

MOST_OPCODES = 290
"""Of the decoder, and of counting, for an item that is one delta. The rest of its way to a hook takes about 200, and the
limit (splitting, a typed decode, one call, one append: `tests/benchmarks/parsing.py`) 73 in all. Most variants take less than
250; the most is of those whose chunks hold more for the way back, which is measured. Each item is fed alone here."""

LIMIT = 73
"""Instructions of the limit for a delta, from bytes to a hook."""


class DeltaItem(NamedTuple):
    """An item of a stream that gave a delta.

    Attributes:
        deltas: how many it gave.
        slow: how many of them the tolerant path made.
        is_alone: whether it gave nothing else, such as the beginning of a message, or usage.
        opcodes: what it cost in the decoder.
        data: the item.
    """

    deltas: int
    slow: int
    is_alone: bool
    opcodes: int
    data: bytes


def delta_items(protocol: str, body: bytes) -> list[DeltaItem]:
    """The items of a body that give deltas, each fed alone, as a server that flushes each of them sends them."""
    decoder: protocols.Decoder = protocols.find(protocol).Decoder()
    framer = framer_for(body)
    assert framer is not None
    framer.expect_names(decoder.sse_event_names)
    found: list[DeltaItem] = []
    for frame in [*framer.feed(body), *framer.finish()]:
        events: list[Event] = []
        count = opcodes(_feed, decoder, frame, events)
        deltas = [event for event in events if isinstance(event, Delta)]
        if deltas:
            slow = sum(event.item_index is not None for event in deltas)  # the fast path leaves it out
            data = frame if isinstance(frame, bytes) else frame[2]
            found.append(DeltaItem(len(deltas), slow, len(events) == len(deltas), count, data))
    return found


def frames_in(body: bytes) -> list[bytes]:
    """The data of a body's events."""
    return [block.rpartition(b"data: ")[2] for block in body.split(b"\n\n")[:-1]]


class _Texts(sk.EventHandler):
    def __init__(self) -> None:
        self.parts: list[str] = []

    def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        self.parts.append(delta.value)

    def on_reasoning_delta(self, delta: sk.ReasoningDelta, snapshot: sk.ReasoningMessage) -> None:
        self.parts.append(delta.value)


def opcodes_to_a_hook(protocol: str, body: bytes) -> float:
    """What a delta of a body costs on its whole way to a hook, in pieces of 2 KB."""
    blocks = [block + b"\n\n" for block in body.split(b"\n\n")[:-1]]

    def run(count: int) -> int:
        whole, handler = b"".join(blocks[:count]), _Texts()
        pieces = [whole[place : place + 2048] for place in range(0, len(whole), 2048)]

        def read() -> None:
            with contextlib.suppress(sk.IncompleteStreamError):
                sk.stream(pieces, handler, protocol=protocol).until_done()

        spent = opcodes(read)
        assert len(handler.parts) >= count - 2
        return spent

    few = len(blocks) // 2
    run(few)
    return (run(len(blocks)) - run(few)) / (len(blocks) - few)


def _feed(decoder: protocols.Decoder, frame: Frame | bytes, events: list[Event]) -> None:
    events.extend(decoder.feed_frames([frame]))


def items_of_recordings(protocol: str, paths: Iterable[Path]) -> list[DeltaItem]:
    """The same of all these recordings."""
    return [item for path in paths for item in delta_items(protocol, path.read_bytes())]


def slow_share(items: Iterable[DeltaItem]) -> float:
    """Which part of the deltas is slow, from 0 to 1."""
    found = list(items)
    return sum(item.slow for item in found) / max(1, sum(item.deltas for item in found))


# -- streams of single providers

_COUNT = 40  # deltas in each
_FILTERED = {name: {"filtered": False, "severity": "safe"} for name in ("hate", "self_harm", "sexual", "violence")}


def _sse(items: Iterable[Any], names: Iterable[str] = ()) -> bytes:
    heads = [f"event: {name}\n".encode() for name in names]
    blocks = [b"data: " + msgspec.json.encode(item) + b"\n\n" for item in items]
    return b"".join(map(bytes.__add__, heads, blocks)) if heads else b"".join(blocks)


def _chat(delta: Mapping[str, Any], choice: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    whole = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, **(choice or {})}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [whole], **fields}


def _chats(
    delta: Mapping[str, Any],
    choice: Mapping[str, Any] | None = None,
    first: Mapping[str, Any] | None = None,
    **fields: Any,
) -> bytes:
    """A stream of such deltas, in chunks with these fields. A callable one is called with the chunk's number."""
    begin: Mapping[str, Any] = {"role": "assistant", "content": "", **(first or {})}

    def at(number: int, values: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value(number) if callable(value) else value for key, value in values.items()}

    chunks = [_chat(delta, at(number, choice or {}), **at(number, fields)) for number in range(_COUNT)]
    return _sse([_chat(begin), *chunks])


def _tokens(number: int) -> dict[str, Any]:
    token = {"token": "a", "logprob": -0.5 - number, "bytes": [97], "top_logprobs": []}
    return {"content": [token], "refusal": None}


def _usage(number: int) -> dict[str, int]:
    return {"prompt_tokens": 9, "completion_tokens": number, "total_tokens": 9 + number}


def _detailed_usage(number: int) -> dict[str, Any]:
    details = {"completion_tokens_details": {"reasoning_tokens": number}, "prompt_tokens_details": {"cached_tokens": 0}}
    return {**_usage(number), **details}


def _call(**function: Any) -> dict[str, Any]:
    named = {"id": "t", "type": "function"} if "name" in function else {}
    return {"tool_calls": [{"index": 0, **named, "function": function}]}


def _responses(item: Mapping[str, Any], stem: str, *, part: Mapping[str, Any] | None = None, **fields: Any) -> bytes:
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": "r", "object": "response", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
    ]
    if part is not None:
        events.append({"type": "response.content_part.added", **place, "part": part})
    delta = {"type": f"response.{stem}.delta", **place, "delta": "ab", **fields}
    events += [{key: value for key, value in delta.items() if value is not None}] * _COUNT
    return _sse(
        [{**event, "sequence_number": number} for number, event in enumerate(events)],
        [event["type"] for event in events],
    )


def _anthropic(block: Mapping[str, Any], *deltas: Mapping[str, Any]) -> bytes:
    start: dict[str, Any] = {
        "type": "message_start",
        "message": {"id": "m", "type": "message", "role": "assistant", "content": []},
    }
    items: list[dict[str, Any]] = [start, {"type": "content_block_start", "index": 0, "content_block": block}]
    pieces = [*deltas, *[deltas[-1]] * (_COUNT - len(deltas))]
    items += [{"type": "content_block_delta", "index": 0, "delta": delta} for delta in pieces]
    return _sse(items, [item["type"] for item in items])


def _step(entry: Mapping[str, Any], first: Mapping[str, Any]) -> bytes:
    deltas = [{"index": 0, **first}, *[{"index": 0, **entry}] * _COUNT]
    details = [{"type": "tool_calls", "tool_calls": [delta]} for delta in deltas]
    items = [{"id": "s", "object": "thread.run.step.delta", "delta": {"step_details": detail}} for detail in details]
    return _sse(items, ["thread.run.step.delta"] * len(items))


def _letta(**fields: Any) -> bytes:
    item = {"id": "message-1", "otid": "o", "step_id": "step-1", "run_id": "run-1", "date": "2026-01-01T00:00:00Z"}
    return _sse([{**item, "seq_id": number, **fields} for number in range(_COUNT)])


_TEXT: dict[str, Any] = {"content": "ab"}
_MESSAGE: dict[str, Any] = {"id": "i", "type": "message", "status": "in_progress", "role": "assistant", "content": []}
_OUTPUT_TEXT: dict[str, Any] = {"type": "output_text", "text": "", "annotations": []}
_PART: dict[str, Any] = {"index": 0, "type": "text", "text": {"value": "a", "annotations": []}}
_MESSAGE_DELTA: dict[str, Any] = {"id": "m", "delta": {"content": [_PART]}}
_LOGPROBS = [{"token": "ab", "logprob": -0.5, "bytes": [97, 98], "top_logprobs": []}]

VARIANTS: dict[str, tuple[str, bytes]] = {
    "chat": ("openai_chat", _chats(_TEXT, usage=None, service_tier="default", obfuscation="x")),
    "chat, Azure without findings": ("openai_chat", _chats(_TEXT, {"content_filter_results": {}})),
    "chat, Azure": ("openai_chat", _chats(_TEXT, {"content_filter_results": _FILTERED})),
    "chat, usage in each chunk": (
        "openai_chat",
        _chats(_TEXT, usage=_usage),
    ),
    "chat, usage with details in each chunk": ("openai_chat", _chats(_TEXT, usage=_detailed_usage)),
    "chat, the same usage in each chunk": ("openai_chat", _chats(_TEXT, usage={"prompt_tokens": 9})),
    "chat, log probabilities": ("openai_chat", _chats(_TEXT, {"logprobs": _tokens})),
    "chat, empty log probabilities": ("openai_chat", _chats(_TEXT, {"logprobs": {"content": None, "refusal": None}})),
    "chat, Perplexity": (
        "openai_chat",
        _chats(_TEXT, citations=["https://a.example"], search_results=[{"title": "a"}]),
    ),
    "chat, Groq": ("openai_chat", _chats(_TEXT, x_groq={"id": "req"})),
    "chat, empty lists": ("openai_chat", _chats({**_TEXT, "tool_calls": [], "annotations": [], "refusal": ""})),
    "chat, empty finish_reason": ("openai_chat", _chats(_TEXT, {"finish_reason": ""})),
    "chat, message beside delta": ("openai_chat", _chats(_TEXT, {"message": _TEXT})),
    "chat, unknown keys": ("openai_chat", _chats({**_TEXT, "channel": "a"}, {"token_ids": None}, sla_metrics={"a": 1})),
    "chat, reasoning": ("openai_chat", _chats({"reasoning_content": "ab", "content": None})),
    "chat, OpenRouter's reasoning": (
        "openai_chat",
        _chats(
            {
                "content": "",
                "reasoning": "a",
                "reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0}],
            },
            {"native_finish_reason": None},
            provider="a",
        ),
    ),
    "chat, Mistral's reasoning": (
        "openai_chat",
        _chats({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}]}),
    ),
    "chat, refusal": ("openai_chat", _chats({"refusal": "ab"})),
    "chat, arguments": ("openai_chat", _chats(_call(arguments='{"a'), first=_call(name="f", arguments=""))),
    "responses": ("openai_responses", _responses(_MESSAGE, "output_text", part=_OUTPUT_TEXT, logprobs=[])),
    "responses, log probabilities": (
        "openai_responses",
        _responses(_MESSAGE, "output_text", part=_OUTPUT_TEXT, logprobs=_LOGPROBS),
    ),
    "responses, arguments": (
        "openai_responses",
        _responses({"id": "i", "type": "function_call", "name": "f", "call_id": "c"}, "function_call_arguments"),
    ),
    "responses, shell": (
        "openai_responses",
        _responses(
            {"id": "i", "type": "shell_call", "call_id": "c"}, "shell_call_command", item_id=None, command_index=0
        ),
    ),
    "anthropic": ("anthropic", _anthropic({"type": "text", "text": ""}, {"type": "text_delta", "text": "ab"})),
    "anthropic, thinking": (
        "anthropic",
        _anthropic({"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": "ab"}),
    ),
    "anthropic, arguments": (
        "anthropic",
        _anthropic(
            {"type": "tool_use", "id": "t", "name": "f", "input": {}},
            {"type": "input_json_delta", "partial_json": "[1,"},
        ),
    ),
    "anthropic, code": (
        "anthropic",
        _anthropic(
            {"type": "server_tool_use", "id": "t", "name": "code_execution", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"code": "'},
            {"type": "input_json_delta", "partial_json": "ab"},
        ),
    ),
    "assistants": ("openai_assistants", _sse([_MESSAGE_DELTA] * _COUNT, ["thread.message.delta"] * _COUNT)),
    "assistants, code": (
        "openai_assistants",
        _step(
            {"type": "code_interpreter", "code_interpreter": {"input": "ab"}},
            {"id": "t", "type": "code_interpreter", "code_interpreter": {"input": "", "outputs": []}},
        ),
    ),
    "assistants, arguments": (
        "openai_assistants",
        _step(
            {"type": "function", "function": {"arguments": "ab"}},
            {"id": "t", "type": "function", "function": {"name": "f", "arguments": "", "output": None}},
        ),
    ),
    "letta": ("letta", _letta(message_type="assistant_message", content="ab")),
    "letta, reasoning": ("letta", _letta(message_type="reasoning_message", reasoning="ab", signature=None)),
}
"""By its name, a provider's or a field's: the protocol, and a body of a few messages' worth of deltas."""
