"""What fan-out costs: an event from one producer to several consumers, through a shared log and through queues.

    python -m tests.benchmarks --only relay
    python -m tests.benchmarks.relay --n 20000 --rounds 7
    python -m tests.benchmarks.relay --memory 1000000      # this table alone

In one run, in interleaved rounds, each contestant hands n text deltas from a producer task to 1, 3 and 10 consumer tasks
on asyncio; the producer lets the others run after each burst. The table has medians of CPU time an event, for all consumers
together.

    log alone     a MemoryRelay, and readings of it, which give bytes
    queues alone  an asyncio.Queue for each consumer
    Emitter       `emitter.text`, and `astream` over the emitter with a handler for each consumer
    queues        events put into a queue for each consumer, and `astream` over an iterator of it with the same handler

`rows()` adds readers in threads (where the queues are `queue.SimpleQueue`), and the time to resume in the middle of a run of
1,000 messages.

Then the latency: from `emitter.text` in a thread to the hook of a consumer that waits, on each face.

With `--memory n`, the megabytes that an emitter and its log hold at n/4, n/2 and n events, which `tracemalloc` counts, for
one long message and for many short ones, with a relay's default limit and with a small one.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from queue import SimpleQueue
from typing import Any

import anyio

import streamkit as sk
from streamkit.protocols import codec

from .measuring import Profile, Row, interleaved, numbered

TITLE = "Fan-out: a relay beside queues"
ABOUT = """\
CPU time on asyncio for each event from one producer to all consumers together. *Emitter* is `emitter.text` and `astream` over
the emitter, with a handler for each consumer; *log alone* is the relay without streams. The baseline is what one writes
without a relay: a queue for each consumer, and `astream` over it. A relay also keeps the run, so that a reader may come late."""

CONSUMERS = (1, 3, 10)
_PAUSE = 0.0001  # seconds between two tokens for each reader in a thread: all have the one before, and wait again


class Counting(sk.EventHandler):
    def __init__(self) -> None:
        self.count = 0

    def on_text_delta(self, delta: Any, snapshot: Any, /) -> None:
        self.count += 1


async def log_alone(n: int, burst: int, consumers: int) -> None:
    relay = sk.MemoryRelay()
    writer = relay.open("run", control=lambda control: None)
    line = codec.encode_event(sk.TextDelta("m", "word"))
    counts: list[int] = []

    async def consume() -> None:
        reading = relay.read("run")
        count = 0
        async for batch in reading:
            count += len(batch)
        counts.append(count)

    async def produce() -> None:
        for done in range(1, n + 1):
            writer.append((line,))
            if done % burst == 0:
                await asyncio.sleep(0)
        writer.end("completed")

    await asyncio.gather(*(consume() for _ in range(consumers)), produce())
    assert counts == [n] * consumers


async def queues_alone(n: int, burst: int, consumers: int) -> None:
    queues: list[asyncio.Queue[Any]] = [asyncio.Queue() for _ in range(consumers)]
    counts: list[int] = []

    async def consume(queue: asyncio.Queue[Any]) -> None:
        count = 0
        while await queue.get() is not None:
            count += 1
        counts.append(count)

    async def produce() -> None:
        for done in range(1, n + 1):
            event = sk.TextDelta("m", "word")
            for queue in queues:
                queue.put_nowait(event)
            if done % burst == 0:
                await asyncio.sleep(0)
        for queue in queues:
            queue.put_nowait(None)

    await asyncio.gather(*map(consume, queues), produce())
    assert counts == [n] * consumers


async def emitter(n: int, burst: int, consumers: int) -> None:
    source = sk.Emitter()
    handlers = [Counting() for _ in range(consumers)]

    async def produce() -> None:
        with source:
            for done in range(1, n + 1):
                source.text("word")
                if done % burst == 0:
                    await asyncio.sleep(0)

    await asyncio.gather(*(sk.astream(source, handler).until_done() for handler in handlers), produce())
    assert {handler.count for handler in handlers} == {n}


async def queues(n: int, burst: int, consumers: int) -> None:
    all_queues: list[asyncio.Queue[Any]] = [asyncio.Queue() for _ in range(consumers)]
    handlers = [Counting() for _ in range(consumers)]

    async def items(queue: asyncio.Queue[Any]) -> AsyncIterator[Any]:
        while (event := await queue.get()) is not None:
            yield event

    async def produce() -> None:
        for done in range(1, n + 1):
            event = sk.TextDelta("m", "word")
            for queue in all_queues:
                queue.put_nowait(event)
            if done % burst == 0:
                await asyncio.sleep(0)
        for queue in all_queues:
            queue.put_nowait(sk.StreamEnd())
            queue.put_nowait(None)

    streams = [sk.astream(items(q), h) for q, h in zip(all_queues, handlers, strict=True)]
    await asyncio.gather(*(stream.until_done() for stream in streams), produce())
    assert {handler.count for handler in handlers} == {n}


CONTESTANTS: dict[str, Callable[[int, int, int], Awaitable[None]]] = {
    "log alone": log_alone,
    "queues alone": queues_alone,
    "Emitter": emitter,
    "queues": queues,
}


def cost(contestant: Callable[[int, int, int], Awaitable[None]], n: int, burst: int, consumers: int) -> float:
    gc.collect()

    async def main() -> float:
        began = time.process_time()
        await contestant(n, burst, consumers)
        return time.process_time() - began

    return asyncio.run(main()) / n * 1e6


def costs(n: int, rounds: int, burst: int, consumers: int) -> dict[str, float]:
    """Microseconds an event of each contestant, the medians of interleaved rounds."""
    functions = {name: partial(cost, contestant, n, burst, consumers) for name, contestant in CONTESTANTS.items()}
    return interleaved(functions, rounds)


def threads(read: str, n: int, consumers: int) -> float:
    """Microseconds of CPU an event and consumer, token by token, to consumers in threads: through an Emitter or through
    queues."""
    handlers = [Counting() for _ in range(consumers)]
    emitted = sk.Emitter()
    all_queues: list[SimpleQueue[Any]] = [SimpleQueue() for _ in handlers]
    sources = [emitted if read == "Emitter" else iter(one.get, None) for one in all_queues]
    reading = [
        threading.Thread(target=sk.stream(source, handler).until_done)
        for source, handler in zip(sources, handlers, strict=True)
    ]
    for thread in reading:
        thread.start()
    began = time.process_time()
    for _ in range(n):
        if read == "Emitter":
            emitted.text("word")
        else:
            event = sk.TextDelta("m", "word")
            for one in all_queues:
                one.put(event)
        time.sleep(consumers * _PAUSE)
    emitted.close()
    for one in all_queues:
        one.put(sk.StreamEnd())
        one.put(None)
    for thread in reading:
        thread.join()
    assert {handler.count for handler in handlers} == {n}
    return (time.process_time() - began) / n / consumers * 1e6


def write_text(source: sk.Emitter, number: int) -> None:
    source.text(f"message {number}")


def write_kinds(source: sk.Emitter, number: int) -> None:
    """One of the kinds of messages that an agent which runs code has, each after the one that it belongs to."""
    match number % 5:
        case 0:
            source.tool_call("execute", {"code": f"print({number})"}, call_id=f"call-{number}")
        case 1:
            source.code(f"print({number})", "python")
        case 2:
            source.console(f"{number}\n", "stdout")
        case 3:
            source.tool_output(f"{number}", call_id=f"call-{number - 3}")
        case _:
            source.text(f"message {number}")


def resuming(write: Callable[[sk.Emitter, int], None]) -> Callable[[], float]:
    """What resumes in the middle of a run of 1,000 messages: gives the seconds to the first event."""
    cursor: str | None = None
    with sk.Emitter() as source:
        for number in range(1000):
            write(source, number)
            cursor = source.cursor if number == 500 else cursor
            source.end_message()

    def resume() -> float:
        began = time.perf_counter()
        stream = sk.stream(source.reader(cursor))
        next(iter(stream))
        took = time.perf_counter() - began
        stream.close()
        return took

    return resume


def rows(profile: Profile) -> Iterator[Row]:
    n, rounds = profile.pick(50, 1_000, 10_000), profile.pick(1, 3, 5)
    for burst in (1, 20):
        for consumers in profile.pick((2,), (1, 10), CONSUMERS):
            readers = "1 reader" if consumers == 1 else f"{consumers} readers"
            case = f"token by token, {readers}" if burst == 1 else f"{burst} tokens at once, {readers}"
            yield from numbered(costs(n, rounds, burst, consumers), case, "µs an event", "queues")
    readers = profile.pick(2, 20, 100)
    functions = {name: partial(threads, name, profile.pick(20, 100, 200), readers) for name in ("Emitter", "queues")}
    in_threads = interleaved(functions, rounds)
    yield from numbered(in_threads, f"token by token, {readers} readers in threads", "µs an event and reader", "queues")
    for case, write in (("texts", write_text), ("calls, code, console, outputs, texts", write_kinds)):
        taken = interleaved({"Emitter": resuming(write)}, rounds * 5)["Emitter"] * 1e3
        yield from numbered({"Emitter": taken}, f"resume in the middle of 1,000 messages: {case}", "ms", "")


def latency(face: str) -> float:
    """Seconds from a thread's first token to the hook of a consumer that waits for it."""
    source = sk.Emitter()
    sent_at = 0.0
    delays: list[float] = []
    waits = threading.Event()

    class Receiving(sk.EventHandler):
        def on_run_created(self, run: Any, /) -> None:
            waits.set()

        def on_text_delta(self, delta: Any, snapshot: Any, /) -> None:
            delays.append(time.perf_counter() - sent_at)

    def produce() -> None:
        nonlocal sent_at
        with source:
            source.step()
            waits.wait()
            time.sleep(0.01)  # it has begun to wait again
            sent_at = time.perf_counter()
            source.text("first")

    thread = threading.Thread(target=produce)
    thread.start()
    if face == "sync":
        sk.stream(source, Receiving()).until_done()
    else:
        anyio.run(lambda: sk.astream(source, Receiving()).until_done(), backend=face)
    thread.join()
    return delays[0]


def many_short(source: sk.Emitter, events: int) -> None:
    for _ in range(events // 7):
        for _ in range(5):
            source.text("word ")
        source.end_message()


def one_long(source: sk.Emitter, events: int) -> None:
    for _ in range(events):
        source.text("word ")


def memory(events: int) -> None:
    """Print what is held as a run grows."""
    print(f"\nmegabytes held after so many events{'':22}" + "".join(f"{events // n:>12,}" for n in (4, 2, 1)))
    for limit in (1_000, sk.MemoryRelay().limit):
        for shape in (many_short, one_long):
            tracemalloc.start()
            source = sk.Emitter(sk.MemoryRelay(limit=limit))
            held: list[float] = []
            for share in (4, 4, 2):
                shape(source, events // share)
                held.append(tracemalloc.get_traced_memory()[0] / 1e6)
            tracemalloc.stop()
            name = f"{shape.__name__.replace('_', ' ')}, limit={limit:,}"
            print(f"  {name:38} {len(source.messages):>8,} messages" + "".join(f"{one:12.1f}" for one in held))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=10_000, help="events")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", type=int, default=0, metavar="EVENTS", help="print what so many events hold")
    options = parser.parse_args()
    if options.memory:
        memory(options.memory)
        return
    for burst in (1, 20):
        table = {consumers: costs(options.n, options.rounds, burst, consumers) for consumers in CONSUMERS}
        print(f"\nµs an event, bursts of {burst}, {options.n} events    " + "".join(f"{c:>9}" for c in CONSUMERS))
        for name in CONTESTANTS:
            print(f"  {name:38}" + "".join(f"{table[c][name]:9.2f}" for c in CONSUMERS))
    print("\nthe first token from a thread, to a consumer that waits")
    for face in ("sync", "asyncio", "trio"):
        times = sorted(latency(face) * 1e3 for _ in range(50))
        print(f"  {face:10} median {statistics.median(times):.2f} ms, the worst of 50 {times[-1]:.2f} ms")


if __name__ == "__main__":
    main()
