"""Streams as lines of JSON, and Open Interpreter's format as the readers of that format build their messages from it."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

import streamkit as sk
from streamkit import protocols
from streamkit.server import JsonLinesResponse
from streamkit.testing import ModelServer, Reply, Text, ToolCall

from .agent.parts import ToyComputer, code
from .faces import Face, body, chat, every_face
from .web_frameworks import uvicorn_serves

NODE = shutil.which("node")

CONSUMER = """
const messages = [];
const lines = [];
const response = await fetch(process.argv[1], { method: "POST", body: JSON.stringify({ message: "go" }) });
const decoder = new TextDecoder();
let rest = "";
for await (const piece of response.body) {
  rest += decoder.decode(piece, { stream: true });
  const complete = rest.split("\\n");
  rest = complete.pop();
  for (const line of complete) {
    const chunk = JSON.parse(line);
    if (chunk.start) messages.push({ role: chunk.role, type: chunk.type, format: chunk.format, content: "" });
    else if (chunk.end) continue;
    else if (chunk.type === "confirmation") continue;
    else if (chunk.format === "active_line") lines.push(chunk.content);
    else messages[messages.length - 1].content += chunk.content;
  }
}
console.log(JSON.stringify({ type: response.headers.get("content-type"), messages }));
"""
"""A page's reader: a start begins a message, and content belongs to the last message that began."""


def weather(city: str) -> str:
    """The weather of a city."""
    return f"{city}: rain"


SCRIPT = [
    Reply(Text("Let me compute."), code("say 1.417"), ToolCall("weather", {"city": "Oslo"})),
    Reply("It is 1.417."),
]


@contextmanager
def served(is_async: bool) -> Iterator[str]:
    """An agent that runs code, behind a real server: the address of its chat."""
    computer = ToyComputer()
    with ModelServer(SCRIPT) as server:
        kind = openai.AsyncOpenAI if is_async else openai.OpenAI
        client = kind(base_url=server.url, api_key="any", max_retries=0)

        async def talk(request: Request) -> JsonLinesResponse:
            agent_of: Any = sk.AsyncAgent if is_async else sk.Agent
            agent = agent_of(client, model="m", tools=[weather], computer=computer, auto_run=True)
            return JsonLinesResponse(agent.stream((await request.json())["message"]), "open_interpreter")

        with uvicorn_serves(Starlette(routes=[Route("/chat", talk, methods=["POST"])])) as port:
            yield f"http://127.0.0.1:{port}/chat"


@pytest.mark.skipif(NODE is None, reason="there is no Node: no program `node`")
@pytest.mark.parametrize("is_async", [True, False], ids=["AsyncAgent", "Agent"])
def test_a_reader_of_open_interpreters_format_gets_the_messages_of_a_served_agent(is_async: bool) -> None:
    """In JavaScript, as in a page: text, code without its call beside it, output, a call, and text again."""
    with served(is_async) as url:
        command = [str(NODE), "--input-type=module", "--eval", CONSUMER, url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    assert got["type"] == "application/x-ndjson"
    shown = [(one["type"], one["content"].strip()) for one in got["messages"]]
    assert [one for one in shown if one[0] in ("message", "code", "console")] == [
        ("message", "Let me compute."),
        ("code", "say 1.417"),
        ("console", "1.417"),
        ("message", "It is 1.417."),
    ]
    assert ("tool_call", '{"city": "Oslo"}') in shown
    assert ("tool_output", "Oslo: rain") in shown
    assert len(shown) == 6  # and no call of the code


@every_face
@pytest.mark.parametrize("protocol", protocols.BUILT_IN)
@body
async def test_the_lines_of_every_protocol_are_a_source(face: Face, protocol: str) -> None:
    """They are read as the stream that they were made of."""
    stream = face.stream(chat("Hel", "lo"))
    lines = (stream.manager if face.name == "sync" else stream).ndjson(protocol)
    assert lines.headers["Content-Type"] == "application/x-ndjson"
    data = b"".join([line async for line in lines] if face.is_async else [*lines])
    assert all(json.loads(line) for line in data.splitlines())
    assert sk.stream([data], protocol=protocol).get_final_text() == "Hello"


@pytest.mark.parametrize("keepalive", [None, 0.01])
def test_an_empty_line_comes_only_where_it_is_wanted(keepalive: float | None) -> None:
    """Not every reader of lines skips empty ones."""
    goes_on = threading.Event()

    def slow() -> Iterator[Any]:
        first, *rest = chat("Hi")
        yield first
        assert goes_on.wait(20)
        yield from rest

    if keepalive is None:
        goes_on.set()
    lines: list[bytes] = []
    for line in sk.stream(slow()).ndjson(keepalive=keepalive):
        lines.append(line)
        if line == b"\n":
            goes_on.set()
    assert (b"\n" in lines) is (keepalive is not None)


def test_open_interpreters_own_server_says_that_it_is_complete() -> None:
    """Where that is wanted."""
    from streamkit.protocols.open_interpreter import Encoder

    lines = [json.loads(line) for line in b"".join(sk.stream(chat("Hi")).ndjson(Encoder(status=True))).splitlines()]
    assert lines[-1] == {"role": "server", "type": "status", "content": "complete"}
