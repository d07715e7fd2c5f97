"""A run whose answer began again, over HTTP: for those who read along, and for those who come later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reply

from .backends import Backend
from .parts import Client, frames_of, serve

HALF, WHOLE = "Half of an", "All of it."


@pytest.fixture
def client(backend: Backend) -> Iterator[Client]:
    def make(context: Any) -> sk.Agent:
        return sk.Agent(model, model="m", protocol="openai_chat", retry=sk.Retry(restart=True))

    with (
        ModelServer([Reply(HALF + " answer", cut_after=2), Reply(WHOLE)]) as server,
        openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as model,
        serve(backend.app(make)) as url,
        Client(url) as client,
    ):
        yield client


def test_a_run_that_began_again_is_read_from_any_place(client: Client) -> None:
    """In streamkit's protocol from the beginning, from each cursor, and after the end; its conversation has one answer."""
    run = client.begin("Go.", conversation="again")
    frames = client.events(run["id"])
    assert [frame.type for frame in frames].count("stream_retry") == 1
    whole = sk.stream([frame.data for frame in frames]).get_final_messages()
    assert [message.content for message in whole] == ["Go.", WHOLE]
    for place in range(1, len(frames)):
        response = client.get(f"/runs/{run['id']}/events", headers={"last-event-id": frames[place - 1].id})
        rest = [*frames_of(iter([response.text]))]
        assert [frame.id for frame in rest] == [frame.id for frame in frames[place:]]
    messages = client.get("/conversations/again/messages").json()["messages"]
    assert [message["content"] for message in messages] == ["Go.", WHOLE]


@pytest.mark.parametrize("protocol", ["openai_chat", "anthropic"])
def test_in_a_wire_that_cannot_take_back_it_ends_where_it_began_again(client: Client, protocol: str) -> None:
    """With the error, whenever it is read."""
    run = client.begin("Go.")
    client.until(run["id"], "completed")
    text = client.get(f"/runs/{run['id']}/events?protocol={protocol}").text
    stream = sk.stream(text.encode(), protocol=protocol)
    with pytest.raises(sk.StreamkitError):
        stream.until_done()
    assert WHOLE not in text
    assert "".join(message.content for message in stream.messages).startswith(HALF[:4])


def test_use_chat_gets_the_ids_of_what_to_take_back(client: Client) -> None:
    run = client.begin("Go.")
    client.until(run["id"], "completed")
    text = client.get(f"/runs/{run['id']}/events?protocol=vercel_ui").text
    chunks = [frame.data for frame in frames_of(iter([text])) if isinstance(frame.data, dict)]
    (retry,) = [chunk["data"] for chunk in chunks if chunk["type"] == "data-retry"]
    texts = [chunk["id"] for chunk in chunks if chunk["type"] == "text-start"]
    assert retry["ids"] == texts[:1] != texts[1:]
