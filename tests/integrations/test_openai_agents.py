"""Runs of the OpenAI Agents SDK as sources, over the model server with the real client. They need asyncio.

pip install -e '.[test,integrations]'
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reasoning, Refusal, Reply, Text, Tokens, ToolCall

from ..faces import AsyncTold

agents = pytest.importorskip("agents")
agents.set_tracing_disabled(True)

MODELS = {"responses": agents.OpenAIResponsesModel, "chat": agents.OpenAIChatCompletionsModel}
LIMIT = 40.0  # seconds of a test, on a machine that is busy with others
TOUR = [
    Reply(
        *(Reasoning("Two cities."), Text("Let me look.")),
        *(ToolCall("get_weather", {"city": city}) for city in ("Oslo", "Rome")),
        usage=Tokens(30, 12, cached=8, reasoning=3),
    ),
    Reply(Reasoning("Compare."), Text("Oslo is colder."), usage=Tokens(60, 7, reasoning=2)),
]
WEATHER = Reply(ToolCall("get_weather", {"city": "Oslo"}), usage=Tokens(9, 4))
DONE = Reply("Done.", usage=Tokens(5, 1))

on_both = pytest.mark.parametrize("api", MODELS)


def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"{city}: {-3 if city == 'Oslo' else 21} degrees"


def on_asyncio(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(**given: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**given), LIMIT))  # type: ignore[arg-type]

    return run


@asynccontextmanager
async def agent_on(*replies: Reply, api: str = "responses", **options: Any) -> AsyncIterator[tuple[Any, ModelServer]]:
    """An agent of the SDK's, whose client is closed, and the server of its model."""
    with ModelServer([*replies]) as server:
        async with openai.AsyncOpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
            model = MODELS[api](model="scripted", openai_client=client)
            settings = agents.ModelSettings(include_usage=True)
            tools = {"tools": [agents.function_tool(get_weather)]}
            yield (
                agents.Agent(**{"name": "weather", "model": model, "model_settings": settings, **tools, **options}),
                server,
            )


def run_of(agent: Any, **options: Any) -> Any:
    return agents.Runner.run_streamed(agent, "Oslo or Rome?", **options)


def contents(stream: Any) -> list[tuple[str, str, str]]:
    return [(message.type, message.content, message.status) for message in stream.messages]


# -- what it says


@on_both
@on_asyncio
async def test_a_run_is_shown_as_streamkits_own_agent_would(api: str) -> None:
    """The same hooks, the same messages in the same steps, the same tokens. Nothing is repaired. On Chat the SDK ends all items at the
    end of a response."""
    theirs, ours = AsyncTold(), AsyncTold()
    async with agent_on(*TOUR, api=api) as (agent, _):
        stream = sk.astream(run_of(agent), theirs, strict=True)
        assert await stream.get_final_text() == "Oslo is colder."
    theirs.check_brackets()
    with ModelServer([*TOUR]) as server:
        async with openai.AsyncOpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
            own = sk.AsyncAgent(client, model="scripted", tools=[get_weather], protocol=f"openai_{api}").stream(
                "?", ours
            )
            await own.until_done()
    families = ("on_text", "on_reasoning", "on_tool", "on_run", "on_usage")
    hooks = [[name for name in told.hooks if name.startswith(families)] for told in (theirs, ours)]
    assert hooks[0] == hooks[1] if api == "responses" else sorted(hooks[0]) == sorted(hooks[1])

    def shown(stream: Any) -> list[Any]:
        fields = [(m.type, m.role, m.content, m.name, m.call_id, m.step_id, m.status) for m in stream.messages]
        return [*fields[:4], *sorted(fields[4:6]), *fields[6:]]  # our functions run beside each other

    assert shown(stream) == shown(own)
    assert len({message.id for message in stream.messages}) == 8
    assert stream.usage is not None
    assert (stream.usage.input_tokens, stream.usage.output_tokens) == (90, 19)
    assert not stream.warnings


@on_asyncio
async def test_events_without_the_run_are_read_too() -> None:
    """Those of `stream_events()`, whose run is found, and those in a generator of one's own."""
    for wraps in (False, True):
        async with agent_on(*TOUR) as (agent, _):
            run = run_of(agent)

            async def events(run: Any = run) -> AsyncIterator[Any]:
                async for event in run.stream_events():
                    yield event

            stream = sk.astream(events() if wraps else run.stream_events(), strict=True)
            assert await stream.get_final_text() == "Oslo is colder."
            assert (stream.status, len(await stream.get_final_run_steps())) == ("completed", 2)


@on_asyncio
async def test_a_run_begins_when_the_stream_does_where_a_coroutine_function_makes_it() -> None:
    async with agent_on(DONE) as (agent, server):

        async def ask() -> Any:
            return run_of(agent)

        stream = sk.astream(ask)
        assert not server.requests
        assert await stream.get_final_text() == "Done."


@on_asyncio
async def test_a_sync_stream_of_a_run_is_refused() -> None:
    async with agent_on(DONE) as (agent, _):
        run = run_of(agent)
        with pytest.raises(sk.UsageError, match="use `astream`"):
            sk.stream(run).until_done()
        await sk.astream(run).until_done()


@on_both
@on_asyncio
async def test_a_refusal_is_one_message_of_a_run_that_fails(api: str) -> None:
    async with agent_on(Reply(Refusal("I will not.")), api=api) as (agent, _):
        stream = sk.astream(run_of(agent), strict=True)
        with pytest.raises(sk.SourceError, match="ModelRefusalError"):
            await stream.until_done()
        assert [(m.content, m.step_id) for m in stream.messages] == [("I will not.", "step-1")]


@on_asyncio
async def test_a_run_is_read_once() -> None:
    async with agent_on(DONE) as (agent, _):
        run = run_of(agent)
        first, second = sk.astream(run), sk.astream(run)
        assert await first.get_final_text() == "Done."
        with pytest.raises(sk.UsageError, match="read only once"):
            await second.until_done()


@on_asyncio
async def test_a_recording_replays_the_run(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    async with agent_on(*TOUR, api="chat") as (agent, _):
        stream = sk.astream(run_of(agent), sk.Recorder(path))
        await stream.until_done()
    replayed = sk.stream(path)
    assert [m.to_dict() for m in replayed.get_final_messages()] == [m.to_dict() for m in stream.messages]
    assert (replayed.usage, replayed.status) == (stream.usage, "completed")


@on_asyncio
async def test_after_a_handoff_the_steps_are_the_other_agents() -> None:
    script = [Reply(Text("Passing on."), ToolCall("transfer_to_expert", {})), WEATHER, DONE]
    async with agent_on(*script) as (expert, _):
        expert.name = "expert"
        desk = agents.Agent(name="desk", model=expert.model, handoffs=[expert])
        stream = sk.astream(run_of(desk), strict=True)
        steps = await stream.get_final_run_steps()
    assert [step.metadata["agent"] for step in steps] == ["desk", "expert", "expert"]
    output = stream.messages[2]
    assert (output.content, output.name, output.step_id) == ('{"assistant": "expert"}', "transfer_to_expert", "step-1")
    assert all(message.parent_id is None for message in stream.messages)


@on_both
@on_asyncio
async def test_an_emitter_takes_what_an_agent_that_is_a_tool_says(api: str) -> None:
    """`on_stream=emitter.feed`: its messages are those of a sub-agent."""
    emitter = sk.Emitter()
    script = [Reply(ToolCall("ask_expert", {"input": "Oslo?"})), Reply("Cold, says the expert."), DONE]
    async with agent_on(*script, api=api) as (expert, _):
        tool = expert.as_tool("ask_expert", "Asks.", on_stream=emitter.feed)
        desk = agents.Agent(name="desk", model=expert.model, tools=[tool])

        async def work() -> None:
            with emitter:
                run = run_of(desk)
                async for event in run.stream_events():
                    emitter.feed(event)
                emitter.feed(run)

        task = asyncio.create_task(work())
        stream = sk.astream(emitter, strict=True)
        call, said, output, text = await stream.get_final_messages()
        await task
    assert (said.content, said.parent_id) == ("Cold, says the expert.", call.call_id)
    assert (output.call_id, output.parent_id, text.content, text.parent_id) == (call.call_id, None, "Done.", None)
    assert len(await stream.get_final_run_steps()) == 2


@on_both
@on_asyncio
async def test_what_stands_in_the_place_of_an_error_is_a_message(api: str) -> None:
    def too_many(_: Any) -> Any:
        return agents.RunErrorHandlerResult(final_output="Too many turns.", include_in_history=True)

    async with agent_on(*TOUR, api=api) as (agent, _):
        stream = sk.astream(run_of(agent, max_turns=1, error_handlers={"max_turns": too_many}), strict=True)
        assert await stream.get_final_text() == "Too many turns."
    assert [message.type for message in stream.messages].count("message") == 2


# -- tools that fail, approvals


@on_asyncio
async def test_an_output_that_says_that_the_tool_failed_is_failed() -> None:
    def failing(city: str) -> str:
        """Fails."""
        raise ValueError(city)

    call = Reply(ToolCall("failing", {"city": "X"}))
    async with agent_on(call, DONE, tools=[agents.function_tool(failing)]) as (agent, _):
        stream = sk.astream(run_of(agent), strict=True)
        _, output, _ = await stream.get_final_messages()
    assert (output.status, output.metadata["error"], stream.status) == ("failed", True, "completed")


class Judge(sk.EventHandler):
    """Approves Oslo alone."""

    def on_confirmation(self, confirmation: sk.Confirmation) -> None:
        if not confirmation.waiting:
            return
        if "Oslo" in confirmation.subject.content:
            confirmation.approve()
        else:
            confirmation.decline("Not there.")


def decided(run: Any, stream: Any) -> Any:
    """The state of a run, with the decisions of a stream."""
    state = run.to_state()
    by_call = {confirmation.subject.call_id: confirmation for confirmation in stream.confirmations}
    for item in run.interruptions:
        confirmation = by_call[item.call_id]
        if confirmation.status == "approved":
            state.approve(item)
        else:
            state.reject(item, rejection_message=confirmation.reason)
    return state


@on_both
@on_asyncio
async def test_calls_that_need_an_approval_are_confirmations_and_then_goes_on_with_the_decisions(api: str) -> None:
    tool = agents.function_tool(get_weather, needs_approval=True)
    async with agent_on(*TOUR, api=api, tools=[tool]) as (agent, _):
        run = run_of(agent)

        async def go_on(stream: Any) -> Any:
            return agents.Runner.run_streamed(agent, decided(run, stream))

        stream = sk.astream(run, Judge(), then=go_on, strict=True)
        assert await stream.get_final_text() == "Oslo is colder."
    assert [(one.status, one.subject.type) for one in stream.confirmations] == [
        ("approved", "tool_call"),
        ("declined", "tool_call"),
    ]
    assert [m.content for m in stream.messages if m.type == "tool_output"] == ["Oslo: -3 degrees", "Not there."]
    assert (stream.status, stream.warnings) == ("completed", ())


@on_asyncio
async def test_a_run_whose_approvals_nobody_gives_requires_action_and_goes_on_in_another_stream(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    tool = agents.function_tool(get_weather, needs_approval=True)
    async with agent_on(WEATHER, DONE, tools=[tool]) as (agent, _):
        run = run_of(agent)
        stream = sk.astream(run, Judge(), sk.Recorder(path), strict=True)
        await stream.until_done()
        assert (stream.status, [one.status for one in stream.confirmations]) == ("requires_action", ["unanswered"])
        assert stream.confirmations[0].subject is stream.messages[0]
        state = run.to_state()
        state.approve(run.interruptions[0])
        again = sk.astream(agents.Runner.run_streamed(agent, state), strict=True)
        assert await again.get_final_text() == "Done."
    replayed = sk.stream(path)
    replayed.until_done()
    assert (replayed.status, len(replayed.confirmations)) == ("requires_action", 1)


# -- failures


@on_both
@on_asyncio
async def test_an_error_in_an_answer_is_the_cause_and_everything_that_came_stays(api: str) -> None:
    async with agent_on(Reply(Text("Hello there."), error_after=2), api=api) as (agent, _):
        stream = sk.astream(run_of(agent))
        with pytest.raises(sk.SourceError) as raised:
            await stream.until_done()
    assert isinstance(raised.value.__cause__, agents.exceptions.ModelBehaviorError | openai.APIError)
    ((kind, text, status),) = contents(stream)
    assert (kind, status, "Hello there.".startswith(text), bool(text)) == ("message", "failed", True, True)
    assert stream.status == "failed"


@on_asyncio
async def test_a_request_that_is_refused_names_its_status_and_retry_asks_again() -> None:
    async with agent_on(Reply(status=429), DONE) as (agent, _):

        async def ask() -> Any:
            return run_of(agent)

        refused = sk.astream(ask)
        with pytest.raises(sk.SourceError) as raised:
            await refused.until_done()
        assert (raised.value.status_code, type(raised.value.__cause__)) == (429, openai.RateLimitError)
    async with agent_on(Reply(status=429, headers={"retry-after": "0"}), DONE) as (agent, _):
        assert await sk.astream(ask, retry=2).get_final_text() == "Done."


def tripped(*_: Any) -> Any:
    return agents.GuardrailFunctionOutput(output_info="no", tripwire_triggered=True)


@pytest.mark.parametrize(
    ("options", "limits", "error"),
    [
        ({}, {"max_turns": 1}, "MaxTurnsExceeded"),
        ({"input_guardrails": [agents.InputGuardrail(tripped)]}, {}, "InputGuardrailTripwireTriggered"),
        ({"output_guardrails": [agents.OutputGuardrail(tripped)]}, {}, "OutputGuardrailTripwireTriggered"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@on_asyncio
async def test_the_sdks_own_exceptions_are_the_cause(options: Any, limits: Any, error: str) -> None:
    async with agent_on(*TOUR, **options) as (agent, _):
        stream = sk.astream(run_of(agent, **limits))
        with pytest.raises(sk.SourceError, match=error) as raised:
            await stream.until_done()
    assert type(raised.value.__cause__).__name__ == error
    assert stream.status == "failed"


# -- closing


@on_both
@pytest.mark.parametrize("how", ["close", "cancel", "events", "never pulled", "the SDK's cancel"])
@on_asyncio
async def test_closing_stops_the_run_and_its_request(api: str, how: str) -> None:
    """An answer that never ends. The generator of the SDK's events alone would wait for it."""
    async with agent_on(Reply(Text("Hello there."), never_ends=True), api=api) as (agent, server):
        run = run_of(agent)
        async with sk.astream(run.stream_events() if how == "events" else run) as stream:
            if how == "never pulled":
                await asyncio.to_thread(server.wait_for_request, 10)
            else:
                async for _ in stream.text_deltas:
                    if how == "cancel":
                        stream.cancel()
                    elif how == "the SDK's cancel":
                        run.cancel()
                    else:
                        break
        assert stream.status == "cancelled"
        assert run.is_complete
        assert run.run_loop_task.done()
        assert await asyncio.to_thread(server.wait_for_disconnect, 10)


@on_asyncio
async def test_closing_a_run_that_is_over_leaves_it_as_it_is() -> None:
    """So that it can go on from its state."""
    tool = agents.function_tool(get_weather, needs_approval=True)
    async with agent_on(WEATHER, DONE, tools=[tool]) as (agent, _):
        run = run_of(agent)
        async with sk.astream(run) as stream:
            await stream.until_done()
        state = run.to_state()
        state.reject(run.interruptions[0])
        assert await sk.astream(agents.Runner.run_streamed(agent, state)).get_final_text() == "Done."
