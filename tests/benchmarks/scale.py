"""What a run, a reader and a conversation cost a Redis server, and what a run costs a process.

    python -m tests.benchmarks --only scale

Commands are those that Redis counts, those in scripts included; bytes are its `used_memory`, and in a process what `tracemalloc`
counts. These do not depend on how busy the machine is, but for a few commands of the relay's own threads. CPU time is what Redis
says that it used, and what this process used.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count

import streamkit as sk
from streamkit.protocols import codec
from streamkit.relay.redis import RedisRelay
from streamkit.stores import RedisStore

from ..redis_server import PROGRAM, RedisServer
from .measuring import Profile, Row

TITLE = "What Redis does and holds"
ABOUT = """\
A run of so many text deltas of about five characters that come one by one, and a conversation of 20 messages of 400 characters.
*Commands* are what a Redis server does for it, those in scripts included: for the run itself, and for each of its events. Readers are
in the processes named, which are relays of their own. *Bytes* are what Redis holds of a run that has ended, and of a conversation; and
what a process holds of a run in a `MemoryRelay`. *CPU time* is that of Redis, and of one process that writes and reads the events."""

NAME = "streamkit"
_runs = (f"run-{number}" for number in count())


def _line(number: int) -> bytes:
    return codec.encode_event(sk.TextDelta("message-1", f"{number:04} "))


def _commands(redis: RedisServer, events: int, readers: int, processes: int) -> int:
    """The commands of a run that so many readers, evenly spread over processes, read to its end."""
    with ExitStack() as stack:
        relays = [stack.enter_context(RedisRelay(redis.url)) for _ in range(1 + processes)]
        run = next(_runs)
        before = redis.calls()
        writer = relays[0].open(run, {"conversation": run}, control=print)
        readings = [iter(relays[1 + number % processes].read(run)) for number in range(readers)]
        for number in range(events):
            writer.append([_line(number)])
            for reading in readings:
                assert sum(1 for _ in next(reading)) == 1  # the event has arrived, so the next one is sent alone
        writer.end("completed")
        for reading in readings:
            assert [*reading] == []
        return redis.calls() - before


def _rows_of_commands(redis: RedisServer, profile: Profile) -> Iterator[Row]:
    few, many = profile.pick((10, 20), (50, 200), (100, 400))
    for readers, processes in profile.pick(((1, 1),), ((1, 1), (10, 1), (10, 10)), ((1, 1), (10, 1), (10, 10))):
        least, most = (
            min(_commands(redis, events, readers, processes) for _ in range(profile.pick(1, 3, 3)))
            for events in (few, many)
        )
        each = max(0.01, (most - least) / (many - few))
        where = f"{readers} reader{'s'[: readers > 1]} in {processes} process{'es'[: 2 * (processes > 1)]}"
        yield Row(f"Commands of a run, {where}", NAME, least - few * each, "commands a run")
        yield Row(f"Commands of its events, {where}", NAME, each, "commands an event")


def _rows_of_time(redis: RedisServer, profile: Profile) -> Iterator[Row]:
    events = profile.pick(10, 500, 2_000)
    before, began = _cpu(redis), time.process_time()
    _commands(redis, events, 1, 1)
    process, server = time.process_time() - began, _cpu(redis) - before
    yield Row("CPU time of Redis", NAME, server / events * 1e6, "µs an event")
    yield Row("CPU time of the process that writes and reads", NAME, process / events * 1e6, "µs an event")


def _cpu(redis: RedisServer) -> float:
    info = redis.command("INFO", "cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def _used(redis: RedisServer) -> int:
    return int(redis.command("INFO", "memory")["used_memory"])


def _rows_of_bytes(redis: RedisServer, profile: Profile) -> Iterator[Row]:
    number, events = profile.pick(5, 100, 200), 400
    with RedisRelay(redis.url) as relay, RedisStore(redis.url) as store:
        before = _used(redis)
        for _ in range(number):
            writer = relay.open(next(_runs), control=print)
            writer.append([_line(one) for one in range(events)])
            writer.end("completed")
        runs = _used(redis)
        yield Row(f"Redis, a run of {events} events", NAME, (runs - before) / number / 1000, "KB")
        messages = [sk.TextMessage(f"m-{one}", role="user", content="a word on it " * 31) for one in range(20)]
        for one in range(number):
            store.save(f"c-{one}", messages, 0, owner="ann", title="A title")
        yield Row("Redis, a conversation of 20 messages", NAME, (_used(redis) - runs) / number / 1000, "KB")
        names = count()
        for name, act in (
            ("load", lambda: store.load("c-1")),
            ("save", lambda: store.save(f"new-{next(names)}", messages, 0, owner="ann")),
        ):
            yield Row(f"Commands to {name} a conversation", NAME, redis.calls_of(act), "commands")


def _in_a_process(number: int, events: int) -> float:
    """Kilobytes of a run in a relay in memory, while it is written."""
    relay, emitters = sk.MemoryRelay(), []
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(number):
            emitters.append(sk.Emitter(relay, next(_runs)))
            for one in range(events):
                emitters[-1].text(f"{one:04} ")
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / number / 1000
    finally:
        tracemalloc.stop()
        for emitter in emitters:
            emitter.close()


def rows(profile: Profile) -> Iterator[Row]:
    _in_a_process(1, 1)  # so that what is made only once is made
    for events in (1, 400):
        held = _in_a_process(profile.pick(5, 50, 100), events)
        yield Row(f"A process, a run of {events} event{'s'[: events > 1]}", NAME, held, "KB")
    if PROGRAM is None:
        yield Row("Redis", NAME, None, "", note="there is no program redis-server")
        return
    redis = RedisServer()
    try:
        yield from _rows_of_commands(redis, profile)
        yield from _rows_of_time(redis, profile)
        yield from _rows_of_bytes(redis, profile)
    finally:
        redis.close()
