"""Gemini through Google's own client: its objects are read as their bytes, and agents send their requests through it.

pip install -e '.[test,integrations]'
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

import streamkit as sk
from streamkit.testing import CodeInterpreter, ModelServer, Reasoning, Reply, ToolCall

from ..agent.parts import Talker
from ..faces import FACES, Face, body, every_face
from ..recorded import each_recording
from ..strict_servers import StrictServer, check_gemini, gemini_chunks

genai = pytest.importorskip("google.genai")
Credentials = pytest.importorskip("google.oauth2.credentials").Credentials

SIGNED = "c2lnbmVk/+8="
OTHER = "b3RoZXI="


def weather(city: str) -> str:
    """The weather of a city."""
    return f"cold in {city}"


def client_for(server: ModelServer) -> Any:
    return genai.Client(api_key="any", http_options={"base_url": server.root_url})


@asynccontextmanager
async def client_of(face: Face, url: str) -> AsyncIterator[Any]:
    """Google's client, of which tasks use the other half. That of httpx is the one that runs on trio."""
    if not face.is_async:
        with genai.Client(api_key="any", http_options={"base_url": url}) as client:
            yield client
        return
    async with httpx.AsyncClient() as transport:
        options = genai.types.HttpOptions(base_url=url, httpx_async_client=transport)
        client = genai.Client(api_key="any", http_options=options)
        try:
            yield client.aio
        finally:
            client.close()


@asynccontextmanager
async def agent_of(face: Face, url: str, **options: Any) -> AsyncIterator[Talker]:
    kind: Any = sk.AsyncAgent if face.is_async else sk.Agent
    async with client_of(face, url) as client:
        yield Talker(kind(client, model="gemini-3", **options), face)


def asked(client: Any) -> Any:
    return client.models.generate_content_stream(model="m", contents="Hi.")


# -- its objects


def told(stream: Any) -> list[Any]:
    """What a stream says, apart from the alphabet of base64, and from what the client drops of token counts."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(one) for key, one in value.items()}
        if isinstance(value, list):
            return [*map(plain, value)]
        return value.replace("-", "+").replace("_", "/") if isinstance(value, str) else value

    run = stream.current_run
    counts = (stream.usage.input_tokens, stream.usage.output_tokens) if stream.usage else ()
    return [*(plain(message.to_dict()) for message in stream.messages), run.finish_reason, stream.status, counts]


def is_of_the_service(path: Path) -> bool:
    """A stream of the service as it comes over SSE, whose signatures the client takes."""
    return path.suffix == ".sse" and not path.name.startswith("prism-")


@each_recording("gemini", complete=True, only=is_of_the_service)
def test_the_clients_objects_say_what_their_bytes_say(path: Path) -> None:
    """The client ends a stream that was cut off as if it were complete, and raises where one has an error."""
    whole = sk.stream(path)
    failure = None
    try:
        whole.until_done()
    except sk.StreamkitError as error:
        failure = error
    with ModelServer(Reply(raw=path.read_bytes())) as server, client_for(server) as client:
        stream = sk.stream(lambda: asked(client))
        with contextlib.suppress(sk.StreamkitError) if failure else contextlib.nullcontext():
            stream.until_done()
    if not isinstance(failure, sk.RunFailedError) or failure.code == "MALFORMED_FUNCTION_CALL":
        assert told(stream) == told(whole)


@every_face
@body
async def test_a_stream_of_the_client_is_one_of_ours(face: Face) -> None:
    """Sync and async, opened by us; reasoning and calls, text as it comes."""
    with ModelServer(Reply(Reasoning("Hm."), "It is ", ToolCall("f", {"a": [1, None]}), "cold.")) as server:
        async with client_of(face, server.root_url) as client:
            stream = face.stream(lambda: asked(client))
            await stream.until_done()
    assert [(m.type, m.content) for m in stream.messages] == [
        ("reasoning", "Hm."),
        ("message", "It is "),
        ("tool_call", '{"a":[1,null]}'),
        ("message", "cold."),
    ]
    assert stream.current_run.model == "m"
    assert (stream.usage.input_tokens, stream.usage.total_tokens) == (10, 10 + stream.usage.output_tokens)


# The client's generators are left to the garbage collector where they do not come to their end, of which trio warns.
not_on_trio = pytest.mark.parametrize("face", [FACES["sync"], FACES["asyncio"]], ids=["sync", "asyncio"])


@not_on_trio
@body
async def test_closing_our_stream_closes_the_connection(face: Face) -> None:
    with ModelServer(Reply("Rivers remember", never_ends=True)) as server:
        async with client_of(face, server.root_url) as client:
            stream = face.stream(lambda: asked(client))
            async for event in stream:
                if event.type == "text_delta":
                    break
            await stream.close()
            assert server.wait_for_disconnect()  # without the event loop, and without the garbage collector


@not_on_trio
@body
async def test_errors_of_the_client_have_the_services_status_and_words(face: Face) -> None:
    """Also in the midst of an answer, where the status of the response is 200."""
    script = [Reply(status=429, retry_after=0), Reply("a b c", error_after=1), Reply("a b c", cut_after=1)]
    with ModelServer([*script, Reply("Hi.")]) as server:
        async with client_of(face, server.root_url) as client:
            for status, words in ((429, "Rate limit"), (500, "had an error"), (None, "closed")):
                stream = face.stream(lambda: asked(client))
                with pytest.raises(sk.SourceError, match=words) as raised:
                    await stream.until_done()
                assert raised.value.status_code == status
                assert [m.content for m in stream.messages] == ([] if status == 429 else ["a"])
        assert len(server.requests) == 3


# -- agents


@dataclass
class Forecast:
    city: str
    degrees: int


@every_face
@body
async def test_an_agent_has_tools_reasoning_and_typed_output(face: Face) -> None:
    """One request for each model call: the client calls no function itself."""
    first = Reply(
        Reasoning("Hm."), "Let me look.", ToolCall("weather", {"city": "Oslo"}), ToolCall("weather", {"city": "Rome"})
    )
    with ModelServer([first, Reply('{"city": "Oslo", "degrees": -3}')]) as server:
        options = {"tools": [weather], "instructions": "Be brief.", "output_type": Forecast}
        config = {"temperature": 0.5, "tools": [{"google_search": {}}]}
        async with agent_of(face, server.root_url, config=config, **options) as talker:
            stream = await talker.say("Where is it cold?")
            assert await stream.get_final_output() == Forecast("Oslo", -3)
    assert sorted((m.type, m.content) for m in stream.messages if m.type.startswith("tool")) == [
        ("tool_call", '{"city":"Oslo"}'),
        ("tool_call", '{"city":"Rome"}'),
        ("tool_output", "cold in Oslo"),
        ("tool_output", "cold in Rome"),
    ]
    one, two = (request.body for request in server.requests)
    assert one["systemInstruction"]["parts"] == [{"text": "Be brief."}]
    assert {"googleSearch": {}} in one["tools"]
    (declared,) = [tool["functionDeclarations"] for tool in one["tools"] if "functionDeclarations" in tool]
    assert [function["name"] for function in declared] == ["weather"]
    assert one["generationConfig"]["temperature"] == 0.5
    assert one["generationConfig"]["responseJsonSchema"]["required"] == ["city", "degrees"]
    assert [content["role"] for content in two["contents"]] == ["user", "model", "user"]
    assert [part["functionResponse"]["response"] for part in two["contents"][2]["parts"]] == [
        {"result": "cold in Oslo"},
        {"result": "cold in Rome"},
    ]


def called(city: str, **more: Any) -> dict[str, Any]:
    fields = {key: more.pop(key) for key in ("id",) if key in more}
    return {"functionCall": {"name": "weather", "args": {"city": city}, **fields}, **more}


CODE = {"executableCode": {"language": "PYTHON", "code": "print(1)", "id": "c"}, "thoughtSignature": OTHER}
RESULT = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n", "id": "c"}}
SEARCH = {
    "toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["q"]}, "id": "s"},
    "thoughtSignature": OTHER,
}
FOUND = {"toolResponse": {"toolType": "GOOGLE_SEARCH_WEB", "response": {"n": 1}, "id": "s"}}
ANSWERS: dict[str, Sequence[Mapping[str, Any]]] = {
    "parallel calls, of which the first is signed": [called("Oslo", thoughtSignature=SIGNED), called("Rome")],
    "calls with ids": [called("Oslo", id="a", thoughtSignature=SIGNED), called("Oslo", id="b")],
    "a signature on an empty text, after the calls": [
        called("Oslo", thoughtSignature=SIGNED),
        {"text": "", "thoughtSignature": OTHER},
    ],
    "a signed text, a thought, and a call": [
        {"text": "Hm.", "thought": True},
        {"text": "Well.", "thoughtSignature": OTHER},
        {"text": " So."},
        called("Oslo", thoughtSignature=SIGNED),
    ],
    "code that Gemini ran": [CODE, RESULT, called("Oslo", thoughtSignature=SIGNED)],
    "a search of its own": [SEARCH, FOUND, called("Oslo", thoughtSignature=SIGNED)],
}


@every_face
@pytest.mark.parametrize("name", ANSWERS)
@body
async def test_a_strict_server_takes_what_an_agent_sends_back(face: Face, name: str) -> None:
    """Two calls after each other in one turn, and a question after them."""
    parts = ANSWERS[name]
    again = [
        {**part, "thoughtSignature": f"Yga{number}"} if "thoughtSignature" in part else part
        for number, part in enumerate(parts)
    ]
    answers = [parts, again, [{"text": "Cold."}], [{"text": "Bye."}]]
    chunks = [gemini_chunks(*answer, id=f"r{number}") for number, answer in enumerate(answers)]
    with StrictServer(chunks, check_gemini(answers)) as server:
        async with agent_of(face, server.url, tools=[weather]) as talker:
            assert await (await talker.say("Cold?")).get_final_text() == "Cold."
            assert await (await talker.say("Bye.")).get_final_text() == "Bye."
    assert (server.refusals, len(server.requests)) == ([], 4)
    calls = [part for content in server.requests[-1]["contents"] for part in content["parts"] if "functionCall" in part]
    assert len(calls) == 2 * len([part for part in parts if "functionCall" in part])


@every_face
@body
async def test_a_call_whose_arguments_are_streamed_goes_back_whole(face: Face) -> None:
    """With its signature, as Vertex AI streams it."""
    begin = {"functionCall": {"name": "weather", "willContinue": True}, "thoughtSignature": SIGNED}
    pieces = [
        {
            "functionCall": {
                "partialArgs": [{"jsonPath": "$.city", "stringValue": text, "willContinue": more}],
                "willContinue": True,
            }
        }
        for text, more in (("Os", True), ("lo", True), ("", False))
    ]
    chunks = [gemini_chunks(begin, *pieces, {"functionCall": {}}), gemini_chunks({"text": "Cold."}, id="r2")]
    with StrictServer(chunks, check_gemini([[called("Oslo", thoughtSignature=SIGNED)]])) as server:
        async with agent_of(face, server.url, tools=[weather]) as talker:
            assert await (await talker.say("Cold?")).get_final_text() == "Cold."
    assert server.refusals == []


def test_code_that_the_provider_runs_is_code_with_its_output_on_vertex_ai_too() -> None:
    """The model server answers on both services' paths."""
    vertex = {"vertexai": True, "project": "p", "location": "l", "credentials": Credentials("any")}
    script = Reply("Let me see.", CodeInterpreter("print(6 * 7)", "42\n"), "It is 42.")
    for service in ({"api_key": "any"}, vertex):
        with (
            ModelServer(script) as server,
            genai.Client(**service, http_options={"base_url": server.root_url}) as client,
        ):
            stream = sk.stream(lambda client=client: client.models.generate_content_stream(model="m", contents="Hi."))
            assert [(one.type, one.content) for one in stream.get_final_messages()] == [
                ("message", "Let me see."),
                ("code", "print(6 * 7)"),
                ("console", "42\n"),
                ("message", "It is 42."),
            ]


def test_a_conversation_goes_on_with_another_provider_and_comes_back() -> None:
    """Calls, outputs and texts are those of all; what one provider signed, it alone gets."""
    script = [Reply(Reasoning("Hm."), ToolCall("weather", {"city": "Oslo"})), Reply("Cold in Oslo.")]
    with ModelServer(script * 4) as server:
        with (
            client_for(server) as google,
            anthropic.Anthropic(api_key="any", base_url=server.root_url) as claude,
            openai.OpenAI(api_key="any", base_url=server.url) as gpt,
        ):
            agent = sk.Agent(claude, model="m", tools=[weather])
            for client in (claude, google, gpt, google):
                other = sk.Agent(client, model="m", tools=[weather], messages=agent.messages)
                assert other.stream("Cold?").get_final_text() == "Cold in Oslo."
                agent = other
        bodies = [request.body for request in server.requests]
    contents = bodies[-1]["contents"]
    calls = [part for content in contents for part in content["parts"] if "functionCall" in part]
    assert [part.get("thoughtSignature", "")[:20] for part in calls] == [
        "skip_thought_signatu",
        "c2lnbmF0dXJlIG9mIGFu",
        "skip_thought_signatu",
        "c2lnbmF0dXJlIG9mIGFu",
    ]
    assert [content["role"] for content in contents] == ["user", "model", "user", "model"] * 3 + [
        "user",
        "model",
        "user",
    ]
    assert "gemini" not in str(bodies[4:6])


def test_options_of_the_agent_go_into_the_clients_config() -> None:
    """As a dict or as the client's own object; what is no argument of the method is named."""
    with ModelServer([Reply("Hi.")] * 2) as server, client_for(server) as client:
        for config in ({"max_output_tokens": 7}, genai.types.GenerateContentConfig(max_output_tokens=7)):
            agent = sk.Agent(client, model="m", tools=[weather], config=config)
            assert agent.stream("Hi.").get_final_text() == "Hi."
        with pytest.raises(sk.UsageError, match=r"config=\{…\}"):
            sk.Agent(client, model="m", temperature=0)
        with pytest.raises(sk.UsageError, match="'contents' is set by the agent"):
            sk.Agent(client, model="m", contents=[])
    for request in server.requests:
        assert request.body["generationConfig"] == {"maxOutputTokens": 7}
        assert len(request.body["tools"]) == 1


def test_an_answer_that_is_not_streamed_is_read_as_well() -> None:
    """The client's object, of the model server's body."""
    with ModelServer(Reply(Reasoning("Hm."), "It is cold.", ToolCall("f"))) as server, client_for(server) as client:
        answer = client.models.generate_content(model="m", contents="Hi.")
    stream = sk.stream(answer)
    assert stream.get_final_text() == "It is cold."
    assert [m.type for m in stream.messages] == ["reasoning", "message", "tool_call"]
