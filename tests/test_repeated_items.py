"""What a server repeats counts once: a tool runs once, and a text is shown once, whatever ids the repetition has."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import pytest

import streamkit as sk

from .agent.parts import Talker
from .faces import Face, body, both_shells
from .responses_servers import SERVERS, Answer
from .strict_servers import StrictServer, anthropic_events, response_events

each_server = pytest.mark.parametrize("server", SERVERS)

ANSWER = Answer(
    reasoning="The user asks for two cities.",
    text="I will look it up.",
    calls=[("weather", {"city": "Oslo"}), ("weather", {"city": "Rome"})],
)


def accept(body: Mapping[str, Any]) -> None:
    """Take any request."""


def check_pairs(body: Mapping[str, Any]) -> str | None:
    """Take requests in which each call has one output, under its call_id, and reasoning is as the API defines it."""
    calls = [item["call_id"] for item in body["input"] if item.get("type") == "function_call"]
    outputs = [item["call_id"] for item in body["input"] if item.get("type") == "function_call_output"]
    if len({*calls}) != len(calls) or sorted(calls) != sorted(outputs):
        return f"the calls {calls} have the outputs {outputs}"
    for item in body["input"]:
        if item.get("type") == "reasoning":
            types = [(key, part["type"]) for key in ("summary", "content") for part in item.get(key) or ()]
            if "summary" not in item or not {*types} <= {("summary", "summary_text"), ("content", "reasoning_text")}:
                return f"invalid reasoning: {item}"
    return None


def said(messages: Sequence[sk.Message], type: str) -> list[str]:
    return [message.content for message in messages if message.type == type]


@both_shells
@each_server
@body
async def test_an_answer_that_is_listed_again_at_its_end_is_said_once(face: Face, server: str) -> None:
    """With the server's own ids for the list, and through the real client."""
    with StrictServer([[*SERVERS[server](ANSWER)]], accept) as running:
        async with face.client(f"{running.url}/v1") as client:
            told = face.told()
            stream = face.stream(lambda: client.responses.create(model="m", input="?", stream=True), told)
            messages = await stream.get_final_messages()
    assert said(messages, "reasoning") == [ANSWER.reasoning]
    assert said(messages, "message") == [ANSWER.text]
    assert [(call.name, call.arguments) for call in told.of("on_tool_call_done")] == ANSWER.calls
    assert "".join(delta.value for delta in told.of("on_text_delta")) == ANSWER.text
    told.check_brackets()


@both_shells
@each_server
@body
async def test_an_agent_runs_a_call_that_is_listed_again_once(face: Face, server: str) -> None:
    """Its next request has each call and each output once, under the same call_id."""
    cities: list[str] = []

    def weather(city: str) -> str:
        cities.append(city)
        return f"{city}: 7"

    answers = [[*SERVERS[server](ANSWER)], [*SERVERS[server](Answer(text="It is cold."))]]
    with StrictServer(answers, check_pairs) as running:
        async with face.client(f"{running.url}/v1") as client:
            kind: Any = sk.AsyncAgent if face.is_async else sk.Agent
            agent = Talker(kind(client, model="m", protocol="openai_responses", tools=[weather]), face)
            assert await agent.stream("How is the weather?").get_final_text() == "It is cold."
    assert sorted(cities) == ["Oslo", "Rome"]
    assert running.refusals == []
    outputs = [item["output"] for item in running.requests[1]["input"] if item.get("type") == "function_call_output"]
    assert sorted(outputs) == ["Oslo: 7", "Rome: 7"]


@each_server
def test_the_reasoning_of_a_server_goes_back_as_the_api_defines_it(server: str) -> None:
    """Once, also where the list at the end has it as a message's text."""
    messages = sk.stream([*SERVERS[server](ANSWER)]).get_final_messages()
    sent = sk.to_input(messages, "openai_responses")
    assert check_pairs({"input": [item for item in sent if item["type"] == "reasoning"]}) is None
    [reasoning] = [item for item in sent if item["type"] == "reasoning"]
    assert [part["text"] for key in ("summary", "content") for part in reasoning.get(key, ())] == [ANSWER.reasoning]


@pytest.mark.parametrize(("final", "warned"), [("Hello you", []), ("Hello there", ["content-differs"])])
@both_shells
@body
async def test_a_final_text_under_a_new_id_is_the_streamed_one(face: Face, final: str, warned: list[str]) -> None:
    """Where it differs, it replaces what was streamed."""
    place = {"output_index": 0, "content_index": 0}
    response = {"id": "resp", "object": "response", "model": "m", "status": "in_progress", "output": []}
    items: list[dict[str, Any]] = [
        {"type": "response.created", "response": response},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {"type": "message", "id": "a", "role": "assistant", "content": []},
        },
        {"type": "response.output_text.delta", "item_id": "a", **place, "delta": "Hello "},
        {"type": "response.output_text.delta", "item_id": "a", **place, "delta": "you"},
    ]
    content = [{"type": "output_text", "text": final, "annotations": []}]
    listed = {"type": "message", "id": "b", "role": "assistant", "status": "completed", "content": content}
    items.append({"type": "response.completed", "response": {**response, "status": "completed", "output": [listed]}})
    told = face.told()
    stream = face.stream(items, told)
    assert [message.content for message in await stream.get_final_messages()] == [final]
    assert [warning.code for warning in stream.warnings] == warned
    told.check_brackets()


@both_shells
@body
async def test_an_agent_runs_two_calls_with_the_same_ids(face: Face) -> None:
    """And answers each of them: they have other arguments, so neither repeats the other."""
    numbers: list[int] = []

    def double(number: int) -> int:
        numbers.append(number)
        return 2 * number

    ids = {"type": "function_call", "id": "fc", "call_id": "call", "name": "double"}
    calls = [{**ids, "arguments": f'{{"number":{number}}}'} for number in (1, 2)]
    answer = {
        "type": "message",
        "id": "msg",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Done."}],
    }
    with StrictServer([response_events("one", *calls), response_events("two", answer)], check_pairs) as running:
        async with face.client(f"{running.url}/v1") as client:
            kind: Any = sk.AsyncAgent if face.is_async else sk.Agent
            agent = Talker(kind(client, model="m", protocol="openai_responses", tools=[double]), face)
            assert await agent.stream("Double them.").get_final_text() == "Done."
    assert sorted(numbers) == [1, 2]
    assert running.refusals == []


# -- Anthropic Messages


def check_blocks(body: Mapping[str, Any]) -> str | None:
    """Take requests in which the ids of calls are unique, and each has one result."""
    blocks = [block for turn in body["messages"] if isinstance(turn["content"], list) for block in turn["content"]]
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    if len({*calls}) != len(calls):
        return "messages.1.content.1: `tool_use` ids must be unique"
    if not all(re.fullmatch("[a-zA-Z0-9_-]+", id) for id in calls):
        return "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    return None if sorted(calls) == sorted(results) else f"the calls {calls} have the results {results}"


@asynccontextmanager
async def claude(face: Face, running: StrictServer) -> AsyncIterator[Any]:
    """The real client of this face."""
    options: dict[str, Any] = {"base_url": running.url, "api_key": "any", "max_retries": 0}
    if face.is_async:
        async with anthropic.AsyncAnthropic(**options) as client:
            yield client
    else:
        with anthropic.Anthropic(**options) as sync:
            yield sync


@both_shells
@pytest.mark.parametrize("inputs", [({"number": 1}, {"number": 1}), ({"number": 1}, {"number": 2})])
@body
async def test_an_agent_runs_a_repeated_block_once_and_two_calls_with_one_id_twice(
    face: Face, inputs: Sequence[Mapping[str, int]]
) -> None:
    """Each call that it ran has an id of its own in the next request, and a result."""
    numbers: list[int] = []

    def double(number: int) -> int:
        numbers.append(number)
        return 2 * number

    calls = [{"type": "tool_use", "id": "toolu", "name": "double", "input": given} for given in inputs]
    answers = [
        anthropic_events("one", *calls, stop_reason="tool_use"),
        anthropic_events("two", {"type": "text", "text": "Done."}),
    ]
    with StrictServer(answers, check_blocks) as running:
        async with claude(face, running) as client:
            kind: Any = sk.AsyncAgent if face.is_async else sk.Agent
            agent = Talker(kind(client, model="m", tools=[double]), face)
            assert await agent.stream("Double it.").get_final_text() == "Done."
    assert sorted(numbers) == sorted({given["number"] for given in inputs})
    assert running.refusals == []


@both_shells
@body
async def test_a_refusal_that_is_explained_in_its_own_words_is_shown_once(face: Face) -> None:
    """LiteLLM sends it as the text of the answer, and as the explanation of its end."""
    items = anthropic_events("one", {"type": "text", "text": "I will not."}, stop_reason="refusal")
    items[-2]["delta"]["stop_details"] = {"type": "refusal", "category": None, "explanation": "I will not."}
    with StrictServer([items], accept) as running:
        async with claude(face, running) as client:
            told = face.told()
            request = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "?"}], "stream": True}
            messages = await face.stream(lambda: client.messages.create(**request), told).get_final_messages()
    assert [message.content for message in messages] == ["I will not."]
    told.check_brackets()
