"""Runs of the package `ai` of Vercel as sources, over the model server with the real clients. They need asyncio and Python 3.12.

pip install -e '.[test,vercel-ai]'
"""

from __future__ import annotations

import asyncio
import functools
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reasoning, Reply, Text, Tokens, ToolCall

from ..faces import AsyncTold

ai = pytest.importorskip("ai")

APIS = ("openai", "anthropic")
LIMIT = 40.0  # seconds of a test, on a machine that is busy with others
TOUR = [
    Reply(
        *(Reasoning("Two cities."), Text("Let me look.")),
        *(ToolCall("get_weather", {"city": city}) for city in ("Oslo", "Rome")),
        usage=Tokens(30, 12, cached=8, reasoning=3),
    ),
    Reply(Reasoning("Compare."), Text("Oslo is colder."), usage=Tokens(60, 7, reasoning=2)),
]
PAYS = Reply(ToolCall("pay", {"sum": 5}))
ASKED = [ai.user_message("Go.")]


@ai.tool
async def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"{city}: {-3 if city == 'Oslo' else 21} degrees"


@ai.tool
async def failing(city: str) -> str:
    """Fails."""
    raise ValueError("no such city")


@ai.tool(require_approval=True)
async def pay(sum: int) -> str:
    """Pays."""
    return f"paid {sum}"


def on_asyncio(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(**given: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**given), LIMIT))  # type: ignore[arg-type]

    return run


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELSDEV_OFFLINE", "1")


@asynccontextmanager
async def model_on(*replies: Reply, api: str = "openai") -> AsyncIterator[tuple[Any, ModelServer]]:
    kind: Any = openai.AsyncOpenAI if api == "openai" else anthropic.AsyncAnthropic
    with ModelServer([*replies]) as server:
        url = server.url if api == "openai" else server.root_url
        async with kind(base_url=url, api_key="x", max_retries=0) as client:
            yield ai.Model(id="scripted", provider=ai.get_provider(api, client=client)), server


def run_of(model: Any, *tools: Any) -> Any:
    return ai.Agent(tools=[*tools]).run(model, ASKED)


def shown(stream: Any) -> list[tuple[str, str, str | None]]:
    return [(message.type, message.content, message.step_id) for message in stream.messages]


def answering(how: Callable[[sk.Confirmation], None]) -> AsyncTold:
    return AsyncTold(on_confirmation=lambda _, confirmation: how(confirmation))


# -- what it says


@pytest.mark.parametrize("api", APIS)
@on_asyncio
async def test_a_run_is_text_reasoning_calls_outputs_and_steps(api: str) -> None:
    """Nothing is repaired. Outputs may come while their response goes on."""
    told = AsyncTold()
    async with model_on(*TOUR, api=api) as (model, _):
        stream = sk.astream(run_of(model, get_weather), told, strict=True)
        assert await stream.get_final_text() == "Oslo is colder."
    told.check_brackets()
    assert sorted(shown(stream)[:6]) == [
        ("message", "Let me look.", "step-1"),
        ("reasoning", "Two cities.", "step-1"),
        ("tool_call", '{"city": "Oslo"}', "step-1"),
        ("tool_call", '{"city": "Rome"}', "step-1"),
        ("tool_output", "Oslo: -3 degrees", "step-1"),
        ("tool_output", "Rome: 21 degrees", "step-1"),
    ]
    assert shown(stream)[6:] == [("reasoning", "Compare.", "step-2"), ("message", "Oslo is colder.", "step-2")]
    steps, run = await stream.get_final_run_steps(), await stream.get_final_run()
    assert [step.usage and step.usage.output_tokens for step in steps] == [12, 7]
    assert (run.status, run.model, run.finish_reason, steps[0].finish_reason) == (
        *("completed", "scripted", "stop"),
        "tool_call",
    )


@pytest.mark.parametrize("api", APIS)
@on_asyncio
async def test_one_response_is_a_source_whose_calls_wait(api: str) -> None:
    async with model_on(TOUR[0], api=api) as (model, _):
        stream = sk.astream(ai.stream(model, ASKED, tools=[get_weather.tool]), strict=True)
        await stream.until_done()
    assert [kind for kind, _, _ in shown(stream)] == ["reasoning", "message", "tool_call", "tool_call"]
    assert stream.status == "requires_action"


@on_asyncio
async def test_what_a_sub_agent_says_has_the_call_that_began_it_as_its_parent() -> None:
    """Its questions too, which are answered as others."""
    replies = [Reply(ToolCall("ask", {"question": "Oslo?"})), PAYS, Reply("Cold."), Reply("It is cold.")]
    async with model_on(*replies) as (model, _):

        @ai.tool
        async def ask(question: str) -> ai.SubAgentTool:
            """Asks."""
            async with run_of(model, pay) as events:
                async for event in events:
                    yield event

        stream = sk.astream(run_of(model, ask), answering(lambda one: one.approve()), strict=True)
        assert await stream.get_final_text() == "It is cold."
    assert [(m.type, m.content, m.parent_id) for m in stream.messages] == [
        ("tool_call", '{"question": "Oslo?"}', None),
        ("tool_call", '{"sum": 5}', "call_1_0"),
        ("tool_output", "paid 5", "call_1_0"),
        ("message", "Cold.", "call_1_0"),
        ("tool_output", "Cold.", None),
        ("message", "It is cold.", None),
    ]


@on_asyncio
async def test_a_recording_replays_the_run(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    async with model_on(PAYS, Reply("Done.")) as (model, _):
        stream = sk.astream(run_of(model, pay), answering(lambda one: one.approve()), sk.Recorder(path))
        await stream.until_done()
    replayed = sk.stream(path)
    assert [m.to_dict() for m in replayed.get_final_messages()] == [m.to_dict() for m in stream.messages]
    assert [one.status for one in replayed.confirmations] == ["approved"]
    assert (replayed.usage, replayed.status) == (stream.usage, "completed")


# -- questions


def approve_later(confirmation: sk.Confirmation) -> None:
    confirmation.defer()
    asyncio.get_running_loop().run_in_executor(None, confirmation.approve)


@pytest.mark.parametrize(
    ("how", "status", "output"),
    [
        (lambda one: one.approve(), "approved", "paid 5"),
        (approve_later, "approved", "paid 5"),
        (lambda one: one.decline("too much"), "declined", "Rejected: too much"),
        (lambda one: one.defer(0.01), "declined", "Rejected: no answer in time"),
    ],
    ids=["approved", "approved by a thread", "declined", "too late"],
)
@on_asyncio
async def test_a_run_goes_on_with_the_answer(how: Callable[[sk.Confirmation], None], status: str, output: str) -> None:
    async with model_on(PAYS, Reply("Done.")) as (model, _):
        stream = sk.astream(run_of(model, pay), told := answering(how), strict=True)
        assert await stream.get_final_text() == "Done."
    told.check_brackets()
    assert [one.status for one in told.of("on_confirmation_done")] == [status]
    assert (stream.messages[1].content, stream.status) == (output, "completed")


@on_asyncio
async def test_a_run_that_waits_for_an_answer_that_nobody_gives_requires_action() -> None:
    async with model_on(PAYS) as (model, _):
        stream = sk.astream(run_of(model, pay), strict=True)
        messages = await stream.get_final_messages()
    assert [(one.subject, one.status) for one in stream.confirmations] == [(messages[0], "unanswered")]
    assert stream.status == "requires_action"


# -- what fails


@on_asyncio
async def test_a_tool_that_raises_has_a_failed_output_and_the_run_goes_on() -> None:
    async with model_on(Reply(ToolCall("failing", {"city": "X"})), Reply("Done.")) as (model, _):
        _, output, answer = await sk.astream(run_of(model, failing), strict=True).get_final_messages()
    assert (output.content, output.status) == ("ValueError: no such city", "failed")
    assert (output.metadata, answer.content) == ({"error": True}, "Done.")


@pytest.mark.parametrize("api", APIS)
@on_asyncio
async def test_an_error_after_some_deltas_keeps_what_came(api: str) -> None:
    """Its exception is not in the groups that the framework's tasks put around it."""
    failing_reply = Reply("Hello there.", error_after=2)
    async with model_on(Reply(ToolCall("get_weather", {"city": "Oslo"})), failing_reply, api=api) as (model, _):
        with pytest.raises(sk.SourceError) as raised:
            await sk.astream(run_of(model, get_weather)).until_done()
    assert not isinstance(raised.value.__cause__, BaseExceptionGroup)
    assert [(m.type, m.status) for m in raised.value.messages] == [
        ("tool_call", "completed"),
        ("tool_output", "completed"),
        ("message", "failed"),
    ]


@pytest.mark.parametrize("api", APIS)
@on_asyncio
async def test_a_request_that_is_refused_says_so(api: str) -> None:
    async with model_on(Reply(status=429), api=api) as (model, _):
        with pytest.raises(sk.SourceError) as raised:
            await sk.astream(run_of(model)).until_done()
    assert isinstance(raised.value.__cause__, ai.AIError)


# -- its end


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("source", ["agent", "response", "generator"])
@pytest.mark.parametrize("way", ["close", "cancel"])
@on_asyncio
async def test_stopping_the_stream_stops_the_run_and_its_request(api: str, source: str, way: str) -> None:
    """Before any garbage is collected, and where the run is in a generator of one's own."""

    async def events(run: Any) -> AsyncIterator[Any]:
        async with run as entered:
            async for event in entered:
                yield event

    async with model_on(Reply("Hello there.", never_ends=True), api=api) as (model, server):
        run = ai.stream(model, ASKED) if source == "response" else run_of(model)
        stream = sk.astream(events(run) if source == "generator" else run)
        gc.disable()
        try:
            async for _ in stream.text_deltas:
                if way == "cancel":
                    stream.cancel()
                else:
                    break
            await stream.close()
            assert await asyncio.to_thread(server.wait_for_disconnect, 10)
        finally:
            gc.enable()
    assert (stream.status, stream.messages[0].content) == ("cancelled", "Hell")
