"""LiteLLM's proxy between the clients of model APIs and an agent in the model's place.

It has an environment of its own, as its dependencies fit no other: `LITELLM` is the path of the program.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from streamkit.server import Endpoints, create_app

from ..server.api_parts import FRONTS, WEATHER, ApiAgents, Front
from ..server.parts import TOKEN, Client, serve, wait_for

PROGRAM = os.environ.get("LITELLM") or shutil.which("litellm")
KEY = "sk-of-the-proxy"
MODELS = {"chat": "agent", "responses": "agent", "messages": "claude"}

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="there is no program `litellm`: see the extra of that name")
streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.fixture(scope="module")
def agents() -> Iterator[ApiAgents]:
    made = ApiAgents()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def new_records(agents: ApiAgents) -> None:
    agents.forget()


@pytest.fixture(scope="module")
def url(agents: ApiAgents) -> Iterator[str]:
    with serve(create_app(agents, token=TOKEN, endpoints=Endpoints())) as url:
        yield url


@pytest.fixture(scope="module")
def proxy(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address. Models whose names begin with `wrong-` send a wrong key to the agent."""
    file = tmp_path_factory.mktemp("litellm") / "config.json"
    rows = [("agent", "openai/agent", f"{url}/v1"), ("claude", "anthropic/agent", url)]
    models = [
        {"model_name": prefix + name, "litellm_params": {"model": model, "api_base": base, "api_key": key}}
        for name, model, base in rows
        for prefix, key in (("", TOKEN), ("wrong-", "wrong"))
    ]
    settings = {"num_retries": 0, "disable_cooldowns": True}
    file.write_text(
        json.dumps({"model_list": models, "router_settings": settings, "general_settings": {"master_key": KEY}})
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    yield from _started(file, port)


def _started(file: Path, port: int) -> Iterator[str]:
    assert PROGRAM is not None
    address = f"http://127.0.0.1:{port}"
    command = [PROGRAM, "--config", str(file), "--host", "127.0.0.1", "--port", str(port), "--telemetry", "False"]
    environment = {**os.environ, "NO_PROXY": "*", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with file.with_suffix(".log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)

    def is_up() -> bool:
        assert process.poll() is None, file.with_suffix(".log").read_text()
        try:
            return httpx.get(f"{address}/health/liveliness", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    try:
        wait_for(is_up, seconds=120)
        yield address
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module", params=FRONTS, ids=lambda kind: kind.name)
def front(request: pytest.FixtureRequest, proxy: str) -> Iterator[Front]:
    made = request.param(proxy, KEY, max_retries=0)
    yield made
    made.close()


@streamed
def test_a_text_with_its_tokens_and_reasoning(front: Front, stream: bool) -> None:
    answer = front.ask(front.user("think"), stream=stream, model=MODELS[front.name])
    assert (answer.text, answer.reasoning, answer.end) == ("Well.", "Hm, so.", front.ends["done"])
    assert answer.tokens == (10, 4)


@streamed
def test_tools_of_the_agent_and_of_the_client(front: Front, agents: ApiAgents, stream: bool) -> None:
    model = MODELS[front.name]
    own = front.ask(front.user("own 3"), stream=stream, model=model)
    assert (own.text, own.calls, agents.looked) == ("Let me look.\n\nIt gave: look 3", [], [3])
    said = front.user("mixed Rome")
    first = front.ask(said, tools=[WEATHER], stream=stream, model=model)
    assert first.end == front.ends["call"]
    turns = [*said, *first.turn, *front.outputs({first.calls[0][0]: "sunny"})]
    second = front.ask(turns, tools=[WEATHER], stream=stream, model=model)
    assert (second.text, agents.looked) == ("It gave: look 7 | sunny", [3, 7])


@streamed
def test_failures_are_errors_of_the_client(front: Front, agents: ApiAgents, stream: bool) -> None:
    """Before the first byte, after it, and of the key. Nobody asks again once a run began."""
    model = MODELS[front.name]
    with pytest.raises(front.error, match=r"502.*provider failed"):
        front.ask(front.user("fail"), stream=stream, model=model)
    with pytest.raises(front.error.__mro__[1], match=r"The source failed|provider failed"):
        front.ask(front.user("break"), stream=stream, model=model)
    assert len(agents.contexts) == 2
    with pytest.raises(front.error, match=r"401.*The token is missing or wrong"):
        front.ask(front.user("hello"), stream=stream, model=f"wrong-{model}")


def test_a_client_that_leaves_stops_the_run(front: Front, url: str) -> None:
    leave = front.begin(front.user("hang"), MODELS[front.name])
    with Client(url) as client:
        run = client.get("/runs", params={"status": "in_progress"}).json()["runs"][0]["id"]
        leave()
        client.until(run, "cancelled")
