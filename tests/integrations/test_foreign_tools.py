"""Tools of LangChain and smolagents among an agent's tools.

pip install -e '.[test,integrations]'
"""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated, Any

import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reply, ToolCall

from ..agent.parts import Approving, agent_on, outputs_of
from ..faces import FACES, Face, async_faces, body, every_face

langchain = pytest.importorskip("langchain_core.tools")
smolagents = pytest.importorskip("smolagents")

DONE = Reply("Done.")


@langchain.tool("look up")
def look_up(city: str, days: int = 1, user: Annotated[str, langchain.InjectedToolArg] = "") -> str:
    """Look up the weather."""
    return f"{city} for {days}{user}"


async def look_up_later(city: str) -> str:
    """Look up the weather."""
    return f"later in {city}"


class Careful(langchain.BaseTool):
    name: str = "careful"
    description: str = "Runs in both ways."

    def _run(self, city: str) -> str:
        return f"plain {city}"

    async def _arun(self, city: str) -> str:
        return f"async {city}"


class Forecast(smolagents.Tool):  # type: ignore[misc]
    name = "forecast"
    description = "Forecasts the weather."
    inputs = {
        "city": {"type": "string", "description": "where"},
        "days": {"type": "integer", "description": "how far ahead", "nullable": True},
    }
    output_type = "string"

    def forward(self, city: str, days: int | None = None) -> str:
        return f"{city} in {days}"


class Picture(smolagents.Tool):  # type: ignore[misc]
    name = "picture"
    description = "Draws."
    inputs = {"of": {"type": "any", "description": "what to draw"}}
    output_type = "image"

    def forward(self, of: Any) -> Any:
        from PIL import Image

        return Image.new("RGB", (1, 1))


def schemas_in(server: ModelServer) -> dict[str, Any]:
    functions = [tool["function"] for tool in server.requests[0].body["tools"]]
    return {function["name"]: function for function in functions}


@every_face
@body
async def test_a_langchain_tool_is_one_of_the_agent(face: Face) -> None:
    """By its name, description and schema, without what LangChain injects. What does not fit is an error output."""
    replies = [Reply(ToolCall("look_up", {"city": "Oslo"})), Reply(ToolCall("look_up", {"days": 2})), DONE]
    with ModelServer(replies) as server:
        async with agent_on(face, server, tools=[look_up]) as talker:
            await talker.say("Go.")
        schema = schemas_in(server)["look_up"]
        assert schema["description"] == "Look up the weather."
        assert [*schema["parameters"]["properties"]] == ["city", "days"]
        assert schema["parameters"]["required"] == ["city"]
        first, second = outputs_of(server.requests[2]).values()
        assert first == "Oslo for 1"
        assert second.startswith("Error: ValidationError")


@pytest.mark.parametrize("face", [FACES["sync"], FACES["asyncio"]], ids=["sync", "asyncio"])
@body
async def test_a_langchain_tool_with_a_coroutine_is_awaited_where_it_can_be(face: Face) -> None:
    """One that has nothing else is refused by `Agent`. LangChain's own `ainvoke` needs asyncio."""
    only_async = langchain.StructuredTool.from_function(coroutine=look_up_later)
    replies = [Reply(ToolCall("careful", {"city": "Oslo"})), Reply(ToolCall("look_up_later", {"city": "Rome"})), DONE]
    with ModelServer(replies) as server:
        if not face.is_async:
            async with face.client(server) as client:
                with pytest.raises(sk.UsageError, match="tool look_up_later is `async def`: use `AsyncAgent`"):
                    sk.Agent(client, model="m", tools=[only_async])
        async with agent_on(face, server, tools=[Careful(), *([only_async] if face.is_async else [])]) as talker:
            await talker.say("Go.")
        outputs = [*outputs_of(server.requests[2]).values()]
    if face.is_async:
        assert outputs == ["async Oslo", "later in Rome"]
    else:
        assert outputs[0] == "plain Oslo"


@every_face
@body
async def test_a_smolagents_tool_is_one_of_the_agent(face: Face) -> None:
    """By its name, description and inputs; its image goes to the model."""
    replies = [Reply(ToolCall("forecast", {"city": "Oslo"})), Reply(ToolCall("picture", {"of": "a dot"})), DONE]
    with ModelServer(replies) as server:
        async with agent_on(face, server, tools=[Forecast(), Picture()]) as talker:
            await talker.say("Go.")
        assert schemas_in(server)["forecast"]["parameters"] == {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "where"},
                "days": {"type": "integer", "description": "how far ahead"},
            },
            "required": ["city"],
        }
        assert schemas_in(server)["picture"]["parameters"]["properties"] == {"of": {"description": "what to draw"}}
        assert outputs_of(server.requests[1]) == {"call_1_0": "Oslo in None"}
        assert "data:image/png;base64," in server.requests[2].content.decode()


@async_faces
@body
async def test_such_a_tool_may_be_confirmed(face: Face) -> None:
    """`tool(…)` takes it as it takes a function."""
    tools = [sk.tool(look_up, name="weather", confirm=True), sk.tool(Forecast(), confirm=True)]
    replies = [Reply(ToolCall("weather", {"city": "Oslo"}), ToolCall("forecast", {"city": "Rome"})), DONE]
    with ModelServer(replies) as server:
        async with agent_on(face, server, tools=tools) as talker:
            approving = Approving()
            await talker.say("Go.", approving)
        assert [confirmation.subject.name for confirmation in approving.confirmations] == ["weather", "forecast"]
        assert [*outputs_of(server.requests[1]).values()] == ["Oslo for 1", "Rome in None"]


def test_nothing_is_imported_to_recognise_them() -> None:
    """With functions alone neither these packages nor what streamkit has for MCP are imported."""
    program = (
        "import sys, openai, streamkit as sk\n"
        "def look(city: str) -> str: return city\n"
        "sk.AsyncAgent(openai.AsyncOpenAI(api_key='any'), model='m', tools=[look])\n"
        "print([name for name in ('mcp', 'langchain_core', 'smolagents', 'streamkit.agent.mcp') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
