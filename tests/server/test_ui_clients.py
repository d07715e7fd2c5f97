"""The real npm clients of both UI protocols, against a real server: what a page does, step by step."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from ..test_ui_clients import HERE, NODE, PACKAGES
from .backends import Backend, one_backend_each
from .parts import TOKEN, Agents, Client, serve

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not NODE.exists(), reason=f"the npm clients are not installed: no {NODE}"),
]


class Page:
    """A client in a process of its own."""

    def __init__(self, name: str, client: Client, id: str) -> None:
        script = (HERE / "chat.mjs").read_text("utf-8")
        url = str(client.base_url).removesuffix("/")
        self._process = subprocess.Popen(
            [str(NODE), "--input-type=module", "--eval", script, "--", name, url, TOKEN, id],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=PACKAGES,
        )

    def __call__(self, *, faults: Any = (), **step: Any) -> Any:
        """Take a step. Returns the messages and the status."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(step) + "\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        assert bool(told["faults"]) is bool(faults), told["faults"]
        for fault in faults:
            assert any(fault in one for one in told["faults"]), told["faults"]
        return told["messages"], told.get("status")

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()


def texts(message: Any) -> list[str]:
    return [part["text"] for part in message["parts"] if part["type"] == "text"]


def tools(message: Any) -> list[Any]:
    return [part for part in message["parts"] if "toolCallId" in part]


@one_backend_each("name", "ai-5", "ai-6", "ai-7")
def test_use_chat(client: Client, agents: Agents, name: str) -> None:
    """Send, approve, decline, tool output, reload, resume, stop, regenerate; no part comes twice."""
    ran = len(agents.code_that_ran)
    with Page(name, client, f"chat-{name}") as page:
        messages, status = page(say="hello")
        assert ([m["role"] for m in messages], status) == (["user", "assistant"], "ready")
        assert texts(messages[1]) == ["You said: hello"]
        messages, _ = page(say="ask where")
        assert [part["state"] for part in tools(messages[-1])] == ["input-available"]
        messages, _ = page(output="Oslo")
        assert len(messages) == 4
        assert texts(messages[-1]) == ["It gave: Oslo"]
        assert [part["state"] for part in tools(messages[-1])] == ["output-available"]
        if name != "ai-5":  # which knows no approvals
            page(forge="confirmation-forged", faults=["question-closed"])
            messages, _ = page(say="run say approved")
            messages, _ = page(approve=True)
            assert texts(messages[-1]) == ["I will. ", "It gave: approved\n"]
            (tool,) = tools(messages[-1])
            assert (tool["state"], tool["output"]["stdout"]) == ("output-available", "approved\n")
            messages, _ = page(say="run say declined")
            messages, _ = page(approve=False, reason="no")
            assert [part["state"] for part in tools(messages[-1])] == ["output-denied"]
            assert texts(messages[-1])[-1].endswith("Reason: no")
            page(say="run say 1 & say 2")
            page(reload=True)
            page(approve=True)
            messages, _ = page(approve=False, reason="no")
            assert [part["state"] for part in tools(messages[-1])] == ["output-available", "output-denied"]
            assert agents.code_that_ran[ran:] == ["say approved", "say 1"]
        count = len(messages)
        reloaded, _ = page(reload=True)  # 204: nothing is open
        shown = [
            [(m["role"], texts(m), [part["state"] for part in tools(m)]) for m in had] for had in (reloaded, messages)
        ]
        assert shown[0] == shown[1]
        again, _ = page(regenerate=True)
        assert len(again) == count
        assert texts(again[-1])[:1] == texts(messages[-1])[: len(texts(again[-1])[:1])]
        image = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,iVBORw0KGgo="}
        messages, _ = page(say="edited", instead=again[2]["id"], files=[image])  # with all that came after it
        assert [texts(m) for m in messages[2:]] == [["edited"], ["You said: edited"]]
        assert [part["url"] for part in messages[2]["parts"] if part["type"] == "file"] == [image["url"]]
        reloaded, _ = page(reload=True)
        assert [texts(m) for m in reloaded] == [texts(m) for m in messages]
        count = len(messages)
        page(say="hang", leave=True)  # the page is closed in mid-answer; the run goes on
        run = client.get(f"/conversations/chat-{name}").json()["run"]
        assert client.run(run)["status"] == "in_progress"
        messages, _ = page(reload=True, stop=True)
        assert len(messages) == count + 2  # with what the user said, and nothing twice
        assert messages[-1]["id"] == run
        assert "".join(texts(messages[-1])).startswith("Once upon ")
        assert client.until(run, "cancelled")["pending"] == []
        messages, _ = page(say="still there?")
        assert texts(messages[-1]) == ["You said: still there?"]


@one_backend_each("name", "@ag-ui/client-0", "@ag-ui/client-1")
def test_http_agent(client: Client, agents: Agents, name: str) -> None:
    """A run, interrupt and resume, a partial resume that is refused, and a run that is attached to again."""
    is_1, ran = name.endswith("1"), len(agents.code_that_ran)
    thread = f"thread-{name[-1]}"
    with Page(name, client, thread) as page:
        messages, outcome = page(say="hello", run="r1")
        assert [m["content"] for m in messages] == ["hello", "You said: hello"]
        messages, outcome = page(run="r1")
        assert [m["content"] for m in messages] == ["hello", "You said: hello"]
        messages, outcome = page(say="run say resumed", run="r2")
        question = client.run(client.get(f"/conversations/{thread}").json()["run"])["pending"][0]["id"]
        resume = [{"interruptId": question, "status": "resolved", "payload": {"approved": True}}]
        if is_1:
            assert [one["id"] for one in outcome["interrupts"]] == [question]
            other = [{**resume[0], "interruptId": "other"}]
            page(run="r3", resume=other, faults=["pending interrupt"])  # the client itself refuses it
            messages, outcome = page(run="r4", resume=resume)
            assert outcome == {"type": "success"}
        else:  # it knows no interrupts: the page answers in its own way, and attaches to the run again
            _, outcome = page(say="and?", run="r3")
            assert outcome == {"type": "error", "code": "interrupt-mismatch"}
            run = client.get(f"/conversations/{thread}").json()["run"]
            client.post(f"/runs/{run}/answers/{question}", json={"approved": True})
            messages, _ = page(run="r2")
        assert messages[-1]["content"] == "It gave: resumed\n"
        assert agents.code_that_ran[ran:] == ["say resumed"]
        calls = [call["id"] for m in messages for call in m.get("toolCalls") or []]
        assert len({*calls}) == len(calls) == 1


@one_backend_each("name, place", ("ai-6", "this process"), ("ai-7", "another process"))
def test_use_chat_answers_the_question_of_a_sub_agent(backend: Backend, agents: Agents, name: str, place: str) -> None:
    """The call that it is about is shown as one of the answer, and its output too; nothing else of the sub-agent is."""
    agents.forget()
    with (
        serve(backend.app(agents, pause_after=0.02 if place == "another process" else 60)) as url,
        Client(url) as client,
        Page(name, client, "inner") as page,
    ):
        for approve, state in ((True, "output-available"), (False, "output-denied")):
            messages, _ = page(say="research careful 3")
            assert shown_tools(messages[-1]) == [("research", "input-available"), ("careful", "approval-requested")]
            run = client.get("/conversations/inner").json()["run"]
            if place == "another process":
                client.until(run, "paused")
            messages, _ = page(reload=True)
            assert shown_tools(messages[-1])[1:] == [("careful", "approval-requested")]
            messages, status = page(approve=approve, reason=None if approve else "no")
            assert (status, len(messages)) == ("ready", 2 if approve else 4)
            assert shown_tools(messages[-1]) == [("research", "output-available"), ("careful", state)]
            assert len(texts(messages[-1])) == 1
            assert client.run(run)["status"] == "completed"
    assert agents.ran == [3]


def shown_tools(message: Any) -> list[tuple[str, str]]:
    return [(part.get("toolName") or part["type"].removeprefix("tool-"), part["state"]) for part in tools(message)]


@one_backend_each("place", "this process", "another process")
def test_http_agent_answers_the_question_of_a_sub_agent(backend: Backend, agents: Agents, place: str) -> None:
    agents.forget()
    with (
        serve(backend.app(agents, pause_after=0.02 if place == "another process" else 60)) as url,
        Client(url) as client,
        Page("@ag-ui/client-1", client, "inner") as page,
    ):
        messages, outcome = page(say="research careful 4", run="r1")
        (interrupt,) = outcome["interrupts"]
        calls = {call["id"]: call["function"]["name"] for m in messages for call in m.get("toolCalls") or []}
        assert [*calls.values()] == ["research", "careful"]
        assert calls[interrupt["toolCallId"]] == "careful"
        if place == "another process":
            client.until(client.get("/conversations/inner").json()["run"], "paused")
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
        messages, outcome = page(run="r2", resume=resume)
    assert outcome == {"type": "success"}
    results = {m["toolCallId"]: m["content"] for m in messages if m["role"] == "tool"}
    assert {calls[id]: content for id, content in results.items()} == {
        "careful": "careful 4",
        "research": "It gave: careful 4",
    }
    assert messages[-1]["content"] == "It gave: It gave: careful 4"
    assert agents.ran == [4]
