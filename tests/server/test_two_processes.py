"""Two server processes behind one Redis and one file of conversations: started on one; resumed, confirmed, stopped on the other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ..redis_server import RedisServer, needs_redis
from .parts import Agents, Client, said

pytestmark = [pytest.mark.slow, needs_redis]

PROCESS = """
import sys
from streamkit.relay.redis import RedisRelay
from streamkit.server import create_app
from streamkit.stores import SQLiteStore
from tests.server.parts import TOKEN, Agents, serve

redis, path, model, pause = sys.argv[1:]
agents = Agents(model)
app = create_app(agents, token=TOKEN, relay=RedisRelay(redis), store=SQLiteStore(path), pause_after=float(pause))
with serve(app) as url:
    print(url, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.close()


@contextmanager
def process(redis: RedisServer, path: Path, agents: Agents, pause: float = 60.0) -> Iterator[tuple[Any, Client]]:
    """A server process, and a client of it."""
    command = [sys.executable, "-c", PROCESS, redis.url, str(path), agents.model.url, str(pause)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        with Client(started.stdout.readline().strip()) as client:
            yield started, client
        started.stdin.close()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared") / "conversations.db"


@pytest.fixture(scope="module")
def there(redis: RedisServer, agents: Agents, path: Path) -> Iterator[Client]:
    with process(redis, path, agents) as (_, client):
        yield client


def test_two_processes_behind_one_redis(redis: RedisServer, agents: Agents, path: Path, there: Client) -> None:
    with process(redis, path, agents) as (_, here):
        run = here.begin("run say shared", conversation="shared")
        question = there.until_asked(run["id"])
        first = [frame.id for frame in _frames_until(there, run["id"], "confirmation_created")]
        there.post(f"/runs/{run['id']}/answers/{question['id']}", json={"approved": True})
        rest = there.events(run["id"], headers={"Last-Event-ID": str(first[-1])})
        everything = here.events(run["id"])
        assert [frame.id for frame in everything] == [*first, *(frame.id for frame in rest)]
        assert said(everything) == "I will. It gave: shared\n"
        assert here.run(run["id"])["finish_reason"] == "stop"
        busy = here.begin("hang", conversation="shared")
        refused = there.post("/runs", json={"input": "x", "conversation": "shared"})
        assert refused.status_code == 409
        assert there.post(f"/runs/{busy['id']}/cancel").status_code == 202
        here.until(busy["id"], "cancelled")
        key = {"Idempotency-Key": "two"}
        ids = [one.post("/runs", json={"input": "hello"}, headers=key).json()["id"] for one in (here, there)]
        assert ids[0] == ids[1]


def test_a_run_outlives_the_process_that_began_it(
    redis: RedisServer, agents: Agents, path: Path, there: Client
) -> None:
    """It is killed while the run is paused; the approval comes later, to another process: nothing runs twice."""
    with process(redis, path, agents, pause=0.05) as (killed, here):
        run = here.begin("run say later", conversation="later")
        question = here.until_asked(run["id"])
        here.until(run["id"], "paused")
        killed.kill()
    there.post(f"/runs/{run['id']}/answers/{question['id']}", json={"approved": True, "edited": "say edited"})
    frames = there.events(run["id"])
    types = [frame.type for frame in frames]
    names = ("run_created", "confirmation_created", "console_created", "run_done")
    assert [types.count(name) for name in names] == [1] * 4
    assert "edited" in said(frames)
    after = there.run(run["id"])
    assert (after["status"], after["conversation"]) == ("done", "later")


def _frames_until(client: Client, run_id: str, type: str) -> list[Any]:
    from .parts import frames_of

    found = []
    with client.stream("GET", f"/runs/{run_id}/events") as response:
        for frame in frames_of(response.iter_text()):
            found.append(frame)
            if frame.type == type:
                break
    return found
