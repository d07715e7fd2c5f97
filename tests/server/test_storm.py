"""Many clients at once, and parts that fail at any call: each response is one of the contract's, and nothing is left."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

import streamkit as sk

from ..endurance.server import storm
from .backends import Backend
from .parts import Agents, Client, serve, wait_for
from .test_runs import of


@pytest.mark.slow
def test_clients_that_do_everything_at_once(backend: Backend) -> None:
    """A short round of `python -m tests.endurance.server`."""
    made = storm(backend, seed=7, clients=8, operations=120)
    assert made.faults == []
    assert len(made.runs) > 5


class Fails:
    """Makes one call of one method of a store or a relay fail, as if it was away."""

    def __init__(self, part: Any, names: tuple[str, ...]) -> None:
        self.method, self.count = "", 0
        part.waits = True
        for name in names:
            setattr(part, name, partial(self._call, name, getattr(part, name)))

    def _call(self, name: str, method: Any, *arguments: Any, **options: Any) -> Any:
        if name == self.method:
            self.count -= 1
            if self.count == 0:
                raise sk.SourceError("it is away")
        return method(*arguments, **options)


STORE = ("load", "save", "get", "list", "lock", "unlock", "delete")
RELAY = ("open", "get", "list", "answer", "cancel", "take_over", "read", "delete")


@pytest.mark.slow
@pytest.mark.parametrize("part", ["store", "relay"])
def test_parts_that_fail_at_each_call(backend: Backend, agents: Agents, part: str) -> None:
    """The first call or the second, while a conversation goes its whole way: each kind of storage has one of the two. A request
    then gets 503, or does not notice; every run ends, and the same conversation goes on."""
    store, relay = backend.store(), backend.relay()
    names = STORE if part == "store" else RELAY
    fails = Fails(store if part == "store" else relay, names)
    app = backend.app(agents, relay=relay, store=store)
    with serve(app) as url, Client(url) as client:
        for number, name in enumerate(names, backend.name == "redis"):
            count, kind = number % 2 + 1, ("sync", "async")[number // 2 % 2]
            fails.method, fails.count = name, count
            place = f"{name} {count}"
            statuses = _whole_way(client, f"{name}-{count}", kind)
            fails.method = ""
            assert {*statuses} <= {200, 201, 202, 204, 404, 409, 422, 503}, (place, statuses)
            for run_id in [*app.runs.active]:
                client.post(f"/runs/{run_id}/cancel")
            wait_for(lambda: not app.runs.active and not app.runs._beginning)
            for run in client.get("/runs").json()["runs"]:
                client.until(run["id"], "completed", "failed", "cancelled", "lost")
            again = client.begin("hello", conversation=f"{name}-{count}", **of(kind))
            assert client.events(again["id"])[-1].type == "stream_end", place
            assert client.run(again["id"])["status"] == "completed", place
            wait_for(lambda: not app.runs.active)


def _whole_way(client: Client, conversation: str, kind: str) -> list[int]:
    """Begin a run, answer it, look at it, take it back, stop the next and delete all. Returns the responses' statuses."""
    statuses: list[int] = []

    def call(method: str, path: str, **options: Any) -> Any:
        response = client.request(method, path, **options)
        statuses.append(response.status_code)
        return response.json() if response.status_code in (200, 201, 202) else {}

    for text in ("run say x", "hang"):
        run = call("POST", "/runs", json={"input": text, "conversation": conversation, **of(kind)})
        for _ in range(200):
            if "id" not in run or run.get("pending") or run.get("ended_at") or text == "hang":
                break
            time.sleep(0.01)  # the agent needs the processor, too
            run = {**run, **call("GET", f"/runs/{run['id']}")}
        for question in run.get("pending", []):
            call("POST", f"/runs/{run['id']}/answers/{question['id']}", json={"approved": True})
        if text == "hang" and "id" in run:
            call("POST", f"/runs/{run['id']}/cancel")
        call("GET", "/conversations")
        call("GET", f"/conversations/{conversation}/messages")
        call("POST", f"/conversations/{conversation}/rollback", json={})
    call("DELETE", f"/conversations/{conversation}")
    return statuses


@pytest.mark.parametrize("made", [None, "agent", 1, sk.Agent, object()])
def test_a_factory_that_makes_no_agent_ends_its_run(backend: Backend, made: Any) -> None:
    app = backend.app(lambda context: made)
    with serve(app) as url, Client(url) as client:
        run = client.begin("hello")
        after = client.until(run["id"], "failed")
        assert after["error"]["title"] == "The run failed."
        wait_for(lambda: not app.runs.active)
