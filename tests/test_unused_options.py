"""What a stream and an agent may have costs nothing where it is not used: it is not imported, and no delta looks at it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

import streamkit as sk
from streamkit.telemetry import Telemetry
from streamkit.testing import ModelServer, Reply, ToolCall

from .faces import chat
from .opcodes import opcodes

PARTS = {
    "retry": ("streamkit.retry", "streamkit.streams.attempts"),
    "output_type": ("streamkit.streams.output", "streamkit.streams.output_type", "streamkit.agent.output"),
    "partial output": ("streamkit.messages.json_tree",),
    "telemetry": ("streamkit.telemetry", "streamkit.telemetry.handler", "opentelemetry"),
    "as_tool": ("streamkit.agent.sub_agent",),
    "mcp_tools": ("streamkit.agent.mcp", "mcp"),
    "reasoning_tag": ("streamkit.core.reasoning_tag",),
    "frameworks": ("langchain_core", "smolagents"),
}
"""The modules of each part, its own and those of others."""

PROGRAM = """
import asyncio, sys, openai.resources.chat, openai.resources.responses

of_the_client = {*sys.modules}  # which may be more where plugins are installed: that of Logfire for Pydantic imports OpenTelemetry

import streamkit as sk

def look(at: str) -> str:
    return at

class Watching(sk.EventHandler):
    def on_text_delta(self, delta, snapshot): pass

options = dict(base_url=sys.argv[1], api_key="any", max_retries=0)
with openai.OpenAI(**options) as client:
    sk.Agent(client, model="m", tools=[look]).stream("Go.", Watching()).until_done()
    ask = lambda: client.chat.completions.create(model="m", messages=[], stream=True)
    sk.stream(ask, Watching(), then=lambda stream: ask).until_done()

async def main():
    async with openai.AsyncOpenAI(**options) as client:
        await sk.AsyncAgent(client, model="m", tools=[look]).stream("Go.", Watching()).until_done()

asyncio.run(main())
print(*{*sys.modules} - of_the_client)
"""


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """The modules that a program imports, besides its client's, which uses none of the parts: two agents with a tool, and a
    plain stream."""
    script = [Reply(ToolCall("look", {"at": "it"})), Reply("Seen."), Reply("Hello.")]
    with ModelServer([*script, *script[:2]]) as server:
        command = [sys.executable, "-c", PROGRAM, server.url]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        assert len(server.requests) == 5
    return {*done.stdout.split()}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_not_used_is_not_imported(part: str, loaded: set[str]) -> None:
    assert "streamkit.agent.turn" in loaded
    assert not loaded & {*PARTS[part]}


USES: dict[str, str] = {
    "retry": "sk.stream(lambda: [], retry=2)",
    "output_type": "sk.stream([], output_type=dict[str, int]); agent(output_type=dict[str, int]).stream('Go.')",
    "partial output": "sk.stream([]).partial_output",
    "telemetry": "from streamkit.telemetry import Telemetry; Telemetry()",
    "as_tool": "agent(name='a').as_tool()",
    "mcp_tools": "from streamkit.agent import mcp_tools",
    "reasoning_tag": "sk.stream([], reasoning_tag='think')",
}


USE = """
import os, sys, openai, streamkit as sk

agent = lambda **options: sk.Agent(openai.OpenAI(api_key="any"), model="m", **options)
for use in sys.argv[1:]:
    if os.fork() == 0:
        exec(use)
        print(*sys.modules, flush=True)
        os._exit(0)
    assert os.wait()[1] == 0, use
"""


@pytest.fixture(scope="module")
def used() -> dict[str, set[str]]:
    """The modules that the use of each part has imported, in a process of its own."""
    command = [sys.executable, "-c", USE, *USES.values()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return dict(zip(USES, map(set, map(str.split, done.stdout.splitlines())), strict=True))


@pytest.mark.parametrize("part", USES)
def test_the_modules_are_those_of_the_part(part: str, used: dict[str, set[str]]) -> None:
    """Its use imports each of streamkit's own."""
    assert {name for name in PARTS[part] if name.startswith("streamkit")} <= used[part]


def telemetry() -> Telemetry:
    return Telemetry(tracer_provider=TracerProvider())


OPTIONS: dict[str, Callable[[Any], sk.StreamManager]] = {
    "retry": lambda source: sk.stream(source, retry=3),
    "fallbacks": lambda source: sk.stream(source, fallbacks=[source]),
    "output_type": lambda source: sk.stream(source, output_type=dict[str, str]),
    "telemetry": lambda source: sk.stream(source, telemetry()),
}


@pytest.mark.parametrize("one_by_one", [False, True], ids=["in a batch", "one by one"])
@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_costs_no_delta_anything(option: str, one_by_one: bool) -> None:
    """Not even where it is used: instructions of a stream with it, less those of a plain one, with more deltas and with fewer."""

    def source(count: int) -> Callable[[], Any]:
        items = chat(*['{"a": "', *"x" * count, '"}'])
        return lambda: iter(items) if one_by_one else items

    def extra(count: int) -> int:
        used = opcodes(lambda: OPTIONS[option](source(count)).until_done())
        return used - opcodes(lambda: sk.stream(source(count)).until_done())

    extra(10)  # what is done once is done
    assert extra(400) - extra(100) < 100
