"""Bedrock through aiobotocore, the async client of Amazon's services: its streams are read as bytes, as boto3's are.

pip install -e '.[test,integrations]'
"""

from __future__ import annotations

import base64
import json
from typing import Any

import anyio
import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reasoning, Reply, ToolCall

from ..strict_servers import AMAZON, StrictServer

session = pytest.importorskip("aiobotocore.session")
config = pytest.importorskip("aiobotocore.config")

QUESTION = [{"role": "user", "content": [{"text": "Hi."}]}]


def client_of(url: str) -> Any:
    """The client of a server, for `async with`."""
    options = config.AioConfig(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=5)
    keys = {"aws_access_key_id": "any", "aws_secret_access_key": "any", "region_name": "us-east-1"}
    return session.get_session().create_client("bedrock-runtime", endpoint_url=url, config=options, **keys)


async def ask(client: Any) -> Any:
    return (await client.converse_stream(modelId="m", messages=QUESTION))["stream"]


def weather(city: str) -> str:
    """The weather of a city."""
    return f"cold in {city}"


def test_its_stream_is_a_source_and_is_closed_with_ours() -> None:
    """Also one that was pulled, of whose rest the client's objects are read."""
    script = [Reply(Reasoning("Hm."), "It is cold."), Reply("Cold."), Reply("Rivers remember", never_ends=True)]

    async def main() -> None:
        async with client_of(server.root_url) as client:
            stream = sk.astream(lambda: ask(client))
            assert await stream.get_final_text() == "It is cold."
            assert [message.type for message in stream.messages] == ["reasoning", "message"]
            assert stream.usage is not None and stream.usage.input_tokens == 10
            pulled = aiter(await ask(client))
            assert await anext(pulled) == {"messageStart": {"role": "assistant"}}
            assert await sk.astream(pulled).get_final_text() == "Cold."
            async with sk.astream(await ask(client)) as stream:
                async for _ in stream.text_deltas:
                    break
            assert await anyio.to_thread.run_sync(server.wait_for_disconnect)

    with ModelServer(script) as server:
        anyio.run(main)


@pytest.mark.parametrize(
    ("reply", "error", "words"),
    [
        (Reply(status=429), sk.SourceError, "Rate limit"),
        (Reply("a b c", error_after=1), sk.RunFailedError, "had an error"),
        (Reply("one two three", cut_after=2), sk.SourceError, "not completed"),
    ],
    ids=["before", "in the middle", "cut off"],
)
def test_how_it_fails(reply: Reply, error: type[Exception], words: str) -> None:
    async def main() -> None:
        async with client_of(server.root_url) as client:
            await sk.astream(lambda: ask(client)).until_done()

    with ModelServer(reply) as server, pytest.raises(error, match=words):
        anyio.run(main)


def test_a_body_of_invoke_is_a_source() -> None:
    """Of the model's own objects: here Titan's."""
    titan = {"outputText": "It is cold.", "index": 0, "completionReason": "FINISH"}
    chunk = {"chunk": {"bytes": base64.b64encode(json.dumps(titan).encode()).decode()}}

    async def main() -> str:
        async with client_of(server.url) as client:
            answer = await client.invoke_model_with_response_stream(modelId="m", body=b"{}")
            return await sk.astream(answer["body"]).get_final_text()

    with StrictServer([[chunk]], lambda body: None, framing=AMAZON) as server:
        assert anyio.run(main) == "It is cold."


def test_an_async_agent_runs_over_it_and_a_sync_one_refuses_it() -> None:
    async def main() -> str:
        async with client_of(server.root_url) as client:
            with pytest.raises(sk.UsageError, match="AsyncAgent"):
                sk.Agent(client, model="m")
            return await sk.AsyncAgent(client, model="m", tools=[weather]).stream("Cold?").get_final_text()

    with ModelServer([Reply(ToolCall("weather", {"city": "Oslo"})), Reply("Cold.")]) as server:
        assert anyio.run(main) == "Cold."
    assert server.requests[1].body["messages"][2]["content"][0]["toolResult"]["content"] == [{"text": "cold in Oslo"}]
