"""What a relay on Redis costs: latency from producer to reader, events a second and reading again, beside the relay in memory.

    python -m tests.benchmarks --only redis_relay
    python -m tests.benchmarks.redis_relay --n 2000 --many 100000     # more of it, and for each face

The server is one of its own on the loopback. Latency is from `append` to the moment the reader has the event, which carries
the time it was written, for events that come one by one at so many a second.
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from itertools import count
from typing import Any

import anyio
import redis

import streamkit as sk
from streamkit.protocols import codec
from streamkit.relay import Relay
from streamkit.relay.redis import RedisRelay

from ..redis_server import PROGRAM, RedisServer
from .measuring import Profile, Row, numbered

TITLE = "A relay on Redis"
ABOUT = """\
The relay on a Redis server of its own on loopback, beside the relay in memory, by the clock on the wall. *Latency* is from
`append` in a thread to a reader that waits, of events that come one by one, 200 a second. *redis-py alone* is `XADD` and a
blocking `XREAD`, as one writes it by hand without what a relay does beside. *At once*: as fast as a loop appends, until all
are stored. *Read again*: a reader that comes when the run is over, and one that has all but the last 100 events."""

PAUSE = 0.005  # seconds between two events whose latency is measured
_numbers = count()  # of runs


def _run_id() -> str:
    return f"run-{next(_numbers)}"


def _stamp() -> bytes:
    return b'{"at":%.9f}' % time.perf_counter()


def _age(line: bytes) -> float:
    """For how many seconds an event has been written."""
    return time.perf_counter() - float(line[6:-1])


def _paced(write: Callable[[bytes], object], n: int, pause: float, end: Callable[[], object]) -> threading.Thread:
    """A thread that writes n events, once the reader waits."""

    def run() -> None:
        time.sleep(0.2)
        for _ in range(n):
            write(_stamp())
            time.sleep(pause)
        end()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def latency(relay: Relay, face: str, n: int, pause: float = PAUSE) -> list[float]:
    """Seconds from a thread that writes to a reader that waits: a thread, or a task on asyncio or trio."""
    run_id = _run_id()
    writer = relay.open(run_id, control=lambda control: None)
    reading = relay.read(run_id)
    took: list[float] = []

    async def consume() -> None:
        async for entries in reading:
            took.extend(_age(entry.data) for entry in entries)

    thread = _paced(lambda line: writer.append((line,)), n, pause, lambda: writer.end("completed"))
    if face == "threads":
        for entries in reading:
            took.extend(_age(entry.data) for entry in entries)
    else:
        anyio.run(consume, backend=face)
    thread.join()
    assert len(took) == n, f"{len(took)} of {n} events arrived"
    return took


def latency_by_hand(url: str, n: int, pause: float = PAUSE) -> list[float]:
    """The same of a Redis stream, with redis-py alone."""
    name, last = _run_id(), "$"
    took: list[float] = []
    with closing(redis.Redis.from_url(url)) as ours, closing(redis.Redis.from_url(url)) as theirs:
        thread = _paced(lambda line: ours.xadd(name, {"data": line}), n, pause, lambda: None)
        while len(took) < n:
            found: Any = theirs.xread({name: last}, block=10_000)
            assert found, f"{len(took)} of {n} events arrived"
            for id, fields in found[0][1]:
                last = id
                took.append(_age(fields[b"data"]))
        thread.join()
    return took


def throughput(relay: Relay, n: int) -> tuple[str, float, float]:
    """A run, the microseconds that an `append` of one event takes, and the events a second until all are stored."""
    run_id = _run_id()
    writer = relay.open(run_id, control=lambda control: None)
    line = codec.encode_event(sk.TextDelta("message-1", "word "))
    began = time.perf_counter()
    for _ in range(n):
        writer.append((line,))
    called = time.perf_counter() - began
    writer.flush(60)
    stored = time.perf_counter() - began
    writer.end("completed")
    return run_id, called / n * 1e6, n / stored


def reading_again(relay: Relay, run_id: str, n: int) -> dict[str, float]:
    """Milliseconds to read all of a run, and its last hundred events."""
    record = relay.get(run_id)
    assert record is not None
    assert record.cursor is not None
    late = record.cursor.replace(f"-{n}.", f"-{n - 100}.")
    found: dict[str, float] = {}
    for name, after in ((f"all {n:,} events", None), ("the last 100 events", late)):
        times: list[float] = []
        for _ in range(5):
            began = time.perf_counter()
            events = sum(map(len, relay.read(run_id, after)))
            times.append(time.perf_counter() - began)
            assert events == (n if after is None else 100)
        found[name] = statistics.median(times) * 1e3
    return found


BY_HAND, MEMORY = "redis-py alone, threads", "memory"


def rows(profile: Profile) -> Iterator[Row]:
    if PROGRAM is None:
        yield Row("Latency, p50", "Redis", None, "ms", note="there is no program redis-server")
        return
    server = RedisServer()
    try:
        many = profile.pick(200, 20_000, 100_000)
        with RedisRelay(server.url, limit=10 * many) as on_redis, closing(sk.MemoryRelay(limit=10 * many)) as memory:
            yield from _latencies(server.url, {"Redis": on_redis, MEMORY: memory}, profile.pick(5, 200, 1_000))
            yield from _at_once({"Redis": on_redis, MEMORY: memory}, many)
    finally:
        server.close()


def _latencies(url: str, relays: Mapping[str, Relay], n: int) -> Iterator[Row]:
    ways: dict[str, Callable[[int], list[float]]] = {
        f"{name}, {face}": partial(latency, relay, face)
        for name, relay in relays.items()
        for face in ("threads", "asyncio")
    }
    ways[BY_HAND] = partial(latency_by_hand, url)
    took = {name: sorted(way(n)) for name, way in ways.items()}
    for percent in (50, 99):
        values: dict[str, float | None] = {name: one[n * percent // 100] * 1e3 for name, one in took.items()}
        yield from numbered(values, f"Latency, p{percent}", "ms", BY_HAND)


def _at_once(relays: Mapping[str, Relay], n: int) -> Iterator[Row]:
    again: dict[str, dict[str, float]] = {}
    called: dict[str, float | None] = {}
    stored: dict[str, float | None] = {}
    for name, relay in relays.items():
        run_id, called[name], stored[name] = throughput(relay, n)
        again[name] = reading_again(relay, run_id, n)
    yield from numbered(called, "At once, a call of append", "µs an event", MEMORY)
    yield from numbered(stored, "At once, more is better", "events a second", MEMORY)
    for what in again[MEMORY]:
        yield from numbered({name: found[what] for name, found in again.items()}, f"Read again, {what}", "ms", MEMORY)


def _percentiles(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return f"p50 {statistics.median(ordered) * 1e3:6.2f} ms   p99 {ordered[int(len(ordered) * 0.99)] * 1e3:6.2f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1000, help="events whose latency is measured")
    parser.add_argument("--many", type=int, default=100_000, help="events that are written at once")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    server = RedisServer()
    try:
        with RedisRelay(server.url, limit=10 * options.many) as relay:
            for face in ("threads", "asyncio", "trio"):
                for pause in (0.01, 0.002):
                    took = latency(relay, face, options.n, pause)
                    print(f"{face:8} {1 / pause:5.0f} events/s   {_percentiles(took)}", flush=True)
            run_id, called, rate = throughput(relay, options.many)
            print(f"append of one event: {called:.2f} us; stored: {rate:,.0f} events/s", flush=True)
            for name, milliseconds in reading_again(relay, run_id, options.many).items():
                print(f"read again, {name}: {milliseconds:.1f} ms")
    finally:
        server.close()


if __name__ == "__main__":
    main()
