"""Chat Completions in front of an agent: what this API alone has, and who may call the endpoints. On memory, as `test_api`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

import streamkit as sk
from streamkit.protocols import openai_chat
from streamkit.server import ApiResponse, Endpoints, create_app, request_error_response

from .api_parts import WEATHER, ApiAgents, ChatFront, Schema
from .parts import TOKEN, Agents, Client, Frame, frames_of, serve


@pytest.fixture(scope="module")
def agents() -> Iterator[ApiAgents]:
    made = ApiAgents()
    yield made
    made.close()


@pytest.fixture(scope="module")
def url(agents: ApiAgents) -> Iterator[str]:
    endpoints = Endpoints(models=["agent", "agent-tasks", "*"])
    with serve(create_app(agents, token=TOKEN, endpoints=endpoints, allowed_origins=["https://chat.example"])) as url:
        yield url


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Client]:
    with Client(url) as made:
        yield made


def post(client: Client, text: str = "hello", **more: Any) -> httpx.Response:
    body = {"model": "agent", "messages": [{"role": "user", "content": text}], **more}
    return client.post("/v1/chat/completions", json=body)


def chunks(response: httpx.Response) -> list[Frame]:
    return [*frames_of(iter([response.text]))]


def test_models_are_listed_for_both_clients(url: str, client: Client) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=TOKEN) as other:
        assert [model.id for model in other.models.list()] == ["agent", "agent-tasks"]
        assert other.models.retrieve("any/other").id == "any/other"
    listed = client.get("/v1/models").json()
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("agent", "agent-tasks", False)


def test_the_token_counts_come_only_if_they_are_asked_for(client: Client) -> None:
    """Users read the first choice of each chunk."""
    plain = chunks(post(client, stream=True))
    assert plain[-1].data == "[DONE]"
    assert all(frame.data["choices"] and "usage" not in frame.data for frame in plain[:-1])
    counted = chunks(post(client, stream=True, stream_options={"include_usage": True}))
    assert all(frame.data["usage"] is None for frame in counted[:-2])
    assert (counted[-2].data["choices"], counted[-2].data["usage"]["total_tokens"]) == ([], 15)
    assert {(frame.data["id"], frame.data["model"]) for frame in counted[:-1]} == {(counted[0].data["id"], "agent")}


def test_an_error_frame_ends_a_stream_that_has_begun(client: Client) -> None:
    frames = chunks(post(client, "break", stream=True))
    assert set(frames[-1].data["error"]) == {"message", "type", "param", "code"}
    assert all(frame.data["choices"][0]["finish_reason"] is None for frame in frames[:-1])


def test_fields_without_an_effect_are_named(client: Client) -> None:
    hosted = [{"type": "web_search"}]
    response = post(client, temperature=1, seed=2, unknown={}, tools=hosted, n=1, response_format={"type": "text"})
    assert response.headers["x-streamkit-ignored"] == "temperature, seed, unknown, tools.web_search"


def test_what_the_client_wants_of_its_tools_goes_to_the_model(client: Client, agents: ApiAgents) -> None:
    function = {"name": "weather", "parameters": WEATHER.parameters}
    tools = [{"type": "function", "function": function}]
    named = {"type": "function", "function": {"name": "weather"}}
    post(client, tools=tools, tool_choice=named, parallel_tool_calls=False)
    sent = agents.requests[-1]
    assert (sent["tool_choice"], sent["parallel_tool_calls"]) == (named, False)
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["look", "careful", "weather"]
    post(client, tools=tools, tool_choice="none")
    assert [tool["function"]["name"] for tool in agents.requests[-1]["tools"]] == ["look", "careful"]


def test_what_the_client_wants_of_its_tools_is_what_its_newest_request_says(client: Client, agents: ApiAgents) -> None:
    """Also where it answers an open run: a client that has to call a tool at first would have to for ever."""
    tools = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER.parameters}}]
    asked = [{"role": "user", "content": "weather Rome"}]
    first = post(client, messages=asked, tools=tools, tool_choice="required").json()["choices"][0]["message"]
    assert agents.requests[-1]["tool_choice"] == "required"
    output = {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "sunny"}
    post(client, messages=[*asked, first, output], tools=tools)
    assert "tool_choice" not in agents.requests[-1]
    again = post(client, messages=asked, tools=tools).json()["choices"][0]["message"]
    output = {"role": "tool", "tool_call_id": again["tool_calls"][0]["id"], "content": "sunny"}
    post(client, messages=[*asked, again, output], tools=tools, tool_choice="none")
    assert [tool["function"]["name"] for tool in agents.requests[-1]["tools"]] == ["look", "careful"]


def test_media_go_to_the_model(client: Client, agents: ApiAgents) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", "detail": "low"}}
    content = [{"type": "text", "text": "look"}, image]
    assert post(client, messages=[{"role": "user", "content": content}]).status_code == 200
    assert agents.requests[-1]["messages"][-1]["content"][1]["image_url"]["url"] == "data:image/png;base64,aGk="


def test_a_run_is_seen_and_stopped_as_any_other(client: Client) -> None:
    answer = post(client, metadata={"chat": "1"}, user="ann")
    run = client.run(answer.json()["id"].removeprefix("chatcmpl-"))
    assert (run["status"], run["metadata"], run["owner"]) == ("completed", {"chat": "1", "user": "ann"}, None)


def test_what_an_agent_inside_the_agent_asks_is_answered_by_the_next_message() -> None:
    agents = Agents()
    with serve(create_app(agents, token=TOKEN, endpoints=Endpoints(questions="ask"))) as url, Client(url) as client:
        turns: list[Any] = [{"role": "user", "content": "research careful 3|careful 5"}]
        for ran in ([], [3]):
            asked = post(client, messages=turns).json()["choices"][0]["message"]
            assert agents.ran == ran
            turns += [asked, {"role": "user", "content": "yes"}]
        answer = post(client, messages=turns).json()["choices"][0]["message"]
    assert (answer["content"], agents.ran) == ("It gave: It gave: careful 5", [3, 5])
    agents.close()


# -- who may call


def test_a_cookie_never_counts_and_any_clients_header_for_a_key_does(url: str, client: Client) -> None:
    session = client.post("/session", json={})
    cookie = {"Cookie": session.headers["set-cookie"].partition(";")[0]}
    assert httpx.get(f"{url}/runs", headers=cookie).status_code == 200
    refused = httpx.get(f"{url}/v1/models", headers=cookie)
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    assert httpx.get(f"{url}/v1/models", headers={"x-api-key": TOKEN}).status_code == 200
    assert httpx.get(f"{url}/v1/models", headers={"x-api-key": "wrong"}).status_code == 401


@pytest.mark.parametrize(("origin", "status"), [("app://chat", 200), ("null", 200), ("https://evil.example", 403)])
def test_desktop_applications_pass_and_foreign_pages_do_not(client: Client, origin: str, status: int) -> None:
    assert client.get("/v1/models", headers={"Origin": origin}).status_code == status
    if status == 200:
        assert client.get("/runs", headers={"Origin": origin}).status_code == 403


def test_pages_that_are_allowed_may_send_the_headers_of_their_clients(url: str) -> None:
    asked = "authorization, x-stainless-lang"
    headers = {"Origin": "https://chat.example", "Access-Control-Request-Method": "POST"}
    headers["Access-Control-Request-Headers"] = asked
    response = httpx.options(f"{url}/v1/chat/completions", headers=headers)
    assert (response.status_code, response.headers["access-control-allow-headers"]) == (204, asked)


@pytest.mark.parametrize(("origin", "status"), [("app://chat", 204), ("null", 204), ("https://evil.example", 403)])
def test_desktop_applications_may_ask_first_and_read_the_response(
    url: str, client: Client, origin: str, status: int
) -> None:
    """As web views do. Nobody gets anything without the token."""
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    asked = httpx.options(f"{url}/v1/chat/completions", headers=headers)
    assert (asked.status_code, asked.headers.get("access-control-allow-origin")) == (
        status,
        origin if status == 204 else None,
    )
    assert httpx.options(f"{url}/runs", headers=headers).status_code == 403
    read = client.get("/v1/models", headers={"Origin": origin})
    assert read.headers.get("access-control-allow-origin") == (origin if status == 204 else None)


def test_without_a_token_no_application_of_the_desktop_passes() -> None:
    """As a foreign page can hide its origin."""
    agents = ApiAgents()
    with serve(create_app(agents, token=None, authorize=lambda *_: "ann")) as url:
        headers = {"Origin": "null", "Access-Control-Request-Method": "POST"}
        assert httpx.options(f"{url}/v1/chat/completions", headers=headers).status_code == 403
    agents.close()


def test_errors_of_all_kinds_have_the_form_of_the_api(client: Client) -> None:
    wrong = client.post("/v1/chat/completions", content=b"{", headers={"Content-Type": "application/json"})
    assert (wrong.status_code, wrong.json()["error"]["type"]) == (400, "invalid_request_error")
    missing = client.get("/v1/nothing")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
    anthropic = client.get("/v1/nothing", headers={"anthropic-version": "2023-06-01"})
    assert anthropic.json()["error"]["type"] == "not_found_error"
    assert "instance" in client.get("/nothing").json()


def test_histories_with_images_may_be_large(client: Client) -> None:
    text = "long " + "x" * (5 * 2**20)
    assert post(client, text).status_code == 200
    assert client.post("/runs", json={"input": text}).status_code == 413


def test_an_app_without_endpoints_has_none(agents: ApiAgents) -> None:
    with serve(create_app(agents, token=TOKEN, endpoints=False)) as url, Client(url) as client:
        assert client.get("/v1/models").json()["type"] == "urn:streamkit:error:not-found"


def test_settings_that_are_none_are_refused() -> None:
    for wrong in ({"activity": "loud"}, {"models": "agent"}, {"models": []}, {"questions": "maybe"}):
        with pytest.raises(sk.UsageError, match="Endpoints"):
            Endpoints(**wrong)  # type: ignore[arg-type]
    with pytest.raises(sk.UsageError, match="endpoints"):
        create_app(lambda context: None, token="t", endpoints="yes")  # type: ignore[arg-type]


# -- a view of one's own


async def view(http: Request) -> ApiResponse:
    request = openai_chat.from_request(await http.body())
    agents: ApiAgents = http.app.state.agents
    agent = agents.agent(*request.tools)
    agent.messages = request.history
    return ApiResponse(agent.stream(request.input), request)


@pytest.fixture(scope="module")
def own(agents: ApiAgents) -> Iterator[ChatFront]:
    routes = [Route("/v1/chat/completions", view, methods=["POST"])]
    app = Starlette(routes=routes, exception_handlers={sk.RequestError: request_error_response})
    app.state.agents = agents
    with serve(app) as url:
        made = ChatFront(url)
        yield made
        made.close()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_view_of_ones_own_answers_alike(own: ChatFront, stream: bool) -> None:
    assert own.ask(own.user("own 3"), stream=stream).text == "Let me look.\n\nIt gave: look 3"
    said = own.user("weather Rome")
    first = own.ask(said, tools=[WEATHER], stream=stream)
    answer = own.ask([*said, *first.turn, *own.outputs({first.calls[0][0]: "sunny"})], tools=[WEATHER], stream=stream)
    assert (first.end, answer.text) == ("tool_calls", "It gave: sunny")
    with pytest.raises(openai.APIStatusError, match="502"):
        own.ask(own.user("fail"), stream=stream)


def test_what_is_wrong_with_a_request_is_a_400_in_a_view_of_ones_own(own: ChatFront) -> None:
    with pytest.raises(openai.BadRequestError) as malformed:
        own.ask([])
    assert (malformed.value.param, malformed.value.type) == ("messages", "invalid_request_error")
    with pytest.raises(openai.BadRequestError, match="is the name of a tool of the server: 'look'") as taken:
        own.ask(own.user("hello"), tools=[WEATHER, Schema("look")])
    assert taken.value.param == "tools[1].function.name"
