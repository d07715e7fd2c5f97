"""Conversations over HTTP, and runs that are left and taken over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import streamkit as sk
from streamkit.protocols import ag_ui
from streamkit.server import create_app
from streamkit.stores import SQLiteStore

from .backends import Backend
from .parts import TOKEN, Agents, Client, said, serve, wait_for
from .processes import process
from .test_runs import KINDS, code_of, of


def talk(client: Client, conversation: str, *texts: str) -> list[str]:
    """Runs of a conversation, one after the other. Returns their ids."""
    ids = []
    for text in texts:
        run = client.begin(text, conversation=conversation)
        client.events(run["id"])
        ids.append(run["id"])
    return ids


def contents(client: Client, conversation: str) -> list[str]:
    return [m.get("content", "") for m in client.get(f"/conversations/{conversation}/messages").json()["messages"]]


def test_a_turn_that_got_no_answer_is_no_part_of_the_next(backend: Backend) -> None:
    """Rolling back removes what the user said for the newest run, all of it, and leaves what was said for the run before."""
    store = backend.store()
    turns = [("a", "user", "first"), ("b", "user", "second"), ("b", "user", "with this"), ("b", "assistant", "Yes.")]
    messages = [
        sk.TextMessage(f"m{n}", role=role, run_id=run, content=text) for n, (run, role, text) in enumerate(turns)
    ]
    store.save("back", messages, 0)
    with serve(backend.app(print, store=store)) as url, Client(url) as client:
        assert client.post("/conversations/back/rollback", json={}).json()["removed"] == ["m1", "m2", "m3"]
        assert contents(client, "back") == ["first"]


def test_a_turn_in_which_the_output_was_asked_for_once_more_is_one_turn(backend: Backend) -> None:
    """Rolling back removes all of it, and gives what the user said alone. No client shows the agent's own message as the
    user's."""
    store = backend.store()
    again = sk.TextMessage("m2", role="user", run_id="a", content="Once more.", metadata={"output_retry": True})
    said = sk.TextMessage("m0", role="user", run_id="a", content="A recipe!")
    answers = [sk.TextMessage(f"m{number}", run_id="a", content=f"Answer {number}.") for number in (1, 3)]
    store.save("once-more", [said, answers[0], again, answers[1]], 0)
    with serve(backend.app(print, store=store)) as url, Client(url) as client:
        shown = client.get("/chat/once-more").json()["messages"]
        rolled = client.post("/conversations/once-more/rollback", json={}).json()
    assert [[part["text"] for part in one["parts"] if "text" in part] for one in shown] == [
        ["A recipe!"],
        ["Answer 1.", "Answer 3."],
    ]
    assert rolled["removed"] == ["m0", "m1", "m2", "m3"]
    assert [message["content"] for message in rolled["input"]] == ["A recipe!"]
    assert [item["role"] for item in ag_ui.to_input([said, answers[0], again, answers[1]])] == [
        *("user", "assistant", "assistant")
    ]


def test_a_conversation_has_one_open_run(client: Client) -> None:
    """Its messages come from its events; those of the runs before it, from the conversation."""
    talk(client, "busy", "hello")
    run = client.begin("run say x", conversation="busy")
    client.until_asked(run["id"])
    refused = client.post("/runs", json={"input": "more", "conversation": "busy"})
    assert code_of(refused) == (409, "conversation-busy")
    assert refused.json()["run"] == run["id"]
    rollback = client.post("/conversations/busy/rollback", json={})
    assert code_of(rollback) == (409, "conversation-busy")
    known = client.get("/conversations/busy").json()
    shown = client.get("/conversations/busy/messages").json()
    assert (known["run"], shown["run"]) == (run["id"], {"id": run["id"], "cursor": client.run(run["id"])["cursor"]})
    assert [m["content"] for m in shown["messages"]] == ["hello", "You said: hello"]
    client.post(f"/runs/{run['id']}/cancel")
    client.events(run["id"])
    assert client.get("/conversations/busy").json()["run"] is None
    assert contents(client, "busy")[2] == "run say x"
    talk(client, "busy", "again")
    assert contents(client, "busy")[-1] == "You said: again"


def test_a_conversation_is_rolled_back(client: Client) -> None:
    """To before a message of the user, the last one by default; that is then the input of another run."""
    ids = talk(client, "back", "one", "two", "three")
    rolled = client.post("/conversations/back/rollback", json={}).json()
    assert [m["content"] for m in rolled["input"]] == ["three"]
    assert len(rolled["removed"]) == 2
    assert rolled["removed"][0] == rolled["input"][0]["id"] == f"{ids[2]}.1"
    assert contents(client, "back") == ["one", "You said: one", "two", "You said: two"]
    again = client.begin(rolled["input"], conversation="back")
    assert said(client.events(again["id"])) == "You said: three"
    rolled = client.post("/conversations/back/rollback", json={"before": f"{ids[1]}.1"}).json()
    assert (len(rolled["removed"]), [m["content"] for m in rolled["input"]]) == (4, ["two", "three"])
    for body in ({"before": "unknown"}, {"before": 1}, {"before": "message-1"}):
        assert code_of(client.post("/conversations/back/rollback", json=body)) == (422, "invalid")
    client.post("/conversations/back/rollback", json={})
    assert contents(client, "back") == []
    assert code_of(client.post("/conversations/back/rollback", json={})) == (422, "invalid")


def test_a_branch_begins_before_a_message_of_the_user_and_the_conversation_stays(client: Client) -> None:
    ids = talk(client, "tree", "one", "two", "three")
    response = client.post("/conversations/tree/branch", json={"before": f"{ids[1]}.1"})
    branch = response.json()
    assert (response.status_code, branch["title"], branch["messages"]) == (201, "one (2)", 2)
    assert branch["branch_of"] == "tree"
    talk(client, branch["id"], "another two")
    assert contents(client, branch["id"]) == ["one", "You said: one", "another two", "You said: another two"]
    assert contents(client, "tree")[::2] == ["one", "two", "three"]
    again = client.post(f"/conversations/{branch['id']}/branch", json={"before": f"{ids[0]}.1"}).json()
    assert (again["title"], again["messages"], contents(client, again["id"])) == ("one (3)", 0, [])
    talk(client, again["id"], "anew")
    assert client.get(f"/conversations/{again['id']}").json()["title"] == "anew"
    for body in ({}, {"before": "unknown"}, {"before": 1}):
        assert code_of(client.post("/conversations/tree/branch", json=body)) == (422, "invalid")


def test_a_conversation_with_an_open_run_can_be_branched(client: Client) -> None:
    """Also before the message that the run answers."""
    talk(client, "grows", "hello")
    run = client.begin("run say x", conversation="grows")
    client.until_asked(run["id"])
    branch = client.post("/conversations/grows/branch", json={"before": f"{run['id']}.1"}).json()
    assert (contents(client, branch["id"]), branch["run"]) == (["hello", "You said: hello"], None)
    client.post(f"/runs/{run['id']}/cancel")
    client.events(run["id"])


def test_a_conversation_is_renamed(client: Client) -> None:
    """Its messages stay, and so does the title when it goes on."""
    talk(client, "named", "hello")
    renamed = client.post("/conversations/named/rename", json={"title": " A better \n title "}).json()
    assert renamed["title"] == "A better title"
    talk(client, "named", "more")
    assert client.get("/conversations/named").json()["title"] == "A better title"
    assert contents(client, "named")[::2] == ["hello", "more"]
    for body in ({}, {"title": " "}, {"title": "x" * 201}, {"title": 1}):
        assert code_of(client.post("/conversations/named/rename", json=body)) == (422, "invalid")
    run = client.begin("run say x", conversation="named")
    client.until_asked(run["id"])
    assert code_of(client.post("/conversations/named/rename", json={"title": "x"})) == (409, "conversation-busy")
    client.post(f"/runs/{run['id']}/cancel")
    client.events(run["id"])


@KINDS
def test_what_follows_a_question_that_was_left_has_ids_of_its_own(client: Client, kind: str) -> None:
    """The run with the question was stopped; its call stays in the conversation without an output."""
    name = f"left-{kind}"
    talk(client, name, "hello")
    run = client.begin("ask where", conversation=name, **of(kind))
    client.until_asked(run["id"])
    client.post(f"/runs/{run['id']}/cancel")
    client.until(run["id"], "cancelled")
    client.events(client.begin("hello", conversation=name, **of(kind))["id"])
    ids = [message["id"] for message in client.get(f"/conversations/{name}/messages").json()["messages"]]
    assert len({*ids}) == len(ids) == 6


def test_conversations_are_listed_and_deleted(client: Client) -> None:
    """An open run is cancelled first, and what it still saves is not kept."""
    talk(client, "list-1", "first")
    talk(client, "list-2", "second")
    run = client.begin("hang", conversation="list-3")
    listed = client.get("/conversations", params={"limit": 2}).json()
    assert ([c["id"] for c in listed["conversations"]], listed["more"]) == (["list-3", "list-2"], True)
    assert [c["run"] for c in listed["conversations"]] == [run["id"], None]
    more = client.get("/conversations", params={"before": "list-2", "limit": 1}).json()
    assert [(c["id"], c["title"]) for c in more["conversations"]] == [("list-1", "first")]
    assert client.delete("/conversations/list-3").status_code == 204
    client.until(run["id"], "cancelled")
    for method, path in (("GET", ""), ("GET", "/messages"), ("DELETE", ""), ("POST", "/rollback")):
        response = client.request(method, f"/conversations/list-3{path}")
        assert code_of(response) == (404, "conversation-not-found")
    talk(client, "list-3", "new")
    assert contents(client, "list-3") == ["new", "You said: new"]


# -- left and taken over


@KINDS
def test_a_run_that_waits_is_paused_and_goes_on(backend: Backend, agents: Agents, kind: str) -> None:
    """Its readers see one run: nothing twice, and nothing that ran runs again."""
    app = backend.app(agents, pause_after=0.02)
    with serve(app) as url, Client(url) as client:
        talk(client, "paused", "hello")
        before = len(agents.contexts)
        run = client.begin(f"run say paused {kind}", conversation="paused", **of(kind))
        question = client.until_asked(run["id"])
        paused = client.until(run["id"], "paused")
        assert paused["pending"] == [question]
        wait_for(lambda: not app.runs.active)
        assert client.get("/conversations/paused").json()["run"] == run["id"]
        answered = client.post(f"/runs/{run['id']}/answers/{question['id']}", json={"approved": True})
        assert answered.json()["status"] == "approved"
        frames = client.events(run["id"])
        types = [frame.type for frame in frames]
        assert [
            types.count(name) for name in ("run_created", "run_done", "confirmation_created", "confirmation_done")
        ] == [1] * 4
        assert [types.count(f"{name}_created") for name in ("tool_call", "code", "console", "text")] == [1, 1, 1, 3]
        assert said(frames) == f"I will. It gave: paused {kind}\n"
        epochs = [str(frame.id).split("-")[0] for frame in frames]
        assert epochs == sorted(epochs)
        assert {*epochs} == {"1", "2"}
        assert agents.code_that_ran.count(f"say paused {kind}") == 1
        assert len(agents.contexts) == before + 2
        stream = sk.stream([frame.data for frame in frames], strict=True)
        assert [m.type for m in stream.get_final_messages()][-3:] == ["code", "console", "message"]
        saved = client.get("/conversations/paused/messages").json()
        ids = [message["id"] for message in saved["messages"]]
        assert len({*ids}) == len(ids)
        assert {message["run_id"] for message in saved["messages"][2:]} == {run["id"]}
        assert saved["run"] is None


def test_a_tools_call_waits_for_hours_too(backend: Backend, agents: Agents) -> None:
    with serve(backend.app(agents, pause_after=0.02)) as url, Client(url) as client:
        run = client.begin("both")
        client.until(run["id"], "paused")
        for question in client.run(run["id"])["pending"]:
            client.until(run["id"], "paused")
            client.post(f"/runs/{run['id']}/answers/{question['id']}", json={"output": question["id"]})
        frames = client.events(run["id"])
        assert [frame.type for frame in frames].count("tool_call_created") == 2
        assert said(frames) == f"It gave: {question['id']}"


@KINDS
@pytest.mark.parametrize("order", ["client-last", "client-first"])
def test_the_calls_beside_one_that_waits_for_the_client_are_made_after_a_pause(
    backend: Backend, agents: Agents, kind: str, order: str
) -> None:
    """The run was paused before the agent came to them: each is confirmed if it has to be, and runs once."""
    agents.forget()
    with serve(backend.app(agents, pause_after=0.02)) as url, Client(url) as client:
        run = client.begin(f"{order} 7", conversation=f"{order}-{kind}", **of(kind))
        answered: list[str] = []
        for answer in ({"output": "given"}, {"approved": True}, {"approved": True}):
            client.until(run["id"], "paused")
            (question,) = [one for one in client.run(run["id"])["pending"] if one["id"] not in answered]
            answered.append(question["id"])
            client.post(f"/runs/{run['id']}/answers/{question['id']}", json=answer)
        frames = client.events(run["id"])
        types = [frame.type for frame in frames]
        names = ("tool_call_created", "confirmation_created", "tool_output_created", "console_created")
        assert [types.count(name) for name in names] == [4, 2, 3, 1]
        assert (agents.ran, agents.looked, agents.code_that_ran) == ([7], [7], ["say 7"])
        outputs = [one["content"] for one in agents.model.requests[-1].body["messages"] if one["role"] == "tool"]
        assert sorted(outputs) == ["7\n", "careful 7", "given", "look 7"]


def test_a_paused_run_is_stopped(backend: Backend, agents: Agents) -> None:
    """By the process that the request came to. The conversation is free again."""
    with serve(backend.app(agents, pause_after=0.0)) as url, Client(url) as client:
        run = client.begin("run say never", conversation="stopped")
        client.until(run["id"], "paused")
        assert client.post(f"/runs/{run['id']}/cancel").status_code == 202
        assert [frame.type for frame in client.events(run["id"])][-2:] == ["run_done", "stream_end"]
        talk(client, "stopped", "on")
        assert contents(client, "stopped")[-1] == "You said: on"
    assert "say never" not in agents.code_that_ran


def test_an_agent_with_a_computer_does_not_pause_by_itself(backend: Backend, agents: Agents) -> None:
    """Its computer's memory would be lost; unless the application says so."""
    app = backend.app(agents)
    with serve(app) as url, Client(url) as client:
        run = client.begin("run say x")
        client.until_asked(run["id"])
        execution = app.runs.active[run["id"]]
        assert execution.pause_after is None
        agents.with_computer = False
        try:
            other = client.begin("careful")
            client.until_asked(other["id"])
            assert app.runs.active[other["id"]].pause_after == 300.0
        finally:
            agents.with_computer = True
    assert app.runs.relay.get(run["id"]).status == "paused"  # at shutdown, what waits is left


def test_another_app_takes_over(backend: Backend, agents: Agents) -> None:
    """Two apps on one relay and one store, as two processes: begun on one, answered and followed on the other."""
    first, second = (backend.app(agents, relay=relay, store=store) for relay, store in backend.shared())
    with serve(second) as url, Client(url) as there:
        with serve(first) as url, Client(url) as here:
            run = here.begin("run say moved")
            question = here.until_asked(run["id"])
            live = here.begin("run say live")
            live_question = here.until_asked(live["id"])
            there.post(f"/runs/{live['id']}/answers/{live_question['id']}", json={"approved": True})
            assert said(there.events(live["id"])).endswith("live\n")
            hanging = here.begin("hang")
            there.post(f"/runs/{hanging['id']}/cancel")
            here.until(hanging["id"], "cancelled")
            assert not second.runs.active
        assert there.run(run["id"])["status"] == "paused"
        there.post(f"/runs/{run['id']}/answers/{question['id']}", json={"approved": True})
        assert said(there.events(run["id"])) == "I will. It gave: moved\n"
    assert agents.code_that_ran.count("say moved") == 1


def test_shutdown_ends_what_runs(backend: Backend, agents: Agents) -> None:
    relay, before = backend.relay(), len(agents.model.requests)
    with serve(backend.app(agents, relay=relay)) as url, Client(url) as client:
        runs = [client.begin("hang", **of(kind))["id"] for kind in ("sync", "async")]
        assert agents.model.wait_for_request(count=before + 2)
        wait_for(lambda: all((record := relay.get(id)) is not None and record.cursor for id in runs))
    records = [relay.get(id) for id in runs]
    assert [record.status for record in records if record is not None] == ["cancelled"] * 2


@pytest.mark.slow
def test_a_restart_loses_no_conversation(agents: Agents, tmp_path: Path) -> None:
    """With a store in a file: the process is killed while a run waits, and the conversation goes on in another one, which
    knows that the code never ran."""
    path = tmp_path / "conversations.db"
    with process(None, None, agents, conversations=path) as (victim, client):
        client.events(client.begin("hello", conversation="c")["id"])
        client.until_asked(client.begin("run say lost", conversation="c")["id"])
        victim.kill()
    store = SQLiteStore(path)
    with serve(create_app(agents, token=TOKEN, store=store)) as url, Client(url) as client:
        assert [c["id"] for c in client.get("/conversations").json()["conversations"]] == ["c"]
        assert contents(client, "c")[:3] == ["hello", "You said: hello", "run say lost"]
        talk(client, "c", "go on")
        assert contents(client, "c")[-1] == "You said: go on"
    outputs: list[Any] = [m["content"] for m in agents.model.requests[-1].body["messages"] if m["role"] == "tool"]
    assert outputs == ["Not run: the conversation went on without it."]
    store.close()
