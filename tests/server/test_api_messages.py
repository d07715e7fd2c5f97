"""Messages in front of an agent: what this API alone has. On memory, as `test_api`."""

from __future__ import annotations

from collections.abc import Iterator

import anthropic
import pytest

from streamkit.protocols import anthropic as messages_api
from streamkit.protocols.event_stream import EventStreamWriter
from streamkit.server import Endpoints, create_app

from .api_parts import WEATHER, ApiAgents
from .parts import TOKEN, Client, frames_of, serve


@pytest.fixture(scope="module")
def agents() -> Iterator[ApiAgents]:
    made = ApiAgents()
    yield made
    made.close()


@pytest.fixture(scope="module")
def url(agents: ApiAgents) -> Iterator[str]:
    with serve(create_app(agents, token=TOKEN, endpoints=Endpoints(models=["agent", "*"]))) as url:
        yield url


@pytest.fixture(scope="module")
def claude(url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url, api_key=TOKEN) as made:
        yield made


def test_the_models_are_listed(claude: anthropic.Anthropic) -> None:
    assert [(model.id, model.display_name) for model in claude.models.list()] == [("agent", "agent")]


def test_the_tokens_of_a_request_are_estimated(claude: anthropic.Anthropic) -> None:
    """Clients that edit code ask before they send a conversation."""
    words = {"role": "user", "content": "word " * 800}
    counted = claude.messages.count_tokens(model="claude-any", messages=[words])  # type: ignore[list-item]
    assert counted.input_tokens == pytest.approx(1000, rel=0.01)
    begun = {"role": "assistant", "content": "word " * 800}
    counted = claude.messages.count_tokens(model="claude-any", messages=[words, begun])  # type: ignore[list-item]
    assert counted.input_tokens == pytest.approx(2000, rel=0.01)


def test_the_events_of_an_answer(url: str) -> None:
    body = {"model": "agent", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "own 3"}]}
    with Client(url) as client:
        response = client.post("/v1/messages?beta=true", json=body)
    frames = [*frames_of(iter([response.text]))]
    starts = [frame.data["content_block"]["type"] for frame in frames if frame.type == "content_block_start"]
    assert starts == ["thinking", "text", "text"]
    assert frames[0].type == "message_start"
    assert frames[-1].type == "message_stop"
    assert frames[-2].data["usage"] == {"input_tokens": 20, "output_tokens": 16}
    assert response.text.count("event: ") == len(frames)
    assert "[DONE]" not in response.text


def test_silence_is_filled_with_pings() -> None:
    request = messages_api.from_request({"model": "m", "stream": True, "messages": [{"role": "user", "content": "x"}]})
    assert EventStreamWriter(request.encoder()).keepalive == b'event: ping\ndata: {"type": "ping"}\n\n'


def test_an_error_names_the_request(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError) as refused:
        claude.messages.create(model="agent", max_tokens=1, messages=[])
    assert refused.value.body["error"]["type"] == "invalid_request_error"  # type: ignore[index]
    assert refused.value.request_id == refused.value.body["request_id"]  # type: ignore[index]


def test_a_failed_tool_of_the_client_is_an_error_to_the_model(claude: anthropic.Anthropic) -> None:
    tool = {"name": "weather", "input_schema": WEATHER.parameters}
    said = {"role": "user", "content": "weather Rome"}
    first = claude.messages.create(model="agent", max_tokens=9, messages=[said], tools=[tool])  # type: ignore[list-item]
    call = first.content[-1]
    assert call.type == "tool_use"
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "no such city", "is_error": True}
    turns = [said, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = claude.messages.create(model="agent", max_tokens=9, messages=turns, tools=[tool])  # type: ignore[arg-type, list-item]
    assert second.content[0].text == 'It gave: {"error":"no such city"}'  # type: ignore[union-attr]
