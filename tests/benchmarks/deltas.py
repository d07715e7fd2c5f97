"""What a text delta costs, from SSE bytes to the hook.

    python tests/benchmarks/deltas.py                 # all sizes, all contestants, and the imports
    python tests/benchmarks/deltas.py --n 10000 --rounds 9
    python tests/benchmarks/deltas.py --wire responses --n 1000,10000

In one run, in interleaved rounds, each contestant takes the same bytes, in pieces of 2 KB or of one event each, and
gives every text delta to one method that appends it. Told are the medians of CPU time a delta, and their ratio to
the limit: splitting lines, decoding each event into a typed msgspec struct (of what any handler of such events needs),
calling, appending. `openai raw` is the
real client iterating over an in-memory transport, at a size that it can do.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator

import anyio
import msgspec

import streamkit as sk

WORDS = (" the", " of", "ing", ", and", " stream", "ed", " is", "\n", " \u201cquoted\u201d", " na\u00efve", ".", " end")


def chat_body(n: int) -> list[bytes]:
    """Chat Completions: n text deltas, each an event as OpenAI sends it."""

    def event(delta: dict[str, object], finish: str | None = None) -> bytes:
        chunk = {
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
        return b"data: " + msgspec.json.encode(chunk) + b"\n\n"

    middle = [event({"content": word}) for word in WORDS]
    start = event({"role": "assistant", "content": "", "refusal": None})
    return [start, *(middle[i % len(middle)] for i in range(n)), event({}, "stop"), b"data: [DONE]\n\n"]


def responses_body(n: int) -> list[bytes]:
    """Responses: one message of n text deltas."""
    number = -1

    def event(type: str, **fields: object) -> bytes:
        nonlocal number
        number += 1
        data = msgspec.json.encode({"type": type, "sequence_number": number, **fields})
        return b"event: " + type.encode() + b"\ndata: " + data + b"\n\n"

    item_id = "msg_0a1b2c3d4e5f6a7b8c9d0e1f2a3b4c5d6e7f"
    place = {"item_id": item_id, "output_index": 0, "content_index": 0}
    response = {"id": "resp_0a1b2c3d4e5f6a7b", "object": "response", "created_at": 1766000000, "model": "gpt-5-mini"}
    item = {"id": item_id, "type": "message", "status": "in_progress", "role": "assistant", "content": []}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    out = [
        event("response.created", response={**response, "status": "in_progress", "output": []}),
        event("response.output_item.added", output_index=0, item=item),
        event("response.content_part.added", **place, part=part),
    ]
    for i in range(n):
        delta = WORDS[i % len(WORDS)]
        out.append(event("response.output_text.delta", **place, delta=delta, logprobs=[], obfuscation="q7Zx0PvK3m"))
    text = "".join(WORDS[i % len(WORDS)] for i in range(n))
    part = {**part, "text": text}
    item = {**item, "status": "completed", "content": [part]}
    usage = {"input_tokens": 9, "output_tokens": n, "total_tokens": n + 9}
    out += [
        event("response.output_text.done", **place, text=text, logprobs=[]),
        event("response.content_part.done", **place, part=part),
        event("response.output_item.done", output_index=0, item=item),
        event("response.completed", response={**response, "status": "completed", "output": [item], "usage": usage}),
    ]
    return out


BODIES = {"chat": chat_body, "responses": responses_body}


def pieces(events: list[bytes], cut: str) -> list[bytes]:
    """The body in pieces: `2 KB` each, or one `event` each."""
    if cut == "event":
        return events
    body = b"".join(events)
    return [body[i : i + 2048] for i in range(0, len(body), 2048)]


class Clock:
    """CPU time of what is measured; what a contestant has to prepare first is left out."""

    def __init__(self) -> None:
        self.taken = 0  # nanoseconds

    def __enter__(self) -> None:
        self._started = time.process_time_ns()

    def __exit__(self, *exc: object) -> None:
        self.taken += time.process_time_ns() - self._started


CLOCK = Clock()

# -- the limit


class _Function(msgspec.Struct):
    arguments: str | None = None


class _Call(msgspec.Struct):
    function: _Function | None = None
    index: int = 0


class _Delta(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta
    index: int = 0
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice]


class _TextEvent(msgspec.Struct):
    delta: str
    item_id: str
    output_index: int
    content_index: int


_decode_chunk = msgspec.json.Decoder(_Chunk).decode
_decode_text = msgspec.json.Decoder(_TextEvent).decode


class Plain:
    """The limit's hook."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def on_text_delta(self, delta: str) -> None:
        self.parts.append(delta)


def limit_chat(chunks: list[bytes]) -> int:
    """Split, decode, call, append: the least that Python can do for a Chat stream."""
    decode, plain = _decode_chunk, Plain()
    hook = plain.on_text_delta
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
        for line in lines:
            if line and line[6] == 123:
                for choice in decode(line[6:]).choices:
                    text = choice.delta.content
                    if text:
                        hook(text)
    return len(plain.parts)


def limit_responses(chunks: list[bytes]) -> int:
    """The same for a Responses stream, where the event's name says what to decode."""
    decode, plain = _decode_text, Plain()
    hook = plain.on_text_delta
    pending: list[bytes] = []
    wanted = False
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
        for line in lines:
            if wanted:
                hook(decode(line[6:]).delta)
                wanted = False
            elif line == b"event: response.output_text.delta":
                wanted = True
    return len(plain.parts)


LIMITS = {"chat": limit_chat, "responses": limit_responses}


def limit(wire: str) -> Callable[[list[bytes]], int]:
    def run(chunks: list[bytes]) -> int:
        with CLOCK:
            return LIMITS[wire](chunks)

    return run


# -- streamkit


class Counting(sk.EventHandler):
    """The hook under test: as the limit's."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        self.parts.append(delta.value)


class AsyncCounting(sk.AsyncEventHandler):
    """The same as a coroutine."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    async def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        self.parts.append(delta.value)


class Chunks:
    """Chunks as an async iterator, as an HTTP client gives them."""

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = iter(chunks)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self  # type: ignore[return-value]

    async def __anext__(self) -> bytes:
        for chunk in self._chunks:
            return chunk
        raise StopAsyncIteration


def sync(chunks: list[bytes]) -> int:
    with CLOCK:
        handler = Counting()
        sk.stream(chunks, handler).until_done()
    return len(handler.parts)


def three_handlers(chunks: list[bytes]) -> int:
    with CLOCK:
        handlers = [Counting(), Counting(), Counting()]
        sk.stream(chunks, *handlers).until_done()
    return len(handlers[0].parts)


def iteration(chunks: list[bytes]) -> int:
    with CLOCK:
        return sum(1 for _ in sk.stream(chunks).text_deltas)


def on(backend: str, make: Callable[[], Counting | AsyncCounting]) -> Callable[[list[bytes]], int]:
    """astream in a running event loop: an application starts its loop once, and many streams in it."""

    def run(chunks: list[bytes]) -> int:
        handler = make()

        async def main() -> None:
            with CLOCK:
                await sk.astream(Chunks(chunks), handler).until_done()

        anyio.run(main, backend=backend)
        return len(handler.parts)

    return run


def async_iteration(backend: str, of: str) -> Callable[[list[bytes]], int]:
    """As `on`, without a handler: a loop over the stream's `text_deltas` or `events`."""

    def run(chunks: list[bytes]) -> int:
        async def main() -> int:
            found = 0
            with CLOCK:
                stream = sk.astream(Chunks(chunks))
                if of == "text_deltas":
                    async for _ in stream.text_deltas:
                        found += 1
                else:
                    async for event in stream:
                        found += type(event) is sk.TextDelta
            return found

        return anyio.run(main, backend=backend)

    return run


def openai_raw(wire: str) -> Callable[[list[bytes]], int]:
    """The real client's own iteration."""
    import httpx2
    import openai

    class Body(httpx2.SyncByteStream):
        def __init__(self, chunks: list[bytes]) -> None:
            self.chunks = chunks

        def __iter__(self) -> Iterator[bytes]:
            return iter(self.chunks)

    def run(chunks: list[bytes]) -> int:
        def answer(request: httpx2.Request) -> httpx2.Response:
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Body(chunks))

        http = httpx2.Client(transport=httpx2.MockTransport(answer))
        with openai.OpenAI(api_key="none", base_url="http://127.0.0.1/v1", http_client=http) as client:
            found = 0
            with CLOCK:
                if wire == "chat":
                    for chunk in client.chat.completions.create(model="m", messages=[], stream=True):
                        found += bool(chunk.choices and chunk.choices[0].delta.content)
                else:
                    for event in client.responses.create(model="m", input="", stream=True):
                        found += event.type == "response.output_text.delta"
        return found

    return run


def contestants(wire: str) -> dict[str, Callable[[list[bytes]], int]]:
    return {
        "limit": limit(wire),
        "sync": sync,
        "sync, 3 handlers": three_handlers,
        "sync, text_deltas": iteration,
        "asyncio": on("asyncio", AsyncCounting),
        "asyncio, plain handler": on("asyncio", Counting),
        "asyncio, text_deltas": async_iteration("asyncio", "text_deltas"),
        "asyncio, events": async_iteration("asyncio", "events"),
        "trio": on("trio", AsyncCounting),
        "trio, plain handler": on("trio", Counting),
        "trio, text_deltas": async_iteration("trio", "text_deltas"),
        "trio, events": async_iteration("trio", "events"),
        "openai raw": openai_raw(wire),
    }


RAW_LIMIT = 10_000  # deltas: the client needs seconds for more
RAW_STREAMS = 1  # of it in a row, for the same reason


def measure(wire: str, n: int, cut: str, rounds: int, only: str) -> None:
    chunks = pieces(BODIES[wire](n), cut)
    runs = {name: run for name, run in contestants(wire).items() if only in name or name == "limit"}
    if n > RAW_LIMIT:
        runs.pop("openai raw", None)
    times: dict[str, list[float]] = {name: [] for name in runs}
    streams = max(1, 50_000 // n)  # small ones are too short for the clock, and cold
    for _ in range(rounds):
        for name, run in runs.items():
            gc.collect()
            gc.disable()
            CLOCK.taken = 0
            times_over = RAW_STREAMS if name == "openai raw" else streams
            told = sum(run(chunks) for _ in range(times_over))
            times[name].append(CLOCK.taken / n / times_over / 1000)
            gc.enable()
            if told != n * times_over:
                sys.exit(f"{name} told {told} of {n * times_over} deltas")
    limit = statistics.median(times["limit"])
    for name, values in times.items():
        median = statistics.median(values)
        print(f"{wire:9} {n:>9,} {cut:>5} | {name:24} {median:9.3f} \u00b5s {median / limit:8.2f} x limit", flush=True)


def memory(wire: str, n: int) -> None:
    """What a stream holds when it is done, against its text."""
    chunks = pieces(BODIES[wire](n), "2 KB")
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    stream = sk.stream(iter(chunks), protocol=f"openai_{wire}")
    stream.until_done()
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    text = sys.getsizeof(stream.get_final_text())
    print(f"{wire:9} {n:>9,}       | memory held {held / 1e6:.2f} MB, text {text / 1e6:.2f} MB: {held / text:.2f} x")


def imports() -> None:
    """Import times in fresh interpreters, least of 7."""
    for name in ("msgspec", "anyio", "streamkit", "openai"):
        code = f"import time; t = time.perf_counter(); import {name}; print(time.perf_counter() - t)"
        runs = [float(subprocess.check_output([sys.executable, "-c", code], env=os.environ)) for _ in range(7)]
        print(f"import {name:12} {min(runs) * 1000:7.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", default="1000,10000,100000,1000000")
    parser.add_argument("--wire", default="chat,responses")
    parser.add_argument("--cut", default="2 KB,event")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="contestants with this in their name, beside the limit")
    arguments = parser.parse_args()
    for wire in arguments.wire.split(","):
        for cut in arguments.cut.split(","):
            for n in map(int, arguments.n.split(",")):
                rounds = max(arguments.rounds if n <= 100_000 else 3, 1)
                measure(wire, n, cut, rounds, arguments.only)
        memory(wire, max(map(int, arguments.n.split(","))))
    imports()


if __name__ == "__main__":
    main()
