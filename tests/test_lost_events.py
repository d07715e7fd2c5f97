"""Events that Redis has lost, because it evicted them or somebody removed them, while the record of their run is there: each
reader ends with an error at once. It never reads the log in a loop, which is counted in commands, those in scripts included."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
import redis

import streamkit as sk
from streamkit.errors import StoredDataError
from streamkit.relay import LogWriter, Relay
from streamkit.relay.redis import RedisRelay
from streamkit.server import create_app

from .faces import Face, body, every_face, every_pair
from .redis_server import RedisServer, needs_redis, wait_for
from .server.parts import TOKEN, Client, serve
from .test_relay_contract import Driver, lines, numbers

pytestmark = needs_redis

FEW = 300  # commands: to begin to read, to find out, to end an abandoned run; and some heartbeats on a busy machine

_PREFIXES = (f"lost-{number}" for number in count())


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A server that does nothing else."""
    started = RedisServer()
    yield started
    started.close()


@pytest.fixture
def relay(server: RedisServer) -> Iterator[RedisRelay]:
    with RedisRelay(server.url, prefix=next(_PREFIXES), lease=1.0) as made:
        yield made


def lose(server: RedisServer, relay: RedisRelay, *parts: str) -> None:
    for part in parts:
        assert server.command("DEL", f"{relay.prefix}:{{run}}:{part}") == 1


def write(relay: RedisRelay, *, ended: bool) -> tuple[LogWriter, list[str]]:
    """A run with 40 events, the first 30 of which are in a snapshot alone."""
    writer = relay.open("run", control=print)
    cursors: list[str] = []
    for start in (1, 11, 21, 31):
        cursors += writer.append(lines(10, start))
        writer.snapshot(b'{"type":"snapshot","dropped":0,"events":[]}')
    if ended:
        writer.end("completed")
    writer.flush()
    return writer, cursors


LOSSES = {"the log": ("log",), "the log and the snapshot": ("log", "snapshot"), "the snapshot": ("snapshot",)}
READERS = {"from the beginning": None, "after a cursor": 35, "after one that was dropped": 5}


@every_pair
@every_face
@pytest.mark.parametrize("ended", [True, False], ids=["ended", "running"])
@pytest.mark.parametrize("after", READERS.values(), ids=READERS)
@pytest.mark.parametrize("parts", LOSSES.values(), ids=LOSSES)
@body
async def test_a_reader_of_a_run_whose_events_are_lost_fails_at_once(
    face: Face, parts: tuple[str, ...], after: int | None, ended: bool, server: RedisServer, relay: RedisRelay
) -> None:
    """Unless what it needs is there still."""
    drive = Driver(face, relay)
    writer, cursors = write(relay, ended=ended)
    lose(server, relay, *parts)
    before = server.calls()
    cursor = None if after is None else cursors[after - 1]
    reading = await drive("read", "run", cursor)
    if parts == ("snapshot",) and after == 35:
        assert numbers(await drive.some(reading, 5)) == [*range(36, 41)]
    else:
        with pytest.raises(StoredDataError, match="run 'run': events are missing"):
            await drive.next(reading)
    assert server.calls() - before < FEW
    assert writer.fenced in (None, "closed")


@every_face
@body
async def test_who_wants_no_snapshot_hears_that_the_events_are_gone(
    face: Face, server: RedisServer, relay: RedisRelay
) -> None:
    drive = Driver(face, relay)
    _, cursors = write(relay, ended=False)
    lose(server, relay, "log", "snapshot")
    with pytest.raises(sk.SourceError) as caught:
        await drive("read", "run", cursors[34], gap="error")
    assert caught.value.status_code == 410


@every_face
@body
async def test_a_run_whose_events_are_lost_goes_on_for_those_who_have_them(
    face: Face, server: RedisServer, relay: RedisRelay
) -> None:
    """A reader that has come as far reads on; one that comes later fails, until a snapshot stands for what is lost."""
    drive = Driver(face, relay)
    writer, _ = write(relay, ended=False)
    reading = await drive("read", "run")
    assert numbers(await drive.some(reading, 11)) == [*range(31, 41)]
    lose(server, relay, "log", "snapshot")
    writer.append(lines(1, 41))
    assert numbers(await drive.some(reading, 1)) == [41]
    before = server.calls()
    with pytest.raises(StoredDataError):
        await drive.next(await drive("read", "run"))
    assert server.calls() - before < FEW
    for number in (42, 43):
        writer.snapshot(b'{"type":"snapshot","dropped":0,"events":[]}')
        writer.append(lines(1, number))
        writer.flush()
    assert numbers(await drive.some(await drive("read", "run"), 3)) == [42, 43]
    assert numbers(await drive.some(reading, 2)) == [42, 43]


@pytest.mark.anyio
async def test_a_reader_pauses_between_looks_that_find_nothing(server: RedisServer, relay: RedisRelay) -> None:
    """As where a batch was published, by whomever, that the log does not have."""
    writer = relay.open("run", control=print)
    writer.append(lines(1))
    reading = await relay.aread("run")
    assert numbers(await reading.apull(20)) == [1]
    server.command("PUBLISH", f"{relay.prefix}:{{run}}:log", '1 7 8\n{"n":8}')
    before = server.calls()
    assert await reading.apull(1.0) == []
    assert server.calls() - before < FEW
    writer.append(lines(1, 2))
    assert numbers(await reading.apull(20)) == [2]


@every_face
@body
async def test_a_stream_of_a_run_whose_events_are_lost_fails(
    face: Face, server: RedisServer, relay: RedisRelay
) -> None:
    """It keeps what it had."""
    emitter = sk.Emitter(relay, "run")
    emitter.text("Hello")
    await face.in_thread(emitter.close)  # which waits until it is stored; it does not in an event loop
    lose(server, relay, "log")
    async with face.stream(relay.reader("run")) as stream:
        with pytest.raises(StoredDataError):
            await stream.until_done()


@every_face
@body
async def test_a_dead_producer_s_run_whose_events_are_lost_is_ended(
    face: Face, server: RedisServer, relay: RedisRelay
) -> None:
    """By the one reader that finds it, who then fails. It is not ended again and again."""
    drive = Driver(face, relay)
    writer, _ = write(relay, ended=False)
    lose(server, relay, "log", "snapshot")
    writer.abandon()
    writer.flush()
    before = server.calls()
    with pytest.raises(StoredDataError):
        await drive.next(await drive("read", "run"))
    await face.in_thread(lambda: wait_for(lambda: (record := relay.get("run")) is not None and record.ended_at))
    record = await drive("get", "run")
    assert (record.status, record.epoch) == ("lost", 2)
    assert server.calls() - before < 3 * FEW


@pytest.mark.parametrize("ended", [True, False], ids=["ended", "running"])
@pytest.mark.parametrize("protocol", ["streamkit", "vercel_ui"])
def test_events_over_http_end_with_the_error(
    protocol: str, ended: bool, server: RedisServer, relay: RedisRelay
) -> None:
    with serve(create_app(print, token=TOKEN, relay=relay)) as url, Client(url) as client:
        write(relay, ended=ended)
        lose(server, relay, "log", "snapshot")
        before = server.calls()
        frames = client.events("run", params={"protocol": protocol})
        assert any(frame.type in ("stream_exception", "error") for frame in frames)
        assert server.calls() - before < FEW


def test_whatever_redis_evicts_readers_end() -> None:
    """Its memory is full, and it removes what was not used for the longest time, of runs that have ended and of others."""
    server = RedisServer(options=("--maxmemory", "6mb", "--maxmemory-policy", "allkeys-lru"))
    with RedisRelay(server.url, prefix="full") as relay, contextlib.closing(server):
        writers: list[LogWriter] = []
        for number in range(40):
            writer = relay.open(f"run-{number}", control=print)
            writer.append([b'{"n":%d,"text":"%b"}' % (n, b"x" * 2000) for n in range(1, 6)])
            writer.flush()
            writers.append(writer)
            if number % 2:
                writer.end("completed")
        with redis.Redis(port=server.port) as client:
            for number in range(4000):
                client.set(f"filler-{number}", "x" * 1000)
                if number % 50 == 0 and server.command("INFO", "stats")["evicted_keys"] > 150:
                    break
        before, outcomes = server.calls(), [read_five(relay, f"run-{number}") for number in range(40)]
        assert any(isinstance(one, sk.SourceError) for one in outcomes)
        assert server.calls() - before < FEW * len(outcomes)
        for writer in writers:
            writer.abandon()


def read_five(relay: Relay, run_id: str) -> Any:
    """Five events of a run, or the error."""
    found: list[int] = []
    failed: list[sk.SourceError] = []

    def read() -> None:
        try:
            with contextlib.closing(relay.read(run_id)) as reading:
                for entries in reading:
                    found.extend(numbers(entries))
                    if len(found) == 5:
                        return
        except sk.SourceError as error:
            failed.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    return failed[0] if failed else found
