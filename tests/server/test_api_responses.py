"""Responses in front of an agent: what this API alone has. On memory, as `test_api`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from streamkit.server import Endpoints, create_app

from .api_parts import WEATHER, ApiAgents
from .parts import TOKEN, Client, serve, wait_for

TOOLS: Any = [{"type": "function", "name": "weather", "parameters": WEATHER.parameters}]


@pytest.fixture(scope="module")
def agents() -> Iterator[ApiAgents]:
    made = ApiAgents()
    yield made
    made.close()


def owner_of(run: Any, request: Any) -> bool | str:
    user = request.headers.get("x-user", "ann")
    return user if run is None else run.owner == user


@pytest.fixture(scope="module")
def url(agents: ApiAgents) -> Iterator[str]:
    endpoints = Endpoints(questions="ask")
    with serve(create_app(agents, token=TOKEN, authorize=owner_of, endpoints=endpoints)) as url:
        yield url


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=TOKEN) as made:
        yield made


def create(client: openai.OpenAI, input: Any, **more: Any) -> Any:
    return client.responses.create(model="agent", input=input, **more)


def said(agents: ApiAgents) -> list[str]:
    """What the newest request to the model has, in short."""
    return [f"{one['role']}: {one.get('content')}" for one in agents.requests[-1]["messages"][1:]]


def test_the_events_of_an_answer(client: openai.OpenAI) -> None:
    events = [*create(client, "own 3", stream=True)]
    assert [event.sequence_number for event in events] == [*range(len(events))]
    response = events[-1].response
    assert [item.type for item in response.output] == ["reasoning", "message", "message"]
    assert [
        item for event in events if event.type == "response.output_item.done" for item in [event.item]
    ] == response.output
    assert [item.phase for item in response.output[1:]] == ["commentary", "final_answer"]
    assert (response.usage.input_tokens, response.model, response.store) == (20, "agent", True)
    assert response.created_at.is_integer()  # LiteLLM takes no other
    assert response.completed_at.is_integer()


def test_a_response_goes_on_from_another_and_so_does_a_branch(client: openai.OpenAI, agents: ApiAgents) -> None:
    """The agent's own calls and their outputs are in what it goes on from."""
    first = create(client, "own 3")
    second = create(client, "hello", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    past = ["user: own 3", "assistant: Let me look.", "tool: look 3", "assistant: It gave: look 3"]
    assert said(agents) == [*past, "user: hello"]
    create(client, "hi", previous_response_id=first.id)
    assert said(agents) == [*past, "user: hi"]
    create(client, "third", previous_response_id=second.id)
    assert said(agents) == [*past, "user: hello", "assistant: You said: hello", "user: third"]


def test_outputs_alone_go_on_with_the_run(client: openai.OpenAI, agents: ApiAgents) -> None:
    first = create(client, "mixed Rome", tools=TOOLS)
    call = first.output[-1]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    second = create(client, [output], previous_response_id=first.id, tools=TOOLS)
    assert (second.output_text, agents.looked) == ("It gave: look 7 | sunny", [7])
    assert second.id != first.id
    assert [item.type for item in client.responses.retrieve(first.id).output] == ["function_call"]
    assert client.responses.retrieve(second.id).output == second.output


def test_outputs_go_on_from_a_response_a_second_time_as_a_branch(client: openai.OpenAI, agents: ApiAgents) -> None:
    first = create(client, "mixed Rome", tools=TOOLS)
    for text in ("sunny", "rainy"):
        output = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": text}
        second = create(client, [output], previous_response_id=first.id, tools=TOOLS)
        assert second.output_text == f"It gave: look 7 | {text}"
    assert agents.looked == [7]
    create(client, "hello", previous_response_id=second.id)
    assert said(agents)[-3:] == ["tool: rainy", "assistant: It gave: look 7 | rainy", "user: hello"]


def test_outputs_go_on_from_a_response_that_was_cancelled(client: openai.OpenAI) -> None:
    first = create(client, "weather Rome", tools=TOOLS)
    client.responses.cancel(first.id)
    output = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "sunny"}
    second = create(client, [output], previous_response_id=first.id, tools=TOOLS)
    assert second.output_text == "It gave: sunny"


def test_what_the_user_says_to_a_question_goes_on_with_the_run(client: openai.OpenAI, agents: ApiAgents) -> None:
    first = create(client, "careful 4")
    assert "May this run?" in first.output_text
    assert create(client, "ok", previous_response_id=first.id).output_text == "It gave: careful 4"
    assert agents.ran == [4]


def test_ids_stand_for_items(client: openai.OpenAI, agents: ApiAgents) -> None:
    """Of all that an answer has; those of an answer that is not here, or is another user's, are refused."""
    first = create(client, "own 3", tools=TOOLS)
    ids = [{"type": "item_reference", "id": item.id} for item in first.output]
    create(client, [{"role": "user", "content": "own 3"}, *ids, {"role": "user", "content": "hello"}])
    assert said(agents)[1:] == ["assistant: Let me look.It gave: look 3", "user: hello"]
    called = create(client, "weather Rome", tools=TOOLS).output
    output = {"type": "function_call_output", "call_id": called[-1].call_id, "output": "sunny"}
    ids = [{"type": "item_reference", "id": item.id} for item in called]
    answer = create(client, [{"role": "user", "content": "weather Rome"}, *ids, output], tools=TOOLS)
    assert answer.output_text == "It gave: sunny"
    other = client.with_options(default_headers={"x-user": "bob"})
    for one, id in ((other, called[0].id), (client, "msg_none")):
        with pytest.raises(openai.BadRequestError, match="is of an item that is not here"):
            create(one, [{"type": "item_reference", "id": id}, {"role": "user", "content": "hello"}])


def test_the_id_of_a_question_stands_for_it(client: openai.OpenAI, agents: ApiAgents) -> None:
    asked = {"role": "user", "content": "careful 4"}
    ids = [{"type": "item_reference", "id": item.id} for item in create(client, [asked]).output]
    answer = create(client, [asked, *ids, {"role": "user", "content": "yes"}])
    assert (answer.output_text, agents.ran) == ("It gave: careful 4", [4])


def test_what_cannot_be_gone_on_from(client: openai.OpenAI, agents: ApiAgents) -> None:
    """A response that was not to be kept, one of another user, and one that never was look alike."""
    unstored, kept = create(client, "hello", store=False), create(client, "hello")
    other = client.with_options(default_headers={"x-user": "bob"})
    agents.forget()
    for one, id in ((client, unstored.id), (other, kept.id), (client, "resp_none"), (client, "../x")):
        with pytest.raises(openai.NotFoundError) as refused:
            create(one, "more", previous_response_id=id)
        assert (refused.value.code, refused.value.param) == ("previous_response_not_found", "previous_response_id")
    for one, id in ((client, unstored.id), (other, kept.id)):
        with pytest.raises(openai.NotFoundError):
            one.responses.retrieve(id)
    assert agents.contexts == []


def test_a_response_in_the_background_is_read_later(client: openai.OpenAI) -> None:
    begun = create(client, "hello", background=True)
    assert (begun.status, begun.background) == ("in_progress", True)
    done = wait_for(lambda: (now := client.responses.retrieve(begun.id)).status == "completed" and now)
    assert done.output_text == "You said: hello"


def test_a_stream_in_the_background_goes_on_and_is_resumed(url: str, client: openai.OpenAI) -> None:
    stream = create(client, "hello", background=True, stream=True)
    first = [next(stream) for _ in range(4)]
    stream.close()
    id = first[0].response.id
    rest = [*client.responses.retrieve(id, stream=True, starting_after=first[-1].sequence_number)]
    assert rest[0].sequence_number == first[-1].sequence_number + 1
    assert rest[-1].type == "response.completed"
    assert rest[-1].response.output_text == "You said: hello"


def test_a_response_is_cancelled(client: openai.OpenAI) -> None:
    begun = create(client, "sleep", background=True)
    assert client.responses.cancel(begun.id).status == "cancelled"
    assert client.responses.retrieve(begun.id).status == "cancelled"


def test_a_response_is_deleted(url: str, client: openai.OpenAI) -> None:
    kept = create(client, "hello")
    with Client(url) as http:
        deleted = http.delete(f"/v1/responses/{kept.id}")
    assert deleted.json() == {"id": kept.id, "object": "response", "deleted": True}
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(kept.id)
    with pytest.raises(openai.NotFoundError):
        create(client, "more", previous_response_id=kept.id)


def test_a_failure_after_the_first_event_is_the_end_of_the_response(client: openai.OpenAI) -> None:
    events = [*create(client, "break", stream=True)]
    assert (events[-1].type, events[-1].response.status) == ("response.failed", "failed")
    assert "The source failed" in events[-1].response.error.message
