"""The clients of model APIs for Node, with an agent in the model's place: openai's, and Vercel's `ai` with its providers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from streamkit.server import create_app

from ..test_ui_clients import HERE, NODE, PACKAGES
from .api_parts import ApiAgents
from .parts import TOKEN, Client, serve

INSTALLED = NODE.exists() and (PACKAGES / "node_modules" / "@ai-sdk" / "openai-6").exists()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not INSTALLED, reason=f"the npm clients are not installed in {PACKAGES}"),
]
CLIENTS = ("openai chat", "openai responses", "ai chat", "ai responses", "ai messages")


@pytest.fixture(scope="module")
def agents() -> Iterator[ApiAgents]:
    made = ApiAgents()
    yield made
    made.close()


@pytest.fixture(scope="module")
def url(agents: ApiAgents) -> Iterator[str]:
    with serve(create_app(agents, token=TOKEN)) as url:
        yield url


def ask(name: str, url: str, how: str, *requests: tuple[str, str]) -> list[Any]:
    """What a client has of the answers to these requests, each a key and what the user says."""
    script = (HERE / "models.mjs").read_text("utf-8")
    command = [str(NODE), "--input-type=module", "--eval", script, "--", name, url, how, json.dumps(requests)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PACKAGES, timeout=60)
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout)
    return answers


@pytest.mark.parametrize("how", ["whole", "stream"])
@pytest.mark.parametrize("name", CLIENTS)
def test_an_agent_is_a_model_to_clients_in_node(agents: ApiAgents, url: str, name: str, how: str) -> None:
    """A text with its reasoning and tokens; the agent's own tool beside the client's; an error before and after the first byte."""
    requests = [(TOKEN, said) for said in ("think", "mixed Rome", "fail", "break")]
    thought, answer, failed, broken, refused = ask(name, url, how, *requests, ("wrong", "think"))
    assert (thought["text"], thought["reasoning"]) == ("Well.", reasoning_of(name, how))
    assert (answer["text"], agents.looked) == ("It gave: look 7 | sunny in Rome", [7])
    assert answer["tokens"] >= 30
    assert "provider failed" in failed["error"]
    assert "error" in broken
    assert "token is missing or wrong" in refused["error"]
    assert (
        len(agents.contexts) == 5
    )  # none asked again by itself: `ai` because of `maxRetries: 0`, as it does not read our header


def reasoning_of(name: str, how: str) -> str:
    """What a client has of `Hm, so.`"""
    if name == "ai chat":
        return ""
    return " so." if (name, how) == ("openai chat", "stream") else "Hm, so."  # its helper has the last piece alone


@pytest.mark.parametrize("name", ["openai chat", "ai messages"])
def test_a_client_in_node_that_leaves_stops_its_run(url: str, name: str) -> None:
    assert ask(name, url, "leave", (TOKEN, "hang")) == [{"text": ""}]
    with Client(url) as client:
        client.until(client.get("/runs", params={"limit": 1}).json()["runs"][0]["id"], "cancelled")


def test_a_stream_in_the_background_is_resumed_in_node(url: str) -> None:
    [resumed] = ask("openai responses", url, "background", (TOKEN, "hello"))
    assert (resumed["text"], resumed["events"]) == ("You said: hello", [*range(len(resumed["events"]))])


def test_a_second_message_in_node(agents: ApiAgents, url: str) -> None:
    """`ai` sends ids in place of the items of earlier answers."""
    assert ask("ai responses", url, "twice", (TOKEN, "mixed Rome")) == [{"text": "Well."}]
    answers = [message["content"] for message in agents.requests[-1]["messages"] if message["role"] == "assistant"]
    assert answers[-1] == "It gave: look 7 | sunny in Rome"
