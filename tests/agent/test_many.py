"""Agents that are made, used and dropped leave nothing behind: no thread, no message, no agent."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import anyio
import openai
import pytest

import streamkit as sk
from streamkit.agent.code import _busy  # pyright: ignore[reportPrivateUsage]
from streamkit.testing import ModelServer, Reply, ToolCall

from .parts import Approving, ToyComputer, code

MANY = 30
OURS = ("streamkit-code", "streamkit-tools", "streamkit-tool")  # the threads that an agent starts


def plain() -> str:
    return "done"


def script(request: Any) -> Reply:
    """Each conversation calls a tool and runs code, then is over."""
    answered = any(message["role"] == "tool" for message in request.body["messages"])
    return Reply("Done.") if answered else Reply(ToolCall("plain"), code("say hi"))


HOW = ("to the end", "left at the question", "never started")


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW)
def test_agents_that_are_dropped_leak_nothing(how: str) -> None:
    """Many of them on one computer."""
    computer, agents = ToyComputer(), []
    with ModelServer(script) as server, openai.OpenAI(base_url=server.url, api_key="any", max_retries=0) as client:
        for _ in range(MANY):
            agent = sk.Agent(client, model="m", tools=[plain], computer=computer, protocol="openai_chat")
            agents.append(weakref.ref(agent))
            stream = agent.stream("Go.", Approving())
            if how == "to the end":
                stream.until_done()
            elif how == "left at the question":
                with stream:
                    next(event for event in stream if isinstance(event, sk.ToolCallDone))
        del agent, stream
        gc.collect()
        assert [agent() for agent in agents if agent() is not None] == []
        assert not _busy
        assert [thread.name for thread in threading.enumerate() if thread.name in OURS] == []
    assert len(computer.ran) == (MANY if how == "to the end" else 0)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_async_agents_that_are_dropped_leak_nothing(backend: str) -> None:
    """Run to the end or cancelled in their tool."""
    agents: list[weakref.ref[sk.AsyncAgent]] = []

    async def main() -> None:
        begun = anyio.Event()

        async def slow() -> None:
            begun.set()
            await anyio.sleep(60)

        replies = lambda request: Reply(ToolCall("slow"))  # noqa: E731
        with ModelServer(replies) as server:
            async with openai.AsyncOpenAI(base_url=server.url, api_key="any", max_retries=0) as client:
                for _ in range(MANY):
                    begun = anyio.Event()
                    agent = sk.AsyncAgent(client, model="m", tools=[slow], protocol="openai_chat")
                    agents.append(weakref.ref(agent))
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(agent.stream("Go.").until_done)
                        await begun.wait()
                        tasks.cancel_scope.cancel()
                    assert [message.type for message in agent.messages][-1] == "tool_output"

    anyio.run(main, backend=backend)
    gc.collect()
    assert [agent() for agent in agents if agent() is not None] == []
