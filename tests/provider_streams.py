"""Streams as different providers and servers send them: `STREAMS` has a body of each, of many deltas in their form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

__all__ = ["STREAMS"]

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


def _cohere(kind: str = "content-delta", **message: Any) -> bytes:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
    begin = {"type": "content-start", "index": 0, "delta": {"message": {"content": {"type": "text", "text": ""}}}}
    if kind == "tool-call-delta":
        begin = {"type": "tool-call-start", "index": 0, "delta": {"message": {"tool_calls": call}}}
    return _sse([begin, *[{"type": kind, "index": 0, "delta": {"message": message}}] * _COUNT])


def _ollama(**message: Any) -> bytes:
    item = {
        "model": "m",
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", **message},
        "done": False,
    }
    return (msgspec.json.encode(item) + b"\n") * _COUNT


_TEXT: dict[str, Any] = {"content": "ab"}
_MESSAGE: dict[str, Any] = {"id": "i", "type": "message", "status": "in_progress", "role": "assistant", "content": []}
_OUTPUT_TEXT: dict[str, Any] = {"type": "output_text", "text": "", "annotations": []}
_PART: dict[str, Any] = {"index": 0, "type": "text", "text": {"value": "a", "annotations": []}}
_MESSAGE_DELTA: dict[str, Any] = {"id": "m", "delta": {"content": [_PART]}}
_LOGPROBS = [{"token": "ab", "logprob": -0.5, "bytes": [97, 98], "top_logprobs": []}]

STREAMS: dict[str, tuple[str, bytes]] = {
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
    "cohere": ("cohere", _cohere(content={"text": "ab"})),
    "cohere, a plan": ("cohere", _cohere("tool-plan-delta", tool_plan="ab")),
    "cohere, arguments": ("cohere", _cohere("tool-call-delta", tool_calls={"function": {"arguments": "ab"}})),
    "ollama": ("ollama", _ollama(content="ab")),
    "ollama, thinking": ("ollama", _ollama(content="", thinking="ab")),
    "letta": ("letta", _letta(message_type="assistant_message", content="ab")),
    "letta, reasoning": ("letta", _letta(message_type="reasoning_message", reasoning="ab", signature=None)),
}
"""By its name, a provider's or a field's: the protocol, and a body that is cut off after forty deltas."""
