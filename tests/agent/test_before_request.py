"""`before_request` sees each request of an agent before it is sent, and may change it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anthropic
import anyio
import anyio.lowlevel
import openai
import pytest

import streamkit as sk
from streamkit.agent import ModelRequest
from streamkit.testing import ModelServer, Reply, ToolCall

from ..faces import Face, async_faces, body, both_shells, every_face
from .parts import agent_on, every_provider, outputs_of


def look(number: int = 0) -> str:
    """Look at something."""
    return f"seen {number}"


def calls(count: int) -> list[Reply]:
    """Answers that call the tool, then one that ends the run."""
    return [*(Reply(ToolCall("look", {"number": number})) for number in range(count)), Reply("Done.")]


def texts_of(request: Any) -> str:
    """Everything that a request says."""
    return str(request.body)


@every_face
@every_provider
@body
async def test_each_part_of_a_request_can_be_changed(face: Face, provider: str) -> None:
    """For this request alone: the next one, and the conversation, are as if nothing had been changed."""

    def change(request: ModelRequest) -> None:
        if request.step == 1:
            request.model, request.instructions = "another", "Be brief."
            request.messages.append(sk.TextMessage(role="user", content="One more thing."))
            request.tools.clear()
            request.options["extra_body"] = {"seed": 5}

    with ModelServer(calls(1)) as server:
        async with agent_on(face, server, provider, tools=[look], before_request=change) as talker:
            await talker.say("Go.")
            contents = talker.contents
        first, second = server.requests
    assert (first.body["model"], first.body["seed"], "tools" in first.body) == ("another", 5, False)
    assert "Be brief." in texts_of(first)
    assert "One more thing." in texts_of(first)
    assert (second.body["model"], "seed" in second.body, len(second.body["tools"])) == ("m", False, 1)
    assert "Be brief." not in texts_of(second)
    assert "One more thing." not in texts_of(second)
    assert contents[0] == ("message", "Go.")
    assert [kind for kind, _ in contents] == ["message", "tool_call", "tool_output", "message"]


@both_shells
@body
async def test_it_sees_the_step_and_the_applications_object(face: Face) -> None:
    seen: list[Any] = []
    with ModelServer(calls(2)) as server:
        before = lambda request: seen.append((request.step, request.deps, request.model))  # noqa: E731
        async with agent_on(face, server, tools=[look], before_request=before) as talker:
            await talker.say("Go.", deps="mine")
    assert seen == [(1, "mine", "m"), (2, "mine", "m"), (3, "mine", "m")]


@both_shells
@body
async def test_another_request_can_take_its_place(face: Face) -> None:
    def other(request: ModelRequest) -> ModelRequest:
        return replace(request, instructions=f"This is request {request.step}.")

    with ModelServer(calls(1)) as server:
        async with agent_on(face, server, tools=[look], before_request=other) as talker:
            await talker.say("Go.")
        systems = [request.body["messages"][0]["content"] for request in server.requests]
    assert systems == ["This is request 1.", "This is request 2."]


@async_faces
@body
async def test_it_may_be_async(face: Face) -> None:
    async def change(request: ModelRequest) -> ModelRequest | None:
        await anyio.lowlevel.checkpoint()
        request.model = f"m{request.step}"
        return None if request.step == 1 else request

    with ModelServer(calls(1)) as server:
        async with agent_on(face, server, tools=[look], before_request=change) as talker:
            await talker.say("Go.")
        assert [request.body["model"] for request in server.requests] == ["m1", "m2"]


# -- where it fails


@both_shells
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("error", [ValueError("too dear"), sk.SourceError("its own"), StopIteration("over")])
@body
async def test_what_it_raises_ends_the_stream_as_a_hooks_error_does(face: Face, error: Any, step: int) -> None:
    """It is raised itself, and the request is not sent."""

    def refuse(request: ModelRequest) -> None:
        if request.step == step:
            raise error

    with ModelServer(calls(3)) as server:
        async with agent_on(face, server, tools=[look], before_request=refuse) as talker:
            told = face.told()
            stream = talker.stream("Go.", told)
            with pytest.raises((type(error), RuntimeError)) as caught:
                await stream.until_done()
        assert len(server.requests) == step - 1
    told.check_brackets()
    assert error in (caught.value, caught.value.__cause__)
    assert (stream.status, stream.error) == ("failed", error)
    assert told.of("on_exception") == [error]


@async_faces
@body
async def test_so_does_what_an_async_one_raises(face: Face) -> None:
    async def refuse(request: ModelRequest) -> None:
        await anyio.lowlevel.checkpoint()
        raise ValueError("too dear")

    with ModelServer(calls(1)) as server:
        async with agent_on(face, server, before_request=refuse) as talker:
            stream = talker.stream("Go.")
            with pytest.raises(ValueError, match="too dear"):
                async with stream:
                    pass
        assert not server.requests
    assert stream.status == "failed"


@both_shells
@body
async def test_it_returns_a_request_or_nothing(face: Face) -> None:
    with ModelServer(calls(1)) as server:
        async with agent_on(face, server, before_request=lambda request: request.messages) as talker:
            with pytest.raises(sk.UsageError, match="`before_request` returns a `ModelRequest` or None"):
                await talker.say("Go.")
        assert not server.requests


def misspells(request: ModelRequest) -> None:
    request.message = []  # type: ignore[attr-defined]


def empties(request: ModelRequest) -> None:
    request.messages = None  # type: ignore[assignment]


@both_shells
@body
async def test_what_a_request_does_not_have_is_refused(face: Face) -> None:
    with ModelServer(calls(1)) as server:
        async with agent_on(face, server, before_request=misspells) as talker:
            with pytest.raises(AttributeError, match="message"):
                await talker.say("Go.")
        async with agent_on(face, server, before_request=empties) as talker:
            with pytest.raises(sk.UsageError, match=r"`request\.messages` is a `list`"):
                await talker.say("Go.")
        assert not server.requests


@both_shells
@body
async def test_an_option_that_the_client_does_not_have_is_refused(face: Face) -> None:
    def change(request: ModelRequest) -> None:
        request.options["temprature"] = 1

    with ModelServer(calls(1)) as server:
        async with agent_on(face, server, before_request=change) as talker:
            with pytest.raises(sk.UsageError, match="'temprature': did you mean 'temperature'"):
                await talker.say("Go.")


async def _async_change(request: ModelRequest) -> None:
    pass


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ("x", "a function of a `ModelRequest`, not 'x'"),
        (ModelRequest, "a function of a `ModelRequest`, not <class"),
        (_async_change, "`before_request` is `async def`: use `AsyncAgent`"),
    ],
)
def test_an_agent_refuses_what_is_no_function_for_it(wrong: Any, fault: str) -> None:
    with pytest.raises(sk.UsageError, match=fault):
        sk.Agent(openai.OpenAI(api_key="any"), model="m", before_request=wrong)


def test_an_awaitable_is_refused_by_a_sync_agent() -> None:
    """Where it shows only when the function is called."""
    with ModelServer(calls(1)) as server, openai.OpenAI(base_url=server.url, api_key="any") as client:
        agent = sk.Agent(client, model="m", before_request=lambda request: _async_change(request))
        with pytest.raises(sk.UsageError, match="use `AsyncAgent`"):
            agent.stream("Go.").until_done()


# -- what it is for


@both_shells
@body
async def test_a_long_run_is_kept_short(face: Face) -> None:
    """Thirty steps, of which each request has the newest rounds alone."""
    seen: list[int] = []

    def compact(request: ModelRequest) -> None:
        first = next((n for n in range(max(1, len(request.messages) - 4), 99) if _is_call(request.messages, n)), 1)
        request.messages[1:first] = []
        seen.append(len(request.messages))

    with ModelServer(calls(29)) as server:
        async with agent_on(face, server, tools=[look], max_steps=30, before_request=compact) as talker:
            stream = await talker.say("Go.")
            assert len(talker.messages) == 1 + 2 * 29 + 1
        last = server.requests[-1]
    assert stream.status == "completed"
    assert max(seen) == 5
    assert [*outputs_of(last).values()] == ["seen 27", "seen 28"]


def _is_call(messages: list[Any], index: int) -> bool:
    return index < len(messages) and messages[index].type == "tool_call"


@asynccontextmanager
async def clients(face: Face, server: ModelServer) -> AsyncIterator[dict[str, Any]]:
    """A client of openai's, and one of anthropic's."""
    async with face.client(server) as client:
        options: dict[str, Any] = {"base_url": server.root_url, "api_key": "any", "max_retries": 0}
        if face.is_async:
            async with anthropic.AsyncAnthropic(**options) as claude:
                yield {"openai": client, "anthropic": claude}
        else:
            with anthropic.Anthropic(**options) as claude:
                yield {"openai": client, "anthropic": claude}


@both_shells
@every_provider
@body
async def test_another_provider_can_go_on_with_a_run(face: Face, provider: str, tmp_path: Path) -> None:
    """Each of its requests is in the protocol of its client, and so is what the answers are read with; also when they are played
    back."""
    path = tmp_path / "run.jsonl"
    with ModelServer(calls(3)) as server:
        async with clients(face, server) as others:

            def swap(request: ModelRequest) -> None:
                if request.step % 2 == 0:
                    request.client = others["openai" if provider == "anthropic" else "anthropic"]

            async with agent_on(face, server, provider, tools=[look], before_request=swap) as talker:
                stream = await talker.say("Go.", sk.Recorder(path))
                contents = talker.contents
        paths = [request.path.rpartition("/")[2] for request in server.requests]
        outputs = [*outputs_of(server.requests[3]).values()]
    own = {"openai_responses": "responses", "openai_chat": "completions", "anthropic": "messages"}[provider]
    other = "completions" if provider == "anthropic" else "messages"
    assert paths == [own, other, own, other]
    assert outputs == ["seen 0", "seen 1", "seen 2"]
    assert contents[-1] == ("message", "Done.")
    played = face.stream(path)
    await played.until_done()
    assert [(m.type, m.content) for m in played.messages] == [(m.type, m.content) for m in stream.messages]
    assert (played.status, played.usage) == (stream.status, stream.usage)


@every_face
@body
async def test_its_own_time_is_not_the_models(face: Face) -> None:
    """It may ask another model for a summary."""

    def slow(request: ModelRequest) -> None:
        time.sleep(0.6)

    async def slow_async(request: ModelRequest) -> None:
        await anyio.sleep(0.6)

    before = slow_async if face.is_async else slow
    with ModelServer(calls(1)) as server:
        async with agent_on(face, server, tools=[look], timeouts=0.5, before_request=before) as talker:
            assert (await talker.say("Go.")).status == "completed"


@async_faces
@pytest.mark.parametrize("step", [1, 2])
@body
async def test_cancel_ends_it(face: Face, step: int) -> None:
    """While it waits. No request follows."""

    async def wait(request: ModelRequest) -> None:
        if request.step == step:
            stream.cancel()
            await anyio.sleep_forever()

    with ModelServer(calls(1)) as server:
        async with agent_on(face, server, tools=[look], before_request=wait) as talker:
            stream = talker.stream("Go.")
            await stream.until_done()
        assert len(server.requests) == step - 1
    assert stream.status == "cancelled"
