"""What a delta costs from the other kinds of sources, and through the parts that are used beside a handler.

    python -m tests.benchmarks.kinds
    python -m tests.benchmarks.kinds --n 5000 --rounds 9 --only dicts
    python -m tests.benchmarks.kinds --json

Each kind has a limit: a plain loop that does the same work, the least that Python and msgspec can do. In one run, in
interleaved rounds, streamkit and the limit take the same items from the same source, and call one method for each delta,
which appends it. Where the source of the asyncio face is an async iterator, its limit is an `async for` loop over that.

    dicts, objects        the limit reads by key or by attribute what no handler of such items may pass over (the text, what
                          else a delta can hold, where it belongs, errors, the end, usage), looks whether a text is one,
                          and calls. `bare` is a loop that trusts each item to be a plain delta of the one text.
                          `list`: all items exist; `each`: an iterator yields them one by one
    shell, tools, own     bodies in pieces of 2 KB: it splits lines, decodes each event into a typed struct, and calls
    fields                as that, and reads the string field out of the arguments with the smallest scanner that can
    Throttled             as that, and looks at the clock, and holds back and joins what comes too soon
    Recorder              as that, and writes each item as a line with its time to a file, and flushes it after each piece

`rows()` returns a list of `Row`, one for each kind and face:

    kind     what arrives, or what is used: "chat dicts, list", "Recorder"
    face     "sync" or "asyncio"
    limit    CPU microseconds a delta of the face's limit, the median of the rounds
    cost     the same of streamkit
    ratio    cost / limit, of these medians
    bare     cost / that of the loop without any check; None where the limit has none to spare
"""

from __future__ import annotations

import argparse
import gc
import inspect
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import msgspec

import streamkit as sk

from . import wires
from .parsing import Function, Plain, decode_chunk
from .wires import deltas

PIECE = 2048  # bytes
INTERVAL = 0.05  # seconds, of `Throttled`

Wire = dict[str, Any]


class Row(NamedTuple):
    """A row of the table."""

    kind: str
    face: str
    limit: float
    cost: float
    ratio: float
    bare: float | None = None


class Counting(sk.EventHandler):
    """The handler under test: as the limit's, for every kind of delta that a row has."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        self.parts.append(delta.value)


class CountingCalls(Counting):
    """The same for the arguments of tool calls."""

    def on_tool_call_delta(self, delta: sk.ToolCallDelta, snapshot: sk.ToolCallMessage) -> None:
        self.parts.append(delta.value)


class CountingCode(Counting):
    """The same for code."""

    def on_code_delta(self, delta: sk.CodeDelta, snapshot: sk.CodeMessage) -> None:
        self.parts.append(delta.value)


class CountingConsole(Counting):
    """The same for what shell commands print."""

    def on_console_output(self, delta: sk.ConsoleDelta, snapshot: sk.ConsoleMessage) -> None:
        self.parts.append(delta.value)


# -- items


def items_of(events: list[bytes]) -> list[Wire]:
    """The items of a body, without the end that is no item."""
    items = [event.partition(b"data: ")[2] for event in events]
    return [msgspec.json.decode(item) for item in items if not item.startswith(b"[DONE]")]


def chat_items(n: int) -> list[Wire]:
    """Chat Completions: a text of n deltas, in the chunks that OpenAI sends."""
    return items_of(wires.chat(n))


def responses_items(n: int) -> list[Wire]:
    """Responses: one text of n deltas."""
    items = items_of(wires.responses(n))
    del items[-1]["response"]["usage"]  # versions of the SDK require different fields of it
    return items


def _response(status: str, output: list[Wire]) -> Wire:
    return {
        "id": "resp_0a1b2c3d4e5f6a7b",
        "object": "response",
        "created_at": 1766000000,
        "model": "gpt-5-mini",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "status": status,
        "output": output,
    }


def _numbered(events: list[Wire]) -> list[Wire]:
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def anthropic_items(n: int) -> list[Wire]:
    """Anthropic Messages: one text of n deltas, without the ping, which is no item of the SDK's."""
    return [item for item in items_of(wires.anthropic(n)) if item["type"] != "ping"]


def shell_items(n: int) -> list[Wire]:
    """Responses: the output of one shell command, in n deltas."""
    item: Wire = {"id": "sho_1", "type": "shell_call_output", "call_id": "call_1", "status": "in_progress"}
    text = "".join(deltas(n))
    outputs = [{"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
    final = {**item, "status": "completed", "output": outputs}
    place: Wire = {"item_id": "sho_1", "output_index": 0, "command_index": 0}
    type = "response.shell_call_output_content"
    return _numbered(
        [
            {"type": "response.created", "response": _response("in_progress", [])},
            {"type": "response.output_item.added", "output_index": 0, "item": {**item, "output": []}},
            *({"type": f"{type}.delta", **place, "delta": {"stdout": word}} for word in deltas(n)),
            {"type": f"{type}.done", **place, "output": outputs},
            {"type": "response.output_item.done", "output_index": 0, "item": final},
            {"type": "response.completed", "response": _response("completed", [final])},
        ]
    )


def command_items(n: int) -> list[Wire]:
    """Responses: one shell command, in n deltas."""
    item: Wire = {"id": "sh_1", "type": "shell_call", "call_id": "call_1", "status": "in_progress"}
    text = "".join(deltas(n))
    final = {**item, "status": "completed", "action": {"commands": [text], "timeout_ms": None}}
    place: Wire = {"output_index": 0, "command_index": 0}
    type = "response.shell_call_command"
    return _numbered(
        [
            {"type": "response.created", "response": _response("in_progress", [])},
            {"type": "response.output_item.added", "output_index": 0, "item": {**item, "action": {"commands": []}}},
            {"type": f"{type}.added", **place, "command": ""},
            *({"type": f"{type}.delta", **place, "delta": word, "obfuscation": "q7Zx0PvK3m"} for word in deltas(n)),
            {"type": f"{type}.done", **place, "command": text},
            {"type": "response.output_item.done", "output_index": 0, "item": final},
            {"type": "response.completed", "response": _response("completed", [final])},
        ]
    )


def _quoted(n: int) -> list[str]:
    """JSON text of one string argument, in n pieces."""
    return ['{"message": "', *(json.dumps(word, ensure_ascii=False)[1:-1] for word in deltas(n - 2)), '"}']


def assistants_items(n: int, *, code: bool = False) -> list[Wire]:
    """Assistants: the arguments of one call in n deltas, or the code of one."""
    run: Wire = {"id": "run_1", "object": "thread.run", "thread_id": "thread_1", "assistant_id": "asst_1"}
    step: Wire = {"id": "step_1", "object": "thread.run.step", "run_id": "run_1", "type": "tool_calls"}
    pieces = deltas(n) if code else _quoted(n)
    kind = "code_interpreter" if code else "function"

    def delta(call: Wire) -> Wire:
        details = {"type": "tool_calls", "tool_calls": [{"index": 0, "type": kind, **call}]}
        data = {"id": "step_1", "object": "thread.run.step.delta", "delta": {"step_details": details}}
        return {"event": "thread.run.step.delta", "data": data}

    def body(text: str) -> Wire:
        return {kind: {"input": text}} if code else {kind: {"arguments": text}}

    first = {kind: {"input": "", "outputs": []} if code else {"name": "send", "arguments": "", "output": None}}
    last = {kind: {"input": "".join(pieces), "outputs": []}}
    if not code:
        last = {kind: {"name": "send", "arguments": "".join(pieces), "output": None}}
    call = {"id": "call_1", "type": kind, **last}
    done = {**step, "status": "completed", "step_details": {"type": "tool_calls", "tool_calls": [call]}}
    return [
        {"event": "thread.run.created", "data": {**run, "status": "queued"}},
        {
            "event": "thread.run.step.created",
            "data": {**step, "status": "in_progress", "step_details": {"type": "tool_calls", "tool_calls": []}},
        },
        delta({"id": "call_1", **first}),
        *(delta(body(piece)) for piece in pieces),
        {"event": "thread.run.step.completed", "data": done},
        {"event": "thread.run.completed", "data": {**run, "status": "completed"}},
        {"event": "done", "data": "[DONE]"},
    ]


def field_items(n: int) -> list[Wire]:
    """Chat Completions: the arguments of one call, the string in which has n deltas."""
    plain = chat_items(0)

    def chunk(call: Wire) -> Wire:
        delta = {"tool_calls": [{"index": 0, **call}]}
        return {**plain[0], "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]}

    start = chunk({"id": "call_1", "type": "function", "function": {"name": "send", "arguments": ""}})
    pieces = _quoted(n + 2)
    return [plain[0], start, *(chunk({"function": {"arguments": piece}}) for piece in pieces), plain[-1]]


def own_items(n: int) -> list[Wire]:
    """streamkit's own protocol: the events of a text of n deltas."""
    message = {"type": "message", "role": "assistant", "id": "message-1"}
    text = "".join(deltas(n))
    return [
        {"type": "run_created", "cursor": 1, "run": {"id": "run_1"}},
        {"type": "text_created", "cursor": 2, "message": {**message, "content": ""}},
        *(
            {"type": "text_delta", "cursor": number, "message_id": "message-1", "value": word}
            for number, word in enumerate(deltas(n), 3)
        ),
        {"type": "text_done", "message": {**message, "content": text, "status": "completed"}},
        {"type": "run_done", "run": {"id": "run_1", "status": "completed"}},
        {"type": "stream_end"},
    ]


def objects(kind: str, items: list[Wire]) -> list[Any]:
    """The items as the objects that the SDK's own iteration yields."""
    from pydantic import TypeAdapter

    adapter: Any
    if kind == "chat":
        from openai.types.chat import ChatCompletionChunk

        adapter = TypeAdapter(ChatCompletionChunk)
    elif kind == "responses":
        from openai.types.responses import ResponseStreamEvent

        adapter = TypeAdapter(ResponseStreamEvent)
    else:
        from anthropic.types import RawMessageStreamEvent

        adapter = TypeAdapter(RawMessageStreamEvent)
    return [adapter.validate_python(item) for item in items]


# -- bodies


def sse(items: list[Wire], *, name: str | None = None, done: bool = False) -> list[bytes]:
    """The body of these items, in pieces of 2 KB. `name` is the key with the event's name."""
    blocks: list[bytes] = []
    for item in items:
        data = item["data"] if name == "event" else item
        head = b"event: " + item[name].encode() + b"\n" if name else b""
        blocks.append(
            head + b"data: " + (data.encode() if isinstance(data, str) else msgspec.json.encode(data)) + b"\n\n"
        )
    body = b"".join(blocks) + (b"data: [DONE]\n\n" if done else b"")
    return [body[i : i + PIECE] for i in range(0, len(body), PIECE)]


def ndjson(items: list[Wire]) -> list[bytes]:
    """The same as lines of JSON."""
    body = b"".join(msgspec.json.encode(item) + b"\n" for item in items)
    return [body[i : i + PIECE] for i in range(0, len(body), PIECE)]


def lines_of(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The complete lines of each chunk: how every limit of bytes begins."""
    pending: list[bytes] = []
    for chunk in chunks:
        lines = chunk.split(b"\n")
        if pending:
            pending.append(lines[0])
            if len(lines) == 1:
                continue
            lines[0] = b"".join(pending)
            pending.clear()
        if rest := lines.pop():
            pending.append(rest)
        yield lines


# -- limits: each takes what streamkit takes, and a method to call


Limit = Callable[[Any, Callable[[str], None]], None]


def limit_chat_dicts(items: Iterable[Any], hook: Callable[[str], None]) -> None:
    others, usage, finished = list[Any](), None, False
    for item in items:
        if item.get("error") is not None:
            raise RuntimeError(item["error"])
        for choice in item.get("choices") or ():
            delta = choice.get("delta")
            if choice.get("index") == 0 and isinstance(delta, dict):
                text = delta.get("content")
                if isinstance(text, str) and text:
                    hook(text)
                if delta.get("tool_calls") or delta.get("reasoning_content") or delta.get("refusal"):
                    others.append(delta)
            if choice.get("finish_reason") is not None:
                finished = True
        if item.get("usage") is not None:
            usage = item["usage"]
    assert finished or usage or not others


def limit_chat_objects(items: Iterable[Any], hook: Callable[[str], None]) -> None:
    others, usage, finished = list[Any](), None, False
    for item in items:
        for choice in item.choices:
            delta = choice.delta
            if choice.index == 0:
                text = delta.content
                if isinstance(text, str) and text:
                    hook(text)
                if delta.tool_calls or delta.refusal:
                    others.append(delta)
            if choice.finish_reason is not None:
                finished = True
        if item.usage is not None:
            usage = item.usage
    assert finished or usage or not others


def limit_responses_dicts(items: Iterable[Any], hook: Callable[[str], None]) -> None:
    key: Any = None
    logprobs, cursor = list[Any](), 0
    for item in items:
        kind = item.get("type")
        if kind == "response.output_text.delta":
            place = item.get("item_id"), item.get("output_index"), item.get("content_index")
            if place != key:
                key = place
            text = item.get("delta")
            if isinstance(text, str) and text:
                hook(text)
            if item.get("logprobs"):
                logprobs += item["logprobs"]
            if isinstance(number := item.get("sequence_number"), int):
                cursor = number
        elif kind == "error":
            raise RuntimeError(item)
    assert cursor and not logprobs


def limit_responses_objects(items: Iterable[Any], hook: Callable[[str], None]) -> None:
    key: Any = None
    logprobs, cursor = list[Any](), 0
    for item in items:
        kind = item.type
        if kind == "response.output_text.delta":
            place = item.item_id, item.output_index, item.content_index
            if place != key:
                key = place
            text = item.delta
            if isinstance(text, str) and text:
                hook(text)
            if item.logprobs:
                logprobs += item.logprobs
            if isinstance(number := item.sequence_number, int):
                cursor = number
        elif kind == "error":
            raise RuntimeError(item)
    assert cursor and not logprobs


def limit_anthropic_dicts(items: Iterable[Any], hook: Callable[[str], None]) -> None:
    blocks: dict[Any, Any] = {}
    for item in items:
        kind = item.get("type")
        if kind == "content_block_delta":
            delta = item.get("delta")
            if isinstance(delta, dict) and blocks.get(item.get("index")) == "text":
                text = delta.get("text") if delta.get("type") == "text_delta" else None
                if isinstance(text, str) and text:
                    hook(text)
        elif kind == "content_block_start":
            blocks[item.get("index")] = item["content_block"].get("type")
        elif kind == "error":
            raise RuntimeError(item)


def limit_anthropic_objects(items: Iterable[Any], hook: Callable[[str], None]) -> None:
    blocks: dict[Any, Any] = {}
    for item in items:
        kind = item.type
        if kind == "content_block_delta":
            delta = item.delta
            if blocks.get(item.index) == "text":
                text = delta.text if delta.type == "text_delta" else None
                if isinstance(text, str) and text:
                    hook(text)
        elif kind == "content_block_start":
            blocks[item.index] = item.content_block.type
        elif kind == "error":
            raise RuntimeError(item)


# -- the same without any check: for items of which one knows that each is as its provider documents it


def bare_chat_dicts(items: Iterable[Any], hook: Callable[[str], None]) -> None:
    for item in items:
        for choice in item["choices"]:
            if choice["index"] == 0 and choice["finish_reason"] is None:
                delta = choice["delta"]
                if delta.get("tool_calls") is None:
                    text = delta.get("content")
                    if isinstance(text, str) and text:
                        hook(text)


def bare_chat_objects(items: Iterable[Any], hook: Callable[[str], None]) -> None:
    for item in items:
        for choice in item.choices:
            if choice.index == 0 and choice.finish_reason is None:
                delta = choice.delta
                if delta.tool_calls is None:
                    text = delta.content
                    if isinstance(text, str) and text:
                        hook(text)


def bare_responses_dicts(items: Iterable[Any], hook: Callable[[str], None]) -> None:
    key: Any = None
    for item in items:
        if item["type"] == "response.output_text.delta":
            if (item["item_id"], item["output_index"], item["content_index"]) != key:
                key = (item["item_id"], item["output_index"], item["content_index"])
            text = item["delta"]
            if isinstance(text, str):
                hook(text)


def bare_responses_objects(items: Iterable[Any], hook: Callable[[str], None]) -> None:
    key: Any = None
    for item in items:
        if item.type == "response.output_text.delta":
            if (item.item_id, item.output_index, item.content_index) != key:
                key = (item.item_id, item.output_index, item.content_index)
            text = item.delta
            if isinstance(text, str):
                hook(text)


def bare_anthropic_dicts(items: Iterable[Any], hook: Callable[[str], None]) -> None:
    for item in items:
        if item["type"] == "content_block_delta":
            delta = item["delta"]
            if item["index"] == 0 and delta["type"] == "text_delta":
                text = delta["text"]
                if isinstance(text, str):
                    hook(text)


def bare_anthropic_objects(items: Iterable[Any], hook: Callable[[str], None]) -> None:
    for item in items:
        if item.type == "content_block_delta":
            delta = item.delta
            if item.index == 0 and delta.type == "text_delta":
                text = delta.text
                if isinstance(text, str):
                    hook(text)


class _Output(msgspec.Struct):
    stdout: str | None = None
    stderr: str | None = None


class _ShellEvent(msgspec.Struct):
    delta: _Output
    item_id: str
    output_index: int
    command_index: int


class _CommandEvent(msgspec.Struct):
    delta: str
    output_index: int
    command_index: int


class _Code(msgspec.Struct):
    input: str | None = None


class _StepCall(msgspec.Struct):
    index: int
    function: Function | None = None
    code_interpreter: _Code | None = None


class _StepDetails(msgspec.Struct):
    tool_calls: list[_StepCall]


class _StepDelta(msgspec.Struct):
    step_details: _StepDetails


class _StepEvent(msgspec.Struct):
    id: str
    delta: _StepDelta


class _OwnDelta(msgspec.Struct):
    type: str
    cursor: int | str | None = None
    message_id: str | None = None
    value: str | None = None
    replace: bool = False


_decode_shell = msgspec.json.Decoder(_ShellEvent).decode
_decode_command = msgspec.json.Decoder(_CommandEvent).decode
_decode_step = msgspec.json.Decoder(_StepEvent).decode
_decode_own = msgspec.json.Decoder(_OwnDelta).decode


def limit_shell(chunks: Iterable[bytes], hook: Callable[[str], None]) -> None:
    wanted = False
    for lines in lines_of(chunks):
        for line in lines:
            if wanted:
                delta = _decode_shell(line[6:]).delta
                if text := delta.stdout or delta.stderr:
                    hook(text)
                wanted = False
            elif line == b"event: response.shell_call_output_content.delta":
                wanted = True


def limit_command(chunks: Iterable[bytes], hook: Callable[[str], None]) -> None:
    wanted = False
    for lines in lines_of(chunks):
        for line in lines:
            if wanted:
                hook(_decode_command(line[6:]).delta)
                wanted = False
            elif line == b"event: response.shell_call_command.delta":
                wanted = True


def limit_assistants(chunks: Iterable[bytes], hook: Callable[[str], None]) -> None:
    wanted = False
    for lines in lines_of(chunks):
        for line in lines:
            if wanted:
                for call in _decode_step(line[6:]).delta.step_details.tool_calls:
                    if call.function is not None and call.function.arguments:
                        hook(call.function.arguments)
                    elif call.code_interpreter is not None and call.code_interpreter.input:
                        hook(call.code_interpreter.input)
                wanted = False
            elif line == b"event: thread.run.step.delta":
                wanted = True


def limit_own(chunks: Iterable[bytes], hook: Callable[[str], None]) -> None:
    decode = _decode_own
    for lines in lines_of(chunks):
        for line in lines:
            if line[:5] == b"data:":
                line = line[6:]
            if line[:1] == b"{":
                event = decode(line)
                if event.type == "text_delta" and event.value:
                    hook(event.value)


class _Scanner:
    """The smallest reader of one string argument that is right for any pieces: its key comes first, its escapes are JSON's."""

    def __init__(self, key: str) -> None:
        self.head = '{"' + key + '": "'
        self.before = ""
        self.inside = False
        self.over = False

    def feed(self, piece: str) -> str:
        if self.inside and not self.before and '"' not in piece and "\\" not in piece:
            return piece
        text = self.before + piece
        self.before = ""
        if self.over:
            return ""
        if not self.inside:
            if len(text) < len(self.head):
                self.before = text
                return ""
            self.inside, text = True, text[len(self.head) :]
        out: list[str] = []
        at = 0
        while at < len(text):
            character = text[at]
            if character == '"':
                self.over = True
                break
            if character == "\\":
                size = 6 if text[at + 1 : at + 2] == "u" else 2
                if at + size > len(text):
                    self.before = text[at:]
                    break
                out.append(json.loads('"' + text[at : at + size] + '"'))
                at += size
            else:
                out.append(character)
                at += 1
        return "".join(out)


def limit_fields(chunks: Iterable[bytes], hook: Callable[[str], None]) -> None:
    decode, scanner = decode_chunk, _Scanner("message")
    for lines in lines_of(chunks):
        for line in lines:
            if line and line[6] == 123:
                for choice in decode(line[6:]).choices:
                    for call in choice.delta.tool_calls or ():
                        if call.function is not None and (text := scanner.feed(call.function.arguments or "")):
                            hook(text)


def limit_throttled(chunks: Iterable[bytes], hook: Callable[[str], None]) -> None:
    decode, last, held = decode_chunk, float("-inf"), list[str]()
    for lines in lines_of(chunks):
        for line in lines:
            if line and line[6] == 123:
                for choice in decode(line[6:]).choices:
                    if text := choice.delta.content:
                        held.append(text)
                        now = time.monotonic()
                        if now - last >= INTERVAL:
                            last = now
                            hook("".join(held))
                            held.clear()
    hook("".join(held))


def limit_recorder(chunks: Iterable[bytes], hook: Callable[[str], None]) -> None:
    decode, began = decode_chunk, time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Path(folder, "plain.jsonl").open("ab") as file:
        for lines in lines_of(chunks):
            written: list[bytes] = []
            for line in lines:
                if line and line[6] == 123:
                    data = line[6:]
                    written.append(b'{"time":%.6f,"data":%b}\n' % (time.monotonic() - began, data))
                    for choice in decode(data).choices:
                        if text := choice.delta.content:
                            hook(text)
            file.write(b"".join(written))
            file.flush()


# -- the kinds


class Kind(NamedTuple):
    """One kind of work.

    Attributes:
        items: what n deltas of it are: pieces of a body, dicts or objects.
        limit: the plain loop.
        bare: the loop without any check, if there is one.
        handler: makes the handler under test.
        wraps: makes what is given to the stream of the handler and a folder for files.
        each: whether the items come from an iterator, one by one.
        found: how many deltas the handler gets of n; None where that depends on the clock.
        fields: the stream's `fields=`.
    """

    items: Callable[[int], Sequence[Any]]
    limit: Limit
    handler: Callable[[], Counting] = Counting
    wraps: Callable[[Counting, str], list[sk.Handler]] = lambda handler, _: [handler]
    each: bool = False
    found: Callable[[int], int] | None = lambda n: n
    fields: dict[str, str] | None = None
    bare: Limit | None = None


def _parsed_kinds() -> dict[str, Kind]:
    kinds: dict[str, Kind] = {}
    sources: dict[str, tuple[Callable[[int], list[Wire]], tuple[Limit, Limit], tuple[Limit, Limit]]] = {
        "chat": (chat_items, (limit_chat_dicts, bare_chat_dicts), (limit_chat_objects, bare_chat_objects)),
        "responses": (
            responses_items,
            (limit_responses_dicts, bare_responses_dicts),
            (limit_responses_objects, bare_responses_objects),
        ),
        "anthropic": (
            anthropic_items,
            (limit_anthropic_dicts, bare_anthropic_dicts),
            (limit_anthropic_objects, bare_anthropic_objects),
        ),
    }
    for each in (False, True):
        how = "each" if each else "list"
        for name, (items, (limit, bare), (limit_objects, bare_objects)) in sources.items():
            kinds[f"{name} dicts, {how}"] = Kind(items, limit, each=each, bare=bare)
            kinds[f"{name} objects, {how}"] = Kind(
                lambda n, name=name, items=items: objects(name, items(n)),  # type: ignore[misc]
                limit_objects,
                each=each,
                bare=bare_objects,
            )
    return kinds


KINDS: dict[str, Kind] = {
    **_parsed_kinds(),
    "own protocol, lines": Kind(lambda n: ndjson(own_items(n)), limit_own),
    "own protocol, SSE": Kind(lambda n: sse(own_items(n), name="type"), limit_own),
    "assistants arguments": Kind(lambda n: sse(assistants_items(n), name="event"), limit_assistants, CountingCalls),
    "assistants code": Kind(
        lambda n: sse(assistants_items(n, code=True), name="event"), limit_assistants, CountingCode
    ),
    "responses shell output": Kind(lambda n: sse(shell_items(n), name="type"), limit_shell, CountingConsole),
    "responses shell command": Kind(lambda n: sse(command_items(n), name="type"), limit_command, CountingCode),
    "fields=": Kind(lambda n: sse(field_items(n), done=True), limit_fields, fields={"send.message": "text"}),
    "Throttled": Kind(
        lambda n: sse(chat_items(n), done=True),
        limit_throttled,
        wraps=lambda handler, _: [sk.Throttled(handler, INTERVAL)],
        found=None,
    ),
    "Recorder": Kind(
        lambda n: sse(chat_items(n), done=True),
        limit_recorder,
        wraps=lambda handler, folder: [handler, sk.Recorder(Path(folder, f"{time.monotonic_ns()}.jsonl"))],
    ),
}


# -- measuring


class Clock:
    """CPU time of what is measured; what a contestant has to prepare first is left out."""

    def __init__(self) -> None:
        self.taken = 0  # nanoseconds

    def __enter__(self) -> None:
        self._started = time.process_time_ns()

    def __exit__(self, *exc: object) -> None:
        self.taken += time.process_time_ns() - self._started


class AsyncItems:
    """Items as an async iterator, as a client gives them."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = iter(items)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self  # type: ignore[return-value]

    async def __anext__(self) -> Any:
        for item in self._items:
            return item
        raise StopAsyncIteration


@cache
def awaiting(loop: Callable[..., Any]) -> Callable[..., Any]:
    """The same loop over an async source: its own text, with `async` where it takes what comes next."""
    text = re.sub(r"for (?=\w+ in (items|chunks|lines_of\(chunks\)):)", "async for ", inspect.getsource(loop))
    names = {**globals()}
    if loop is not lines_of:
        names["lines_of"] = awaiting(lines_of)
    exec(f"async {text}", names)
    made: Callable[..., Any] = names[loop.__name__]
    return made


def source_of_task(kind: Kind, items: Sequence[Any]) -> Any:
    """What the asyncio face reads: a list as it is, anything else as an async iterator."""
    return AsyncItems(items) if kind.each or isinstance(items[0], bytes) else items


def run_limit(kind: Kind, items: Sequence[Any], clock: Clock, face: str = "sync") -> list[str]:
    plain = Plain()

    async def main() -> None:
        with clock:
            await awaiting(kind.limit)(source, plain.on_text_delta)

    source = source_of_task(kind, items)
    if face == "asyncio" and source is not items:
        anyio.run(main, backend="asyncio")
        return plain.parts
    with clock:
        kind.limit(iter(items) if kind.each else items, plain.on_text_delta)
    return plain.parts


def run_bare(kind: Kind, items: Sequence[Any], clock: Clock, face: str = "sync") -> list[str]:
    return run_limit(kind if kind.bare is None else kind._replace(limit=kind.bare), items, clock, face)


def run_sync(kind: Kind, items: Sequence[Any], clock: Clock) -> list[str]:
    handler = kind.handler()
    with tempfile.TemporaryDirectory() as folder, clock:
        source = iter(items) if kind.each else items
        sk.stream(source, *kind.wraps(handler, folder), fields=kind.fields).until_done()
    return handler.parts


def run_asyncio(kind: Kind, items: Sequence[Any], clock: Clock) -> list[str]:
    handler = kind.handler()

    async def main(folder: str) -> None:
        with clock:
            source = source_of_task(kind, items)
            await sk.astream(source, *kind.wraps(handler, folder), fields=kind.fields).until_done()

    with tempfile.TemporaryDirectory() as folder:
        anyio.run(main, folder, backend="asyncio")
    return handler.parts


FACES = {"sync": run_sync, "asyncio": run_asyncio}
RUNS: dict[tuple[str, str], Callable[[Kind, Sequence[Any], Clock], list[str]]] = {
    (contestant, face): run
    for face in FACES
    for contestant, run in {
        "limit": partial(run_limit, face=face),
        "bare": partial(run_bare, face=face),
        "streamkit": FACES[face],
    }.items()
}


def rows(n: int = 2000, rounds: int = 7, only: str = "") -> list[Row]:
    """The rows of the table: those whose kind has `only` in its name.

    Raises:
        ValueError: a contestant did not get all deltas.
    """
    found: list[Row] = []
    gc.collect()
    gc.freeze()  # what was imported is looked through here alone, not before each measurement
    for name, kind in KINDS.items():
        if only in name:
            costs = _costs(name, kind, n, rounds)
            for face in FACES:
                cost, limit = costs["streamkit", face], costs["limit", face]
                bare = cost / costs["bare", face] if kind.bare is not None else None
                found.append(Row(name, face, limit, cost, cost / limit, bare))
    return found


def _costs(name: str, kind: Kind, n: int, rounds: int) -> dict[tuple[str, str], float]:
    """Microseconds a delta of each contestant on each face, the medians of the rounds."""
    items = kind.items(n)
    times: dict[tuple[str, str], list[float]] = {contestant: [] for contestant in RUNS}
    for number in range(rounds + 1):
        for contestant, run in RUNS.items():
            gc.collect()
            gc.disable()
            clock = Clock()
            parts = run(kind, items, clock)
            gc.enable()
            if kind.found is not None and len(parts) != kind.found(n):
                raise ValueError(f"{name}, {', '.join(contestant)}: {len(parts)} of {n} deltas came")
            if number:  # the first one warms up
                times[contestant].append(clock.taken / n / 1000)
    return {contestant: statistics.median(taken) for contestant, taken in times.items()}


def opcode_rows(only: str = "") -> Iterator[tuple[str, str, float, float]]:
    """For each kind and face, the bytecode instructions a delta of the limit and of streamkit, which no load changes."""
    sys.path.insert(0, os.fspath(Path(__file__).parents[2]))
    from tests.opcodes import opcodes

    for name, kind in KINDS.items():
        for face in FACES if only in name else ():
            grown: dict[str, float] = {}
            for contestant in ("limit", "streamkit"):
                run = RUNS[contestant, face]
                run(kind, kind.items(50), Clock())
                small, large = (opcodes(run, kind, kind.items(n), Clock()) for n in (200, 1200))
                grown[contestant] = (large - small) / 1000
            yield name, face, grown["limit"], grown["streamkit"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=2000, help="deltas of a stream")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="kinds with this in their name")
    parser.add_argument("--json", action="store_true", help="the rows as JSON")
    parser.add_argument("--opcodes", action="store_true", help="instructions a delta in place of time")
    arguments = parser.parse_args()
    if arguments.opcodes:
        for name, face, limit, cost in opcode_rows(arguments.only):
            print(f"{name:26} {face:8} {limit:7.0f} {cost:7.0f} opcodes {cost / limit:6.2f} x", flush=True)
        return
    table = rows(arguments.n, arguments.rounds, arguments.only)
    if arguments.json:
        print(json.dumps([row._asdict() for row in table], indent=1))
        return
    for row in table:
        bare = f" {row.bare:6.2f} x bare" if row.bare is not None else ""
        print(f"{row.kind:26} {row.face:8} {row.limit:7.3f} {row.cost:7.3f} \u00b5s {row.ratio:6.2f} x the limit{bare}")


if __name__ == "__main__":
    main()
