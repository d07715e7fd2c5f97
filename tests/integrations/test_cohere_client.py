"""The client of the package `cohere`: its streams as sources, and agents over it, before the model server and a strict one.

pip install -e '.[test,integrations]'
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import anthropic
import anyio
import httpx
import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reasoning, Reply, ServiceError, ToolCall

from ..faces import Face, body, every_face
from ..forms import told
from ..recorded import SHARED, own_recordings, streams_in
from ..strict_servers import Check, StrictServer

cohere = pytest.importorskip("cohere")

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
    with httpx.Client() as http:
        yield cohere.ClientV2(api_key="any", base_url=url, httpx_client=http, max_retries=0)


def of_face(face: Face, server: ModelServer) -> tuple[Any, Any]:
    """A client for the face, and the HTTP client to close."""
    http: Any = httpx.AsyncClient() if face.is_async else httpx.Client()
    kind = cohere.AsyncClientV2 if face.is_async else cohere.ClientV2
    return kind(api_key="any", base_url=server.root_url, httpx_client=http, max_retries=0), http


async def close(http: Any) -> None:
    if isinstance(http, httpx.AsyncClient):
        await http.aclose()
    else:
        http.close()


def ask(client: Any) -> Any:
    return client.chat_stream(model="m", messages=ASKED)


# -- its streams


@every_face
@body
async def test_its_stream_is_a_source(face: Face) -> None:
    """The generator, a function that returns it, and the raw response."""
    with ModelServer(Reply(*WEATHER, "Rain.")) as server:
        client, http = of_face(face, server)
        raw = client.with_raw_response.chat_stream(model="m", messages=ASKED)
        for source in (lambda: ask(client), ask(client), raw):
            stream = face.stream(source)
            assert await stream.get_final_text() == "Rain."
            calls = [one for one in stream.messages if isinstance(one, sk.ToolCallMessage)]
            assert [one.arguments["city"] for one in calls] == ["Oslo", "Bergen"]
            assert stream.messages[0].content == "Two cities."
            assert stream.usage is not None
            assert stream.usage.input_tokens == 10
        await close(http)


@every_face
@body
async def test_leaving_our_stream_closes_its_connection(face: Face) -> None:
    with ModelServer(Reply("Once upon a time", never_ends=True)) as server:
        client, http = of_face(face, server)
        async with face.stream(ask(client)) as stream:
            async for _ in stream.text_deltas:
                break
        assert (
            await anyio.to_thread.run_sync(server.wait_for_disconnect)
            if face.is_async
            else server.wait_for_disconnect()
        )
        await close(http)


def test_what_was_pulled_or_wrapped_is_iterated() -> None:
    """Its objects say the same."""
    with ModelServer(Reply(*WEATHER, "Rain.")) as server, client_of(server.root_url) as client:
        pulled = ask(client)
        next(pulled)
        for source in (pulled, (event for event in ask(client))):
            stream = sk.stream(source)
            assert stream.get_final_text() == "Rain."
            assert [one.type for one in stream.messages] == ["reasoning", "tool_call", "tool_call", "message"]


def test_its_objects_say_what_the_events_say() -> None:
    """In a list and one by one, from a thread and from a task."""
    for path in [*own_recordings("cohere", complete=True), *streams_in(SHARED / "cohere")]:
        items, objects = read(path.read_bytes()), read_by_client(path.read_bytes())
        expected = plain(told("cohere", items))
        for source in (objects, iter(objects)):
            assert plain(told("cohere", source)) == expected, path
        assert plain(told("cohere", each(objects), backend="asyncio")) == expected, path


def read(data: bytes) -> list[Any]:
    lines = [line.removeprefix(b"data: ") for line in data.splitlines()]
    return [json.loads(line) for line in lines if line.startswith(b"{")]


def read_by_client(data: bytes) -> list[Any]:
    """What the client makes of a body, over HTTP."""
    events = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in read(data))
    with ModelServer(Reply(raw=events.encode())) as server, client_of(server.root_url) as client:
        return [*ask(client)]


def plain(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the items, and what the SDK adds to a citation."""
    kept = [{key: value for key, value in line.items() if key != "raw"} for line in lines]
    for line in kept:
        for note in (line.get("annotation"), *(line.get("annotations") or ())):
            if note is not None:
                note.pop("raw", None)
    return kept


async def each(items: list[Any]) -> Any:
    for item in items:
        yield item


def test_a_whole_answer_is_a_source() -> None:
    with ModelServer(Reply(*WEATHER, "Hello.")) as server, client_of(server.root_url) as client:
        stream = sk.stream(client.chat(model="m", messages=ASKED))
        assert stream.get_final_text() == "Hello."
        assert sorted(one.type for one in stream.messages) == ["message", "reasoning", "tool_call", "tool_call"]


@every_face
@pytest.mark.parametrize("how", ["before", "in the middle", "cut off"])
@body
async def test_how_it_fails(face: Face, how: str) -> None:
    """Also where the client itself reports nothing: an error in the last event."""
    reply = {
        "before": Reply(status=404, error=ServiceError("model 'm' not found")),
        "in the middle": Reply("Half an answer.", error_after=2, error=ServiceError("no answer")),
        "cut off": Reply("Half an answer.", cut_after=2),
    }[how]
    raised, text = {
        "before": (sk.SourceError, "model 'm' not found"),
        "in the middle": (sk.RunFailedError, "no answer"),
        "cut off": (sk.SourceError, "peer closed connection"),
    }[how]
    with ModelServer(reply) as server:
        client, http = of_face(face, server)
        stream = face.stream(lambda: ask(client))
        with pytest.raises(raised, match=text):
            await stream.until_done()
        assert bool(stream.messages) is (how != "before")
        await close(http)


# -- agents


def test_an_agent_calls_tools_over_it() -> None:
    """With thinking, which goes back, and options of the client's method."""
    with ModelServer([Reply(*WEATHER), Reply("Rain everywhere.")]) as server, client_of(server.root_url) as client:
        agent = sk.Agent(client, model="m", tools=[weather], instructions="Be brief.", temperature=0.5)
        assert agent.stream("How is the weather?").get_final_text() == "Rain everywhere."
        first, second = (request.body for request in server.requests)
    assert (first["temperature"], first["messages"][0]) == (0.5, {"role": "system", "content": "Be brief."})
    parameters = first["tools"][0]["function"]["parameters"]
    assert parameters["properties"]["city"] == {"type": "string", "description": "the city's name"}
    _, _, answer, *results = second["messages"]
    assert answer["content"] == [{"type": "thinking", "thinking": "Two cities."}]
    assert [call["function"]["arguments"] for call in answer["tool_calls"]] == [
        '{"city": "Oslo"}',
        '{"city": "Bergen"}',
    ]
    assert [(one["tool_call_id"], one["content"]) for one in results] == [
        (call["id"], f"{json.loads(call['function']['arguments'])['city']}: rain") for call in answer["tool_calls"]
    ]


def test_an_async_agent_runs_over_it() -> None:
    async def run() -> str:
        async with httpx.AsyncClient() as http:
            client = cohere.AsyncClientV2(api_key="any", base_url=server.root_url, httpx_client=http)
            return str(await sk.AsyncAgent(client, model="m", tools=[weather]).stream("Go.").get_final_text())

    for backend in ("asyncio", "trio"):
        with ModelServer([Reply(*WEATHER), Reply("Rain.")]) as server:
            assert anyio.run(run, backend=backend) == "Rain."


def test_an_agent_is_asked_for_an_output_of_a_type() -> None:
    """Its schema is in the format of the response."""
    with ModelServer(Reply('{"city": "Oslo"}')) as server, client_of(server.root_url) as client:
        agent = sk.Agent(client, model="m", output_type=dict[str, str])
        assert agent.stream("Where?").get_final_output() == {"city": "Oslo"}
        format = server.requests[0].body["response_format"]
        assert (format["type"], format["json_schema"]["type"]) == ("json_object", "object")


def test_what_it_cannot_be_asked_is_refused_before_a_request() -> None:
    """An argument that it does not have; a client of version 1."""
    with client_of("http://127.0.0.1:1") as client, pytest.raises(sk.UsageError, match=r"'top_k'.*`request_options="):
        sk.Agent(client, model="m", top_k=0.5)
    with httpx.Client() as http, pytest.raises(sk.UsageError, match="a cohere `Client` is not a client that"):
        sk.Agent(cohere.Client(api_key="any", httpx_client=http), model="m")


def test_a_conversation_goes_on_with_another_provider_and_comes_back() -> None:
    """Begun with Cohere, then Anthropic, then Cohere again: its thinking goes back to it, and to no other."""
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
        with anthropic.Anthropic(base_url=server.root_url, api_key="any") as other:
            second = sk.Agent(other, model="m", tools=[weather], messages=agent.messages)
            assert second.stream("In Rome?").get_final_text() == "Sun."
        third = sk.Agent(client, model="m", tools=[weather], messages=second.messages)
        assert third.stream("Bye.").get_final_text() == "Bye."
        sent = server.requests[-1].body["messages"]
    roles = ["user", "assistant", "tool", "tool", "assistant", "user", "assistant", "tool", "assistant", "user"]
    assert [message["role"] for message in sent] == roles
    assert sent[1]["content"] == [{"type": "thinking", "thinking": "Two cities."}]


# -- a server that refuses what Cohere refuses


def check_cohere(answers: list[dict[str, Any]]) -> Check:
    """The rules of Cohere for a request, and those of good manners: an answer comes back as it was sent."""

    def check(request: Mapping[str, Any]) -> str | None:
        waiting: list[str] = []
        for message in request["messages"]:
            if message["role"] == "tool":
                if message["tool_call_id"] not in waiting:
                    return f"invalid request: tool call id {message['tool_call_id']} not found in previous tool calls"
                waiting.remove(message["tool_call_id"])
                continue
            if waiting:
                return f"invalid request: missing tool results for {waiting}"
            for call in message.get("tool_calls", ()):
                if not isinstance(json.loads(call["function"]["arguments"]), dict):
                    return "invalid request: arguments must be a JSON object"
                waiting.append(call["id"])
            if message["role"] == "assistant" and message not in answers:
                return f"the answer was altered: {message}"
        return f"invalid request: missing tool results for {waiting}" if waiting else None

    return check


def test_the_next_request_is_one_that_a_strict_server_takes() -> None:
    """An answer with a plan and two calls, one without arguments; then a second run."""
    call = {"id": "weather_1", "type": "function", "function": {"name": "weather", "arguments": '{ "city": "Oslo" }'}}
    other = {"id": "now_2", "type": "function", "function": {"name": "now", "arguments": "{}"}}

    def event(type: str, index: int | None = None, **message: Any) -> dict[str, Any]:
        return {"type": type, **({} if index is None else {"index": index}), "delta": {"message": message}}

    def begun(call: dict[str, Any]) -> dict[str, Any]:
        return {**call, "function": {**call["function"], "arguments": ""}}

    def end(reason: str) -> dict[str, Any]:
        return {"type": "message-end", "delta": {"finish_reason": reason, "usage": {}}}

    start = {"id": "a", **event("message-start", role="assistant")}
    first: list[dict[str, Any]] = [
        start,
        event("tool-plan-delta", tool_plan="I look."),
        event("tool-call-start", 0, tool_calls=begun(call)),
        event("tool-call-delta", 0, tool_calls={"function": {"arguments": call["function"]["arguments"]}}),  # type: ignore[index]
        {"type": "tool-call-end", "index": 0},
        event("tool-call-start", 1, tool_calls=begun(other)),
        {"type": "tool-call-end", "index": 1},
        end("TOOL_CALL"),
    ]
    second: list[dict[str, Any]] = [
        start,
        event("content-start", 0, content={"type": "text", "text": ""}),
        event("content-delta", 0, content={"text": "Rain."}),
        end("COMPLETE"),
    ]
    answers: list[dict[str, Any]] = [{"role": "assistant", "tool_plan": "I look.", "tool_calls": [call, other]}]
    answers.append({"role": "assistant", "content": "Rain."})

    def now() -> str:
        return "noon"

    with StrictServer([first, second, second], check_cohere(answers)) as server:
        with client_of(server.url) as client:
            agent = sk.Agent(client, model="m", tools=[weather, now])
            assert agent.stream("Here?").get_final_text() == "Rain."
            agent.stream("Once more.").until_done()
        assert server.refusals == []
        assert len(server.requests) == 3
