"""Runs over HTTP: begun, read, resumed, answered, stopped, apart from the requests that do it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

import streamkit as sk
from streamkit.protocols.event_stream import EventStreamWriter
from streamkit.relay import Entry
from streamkit.server.event_stream import SharedFrames

from .backends import Backend
from .parts import Agents, Client, frames_of, said, serve, wait_for

KINDS = pytest.mark.parametrize("kind", ["sync", "async"])


@pytest.fixture(scope="module")
def relay(backend: Backend) -> Any:
    return backend.relay()


@pytest.fixture(scope="module")
def client(agents: Agents, backend: Backend, relay: Any) -> Iterator[Client]:
    with serve(backend.app(agents, relay=relay)) as url, Client(url) as made:
        yield made


def of(kind: str) -> dict[str, Any]:
    return {"metadata": {"kind": kind}}


def code_of(response: httpx.Response) -> tuple[int, str]:
    """The status and the code of a problem."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    body = response.json()
    assert body["status"] == response.status_code
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", body["instance"])
    return response.status_code, body["type"].removeprefix("urn:streamkit:error:")


# -- a run, from its beginning to its end


@KINDS
def test_a_run_is_begun_and_read(client: Client, kind: str) -> None:
    """The user's words are in it; its messages are in the conversation once it has ended."""
    response = client.post("/runs", json={"input": "hello", "metadata": {"kind": kind, "x": 1}})
    run = response.json()
    assert response.status_code == 201
    assert response.headers["location"] == f"/runs/{run['id']}"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert set(run) == {
        *[
            "id",
            "conversation",
            "owner",
            "status",
            "created_at",
            "ended_at",
            "cursor",
            "finish_reason",
            "model",
            "usage",
            "error",
        ],
        "pending",
        "metadata",
    }
    assert (run["status"], run["pending"], run["metadata"]) == ("in_progress", [], {"kind": kind, "x": 1})
    with client.stream("GET", f"/runs/{run['id']}/events") as stream:
        assert stream.headers["content-type"] == "text/event-stream"
        assert stream.headers["cache-control"] == "no-cache, no-transform"
        assert stream.headers["x-accel-buffering"] == "no"
        assert stream.headers["x-streamkit-run"] == run["id"]
        text = "".join(stream.iter_text())
    assert text.startswith("retry: 1000\n\nid: 1-1.")
    assert "\r" not in text
    assert "event:" not in text
    frames = [*frames_of(iter([text]))]
    assert (said(frames, "user"), said(frames)) == ("hello", "You said: hello")
    assert [frame.type for frame in frames][-2:] == ["run_done", "stream_end"]
    numbers = [int(str(frame.id).split("-")[1].split(".")[0]) for frame in frames]
    assert numbers == [*range(1, len(frames) + 1)]
    after = client.run(run["id"])
    assert (after["status"], after["finish_reason"], after["cursor"]) == ("completed", "stop", frames[-1].id)
    assert after["model"] == "m"
    assert after["usage"] == {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    assert after["ended_at"] >= after["created_at"]
    known = client.get(f"/conversations/{run['conversation']}").json()
    assert known == {"id": run["conversation"], "title": "hello", "messages": 2, "run": None, "branch_of": None} | {
        key: known[key] for key in ("created_at", "updated_at")
    }
    messages = client.get(f"/conversations/{run['conversation']}/messages").json()
    assert messages["run"] is None
    assert [(m["role"], m["content"], m["run_id"]) for m in messages["messages"]] == [
        ("user", "hello", run["id"]),
        ("assistant", "You said: hello", run["id"]),
    ]


def test_the_input_may_be_flat_messages_of_the_user(client: Client, agents: Agents) -> None:
    """The next run of the conversation reads what came before."""
    image = {"role": "user", "type": "image", "format": "url", "content": "https://example.org/a.png"}
    run = client.begin([{"content": "What is this?"}, image], conversation="pictures-1")
    assert said(client.events(run["id"])) == "You said: What is this?"
    assert run["conversation"] == "pictures-1"
    second = client.begin("and now?", conversation="pictures-1")
    client.events(second["id"])
    roles = [message["role"] for message in agents.model.requests[-1].body["messages"]]
    assert roles == ["user", "assistant", "user"]
    messages = client.get("/conversations/pictures-1/messages").json()["messages"]
    assert len({message["id"] for message in messages}) == len(messages) == 5
    assert client.get("/conversations/pictures-1").json()["title"] == "What is this?"


def test_the_response_may_be_the_stream(client: Client) -> None:
    with client.stream("POST", "/runs", json={"input": "hello", "stream": True}) as response:
        assert response.status_code == 200
        run_id = response.headers["x-streamkit-run"]
        assert response.headers["location"] == f"/runs/{run_id}"
        frames = [*frames_of(response.iter_text())]
    assert said(frames) == "You said: hello"
    assert client.run(run_id)["status"] == "completed"
    with client.stream("POST", "/runs", json={"input": "hello", "stream": True, "protocol": "openai_chat"}) as response:
        text = "".join(response.iter_text())
    assert "chat.completion.chunk" in text
    assert text.endswith("data: [DONE]\n\n")


def test_runs_are_listed(client: Client) -> None:
    """The newest first, of one conversation, with a status, some at a time."""
    ids = []
    for _ in range(3):
        run = client.begin("hello", conversation="listed")
        client.events(run["id"])
        ids.insert(0, run["id"])
    waiting = client.begin("run say x", conversation="listed")
    client.until_asked(waiting["id"])
    ids.insert(0, waiting["id"])

    def listed(**query: Any) -> tuple[list[str], bool]:
        body = client.get("/runs", params={"conversation": "listed", **query}).json()
        return [run["id"] for run in body["runs"]], body["more"]

    assert listed() == (ids, False)
    assert listed(limit=2) == (ids[:2], True)
    assert listed(limit=2, before=ids[1]) == (ids[2:], False)
    assert listed(status="in_progress") == (ids[:1], False)
    assert listed(status="completed", limit=1) == (ids[1:2], True)
    for query in ({"limit": 0}, {"limit": 201}, {"limit": "x"}, {"status": "odd"}):
        assert code_of(client.get("/runs", params=query)) == (400, "bad-query")
    client.post(f"/runs/{waiting['id']}/cancel")


# -- resuming


@pytest.fixture(scope="module")
def ended(client: Client) -> tuple[str, list[Any]]:
    """A run with code that has ended, and its frames."""
    run = client.begin("run say hi")
    question = client.until_asked(run["id"])
    client.post(f"/runs/{run['id']}/answers/{question['id']}", json={"approved": True})
    return run["id"], client.events(run["id"])


def test_a_run_is_resumed_after_every_event(client: Client, ended: tuple[str, list[Any]]) -> None:
    """By `Last-Event-ID`, which wins over `?after=`. Empty is the beginning. After the last event there is nothing."""
    run_id, frames = ended
    ids = [frame.id for frame in frames]
    for place, cursor in enumerate(ids[:-1]):
        after = client.events(run_id, headers={"Last-Event-ID": cursor}, params={"after": ids[0]})
        assert [frame.id for frame in after] == ids[place + 1 :]
    assert [frame.id for frame in client.events(run_id, params={"after": ids[3]})] == ids[4:]
    assert [frame.id for frame in client.events(run_id, headers={"Last-Event-ID": ""}, params={"after": ids[3]})] == ids
    nothing = client.get(f"/runs/{run_id}/events", headers={"Last-Event-ID": ids[-1]})
    assert (nothing.status_code, nothing.content) == (204, b"")


@pytest.mark.parametrize("protocol", ["vercel_ui", "ag_ui"])
def test_other_protocols_are_resumed_too(client: Client, ended: tuple[str, list[Any]], protocol: str) -> None:
    """What came before the cursor is not sent again, and nothing of the rest is missing."""
    run_id, native = ended

    def bodies(**options: Any) -> list[Any]:
        found = client.events(run_id, params={"protocol": protocol, **options})
        return [(frame.id, json.dumps(frame.data)) for frame in found]

    everything = bodies()
    for cursor in [frame.id for frame in native[::7]]:
        rest = bodies(after=cursor)
        number = int(cursor.split("-")[1].split(".")[0])
        first = next(
            (n for n, (id, _) in enumerate(everything) if id and int(id.split("-")[1].split(".")[0]) > number), 0
        )
        assert len(rest) <= len(everything)
        assert rest == everything[len(everything) - len(rest) :]
        assert len(rest) >= len(everything) - first


def test_bad_cursors_are_refused(client: Client, ended: tuple[str, list[Any]]) -> None:
    """Those of another run, and what is none."""
    run_id, frames = ended
    other = client.begin("hello")
    foreign = client.events(other["id"])[0].id
    for cursor in (foreign, "1", "x", "1-1", "0-1" + frames[0].id[3:]):
        assert code_of(client.get(f"/runs/{run_id}/events", headers={"Last-Event-ID": cursor})) == (400, "bad-cursor")
    assert code_of(client.get(f"/runs/{run_id}/events?protocol=klingon")) == (400, "unknown-protocol")
    assert code_of(client.get(f"/runs/{run_id}/events?gap=odd")) == (400, "bad-query")
    assert code_of(client.get("/runs/unknown/events")) == (404, "run-not-found")


def test_what_was_trimmed_is_a_snapshot(backend: Backend, agents: Agents) -> None:
    """One frame, in place of all before it; or 410, for a client that wants none."""
    with serve(backend.app(agents, relay=backend.relay(limit=20))) as url, Client(url) as other:
        run = other.begin("count 100")
        wait_for(lambda: other.run(run["id"])["status"] == "completed")
        frames = other.events(run["id"])
        assert frames[0].type == "snapshot"
        later = other.events(run["id"], headers={"Last-Event-ID": frames[1].id})
        assert [frame.id for frame in later] == [frame.id for frame in frames[2:]]
        first = frames[-1].id.replace(frames[-1].id.split(".")[0], "1-3")
        resumed = other.events(run["id"], headers={"Last-Event-ID": first})
        assert [(frame.type, frame.id) for frame in resumed] == [(frame.type, frame.id) for frame in frames]
        gone = other.get(f"/runs/{run['id']}/events?gap=error", headers={"Last-Event-ID": first})
        assert code_of(gone) == (410, "cursor-trimmed")
        assert gone.json()["snapshot_cursor"] == frames[0].id
        gone = other.get(f"/runs/{run['id']}/events?gap=error&protocol=ag_ui", headers={"Last-Event-ID": first})
        assert code_of(gone) == (410, "cursor-trimmed")
        ui = other.frames(f"/runs/{run['id']}/events?protocol=vercel_ui")
        assert "".join(frame.data["delta"] for frame in ui if frame.type == "text-delta").endswith(" 98 99 ")


def test_the_frames_are_a_source_of_streams(client: Client, ended: tuple[str, list[Any]]) -> None:
    """`sk.stream` reads them as they are."""
    with client.stream("GET", f"/runs/{ended[0]}/events") as response:
        stream = sk.stream(response.iter_bytes())
        assert [m.type for m in stream.get_final_messages()] == [
            "message",
            "message",
            "tool_call",
            "code",
            "console",
            "message",
        ]
        assert stream.get_final_text() == "It gave: hi\n"


# -- readers and producers


def test_a_silent_run_shows_that_it_is_there(client: Client, relay: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a comment after each silence; what comes then is sent as ever."""
    monkeypatch.setattr("streamkit.server.event_stream.SILENCE", 0.01)
    emitter = sk.Emitter(relay)
    with client.stream("GET", f"/runs/{emitter.run_id}/events") as response:
        pieces, text = response.iter_text(), ""
        while text.count(": hb\n\n") < 3:
            text += next(pieces)
        emitter.text("at last")
        emitter.close()
        text += "".join(pieces)
    assert said([*frames_of(iter([text]))]) == "at last"


def test_an_event_is_framed_once_for_all_its_readers(
    client: Client, relay: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    framed: list[bytes] = []
    line = EventStreamWriter.line

    def counted(self: EventStreamWriter, data: bytes, cursor: str | None = None) -> bytes:
        framed.append(data)
        return line(self, data, cursor)

    monkeypatch.setattr(EventStreamWriter, "line", counted)
    emitter = sk.Emitter(relay)
    emitter.text("before")
    path = f"/runs/{emitter.run_id}/events"
    with client.stream("GET", path) as one, client.stream("GET", path) as other:
        both = [response.iter_text() for response in (one, other)]
        texts = ["", ""]
        for words in ("before", "beside"):
            if words == "beside":
                emitter.text(words)
            for number, pieces in enumerate(both):
                while words not in texts[number]:
                    texts[number] += next(pieces)
        assert len(framed) == len({*framed})
        emitter.close()
        ended = [text + "".join(pieces) for text, pieces in zip(texts, both, strict=True)]
    assert ended[0] == ended[1]


def test_frames_are_shared_by_what_they_hold() -> None:
    """Another run's event may have the same cursor, and a snapshot has that of an event."""
    shared = SharedFrames()
    made: list[Any] = []

    def make(entries: Any) -> bytes:
        made.append(entries)
        return b"".join(entry.data for entry in entries)

    one = Entry("1-1.00000000", b"one")
    for entries in ([one], [Entry(*one)], [one._replace(data=b"two")], [one], [one, one]):
        assert shared.of(entries, make) == b"".join(entry.data for entry in entries)
    assert len(made) == 4


@KINDS
def test_a_reader_that_leaves_changes_nothing(client: Client, kind: str) -> None:
    with client.stream("POST", "/runs", json={"input": "run say on", "stream": True, **of(kind)}) as response:
        run_id = response.headers["x-streamkit-run"]
        next(response.iter_bytes())
    question = client.until_asked(run_id)
    client.post(f"/runs/{run_id}/answers/{question['id']}", json={"approved": True})
    assert said(client.events(run_id)).endswith("It gave: on\n")


def test_a_run_may_be_its_readers(client: Client, agents: Agents) -> None:
    """With `on_disconnect: cancel` it ends when the very response that began it is dropped."""
    body = {"input": "hang", "stream": True, "on_disconnect": "cancel"}
    with client.stream("POST", "/runs", json=body) as response:
        run_id = response.headers["x-streamkit-run"]
        next(frame for frame in frames_of(response.iter_text()) if frame.type == "text_delta")
    assert client.until(run_id, "cancelled")["error"] is None
    body = {"input": "hello", "stream": True, "on_disconnect": "cancel"}
    with client.stream("POST", "/runs", json=body) as response:
        run_id = response.headers["x-streamkit-run"]
        response.read()
    assert client.run(run_id)["status"] == "completed"


@KINDS
def test_stop_ends_what_runs(client: Client, agents: Agents, kind: str) -> None:
    """Also twice, and late. The readers see it, and the conversation has what came."""
    run = client.begin("run hang\nsay never", **of(kind))
    question = client.until_asked(run["id"])
    client.post(f"/runs/{run['id']}/answers/{question['id']}", json={"approved": True})
    wait_for(lambda: agents.computers[-1] is not None and agents.computers[-1].hanging.is_set())
    stopped = client.post(f"/runs/{run['id']}/cancel", json={"reason": "enough"})
    assert stopped.status_code == 202
    frames = client.events(run["id"])
    assert [frame.type for frame in frames][-2:] == ["run_done", "stream_end"]
    assert (frames[-1].data["status"], client.run(run["id"])["status"]) == ("cancelled", "cancelled")
    assert all(one.ended.is_set() for one in agents.computers[-1].runs)
    late = client.post(f"/runs/{run['id']}/cancel")
    assert (late.status_code, late.json()["status"]) == (200, "cancelled")
    messages = client.get(f"/conversations/{run['conversation']}/messages").json()["messages"]
    assert messages[-1]["metadata"] == {"action": "interrupted"}


def test_stop_closes_questions(client: Client) -> None:
    run = client.begin("run say no")
    question = client.until_asked(run["id"])
    client.post(f"/runs/{run['id']}/cancel")
    client.until(run["id"], "cancelled")
    refused = client.post(f"/runs/{run['id']}/answers/{question['id']}", json={"approved": True})
    assert code_of(refused) == (409, "question-closed")
    assert refused.json()["question"]["status"] == "closed"


def test_errors_end_a_run(client: Client) -> None:
    """Its events and its record name one status."""
    for text, metadata, status in (
        ("fail", {}, "failed"),
        ("break", {}, "failed"),
        ("hello", {"kind": "broken"}, "failed"),
    ):
        run = client.begin(text, metadata=metadata)
        frames = client.events(run["id"])
        assert [frame.type for frame in frames][-3:] == ["run_done", "stream_exception", "stream_end"]
        after = client.run(run["id"])
        assert (after["status"], after["error"]["title"]) == (status, "The run failed.")
        assert (frames[-3].data["run"]["status"], frames[-1].data["status"]) == (status, status)
        assert [one["id"] for one in client.get("/runs", params={"status": status, "limit": 1}).json()["runs"]] == [
            run["id"]
        ]
        assert client.get(f"/conversations/{run['conversation']}").json()["run"] is None


# -- questions


@KINDS
def test_what_is_approved_runs(client: Client, agents: Agents, kind: str) -> None:
    run = client.begin(f"run say once {kind}", **of(kind))
    question = client.until_asked(run["id"])
    assert question == {
        "id": question["id"],
        "kind": "confirmation",
        "subject": question["subject"],
        "editable": True,
        "status": "pending",
        "asked_at": question["asked_at"],
        "expires_at": question["expires_at"],
    }
    assert (question["subject"]["type"], question["subject"]["content"]) == ("code", f"say once {kind}")
    path = f"/runs/{run['id']}/answers/{question['id']}"
    answered = client.post(path, json={"approved": True})
    assert (answered.status_code, answered.json()["status"]) == (200, "approved")
    assert client.post(path, json={"approved": True}).json() == answered.json()
    refused = client.post(path, json={"approved": False})
    assert code_of(refused) == (409, "already-answered")
    assert refused.json()["question"] == answered.json()
    assert said(client.events(run["id"])).endswith(f"It gave: once {kind}\n")
    assert agents.code_that_ran.count(f"say once {kind}") == 1


@KINDS
def test_code_is_edited(client: Client, agents: Agents, kind: str) -> None:
    run = client.begin("run say wrong", **of(kind))
    question = client.until_asked(run["id"])
    client.post(f"/runs/{run['id']}/answers/{question['id']}", json={"approved": True, "edited": "say right"})
    frames = client.events(run["id"])
    (outcome,) = [frame.data["confirmation"] for frame in frames if frame.type == "confirmation_done"]
    assert (outcome["status"], outcome["edited"]) == ("approved", "say right")
    assert "right" in said(frames)
    assert "say wrong" not in agents.code_that_ran


@KINDS
def test_what_is_declined_does_not_run(client: Client, agents: Agents, kind: str) -> None:
    """With a reason, which the model reads, the run goes on; without one it ends."""
    for answer, end in (
        ({"approved": False, "reason": "too risky"}, "Reason: too risky"),
        ({"approved": False}, "I will. "),
    ):
        run = client.begin("run say no", **of(kind))
        question = client.until_asked(run["id"])
        client.post(f"/runs/{run['id']}/answers/{question['id']}", json=answer)
        assert said(client.events(run["id"])).endswith(end)
        after = client.run(run["id"])
        assert (after["status"], after["finish_reason"]) == ("completed", "stop" if "reason" in answer else "declined")
    assert "say no" not in agents.code_that_ran


@KINDS
def test_a_tools_call_is_confirmed(client: Client, agents: Agents, kind: str) -> None:
    before = len(agents.ran)
    run = client.begin("careful", **of(kind))
    question = client.until_asked(run["id"])
    assert (question["subject"]["name"], question["editable"]) == ("careful", True)
    client.post(f"/runs/{run['id']}/answers/{question['id']}", json={"approved": True, "edited": '{"n": 5}'})
    frames = client.events(run["id"])
    assert said(frames) == "It gave: careful 5"
    (asked,) = [frame.data["confirmation"] for frame in frames if frame.type == "confirmation_created"]
    assert asked["editable"] is True
    assert agents.ran[before:] == [5]


@KINDS
@pytest.mark.parametrize(
    "answer, end", [({"output": {"city": "Oslo"}}, '"city"'), ({"output": "Oslo"}, "Oslo"), ({"error": "away"}, "away")]
)
def test_a_tool_of_the_client_is_answered(client: Client, kind: str, answer: Any, end: str) -> None:
    run = client.begin("ask where", **of(kind))
    question = client.until_asked(run["id"])
    assert (question["kind"], question["editable"], question["subject"]["name"]) == ("tool_call", False, "ask")
    response = client.post(f"/runs/{run['id']}/answers/{question['id']}", json=answer)
    assert response.json() == question | response.json()
    assert response.json()["status"] == "answered"
    assert end in said(client.events(run["id"]))


@KINDS
def test_several_questions_are_open_at_once(client: Client, kind: str) -> None:
    run = client.begin("both", **of(kind))
    client.until_asked(run["id"])
    questions = wait_for(lambda: len(found := client.run(run["id"])["pending"]) == 2 and found)
    for question in reversed(questions):
        client.post(f"/runs/{run['id']}/answers/{question['id']}", json={"output": question["id"]})
    assert said(client.events(run["id"])) == f"It gave: {questions[-1]['id']}"


@KINDS
def test_of_two_tabs_one_answers_and_both_show_it(client: Client, kind: str) -> None:
    run = client.begin("run say tab", **of(kind))
    question = client.until_asked(run["id"])
    path = f"/runs/{run['id']}/answers/{question['id']}"
    with ThreadPoolExecutor(6) as pool:
        readers = [pool.submit(client.events, run["id"]) for _ in range(2)]
        answers = [pool.submit(client.post, path, json={"approved": n % 2 == 0}) for n in range(4)]
        statuses = [answer.result().status_code for answer in answers]
        shown = [[frame.data for frame in reader.result()] for reader in readers]
    assert sorted(statuses) == [200, 200, 409, 409]
    assert shown[0] == shown[1]
    (outcome,) = [event["confirmation"]["status"] for event in shown[0] if event["type"] == "confirmation_done"]
    assert outcome == ("approved" if statuses[0] == 200 else "declined")


def test_malformed_answers_are_refused(client: Client) -> None:
    """They change nothing: the question is still open."""
    run = client.begin("run say x")
    question = client.until_asked(run["id"])
    path = f"/runs/{run['id']}/answers/{question['id']}"
    wrong: list[Any] = [
        {},
        [],
        {"approved": 1},
        {"approved": "true"},
        {"approved": None},
        {"approved": False, "edited": "x"},
        {"approved": True, "reason": "x"},
        {"approved": True, "edited": 1},
        {"approved": True, "edited": " "},
        {"output": "x"},
    ]
    for answer in wrong:
        response = client.post(path, json=answer)
        assert code_of(response) == (422, "invalid"), answer
        assert [set(error) for error in response.json()["errors"]] == [{"path", "fault"}]
    assert code_of(client.post(f"/runs/{run['id']}/answers/unknown", json={"approved": True})) == (
        404,
        "question-not-found",
    )
    assert client.run(run["id"])["pending"] == [question]
    client.post(f"/runs/{run['id']}/cancel")
    run = client.begin("ask x")
    question = client.until_asked(run["id"])
    for answer in ({}, {"approved": True}, {"output": 1, "error": "x"}, {"error": 1}):
        assert code_of(client.post(f"/runs/{run['id']}/answers/{question['id']}", json=answer)) == (422, "invalid")
    client.post(f"/runs/{run['id']}/cancel")


def test_a_question_whose_time_is_over_is_closed(client: Client, relay: Any) -> None:
    """Of any run in the relay. Its id may be a provider's, with what a path has to escape."""
    with sk.Emitter(relay, "timed") as emitter:
        emitter.code("x", "python")
        approval = emitter.confirm(id="a/b?c#d é", timeout=0)
        assert not approval
        response = client.post("/runs/timed/answers/a%2Fb%3Fc%23d%20%C3%A9", json={"approved": True})
        assert code_of(response) == (409, "question-closed")
        emitter.confirm(id="later/1")
        assert client.post("/runs/timed/answers/later%2F1", json={"approved": False}).status_code == 200


@KINDS
def test_a_run_that_nobody_answers_in_time_requires_action(
    client: Client, agents: Agents, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has declined it: neither the registry nor the log says so, and nothing runs."""
    monkeypatch.setattr("streamkit.server.execution._LONGEST", 0.05)
    run = client.begin("run say late", **of(kind))
    after = client.until(run["id"], "requires_action")
    assert [question["status"] for question in after.get("questions", [])] in ([], ["closed"])
    frames = client.events(run["id"])
    (outcome,) = [frame.data["confirmation"] for frame in frames if frame.type == "confirmation_done"]
    assert (outcome["status"], "reason" in outcome) == ("unanswered", False)
    assert [frame.data["run"]["status"] for frame in frames if frame.type == "run_done"] == ["requires_action"]
    assert frames[-1].data["status"] == "requires_action"
    assert "say late" not in agents.code_that_ran
    refused = client.post(f"/runs/{run['id']}/answers/{outcome['id']}", json={"approved": True})
    assert code_of(refused) == (409, "question-closed")


def test_the_handlers_of_an_agent_get_the_streams_of_its_runs(backend: Backend, agents: Agents) -> None:
    texts: list[str] = []

    class Noting(sk.EventHandler):
        def on_text_done(self, message: sk.TextMessage, /) -> None:
            texts.append(message.content)

    def factory(context: Any) -> Any:
        agent = agents(context)
        agent.handlers = [Noting()]
        return agent

    with serve(backend.app(factory)) as url, Client(url) as client:
        client.until(client.begin("hello")["id"], "completed")
    assert texts == ["You said: hello"]


# -- idempotency


def test_a_key_begins_one_run(client: Client, agents: Agents) -> None:
    """Whoever sends it again gets that run, or its stream from the beginning; with another body nothing."""
    headers, before = {"Idempotency-Key": "k-1"}, len(agents.contexts)
    first = client.post("/runs", json={"input": "hello", "metadata": {"a": 1, "b": 2}}, headers=headers)
    assert first.status_code == 201
    assert "idempotency-replayed" not in first.headers
    again = client.post("/runs", json={"metadata": {"b": 2, "a": 1}, "input": "hello"}, headers=headers)
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
    assert again.headers["idempotency-replayed"] == "true"
    other = client.post("/runs", json={"input": "hallo", "metadata": {"a": 1, "b": 2}}, headers=headers)
    assert code_of(other) == (422, "idempotency-mismatch")
    body = {"input": "hello", "stream": True}
    streams = [client.frames("/runs", method="POST", json=body, headers={"Idempotency-Key": "k-2"}) for _ in range(2)]
    assert [frame.data for frame in streams[0]] == [frame.data for frame in streams[1]]
    client.frames(f"/runs/{first.json()['id']}/events")  # it has ended, so its agent was called
    assert len(agents.contexts) == before + 2
    for key in ("", "with space", "x" * 256):
        refused = client.post("/runs", json={"input": "hello"}, headers={"Idempotency-Key": key})
        assert code_of(refused) == (422, "invalid")


def test_an_equal_request_is_not_given_a_run_that_may_still_be_refused(backend: Backend, agents: Agents) -> None:
    """The conversation is busy, which the first request has yet to find out: nobody gets the id of its run, which is gone then."""
    store, holds = backend.store(), threading.Event()
    lock, store.waits = store.lock, True

    def slow_lock(*arguments: Any, **options: Any) -> Any:
        if arguments[0] == "busy" and begun:
            holds.wait(20)
        return lock(*arguments, **options)

    store.lock = slow_lock

    async def aget(run_id: str) -> Any:
        looks.append(run_id)
        return await get(run_id)

    begun: list[str] = []
    looks: list[str] = []
    relay = backend.relay()
    get, relay.aget = relay.aget, aget
    with serve(backend.app(agents, relay=relay, store=store)) as url, Client(url) as client:
        begun.append(client.begin("hang", conversation="busy")["id"])
        options: dict[str, Any] = {
            "json": {"input": "hello", "conversation": "busy"},
            "headers": {"Idempotency-Key": "k"},
        }
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(client.post, "/runs", **options)
            wait_for(lambda: len(relay.list()) == 2)
            second = pool.submit(client.post, "/runs", **options)
            wait_for(lambda: looks.count(relay.list()[0].id) > 1)  # it has looked for the run, too
            holds.set()
            codes = [code_of(one.result(20)) for one in (first, second)]
        assert codes == [(409, "conversation-busy")] * 2
        assert [record.id for record in relay.list()] == begun
        client.post(f"/runs/{begun[0]}/cancel")


def test_eight_at_once_begin_one_run(client: Client, agents: Agents) -> None:
    before = len(agents.contexts)
    with ThreadPoolExecutor(8) as pool:
        options: dict[str, Any] = {"json": {"input": "hello"}, "headers": {"Idempotency-Key": "k-8"}}
        responses = [*pool.map(lambda _: client.post("/runs", **options), range(8))]
    assert sorted(response.status_code for response in responses) == [200] * 7 + [201]
    assert len({response.json()["id"] for response in responses}) == 1
    client.until(responses[0].json()["id"], "completed")
    assert len(agents.contexts) == before + 1
