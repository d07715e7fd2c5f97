"""Recordings served as a model's answers: `Reply(recording=…)` and `streamkit mock`."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reply, Text, ToolCall

PROVIDERS = ("openai_chat", "openai_responses", "anthropic")
PATHS = {"openai_chat": "/chat/completions", "openai_responses": "/responses", "anthropic": "/messages"}
ANSWER = (Text(pieces=["It is ", "“cold”", " \U0001f327."]),)


clients = contextlib.ExitStack()


@pytest.fixture(autouse=True)
def _clients_are_closed() -> Iterator[None]:
    with clients:
        yield


def openai_of(server: ModelServer) -> openai.OpenAI:
    return clients.enter_context(openai.OpenAI(base_url=server.url, api_key="k", max_retries=0))


def ask(server: ModelServer, provider: str) -> Any:
    """A request with the real client."""
    if provider == "anthropic":
        claude = clients.enter_context(anthropic.Anthropic(base_url=server.root_url, api_key="k", max_retries=0))
        return lambda: claude.messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "?"}], stream=True
        )
    client = openai_of(server)
    if provider == "openai_responses":
        return lambda: client.responses.create(model="m", input="?", stream=True)
    return lambda: client.chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}], stream=True)


def recorded(path: Path, provider: str, *parts: Any) -> Path:
    """A recording of an answer with these parts."""
    with ModelServer(Reply(*parts)) as server:
        sk.stream(ask(server, provider), sk.Recorder(path)).until_done()
    return path


def body(server: ModelServer, provider: str) -> bytes:
    """The body that any client gets."""
    request = {"model": "m", "input": "?", "messages": [], "max_tokens": 9, "stream": True}
    headers = {"anthropic-version": "2023-06-01", "x-api-key": "k"}
    return httpx.post(f"{server.url}{PATHS[provider]}", json=request, headers=headers).content


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_answer_of_a_recording_is_sent_byte_for_byte_in_its_own_api(provider: str, tmp_path: Path) -> None:
    path = recorded(tmp_path / "run.jsonl", provider, *ANSWER)
    with ModelServer(Reply(*ANSWER)) as server:
        original = body(server, provider)
    with ModelServer(Reply(recording=path)) as server:
        assert body(server, provider).replace(b"data: [DONE]\n\n", b"") == original.replace(b"data: [DONE]\n\n", b"")


@pytest.mark.parametrize("asked", PROVIDERS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_answer_of_a_recording_is_sent_in_the_api_that_is_asked(provider: str, asked: str, tmp_path: Path) -> None:
    """Texts, calls and the end, read with the real client of that API."""
    path = recorded(tmp_path / "run.jsonl", provider, *ANSWER, ToolCall("look", {"at": "snow"}))
    with ModelServer(Reply(recording=path)) as server:
        stream = sk.stream(ask(server, asked))
        stream.until_done()
    assert [(message.type, message.content) for message in stream.messages] == [
        ("message", "It is “cold” \U0001f327."),
        ("tool_call", '{"at": "snow"}'),
    ]
    assert stream.warnings == ()


def look(at: str) -> str:
    """Look.

    Args:
        at: where.
    """
    return f"white {at}"


def of_an_agent(path: Path) -> Path:
    """A recording of an agent's run: two answers, with a tool between them."""
    with ModelServer([Reply(ToolCall("look", {"at": "snow"})), Reply("It is white.")]) as server:
        agent = sk.Agent(openai_of(server), model="m", tools=[look])
        agent.stream("?", sk.Recorder(path)).until_done()
    return path


def test_each_answer_of_an_agent_s_recording_is_one_of_its_own(tmp_path: Path) -> None:
    """What its tools returned is in none of them."""
    path = of_an_agent(tmp_path / "run.jsonl")
    script = [Reply(recording=path), Reply(recording=path, answer=2)]
    with ModelServer(script) as server:
        agent = sk.Agent(openai_of(server), model="m", tools=[look])
        assert agent.stream("?").get_final_text() == "It is white."
    assert [message.type for message in agent.messages] == ["message", "tool_call", "tool_output", "message"]
    with pytest.raises(sk.UsageError, match="has 2 answers, and no answer=3"):
        Reply(recording=path, answer=3)
    with pytest.raises(sk.UsageError, match="answer= is that of a recording"):
        Reply("Hello.", answer=2)


def test_a_saved_body_is_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "body.sse"
    with ModelServer(Reply("saved")) as server:
        path.write_bytes(body(server, "openai_chat"))
    with ModelServer(Reply(recording=path)) as server:
        assert body(server, "openai_chat") == path.read_bytes()
        assert sk.stream(ask(server, "anthropic")).get_final_text() == "saved"


def test_a_request_that_is_no_stream_gets_an_error(tmp_path: Path) -> None:
    path = recorded(tmp_path / "run.jsonl", "openai_chat", *ANSWER)
    with ModelServer(Reply(recording=path)) as server:
        client = openai_of(server)
        with pytest.raises(openai.BadRequestError, match="stream"):
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}])


@pytest.mark.parametrize("content", [None, b"", b"nothing of that kind"])
def test_a_file_without_an_answer_is_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(sk.UsageError):
        Reply(recording=path)
    with pytest.raises(sk.UsageError, match="not two of them"):
        Reply("a", recording=recorded(tmp_path / "other.jsonl", "openai_chat", *ANSWER))


@contextlib.contextmanager
def mock(*files: Path) -> Iterator[dict[str, str]]:
    """A process of `streamkit mock`: the addresses that it prints."""
    command = [sys.executable, "-m", "streamkit", "mock", *map(str, files)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        timer = threading.Timer(60, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(3)]
            yield {"count": lines[0].split()[0], **dict(line.split(maxsplit=1) for line in lines[1:])}
        finally:
            timer.cancel()
            process.terminate()


def test_the_command_serves_all_answers_of_its_files(tmp_path: Path) -> None:
    first = of_an_agent(tmp_path / "first.jsonl")
    second = recorded(tmp_path / "second.jsonl", "anthropic", *ANSWER)
    with mock(first, second) as printed:
        assert printed["count"] == "3"
        url = printed["OpenAI:"].strip().removeprefix("base_url=")
        request = {"model": "m", "messages": [], "stream": True}
        said = [httpx.post(f"{url}/chat/completions", json=request).text for _ in range(4)]
    assert ["look" in text for text in said] == [True, False, False, False]
    texts = [sk.stream(iter([text.encode()])).get_final_text() for text in said[1:]]
    assert texts == ["It is white.", "It is “cold” \U0001f327.", "It is “cold” \U0001f327."]
