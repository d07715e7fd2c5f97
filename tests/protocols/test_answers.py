"""An agent's run as one answer of a model: what of it goes out, in each API. `tests/server/test_api` has the real clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import openai
import pytest

import streamkit as sk
from streamkit.protocols import ApiRequest
from streamkit.protocols.answer_activity import Activity
from streamkit.testing import Reasoning, Refusal, Reply, ToolCall
from streamkit.testing.server import ModelServer

from ..agent.parts import PNG, ToyComputer, code

PROTOCOLS = ("openai_chat", "openai_responses", "anthropic")
every = pytest.mark.parametrize("protocol", PROTOCOLS)


def look(n: int) -> str:
    """Look."""
    return f"look {n}"


def events_of(*replies: Reply, **options: Any) -> Sequence[sk.Event]:
    """All events of an agent's run."""
    with ModelServer([*replies]) as server, openai.OpenAI(base_url=server.url, api_key="any", max_retries=0) as client:
        agent = sk.Agent(client, model="m", protocol="openai_chat", tools=[look], **options)
        events: list[sk.Event] = []
        try:
            for event in agent.stream("Go."):
                events.append(event)  # those before an error count
        except sk.StreamkitError:
            pass
        return events


def answer(
    protocol: str, events: Sequence[sk.Event], *, stream: bool = False, activity: Activity = "hidden"
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The whole answer, or its items."""
    encoder = ApiRequest(protocol=protocol, model="agent", stream=stream).encoder(id="r", activity=activity)
    items = [item for event in events for item in encoder.items(event)]
    return ({} if stream else encoder.body()), items


def parts(protocol: str, body: dict[str, Any]) -> list[tuple[str, str]]:
    """What an answer has: kinds and texts."""
    if protocol == "openai_chat":
        message = body["choices"][0]["message"]
        keys = ("reasoning_content", "content", "refusal")
        return [(key[:7], message[key]) for key in keys if message.get(key)]
    if protocol == "anthropic":
        return [(block["type"], block.get("text", block.get("thinking", ""))) for block in body["content"]]
    inner = [(item["type"], part) for item in body["output"] for part in item.get("content") or item["summary"]]
    return [(kind, part["text"]) for kind, part in inner]


def text_of(protocol: str, body: dict[str, Any]) -> str:
    return "".join(text for kind, text in parts(protocol, body) if kind in ("content", "text", "message"))


def reasoning_of(protocol: str, body: dict[str, Any]) -> str:
    return "".join(text for kind, text in parts(protocol, body) if kind in ("reasoni", "thinking", "reasoning"))


@every
def test_code_and_what_it_shows_are_hidden_or_reasoning_or_text(protocol: str) -> None:
    """No call goes out, of whatever kind: clients run or refuse each that they see."""
    replies = Reply("I draw.", code("say 1\nshow")), Reply("Done.")
    events = events_of(*replies, computer=ToyComputer(), auto_run=True)
    hidden, _ = answer(protocol, events)
    assert (text_of(protocol, hidden), reasoning_of(protocol, hidden)) == ("I draw.\n\nDone.", "")
    folded, _ = answer(protocol, events, activity="reasoning")
    assert text_of(protocol, folded) == "I draw.\n\nDone."
    shown = f"```python\nsay 1\nshow\n```\n\n![image](data:image/png;base64,{PNG})\n\n1\n\n"
    assert reasoning_of(protocol, folded) == shown
    open_, _ = answer(protocol, events, activity="text")
    assert text_of(protocol, open_) == "I draw.\n\n" + shown.replace(")\n\n1\n", ")\n\n```\n1\n```\n") + "Done."
    for body in (hidden, folded, open_):
        assert not any(
            word in str(body) for word in ("server_tool_use", "interpreter", "function_call", "'tool_calls': [")
        )


@every
def test_a_long_output_is_cut(protocol: str) -> None:
    def tell(n: int) -> str:
        """Tell."""
        return "x" * n

    with (
        ModelServer([Reply(ToolCall("tell", {"n": 5000})), Reply("Done.")]) as server,
        openai.OpenAI(base_url=server.url, api_key="any") as client,
    ):
        agent = sk.Agent(client, model="m", protocol="openai_chat", tools=[tell])
        body, _ = answer(protocol, [*agent.stream("Go.")], activity="reasoning")
    assert reasoning_of(protocol, body).count("x") == 2000


@every
def test_what_a_sub_agent_says_is_inside(protocol: str) -> None:
    with (
        ModelServer([Reply(ToolCall("inner", {"input": "x"})), Reply("secret"), Reply("Done.")]) as server,
        openai.OpenAI(base_url=server.url, api_key="any") as client,
    ):
        inner = sk.Agent(client, model="m", protocol="openai_chat", name="inner")
        agent = sk.Agent(client, model="m", protocol="openai_chat", tools=[inner.as_tool(description="Ask.")])
        body, _ = answer(protocol, [*agent.stream("Go.")])
    assert text_of(protocol, body) == "Done."


@every
def test_an_answer_that_begins_again_is_whole_where_nothing_was_sent(protocol: str) -> None:
    """And ends with the error where something was: it cannot be taken back."""
    events = events_of(Reply("Half of it", cut_after=1), Reply("All of it."), retry=sk.Retry(restart=True))
    body, _ = answer(protocol, events)
    assert text_of(protocol, body) == "All of it."
    _, items = answer(protocol, events, stream=True)
    assert "error" in items[-1] or items[-1]["type"] == "response.failed"
    assert "All" not in str(items)


@every
def test_a_refusal(protocol: str) -> None:
    body, _ = answer(protocol, events_of(Reply(Refusal("No."))))
    assert "No." in str(body)


@every
def test_no_metadata_of_a_provider_goes_out(protocol: str) -> None:
    """A client would send back signatures and fields that are another API's."""
    _, items = answer(protocol, events_of(Reply(Reasoning("Hm."), "Well.")), stream=True)
    assert not any(word in str(items) for word in ("signature_delta", "reasoning_details", "'reasoning':"))


def test_the_annotations_of_a_text_stay() -> None:
    url = {"type": "url_citation", "url_citation": {"url": "http://x", "title": "X", "start_index": 0, "end_index": 2}}
    chunk = {"object": "chat.completion.chunk", "id": "c", "created": 1, "model": "m"}
    delta = {"role": "assistant", "content": "Hi", "annotations": [url]}
    chunks = [{**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}]
    chunks.append({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    body, _ = answer("openai_chat", [*sk.stream(chunks)])
    assert body["choices"][0]["message"]["annotations"] == [url]
    body, _ = answer("openai_responses", [*sk.stream(chunks)])
    assert body["output"][0]["content"][0]["annotations"][0]["url"] == "http://x"
