"""What a relay on Redis costs: latency from producer to reader, events a second, resuming, and encoding beside plain msgspec.

    python -m tests.benchmarks.redis_relay
    python -m tests.benchmarks.redis_relay --n 2000

The server is one of its own on the loopback. Latency is from `append` to the moment the reader has the event, which carries
the time it was written, for events that come one by one at so many a second.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable

import anyio
import msgspec

from streamkit import TextDelta
from streamkit.protocols import codec
from streamkit.relay.redis import RedisRelay

from ..redis_server import RedisServer


def percentiles(seconds: list[float]) -> str:
    """Median and 99th percentile, in milliseconds."""
    ordered = sorted(seconds)
    return f"p50 {statistics.median(ordered) * 1e3:6.2f} ms   p99 {ordered[int(len(ordered) * 0.99)] * 1e3:6.2f} ms"


def latency(relay: RedisRelay, run_id: str, n: int, pause: float, face: str) -> list[float]:
    """Seconds from a thread that writes to a reader that waits."""
    writer = relay.open(run_id, control=lambda control: None)
    reading = relay.read(run_id)
    took: list[float] = []

    def received(entries: list[object]) -> None:
        now = time.perf_counter()
        took.extend(now - json.loads(entry.data)["at"] for entry in entries)  # type: ignore[attr-defined]

    def write() -> None:
        time.sleep(0.2)  # until it waits
        for _ in range(n):
            writer.append([b'{"at":%.9f}' % time.perf_counter()])
            time.sleep(pause)
        writer.end("done")

    async def consume() -> None:
        async for entries in reading:
            received(entries)  # type: ignore[arg-type]

    thread = threading.Thread(target=write)
    thread.start()
    if face == "threads":
        for entries in reading:
            received(entries)  # type: ignore[arg-type]
    else:
        anyio.run(consume, backend=face)
    thread.join()
    return took


def throughput(relay: RedisRelay, run_id: str, n: int) -> tuple[float, float]:
    """Microseconds that an `append` of one event takes, and events a second until all are stored."""
    writer = relay.open(run_id, control=lambda control: None)
    line = codec.encode_event(TextDelta("message-1", "word "))
    began = time.perf_counter()
    for _ in range(n):
        writer.append((line,))
    called = time.perf_counter() - began
    writer.flush(60)
    stored = time.perf_counter() - began
    writer.end("done")
    return called / n * 1e6, n / stored


def resuming(relay: RedisRelay, run_id: str, n: int) -> list[tuple[str, float]]:
    """Milliseconds to read all of a run, and its last hundred events."""
    record = relay.get(run_id)
    assert record is not None
    assert record.cursor is not None
    late = record.cursor.replace(f"-{n}.", f"-{n - 100}.")
    results: list[tuple[str, float]] = []
    for name, after in ((f"all {n:,} events", None), ("the last 100 events", late)):
        times: list[float] = []
        for _ in range(5):
            began = time.perf_counter()
            count = sum(map(len, relay.read(run_id, after)))
            times.append(time.perf_counter() - began)
            assert count == (n if after is None else 100)
        results.append((name, statistics.median(times) * 1e3))
    return results


def encoding(n: int) -> tuple[float, float]:
    """Microseconds to encode a delta: ours, and plain msgspec of the same struct."""
    event, plain = TextDelta("message-1", "word "), msgspec.json.Encoder()

    def cost(encode: Callable[[object], bytes]) -> float:
        began = time.perf_counter()
        for _ in range(n):
            encode(event)
        return (time.perf_counter() - began) / n * 1e6

    ours = [cost(codec.encode_event) for _ in range(5)]  # type: ignore[arg-type]
    theirs = [cost(plain.encode) for _ in range(5)]
    return statistics.median(ours), statistics.median(theirs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1000, help="events whose latency is measured")
    parser.add_argument("--many", type=int, default=100_000, help="events that are written at once")
    options = parser.parse_args()
    server = RedisServer()
    try:
        with RedisRelay(server.url, limit=10 * options.many) as relay:
            for face in ("threads", "asyncio", "trio"):
                for pause in (0.01, 0.002):
                    took = latency(relay, f"{face}-{pause}", options.n, pause, face)
                    print(f"{face:8} {1 / pause:5.0f} events/s   {percentiles(took)}", flush=True)
            called, rate = throughput(relay, "many", options.many)
            print(f"append of one event: {called:.2f} us; stored: {rate:,.0f} events/s", flush=True)
            for name, milliseconds in resuming(relay, "many", options.many):
                print(f"resume, {name}: {milliseconds:.1f} ms")
    finally:
        server.close()
    ours, theirs = encoding(50_000)
    print(f"encode a delta: {ours:.2f} us; plain msgspec: {theirs:.2f} us")


if __name__ == "__main__":
    main()
