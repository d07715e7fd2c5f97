"""What a request costs: it grows with what is shown, not with the runs and conversations that there are.

Commands to Redis are counted, those in scripts included; and how often `authorize` is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, product
from typing import Any, NamedTuple

import pytest

import streamkit as sk
from streamkit.relay import MemoryRelay, Relay
from streamkit.relay.redis import RedisRelay
from streamkit.server import Run, create_app
from streamkit.stores import MemoryStore, RedisStore, Store

from ..redis_server import RedisServer, needs_redis
from .parts import Agents, Client, serve

FEW, MANY = 60, 240
SHOWN = 20
TIMES = 3  # that each request is made


def owner_of(run: Run | None, request: Any) -> bool | str:
    """The user whom a header names, and what is theirs."""
    user = str(request.headers.get("x-user", "ann"))
    return user if run is None else run.owner == user


def fill(relay: Relay, store: Store, numbers: range) -> None:
    """Conversations of two owners, each with a run; of every sixth it is left open."""
    for number in numbers:
        owner = "ann" if number % 2 else "bob"
        info = {"conversation": f"c-{number}", "owner": owner, "metadata": {}}
        writer = relay.open(f"run-{number}", info, control=print)
        store.save(f"c-{number}", [sk.TextMessage("m", role="user", content="Hello")], 0, owner=owner)
        if number % 6:
            writer.end("completed")
        else:
            store.lock(f"c-{number}", f"run-{number}")
            writer.ask("q", {"kind": "confirmation"})
            writer.pause()


class Served(NamedTuple):
    """A client, and the server of Redis whose commands are counted."""

    client: Client
    redis: RedisServer


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    """A server that does nothing else."""
    started = RedisServer()
    yield started
    started.close()


READS: dict[str, tuple[str, int]] = {
    # and how many commands it may take
    "runs": (f"/runs?limit={SHOWN}", 5 * SHOWN + 20),
    "open runs": (f"/runs?limit={SHOWN}&status=paused", 5 * SHOWN + 20),
    "runs of a conversation": ("/runs?conversation=c-7", 20),
    "runs after another": (f"/runs?limit={SHOWN}&before=run-51", 5 * SHOWN + 20),
    "a run": ("/runs/run-7", 8),
    "conversations": (f"/conversations?limit={SHOWN}", 6 * SHOWN + 20),
    "conversations after another": (f"/conversations?limit={SHOWN}&before=c-51", 6 * SHOWN + 20),
    "a conversation": ("/conversations/c-7", 8),
    "messages": ("/conversations/c-7/messages", 8),
    "a chat": ("/chat/c-7", 8),
    "health": ("/health", 20),
}


MOST_CHANGED = {"begin": 130, "answer": 80, "chat": 280, "agui": 300}
USERS = ("ann", "nobody")  # who owns half of it, and who owns none


@pytest.fixture(scope="module")
def costs(redis: RedisServer, agents: Agents) -> Iterator[dict[str, list[int]]]:
    """How many commands each request takes, of few and of many: to read, by each of the users, and to change."""
    taken: dict[str, list[int]] = {}
    with RedisRelay(redis.url) as relay:
        store = RedisStore(redis.url)
        app = create_app(agents, token=None, authorize=owner_of, relay=relay, store=store)
        with serve(app) as url, Client(url) as client:
            served = Served(client, redis)
            for numbers in (range(FEW), range(FEW, MANY)):
                fill(relay, store, numbers)
                for user, (name, (path, _)) in product(USERS, READS.items()):
                    read = partial(client.get, path, headers={"x-user": user})
                    taken.setdefault(f"{user} {name}", []).append(least(served, read))
                for name, act in (("begin", begin), ("answer", answer), ("chat", chat), ("agui", agui)):
                    taken.setdefault(name, []).append(min(act(served) for _ in range(TIMES)))
        store.close()
    yield taken


@needs_redis
@pytest.mark.slow
@pytest.mark.parametrize("user", USERS)
def test_what_is_read_takes_as_many_commands_of_few_as_of_many(costs: dict[str, list[int]], user: str) -> None:
    for name, (_, most) in READS.items():
        few, many = costs[f"{user} {name}"]
        assert abs(many - few) <= 2, f"{name}: {few}, {many}"
        assert max(few, many) <= most, f"{name}: {few}, {many}"


@needs_redis
@pytest.mark.slow
def test_what_is_changed_takes_no_more_commands_of_many_than_of_few(costs: dict[str, list[int]]) -> None:
    """To begin a run, to answer a question, and a turn of each of the UI protocols. How much an agent does meanwhile varies."""
    for name, most in MOST_CHANGED.items():
        assert max(costs[name]) <= most, f"{name}: {costs[name]}"


def least(served: Served, request: Callable[[], Any]) -> int:
    """How many commands a request takes: the least of some, as threads of the relay look at other things beside it."""
    costs = []
    for _ in range(TIMES):
        before = served.redis.calls()
        response = request()
        assert response.status_code in (200, 404), response.text
        costs.append(served.redis.calls() - before)
    return min(costs)


def begin(served: Served) -> int:
    before = served.redis.calls()
    run = served.client.begin("hello", stream=False)
    spent = served.redis.calls() - before
    served.client.until(run["id"], "completed")
    return spent


def answer(served: Served) -> int:
    run = served.client.begin("careful 1")
    question = served.client.until_asked(run["id"])
    before = served.redis.calls()
    served.client.post(f"/runs/{run['id']}/answers/{question['id']}", json={"approved": True})
    spent = served.redis.calls() - before
    served.client.until(run["id"], "completed")
    return spent


_NAMES = (f"ui-{number}" for number in count())


def chat(served: Served) -> int:
    message = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "hello"}]}
    body = {"id": next(_NAMES), "trigger": "submit-message", "messages": [message]}
    before = served.redis.calls()
    served.client.post("/chat", json=body)
    return served.redis.calls() - before


def agui(served: Served) -> int:
    body: dict[str, Any] = {"threadId": next(_NAMES), "runId": "r", "state": {}, "tools": [], "context": []}
    body |= {"forwardedProps": {}, "messages": [{"id": "u", "role": "user", "content": "hello"}]}
    before = served.redis.calls()
    served.client.post("/agui", json=body)
    return served.redis.calls() - before


# -- many


@pytest.fixture(scope="module")
def crowded() -> tuple[Relay, Store]:
    """1,200 runs and conversations of one owner, and three of another: more than a page looks through for a guest. In memory, as
    the app asks any relay and any store for parts of their lists in the same way."""
    relay, store = MemoryRelay(), MemoryStore()
    for number in range(1203):
        owner = "ann" if number < 1200 else "bob"
        relay.open(f"run-{number}", {"conversation": f"c-{number}", "owner": owner}, control=print).end("completed")
        store.save(f"c-{number}", [], 0, owner=owner)
    return relay, store


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["runs", "conversations"])
def test_lists_of_thousands(crowded: tuple[Relay, Store], agents: Agents, kind: str) -> None:
    """Whoever owns many, few or none asks `authorize` about what is shown alone; one who may see what is not theirs, but not
    most of it, about a thousand for one page, which then says where to go on."""
    asked: list[Any] = []

    def authorize(run: Run | None, request: Any) -> bool | str:
        user = str(request.headers["x-user"])
        asked.append(run)
        if user == "guest":
            return run is None or run.owner == "bob"
        return user if run is None else run.owner == user

    relay, store = crowded
    app = create_app(agents, token=None, authorize=authorize, relay=relay, store=store)
    with serve(app) as url, Client(url) as client:
        for user, shown in (("ann", 50), ("bob", 3), ("nobody", 0)):
            asked.clear()
            page = client.get(f"/{kind}", headers={"x-user": user}).json()
            assert (len(page[kind]), page["more"], "next" in page) == (shown, shown == 50, shown == 50)
            assert len(asked) <= 52
        seen, path = [], f"/{kind}?limit=2"
        for is_more in (True, True, False):
            asked.clear()
            page = client.get(path, headers={"x-user": "guest"}).json()
            assert page["more"] is is_more
            assert len(asked) <= 1010
            seen += [one["id"] for one in page[kind]]
            path = f"/{kind}?limit=2&before={page.get('next')}"
        assert [id.split("-")[1] for id in seen] == ["1202", "1201", "1200"]
