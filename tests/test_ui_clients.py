"""The real clients of both UI protocols read what we encode: of every recording, and of everything at once.

`npm install --prefix tests/ui_clients` brings them; or STREAMKIT_UI_CLIENTS names a folder that has them.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import streamkit as sk
from streamkit import events as e
from streamkit import messages as m
from streamkit.computer import Computer
from streamkit.protocols import Approval, ag_ui, find, vercel_ui
from streamkit.protocols.framing import sse_frame
from streamkit.testing import ModelServer, Reply, Text, ToolCall

from .recorded import OWN, SHARED, streams_in
from .test_recorded_streams import FOLDERS, NO_STREAMS
from .ui_streams import asked, call, case, completed, everything, output, whole

HERE = Path(__file__).parent / "ui_clients"
PACKAGES = Path(os.environ.get("STREAMKIT_UI_CLIENTS", HERE))
NODE = PACKAGES / "node_modules" / "node" / "bin" / "node"  # `ai` 7 wants a newer one than most machines have

# Each client, and the encoder's options for it.
CLIENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ai-5": ("vercel_ui", {"version": 5}),
    "ai-6": ("vercel_ui", {"version": 6}),
    "ai-7": ("vercel_ui", {"version": 7}),
    "@ag-ui/client-0": ("ag_ui", {"version": "0"}),
    "@ag-ui/client-1": ("ag_ui", {"version": "1.0"}),
}
# The first releases that the encoder states, which throw at every field that they do not know.
STRICT = {"ai-5-0-92": CLIENTS["ai-5"], "ai-6-0-100": CLIENTS["ai-6"], "ai-7-0-0": CLIENTS["ai-7"]}
FAILED = "The run failed."

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not NODE.exists(), reason=f"the npm clients are not installed: no {NODE}"),
]


def read_with_clients(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the clients made of these jobs; see `ui_clients/read.mjs`."""
    script = (HERE / "read.mjs").read_text("utf-8")
    done = subprocess.run(
        [NODE, "--input-type=module", "--eval", script],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        cwd=PACKAGES,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results: list[dict[str, Any]] = json.loads(done.stdout)
    return results


def body(items: Iterable[Any], protocol: str) -> str:
    """Wire items as the body of a response."""
    done = find(protocol).Encoder.done
    return b"".join(
        [*(sse_frame(json.dumps(item).encode()) for item in items), sse_frame(done) if done else b""]
    ).decode()


def clean(value: Any) -> Any:
    """JSON of a client's message without what stands for nothing: absent values, and how input was streamed."""
    if isinstance(value, list):
        return [clean(one) for one in value]
    if not isinstance(value, dict):
        return value
    streaming = value.get("state") == "input-streaming"
    return {
        key: clean(one)
        for key, one in value.items()
        if one is not None and not (streaming and key == "rawInput") and key not in ("preliminary", "inputEncoding")
    }


def of_ai(messages: list[Any], *, version: int) -> list[Any]:
    """The parts of the assistant's messages. Questions come at once to a client, but after their call as input."""
    parts = [part for message in messages if message["role"] == "assistant" for part in clean(message["parts"])]
    for part in parts:
        if part["type"] == "reasoning":
            part.pop("id", None)  # of `ai` 7
    if version == 5:
        parts.sort(key=lambda part: part["type"] == "data-confirmation")
    return parts


def of_ag_ui(messages: list[Any], *, version: str) -> list[Any]:
    """The messages without activities and metadata. Clients of 0.x put results at the end."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(one) for one in value]
        if isinstance(value, dict):
            return {key: plain(one) for key, one in value.items() if key != "metadata" and one not in (None, "")}
        return value

    kept = [plain(message) for message in messages if message["role"] != "activity"]
    return sorted(kept, key=json.dumps) if version == "0" else kept


def ours(protocol: str, stream: Any, options: dict[str, Any]) -> list[Any]:
    """The same of our own messages."""
    given = [*stream.messages, *stream.confirmations]
    if protocol == "vercel_ui":
        return of_ai(json.loads(json.dumps(vercel_ui.to_input(given, **options))), version=options["version"])
    return of_ag_ui(json.loads(json.dumps(ag_ui.to_input(given))), version=options["version"])


def encoded_for(clients: Iterable[str], stream: Any) -> Iterator[dict[str, Any]]:
    """A stream as the jobs of these clients."""
    known = CLIENTS | STRICT
    encoders = {name: find(known[name][0]).Encoder(**known[name][1]) for name in clients}
    items: dict[str, list[Any]] = {name: [] for name in encoders}
    with contextlib.suppress(sk.StreamkitError):
        for event in stream:
            for name, encoder in encoders.items():
                items[name] += json.loads(json.dumps([*encoder.items(event)]))
    for name in encoders:
        yield {"client": name, "bodies": [body(items[name], known[name][0])]}


# What code gave is not known of a run that waits in the middle of it; the history shows it as run.
WAITS_IN_CODE = ("vercel-anthropic-programmatic-tool-calling.1.part0",)
# Its call gets another call_id at its end, when it has begun under the first.
OTHER_CALL_ID = ("vercel-openai-client-tool-search.1",)


@pytest.mark.parametrize("where", ["own", "shared"])
def test_clients_read_every_recording_and_have_our_messages(where: str) -> None:
    """Of every protocol, without an error or a warning; the messages at the end are ours. Our own recordings are read by all
    clients, the hundreds of others by one release of each protocol in turn."""
    root = OWN if where == "own" else SHARED
    paths = [path for folder in FOLDERS.values() for path in streams_in(root / folder) if path.stem not in NO_STREAMS]
    if not paths:
        pytest.skip("the shared recordings are not beside this checkout")
    ui_chats, ag_uis = [*CLIENTS][:3], [*CLIENTS][3:]
    jobs: list[tuple[Path, Any, Any]] = []
    for number, path in enumerate(paths):
        stream = sk.stream(path)
        names = CLIENTS if where == "own" else (ui_chats[number % 3], ag_uis[number % 2])
        jobs += [(path, stream, job) for job in encoded_for(names, stream)]
    results = read_with_clients([job for _, _, job in jobs])
    differing: list[tuple[str, str]] = []
    for (path, stream, job), result in zip(jobs, results, strict=True):
        protocol, options = CLIENTS[job["client"]]
        expected = (
            [FAILED] if protocol == "vercel_ui" and stream.status in ("failed", "incomplete") and stream.error else []
        )
        assert result["faults"] == expected, (path, job["client"])
        read = of_ai if protocol == "vercel_ui" else of_ag_ui
        theirs = read(result["messages"][1:], version=options["version"])
        mine = ours(protocol, stream, options)
        if mine != theirs and mine and path.stem not in (*WAITS_IN_CODE, *OTHER_CALL_ID):
            differing.append((path.name, job["client"]))
    assert differing == []
    assert len(results) == (5 if where == "own" else 2) * len(paths)


def test_clients_read_everything_at_once() -> None:
    """Parts side by side, code with its console, questions, files, data parts: no client throws or warns, nor did the first
    releases that we write for."""
    streams = {name: [*encoded_for([name], everything())] for name in (*CLIENTS, *STRICT)}
    for name, result in zip(
        streams, read_with_clients([job for jobs in streams.values() for job in jobs]), strict=True
    ):
        assert result["faults"] == [], name
        assert "It rains: “7 °C” \U0001f327" in json.dumps(result["messages"], ensure_ascii=False), name


def test_clients_show_what_an_agent_did() -> None:
    """A real kernel: one piece of code was approved and ran, the other was declined. No part waits for anything."""
    code = ["import sys; print(1); print(2, file=sys.stderr)", "print(3)"]
    calls = [ToolCall("execute", {"language": "python", "code": text}) for text in code]
    answers = iter((True, False))

    class Answers(sk.EventHandler):
        def on_confirmation(self, confirmation: sk.Confirmation, /) -> None:
            confirmation.approve() if next(answers) else confirmation.decline("not now")

    with ModelServer([Reply(Text("I run it."), *calls), Reply("Done.")]) as server, Computer() as computer:
        client = openai.OpenAI(base_url=server.url, api_key="none", max_retries=0)
        stream = sk.Agent(client, model="m", computer=computer).stream("Go on.", Answers())
        jobs = [*encoded_for(CLIENTS, stream)]
        client.close()
    for job, result in zip(jobs, read_with_clients(jobs), strict=True):
        assert result["faults"] == [], job["client"]
        if job["client"] == "ai-7":
            tools = [part for part in result["messages"][1]["parts"] if part["type"] == "tool-execute"]
            assert [(part["state"], part["approval"]["approved"]) for part in tools] == [
                ("output-available", True),
                ("output-denied", False),
            ]
            assert tools[0]["output"] == {"stdout": "1\n", "stderr": "2\n"}
        if job["client"] == "@ag-ui/client-1":
            results = {one["toolCallId"]: one["content"] for one in result["messages"] if one["role"] == "tool"}
            assert [*results.values()][-1] == "1\n2\n" and len(results) == 2
            (console,) = (one["content"] for one in result["messages"] if one["role"] == "activity")
            assert "".join(piece["text"] for piece in console["output"]) == "1\n2\n" and console["activeLine"] is None


# -- what the clients post


def question(*more: e.Event) -> list[Any]:
    """A run that asks about a call, and waits."""
    return [*whole(call("c1")), *asked(call("c1")), *more, e.RunRequiresAction(e.Run())]


def bodies(protocol: str, options: dict[str, Any], *runs: Iterable[e.Event]) -> list[str]:
    out: list[str] = []
    for run in runs:
        encoder = find(protocol).Encoder(**options)
        out.append(body([item for event in run for item in encoder.items(event)], protocol))
    return out


WAITING = e.Run(status="requires_action", finish_reason="tool_calls")


@pytest.mark.parametrize(
    ("client", "answer"), [("ai-6", {"approve": "ask-c1"}), ("ai-7", {"decline": "ask-c1", "reason": "too far"})]
)
def test_an_approval_of_use_chat_comes_back(client: str, answer: dict[str, Any]) -> None:
    """The real client's second POST has our question's id, the answer as a boolean, and goes on with the same message."""
    protocol, options = CLIENTS[client]
    second = completed([*output("o1", "c1", "rain"), *whole(m.TextMessage("t2"), "It rains.")])
    first_body = bodies(protocol, options, completed(question(), last=WAITING))
    job = {
        "client": client,
        "bodies": [*first_body, *bodies(protocol, {**options, "after": [call("c1")]}, second)],
        "answers": [[answer]],
    }
    (result,) = read_with_clients([job])
    assert result["faults"] == []
    first, again = (vercel_ui.from_request(request) for request in result["requests"])
    assert (first.id, first.trigger, first.answers) == ("chat-1", "submit-message", [])
    assert [message.content for message in first.new_messages] == ["Go on."]
    (approval,) = again.answers
    approved = "approve" in answer
    reason = None if approved else "too far"
    assert approval == Approval(id="ask-c1", call_id="c1", approved=approved, reason=reason)
    assert again.new_messages == []
    assert [message.type for message in again.messages] == ["message", "tool_call"]
    assert [message["role"] for message in result["messages"]] == ["user", "assistant"]
    (tool,) = (part for part in result["messages"][-1]["parts"] if "toolCallId" in part)
    assert (tool["state"], tool["output"]) == ("output-available", "rain")
    assert "It rains." in json.dumps(result["messages"][-1])


@pytest.mark.parametrize("client", ["ai-5", "ai-6", "ai-7"])
def test_an_output_of_a_tool_in_the_browser_comes_back(client: str) -> None:
    """What `addToolResult` puts into the message is the answer to the call that waits."""
    protocol, options = CLIENTS[client]
    first = completed(whole(call("c1")), last=WAITING)
    job = {
        "client": client,
        "bodies": bodies(protocol, options, first, completed(whole(m.TextMessage("t2"), "Rain."))),
        "answers": [[{"output": "c1", "tool": "weather", "value": {"temp": 7}}]],
    }
    (result,) = read_with_clients([job])
    assert result["faults"] == []
    again = vercel_ui.from_request(result["requests"][1])
    assert [(answer.call_id, answer.output) for answer in again.answers] == [("c1", '{"temp":7}')]


def test_the_resume_of_an_ag_ui_client_comes_back() -> None:
    """It covers the interrupt that our run ended with; the messages are those that it had from us."""
    protocol, options = CLIENTS["@ag-ui/client-1"]
    first, second = completed(question(), last=WAITING), completed(whole(m.TextMessage("t2"), "Rain."))
    resume = {
        "interruptId": "ask-c1",
        "status": "resolved",
        "payload": {"approved": True, "editedArgs": {"city": "Rome"}},
    }
    job = {"client": "@ag-ui/client-1", "bodies": bodies(protocol, options, first, second), "answers": [[resume]]}
    (result,) = read_with_clients([job])
    assert result["faults"] == []
    start, again = (ag_ui.from_request(request) for request in result["requests"])
    assert (start.thread_id, start.version, start.context) == (
        "thread-1",
        "1.0",
        [{"description": "place", "value": "Oslo"}],
    )
    assert start.forwarded_props == {"page": 3}
    (approval,) = again.answers
    assert (approval.id, approval.approved, approval.edited) == ("ask-c1", True, '{"city":"Rome"}')
    assert [(one.type, one.content) for one in again.messages] == [
        ("message", "Go on."),
        ("tool_call", '{"city":"Oslo"}'),
    ]


def test_a_client_of_ag_ui_0_names_no_version() -> None:
    protocol, options = CLIENTS["@ag-ui/client-0"]
    job = {"client": "@ag-ui/client-0", "bodies": bodies(protocol, options, case("a text"))}
    (result,) = read_with_clients([job])
    assert result["faults"] == []
    assert ag_ui.from_request(result["requests"][0]).version == "0"
