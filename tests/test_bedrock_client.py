"""Bedrock through Amazon's own client, boto3: its streams are read as bytes, and agents send their requests through it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import anthropic
import boto3
import httpx
import pytest
from botocore.config import Config

import streamkit as sk
from streamkit.protocols.bedrock_converse import to_input
from streamkit.testing import ModelServer, Reasoning, Reply, ToolCall

from .faces import Face, body, every_face
from .strict_servers import AMAZON, StrictServer, check_converse, converse_events

QUESTION = [{"role": "user", "content": [{"text": "Hi."}]}]


@contextmanager
def client_for(server: ModelServer | StrictServer) -> Iterator[Any]:
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=5)
    url = server.url if isinstance(server, StrictServer) else server.root_url
    keys = {"aws_access_key_id": "any", "aws_secret_access_key": "any", "region_name": "us-east-1"}
    client = boto3.client("bedrock-runtime", endpoint_url=url, config=config, **keys)
    try:
        yield client
    finally:
        client.close()


def asked(client: Any) -> Any:
    return client.converse_stream(modelId="m", messages=QUESTION)["stream"]


def weather(city: str) -> str:
    """The weather of a city, which may be unknown, or say nothing."""
    if city == "nowhere":
        raise LookupError("no such city")
    return city and f"cold in {city}"


@dataclass
class Forecast:
    city: str
    degrees: int


@every_face
@body
async def test_a_stream_of_the_client_is_one_of_ours(face: Face) -> None:
    """Opened by us, read in a thread where the stream is async, and closed with ours."""
    script = [
        Reply(Reasoning("Hm."), "It is ", ToolCall("f", {"a": 1}), "cold."),
        Reply("Rivers remember", never_ends=True),
    ]
    with ModelServer(script) as server, client_for(server) as client:
        stream = face.stream(lambda: asked(client))
        await stream.until_done()
        assert [(m.type, m.content) for m in stream.messages] == [
            ("reasoning", "Hm."),
            ("message", "It is "),
            ("tool_call", '{"a": 1}'),
            ("message", "cold."),
        ]
        assert stream.usage.input_tokens == 10
        stream = face.stream(lambda: asked(client))
        async for event in stream:
            if event.type == "text_delta":
                break
        await stream.close()
        assert server.wait_for_disconnect()


def test_a_stream_that_was_pulled_is_read_as_its_objects() -> None:
    """What was read of it is not there any more; what the client gives of the rest is read."""
    with ModelServer(Reply("It is cold.")) as server, client_for(server) as client:
        items = asked(client)
        first = next(iter(items))
        assert first == {"messageStart": {"role": "assistant"}}
        assert sk.stream(items).get_final_text() == "It is cold."


def test_a_stream_that_was_cut_off_is_no_complete_answer() -> None:
    """The client itself ends it as if it were."""
    with ModelServer(Reply("one two three", cut_after=2)) as server, client_for(server) as client:
        stream = sk.stream(lambda: asked(client))
        with pytest.raises((sk.SourceError, sk.IncompleteStreamError)):
            stream.until_done()
        assert stream.messages[0].content


def test_errors_have_the_services_status_and_words() -> None:
    """Before the answer, and in the midst of it."""
    with ModelServer([Reply(status=429), Reply("a b c", error_after=1)]) as server, client_for(server) as client:
        with pytest.raises(sk.SourceError, match="Rate limit") as refused:
            sk.stream(lambda: asked(client)).until_done()
        assert refused.value.status_code == 429
        with pytest.raises(sk.RunFailedError, match="had an error") as failed:
            sk.stream(lambda: asked(client)).until_done()
        assert failed.value.code == "internalServerException"


@pytest.mark.parametrize("kind", [sk.Agent, sk.AsyncAgent])
@pytest.mark.anyio
async def test_an_agent_has_tools_reasoning_and_typed_output(kind: Any) -> None:
    """On both kinds: Amazon has no async client."""
    first = Reply(
        Reasoning("Hm."), "Let me look.", ToolCall("weather", {"city": "Oslo"}), ToolCall("weather", {"city": "Rome"})
    )
    with ModelServer([first, Reply('{"city": "Oslo", "degrees": -3}')]) as server, client_for(server) as client:
        options = {"tools": [weather], "instructions": "Be brief.", "output_type": Forecast}
        agent = kind(
            client,
            model="amazon.nova",
            inferenceConfig={"temperature": 0.5},
            toolConfig={"toolChoice": {"auto": {}}},
            **options,
        )
        stream = agent.stream("Where is it cold?")
        output = stream.get_final_output()
        assert (await output if kind is sk.AsyncAgent else output) == Forecast("Oslo", -3)
    one, two = (request.body for request in server.requests)
    assert server.requests[0].path == "/model/amazon.nova/converse-stream"
    assert one["system"] == [{"text": "Be brief."}]
    assert one["inferenceConfig"] == {"temperature": 0.5}
    assert one["toolConfig"]["toolChoice"] == {"auto": {}}
    assert one["toolConfig"]["tools"][0]["toolSpec"]["inputSchema"]["json"]["required"] == ["city"]
    schema = one["outputConfig"]["textFormat"]["structure"]["jsonSchema"]["schema"]
    assert json.loads(schema)["required"] == ["city", "degrees"]
    assert [message["role"] for message in two["messages"]] == ["user", "assistant", "user"]
    assert [block["toolResult"]["content"] for block in two["messages"][2]["content"]] == [
        [{"text": "cold in Oslo"}],
        [{"text": "cold in Rome"}],
    ]


def test_a_conversation_goes_on_with_another_provider_and_comes_back(tmp_path: Path) -> None:
    """Also as it was saved; without tools, those that were called are declared, as the API wants it."""
    script = [Reply(Reasoning("Hm."), ToolCall("weather", {"city": "Oslo"})), Reply("Cold.")]
    with (
        ModelServer([*script, *script, Reply("Bye.")]) as server,
        client_for(server) as amazon,
        anthropic.Anthropic(base_url=server.root_url, api_key="any") as claude,
    ):
        agent = sk.Agent(amazon, model="m", tools=[weather])
        assert agent.stream("Cold?").get_final_text() == "Cold."
        agent = sk.Agent(claude, model="m", tools=[weather], messages=agent.messages)
        assert agent.stream("And now?").get_final_text() == "Cold."
        agent.save(tmp_path / "conversation.json")
        last = sk.Agent(amazon, model="m")
        last.load(tmp_path / "conversation.json")
        assert last.stream("Bye.").get_final_text() == "Bye."
    sent = server.requests[-1].body
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant"] + ["user", "assistant"] * 3 + [
        "user"
    ]
    assert [tool["toolSpec"]["name"] for tool in sent["toolConfig"]["tools"]] == ["weather"]


def call(id: str, city: str) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": id, "name": "weather", "input": {"city": city}}}


SIGNED = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s/+="}}}
REDACTED = {"reasoningContent": {"redactedContent": base64.b64encode(bytes(range(256))).decode()}}
SEARCH = {"toolUse": {"toolUseId": "n", "name": "nova_grounding", "type": "server_tool_use", "input": {"q": 1}}}
FOUND = {"toolResult": {"toolUseId": "n", "type": "nova_grounding_result", "content": [{"json": {"found": 2}}]}}
ANSWERS = [
    [SIGNED, REDACTED, {"text": "Let me look."}, call("a", "Oslo"), call("b", "nowhere"), call("c", "")],
    [SIGNED, SEARCH, FOUND, {"text": "Cold."}],
    [SIGNED, call("d", "Rome")],
    [{"text": "Warm."}],
    [{"text": "Bye."}],
]


def stop_reason_of(answer: list[dict[str, Any]]) -> str:
    return "tool_use" if any("toolUse" in block and "type" not in block["toolUse"] for block in answer) else "end_turn"


def test_a_conversation_of_agents_passes_a_server_that_checks_what_comes_back(tmp_path: Path) -> None:
    """Reasoning that is signed or redacted, calls that fail or say nothing, tools of the server; after a reload, and by an agent
    without tools."""
    streams = [converse_events(*answer, stop_reason=stop_reason_of(answer)) for answer in ANSWERS]
    with StrictServer(streams, check_converse(ANSWERS), framing=AMAZON) as server, client_for(server) as client:
        agent = sk.Agent(client, model="m", tools=[weather])
        assert agent.stream("Where is it cold?").get_final_text() == "Cold."
        agent.save(tmp_path / "conversation.json")
        agent = sk.Agent(client, model="m", tools=[weather])
        agent.load(tmp_path / "conversation.json")
        assert agent.stream("And in Rome?").get_final_text() == "Warm."
        last = sk.Agent(client, model="m", messages=agent.messages)
        assert last.stream("Bye.").get_final_text() == "Bye."
    assert server.refusals == []
    results = [block["toolResult"] for block in server.requests[1]["messages"][2]["content"]]
    assert [(one["toolUseId"], one["status"]) for one in results] == [
        ("a", "success"),
        ("b", "error"),
        ("c", "success"),
    ]


@pytest.mark.parametrize(
    ("forget", "refusal"),
    [
        (lambda messages: [one for one in messages if one.type != "reasoning"], "altered"),
        (lambda messages: takewhile(lambda one: one.type != "tool_output", messages), "toolResult blocks"),
        (lambda messages: [one for one in messages if one.role != "user"], "alternate"),
    ],
    ids=["reasoning", "outputs", "questions"],
)
def test_the_server_refuses_what_lacks_something(forget: Any, refusal: str) -> None:
    """And its words are in the error."""
    streams = [converse_events(SIGNED, call("a", "Oslo"), stop_reason="tool_use"), converse_events({"text": "Cold."})]
    check = check_converse([[SIGNED, call("a", "Oslo")], [{"text": "Cold."}]])
    with StrictServer(streams, check, framing=AMAZON) as server, client_for(server) as client:
        agent = sk.Agent(client, model="m", tools=[weather])
        assert agent.stream("Cold?").get_final_text() == "Cold."
        input = to_input([*forget(agent.messages), sk.TextMessage(role="user", content="And?")])
        tools = {"tools": [{"toolSpec": {"name": "weather", "inputSchema": {"json": {"type": "object"}}}}]}
        with pytest.raises(sk.SourceError, match=refusal):
            sk.stream(lambda: client.converse_stream(modelId="m", messages=input, toolConfig=tools)).until_done()


def test_a_response_with_amazons_messages_is_read_as_any_other() -> None:
    """Without Amazon's client: of a request that the application sends itself."""
    with ModelServer(Reply("It is cold.")) as server, httpx.Client() as client:
        url = f"{server.root_url}/model/m/converse-stream"
        stream = sk.stream(lambda: client.stream("POST", url, json={"messages": QUESTION}))
        assert stream.get_final_text() == "It is cold."
