"""What a list costs: it grows with the runs or conversations that are asked for, not with those that there are.

Commands to Redis are counted, those in scripts included; and the steps of SQLite.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import streamkit as sk
from streamkit.relay import Relay
from streamkit.relay.redis import RedisRelay
from streamkit.stores import RedisStore, SQLiteStore, Store

from .opcodes import Counter
from .redis_server import RedisServer, needs_redis, wait_for

FEW, MANY = 60, 240
PAGE = 20

_PREFIXES = (f"lists-{number}" for number in count())


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A server that does nothing else."""
    started = RedisServer()
    yield started
    started.close()


RUN_LISTS: dict[str, dict[str, Any]] = {
    "all": {},
    "one conversation's": {"conversation": "c"},
    "an owner's": {"owner": "ann"},
    "an owner's in a conversation": {"conversation": "c", "owner": "ann"},
    "open": {"open_only": True},
    "of one who owns none": {"owner": "nobody"},
    "after another": {"before": "run-50"},
}


def open_runs(relay: Relay, numbers: range) -> None:
    """Every sixth is left open."""
    for number in numbers:
        info = {"conversation": "c", "owner": "ann" if number % 2 else "bob"}
        writer = relay.open(f"run-{number}", info, control=print)
        if number % 6:
            writer.end("completed")
        else:
            writer.ask("q", {"kind": "confirmation"})
            writer.pause()


@needs_redis
@pytest.mark.parametrize("options", RUN_LISTS.values(), ids=RUN_LISTS)
def test_a_list_of_runs_takes_as_many_commands_of_few_as_of_many(server: RedisServer, options: dict[str, Any]) -> None:
    with RedisRelay(server.url, prefix=next(_PREFIXES)) as relay:
        costs: list[int] = []
        for numbers in (range(FEW), range(FEW, MANY)):
            open_runs(relay, numbers)
            relay.list()
            costs.append(server.calls_of(partial(relay.list, limit=10, **options)))
            found = relay.list(limit=10, **options)
            assert len(found) in (0, 10)
        assert costs[0] == costs[1] <= 5 * len(found) + 12


@needs_redis
def test_a_record_takes_one_command_and_many_records_one_exchange(server: RedisServer) -> None:
    with RedisRelay(server.url, prefix=next(_PREFIXES)) as relay:
        open_runs(relay, range(PAGE))
        ids = [f"run-{number}" for number in range(PAGE)]
        for call, most in (
            (lambda: relay.get("run-1"), 1),
            (lambda: relay.get_many(ids), PAGE),
            (relay.list, PAGE + 1),
        ):
            call()
            assert server.calls_of(call, "evalsha") == most


@needs_redis
def test_to_open_and_to_end_a_run_takes_few_commands_however_many_there_are(server: RedisServer) -> None:
    """Between those of two of them is what its threads may or may not have looked up meanwhile."""
    prefix = next(_PREFIXES)
    costs: list[int] = []
    for numbers in (range(FEW), range(FEW, MANY)):
        with RedisRelay(server.url, prefix=prefix) as relay:
            open_runs(relay, numbers)
        before = server.calls()
        with RedisRelay(server.url, prefix=prefix) as relay:
            relay.open(f"more-{numbers}", {"conversation": "c", "owner": "ann"}, control=print).end("completed")
        costs.append(server.calls() - before)
    assert abs(costs[1] - costs[0]) <= 20
    assert max(costs) < 200


STORE_LISTS: dict[str, dict[str, Any]] = {
    "all": {},
    "an owner's": {"owner": "ann"},
    "of one who owns none": {"owner": "nobody"},
    "after another": {"before": "c-30"},
    "an owner's after another": {"owner": "ann", "before": "c-31"},
}


def save(store: Store, numbers: range) -> None:
    for number in numbers:
        owner = "ann" if number % 2 else None
        store.save(f"c-{number}", [sk.TextMessage("m", role="user", content="Hello")], 0, owner=owner)


@needs_redis
@pytest.mark.parametrize("options", STORE_LISTS.values(), ids=STORE_LISTS)
def test_a_list_of_conversations_takes_as_many_commands_of_few_as_of_many(
    server: RedisServer, options: dict[str, Any]
) -> None:
    store = RedisStore(server.url, prefix=next(_PREFIXES))
    costs: list[int] = []
    for numbers in (range(FEW), range(FEW, MANY)):
        save(store, numbers)
        store.list(**options)
        costs.append(server.calls_of(partial(store.list, limit=10, **options)))
        found = store.list(limit=10, **options)
        assert len(found) in (0, 10)
    assert costs[0] == costs[1] <= len(found) + 3
    store.close()


@pytest.mark.parametrize("options", STORE_LISTS.values(), ids=STORE_LISTS)
def test_a_list_in_a_file_takes_as_many_steps_of_few_as_of_many(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[sqlite3.Connection] = []
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **b: opened.append(connect(*a, **b)) or opened[-1])
    store = SQLiteStore(tmp_path / "c.db")
    costs: list[int] = []
    for numbers in (range(FEW), range(FEW, MANY)):
        save(store, numbers)
        costs.append(0)

        def step() -> int:
            costs[-1] += 1
            return 0

        for one in opened:
            one.set_progress_handler(step, 1)
        assert len(store.list(limit=10, **options)) in (0, 10)
        for one in opened:
            one.set_progress_handler(None, 1)
    assert 0 < costs[1] <= costs[0] * 1.1
    store.close()


@pytest.mark.parametrize("options", RUN_LISTS.values(), ids=RUN_LISTS)
def test_a_list_in_memory_takes_as_many_instructions_of_few_as_of_many(options: dict[str, Any]) -> None:
    relay = sk.MemoryRelay()
    costs: list[int] = []
    for numbers in (range(FEW), range(FEW, MANY)):
        open_runs(relay, numbers)
        relay.list()  # what has expired was looked for
        with Counter() as counter:
            relay.list(limit=10, **options)
        costs.append(counter.opcodes)
    assert costs[1] <= costs[0] * 1.1


# -- very many


@pytest.mark.slow
@needs_redis
def test_a_list_of_a_thousand_runs_takes_as_many_commands_as_one_of_a_quarter(server: RedisServer) -> None:
    with RedisRelay(server.url, prefix=next(_PREFIXES)) as relay:
        costs: list[list[int]] = []
        for numbers in (range(250), range(250, 1_000)):
            open_runs(relay, numbers)
            relay.list()
            costs.append([])
            for options in RUN_LISTS.values():
                costs[-1].append(server.calls_of(partial(relay.list, limit=10, **options)))
        assert costs[0] == costs[1]
        assert len(relay.list(limit=2_000)) == 1_000


@pytest.mark.slow
@needs_redis
def test_a_list_of_two_thousand_conversations_takes_as_many_commands_as_one_of_a_quarter(server: RedisServer) -> None:
    store = RedisStore(server.url, prefix=next(_PREFIXES))
    costs: list[list[int]] = []
    for numbers in (range(500), range(500, 2_000)):
        save(store, numbers)
        store.list(owner="ann")
        costs.append([])
        for options in STORE_LISTS.values():
            costs[-1].append(server.calls_of(partial(store.list, limit=10, **options)))
    assert costs[0] == costs[1]
    assert len(store.list(limit=4_000)) == 2_000
    store.close()


# -- what is left over, and what was there before


@needs_redis
def test_an_entry_of_what_is_gone_is_removed_by_whoever_lists_it(server: RedisServer) -> None:
    """As Redis evicts records where its memory is full."""
    prefix = next(_PREFIXES)
    store = RedisStore(server.url, prefix=prefix)
    with RedisRelay(server.url, prefix=prefix) as relay:
        open_runs(relay, range(30))
        save(store, range(30))
        for number in range(5, 25):
            server.command("DEL", f"{prefix}:{{run-{number}}}:run", f"{prefix}:{{c-{number}}}:saved")
        left = [number for number in range(29, -1, -1) if number not in range(5, 25)]
        assert [record.id for record in relay.list(limit=8)] == [f"run-{number}" for number in left[:8]]
        assert [record.id for record in relay.list()] == [f"run-{number}" for number in left]
        assert [one.id for one in store.list(limit=8)] == [f"c-{number}" for number in left[:8]]
        assert [one.id for one in store.list()] == [f"c-{number}" for number in left]
    assert server.command("ZCARD", f"{prefix}:runs") == server.command("ZCARD", f"{prefix}:conversations") == len(left)
    store.close()


@needs_redis
def test_a_run_stays_in_its_lists_while_it_runs(server: RedisServer) -> None:
    """Its entries are renewed, although its producer has nothing to write yet."""
    prefix = next(_PREFIXES)
    with RedisRelay(server.url, prefix=prefix, ttl_running=2.0, lease=1.0) as relay:
        writer = relay.open("run", {"owner": "ann"}, control=print)
        keys = (f"{{{prefix}:runs}}:until", f"{prefix}:{{owner=ann}}:runs:until")
        before = [float(server.command("ZSCORE", key, "run")) for key in keys]
        wait_for(
            lambda: all(float(server.command("ZSCORE", key, "run")) > at for key, at in zip(keys, before, strict=True))
        )
        assert relay.list(owner="ann", open_only=True) == [relay.get("run")]
        writer.end("completed")


@needs_redis
def test_conversations_that_were_saved_before_there_were_lists_of_owners_are_in_these(server: RedisServer) -> None:
    prefix = next(_PREFIXES)
    store = RedisStore(server.url, prefix=prefix)
    save(store, range(20))
    store.close()
    server.command("DEL", f"{prefix}:{{owner=ann}}:conversations")  # as an earlier version left it
    store = RedisStore(server.url, prefix=prefix)
    assert [one.id for one in store.list(owner="ann")] == [f"c-{number}" for number in range(19, 0, -2)]
    store.close()
