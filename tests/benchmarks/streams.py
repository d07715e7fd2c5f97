"""What a stream itself costs, whatever its length: its making and closing, its first use, its memory.

    python -m tests.benchmarks.streams                # a table
    python -m tests.benchmarks.streams --json         # one object for each row

Bytes are the same on every machine with the same Python. Times are CPU times: medians of interleaved rounds.
The limits are the project's own aims.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import msgspec

import streamkit as sk

from .wires import WORDS, pieces
from .wires import chat as chat_body
from .wires import responses as responses_body

ROOT = Path(__file__).parents[2]
TEXT_DELTAS = 400  # of the streams whose memory is measured
KEPT = 100  # streams that are kept at once

# The most that they should be: bytes of an open stream, and of a kept one beside so many times its text; and `import streamkit`,
# in times of what it imports of others.
OPEN, KEPT_SIZE, KEPT_TEXT = 16_000, 8_000, 1.3
IMPORT = 1.7


class Row(NamedTuple):
    """One measurement, and the most that it should be; None where nothing is aimed at."""

    name: str
    value: float
    unit: str
    limit: float | None = None


def anthropic_body(n: int) -> list[bytes]:
    """Anthropic Messages: one text block of n deltas."""

    def event(type: str, **fields: object) -> bytes:
        return b"event: " + type.encode() + b"\ndata: " + msgspec.json.encode({"type": type, **fields}) + b"\n\n"

    message = {"id": "msg_01", "type": "message", "role": "assistant", "model": "claude", "content": []}
    deltas = ({"type": "text_delta", "text": WORDS[i % len(WORDS)]} for i in range(n))
    return [
        event("message_start", message={**message, "usage": {"input_tokens": 9, "output_tokens": 1}}),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *(event("content_block_delta", index=0, delta=delta) for delta in deltas),
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": n}),
        event("message_stop"),
    ]


BODIES = {"chat": chat_body, "responses": responses_body, "anthropic": anthropic_body}


class Handler(sk.EventHandler):
    def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        pass


class AsyncHandler(sk.AsyncEventHandler):
    async def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        pass


async def _chunks(chunks: list[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def read(chunks: list[bytes]) -> sk.StreamManager:
    """A stream that was read to its end."""
    stream = sk.stream(iter(chunks), Handler())
    stream.until_done()
    return stream


async def aread(chunks: list[bytes]) -> sk.AsyncStreamManager:
    """The same in a task."""
    stream = sk.astream(_chunks(chunks), AsyncHandler())
    await stream.until_done()
    return stream


def read_one_delta(chunks: list[bytes]) -> tuple[sk.StreamManager, Iterator[sk.Event]]:
    """A stream that is open: its first delta has come."""
    stream = sk.stream(iter(chunks), Handler())
    events = iter(stream)
    next(event for event in events if isinstance(event, sk.TextDelta))
    return stream, events


# -- memory


def held(make: Callable[[], Any], count: int = KEPT) -> float:
    """The bytes that each of many results holds."""
    for _ in range(3):  # what is made only once is made
        make()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = [make() for _ in range(count)]
        gc.collect()
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    for one in kept:
        if isinstance(one, tuple):
            one[0].close()
    return used / count


def finished_memory(wire: str, cut: str, *, is_async: bool = False, count: int = KEPT) -> tuple[float, int]:
    """The bytes that a finished stream holds, whose text nobody read, and the bytes of the text."""
    chunks = pieces(BODIES[wire](TEXT_DELTAS), cut)
    text = sys.getsizeof(read(chunks).get_final_text())
    if not is_async:
        return held(lambda: read(list(chunks)), count), text
    loop = asyncio.new_event_loop()
    try:
        return held(lambda: loop.run_until_complete(aread(list(chunks))), count), text
    finally:
        loop.close()


def open_memory(wire: str, cut: str, count: int = KEPT) -> float:
    """The bytes that a stream holds after its first delta, the chunk that it reads among them."""
    chunks = pieces(BODIES[wire](TEXT_DELTAS), cut)
    return held(lambda: read_one_delta(chunks), count)


class _Beginning:
    """The first 4 KB of a stream, as a network gives them. When the next chunk is asked for, it waits as `wait` says."""

    __slots__ = ("chunks", "given", "wait")

    def __init__(self, chunks: list[bytes], wait: Callable[[], Any]) -> None:
        self.chunks, self.wait, self.given = chunks, wait, 0

    def next_chunk(self) -> bytes:
        """A chunk that no other stream has; none if the stream is to wait."""
        if sum(map(len, self.chunks[: self.given])) >= 4096:
            return b""
        self.given += 1
        return bytes(bytearray(self.chunks[self.given - 1]))

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if chunk := self.next_chunk():
            return chunk
        self.wait()
        raise StopIteration

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if chunk := self.next_chunk():
            return chunk
        await self.wait()
        raise StopAsyncIteration


def waiting_memory(wire: str, cut: str, count: int = KEPT) -> float:
    """The bytes that a stream holds while its thread waits for the next chunk, beyond what a loop over the source holds. Each
    pull that waits reads the next source, so that one thread is enough."""
    chunks = pieces(BODIES[wire](TEXT_DELTAS), cut)

    def bare(source: _Beginning) -> None:
        with contextlib.suppress(sk.IncompleteStreamError):  # which takes memory, too
            for chunk in source:
                del chunk

    def read_stream(source: _Beginning) -> None:
        with contextlib.suppress(sk.IncompleteStreamError):
            sk.stream(source, Handler()).until_done()

    def held_by(read_one: Callable[[_Beginning], None], count: int) -> int:
        used = 0

        def read_some(left: int) -> None:
            nonlocal used
            if left:
                read_one(_Beginning(chunks, lambda: read_some(left - 1)))
            else:
                gc.collect()
                used = tracemalloc.get_traced_memory()[0]

        gc.collect()
        tracemalloc.start()
        try:
            read_some(count)
        finally:
            tracemalloc.stop()
        return used

    count = min(count, 50)  # or Python takes it for an endless recursion
    held_by(read_stream, 3)  # what is made only once is made
    return (held_by(read_stream, count) - held_by(bare, count)) / count


def awaiting_memory(wire: str, cut: str, backend: str, count: int = KEPT) -> float:
    """The same of a task, beyond what a task holds that reads the source without a stream."""
    chunks = pieces(BODIES[wire](TEXT_DELTAS), cut)

    async def bare(source: _Beginning) -> None:
        with contextlib.suppress(sk.IncompleteStreamError):
            async for chunk in source:
                del chunk

    async def read_stream(source: _Beginning) -> None:
        with contextlib.suppress(sk.IncompleteStreamError):
            await sk.astream(source, AsyncHandler()).until_done()

    async def held_by(read_some: Callable[[_Beginning], Any], count: int) -> int:
        is_over, all_wait, waiting = anyio.Event(), anyio.Event(), 0

        async def wait() -> None:
            nonlocal waiting
            waiting += 1
            if waiting == count:
                all_wait.set()
            await is_over.wait()

        async with anyio.create_task_group() as group:
            gc.collect()
            tracemalloc.start()
            try:
                for _ in range(count):
                    group.start_soon(read_some, _Beginning(chunks, wait))
                await all_wait.wait()
                gc.collect()
                used = tracemalloc.get_traced_memory()[0]
            finally:
                tracemalloc.stop()
            is_over.set()
        return used

    async def both() -> float:
        await held_by(read_stream, 3)  # what is made only once is made
        return (await held_by(read_stream, count) - await held_by(bare, count)) / count

    return anyio.run(both, backend=backend)


# -- a stream of one delta


def own_time(wire: str, streams: int = 300, rounds: int = 7) -> float:
    """Milliseconds of making, reading and closing a stream of one delta."""
    body, times = BODIES[wire](1), []
    for _ in range(rounds):
        start = time.process_time_ns()
        for _ in range(streams):
            sk.stream(body, Handler()).until_done()
        times.append((time.process_time_ns() - start) / streams)
    return statistics.median(times) / 1e6


# -- a process


def _environment() -> dict[str, str]:
    """Of a process that may use compiled modules, as an installed package has them."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {**environment, "PYTHONPATH": str(ROOT)}


def import_times(rounds: int = 20) -> dict[str, float]:
    """Milliseconds of CPU of a process with these imports, beyond those of one without, by what it imports."""
    codes = {"": "pass", "msgspec, anyio": "import msgspec, anyio", "streamkit": "import streamkit"}
    times: dict[str, list[float]] = {name: [] for name in codes}
    for number in range(rounds + 1):
        for name, code in codes.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", code], check=True, env=_environment())
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if number:  # the first compiles
                times[name].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    medians = {name: statistics.median(values) * 1000 for name, values in times.items()}
    return {name: value - medians[""] for name, value in medians.items() if name}


def first_stream(wire: str, rounds: int = 7) -> float:
    """Milliseconds of CPU by which the first stream of a process is dearer than later ones."""
    code = f"""
import sys, time
import streamkit as sk
chunks = sys.stdin.buffer.read().split({SEPARATOR!r})
times = [time.process_time_ns()]
for _ in range(10):
    sk.stream(chunks).until_done()
    times.append(time.process_time_ns())
taken = [after - before for before, after in zip(times, times[1:])]
print((taken[0] - sorted(taken)[4]) / 1e6)
"""
    data = SEPARATOR.join(BODIES[wire](1))
    runs = [
        float(
            subprocess.run(
                [sys.executable, "-c", code], input=data, capture_output=True, check=True, env=_environment()
            ).stdout
        )
        for _ in range(rounds + 1)
    ]
    return statistics.median(runs[1:])


SEPARATOR = b"\0"


def rows() -> Iterator[Row]:
    """All measurements, one after the other."""
    for wire in BODIES:
        yield Row(f"a stream of one delta, {wire}", own_time(wire), "ms")
        yield Row(f"the first stream of a process, {wire}", first_stream(wire), "ms more")
    imports = import_times()
    yield Row("import streamkit", imports["streamkit"], "ms", IMPORT * imports["msgspec, anyio"])
    yield Row("import msgspec, anyio", imports["msgspec, anyio"], "ms")
    yield from memory_rows()


def memory_rows(count: int = KEPT) -> Iterator[Row]:
    """Those of memory. They differ by 1.5 KB in a process that has made streams with many kinds of options before: Python
    shares the keys of objects of a class only up to 30."""
    for wire in BODIES:
        for cut in ("event", "2 KB"):
            yield Row(f"memory of an open stream, {wire}, {cut}", open_memory(wire, cut, count), "bytes", OPEN)
            name = f"memory of a stream that waits, {wire}, {cut}"
            yield Row(f"{name}, sync", waiting_memory(wire, cut, count), "bytes", OPEN)
            for backend in ("asyncio", "trio") if cut == "2 KB" else ():
                yield Row(f"{name}, {backend}", awaiting_memory(wire, cut, backend, count), "bytes", OPEN)
            for is_async in (False, True):
                size, text = finished_memory(wire, cut, is_async=is_async, count=count)
                face = "async" if is_async else "sync"
                name = f"memory of a finished stream, {wire}, {cut}, {face}"
                yield Row(name, size, "bytes", KEPT_TEXT * text + KEPT_SIZE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--memory", type=int, metavar="COUNT", help="only the memory, over so many streams")
    arguments = parser.parse_args()
    as_json = arguments.json
    for row in memory_rows(arguments.memory) if arguments.memory else rows():
        if as_json:
            print(json.dumps(row._asdict()), flush=True)
        else:
            limit = "" if row.limit is None else f"  (at most {row.limit:,.10g})"
            print(f"{row.name:58} {row.value:12,.2f} {row.unit}{limit}", flush=True)


if __name__ == "__main__":
    main()
