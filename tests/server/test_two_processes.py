"""Two server processes behind one Redis: begun on one; resumed, confirmed, stopped, and gone on with on the other, after the
first was killed at any moment."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis as redis_py

from ..redis_server import RedisServer, needs_redis
from .parts import Agents, Client, frames_of, said, wait_for
from .processes import process

pytestmark = [pytest.mark.slow, needs_redis]


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
    with process(redis, path, agents) as (_, client):
        yield client


@pytest.fixture(scope="module")
def here(redis: RedisServer, agents: Agents, path: Path) -> Iterator[tuple[Any, Client]]:
    """A process that `killed` kills, after the tests that need it alive."""
    with process(redis, path, agents) as started:
        yield started


def test_two_processes_behind_one_redis(here: tuple[Any, Client], there: Client) -> None:
    _, client = here
    run = client.begin("run say shared", conversation="shared")
    question = there.until_asked(run["id"])
    first = [frame.id for frame in _frames_until(there, run["id"], "confirmation_created")]
    there.post(f"/runs/{run['id']}/answers/{question['id']}", json={"approved": True})
    rest = there.events(run["id"], headers={"Last-Event-ID": str(first[-1])})
    everything = client.events(run["id"])
    assert [frame.id for frame in everything] == [*first, *(frame.id for frame in rest)]
    assert said(everything) == "I will. It gave: shared\n"
    assert client.run(run["id"])["finish_reason"] == "stop"
    busy = client.begin("hang", conversation="shared")
    refused = there.post("/runs", json={"input": "x", "conversation": "shared"})
    assert refused.status_code == 409
    assert there.post(f"/runs/{busy['id']}/cancel").status_code == 202
    client.until(busy["id"], "cancelled")
    key = {"Idempotency-Key": "two"}
    ids = [one.post("/runs", json={"input": "hello"}, headers=key).json()["id"] for one in (client, there)]
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
    assert (after["status"], after["conversation"]) == ("completed", "later")


def test_a_server_that_is_told_to_stop_leaves_its_runs(
    redis: RedisServer, agents: Agents, path: Path, there: Client
) -> None:
    """With SIGTERM, in the midst: those that wait are paused, and go on in the other process; those that work end as
    cancelled, before the eyes of their readers."""
    with process(redis, path, agents) as (stopped, client), ThreadPoolExecutor(4) as pool:
        waiting, working = [], []
        for kind in ("sync", "async"):
            options = {"metadata": {"kind": kind}}
            waiting.append(client.begin(f"run say {kind}", conversation=f"waits-{kind}", **options))
            client.until_asked(waiting[-1]["id"])
            working.append(client.begin("hang", conversation=f"works-{kind}", **options))
            _frames_until(client, working[-1]["id"], "text_delta")
        readers = [pool.submit(there.events, run["id"]) for run in working]
        assert stopped.terminate() in (0, -15)
        for run, reader in zip(working, readers, strict=True):
            assert [frame.type for frame in reader.result()][-2:] == ["run_done", "stream_end"]
            assert there.run(run["id"])["status"] == "cancelled"
        for run, kind in zip(waiting, ("sync", "async"), strict=True):
            known = there.run(run["id"])
            assert known["status"] == "paused"
            there.post(f"/runs/{run['id']}/answers/{known['pending'][0]['id']}", json={"approved": True})
            assert said(there.events(run["id"])) == f"I will. It gave: {kind}\n"


KILLED = {"steps 3": 1, "both": 0, "run hang": 1, "hang": 0, "run say 1 & say 2": 1, "run say 1 & hang": 2}
"""What the runs do that a process has when it is killed, and how many of their questions were approved by then."""


@pytest.fixture(scope="module")
def killed(here: tuple[Any, Client], redis: RedisServer) -> dict[str, Any]:
    """Runs of a process that was killed: by their conversations, those that waited for an answer and those that worked."""
    victim, client = here
    runs: dict[str, Any] = {}
    for kind in ("sync", "async"):
        for text, approvals in KILLED.items():
            name = f"{text.replace(' ', '-').replace('-&-', '-')}-{kind}"
            runs[name] = run = client.begin(text, conversation=name, metadata={"kind": kind})
            if text == "hang":
                _frames_until(client, run["id"], "text_delta")
                continue
            run["question"] = client.until_asked(run["id"])["id"]
            answered = []
            for _ in range(approvals):
                answered.append(run["question"])
                client.post(f"/runs/{run['id']}/answers/{run['question']}", json={"approved": True})
                if len(answered) < approvals or not text.endswith("hang"):
                    run["question"] = wait_for(partial(_open, client, run["id"], *answered))
            if text.endswith("hang"):
                _frames_until(client, run["id"], "active_line", approvals)
    for run in runs.values():
        run["cursor"] = client.run(run["id"])["cursor"]
    victim.kill()
    connection = redis_py.Redis.from_url(redis.url)
    for run in runs.values():  # as if it had expired
        connection.delete(f"sk:{{{run['id']}}}:lease")
    connection.close()
    return runs


KINDS = pytest.mark.parametrize("kind", ["sync", "async"])


@KINDS
def test_a_run_that_waited_when_its_process_was_killed_goes_on(
    killed: dict[str, Any], there: Client, path: Path, kind: str
) -> None:
    """It had not been paused: nothing of it ran, so it counts as paused. The answer comes to another process, which takes it
    over. What ran before the question does not run again."""
    run, before = killed[f"steps-3-{kind}"], path.read_text()
    assert before.count("1") == 2
    known = there.run(run["id"])
    assert (known["status"], [one["id"] for one in known["pending"]]) == ("paused", [run["question"]])
    there.post(f"/runs/{run['id']}/answers/{run['question']}", json={"approved": True})
    third = wait_for(lambda: _open(there, run["id"], run["question"]))
    there.post(f"/runs/{run['id']}/answers/{third}", json={"approved": True})
    frames = there.events(run["id"])
    assert said(frames) == "Did 3."
    types = [frame.type for frame in frames]
    assert [types.count(name) for name in ("run_created", "run_done", "confirmation_created", "confirmation_done")] == [
        1,
        1,
        3,
        3,
    ]
    assert path.read_text() == before + "2\n3\n"
    assert there.run(run["id"])["status"] == "completed"


@KINDS
def test_a_run_that_waited_for_several_answers_goes_on(killed: dict[str, Any], there: Client, kind: str) -> None:
    run = killed[f"both-{kind}"]
    for question in there.run(run["id"])["pending"]:
        assert there.run(run["id"])["status"] in ("paused", "in_progress")
        there.post(f"/runs/{run['id']}/answers/{question['id']}", json={"output": "x"})
    assert said(there.events(run["id"])) == "It gave: x"


@KINDS
def test_of_two_calls_in_one_answer_the_first_does_not_run_again(
    killed: dict[str, Any], there: Client, agents: Agents, kind: str
) -> None:
    """The process was killed when the first had run, and it asked whether the second may: that one alone is asked about, and runs
    in another process. The model reads the outputs of both."""
    run = killed[f"run-say-1-say-2-{kind}"]
    known = there.run(run["id"])
    assert (known["status"], [one["subject"]["content"] for one in known["pending"]]) == ("paused", ["say 2"])
    there.post(f"/runs/{run['id']}/answers/{run['question']}", json={"approved": True})
    frames = there.events(run["id"])
    printed = [frame.data["value"] for frame in frames if frame.type == "console_delta"]
    assert printed == ["1\n", "2\n"]
    assert [frame.type for frame in frames].count("confirmation_created") == 2
    assert said(frames) == "I will. It gave: 2\n"
    outputs = [one["content"] for one in agents.model.requests[-1].body["messages"] if one["role"] == "tool"]
    assert outputs == ["1\n", "2\n"]


@KINDS
def test_of_two_calls_in_one_answer_the_next_request_says_what_became_of_each(
    killed: dict[str, Any], ends: dict[str, list[Any]], there: Client, agents: Agents, kind: str
) -> None:
    """The process was killed when the first had run, and while the second did: neither runs again."""
    run = killed[f"run-say-1-hang-{kind}"]
    assert there.run(run["id"])["status"] == "lost"
    again = there.begin("go on", conversation=run["conversation"])
    frames = there.events(again["id"])
    assert [frame.type for frame in frames if frame.type in ("confirmation_created", "console_created")] == []
    requests = [one.body["messages"] for one in agents.model.requests if "go on" in str(one.body["messages"][-1])]
    first, second = (one["content"] for one in requests[-1] if one["role"] == "tool")
    assert first == "1\n"
    assert "interrupted" in second


@KINDS
def test_of_two_calls_in_one_answer_the_clients_output_is_kept(
    redis: RedisServer, agents: Agents, path: Path, there: Client, kind: str
) -> None:
    """The process is killed when the client has given the output of one, and the other waits for an approval."""
    number = {"sync": "71", "async": "72"}[kind]
    with process(redis, path, agents, lease=1.0) as (victim, client):
        run = client.begin(f"careful-and-ask {number}", conversation=f"mixed-{kind}", metadata={"kind": kind})
        question = client.until_asked(run["id"])
        assert question["kind"] == "tool_call"
        client.post(f"/runs/{run['id']}/answers/{question['id']}", json={"output": "given"})
        approval = wait_for(partial(_open, client, run["id"], question["id"]))
        victim.kill()
    there.until(run["id"], "paused")
    there.post(f"/runs/{run['id']}/answers/{approval}", json={"approved": True})
    frames = there.events(run["id"])
    assert [frame.type for frame in frames].count("tool_output_done") == 2
    assert path.read_text().split().count(number) == 1
    outputs = [one["content"] for one in agents.model.requests[-1].body["messages"] if one["role"] == "tool"]
    assert sorted(outputs) == [f"careful {number}", "given"]


@pytest.fixture(scope="module")
def ends(killed: dict[str, Any], there: Client) -> dict[str, list[Any]]:
    """What readers get who had read all that there was, of the runs that worked. (All at once: a lease is waited for.)"""
    working = {name: run for name, run in killed.items() if "hang" in name}
    read = lambda run: there.events(run["id"], headers={"Last-Event-ID": run["cursor"]})  # noqa: E731
    with ThreadPoolExecutor(len(working)) as pool:
        return dict(zip(working, pool.map(read, working.values()), strict=True))


@KINDS
@pytest.mark.parametrize("text", ["run-hang", "hang"])
def test_a_run_that_worked_when_its_process_was_killed_is_lost(
    killed: dict[str, Any], ends: dict[str, list[Any]], there: Client, agents: Agents, text: str, kind: str
) -> None:
    """Its readers see its end. The conversation goes on with the next message: the model reads how far the run came."""
    run = killed[f"{text}-{kind}"]
    assert [frame.type for frame in ends[run["conversation"]]][-2:] == ["stream_exception", "stream_end"]
    after = there.run(run["id"])
    assert (after["status"], after["error"]["type"]) == ("lost", "urn:streamkit:error:producer-lost")
    assert after["ended_at"]
    again = there.begin("go on", conversation=run["conversation"])
    assert said(there.events(again["id"])).endswith("go on")
    words = str(agents.model.requests[-1].body["messages"])
    assert text.replace("-", " ") in words
    assert text == "hang" or "interrupted" in words


def _open(client: Client, run_id: str, *answered: str) -> str | None:
    """The id of a run's open question that is none of these."""
    return next((one["id"] for one in client.run(run_id)["pending"] if one["id"] not in answered), None)


def _frames_until(client: Client, run_id: str, type: str, times: int = 1) -> list[Any]:
    """The frames of a run up to one of this type. Of the lines that run, that they have ended does not count."""
    found = []
    with client.stream("GET", f"/runs/{run_id}/events") as response:
        for frame in frames_of(response.iter_text()):
            found.append(frame)
            times -= frame.type == type and frame.data.get("line", 1) is not None
            if times == 0:
                break
    return found
