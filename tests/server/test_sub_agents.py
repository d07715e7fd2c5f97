"""A sub-agent whose question waits, in a run of the server: as one of the outer agent's own, over HTTP and in both UI protocols."""

from __future__ import annotations

from typing import Any

import pytest

from .backends import Backend
from .parts import Agents, Client, said, serve, wait_for
from .test_runs import KINDS, of


@KINDS
def test_an_inner_question_makes_a_run_wait_as_an_outer_one_does(client: Client, agents: Agents, kind: str) -> None:
    """The record, the events and the conversation say so in the same way."""
    seen: list[Any] = []
    for number, text in enumerate(("careful 5", "research careful 5")):
        agents.forget()
        run = client.begin(text, conversation=f"same-{kind}-{number}", **of(kind))
        question = client.until_asked(run["id"])
        record = client.run(run["id"])
        assert record["pending"] == [question]
        client.post(f"/runs/{run['id']}/answers/{question['id']}", json={"approved": True})
        frames = client.events(run["id"])
        waits = [frame.type for frame in frames].index("run_requires_action")
        assert [frame.type for frame in frames[waits - 1 : waits + 2]] == [
            *("confirmation_created", "run_requires_action", "confirmation_done")
        ]
        assert agents.ran == [5]
        seen.append(
            (record["status"], question["kind"], client.run(run["id"])["status"], said(frames).count("It gave"))
        )
    assert seen[0][:3] == seen[1][:3] == ("in_progress", "confirmation", "completed")
    assert (seen[0][3], seen[1][3]) == (1, 3)
    assert question["id"].split("/")[0] == question["subject"]["parent_id"]


@KINDS
def test_a_run_whose_inner_question_waits_is_paused_and_goes_on(backend: Backend, agents: Agents, kind: str) -> None:
    """In the process that takes it over, which asks the inner model for nothing that it had said."""
    app = backend.app(agents, pause_after=0.02)
    agents.forget()
    with serve(app) as url, Client(url) as client:
        run = client.begin("research careful 7", conversation="paused", **of(kind))
        question = client.until_asked(run["id"])
        paused = client.until(run["id"], "paused")
        assert paused["pending"] == [question]
        wait_for(lambda: not app.runs.active)
        requests = len(agents.model.requests)
        client.post(f"/runs/{run['id']}/answers/{question['id']}", json={"approved": True})
        frames = client.events(run["id"])
        types = [frame.type for frame in frames]
        names = ("run_created", "run_done", "confirmation_created", "confirmation_done", "tool_call_created")
        assert [types.count(name) for name in names] == [1, 1, 1, 1, 2]
        assert said(frames).endswith("It gave: It gave: careful 7")
        assert (agents.ran, len(agents.model.requests) - requests) == ([7], 2)
        saved = client.get("/conversations/paused/messages").json()["messages"]
        ids = [message["id"] for message in saved]
        assert len({*ids}) == len(ids)
        assert [message["type"] for message in saved if "parent_id" in message] == [
            "tool_call",
            "tool_output",
            "message",
        ]


@KINDS
def test_two_inner_questions_are_answered_in_any_order(backend: Backend, agents: Agents, kind: str) -> None:
    """One after the other where the agents run so, after a pause of each."""
    agents.forget()
    with serve(backend.app(agents, pause_after=0.02)) as url, Client(url) as client:
        run = client.begin("research careful 1 | careful 2", **of(kind))
        answered: list[str] = []
        for _ in range(2):
            client.until(run["id"], "paused")
            question = [one for one in client.run(run["id"])["pending"] if one["id"] not in answered][-1]
            answered.append(question["id"])
            client.post(f"/runs/{run['id']}/answers/{question['id']}", json={"approved": True})
        types = [frame.type for frame in client.events(run["id"])]
        assert [types.count(f"confirmation_{phase}") for phase in ("created", "done")] == [2, 2]
    assert sorted(agents.ran) == [1, 2]


@pytest.mark.parametrize("text", ["careful 5", "research careful 5"])
def test_a_run_that_nobody_answers_in_time_requires_action(
    client: Client, agents: Agents, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    agents.forget()
    monkeypatch.setattr("streamkit.server.execution._LONGEST", 0.05)
    run = client.begin(text)
    client.until(run["id"], "requires_action")
    frames = client.events(run["id"])
    statuses = [frame.data["confirmation"]["status"] for frame in frames if frame.type == "confirmation_done"]
    assert statuses == ["unanswered"]
    assert [frame.data["run"]["status"] for frame in frames if frame.type == "run_done"] == ["requires_action"]
    assert agents.ran == []
