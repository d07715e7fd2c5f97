"""One turn of an agent: the model calls a tool, gets its output, and answers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import streamkit as sk
from streamkit.testing import ModelServer, Reply, Request, Text, ToolCall

from .measuring import Clock, Contestant, Profile, Row, Workers, check, contest, process
from .wires import answer, deltas

TITLE = "A turn of an agent"
ABOUT = """\
CPU time of one turn over loopback with OpenAI's client and Chat Completions: a request whose answer calls a tool, the
call, a second request with its output, and an answer of so many deltas, each of which the application gets. The baseline is
the loop that one writes by hand over the client's own stream, without any of what an agent does beside. Two requests of that
client alone are the greater part of a turn with a short answer."""

LENGTHS = (100, 300)  # deltas of the answer
QUESTION, CITY = "How is the weather?", "Oslo"
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def get_weather(city: str) -> str:
    """The weather in a city."""
    assert city == CITY
    return "rain"


# -- the server


def reply(request: Request) -> Reply:
    """A call first; the answer where the tool's output is in the conversation's last message. The model's name is its
    number of deltas."""
    if request.body["messages"][-1]["role"] == "tool":
        return Reply(Text(pieces=deltas(int(request.body["model"]))))
    return Reply(ToolCall("get_weather", {"city": CITY}))


def serve() -> None:
    with ModelServer(reply) as server:
        print(server.url, flush=True)
        sys.stdin.read()


# -- the contestants: each prepares what an application makes once, and returns what takes one turn

Turn = Callable[[], str]
AsyncTurn = Callable[[], Awaitable[str]]


def streamkit(url: str, model: str) -> Turn:
    import openai

    client = openai.OpenAI(base_url=url, api_key="none")

    class Texts(sk.EventHandler):
        def __init__(self) -> None:
            self.parts: list[str] = []

        def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
            self.parts.append(delta.value)

    def turn() -> str:
        handler = Texts()
        agent = sk.Agent(client, model=model, tools=[get_weather])
        agent.stream(QUESTION, handler).until_done()
        return "".join(handler.parts)

    return turn


def by_hand(url: str, model: str) -> Turn:
    import openai

    client = openai.OpenAI(base_url=url, api_key="none")

    def turn() -> str:
        messages: list[Any] = [{"role": "user", "content": QUESTION}]
        while True:
            parts: list[str] = []
            calls: dict[int, dict[str, Any]] = {}
            tools: Any = [TOOL]
            for chunk in client.chat.completions.create(model=model, messages=messages, tools=tools, stream=True):
                for choice in chunk.choices:
                    if choice.delta.content:
                        parts.append(choice.delta.content)
                    for piece in choice.delta.tool_calls or ():
                        call = calls.setdefault(piece.index, {"id": piece.id, "name": "", "arguments": ""})
                        if piece.function is not None:
                            call["name"] += piece.function.name or ""
                            call["arguments"] += piece.function.arguments or ""
            if not calls:
                return "".join(parts)
            functions = [
                {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
                for c in calls.values()
            ]
            messages.append({"role": "assistant", "content": None, "tool_calls": functions})
            for call in calls.values():
                output = get_weather(**json.loads(call["arguments"]))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})

    return turn


def openai_agents(url: str, model: str) -> AsyncTurn:
    import agents
    import openai

    agents.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=url, api_key="none")
    chat = agents.OpenAIChatCompletionsModel(model, openai_client=client)
    agent: Any = agents.Agent(name="a", model=chat, tools=[agents.function_tool(get_weather)])

    async def turn() -> str:
        parts: list[str] = []
        result = agents.Runner.run_streamed(agent, QUESTION)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                parts.append(event.data.delta)
        check(result.final_output, "".join(parts))
        return "".join(parts)

    return turn


def pydantic_ai(url: str, model: str) -> AsyncTurn:
    import openai
    import pydantic_ai as pai
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(openai_client=openai.AsyncOpenAI(base_url=url, api_key="none"))
    agent = pai.Agent(OpenAIChatModel(model, provider=provider), tools=[get_weather])

    async def turn() -> str:
        parts: list[str] = []
        async with agent.iter(QUESTION) as run:
            async for node in run:
                if not pai.Agent.is_model_request_node(node):
                    continue
                async with node.stream(run.ctx) as stream:
                    async for event in stream:
                        if isinstance(event, pai.PartStartEvent) and isinstance(event.part, pai.TextPart):
                            parts.append(event.part.content)
                        elif isinstance(event, pai.PartDeltaEvent) and isinstance(event.delta, pai.TextPartDelta):
                            parts.append(event.delta.content_delta)
        assert run.result is not None
        check(run.result.output, "".join(parts))
        return "".join(parts)

    return turn


def measured(prepare: Callable[[str, str], Turn]) -> Callable[..., float]:
    def run(url: str, n: int, length: int) -> float:
        turn, clock = prepare(url, str(length)), Clock()
        check(turn(), answer(length))  # on a new connection
        for _ in range(n):
            with clock:
                text = turn()
            check(text, answer(length))
        return clock.seconds / n * 1000

    return run


def measured_async(prepare: Callable[[str, str], AsyncTurn]) -> Callable[..., float]:
    async def main(url: str, n: int, length: int) -> float:
        turn, clock = prepare(url, str(length)), Clock()
        check(await turn(), answer(length))
        for _ in range(n):
            with clock:
                text = await turn()
            check(text, answer(length))
        return clock.seconds / n * 1000

    return lambda url, n, length: asyncio.run(main(url, n, length))


BY_HAND = "a loop by hand, openai"
CONTESTANTS = {
    "streamkit, Agent": Contestant(measured(streamkit)),
    BY_HAND: Contestant(measured(by_hand)),
    "openai-agents": Contestant(measured_async(openai_agents), ("agents", "openai-agents")),
    "pydantic-ai": Contestant(measured_async(pydantic_ai), ("pydantic_ai", "pydantic-ai-slim[openai]")),
}


def rows(profile: Profile) -> Iterator[Row]:
    with process("-m", __name__) as url, Workers(__name__, profile) as workers:
        for length in LENGTHS[: profile.pick(1, 2, 2)]:
            yield from contest(
                workers,
                CONTESTANTS,
                profile.pick(1, 2, 5),
                case=f"Chat, a call and {length} deltas",
                unit="ms a turn",
                baseline=BY_HAND,
                parameters={"url": url, "n": profile.pick(1, 5, 20), "length": length},
            )


if __name__ == "__main__":
    serve()
