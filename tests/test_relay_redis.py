"""What only the relay on Redis has to show: processes and servers that die, lost replies, connections, keys.

The long rounds are a command: `python -m tests.endurance.redis --rounds 100 --runs 1000`.
"""

from __future__ import annotations

import builtins
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
import redis

import streamkit as sk
from streamkit.errors import ProducerFenced
from streamkit.relay import Cancelled, Control, Fenced, RedisRelay
from streamkit.relay.redis.record import Keys, ListKeys
from streamkit.relay.redis.scripts import every_script
from streamkit.relay.redis.write_buffer import Append
from streamkit.stores import RedisStore

from .endurance.redis import kill_rounds, many_runs
from .redis_server import ON_REDIS, RedisServer, Watched, needs_redis, shared_server, wait_for

pytestmark = needs_redis


@pytest.fixture(scope="module")
def mortal() -> Iterator[RedisServer]:
    """A server that is killed and comes back with its data."""
    server = RedisServer(keeps=True)
    yield server
    server.close()


@contextmanager
def relay_at(url: Any, **options: Any) -> Iterator[RedisRelay]:
    relay = RedisRelay(url, **options)
    try:
        yield relay
    finally:
        relay.close()


def lines(count: int, start: int = 1) -> list[bytes]:
    return [b'{"n":%d}' % number for number in range(start, start + count)]


def whole(relay: RedisRelay, run_id: str = "run") -> list[int]:
    return [json.loads(entry.data)["n"] for entries in relay.read(run_id) for entry in entries]


def eventually(condition: Any, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Cutting:
    """A proxy before a server, that can swallow the replies to what it passes on, and close the connection then."""

    def __init__(self, port: int) -> None:
        self.swallows = threading.Event()
        self.swallowed = threading.Event()
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._port))
            threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, from_server: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if from_server and self.swallows.is_set() and b"ok " in data:
                    self.swallows.clear()
                    self.swallowed.set()
                    break
                target.sendall(data)
        except OSError:
            pass
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # closing it would not end the thread that accepts
        self._listener.close()


# -- 15: a reply is lost


def test_a_batch_whose_reply_is_lost_is_stored_once() -> None:
    """The connection is cut after the script ran; the writer sends it again, with what came meanwhile."""
    proxy = Cutting(shared_server().port)
    with relay_at(proxy.url, prefix="lost") as relay:
        writer = relay.open("run", control=lambda control: None)
        writer.append(lines(1))
        writer.flush()
        for number in range(2, 12, 2):
            proxy.swallows.set()
            writer.append(lines(1, number))
            assert proxy.swallowed.wait(10)
            proxy.swallowed.clear()
            writer.append(lines(1, number + 1))
            writer.flush()
        proxy.swallows.set()
        assert writer.end("completed")
        assert proxy.swallowed.is_set()
        assert whole(relay) == [*range(1, 12)]
        assert relay.get("run").status == "completed"  # type: ignore[union-attr]  # it is there
    proxy.close()


def test_a_reply_to_a_producer_that_was_fenced_meanwhile_stores_nothing() -> None:
    """Another thread found that its run is gone, while the reply was on its way. The other producers go on."""
    relay = ON_REDIS.make()
    writer = relay.open("gone", control=lambda control: None)
    other = relay.open("other", control=lambda control: None)
    writer.flush()
    buffer = writer._buffer
    with buffer._changed:
        buffer._put(Append(buffer.number, False))
    work = buffer.take(16)
    buffer.fence("gone")
    assert not buffer.replied(work, [b"ok 0"])
    with pytest.raises(ProducerFenced):
        writer.append(lines(1))
    other.append(lines(1))
    other.flush()


def test_what_others_write_into_one_run_ends_the_readings_of_that_run_alone() -> None:
    """A message that is no batch is passed over; an entry that is none fails the readings of its run."""
    relay = ON_REDIS.make()
    client = redis.Redis(port=shared_server().port)
    writers = {name: relay.open(name, control=lambda control: None) for name in ("good", "bad")}
    readings = {name: relay.read(name) for name in writers}
    for name, writer in writers.items():
        writer.append(lines(1))
        writer.flush()
        assert len(next(readings[name])) == 1
        client.publish(Keys(relay.prefix, name).log, b"1 nonsense")
        writer.append(lines(1, 2))
        assert [entry.data for entry in next(readings[name])] == lines(1, 2)
    client.xadd(Keys(relay.prefix, "bad").log, {"x": "y"}, id="1-99")
    with pytest.raises(sk.SourceError, match="'bad': its data in Redis cannot be read"):
        next(relay.read("bad"))
        next(readings["bad"])
    writers["good"].append(lines(1, 3))
    assert [entry.data for entry in next(readings["good"])] == lines(1, 3)
    client.close()


# -- 16: processes die


@pytest.mark.slow
def test_whoever_is_killed_readers_see_each_event_once_and_the_end(mortal: RedisServer) -> None:
    """A short round of two: a producer that is killed, and Redis, with the end of its file lost. The command has all."""
    total = kill_rounds(mortal, 2, 1, runs=3, events=150, victims=("producer", "redis cut"))
    # A run is lost as well if its end was in the tail that Redis lost after its producer had left.
    assert total["lost"] + total["completed"] == 12 and total["lost"] >= 6


def test_a_producer_of_which_redis_lost_more_than_it_holds_is_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sends nothing after a gap: readers would miss what stood there, and nobody would know."""
    monkeypatch.setattr(
        "streamkit.relay.redis.write_buffer._REPEATABLE", 0.0
    )  # it holds what it stored last, and no more
    relay = ON_REDIS.make()
    keys = Keys(relay.prefix, "run")
    received: list[Any] = []
    writer = relay.open("run", control=received.append)
    for start in (1, 4, 7):
        writer.append(lines(3, start))
        writer.flush()
    with redis.Redis.from_url(shared_server().url) as client:
        client.delete(keys.log)
        client.hset(keys.run, "last", "0")
    writer.append(lines(1, 10))
    wait_for(lambda: [one for one in received if isinstance(one, Fenced)])
    assert writer.fenced == "gone"


WAIT = 20.0  # seconds after which a reader fails that finds nothing


def lose_tail() -> tuple[RedisRelay, Any, list[Any], Any, int]:
    """A run whose producer died, and of which Redis lost the newest events, while a reader had them. Returns the relay, the
    reading, what it had, the next producer, and how many events are left."""
    relay = ON_REDIS.make()
    keys = Keys(relay.prefix, "run")
    writer = relay.open("run", control=lambda control: None)
    reading = relay.read("run", timeout=WAIT)
    seen: list[Any] = []
    for start in (1, 4):
        writer.append(lines(3, start))
        writer.flush()
        while len(seen) < start + 2:
            seen += reading.pull()
    with redis.Redis.from_url(shared_server().url) as client:
        newest: Any = client.xrevrange(keys.log, count=2)
        client.xdel(keys.log, newest[0][0])
        stored = int(newest[1][0].partition(b"-")[2])
        client.hset(keys.run, "last", str(stored))
        client.delete(keys.lease)
    second = relay.take_over("run", control=lambda control: None)
    assert second is not None
    return relay, reading, seen, second, stored


def test_a_tail_that_was_lost_with_its_producer_is_replaced_by_a_snapshot() -> None:
    """A reader that has seen more than the next producer continues from gets all anew."""
    _, reading, _, second, stored = lose_tail()
    second.append(lines(1, 100))
    second.end("completed")
    rest: list[Any] = []
    while (batch := reading.pull()) is not None:
        rest += batch
    assert rest[0].snapshot
    assert [json.loads(entry.data)["n"] for entry in rest[1:]] == [*range(1, stored + 1), 100]


def test_a_cursor_of_a_tail_that_was_lost_is_none_of_what_stands_there_now() -> None:
    """The next producer has written other events under these numbers."""
    relay, _, seen, second, stored = lose_tail()
    second.append(lines(5, 100))
    second.end("completed")
    with pytest.raises(sk.SourceError) as raised:
        relay.read("run", seen[-1].cursor, gap="error")  # before anything is read, so that HTTP can answer 410
    assert raised.value.status_code == 410
    rest: list[Any] = []
    reading = relay.read("run", seen[-1].cursor, timeout=WAIT)
    while (batch := reading.pull()) is not None:
        rest += batch
    assert rest[0].snapshot
    assert [json.loads(entry.data)["n"] for entry in rest[1:]] == [*range(1, stored + 1), *range(100, 105)]


def test_a_cursor_of_a_tail_that_was_lost_is_not_the_place_of_a_later_snapshot() -> None:
    """Which stands for as many events, but for those of the next producer."""
    relay, _, seen, second, _ = lose_tail()
    for start in (100, 103):
        second.append(lines(3, start))
        second.snapshot(b'{"type":"snapshot","dropped":0,"events":[]}')
        second.flush()
    assert seen[-1].cursor.startswith("1-6.")
    with redis.Redis.from_url(shared_server().url) as client:
        assert client.hget(Keys(relay.prefix, "run").snapshot, "at") == b"2-6"
    with pytest.raises(sk.SourceError) as raised:
        relay.read("run", seen[-1].cursor, gap="error")
    assert raised.value.status_code == 410
    reading = relay.read("run", seen[-1].cursor, timeout=WAIT)
    assert reading.pull()[0].snapshot
    second.end("completed")


class Losing(RedisRelay):
    """As if Redis lost the end of a run, just after its record was read."""

    loses = True

    def get(self, run_id: str) -> Any:
        record = super().get(run_id)
        if self.loses:
            self.loses = False
            keys = Keys(self.prefix, run_id)
            with redis.Redis.from_url(shared_server().url) as client:
                newest: Any = client.xrevrange(keys.log, count=2)
                client.xdel(keys.log, newest[0][0])
                client.hset(keys.run, "last", newest[1][0].partition(b"-")[2])
        return record


def test_a_run_without_a_producer_whose_tail_is_lost_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever ends it does not wait for what its record said was there."""
    monkeypatch.setattr("streamkit.relay.replay._PATIENCE", 0.05)
    with Losing(shared_server().url, prefix="losing") as relay:
        writer = relay.open("run", control=lambda control: None)
        for number in (1, 2, 3):
            writer.append(lines(1, number))
            writer.flush()
        writer.abandon()
        assert relay.cancel("run")
        record = relay.get("run")
        assert record is not None and record.status == "cancelled"
        entries = [entry for entries in relay.read("run") for entry in entries]
        assert [entry.data for entry in entries[:2]] == lines(2)
        assert json.loads(entries[-1].data)["type"] == "stream_end"


# -- 17: Redis comes back empty


@pytest.mark.slow
def test_a_run_that_redis_forgot_is_gone() -> None:
    """Its producer is fenced, its readers fail, and nothing is created again."""
    server = RedisServer()
    received: list[Control] = []
    try:
        with relay_at(server.url) as relay:
            writer = relay.open("run", control=received.append)
            reading = relay.read("run")
            writer.append(lines(1))
            assert len(reading.pull()) == 1
            server.kill()
            writer.append(lines(1, 2))
            server.start()
            with pytest.raises(ProducerFenced) as fenced:
                writer.flush(20)
            assert fenced.value.reason == writer.fenced == "gone"
            with pytest.raises(sk.SourceError, match="lost with the data of Redis") as caught:
                reading.pull()
            assert caught.value.status_code == 404
            eventually(lambda: received == [Fenced("gone")])
            assert relay.get("run") is None
            with pytest.raises(sk.SourceError, match="no run"):
                relay.read("run")
    finally:
        server.close()


def test_a_producer_writes_on_while_redis_is_away(mortal: RedisServer) -> None:
    """It never waits; what it wrote is stored when Redis is back, and its reader goes on."""
    with relay_at(mortal.url, prefix="away") as relay:
        writer = relay.open("run", control=lambda control: None)
        reading = relay.read("run")
        writer.append(lines(1))
        assert len(reading.pull()) == 1
        mortal.pause()
        took: list[float] = []
        for number in range(2, 1002):
            began = time.perf_counter()
            writer.append(lines(1, number))
            took.append(time.perf_counter() - began)
        with pytest.raises(sk.SourceError, match="did not store"):
            writer.flush(0.05)
        mortal.go_on()
        assert sorted(took)[len(took) // 2] < 0.001
        seen: list[int] = []
        while len(seen) < 1000:
            seen += [json.loads(entry.data)["n"] for entry in reading.pull()]
        assert seen == [*range(2, 1002)]


@pytest.mark.anyio
async def test_no_task_blocks_its_event_loop_while_redis_is_stopped(mortal: RedisServer) -> None:
    """Whatever it does with a run. Redis goes on by a task of the same loop, which nothing that blocks would let run."""
    relay = RedisRelay(mortal.url, prefix=f"loop{time.monotonic_ns()}")
    emitter = await sk.Emitter.acreate(relay, "run")
    emitter.code("1", "python")
    approvals = [emitter.confirm(id=id) for id in ("by reader", "here", "late", "never")]
    await anyio.to_thread.run_sync(relay.catch_up, "run")
    answering = sk.astream(relay.reader("run"))
    async for _ in answering:
        if "never" in answering.pending:
            break

    async def read(cursor: str | None) -> str:
        return await sk.astream(relay.reader("run"), after=cursor).get_final_text()

    async def loop_over_events() -> int:
        return len([event async for event in relay.reader("run")])

    mortal.pause()
    texts: list[str] = []
    async with anyio.create_task_group() as tasks:
        try:
            for cursor in (None, emitter.cursor):
                tasks.start_soon(_collect, texts, read, cursor)
            tasks.start_soon(_collect, [], loop_over_events)
            tasks.start_soon(_collect, [], sk.Emitter.acreate, relay, "other")
            _confirmation(answering, "by reader").approve()
            _confirmation(emitter, "here").decline("no")
            for approval in approvals[:2]:
                tasks.start_soon(_collect, [], _awaited, approval)
            emitter.text("done")
            emitter.tool_call("tool", {}, call_id="call")
            emitter.tool_output("output", call_id="call")
            for _ in range(20):  # all of them are under way
                await anyio.sleep(0.005)
        finally:
            mortal.go_on()
        for approval in approvals[:2]:
            await approval
        emitter.close()
        await answering.close()
    record = await relay.aget("run")
    assert record is not None
    closed = dict.fromkeys(("call", "late", "never"), "closed")
    expected = {"by reader": "approved", "here": "declined", **closed}
    assert {id: one["status"] for id, one in record.questions.items()} == expected
    assert texts == ["done", "done"]
    await relay.aclose()


def test_what_a_reader_answers_while_redis_is_away_is_stored_later(
    monkeypatch: pytest.MonkeyPatch, mortal: RedisServer
) -> None:
    """`approve()` was called once, and counts."""
    monkeypatch.setattr("streamkit.redis_link.link.PATIENCE", 0.05)
    with relay_at(mortal.url, prefix="answers") as relay:
        emitter = sk.Emitter(relay, "run")
        emitter.code("1", "python")
        approval = emitter.confirm(id="q")
        relay.catch_up("run")
        with sk.stream(relay.reader("run")) as stream:
            while "q" not in stream.pending:
                next(iter(stream))
            mortal.write_out()
            mortal.kill()
            _confirmation(stream, "q").approve()
            mortal.start()
            monkeypatch.undo()
            assert approval.wait()
        emitter.close()
        record = relay.get("run")
        assert record is not None and record.questions["q"]["status"] == "approved"


def _confirmation(stream: Any, id: str) -> sk.Confirmation:
    confirmation: sk.Confirmation = stream.pending[id]
    return confirmation


async def _awaited(approval: Any) -> None:
    await approval


async def _collect(into: list[Any], call: Any, *arguments: Any) -> None:
    into.append(await call(*arguments))


@pytest.mark.slow
def test_what_waits_for_redis_is_bounded(monkeypatch: pytest.MonkeyPatch, mortal: RedisServer) -> None:
    """Beyond the bound, in bytes or seconds, the producer is fenced as `unreachable`."""
    received: list[Control] = []
    with relay_at(mortal.url, prefix="bounded") as relay:
        large = relay.open("large", control=received.append)
        late = relay.open("late", control=received.append)
        mortal.kill()
        try:
            large.append([b'"%b"' % (b"x" * 1_000_000)] * 9)
            eventually(lambda: large.fenced == "unreachable")
            monkeypatch.setattr("streamkit.relay.redis.write_buffer._LONGEST", 0.1)
            late.append(lines(1))
            eventually(lambda: late.fenced == "unreachable")
            eventually(lambda: received == [Fenced("unreachable")] * 2)
            with pytest.raises(ProducerFenced, match="could not be reached"):
                late.append(lines(1))
        finally:
            mortal.start()


# -- failover


@pytest.mark.slow
def test_after_a_failover_by_sentinel_each_event_is_read_once() -> None:
    """The replica lacks a tail that the reader has seen; the writer has it still, and writes it again."""
    watched = Watched()
    try:
        with relay_at(watched.client()) as relay:
            writer = relay.open("run", control=lambda control: None)
            reading = relay.read("run")
            seen: list[int] = []
            writer.append(lines(1))
            writer.flush()
            eventually(lambda: watched.replica.command("XLEN", Keys(relay.prefix, "run").log) == 1)
            watched.replica.pause()
            watched.master.command("CLIENT", "KILL", "TYPE", "replica")
            for number in range(2, 12):
                writer.append(lines(1, number))
                writer.flush()
            while len(seen) < 11:
                seen += [json.loads(entry.data)["n"] for entry in reading.pull()]
            watched.master.kill()
            watched.replica.go_on()
            assert watched.replica.command("XLEN", Keys(relay.prefix, "run").log) == 1
            writer.append(lines(1, 12))
            writer.flush(60)
            writer.end("completed")
            for entries in reading:
                seen += [json.loads(entry.data)["n"] for entry in entries]
            assert seen == whole(relay) == [*range(1, 13)]
            assert relay.get("run").status == "completed"  # type: ignore[union-attr]  # it is there
    finally:
        watched.close()


# -- 18: connections


@pytest.mark.slow
def test_a_process_needs_few_connections_for_many_runs() -> None:
    """50 here, in a process that writes them and one that reads them: at most 12 each."""
    figures = many_runs(shared_server(), 50, 10, 0.02)
    assert figures["connections of both"] <= 24


# -- 19: subscribing


@pytest.mark.slow
def test_a_reading_that_joins_while_events_are_written_misses_none() -> None:
    """Of 300 that join at any moment, over and over."""
    relay = ON_REDIS.make()
    failed: list[BaseException] = []
    count = 40

    def read(run_id: str) -> None:
        try:
            assert whole(relay, run_id) == [*range(1, count + 1)]
        except BaseException as error:
            failed.append(error)

    for number in range(30):
        run_id = f"run-{number}"
        writer = relay.open(run_id, control=lambda control: None)
        threads = [threading.Thread(target=read, args=(run_id,)) for _ in range(10)]
        for place, thread in enumerate(threads):
            thread.start()
            writer.append(lines(count // 10, place * (count // 10) + 1))
        writer.end("completed")
        for thread in threads:
            thread.join(20)
    assert failed == []


def test_a_run_that_is_read_again_as_it_is_left_is_read() -> None:
    """Nobody had read it for a while, and its channel was about to be unsubscribed."""
    relay = ON_REDIS.make()
    writer = relay.open("run", control=lambda control: None)
    writer.append(lines(1))
    for _ in range(20):
        reading = relay.read("run", timeout=5)
        assert len(reading.pull()) == 1
        reading.close()
        relay._backends.of("run").drop_unread(time.monotonic() + 60)
    writer.end("completed")


# -- 20: keys


@pytest.mark.parametrize("run_id", ["run", "with {braces}", "}{", "", "ä b:c", "%7B"])
def test_all_keys_of_a_run_are_in_one_slot(run_id: str) -> None:
    """Whatever its id; so a Cluster takes the scripts. Different runs have different keys."""
    from redis.crc import key_slot

    keys = Keys("sk", run_id)
    names = [*keys.all, keys.news]
    assert len({key_slot(name) for name in names}) == 1
    assert len(set(names)) == 8
    others = [other for other in ("run", "with {braces}", "}{", "", "ä b:c", "%7B") if other != run_id]
    assert not {*names} & {name for other in others for name in Keys("sk", other).all}


LISTS = [
    (None, None),
    ("a", None),
    (None, "a"),
    ("a", "b"),
    ("a&owner=b", None),
    ("a%", "b"),
    ("a%&owner=b", None),
    ("{}", ""),
]


def test_each_list_of_runs_has_keys_of_its_own_in_one_slot() -> None:
    from redis.crc import key_slot

    lists = [ListKeys.of("sk", *names) for names in LISTS]
    assert all(len({key_slot(key) for key in keys}) == 1 for keys in lists)
    assert len({key for keys in lists for key in keys}) == 3 * len(LISTS)


def test_each_script_gets_the_keys_of_one_slot_alone() -> None:
    """Those of one run, or of one list of runs. What is sent to the server, as it sees it."""
    from redis.crc import key_slot

    with redis.Redis.from_url(shared_server().url) as client, client.monitor() as monitor:
        seen = monitor.listen()
        relay = ON_REDIS.make()
        writer = relay.open("run", {"conversation": "c", "owner": "ann"}, control=lambda control: None)
        writer.ask("q", {}, lines(1))
        relay.answer("run", "q", {"approved": True})
        writer.snapshot(b"{}")
        writer.append(lines(1, 2))
        writer.snapshot(b"{}")
        relay.cancel("run")
        writer.end("cancelled")
        relay.list(conversation="c", owner="ann")
        relay.get("run")
        client.publish("over", "")
        calls: list[str] = []
        for command in seen:
            words = command["command"].split()
            if words[0] == "PUBLISH" and words[1] == "over":
                break
            if words[0] in ("EVALSHA", "EVAL"):
                calls.append(words[1])
                keys = words[3 : 3 + int(words[2])]
                assert all(key.lstrip("{").startswith(relay.prefix) for key in keys)
                assert len({key_slot(key.encode()) for key in keys}) == 1
    assert {script.sha for script in every_script()} <= {*calls}


# -- a run that never ends


@pytest.mark.slow
def test_the_oldest_questions_that_are_settled_are_forgotten() -> None:
    """Of very many; those that are open stay."""
    relay = ON_REDIS.make()
    writer = relay.open("run", control=lambda control: None)
    writer.ask("open", {})
    for number in range(1126):
        writer.ask(f"q{number}", {})
        if number < 1125:
            writer.settle(f"q{number}")
    record = relay.get("run")
    assert record is not None
    assert len(record.questions) == 1001
    assert {"open", "q1125", "q1124", "q126"} <= {*record.questions}
    assert "q100" not in record.questions


# -- what is missing, and what is wrong


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra that brings it."""
    real = builtins.__import__

    def without(name: str, *arguments: Any) -> Any:
        if name == "redis":
            raise ImportError(name)
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(sk.UsageError, match=r"streamkit-sdk\[redis\]"):
        RedisRelay("redis://127.0.0.1")


def test_wrong_arguments_are_refused() -> None:
    """At once, and in words."""
    for wrong, says in (
        ({"limit": 0}, "`limit` is a whole number from 1 on, not 0"),
        ({"prefix": "a{b"}, "without braces"),
        ({"prefix": ""}, "prefix"),
    ):
        with pytest.raises(sk.UsageError, match=says):
            RedisRelay("redis://127.0.0.1", **wrong)
    with pytest.raises(sk.UsageError, match=r"is like redis://localhost:6379/0: .*redis://"):
        RedisRelay("localhost:6379")
    with pytest.raises(sk.UsageError, match="not 17"):
        RedisRelay(17)


def test_a_client_lends_its_settings() -> None:
    """Whatever it makes of replies itself."""
    with redis.Redis.from_url(shared_server().url, decode_responses=True) as client:
        with relay_at(client, prefix="client") as relay:
            writer = relay.open("run", control=lambda control: None)
            writer.append(lines(2))
            writer.end("completed")
            assert whole(relay) == [1, 2]
        assert client.ping()


def test_an_unreachable_server_is_an_error_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of redis-py."""
    monkeypatch.setattr("streamkit.redis_link.link.PATIENCE", 0.05)
    with relay_at("redis://127.0.0.1:1") as relay, pytest.raises(sk.SourceError, match="Redis cannot be reached"):
        relay.get("run")


def test_a_reader_of_another_process_that_died_does_not_count_for_long() -> None:
    """Its heartbeat expires."""
    relay = ON_REDIS.make()
    relay.open("run", control=lambda control: None)
    with redis.Redis.from_url(shared_server().url) as client:
        client.zadd(Keys(relay.prefix, "run").readers, {"other:1": time.time() + 60})
        assert relay.get("run").readers == 1  # type: ignore[union-attr]  # it is there
        client.zadd(Keys(relay.prefix, "run").readers, {"other:1": time.time() + 0.1})
        eventually(lambda: relay.get("run").readers == 0)  # type: ignore[union-attr]


@pytest.mark.slow
def test_what_is_alive_is_reported_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that has nothing to write renews its lease, and its run's record and entry in the lists; a reader, its own."""
    monkeypatch.setattr("streamkit.relay.redis.threads._TICK", 0.02)
    monkeypatch.setattr("streamkit.relay.redis.poller.READER_LIFETIME", 6.0)
    relay = ON_REDIS.make(lease=6.0, ttl_running=6.0)
    writer = relay.open("run", control=lambda control: None)
    reading = relay.read("run")
    writer.append(lines(1))
    reading.pull()
    keys, entries = Keys(relay.prefix, "run"), ListKeys.of(relay.prefix, None, None)
    with redis.Redis.from_url(shared_server().url) as client:

        def end_of(key: bytes) -> float:
            left = client.pttl(key)
            return time.time() + left / 1000 if left > 0 else 0.0

        expiries: dict[str, Callable[[], Any]] = {
            "lease": partial(end_of, keys.lease),
            "record": partial(end_of, keys.run),
            "entry": lambda: client.zscore(entries.until, "run"),
            "reader": lambda: client.zscore(keys.readers, reading.member),
        }
        first = {name: expiry() for name, expiry in expiries.items()}
        eventually(lambda: all(expiry() > first[name] + 0.2 for name, expiry in expiries.items()))


def test_all_runs_of_a_dead_process_are_ended() -> None:
    """By whoever reads them."""
    relay = ON_REDIS.make()
    writers = [relay.open(f"run-{number}", control=lambda control: None) for number in range(5)]
    readings = [relay.read(f"run-{number}") for number in range(5)]
    for writer, reading in zip(writers, readings, strict=True):
        writer.append([b"{}"])
        reading.pull()
        writer.abandon()
    eventually(lambda: all(record.ended_at for record in relay.list()))
    assert [record.status for record in relay.list()] == ["lost"] * 5


# -- users with fewer rights than all

GUIDE = Path(__file__).parent.parent / ".docs" / "redis.md"


@pytest.fixture(scope="module")
def rules() -> list[str]:
    """The rights that the guide says are needed."""
    (line,) = [line for line in GUIDE.read_text().splitlines() if line.startswith("ACL SETUSER")]
    return line.split()[3:]


def as_user(server: RedisServer, rules: Sequence[str]) -> str:
    """The URL of the server for a user with these rights alone."""
    server.command("ACL", "SETUSER", "somebody", "reset", *rules)
    return server.url.replace("redis://", "redis://somebody:password@")


def test_the_rights_in_the_guide_are_enough(rules: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """To write, read, list, answer, cancel and delete runs, and to keep conversations."""
    server = RedisServer()
    try:
        url = as_user(server, rules)
        with relay_at(url) as relay, relay_at(url) as other:
            with sk.Emitter(relay, "run") as emitter:
                reader = other.reader("run")
                emitter.code("x", "python")
                approval = emitter.confirm(id="q")
                wait_for(lambda: other.question("run", "q"))
                assert other.answer("run", "q", {"approved": True})[0]
                assert approval
            assert sk.stream(reader).get_final_messages()
            assert [one.id for one in other.list()] == ["run"]
            other.cancel("run")
            other.delete("run")
            assert other.list() == []
        store = RedisStore(url)
        version = store.save("c", [sk.TextMessage("m", role="user", content="x")], 0, owner="ann")
        assert (store.lock("c", "run"), store.load("c").version) == ("run", version)  # type: ignore[union-attr]
        assert [one.id for one in store.list(owner="ann")] == ["c"]
        store.unlock("c", "run")
        assert store.delete("c")
        store.close()
    finally:
        server.close()
    assert [record.message for record in caplog.records] == []


@pytest.mark.parametrize(
    ("without", "named"),
    [
        ("+@read", "hget"),
        ("+@write", "hset"),
        ("+@scripting", "script"),
        ("+time", "time"),
        ("+@pubsub", "publish"),
        ("~sk:*", "keys"),
        ("~{sk:*", "keys"),
        ("&sk:*", "channel"),
    ],
)
def test_a_right_that_is_missing_is_named_at_once(rules: list[str], without: str, named: str) -> None:
    """By the first call, before anything is stored."""
    server = RedisServer()
    try:
        url = as_user(server, [rule for rule in rules if rule != without])
        store = RedisStore(url)
        with relay_at(url) as relay:
            for call in (partial(relay.open, "run", control=print), relay.list, partial(store.save, "c", [], 0)):
                with pytest.raises(sk.SourceError, match=f"too few permissions .*{named}.*ACL SETUSER"):
                    call()
        store.close()
        assert server.command("KEYS", "*") == []
    finally:
        server.close()


def test_what_was_written_is_stored_when_its_relay_is_closed() -> None:
    """However much it is; nobody has flushed it."""
    one = ON_REDIS.make()
    with relay_at(shared_server().url, prefix=one.prefix) as other:
        other.open("run", control=lambda control: None).append(lines(20_000))
    reading = one.read("run")
    seen: list[int] = []
    while len(seen) < 20_000:
        seen += [json.loads(entry.data)["n"] for entry in reading.pull()]
    assert seen == [*range(1, 20_001)]


def test_two_relays_share_their_runs() -> None:
    """One produces and asks, the other reads, answers and cancels."""
    one = ON_REDIS.make()
    with relay_at(shared_server().url, prefix=one.prefix) as other:
        received: list[Control] = []
        emitter = sk.Emitter(one, "run")
        emitter.code("print(34/24)", "python")
        approval = emitter.confirm(id="q")
        told: list[str] = []

        class Approving(sk.EventHandler):
            def on_confirmation(self, confirmation: sk.Confirmation, /) -> None:
                confirmation.approve()

            def on_text_delta(self, delta: Any, snapshot: Any, /) -> None:
                told.append(delta.value)

        reading = threading.Thread(target=lambda: sk.stream(other.reader("run"), Approving()).until_done())
        reading.start()
        assert approval.wait()
        emitter.text("approved")
        emitter.close()
        reading.join(20)
        assert not reading.is_alive()
        assert told == ["approved"]
        writer = one.open("second", control=received.append)
        assert other.cancel("second", "enough")
        eventually(lambda: received == [Cancelled("enough")])
        writer.end("cancelled")
