"""Runs of Pydantic AI's agents as sources, over the model server with the real clients. They need asyncio.

pip install -e '.[test,integrations]'
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

import streamkit as sk
from streamkit.testing import CodeInterpreter, ModelServer, Reasoning, Reply, Text, Tokens, ToolCall

from ..faces import AsyncTold

pydantic_ai = pytest.importorskip("pydantic_ai")
pytest.importorskip("pydantic_ai.models.anthropic")

from pydantic import BaseModel  # noqa: E402
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ModelRetry, Tool, ToolDenied, messages  # noqa: E402
from pydantic_ai.models.anthropic import AnthropicModel  # noqa: E402
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel  # noqa: E402
from pydantic_ai.providers.anthropic import AnthropicProvider  # noqa: E402
from pydantic_ai.providers.openai import OpenAIProvider  # noqa: E402

APIS = ("responses", "chat", "anthropic")
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


def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"{city}: {-3 if city == 'Oslo' else 21} degrees"


def on_asyncio(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(**given: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**given), LIMIT))  # type: ignore[arg-type]

    return run


@asynccontextmanager
async def model_of(server: ModelServer, api: str = "responses") -> AsyncIterator[Any]:
    """A model of the framework's, over the client of its API, which is closed."""
    if api == "anthropic":
        async with anthropic.AsyncAnthropic(base_url=server.root_url, api_key="x", max_retries=0) as client:
            yield AnthropicModel("scripted", provider=AnthropicProvider(anthropic_client=client))
    else:
        kind = OpenAIChatModel if api == "chat" else OpenAIResponsesModel
        async with openai.AsyncOpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
            yield kind("scripted", provider=OpenAIProvider(openai_client=client))


@asynccontextmanager
async def agent_on(*replies: Reply, api: str = "responses", **options: Any) -> AsyncIterator[tuple[Any, ModelServer]]:
    with ModelServer([*replies]) as server:
        async with model_of(server, api) as model:
            yield Agent(model, **{"tools": [get_weather], **options}), server


def own_agent(server: ModelServer, api: str) -> tuple[Any, sk.AsyncAgent]:
    """The client, and an agent of streamkit's with the same tools."""
    if api == "anthropic":
        client: Any = anthropic.AsyncAnthropic(base_url=server.root_url, api_key="x", max_retries=0)
    else:
        client = openai.AsyncOpenAI(base_url=server.url, api_key="x", max_retries=0)
    return client, sk.AsyncAgent(
        client, model="scripted", tools=[get_weather], protocol=f"openai_{api}" if api != "anthropic" else api
    )


def hooks_of(told: AsyncTold) -> list[str]:
    """The hooks in order, those of messages and runs that follow each other counted once."""
    families = ("on_text", "on_reasoning", "on_tool_call", "on_tool_output", "on_run")
    called = [name for name in told.hooks if name.startswith(families)]
    return [name for before, name in zip(["", *called], called, strict=False) if name != before]


# -- what it says


@pytest.mark.parametrize("api", APIS)
@on_asyncio
async def test_a_run_is_shown_as_streamkits_own_agent_would(api: str) -> None:
    """Text, reasoning, calls, outputs and steps: the same hooks and the same messages. Nothing is repaired. On Chat a text ends where
    the next part begins, which Chat's own chunks do not say."""
    theirs, ours = AsyncTold(), AsyncTold()
    async with agent_on(*TOUR, api=api) as (agent, _):
        stream = sk.astream(agent.run_stream_events("Oslo or Rome?"), theirs, strict=True)
        assert await stream.get_final_text() == "Oslo is colder."
    theirs.check_brackets()
    with ModelServer([*TOUR]) as server:
        client, agent = own_agent(server, api)
        own = agent.stream("Oslo or Rome?", ours)
        await own.until_done()
        await client.close()
    hooks = hooks_of(theirs), hooks_of(ours)
    assert hooks[0] == hooks[1] if api != "chat" else sorted(hooks[0]) == sorted(hooks[1])

    def shown(stream: Any) -> list[Any]:
        fields = [(m.type, m.role, m.content, m.name, m.call_id, m.step_id, m.status) for m in stream.messages]
        return [*fields[:4], *sorted(fields[4:6]), *fields[6:]]  # functions run beside each other

    assert shown(stream) == shown(own)
    assert not stream.warnings


@pytest.mark.parametrize("api", APIS)
@on_asyncio
async def test_each_step_has_the_tokens_and_the_finish_reason_of_its_response(api: str) -> None:
    async with agent_on(*TOUR, api=api) as (agent, _):
        stream = sk.astream(agent.run_stream_events("Oslo or Rome?"))
        run, steps = await stream.get_final_run(), await stream.get_final_run_steps()
    of_first = 22 if api == "anthropic" else 30  # which counts what was cached apart
    assert [step.usage and step.usage.input_tokens for step in steps] == [of_first, 60]
    assert steps[0].finish_reason in ("tool_call", "stop")  # Responses has one reason for both
    assert (run.model, run.finish_reason, run.usage and run.usage.output_tokens) == ("scripted", "stop", 19)


@on_asyncio
async def test_events_in_a_generator_of_ones_own_are_read_too() -> None:
    """What the run's handle has is then not at hand: the tokens come with the result."""
    async with agent_on(*TOUR) as (agent, _):

        async def events() -> AsyncIterator[Any]:
            async with agent.run_stream_events("Oslo or Rome?") as run:
                async for event in run:
                    yield event

        stream = sk.astream(events(), strict=True)
        assert await stream.get_final_text() == "Oslo is colder."
    assert stream.usage is not None
    assert (stream.usage.input_tokens, stream.usage.output_tokens) == (90, 19)


@on_asyncio
async def test_a_recording_replays_the_run(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    async with agent_on(*TOUR) as (agent, _):
        stream = sk.astream(agent.run_stream_events("Oslo or Rome?"), sk.Recorder(path))
        await stream.until_done()
    assert "Compare." not in path.read_text("utf-8")  # only its pieces: no event is recorded with what it adds up to
    replayed = sk.stream(path)
    assert [m.to_dict() for m in replayed.get_final_messages()] == [m.to_dict() for m in stream.messages]
    assert (replayed.usage, replayed.status) == (stream.usage, "completed")


@on_asyncio
async def test_structured_output_is_a_call_of_the_tool_that_the_framework_has_for_it() -> None:
    class City(BaseModel):
        city: str

    async with agent_on(Reply(ToolCall("final_result", {"city": "Oslo"})), output_type=City) as (agent, _):
        stream = sk.astream(agent.run_stream_events("Which?"), strict=True)
        call, output = await stream.get_final_messages()
    assert (call.name, call.content, output.content) == ("final_result", '{"city": "Oslo"}', "Final result processed.")
    assert stream.status == "completed"


@on_asyncio
async def test_of_an_agent_in_a_tool_the_call_and_its_output_are_shown_and_its_tokens_count() -> None:
    with ModelServer(
        [Reply(ToolCall("ask", {"question": "Oslo?"}), usage=Tokens(9, 4)), DONE, Reply("Cold.")]
    ) as server:
        async with model_of(server) as model:
            inner, outer = Agent(model), Agent(model)

            @outer.tool
            async def ask(ctx: pydantic_ai.RunContext[None], question: str) -> str:
                return str((await inner.run(question, usage=ctx.usage)).output)

            stream = sk.astream(outer.run_stream_events("Ask."), strict=True)
            messages = await stream.get_final_messages()
    assert [(m.type, m.content) for m in messages] == [
        ("tool_call", '{"question": "Oslo?"}'),
        ("tool_output", "Done."),
        ("message", "Cold."),
    ]
    assert stream.usage is not None
    assert stream.usage.input_tokens >= 9 + 5


@on_asyncio
async def test_outputs_that_are_no_text_are_what_the_model_reads_and_their_files_messages() -> None:
    def look(city: str) -> list[Any]:
        """Looks."""
        return [{"degrees": 3}, pydantic_ai.BinaryContent(b"image", media_type="image/png")]

    async with agent_on(Reply(ToolCall("look", {"city": "Oslo"})), DONE, tools=[look]) as (agent, _):
        stream = sk.astream(agent.run_stream_events("Look."), strict=True)
        _, output, image, _ = await stream.get_final_messages()
    assert "degrees" in output.content
    assert "aW1hZ2U=" not in output.content
    assert (image.type, image.format, image.content, image.call_id) == (
        "image",
        "base64.png",
        "aW1hZ2U=",
        output.call_id,
    )


@on_asyncio
async def test_what_the_provider_runs_is_a_call_of_its_own_and_its_code_may_be_a_message() -> None:
    from pydantic_ai.capabilities import NativeTool
    from pydantic_ai.native_tools import CodeExecutionTool

    ran = Reply(CodeInterpreter("print(34/24)", "1.417"), Text("1.417."))
    async with agent_on(ran, tools=[], capabilities=[NativeTool(CodeExecutionTool())]) as (agent, _):
        stream = sk.astream(agent.run_stream_events("34/24?"), fields={"code_execution.code": "code"}, strict=True)
        messages = {message.type: message for message in await stream.get_final_messages()}
    call, output = messages["tool_call"], messages["tool_output"]
    assert isinstance(call, sk.ToolCallMessage)
    assert call.provider_executed
    assert messages["code"].content == "print(34/24)"
    assert "1.417" in output.content
    assert (output.call_id, stream.status) == (call.call_id, "completed")


@on_asyncio
async def test_citations_of_a_text_are_annotations() -> None:
    source = messages.WebCitationSource("https://example.org", title="T", excerpts=["e"])
    citation = messages.Citation([source], anchor=messages.ContentCitationAnchor(start=0, end=2))
    part = messages.TextPart("As it", citations=[citation])
    events = [messages.PartStartEvent(index=0, part=part), messages.PartEndEvent(index=0, part=part)]
    stream = sk.stream(events, strict=True)
    (text,) = stream.get_final_messages()
    assert isinstance(text, sk.TextMessage)
    assert [(one.url, one.quote, one.start, one.end) for one in text.annotations] == [
        ("https://example.org", "e", 0, 2)
    ]


@dataclass(kw_only=True)
class CitySearched(messages.CustomEvent):  # type: ignore[misc]
    """Of the application, as a tool emits it."""

    city: str


@on_asyncio
async def test_what_a_tool_emits_is_a_raw_event() -> None:
    async def search(ctx: pydantic_ai.RunContext[None], city: str) -> str:
        """Searches."""
        await ctx.emit(CitySearched(city=city))
        return "found"

    told = AsyncTold()
    async with agent_on(Reply(ToolCall("search", {"city": "Oslo"})), DONE, tools=[search]) as (agent, _):
        stream = sk.astream(agent.run_stream_events("Go."), told, strict=True)
        call, *_ = await stream.get_final_messages()
    assert [(event.name, event.data) for event in told.of("on_event") if isinstance(event, sk.RawEvent)] == [
        ("city_searched", {"city": "Oslo", "tool_call_id": call.call_id})
    ]


# -- tools that fail, questions


@on_asyncio
async def test_a_call_that_the_tool_refuses_has_a_failed_output_and_the_run_goes_on() -> None:
    def flaky(city: str) -> str:
        """Refuses."""
        raise ModelRetry("try another city")

    async with agent_on(Reply(ToolCall("flaky", {"city": "X"})), DONE, tools=[flaky]) as (agent, _):
        stream = sk.astream(agent.run_stream_events("Go."), strict=True)
        _, output, answer = await stream.get_final_messages()
    assert (output.content, output.status, output.metadata) == ("try another city", "failed", {"error": True})
    assert answer.content == "Done."


@on_asyncio
async def test_a_tool_that_raises_ends_the_stream_with_its_exception() -> None:
    """All that had come is there, and the tokens that were used."""

    def failing(city: str) -> str:
        """Fails."""
        raise ValueError("no such city")

    async with agent_on(Reply(ToolCall("failing", {"city": "X"}), usage=Tokens(9, 4)), tools=[failing]) as (agent, _):
        stream = sk.astream(agent.run_stream_events("Go."))
        with pytest.raises(sk.SourceError, match="no such city") as raised:
            await stream.until_done()
    assert type(raised.value.__cause__) is ValueError
    assert [m.content for m in raised.value.messages] == ['{"city": "X"}']
    assert stream.usage is not None
    assert (stream.status, stream.usage.input_tokens) == ("failed", 9)


def pay(sum: int) -> str:
    """Pays."""
    return f"paid {sum}"


PAYING: dict[str, Any] = {
    "tools": [Tool(pay, requires_approval=True), get_weather],
    "output_type": [str, DeferredToolRequests],
}
ASKS = Reply(ToolCall("pay", {"sum": 5}), ToolCall("get_weather", {"city": "Oslo"}))


@on_asyncio
async def test_a_call_that_needs_an_approval_is_a_question_and_the_run_requires_action() -> None:
    async with agent_on(ASKS, **PAYING) as (agent, _):
        stream = sk.astream(agent.run_stream_events("Pay."), strict=True)
        messages = await stream.get_final_messages()
    assert [m.content for m in messages] == ['{"sum": 5}', '{"city": "Oslo"}', "Oslo: -3 degrees"]
    assert [(one.subject, one.status) for one in stream.confirmations] == [(messages[0], "unanswered")]
    assert stream.status == "requires_action"


@pytest.mark.parametrize("yes", [True, False], ids=["approved", "declined"])
@on_asyncio
async def test_a_run_goes_on_with_the_answers(yes: bool) -> None:
    """As one stream, by `then=`. The run's handle has the conversation."""
    async with agent_on(ASKS, DONE, **PAYING) as (agent, _), agent.run_stream_events("Pay.") as run:

        def decide(_: Any, confirmation: sk.Confirmation) -> None:
            confirmation.approve() if yes else confirmation.decline("too much")

        def go_on(stream: sk.StreamState) -> Any:
            answers = {
                one.subject.call_id: True if one.status == "approved" else ToolDenied(one.reason or "")
                for one in stream.confirmations
            }
            return agent.run_stream_events(
                message_history=run.all_messages(), deferred_tool_results=DeferredToolResults(approvals=answers)
            )

        told = AsyncTold(on_confirmation=decide)
        stream = sk.astream(run, told, then=go_on, strict=True)
        assert await stream.get_final_text() == "Done."
    told.check_brackets()
    output = stream.messages[3]
    assert (output.name, output.call_id) == ("pay", stream.messages[0].call_id)
    assert (output.content, output.metadata) == (("paid 5", {}) if yes else ("too much", {"declined": None}))
    assert stream.status == "completed"


# -- errors, and the end


@pytest.mark.parametrize("api", APIS)
@on_asyncio
async def test_an_error_after_some_deltas_keeps_what_came(api: str) -> None:
    failing = Reply(Reasoning("Hm."), Text("Hello there."), error_after=2)
    async with agent_on(WEATHER, failing, api=api) as (agent, _):
        stream = sk.astream(agent.run_stream_events("Go."))
        with pytest.raises(sk.SourceError) as raised:
            await stream.until_done()
    assert isinstance(raised.value.__cause__, Exception)
    assert type(raised.value.__cause__).__module__.startswith("pydantic_ai")
    *_, output, reasoning, text = raised.value.messages
    assert (output.content, reasoning.content, text.status) == ("Oslo: -3 degrees", "Hm.", "failed")
    assert stream.usage is not None
    assert stream.status == "failed"
    assert stream.usage.input_tokens >= 9  # Anthropic has counted those of the second request, too


@pytest.mark.parametrize("api", APIS)
@on_asyncio
async def test_a_request_that_is_refused_says_so(api: str) -> None:
    async with agent_on(Reply(status=429), api=api) as (agent, _):
        stream = sk.astream(agent.run_stream_events("Go."))
        with pytest.raises(sk.SourceError) as raised:
            await stream.until_done()
    assert raised.value.status_code == 429
    assert raised.value.__cause__ is not None


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("way", ["close", "cancel", "entered"])
@on_asyncio
async def test_stopping_the_stream_stops_the_run_and_its_request(api: str, way: str) -> None:
    """Also where the user has entered the run."""
    async with agent_on(Reply("Hello there.", never_ends=True), api=api) as (agent, server):
        run = agent.run_stream_events("Go.")
        stream = sk.astream(await run.__aenter__() if way == "entered" else run)
        async for _ in stream.text_deltas:
            if way == "cancel":
                stream.cancel()
            else:
                break
        await stream.close()
        assert await asyncio.to_thread(server.wait_for_disconnect, 10)
        if way == "entered":
            await run.__aexit__(None, None, None)
    assert stream.status == "cancelled"
    assert stream.messages[0].content == "Hell"


@on_asyncio
async def test_a_run_that_is_cancelled_by_its_own_handle_is_cancelled() -> None:
    async with agent_on(Reply("Hello there.", never_ends=True)) as (agent, _), agent.run_stream_events("Go.") as run:
        stream = sk.astream(run)
        async for _ in stream.text_deltas:
            run.cancel()
    assert (stream.status, stream.messages[0].content) == ("cancelled", "Hell")
    assert not stream.error


@on_asyncio
async def test_responses_without_a_part_have_tokens_where_the_run_fails() -> None:
    async with agent_on(*[Reply(usage=Tokens(9, 4))] * 4) as (agent, server):
        stream = sk.astream(agent.run_stream_events("Go."))
        with pytest.raises(sk.SourceError):
            await stream.until_done()
    assert stream.usage is not None
    assert (stream.usage.input_tokens, stream.usage.output_tokens) == (
        9 * len(server.requests),
        4 * len(server.requests),
    )


# -- the other forms of a run


@on_asyncio
async def test_a_nodes_stream_is_a_source() -> None:
    """Of a model's request, and of the calls after it, which may be none: then nothing shows whose stream it is."""
    texts: list[list[str]] = []
    async with agent_on(*TOUR) as (agent, _), agent.iter("Oslo or Rome?") as run:
        async for node in run:
            if Agent.is_model_request_node(node) or Agent.is_call_tools_node(node):
                stream = sk.astream(node.stream(run.ctx), protocol="pydantic_ai", strict=True)
                await stream.until_done()
                texts.append([message.content for message in stream.messages])
    assert [texts[0], sorted(texts[1])] == [
        ["Two cities.", "Let me look.", '{"city": "Oslo"}', '{"city": "Rome"}'],
        ["Oslo: -3 degrees", "Rome: 21 degrees"],
    ]
    assert texts[2] == ["Compare.", "Oslo is colder."]


@on_asyncio
async def test_all_nodes_streams_in_a_generator_are_one_run() -> None:
    async with agent_on(*TOUR) as (agent, _):

        async def events() -> AsyncIterator[Any]:
            async with agent.iter("Oslo or Rome?") as run:
                async for node in run:
                    if Agent.is_model_request_node(node) or Agent.is_call_tools_node(node):
                        async with node.stream(run.ctx) as stream:
                            async for event in stream:
                                yield event

        stream = sk.astream(events(), strict=True)
        assert await stream.get_final_text() == "Oslo is colder."
    assert len(await stream.get_final_run_steps()) == 2
    assert stream.status == "completed"


@on_asyncio
async def test_an_event_stream_handlers_events_are_a_source() -> None:
    told = AsyncTold()

    async def show(_: Any, events: Any) -> None:
        await sk.astream(events, told, protocol="pydantic_ai").until_done()

    async with agent_on(Reply("Hello there.")) as (agent, _):
        await agent.run("Hi", event_stream_handler=show)
    assert [message.content for message in told.of("on_text_done")] == ["Hello there."]


@pytest.mark.parametrize("source", ["iter", "run_stream"])
@on_asyncio
async def test_what_has_no_events_is_refused_and_names_what_has(source: str) -> None:
    async with agent_on(DONE) as (agent, _):
        with pytest.raises((sk.ProtocolError, sk.UsageError), match="run_stream_events"):
            await sk.astream(getattr(agent, source)("Hi")).until_done()


def test_it_needs_an_async_stream() -> None:
    agent = Agent("test")
    with pytest.raises(sk.UsageError, match="astream"):
        sk.stream(agent.run_stream_events("Hi")).until_done()


@on_asyncio
async def test_a_run_is_not_repeated_once_a_tool_may_have_run() -> None:
    paid: list[str] = []

    def settle(name: str) -> str:
        """Pays a bill."""
        paid.append(name)
        raise ConnectionError("the answer of the bank was lost")

    script = [Reply(ToolCall("settle", {"name": "rent"}))] * 2
    async with agent_on(*script, tools=[settle]) as (agent, server):
        stream = sk.astream(lambda: agent.run_stream_events("Pay."), retry=sk.Retry(2, restart=True))
        with pytest.raises(sk.SourceError, match="bank"):
            await stream.until_done()
        assert len(server.requests) == 1
    assert paid == ["rent"]


@on_asyncio
async def test_a_run_may_be_repeated_before_that() -> None:
    async with agent_on(Reply(status=429), Reply("Hello there.", error_after=1), DONE) as (agent, _):
        stream = sk.astream(lambda: agent.run_stream_events("Hi"), retry=sk.Retry(3, restart=True))
        assert await stream.get_final_text() == "Done."
    assert [message.content for message in stream.messages] == ["Done."]
