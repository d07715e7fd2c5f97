"""What goes wrong around a run: parts that fail or hang, requests at the same moment, limits that are reached. No slot is
lost, no run stays open, and nothing is changed for a request that is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

import streamkit as sk
from streamkit.agent import AsyncAgent, tool
from streamkit.server import Context
from streamkit.server.publisher import Publisher

from .backends import Backend, RelayFault, StoreFault
from .parts import Agents, Client, serve, wait_for
from .test_runs import KINDS, code_of, of


def said_by_user(id: str, text: str, conversation: str, **more: Any) -> dict[str, Any]:
    """The body of `useChat`."""
    message = {"id": id, "role": "user", "parts": [{"type": "text", "text": text}]}
    return {"id": conversation, "trigger": "submit-message", "messages": [message], **more}


# -- slots


class Gated(RelayFault):
    """Reads and opens nothing before its gate is open."""

    waits = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.gate = threading.Event()
        self.gate.set()

    def read(self, *arguments: Any, **options: Any) -> Any:
        assert self.gate.wait(60)
        return super().read(*arguments, **options)

    def open(self, *arguments: Any, **options: Any) -> Any:
        assert self.gate.wait(60)
        return super().open(*arguments, **options)


def _done(coming: list[Any], count: int) -> bool:
    return len([one for one in coming if one.done()]) == count


def test_slots_are_taken_before_anything_waits(backend: Backend, agents: Agents) -> None:
    """Of six requests at once two find room, even while the relay is slow."""
    relay = backend.relay(Gated)
    app = backend.app(agents, relay=relay, max_runs=2, max_readers=2)
    with serve(app) as url, Client(url) as client, ThreadPoolExecutor(6) as pool:
        done = client.begin("hello")["id"]
        client.until(done, "completed")
        wait_for(lambda: not app.runs.active)
        requests: list[tuple[Callable[[], Any], str, int]] = [
            (lambda: client.get(f"/runs/{done}/events"), "too-many-readers", 200),
            (lambda: client.post("/runs", json={"input": "hello"}), "too-many-runs", 201),
        ]
        for request, code, status in requests:
            relay.gate.clear()
            coming = [pool.submit(request) for _ in range(6)]
            try:
                wait_for(partial(_done, coming, 4))
            finally:
                relay.gate.set()
            answers = [one.result() for one in coming]
            assert sorted(one.status_code for one in answers) == [status] * 2 + [429] * 4
            assert {code_of(one)[1] for one in answers if one.status_code == 429} == {code}
            for one in answers:
                if status == one.status_code == 201:
                    client.until(one.json()["id"], "completed")
        wait_for(lambda: not app.runs.active and not app._server.readers)


def test_a_run_that_nobody_could_read_does_not_begin(backend: Backend, agents: Agents) -> None:
    """Nor is a turn taken back, nor a question answered."""
    app = backend.app(agents, max_readers=1)
    with serve(app) as url, Client(url) as client:
        hanging = client.begin("hang")
        client.events(client.begin("one", conversation="talk")["id"])
        asking = client.begin("run say x", conversation="asking")
        client.until_asked(asking["id"])
        before = client.get("/runs").json()["runs"]
        agent_input: dict[str, Any] = {
            "threadId": "t",
            "runId": "r",
            "state": {},
            "tools": [],
            "context": [],
            "forwardedProps": {},
        }
        agent_input["messages"] = [{"id": "u", "role": "user", "content": "hello"}]
        with client.stream("GET", f"/runs/{hanging['id']}/events") as reader:
            pieces = reader.iter_bytes()
            next(pieces)
            for path, body in (
                ("/runs", {"input": "hello", "stream": True}),
                ("/chat", said_by_user("u", "hello", "new")),
                ("/chat", said_by_user("u", "hello", "asking")),
                ("/chat", {"id": "talk", "trigger": "regenerate-message", "messages": []}),
                ("/agui", agent_input),
            ):
                assert code_of(client.post(path, json=body)) == (429, "too-many-readers"), path
        client.post(f"/runs/{hanging['id']}/cancel")
        now = client.get("/runs").json()["runs"]
        assert [one["id"] for one in now] == [one["id"] for one in before]
        assert client.run(asking["id"])["pending"]
        assert len(client.get("/conversations/talk/messages").json()["messages"]) == 2
        client.post(f"/runs/{asking['id']}/cancel")


def test_a_turn_stays_where_no_run_can_take_its_place(backend: Backend, agents: Agents) -> None:
    app = backend.app(agents, max_runs=1)
    with serve(app) as url, Client(url) as client:
        client.events(client.begin("one", conversation="talk")["id"])
        wait_for(lambda: not app.runs.active)
        hanging = client.begin("hang")
        again = {"id": "talk", "trigger": "regenerate-message", "messages": []}
        assert code_of(client.post("/chat", json=again)) == (429, "too-many-runs")
        assert len(client.get("/conversations/talk/messages").json()["messages"]) == 2
        client.post(f"/runs/{hanging['id']}/cancel")


def test_no_refusal_and_no_client_that_leaves_keeps_a_slot(backend: Backend, agents: Agents) -> None:
    relay = backend.relay()
    app = backend.app(agents, relay=relay, max_readers=3)
    with serve(app) as url, Client(url) as client:
        hanging = client.begin("hang")["id"]
        path = f"/runs/{hanging}/events"
        for _ in range(3):
            assert client.get(path, params={"after": "1-1.deadbeef"}).status_code == 400
            assert client.get(path, params={"after": "x", "protocol": "vercel_ui"}).status_code == 400
            assert client.get(path, params={"protocol": "none"}).status_code == 400
            assert client.head(path).status_code == 200
            assert client.post("/runs", json={"input": 1, "stream": True}).status_code == 422
            for protocol in ("streamkit", "vercel_ui", "ag_ui"):
                with client.stream("GET", path, params={"protocol": protocol}) as response:
                    assert response.status_code == 200
            wait_for(lambda: not app._server.readers)
        record = relay.get(hanging)
        assert record is not None
        assert record.readers == 0
        client.post(f"/runs/{hanging}/cancel")
        wait_for(lambda: not app.runs.active)


# -- parts that fail


class Locking(StoreFault):
    """Cannot release a lock."""

    def unlock(self, id: str, run_id: str) -> None:
        raise sk.SourceError("the store is away")


class Full(StoreFault):
    """Saves no answer."""

    waits = True

    def save(self, id: str, messages: Any, *arguments: Any, **options: Any) -> Any:
        if any(message.role == "assistant" for message in messages):
            raise sk.SourceError("the store is full")
        return super().save(id, messages, *arguments, **options)


@KINDS
@pytest.mark.parametrize(("fault", "status"), [(Locking, "completed"), (Full, "failed")])
def test_a_store_that_fails_at_the_end_leaves_no_run_open(
    backend: Backend, agents: Agents, fault: type, status: str, kind: str
) -> None:
    """The next run of the conversation takes the lock of the one that is over."""
    app = backend.app(agents, store=backend.store(fault))
    with serve(app) as url, Client(url) as client:
        for _ in range(2):
            run = client.begin("hello", conversation="talk", **of(kind))
            client.until(run["id"], status)
            wait_for(lambda: not app.runs.active)


def test_the_heartbeat_outlives_a_relay_that_fails(backend: Backend, agents: Agents) -> None:
    """What it could not do for one run it does for the next."""

    class Failing(RelayFault):
        fails = True

        def get(self, run_id: str) -> Any:
            if threading.current_thread().name == "streamkit-server-heartbeat" and self.fails:
                self.fails = False
                raise sk.SourceError("the relay is away")
            return super().get(run_id)

    relay = backend.relay(Failing)
    app = backend.app(agents, relay=relay, pause_after=0.01)
    with serve(app) as url, Client(url) as client:
        client.begin("run say x")
        wait_for(lambda: not relay.fails)
        second = client.begin("run say x")
        client.until(second["id"], "paused")


def test_the_heartbeat_ends_with_the_last_run(
    backend: Backend, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, and not when it looks again."""
    monkeypatch.setattr("streamkit.server.heartbeat._INTERVAL", 3600.0)
    before = threading.enumerate()
    with serve(backend.app(agents)) as url, Client(url) as client:
        run = client.begin("run say x")
        client.until_asked(run["id"])
        threads = [
            one for one in threading.enumerate() if one.name == "streamkit-server-heartbeat" and one not in before
        ]
        assert len(threads) == 1
        client.post(f"/runs/{run['id']}/cancel")
        threads[0].join(20)
        assert not threads[0].is_alive()


class Stop(BaseException):
    """Not an `Exception`."""


@pytest.mark.parametrize("error", [SystemExit, Stop])
def test_a_tool_ends_its_run_and_not_the_server(backend: Backend, agents: Agents, error: type[BaseException]) -> None:
    def factory(context: Context) -> Any:
        if context.metadata.get("kind") == "factory":
            raise error("no")

        @tool
        def careful(n: int) -> str:
            """Do it.

            Args:
                n: how often.
            """
            raise error("no")

        return AsyncAgent(agents._async_client, tools=[careful], protocol="openai_chat", model="m")

    app = backend.app(factory)
    with serve(app) as url, Client(url) as client:
        for kind in ("tool", "factory"):
            run = client.begin("careful", metadata={"kind": kind})
            after = client.until(run["id"], "completed", "failed", "cancelled", "lost")["status"]
            # A tool that exits has failed as any other does, and the model goes on.
            assert after == ("completed" if (kind, error) == ("tool", SystemExit) else "failed"), kind
            wait_for(lambda: not app.runs.active)


@KINDS
def test_a_factory_that_hangs_can_be_stopped(backend: Backend, kind: str) -> None:
    release = threading.Event()

    def hangs(context: Context) -> Any:
        release.wait(60)

    async def hangs_async(context: Context) -> Any:
        import anyio

        await anyio.sleep(3600)

    app = backend.app(hangs_async if kind == "async" else hangs)
    with serve(app) as url, Client(url) as client:
        try:
            run = client.begin("hello")
            assert client.post(f"/runs/{run['id']}/cancel").status_code == 202
            client.until(run["id"], "cancelled")
            wait_for(lambda: not app.runs.active)
        finally:
            release.set()


# -- at the same moment


def test_a_conversation_that_changes_while_a_run_begins_is_busy(backend: Backend, agents: Agents) -> None:
    """Rolled back or deleted by another between the run's reading and its saving."""

    class Changing(StoreFault):
        change: Callable[[], Any] | None = None

        def load(self, id: str) -> Any:
            found = super().load(id)
            if self.change is not None:
                change, self.change = self.change, None
                change()
            return found

    store = backend.store(Changing)
    app = backend.app(agents, store=store)
    with serve(app) as url, Client(url) as client:
        changes: list[Callable[[], Any]] = [
            lambda: store.save("talk", [], 3),  # what the user said is version 1, the step's end 2, the run's 3
            lambda: store.delete("talk"),
        ]
        for change in changes:
            client.events(client.begin("hello", conversation="talk")["id"])
            store.change = change
            refused = client.post("/runs", json={"input": "more", "conversation": "talk"})
            assert code_of(refused) == (409, "conversation-busy")
            assert not app.runs.active
        client.events(client.begin("hello", conversation="talk")["id"])


class Interfering(StoreFault):
    """Something else happens before one of its methods, or after it."""

    waits = True
    before: tuple[str, Callable[[], Any]] | None = None
    after: tuple[str, Callable[[], Any]] | None = None

    def _call(self, name: str, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if self.before is not None and self.before[0] == name:
            (_, act), self.before = self.before, None
            act()
        result = method(*arguments, **options)
        if self.after is not None and self.after[0] == name:
            (_, act), self.after = self.after, None
            act()
        return result

    def lock(self, *arguments: Any, **options: Any) -> Any:
        return self._call("lock", super().lock, *arguments, **options)

    def load(self, *arguments: Any) -> Any:
        return self._call("load", super().load, *arguments)


def test_a_conversation_that_is_deleted_while_it_begins_is_not_created_again(backend: Backend, agents: Agents) -> None:
    """After its run has locked it, and before the input is first saved."""
    store = backend.store(Interfering)
    app = backend.app(agents, store=store)
    with serve(app) as url, Client(url) as client:
        for place in ("lock", "load"):
            store.after = place, lambda: client.delete("/conversations/new")
            refused = client.post("/runs", json={"input": "hello", "conversation": "new"})
            assert code_of(refused) == (409, "conversation-busy")
            assert client.get("/conversations/new").status_code == 404
            assert client.get("/runs").json()["runs"] == []
            assert not app.runs.active
        client.events(client.begin("hello", conversation="new")["id"])
        assert len(client.get("/conversations/new/messages").json()["messages"]) == 2


def test_a_run_saves_nothing_into_a_conversation_that_was_created_anew(backend: Backend, agents: Agents) -> None:
    """Under the same id, with the same version: its own was deleted meanwhile, by a process that did not reach it."""
    store = backend.store()
    with serve(backend.app(agents, store=store)) as url, Client(url) as client:
        old = client.begin("run say old", conversation="again")
        question = client.until_asked(old["id"])
        store.delete("again")
        new = client.begin("run say new", conversation="again")
        client.until_asked(new["id"])
        client.post(f"/runs/{old['id']}/answers/{question['id']}", json={"approved": True})
        assert client.until(old["id"], "completed", "failed", "cancelled")["status"] == "failed"
        assert agents.code_that_ran == []
        saved = store.load("again")
        assert {message.run_id for message in saved.messages} == {new["id"]}
        assert client.get("/conversations/again").json()["run"] == new["id"]
        client.post(f"/runs/{new['id']}/cancel")


@pytest.mark.parametrize("first", ["goes on", "has ended"])
def test_of_two_owners_one_creates_a_conversation(backend: Backend, agents: Agents, first: str) -> None:
    """Both begin it at once, and both found that it did not exist. The second one's request is answered as any request about
    what is another's; nothing of the first one's reaches its agent."""

    def owner_of(run: Any, request: Any) -> bool | str:
        user = str(request.headers["x-user"])
        return user if run is None else bool(run.owner == user)

    store = backend.store(Interfering)
    app = backend.app(agents, store=store, authorize=owner_of)
    with (
        serve(app) as url,
        Client(url, headers={"x-user": "ann"}) as ann,
        Client(url, headers={"x-user": "bob"}) as bob,
    ):
        runs: list[Any] = []

        def begin() -> None:
            runs.append(ann.begin("hang" if first == "goes on" else "hello", conversation="both"))
            if first == "has ended":
                ann.until(runs[0]["id"], "completed")
                wait_for(lambda: not app.runs.active)

        store.before = "lock", begin
        bodies = []
        for _ in range(2):  # at the same moment, and later
            refused = bob.post("/runs", json={"input": "mine", "conversation": "both"})
            assert code_of(refused) == (404, "conversation-not-found")
            bodies.append({key: value for key, value in refused.json().items() if key != "instance"})
        assert bodies[0] == bodies[1]
        assert bob.get("/runs").json()["runs"] == []
        assert bob.get("/conversations").json()["conversations"] == []
        assert [context.owner for context in agents.contexts] == ["ann"]
        texts = [message.content for message in store.load("both").messages]
        assert "mine" not in texts
        assert (store.get("both").run is None) is (first == "has ended")
        assert ann.get("/conversations/both").json()["run"] == (runs[0]["id"] if first == "goes on" else None)
        ann.post(f"/runs/{runs[0]['id']}/cancel")


def test_a_run_that_was_answered_at_once_does_not_count_as_waiting(backend: Backend, agents: Agents) -> None:
    """The answer comes before the agent has begun to wait: it must not be paused in the middle of its work."""
    executions: list[Any] = []

    class Eager(RelayFault):
        def open(self, run_id: str, *arguments: Any, **options: Any) -> Any:
            writer = super().open(run_id, *arguments, **options)
            append = writer.append

            def answering(events: Any, **options: Any) -> Any:
                cursors = append(events, **options)
                if b'"run_requires_action"' in events[0]:
                    executions.append(app.runs.active[run_id])
                    record = self.get(run_id)
                    assert record is not None
                    (question,) = record.questions
                    self.answer(run_id, question, {"approved": True})
                return cursors

            setattr(writer, "append", answering)  # noqa: B010 - of this writer alone
            return writer

    app = backend.app(agents, relay=backend.relay(Eager))
    with serve(app) as url, Client(url) as client:
        client.until(client.begin("run say x")["id"], "completed")
    assert [one.waits_since for one in executions] == [None]


# -- what clients send


def test_a_refused_message_does_not_end_the_run_before_it(backend: Backend, agents: Agents) -> None:
    app = backend.app(agents)
    with serve(app) as url, Client(url) as client:
        run = client.begin("run say x", conversation="talk")
        client.until_asked(run["id"])
        bodies = [
            said_by_user("u", "hello", "talk", trigger="regenerate-message", messageId="unknown"),
            {"id": "talk", "trigger": "regenerate-message", "messageId": "unknown", "messages": []},
        ]
        for body in bodies:
            assert client.post("/chat", json=body).status_code == 422
            assert client.run(run["id"])["pending"]
        client.post(f"/runs/{run['id']}/cancel")


def test_regenerate_without_a_message_takes_back_the_last_turn(backend: Backend, agents: Agents) -> None:
    with serve(backend.app(agents)) as url, Client(url) as client:
        for text in ("one", "two"):
            client.events(client.begin(text, conversation="talk")["id"])
        client.frames("/chat", method="POST", json={"id": "talk", "trigger": "regenerate-message", "messages": []})
        messages = client.get("/conversations/talk/messages").json()["messages"]
        assert [one["content"] for one in messages] == ["one", "You said: one", "two", "You said: two"]


@pytest.mark.parametrize(
    "value", ["x", 1, [], {"tools": 1}, {"tools": [1, {}, {"name": 1}]}, {"tools": [{"name": "a"}, {"name": "a"}]}]
)
def test_metadata_that_looks_like_ag_ui_does_no_harm(backend: Backend, agents: Agents, value: Any) -> None:
    with serve(backend.app(agents)) as url, Client(url) as client:
        run = client.begin("hello", metadata={"ag_ui": value})
        assert client.until(run["id"], "completed", "failed")["status"] == "completed"


# -- logs that are trimmed


def test_what_follows_an_answer_is_shown_even_if_it_came_at_once(backend: Backend, agents: Agents) -> None:
    """The run is over, and its log trimmed, before the response to the answer begins."""

    class Slow(RelayFault):
        waits = True

        def answer(self, run_id: str, *arguments: Any) -> Any:
            result = super().answer(run_id, *arguments)
            wait_for(lambda: (record := self.get(run_id)) is None or record.status == "completed")
            return result

    app = backend.app(agents, relay=backend.relay(Slow, limit=16))
    with serve(app) as url, Client(url) as client:
        asked = client.frames("/chat", method="POST", json=said_by_user("u", "run say x", "talk"))
        (request,) = [frame.data for frame in asked if frame.type == "tool-approval-request"]
        part = {
            "type": "tool-execute_code",
            "toolCallId": request["toolCallId"],
            "state": "approval-responded",
            "input": {},
            "approval": {"id": request["approvalId"], "approved": True},
        }
        body = said_by_user("u", "run say x", "talk")
        body["messages"].append({"id": "m", "role": "assistant", "parts": [part]})
        frames = client.frames("/chat", method="POST", json=body)
    assert "".join(frame.data["delta"] for frame in frames if frame.type == "text-delta").startswith("It gave: x")


def test_cursors_that_are_not_in_the_log_in_another_protocol(backend: Backend, agents: Agents) -> None:
    """Trimmed, or written and lost by a relay that crashed: what is there, from its beginning, or 410. Never nothing."""
    app = backend.app(agents, relay=backend.relay(limit=16))
    with serve(app) as url, Client(url) as client:
        run = client.begin("count 40")
        cursor = str(client.events(run["id"])[-1].id)
        path, name = f"/runs/{run['id']}/events", cursor.partition(".")[2]
        for after in ("1-3", "1-4000", "9-1"):
            query = {"after": f"{after}.{name}", "protocol": "vercel_ui"}
            types = [frame.type for frame in client.frames(path, params=query)]
            assert (types[0], types[-1]) == ("start", "[DONE]"), after
            assert "text-delta" in types
            assert code_of(client.get(path, params={**query, "gap": "error"})) == (410, "cursor-trimmed")
        near = f"{cursor.partition('-')[0]}-{int(cursor.partition('-')[2].partition('.')[0]) - 1}.{name}"
        assert client.get(path, params={**query, "after": near, "gap": "error"}).status_code == 200


def test_a_snapshot_says_how_many_events_are_missing_in_it_that_belong_to_no_message() -> None:
    """A reader that comes late is warned of those, too."""
    relay = sk.MemoryRelay(limit=8)
    publisher = Publisher("run", relay.open("run", control=lambda control: None), relay.limit)
    publisher.begin([])
    for number in range(20):
        publisher.publish(sk.RawEvent("own", {"number": number}))
    publisher.end("completed")
    stream = sk.stream(relay.reader("run"))
    stream.until_done()
    (warning,) = stream.warnings
    assert (warning.code, "18 messages and other events" in warning.fault) == ("dropped", True)
