"""The arguments of a tool call are read in one way: `arguments`, `malformed`, warnings and agents agree about every text."""

from __future__ import annotations

from typing import Any, NamedTuple

import httpx
import openai
import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reply, ToolCall


class Read(NamedTuple):
    """How a text is read: the content of the call in the end, its arguments, whether it is malformed; and a part of the warning."""

    content: str
    arguments: dict[str, Any]
    malformed: bool
    warning: str


def malformed(text: str) -> Read:
    return Read(text, {}, True, "are not a JSON object; `arguments` is empty")


OBJECT = '{"city":"Oslo"}'
TEXTS = {
    OBJECT: Read(OBJECT, {"city": "Oslo"}, False, ""),
    "{}": Read("{}", {}, False, ""),
    '"{\\"city\\":\\"Oslo\\"}"': Read(OBJECT, {"city": "Oslo"}, False, "were encoded twice; they were replaced"),
    "{}" + OBJECT: Read(OBJECT, {"city": "Oslo"}, False, "came after an empty object; they were replaced"),
    '{"n":NaN}': malformed('{"n":NaN}'),
    '{"n":-Infinity}': malformed('{"n":-Infinity}'),
    OBJECT + OBJECT: malformed(OBJECT + OBJECT),
    '{"city":"Oslo"': malformed('{"city":"Oslo"'),
    '"Oslo"': malformed('"Oslo"'),
    "[1]": malformed("[1]"),
    "null": malformed("null"),
    "no JSON": malformed("no JSON"),
}

REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "responses": ("/responses", {"model": "m", "input": "x", "stream": True}),
    "chat": ("/chat/completions", {"model": "m", "messages": [], "stream": True}),
    "anthropic": ("/messages", {"model": "m", "messages": [], "max_tokens": 9, "stream": True}),
}


def _answer(api: str, text: str) -> bytes:
    """The body that an API streams where a model calls a tool with this text, in two pieces."""
    path, request = REQUESTS[api]
    headers = {"x-api-key": "none", "anthropic-version": "2023-06-01"}
    with ModelServer(Reply(ToolCall("weather", text, pieces=[text[:1], text[1:]]))) as server:
        return httpx.post(server.url + path, json=request, headers=headers, trust_env=False).content


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("api", REQUESTS)
def test_every_text_has_one_reading(api: str, text: str) -> None:
    expected = TEXTS[text]
    stream = sk.stream([_answer(api, text)])
    stream.until_done()
    (call,) = [one for one in stream.messages if isinstance(one, sk.ToolCallMessage)]
    assert (call.content, call.arguments, call.malformed) == expected[:3]
    assert [warning.fault.partition("' ")[2] for warning in stream.warnings] == (
        [expected.warning] if expected.warning else []
    )


@pytest.mark.parametrize("text", TEXTS)
def test_events_that_come_again_say_nothing_more(text: str) -> None:
    """As through a relay: the same events, the same warning, the same arguments."""
    events = [
        sk.events.ToolCallDelta("c", text),
        sk.events.ToolCallDone(sk.ToolCallMessage("c", name="weather", content=text)),
        sk.events.StreamEnd(status="requires_action"),
    ]
    first = [*sk.stream(events)]
    again = [*sk.stream(first)]
    assert [sk.protocols.codec.event_to_dict(one) for one in again] == [
        sk.protocols.codec.event_to_dict(one) for one in first
    ]


@pytest.mark.parametrize("text", [text for text, read in TEXTS.items() if read.content == OBJECT])
def test_a_tool_runs_with_what_was_surely_meant(text: str) -> None:
    cities: list[str] = []

    def weather(city: str = "nowhere") -> str:
        cities.append(city)
        return "It rains."

    with (
        ModelServer([Reply(ToolCall("weather", text)), Reply("It rains in Oslo.")]) as server,
        openai.OpenAI(base_url=server.url, api_key="none") as client,
    ):
        sk.Agent(client, model="m", tools=[weather], protocol="openai_chat").stream("x").until_done()
        sent = server.requests[-1].body["messages"]
    assert cities == ["Oslo"]
    assert [call["function"]["arguments"] for one in sent for call in one.get("tool_calls", ())] == [OBJECT]
