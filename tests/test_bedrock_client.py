"""Bedrock through Amazon's own client, boto3: its streams are read as bytes, and agents send their requests through it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import boto3
import httpx
import pytest
from botocore.config import Config

import streamkit as sk
from streamkit.protocols.amazon_framer import amazon_message
from streamkit.testing import ModelServer, Reasoning, Reply, ToolCall

from .faces import Face, body, every_face

QUESTION = [{"role": "user", "content": [{"text": "Hi."}]}]


@contextmanager
def client_for(server: ModelServer) -> Iterator[Any]:
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=5)
    keys = {"aws_access_key_id": "any", "aws_secret_access_key": "any", "region_name": "us-east-1"}
    client = boto3.client("bedrock-runtime", endpoint_url=server.root_url, config=config, **keys)
    try:
        yield client
    finally:
        client.close()


def asked(client: Any) -> Any:
    return client.converse_stream(modelId="m", messages=QUESTION)["stream"]


def weather(city: str) -> str:
    """The weather of a city."""
    return f"cold in {city}"


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


def in_binary(*items: dict[str, Any]) -> bytes:
    return b"".join(amazon_message(name, json.dumps(value).encode()) for item in items for name, value in item.items())


def test_what_a_model_signed_goes_back_unchanged_through_the_client() -> None:
    """Reasoning first, in its order; blobs as base64 on the wire."""
    secret = base64.b64encode(bytes(range(256))).decode()
    deltas = [{"text": "Hm."}, {"signature": "s/+="}]
    answer = in_binary(
        {"messageStart": {"role": "assistant"}},
        *({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"reasoningContent": one}}} for one in deltas),
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"reasoningContent": {"redactedContent": secret}}}},
        {"contentBlockStop": {"contentBlockIndex": 1}},
        {"contentBlockStart": {"contentBlockIndex": 2, "start": {"toolUse": {"toolUseId": "t", "name": "weather"}}}},
        {"contentBlockDelta": {"contentBlockIndex": 2, "delta": {"toolUse": {"input": '{"city": "Oslo"}'}}}},
        {"contentBlockStop": {"contentBlockIndex": 2}},
        {"messageStop": {"stopReason": "tool_use"}},
    )
    binary = {"content-type": "application/vnd.amazon.eventstream"}
    with ModelServer([Reply(raw=answer, headers=binary), Reply("Cold.")]) as server, client_for(server) as client:
        assert sk.Agent(client, model="m", tools=[weather]).stream("Cold?").get_final_text() == "Cold."
    (_, assistant, user) = server.requests[1].body["messages"]
    assert assistant["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s/+="}}},
        {"reasoningContent": {"redactedContent": secret}},
        {"toolUse": {"toolUseId": "t", "name": "weather", "input": {"city": "Oslo"}}},
    ]
    result = {"toolUseId": "t", "content": [{"text": "cold in Oslo"}], "status": "success"}
    assert user["content"] == [{"toolResult": result}]


def test_a_response_with_amazons_messages_is_read_as_any_other() -> None:
    """Without Amazon's client: of a request that the application sends itself."""
    with ModelServer(Reply("It is cold.")) as server, httpx.Client() as client:
        url = f"{server.root_url}/model/m/converse-stream"
        stream = sk.stream(lambda: client.stream("POST", url, json={"messages": QUESTION}))
        assert stream.get_final_text() == "It is cold."
