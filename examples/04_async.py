"""Async: a handler with `async def` hooks answers a tool call, and the stream goes on over the next response.

    python examples/04_async.py

Without OPENAI_API_KEY a scripted model answers, on this machine; with it, OpenAI does.
"""

from __future__ import annotations

import asyncio
from typing import Any

from _model import async_model

import streamkit as sk
from streamkit.testing import Reply, ToolCall

SCRIPT = (
    Reply(ToolCall("get_weather", {"city": "Oslo"}), ToolCall("get_weather", {"city": "Rome"}), interleave=True),
    Reply("It rains in Oslo, and the sun shines in Rome.", delay=0.02),
)
QUESTION: dict[str, Any] = {"role": "user", "content": "How is the weather in Oslo and in Rome?"}
TOOL: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city now.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


async def get_weather(city: str) -> str:
    await asyncio.sleep(0.1)  # all calls run side by side, while the stream goes on
    return {"Oslo": "rain", "Rome": "sun"}.get(city, "fog")


class Weather(sk.AsyncEventHandler):
    """Answers the calls, prints the text."""

    async def on_tool_call_done(self, message: sk.ToolCallMessage) -> None:
        print("call:", message.name, message.content)
        if message.waiting:
            message.respond(get_weather(str(message.arguments.get("city"))))

    async def on_tool_output_done(self, message: sk.ToolOutputMessage) -> None:
        print("output:", message.content)

    async def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        print(delta.value, end="", flush=True)


async def main() -> None:
    async with async_model(*SCRIPT) as (client, name):
        create: Any = client.responses.create  # its TypedDicts are narrower than the dicts here

        async def ask(stream: sk.StreamState | None = None) -> Any:
            so_far = sk.to_input(stream.messages, "openai_responses") if stream else []
            return await create(model=name, input=[QUESTION, *so_far], tools=[TOOL], stream=True)

        async with sk.astream(ask, Weather(), then=ask) as stream:
            await stream.until_done()
        print(f"\n({len(stream.messages)} messages, {stream.status})")


asyncio.run(main())
