"""The client of the package `ollama`: its streams as sources, and agents over it, before the model server and a strict one.

pip install -e '.[test,integrations]'
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import openai
import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reasoning, Reply, ServiceError, ToolCall

from ..faces import Face, body, every_face
from ..forms import told
from ..recorded import SHARED, own_recordings, streams_in
from ..strict_servers import Check, StrictServer

ollama = pytest.importorskip("ollama")

ASKED: list[Any] = [{"role": "user", "content": "How is the weather?"}]
WEATHER = [Reasoning("Two cities."), ToolCall("weather", {"city": "Oslo"}), ToolCall("weather", {"city": "Bergen"})]


def weather(city: str) -> str:
    """Tells the weather.

    Args:
        city: the city's name
    """
    return f"{city}: rain"


@contextmanager
def client_of(url: str) -> Iterator[Any]:
    client = ollama.Client(host=url)
    try:
        yield client
    finally:
        client.close()


def ask(client: Any) -> Any:
    return client.chat(model="m", messages=ASKED, stream=True)


# -- its streams


@every_face
@body
async def test_its_stream_is_a_source(face: Face) -> None:
    """Also passed as a function. Call ids, which its objects lack, are there: the bytes of its answer are read."""
    with ModelServer(Reply(*WEATHER, "Rain.")) as server:
        client = ollama.AsyncClient(host=server.root_url) if face.is_async else ollama.Client(host=server.root_url)
        for source in (lambda: ask(client), ask(client)):
            stream = face.stream(source)
            assert await stream.get_final_text() == "Rain."
            calls = [one for one in stream.messages if isinstance(one, sk.ToolCallMessage)]
            assert [one.arguments["city"] for one in calls] == ["Oslo", "Bergen"]
            assert all((one.call_id or "").startswith("call_") for one in calls)
            assert stream.usage is not None
            assert stream.usage.input_tokens == 10
        await close(client)


async def close(client: Any) -> None:
    closing = client.close()
    if closing is not None:
        await closing


@every_face
@body
async def test_leaving_our_stream_closes_its_connection(face: Face) -> None:
    """So the server stops generating. Whether the bytes are read, or its objects where it was pulled before."""
    with ModelServer(Reply("Once upon a time", never_ends=True)) as server:
        client = ollama.AsyncClient(host=server.root_url) if face.is_async else ollama.Client(host=server.root_url)
        source = ask(client)
        if face.is_async:
            source = await source
        async with face.stream(source) as stream:
            async for _ in stream.text_deltas:
                break
        assert (
            await anyio.to_thread.run_sync(server.wait_for_disconnect)
            if face.is_async
            else server.wait_for_disconnect()
        )
        await close(client)


def test_what_was_pulled_or_wrapped_is_iterated() -> None:
    """Its objects say the same, without the ids of calls."""
    with ModelServer(Reply(*WEATHER, "Rain.")) as server, client_of(server.root_url) as client:
        pulled = ask(client)
        first = next(pulled)
        stream = sk.stream(part for part in ask(client))
        assert stream.get_final_text() == "Rain."
        assert [one.call_id for one in stream.messages if isinstance(one, sk.ToolCallMessage)] == [None, None]
        rest = sk.stream(pulled)
        assert rest.get_final_text() == "Rain."
        assert first.message.thinking + rest.messages[0].content == "Two cities."


def paths() -> list[Any]:
    return [*own_recordings("ollama", complete=True), *streams_in(SHARED / "ollama")]


def test_its_objects_say_what_the_lines_say() -> None:
    """In a list and one by one, from a thread and from a task; but for what they drop."""
    for path in paths():
        items = [json.loads(line) for line in path.read_bytes().splitlines()]
        if "error" in items[-1] or "message" not in items[0]:
            continue  # its client raises; the objects of texts have another class
        for item in items:
            for call in item["message"].get("tool_calls", ()):
                call.pop("id", None)
                call["function"].pop("index", None)
        objects = [ollama.ChatResponse(**item) for item in items]
        expected = plain(told("ollama", items))
        for source in (objects, iter(objects)):
            assert plain(told("ollama", source)) == expected, path
        assert plain(told("ollama", each(objects), backend="asyncio")) == expected, path


def plain(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key != "raw"} for line in lines]


async def each(items: list[Any]) -> Any:
    for item in items:
        yield item


def test_whole_answers_are_sources() -> None:
    """Of a request without a stream, and of `generate`."""
    with ModelServer(Reply("Hello.")) as server, client_of(server.root_url) as client:
        assert sk.stream(client.chat(model="m", messages=ASKED)).get_final_text() == "Hello."
    text = ollama.GenerateResponse(model="m", response="Hello.", done=True, done_reason="stop")
    assert sk.stream(text).get_final_text() == "Hello."


@every_face
@pytest.mark.parametrize("how", ["before", "in the middle", "cut off"])
@body
async def test_how_it_fails(face: Face, how: str) -> None:
    """As any other stream: a refused request, an error line, a connection that breaks."""
    reply = {
        "before": Reply(status=404, error=ServiceError("model 'm' not found")),
        "in the middle": Reply("Half an answer.", error_after=2, error=ServiceError("unexpected EOF")),
        "cut off": Reply("Half an answer.", cut_after=2),
    }[how]
    raised, text = {
        "before": (sk.SourceError, "404.*model 'm' not found"),
        "in the middle": (sk.RunFailedError, "unexpected EOF"),
        "cut off": (sk.SourceError, "peer closed connection"),
    }[how]
    with ModelServer(reply) as server:
        client = ollama.AsyncClient(host=server.root_url) if face.is_async else ollama.Client(host=server.root_url)
        stream = face.stream(lambda: ask(client))
        with pytest.raises(raised, match=text):
            await stream.until_done()
        assert [message.status for message in stream.messages] in ([], ["failed"], ["incomplete"])
        assert bool(stream.messages) is (how != "before")
        await close(client)


# -- agents


def test_an_agent_calls_tools_over_it() -> None:
    """With reasoning. The client drops the ids of calls on the way back; the results stand in the order of the calls."""
    with ModelServer([Reply(*WEATHER), Reply("Rain everywhere.")]) as server, client_of(server.root_url) as client:
        agent = sk.Agent(client, model="m", tools=[weather], instructions="Be brief.", think=True)
        stream = agent.stream("How is the weather?")
        assert stream.get_final_text() == "Rain everywhere."
        first, second = (request.body for request in server.requests)
    assert first["think"] is True
    assert first["messages"][0] == {"role": "system", "content": "Be brief."}
    parameters = first["tools"][0]["function"]["parameters"]
    assert parameters["properties"]["city"] == {"type": "string", "description": "the city's name"}
    _, _, answer, *results = second["messages"]
    assert answer["thinking"] == "Two cities."
    assert [call["function"]["arguments"] for call in answer["tool_calls"]] == [{"city": "Oslo"}, {"city": "Bergen"}]
    assert [result["content"] for result in results] == ["Oslo: rain", "Bergen: rain"]


@dataclass
class Place:
    city: str
    days: list[int]


def plan(place: Place, unit: str = "C", note: str | None = None) -> str:
    """Plans a trip."""
    return "done"


def test_the_model_gets_the_schema_of_each_parameter() -> None:
    """Of one that is not plain, the client drops what it is made of: that stands in its description."""
    with ModelServer(Reply("Yes.")) as server, client_of(server.root_url) as client:
        sk.Agent(client, model="m", tools=[plan]).stream("Plan.").until_done()
        sent = server.requests[0].body["tools"][0]["function"]["parameters"]["properties"]
    assert sent["unit"] == {"type": "string"}
    assert sent["place"]["type"] == "object"
    _, _, schema = sent["place"]["description"].partition("It fits this JSON schema: ")
    assert json.loads(schema)["properties"]["days"] == {"type": "array", "items": {"type": "integer"}}
    assert '"null"' in sent["note"]["description"]


def test_an_async_agent_runs_over_it() -> None:
    async def run() -> str:
        client = ollama.AsyncClient(host=server.root_url)
        text = await sk.AsyncAgent(client, model="m", tools=[weather]).stream("Go.").get_final_text()
        await client.close()
        return str(text)

    for backend in ("asyncio", "trio"):
        with ModelServer([Reply(*WEATHER), Reply("Rain.")]) as server:
            assert anyio.run(run, backend=backend) == "Rain."


def test_an_agent_is_asked_for_an_output_of_a_type() -> None:
    """Its schema is the request's `format`."""
    with ModelServer(Reply('{"city": "Oslo"}')) as server, client_of(server.root_url) as client:
        agent = sk.Agent(client, model="m", output_type=dict[str, str])
        assert agent.stream("Where?").get_final_output() == {"city": "Oslo"}
        assert server.requests[0].body["format"]["type"] == "object"


def test_an_option_that_it_does_not_have_is_refused_with_the_right_place() -> None:
    with client_of("http://127.0.0.1:1") as client, pytest.raises(sk.UsageError, match=r"'top_p'.*`options="):
        sk.Agent(client, model="m", top_p=0.5)


def test_a_conversation_goes_on_with_another_provider_and_comes_back() -> None:
    """Begun with Ollama, whose calls have no ids; then Chat Completions; then Ollama again."""
    script = [
        Reply(*WEATHER),
        Reply("Rain."),
        Reply(ToolCall("weather", {"city": "Rome"})),
        Reply("Sun."),
        Reply("Bye."),
    ]
    with ModelServer(script) as server, client_of(server.root_url) as client:
        agent = sk.Agent(client, model="m", tools=[weather])
        agent.stream("Here?").until_done()
        with openai.OpenAI(base_url=server.url, api_key="any") as other:
            second = sk.Agent(other, model="m", tools=[weather], messages=agent.messages)
            assert second.stream("In Rome?").get_final_text() == "Sun."
        third = sk.Agent(client, model="m", tools=[weather], messages=second.messages)
        assert third.stream("Bye.").get_final_text() == "Bye."
        sent = server.requests[-1].body["messages"]
    roles = ["user", "assistant", "tool", "tool", "assistant", "user", "assistant", "tool", "assistant", "user"]
    assert [message["role"] for message in sent] == roles


# -- a server that refuses what Ollama refuses


def check_ollama(answers: list[dict[str, Any]]) -> Check:
    """The rules of Ollama for a request, and those of good manners: an answer comes back as it was sent."""

    def check(request: Mapping[str, Any]) -> str | None:
        waiting: list[str] = []
        for message in request["messages"]:
            if not isinstance(message.get("content", ""), str):
                return "json: cannot unmarshal array into Go struct field ChatRequest.messages of type string"
            if message["role"] == "tool":
                if not waiting or message.get("tool_name") != waiting.pop(0):
                    return "a result without its call"
                continue
            if waiting:
                return f"there is no result of {waiting}"
            for call in message.get("tool_calls", ()):
                if not isinstance(call["function"]["arguments"], dict):
                    return "json: cannot unmarshal string into Go struct field .arguments of type api.ToolCallFunctionArguments"
                waiting.append(call["function"]["name"])
            if message["role"] == "assistant" and message not in answers:
                return f"the answer was altered: {message}"
        return f"there is no result of {waiting}" if waiting else None

    return check


def test_the_next_request_is_one_that_a_strict_server_takes() -> None:
    """Through the client, which drops ids: as the answers came but for these."""
    calls = [{"function": {"name": "weather", "arguments": {"city": "Oslo"}}}] * 2
    head = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": False}
    end = {**head, "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}
    told_calls = [{"id": f"call_{number}", **call} for number, call in enumerate(calls)]
    first: list[dict[str, Any]] = [
        {**head, "message": {"role": "assistant", "content": "", "thinking": "Hm."}},
        {**head, "message": {"role": "assistant", "content": "I look.", "tool_calls": told_calls}},
        end,
    ]
    second = [{**head, "message": {"role": "assistant", "content": "Rain."}}, end]
    answers = [{"role": "assistant", "content": "I look.", "thinking": "Hm.", "tool_calls": calls}]
    answers.append({"role": "assistant", "content": "Rain."})
    with StrictServer([first, second, second], check_ollama(answers), framing="application/x-ndjson") as server:
        with client_of(server.url) as client:
            agent = sk.Agent(client, model="m", tools=[weather])
            assert agent.stream("Here?").get_final_text() == "Rain."
            agent.stream("Once more.").until_done()
        assert server.refusals == []
        assert len(server.requests) == 3
