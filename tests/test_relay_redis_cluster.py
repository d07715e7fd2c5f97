"""The relay and the store on a Redis Cluster: runs on every node, a run that moves, a node that dies or hangs.

The whole contract suite runs on one, too: `python -m tests.endurance.redis_cluster`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
import redis
from redis.crc import key_slot

import streamkit as sk
from streamkit.relay import RedisRelay
from streamkit.relay.redis.record import Keys
from streamkit.stores import RedisStore

from .redis_server import Cluster, RedisServer, needs_redis, wait_for

pytestmark = [needs_redis, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three masters, one with a replica."""
    cluster = Cluster(replicas=1)
    yield cluster
    cluster.close()


def slot_of(relay: RedisRelay, run_id: str) -> int:
    return key_slot(Keys(relay.prefix, run_id).run)


def run_on(cluster: Cluster, relay: RedisRelay, server: RedisServer) -> str:
    """The id of a run that a master has."""
    ids = (f"run-{number}" for number in range(1000))
    return next(id for id in ids if cluster.owner(slot_of(relay, id)) is server)


class Followed:
    """A run that a thread writes, an event every few milliseconds, and another one reads."""

    def __init__(self, relay: RedisRelay, run_id: str) -> None:
        self.writer = relay.open(run_id, control=lambda control: None)
        self.reading = relay.read(run_id)
        self.seen: list[int] = []
        self.snapshots = 0
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=call) for call in (self._write, self._read)]
        for thread in self._threads:
            thread.start()

    def _write(self) -> None:
        for number in count(1):
            self.writer.append([b'{"n":%d}' % number])
            if self._is_over.wait(0.002):
                break
        self.writer.flush(60)
        self.writer.end("completed")

    def _read(self) -> None:
        for entries in self.reading:
            for entry in entries:
                if entry.snapshot:
                    self.snapshots += 1
                    self.seen.clear()
                else:
                    self.seen.append(json.loads(entry.data)["n"])

    def goes_on(self) -> None:
        """Wait for events that are written from now on."""
        number = int(str(self.writer.cursor).partition(".")[0].partition("-")[2])
        wait_for(lambda: self.seen and self.seen[-1] > number)

    def end(self) -> None:
        """End it; each event was read once, in order."""
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        assert self.seen == [*range(1, len(self.seen) + 1)]
        assert self.seen


def test_runs_and_conversations_are_on_every_node(cluster: Cluster) -> None:
    """Of a URL with one of the nodes, and of a client of redis-py. All are listed, answered and ended."""
    client = redis.RedisCluster(host="127.0.0.1", port=cluster.masters[1].port)
    with RedisRelay(cluster.url, prefix="all") as one, RedisRelay(client, prefix="all") as other:
        ids = [run_on(cluster, one, server) for server in cluster.masters]
        for id in ids:
            emitter = sk.Emitter(one, id)
            emitter.code("print(1)", "python")
            approval = emitter.confirm(id="q")
            assert one.question(id, "q") is not None  # it is stored
            assert other.answer(id, "q", {"approved": True})[0]
            assert approval.wait()
            emitter.text(f"text of {id}")
            emitter.close()
            assert sk.stream(other.reader(id)).get_final_text() == f"text of {id}"
        assert [record.id for record in other.list()] == ids[::-1]
        assert one.list(open_only=True) == []
    store = RedisStore(client)
    for id in ids:
        store.save(id, [sk.TextMessage(role="user", content=id)], 0)
        assert store.lock(id, "run") == "run"
        store.unlock(id, "run")
    assert [one.id for one in store.list()] == ids[::-1]
    store.close()
    assert client.ping(target_nodes=redis.RedisCluster.ALL_NODES)
    client.close()


def test_a_run_that_moves_to_another_node_is_read_on(cluster: Cluster) -> None:
    """Its keys move one by one while it is written; then other runs of its node go on as before."""
    with RedisRelay(cluster.url, prefix="moves") as relay:
        id = run_on(cluster, relay, cluster.masters[1])
        slot = slot_of(relay, id)
        run = Followed(relay, id)
        run.goes_on()
        target = cluster.move(slot, halfway=lambda: time.sleep(0.02))
        run.goes_on()
        assert cluster.owner(slot) is target
        cluster.move(slot)
        run.goes_on()
        run.end()
        assert run.snapshots == 0
        late = relay.read(id)
        assert [json.loads(entry.data)["n"] for entries in late for entry in entries] == run.seen


def test_the_old_node_of_a_run_may_be_heard_after_the_new_one(cluster: Cluster) -> None:
    """That the subscription on the old one is over says nothing of that on the new one: readers that come are served."""
    with RedisRelay(cluster.url, prefix="late") as relay:
        id = run_on(cluster, relay, cluster.masters[1])
        run = Followed(relay, id)
        run.goes_on()
        backend = relay._backends.of(id)
        channel, (old, *_) = relay._backends.keys(id).log, backend._listeners.values()
        cluster.move(slot_of(relay, id))
        run.goes_on()
        wait_for(lambda: backend._confirmed.get(channel, old) is not old)
        backend.unsubscribed([channel], old)  # as its thread calls it, in whichever moment
        late = relay.read(id, timeout=10)
        assert late.pull()
        run.end()


def test_a_node_that_hangs_delays_no_run_of_the_others(cluster: Cluster) -> None:
    """It goes on only when the others' events were read; its own come then."""
    with RedisRelay(cluster.url, prefix="hangs") as relay:
        stuck, free = (Followed(relay, run_on(cluster, relay, server)) for server in cluster.masters[1:])
        stuck.goes_on()
        cluster.masters[1].pause()
        try:
            for _ in range(20):
                free.goes_on()
        finally:
            cluster.masters[1].go_on()
        stuck.goes_on()
        for run in (stuck, free):
            run.end()


def test_a_replica_takes_the_runs_of_its_master_over(cluster: Cluster) -> None:
    """What the replica had not received is written again. A run of another node notices nothing."""
    with RedisRelay(cluster.url, prefix="dies") as relay:
        dead, other = (Followed(relay, run_on(cluster, relay, server)) for server in cluster.masters[:2])
        dead.goes_on()
        cluster.masters[0].kill()
        try:
            dead.goes_on()
            other.goes_on()
        finally:
            cluster.masters[0].start()
        for run in (dead, other):
            run.end()
        assert other.snapshots == 0
    cluster.make_master(cluster.masters[0])


def test_wrong_urls_of_a_cluster_are_refused() -> None:
    """In words."""
    wrong: list[tuple[Any, str]] = [
        ("redis+cluster://localhost:7000/3", "no database but 0"),
        ("redis+cluster://localhost:many", "is like redis"),
    ]
    for url, says in wrong:
        with pytest.raises(sk.UsageError, match=says):
            RedisRelay(url)
