"""Tools that bring their own schema, and tools whose result comes in pieces or has several parts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import streamkit as sk
from streamkit.agent import Tool, ToolContext, tool
from streamkit.testing import ModelServer, Reply, ToolCall

from ..faces import Face, async_faces, body, both_shells
from .parts import PNG, agent_on, every_provider, outputs_of

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@both_shells
@every_provider
@body
async def test_a_tool_may_bring_its_own_schema(face: Face, provider: str) -> None:
    """It is sent as it is, and the arguments come as keywords; `**kwargs` is allowed here alone."""
    calls: list[dict[str, Any]] = []

    def look(context: ToolContext, **kwargs: Any) -> str:
        calls.append({**kwargs, "id": context.call_id})
        return "sun"

    with pytest.raises(sk.UsageError, match="parameters="):
        Tool(look)
    foreign = tool(name="look-up", description="Look.", parameters=SCHEMA)(look)
    assert (foreign.parameters, Tool(look, parameters=SCHEMA).parameters) == (SCHEMA, SCHEMA)
    with ModelServer([Reply(ToolCall("look-up", {"city": "Oslo"})), Reply("Done.")]) as server:
        async with agent_on(face, server, provider, tools=[foreign]) as talker:
            await talker.say("Go.")
        assert str(SCHEMA["properties"]) in str(server.requests[0].body["tools"])
        assert outputs_of(server.requests[1]) == {"call_1_0": "sun"}
    assert calls == [{"city": "Oslo", "id": "call_1_0"}]


@pytest.mark.parametrize("arguments", ["[]", "{", '{"other": 1}'])
def test_arguments_that_the_function_cannot_take_are_refused(arguments: str) -> None:
    foreign = Tool(lambda city: city, name="look", parameters=SCHEMA)
    with pytest.raises(ValueError, match="invalid arguments for look"):
        foreign.check(arguments)


def pieces() -> Iterator[str]:
    yield "one, "
    yield "two"


def stream() -> Any:
    return sk.stream([sk.TextDelta("m", "one, "), sk.TextDelta("m", "two"), sk.StreamEnd()])


async def async_pieces() -> AsyncIterator[str]:
    yield "one, "
    yield "two"


async def async_stream() -> Any:
    return sk.astream([sk.TextDelta("m", "one, "), sk.TextDelta("m", "two"), sk.StreamEnd()])


async def check_pieces(face: Face, function: Any) -> None:
    with ModelServer([Reply(ToolCall(function.__name__)), Reply("Done.")]) as server:
        async with agent_on(face, server, tools=[function]) as talker:
            handler = face.told()
            await talker.say("Go.", handler)
        assert outputs_of(server.requests[1]) == {"call_1_0": "one, two"}
    assert "".join(delta.value for delta in handler.of("on_tool_output_delta") if not delta.replace) == "one, two"


@both_shells
@pytest.mark.parametrize("function", [pieces, stream])
@body
async def test_a_result_may_come_in_pieces(face: Face, function: Any) -> None:
    """Of a generator or a stream: each piece is progress, all of them are the output."""
    await check_pieces(face, function)


@async_faces
@pytest.mark.parametrize("function", [async_pieces, async_stream])
@body
async def test_an_async_result_may_come_in_pieces(face: Face, function: Any) -> None:
    await check_pieces(face, function)


@both_shells
@every_provider
@body
async def test_a_result_may_be_texts_and_images(face: Face, provider: str) -> None:
    """Texts may be messages, too."""

    def draw() -> Any:
        return [sk.TextMessage(content="a dot"), sk.ImageMessage(format="base64.png", content=PNG), "and more"]

    with ModelServer([Reply(ToolCall("draw")), Reply("I see.")]) as server:
        async with agent_on(face, server, provider, tools=[draw]) as talker:
            await talker.say("Go.")
        (output,) = outputs_of(server.requests[1]).values()
        assert PNG in server.requests[1].content.decode()
    assert (output.startswith("a dot\n"), output.endswith("\nand more")) == (True, True)


@both_shells
@every_provider
@body
async def test_a_result_may_have_files_and_metadata(face: Face, provider: str) -> None:
    """A file is a message of the call's, of which the model reads what it is; the metadata of a `ToolOutputMessage` is the output's,
    and goes to nobody else."""

    def report() -> Any:
        file = sk.FileMessage(format="base64.pdf", content="UERG", metadata={"path": "report.pdf"})
        return [sk.ToolOutputMessage(content="3 rows", metadata={"rows": 3}), file]

    with ModelServer([Reply(ToolCall("report")), Reply("I see."), Reply("Still.")]) as server:
        async with agent_on(face, server, provider, tools=[report]) as talker:
            stream = await talker.say("Go.")
            await talker.say("And now?")
            conversation = talker.messages
        assert [*outputs_of(server.requests[1]).values()] == ["3 rows\n[file: report.pdf]"]
        assert not any(word in str(request.body) for request in server.requests for word in ("UERG", "'rows'"))
    for messages in (stream.messages, conversation):
        output, file = (next(one for one in messages if one.type == kind) for kind in ("tool_output", "file"))
        assert (output.metadata, file.content, file.role, file.call_id) == (
            {"rows": 3},
            "UERG",
            "computer",
            output.call_id,
        )


def test_the_parameters_of_a_tool_are_those_of_an_object() -> None:
    with pytest.raises(sk.UsageError, match="JSON schema of an object, not of 'array'"):
        tool(name="f", parameters={"type": "array"})(lambda **arguments: None)
