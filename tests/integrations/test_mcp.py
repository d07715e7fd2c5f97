"""The tools of an MCP server, in a process of its own, through the package `mcp`.

pip install -e '.[test,integrations]'
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import openai
import pytest

import streamkit as sk
from streamkit.agent import mcp_tools
from streamkit.testing import ModelServer, Reply, ToolCall

from ..agent.parts import PNG, Approving, agent_on, every_provider, outputs_of
from ..faces import FACES, Face, async_faces, body

mcp = pytest.importorskip("mcp")

ON_ASYNCIO = pytest.mark.parametrize("face", [FACES["asyncio"]], ids=["asyncio"])
DONE = Reply("Done.")


@asynccontextmanager
async def session_of(notes: Path) -> AsyncIterator[Any]:
    """An initialized session with a server of its own, whose tools write to this file."""
    command = mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "tests.integrations.mcp_server", str(notes)]
    )
    async with mcp.stdio_client(command) as streams, mcp.ClientSession(*streams) as session:
        await session.initialize()
        yield session


@asynccontextmanager
async def agent_with(
    face: Face, notes: Path, *replies: Reply, provider: str = "openai_chat", **options: Any
) -> AsyncIterator[tuple[Any, ModelServer]]:
    """An agent that has a session among its tools, and its scripted model."""
    async with session_of(notes) as session:
        with ModelServer([*replies, DONE]) as server:
            async with agent_on(face, server, provider, tools=[session], **options) as talker:
                yield talker, server


def names_in(server: ModelServer, number: int) -> list[str]:
    """The names of the tools that a request of Chat Completions offers."""
    return [tool["function"]["name"] for tool in server.requests[number].body["tools"]]


def call(name: str, **arguments: Any) -> Reply:
    return Reply(ToolCall(name, arguments))


@async_faces
@body
async def test_a_session_brings_all_of_its_tools(face: Face, tmp_path: Path) -> None:
    """With their own schemas. What MCP calls by other characters than providers allow is called by its own name."""
    replies = [call("add", a=1), call("weather_now", city="Oslo"), call("count")]
    async with agent_with(face, tmp_path / "notes", *replies) as (talker, server):
        await talker.say("Go.")
    assert [outputs_of(server.requests[number]).popitem()[1] for number in (1, 2, 3)] == [
        "3",
        "sun in Oslo",
        '{"count":3}',
    ]
    assert names_in(server, 0)[:3] == ["add", "weather_now", "draw"]
    add = server.requests[0].body["tools"][0]["function"]
    assert (add["description"], add["parameters"]["required"], add["parameters"]["title"]) == (
        "Add two numbers.",
        ["a"],
        "addArguments",
    )
    assert add["parameters"]["properties"]["b"]["default"] is None  # what is null stays so
    outputs = [message for message in talker.messages if message.type == "tool_output"]
    assert [output.metadata.get("structured_content") for output in outputs] == [
        {"result": 3},
        {"result": "sun in Oslo"},
        {"count": 3},
    ]


@ON_ASYNCIO
@every_provider
@body
async def test_images_go_to_the_model_and_the_rest_is_named(face: Face, provider: str, tmp_path: Path) -> None:
    """Texts are joined by line feeds, of links the model reads the URI; files are messages of their own."""
    replies = [call("draw"), call("read")]
    async with agent_with(face, tmp_path / "notes", *replies, provider=provider) as (talker, server):
        await talker.say("Go.")
        await talker.say("And now?")  # the files in the conversation are in nobody's way
    (drawn,) = outputs_of(server.requests[1]).values()
    assert drawn == "a dot\n[image]\nand more"
    assert PNG in server.requests[1].content.decode()
    read = [*outputs_of(server.requests[2]).values()][-1]
    assert read == "notes\n[file: file:///report.pdf]\nhttps://example.com/rest"
    (file,) = [message for message in talker.messages if message.type == "file"]
    assert (file.format, file.content, file.metadata["media_type"]) == ("base64.pdf", "JVBERi0xLjc=", "application/pdf")


@async_faces
@body
async def test_progress_is_deltas_of_the_output(face: Face, tmp_path: Path) -> None:
    """The output replaces it."""
    handler = face.told()
    async with agent_with(face, tmp_path / "notes", call("download")) as (talker, _):
        await talker.say("Go.", handler)
    deltas = handler.of("on_tool_output_delta")
    assert "".join(delta.value for delta in deltas if not delta.replace) == "1 of 3\nalmost\n"
    assert [delta.value for delta in deltas if delta.replace] == ["done"]


@ON_ASYNCIO
@body
async def test_what_the_server_calls_an_error_is_one(face: Face, tmp_path: Path) -> None:
    """So are wrong arguments. The model reads it, there is a warning, and the run goes on; after the loss of the session too."""
    handler = face.told()
    replies = [call("fail"), call("add", a="x"), call("end"), call("add", a=1)]
    async with agent_with(face, tmp_path / "notes", *replies) as (talker, server):
        stream = await talker.say("Go.", handler)
    outputs = [message.content for message in talker.messages if message.type == "tool_output"]
    assert outputs[0] == "Error: the disk is full"
    assert "unable to parse string as an integer" in outputs[1]
    assert ["Connection closed" in output for output in outputs] == [False, False, True, True]
    assert [warning.code for warning in handler.of("on_warning")] == ["tool-failed"] * 4
    assert (stream.status, len(server.requests)) == ("completed", 5)


@pytest.mark.parametrize(
    ("face", "how"),
    [(FACES["asyncio"], "cancel"), (FACES["asyncio"], "timeout"), (FACES["trio"], "close")],
    ids=["asyncio-cancel", "asyncio-timeout", "trio-close"],
)
@body
async def test_a_call_that_is_stopped_is_cancelled_in_the_server(face: Face, how: str, tmp_path: Path) -> None:
    """By Stop, by leaving, and by the tool's timeout. Other calls of the session go on."""
    notes = tmp_path / "notes"
    async with session_of(notes) as session:
        timeout = 0.2 if how == "timeout" else None
        tools = await mcp_tools(session, only=["hang", "add"], timeout=timeout)
        with ModelServer([call("hang"), DONE]) as server:
            async with agent_on(face, server, tools=tools) as talker:
                async with talker.stream("Go.") as stream:
                    async for event in stream:
                        if isinstance(event, sk.ToolOutputDelta) and how != "timeout":
                            break
                    stream.cancel() if how == "cancel" else await stream.close()
                while not notes.exists():  # noqa: ASYNC110  # another process writes it
                    await anyio.sleep(0.01)
        assert notes.read_text() == "cancelled"
        assert (await session.call_tool("add", {"a": 1})).content[0].text == "3"


@async_faces
@body
async def test_tools_that_change_are_listed_again_between_steps(face: Face, tmp_path: Path) -> None:
    """The next model call offers the new one, which can be called."""
    replies = [call("add", a=1), call("grow"), call("shrink")]
    async with agent_with(face, tmp_path / "notes", *replies) as (talker, server):
        await talker.say("Go.")
    assert ["shrink" in names_in(server, number) for number in range(4)] == [False, False, True, True]
    assert [*outputs_of(server.requests[3]).values()] == ["3", "grown", "small"]


@ON_ASYNCIO
@pytest.mark.parametrize("fault", ["a tool of the same name", "the server has gone"])
@body
async def test_a_listing_that_fails_in_the_middle_of_a_run_is_a_warning(face: Face, fault: str, tmp_path: Path) -> None:
    """The tools stay as they were, and the run goes on."""

    def shrink() -> str:
        """Is there already."""
        return "own"

    grows = fault == "a tool of the same name"
    replies = [call("grow" if grows else "leave"), call("shrink"), DONE]
    handler = face.told()
    async with session_of(tmp_path / "notes") as session:
        with ModelServer(replies) as server:
            async with agent_on(face, server, tools=[session, shrink]) as talker:
                stream = await talker.say("Go.", handler)
        assert [*outputs_of(server.requests[2]).values()][1] == "own"
    listed = [warning.fault for warning in handler.of("on_warning") if warning.code == "tools-not-listed"]
    assert len(listed) == 1
    assert ("two tools have the name 'shrink'" if grows else "Connection closed") in listed[0]
    assert stream.status == "completed"


@ON_ASYNCIO
@body
async def test_two_servers_with_equal_names_need_a_prefix(face: Face, tmp_path: Path) -> None:
    """Without one the stream fails where it starts, before any request, and names the tool."""
    async with session_of(tmp_path / "one") as one, session_of(tmp_path / "two") as two:
        with ModelServer([call("b_add", a=1), DONE]) as server:
            async with agent_on(face, server, tools=[one, two]) as talker:
                with pytest.raises(sk.UsageError, match="two tools have the name 'add'"):
                    await talker.say("Go.")
            assert server.requests == []
            prefixed = [*await mcp_tools(one, prefix="a_"), *await mcp_tools(two, prefix="b_", only=["add"])]
            async with agent_on(face, server, tools=prefixed) as talker:
                await talker.say("Go.")
            assert outputs_of(server.requests[1]) == {"call_1_0": "3"}
            assert names_in(server, 0)[-1] == "b_add"


@ON_ASYNCIO
@body
async def test_confirm_may_be_decided_for_each_tool(face: Face, tmp_path: Path) -> None:
    """It gets the tool as `mcp` has it."""
    async with session_of(tmp_path / "notes") as session:
        tools = await mcp_tools(session, only=["add", "count"], confirm=lambda tool: tool.name == "add")
        with pytest.raises(sk.UsageError, match="not a bool"):
            await mcp_tools(session, confirm=lambda tool: tool.name)
        with ModelServer([Reply(ToolCall("count"), ToolCall("add", {"a": 1})), DONE]) as server:
            async with agent_on(face, server, tools=tools) as talker:
                approving = Approving()
                await talker.say("Go.", approving)
        assert [confirmation.subject.name for confirmation in approving.confirmations] == ["add"]
        with pytest.raises(sk.UsageError, match="no tool 'ad'; did you mean 'add'"):
            await mcp_tools(session, only=["ad"])
        with pytest.raises(sk.UsageError, match="list of names"):
            await mcp_tools(session, only="add")


@ON_ASYNCIO
@body
async def test_a_server_that_cannot_be_asked_ends_the_stream(face: Face, tmp_path: Path) -> None:
    """Before any request to the model."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(session_of(tmp_path / "notes"))
        with pytest.raises(mcp.MCPError):
            await session.call_tool("end")
        with ModelServer(DONE) as server:
            async with agent_on(face, server, tools=[session]) as talker:
                with pytest.raises(sk.SourceError, match="Connection closed"):
                    await talker.say("Go.")
            assert server.requests == []


@ON_ASYNCIO
@body
async def test_all_pages_are_listed(face: Face, tmp_path: Path) -> None:
    """A `Client` of mcp 2 is as good as its session. Where no change would be heard they are listed before each model call. The
    server is in this process."""
    types = pytest.importorskip("mcp.types")
    lowlevel = pytest.importorskip("mcp.server.lowlevel")
    names = [f"tool-{number}" for number in range(5)]

    async def on_list(context: Any, params: Any) -> Any:
        at = int(params.cursor) if params is not None and params.cursor else 0
        tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in names[at : at + 2]]
        return types.ListToolsResult(tools=tools, next_cursor=str(at + 2) if at + 2 < len(names) else None)

    async def on_call(context: Any, params: Any) -> Any:
        names.append("late")  # nobody is notified: on this protocol a client would have to subscribe
        return types.CallToolResult(content=[types.TextContent(text=params.name)])

    paged = lowlevel.Server("paged", on_list_tools=on_list, on_call_tool=on_call)
    async with mcp.Client(paged) as client:
        with ModelServer([call("tool-4"), DONE]) as server:
            async with agent_on(face, server, tools=[client]) as talker:
                await talker.say("Go.")
            assert (names_in(server, 0), names_in(server, 1)) == (names[:-1], names)
            assert outputs_of(server.requests[1]) == {"call_1_0": "tool-4"}


@ON_ASYNCIO
@body
async def test_an_agent_as_a_tool_has_sessions_too(face: Face, tmp_path: Path) -> None:
    """Two calls of it run beside each other, and list the server's tools each."""
    replies = [Reply(ToolCall("inner", {"input": "one"}), ToolCall("inner", {"input": "two"}))]
    async with session_of(tmp_path / "notes") as session:
        answers = {"one": [call("add", a=1), Reply("Three.")], "two": [call("add", a=2), Reply("Four.")]}

        def answer(request: Any) -> Reply:
            first = request.body["messages"][0]["content"]
            return replies.pop() if first == "Go." and replies else answers.get(first, [DONE]).pop(0)

        with ModelServer(answer) as server:
            async with (
                agent_on(face, server, name="inner", tools=[session]) as inner,
                agent_on(face, server, tools=[inner.agent.as_tool()]) as talker,
            ):
                await talker.say("Go.")
        assert [*outputs_of(server.requests[-1]).values()] == ["Three.", "Four."]


def test_an_agent_uses_a_session_through_its_portal(tmp_path: Path) -> None:
    """The session itself is refused, with what helps. Stopping and a tool's timeout cancel the call in the server."""
    notes = tmp_path / "notes"
    replies = [call("download"), call("hang"), call("hang"), DONE]
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(session_of(notes)) as session,
        ModelServer(replies) as server,
        openai.OpenAI(base_url=server.url, api_key="any", max_retries=0) as client,
    ):
        with pytest.raises(sk.UsageError, match="`AsyncAgent`, or `mcp_tools"):
            sk.Agent(client, model="m", tools=[session])
        agent = sk.Agent(client, model="m", tools=portal.call(partial(mcp_tools, session, portal=portal)))
        texts: list[str] = []
        with agent.stream("Go.") as stream:
            for event in stream:
                texts += [event.value] if isinstance(event, sk.ToolOutputDelta) else []
                if texts[-1:] == ["waiting\n"]:
                    break
            stream.cancel()
        wait_for(portal, notes)
        quick = portal.call(partial(mcp_tools, session, portal=portal, only=["hang"], timeout=0.2))
        other = sk.Agent(client, model="m", tools=quick)
        other.stream("Go.").until_done()
        wait_for(portal, notes)
        assert portal.call(session.call_tool, "add", {"a": 1}).content[0].text == "3"
    assert "".join(texts).replace("done", "") == "1 of 3\nalmost\nwaiting\n"
    assert [message.metadata.get("action") for message in agent.messages][-1] == "interrupted"
    assert [message.content for message in other.messages if message.type == "tool_output"] == [
        "Error: the tool took longer than 0.2 seconds and was stopped"
    ]


def wait_for(portal: Any, notes: Path) -> None:
    """Wait until the server has written the file, and remove it."""
    while not notes.exists():
        portal.call(anyio.sleep, 0.01)
    notes.unlink()
