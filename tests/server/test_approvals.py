"""No answer is accepted and lost: the run goes on whatever became of its producer, and what was approved runs once.

In one process on both relays, where a producer dies when its log is abandoned; and in processes behind one Redis.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from streamkit.relay import LogWriter
from streamkit.server.app import App

from ..endurance.approvals import KINDS, ROUTES, Asking, Rounds, answer_run
from ..redis_server import RedisServer, needs_redis
from .backends import Backend, RelayFault
from .parts import TOKEN, Agents, Client, frames_of, said, serve, wait_for
from .processes import Process, process
from .test_runs import code_of

AGENTS = pytest.mark.parametrize("kind", ["sync", "async"])


# -- in one process


def die(app: App, run_id: str) -> None:
    """The producer of a run is gone while it waits, as if its process had been killed."""
    waiting(app, run_id).abandon()


def waiting(app: App, run_id: str) -> LogWriter:
    """The log of a run, once its agent does nothing but wait."""
    execution = app.runs.active[run_id]
    wait_for(lambda: execution.waits_since is not None)
    assert execution.publisher is not None
    return execution.publisher.log


@pytest.fixture
def two(backend: Backend, agents: Agents) -> Iterator[tuple[App, Client, Client]]:
    """Two apps on one relay and one store, as two processes: the first one, and a client of each."""
    first, second = (backend.app(agents, relay=relay, store=store) for relay, store in backend.shared())
    with serve(second) as url, Client(url) as there, serve(first) as url, Client(url) as here:
        yield first, here, there


@AGENTS
@pytest.mark.parametrize("route", ROUTES)
def test_an_answer_to_a_run_whose_producer_died_is_acted_on(
    two: tuple[App, Client, Client], agents: Agents, route: str, kind: str
) -> None:
    app, here, there = two
    asking = Asking(here, route, "careful", [1], kind)
    question = wait_for(partial(asking.open_question, here))
    die(app, asking.id)
    wait_for(lambda: there.run(asking.id)["status"] == "paused")
    assert asking.answer(there, question).status_code == 200
    there.until(asking.id, "completed")
    assert agents.ran == [1]
    assert answer_run(there, asking.run, question).json()["status"] == "approved", "the same answer again is fine"
    assert agents.ran == [1]


def test_an_answer_that_its_producer_did_not_act_on_is_acted_on_by_another(
    two: tuple[App, Client, Client], agents: Agents
) -> None:
    """The answer came first, and the process that took it is gone too: whoever is asked for the run goes on with it."""
    app, here, there = two
    asking = Asking(here, "runs", "careful", [1], "sync")
    question = wait_for(partial(asking.open_question, here))
    die(app, asking.id)
    app.runs.relay.answer(asking.id, question["id"], {"approved": True})
    there.until(asking.id, "completed")
    assert agents.ran == [1]


def test_of_several_questions_the_answered_one_is_kept(two: tuple[App, Client, Client]) -> None:
    app, here, there = two
    run = here.begin("both", conversation="several")
    first, second = wait_for(lambda: len(found := here.run(run["id"])["pending"]) == 2 and found)
    answer = lambda question, output: there.post(  # noqa: E731
        f"/runs/{run['id']}/answers/{question['id']}", json={"output": output}
    )
    die(app, run["id"])
    assert answer(first, "one").status_code == 200
    assert wait_for(lambda: [one["id"] for one in there.run(run["id"])["pending"]] == [second["id"]])
    assert answer(second, "two").status_code == 200
    frames = there.events(run["id"])
    outputs = [f.data["message"]["content"] for f in frames if f.type == "tool_output_done"]
    assert outputs == ["one", "two"]
    assert said(frames) == "It gave: two"


def test_a_run_that_is_lost_takes_no_answer(two: tuple[App, Client, Client]) -> None:
    """Its producer died at work, so nobody acts on an answer. The same holds for one that came in time."""
    app, here, there = two
    run = here.begin("ask a & hang")
    question = here.until_asked(run["id"])
    log = waiting(app, run["id"])
    log.busy = True
    log.flush()
    log.abandon()
    there.until(run["id"], "lost")
    path = f"/runs/{run['id']}/answers/{question['id']}"
    assert code_of(there.post(path, json={"output": "late"})) == (409, "question-closed")


def test_a_producer_that_lost_its_run_neither_acts_nor_saves(two: tuple[App, Client, Client], agents: Agents) -> None:
    """As one that was stopped for a while: it does not know yet that another one has the run."""
    app, here, there = two
    asking = Asking(here, "runs", "careful", [1], "sync")
    question = wait_for(partial(asking.open_question, here))
    execution = app.runs.active[asking.id]
    die(app, asking.id)
    assert asking.answer(there, question).status_code == 200
    execution._stream.pending[question["id"]].approve()  # what reaches it before it hears that it lost the run
    assert execution.ended.wait(20)
    there.until(asking.id, "completed")
    assert agents.ran == [1]
    saved = there.get(f"/conversations/{asking.run['conversation']}/messages").json()["messages"]
    assert saved[-1]["content"] == "It gave: careful 1"


# -- while it pauses


@pytest.mark.anyio
@AGENTS
async def test_an_answer_that_comes_while_its_run_pauses_is_acted_on(backend: Backend, kind: str) -> None:
    """On asyncio and on trio: the run is this process's still when the answer comes, and nobody's when it was taken."""
    agents = Agents()

    class Answering(RelayFault):
        def open(self, run_id: str, *arguments: Any, **options: Any) -> Any:
            writer = super().open(run_id, *arguments, **options)
            pause = writer.pause

            def answered() -> None:
                (question,) = self.get(run_id).questions  # type: ignore[union-attr]
                self.answer(run_id, question, {"approved": True})
                pause()

            setattr(writer, "pause", answered)  # noqa: B010 - of this writer alone
            return writer

    app = backend.app(agents, relay=backend.relay(Answering), pause_after=0.0)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    transport = httpx.ASGITransport(app)
    with anyio.fail_after(60):
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            begun = await client.post("/runs", json={"input": "careful 1", "metadata": {"kind": kind}})
            text = (await client.get(f"/runs/{begun.json()['id']}/events")).text
    assert said([*frames_of(iter([text]))]) == "It gave: careful 1"
    assert agents.ran == [1]
    await agents.aclose()


# -- processes behind one Redis

LEASE = 1.5  # seconds


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with what the tool `careful` was called with, in all processes."""
    return tmp_path_factory.mktemp("shared") / "ran"


@pytest.fixture(scope="module")
def there(redis: RedisServer, agents: Agents, path: Path) -> Iterator[Client]:
    with process(redis, path, agents, lease=LEASE) as (_, client):
        yield client


NUMBERS = iter(range(100, 1000))


@pytest.mark.slow
@needs_redis
@pytest.mark.parametrize(("how", "when"), [("killed", "within its lease"), ("stopped", "after its lease")])
def test_answers_for_a_process_that_is_gone_are_acted_on_by_another(
    redis: RedisServer, agents: Agents, path: Path, there: Client, how: str, when: str
) -> None:
    """Over each route, one question or several. One that was stopped finds, when it goes on, that it has no run any more."""
    with process(redis, path, agents, lease=LEASE) as (victim, here):
        askings = [
            Asking(here, route, word, [next(NUMBERS) for _ in range(calls)], kind) for route, word, calls, kind in KINDS
        ]
        questions = [wait_for(partial(asking.open_question, here)) for asking in askings]
        _end(victim, how)
        if when == "after its lease":
            wait_for(lambda: {there.run(asking.id)["status"] for asking in askings} == {"paused"})
        for asking, question in zip(askings, questions, strict=True):
            assert asking.answer(there, question).status_code == 200
            again = answer_run(there, asking.run, question)
            assert (again.status_code, again.json()["status"]) == (200, "approved")
        for asking in askings:
            asking.see_through(there)
        if how == "stopped":
            victim.wake()
            here.events(here.begin("hello")["id"])
            victim.terminate()
    ran = [int(line) for line in path.read_text().split()]
    for asking in askings:
        assert asking.fault([ran.count(number) for number in asking.numbers]) == ""


@pytest.mark.slow
@needs_redis
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_second_question_after_the_first_was_answered(
    redis: RedisServer, agents: Agents, path: Path, there: Client, how: str
) -> None:
    """What ran before the second question does not run again."""
    with process(redis, path, agents, lease=LEASE) as (victim, here):
        asking = Asking(here, "runs", "each", [next(NUMBERS), next(NUMBERS)], "sync")
        first = wait_for(partial(asking.open_question, here))
        asking.answer(here, first)
        second = wait_for(lambda: (found := asking.open_question(here)) and found["id"] != first["id"] and found)
        _end(victim, how)
        assert asking.answer(there, second).status_code == 200
        asking.see_through(there)
    ran = [int(line) for line in path.read_text().split()]
    assert asking.fault([ran.count(number) for number in asking.numbers]) == ""


def _end(victim: Process, how: str) -> None:
    victim.kill() if how == "killed" else victim.stop()


@pytest.mark.slow
@needs_redis
def test_processes_that_end_at_random_moments_around_their_answers() -> None:
    """A short form of `python -m tests.endurance.approvals`: one is stopped, then one is killed together with the process that took
    the answers, and each of its six runs has its answer at another moment."""
    made = Rounds(seed=30)
    try:
        made.rounds(2)
    finally:
        made.close()
    assert made.faults == []
