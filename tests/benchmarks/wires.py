"""The streams that the benchmarks read: an answer of n text deltas in each wire format, as its provider sends it.

Each function returns the events of one stream as bytes, one item for each event. `pieces` cuts them as a network would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

import streamkit as sk
from streamkit.protocols.codec import encode_event

__all__ = ["CUTS", "WIRES", "answer", "pieces"]

WORDS = (" the", " of", "ing", ", and", " stream", "ed", " is", "\n", " \u201cquoted\u201d", " na\u00efve", ".", " end")
CUTS = ("2 KB", "event")


def deltas(n: int) -> list[str]:
    """The n text deltas of an answer."""
    return [WORDS[i % len(WORDS)] for i in range(n)]


def answer(n: int) -> str:
    """Their text."""
    return "".join(deltas(n))


def _data(item: Any) -> bytes:
    return b"data: " + msgspec.json.encode(item) + b"\n\n"


def _event(name: str, item: Any) -> bytes:
    return b"event: " + name.encode() + b"\n" + _data(item)


def chat(n: int) -> list[bytes]:
    """Chat Completions, as OpenAI sends it."""

    def chunk(delta: dict[str, object], finish: str | None = None) -> bytes:
        return _data(
            {
                "id": "chatcmpl-CRGdMmMVvFkbSHvAL4dYBdYw6Xd5M",
                "object": "chat.completion.chunk",
                "created": 1766000000,
                "model": "gpt-5-mini-2025-08-07",
                "service_tier": "default",
                "system_fingerprint": "fp_0123456789",
                "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
                "usage": None,
                "obfuscation": "q7Zx0PvK3mT1",
            }
        )

    middle = [chunk({"content": word}) for word in deltas(n)]
    return [
        chunk({"role": "assistant", "content": "", "refusal": None}),
        *middle,
        chunk({}, "stop"),
        b"data: [DONE]\n\n",
    ]


def responses(n: int) -> list[bytes]:
    """OpenAI's Responses: one message."""
    out: list[bytes] = []

    def event(type: str, **fields: object) -> None:
        out.append(_event(type, {"type": type, "sequence_number": len(out), **fields}))

    item_id = "msg_0a1b2c3d4e5f6a7b8c9d0e1f2a3b4c5d6e7f"
    place = {"item_id": item_id, "output_index": 0, "content_index": 0}
    response = {
        "id": "resp_0a1b2c3d4e5f6a7b",
        "object": "response",
        "created_at": 1766000000,
        "model": "gpt-5-mini",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    item = {"id": item_id, "type": "message", "status": "in_progress", "role": "assistant", "content": []}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    event("response.created", response={**response, "status": "in_progress", "output": []})
    event("response.output_item.added", output_index=0, item=item)
    event("response.content_part.added", **place, part=part)
    for delta in deltas(n):
        event("response.output_text.delta", **place, delta=delta, logprobs=[], obfuscation="q7Zx0PvK3m")
    part = {**part, "text": answer(n)}
    item = {**item, "status": "completed", "content": [part]}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": 9, "output_tokens": n, "total_tokens": n + 9, **details}
    event("response.output_text.done", **place, text=answer(n), logprobs=[])
    event("response.content_part.done", **place, part=part)
    event("response.output_item.done", output_index=0, item=item)
    event("response.completed", response={**response, "status": "completed", "output": [item], "usage": usage})
    return out


def anthropic(n: int) -> list[bytes]:
    """Anthropic's Messages: one block of text."""

    def event(type: str, **fields: object) -> bytes:
        return _event(type, {"type": type, **fields})

    message = {
        "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "claude-sonnet-4-20250514",
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 1},
    }
    return [
        event("message_start", message=message),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        event("ping"),
        *(event("content_block_delta", index=0, delta={"type": "text_delta", "text": word}) for word in deltas(n)),
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": n}),
        event("message_stop"),
    ]


def assistants(n: int) -> list[bytes]:
    """OpenAI's retired Assistants API: one run with one message."""
    run = {"id": "run_1", "object": "thread.run", "created_at": 1766000000, "thread_id": "thread_1", "tools": []}
    message = {
        "id": "msg_abc123",
        "object": "thread.message",
        "created_at": 1766000000,
        "thread_id": "thread_1",
        "run_id": "run_1",
        "role": "assistant",
    }
    step = {
        "id": "step_1",
        "object": "thread.run.step",
        "created_at": 1766000000,
        "run_id": "run_1",
        "type": "message_creation",
        "step_details": {"type": "message_creation", "message_creation": {"message_id": "msg_abc123"}},
    }
    full = {"type": "text", "text": {"value": answer(n), "annotations": []}}

    def delta(word: str) -> bytes:
        part = {"index": 0, "type": "text", "text": {"value": word}}
        item = {"id": "msg_abc123", "object": "thread.message.delta", "delta": {"content": [part]}}
        return _event("thread.message.delta", item)

    return [
        _event("thread.run.created", {**run, "status": "queued"}),
        _event("thread.run.in_progress", {**run, "status": "in_progress"}),
        _event("thread.run.step.created", {**step, "status": "in_progress"}),
        _event("thread.message.created", {**message, "status": "in_progress", "content": []}),
        *map(delta, deltas(n)),
        _event("thread.message.completed", {**message, "status": "completed", "content": [full]}),
        _event("thread.run.step.completed", {**step, "status": "completed"}),
        _event("thread.run.completed", {**run, "status": "completed"}),
        b"event: done\ndata: [DONE]\n\n",
    ]


def letta(n: int) -> list[bytes]:
    """Letta's stream of tokens."""
    item = {
        "id": "message-0a1b2c3d",
        "date": "2025-12-17T19:33:20+00:00",
        "message_type": "assistant_message",
        "otid": "0a1b2c3d",
        "step_id": "step-0a1b2c3d",
        "run_id": "run-0a1b2c3d",
    }
    usage = {"message_type": "usage_statistics", "prompt_tokens": 9, "completion_tokens": n, "total_tokens": n + 9}
    return [
        *(_data({**item, "content": word}) for word in deltas(n)),
        _data({"message_type": "stop_reason", "stop_reason": "end_turn"}),
        _data(usage),
        b"data: [DONE]\n\n",
    ]


def open_interpreter(n: int) -> list[bytes]:
    """Open Interpreter's server: lines of JSON."""
    chunk: dict[str, object] = {"role": "assistant", "type": "message"}
    items = [{**chunk, "start": True}, *({**chunk, "content": word} for word in deltas(n)), {**chunk, "end": True}]
    return [
        msgspec.json.encode(item) + b"\n"
        for item in [*items, {"role": "server", "type": "status", "content": "complete"}]
    ]


def streamkit(n: int) -> list[bytes]:
    """streamkit's own protocol: canonical events as lines of JSON."""
    message = sk.TextMessage("m", status="in_progress")
    done = sk.TextMessage("m", content=answer(n), status="completed")
    events: list[sk.Event] = [
        sk.RunCreated(sk.Run(id="run_1")),
        sk.TextCreated(message),
        *(sk.TextDelta("m", word) for word in deltas(n)),
        sk.TextDone(done),
        sk.RunDone(sk.Run(id="run_1", status="completed")),
        sk.StreamEnd(),
    ]
    return [encode_event(event) + b"\n" for event in events]


WIRES: dict[str, Callable[[int], list[bytes]]] = {
    "chat": chat,
    "responses": responses,
    "anthropic": anthropic,
    "assistants": assistants,
    "letta": letta,
    "open_interpreter": open_interpreter,
    "streamkit": streamkit,
}


def pieces(events: list[bytes], cut: str) -> list[bytes]:
    """A stream's body in pieces: `2 KB` each, or one `event` each."""
    if cut == "event":
        return events
    body = b"".join(events)
    return [body[i : i + 2048] for i in range(0, len(body), 2048)]
