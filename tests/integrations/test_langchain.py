"""LangChain's models and LangGraph's graphs as sources, over the model server with the real clients.

pip install -e '.[test,integrations]'
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reasoning, Reply, Text, Tokens, ToolCall

from ..faces import AsyncTold, SyncTold

pytest.importorskip("langchain.agents")
pytest.importorskip("langchain_anthropic")
pytest.importorskip("langchain_openai")

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

pytestmark = pytest.mark.filterwarnings("ignore:.*(is in beta|is experimental)")

APIS = ("responses", "chat", "anthropic")
FACES = ("sync", "async")
LIMIT = 40.0  # seconds of a test, on a machine that is busy with others
QUESTION: Any = {"messages": [{"role": "user", "content": "Oslo or Rome?"}]}
TOUR = [
    Reply(
        *(Reasoning("Two cities."), Text("Let me look.")),
        *(ToolCall("get_weather", {"city": city}) for city in ("Oslo", "Rome")),
        usage=Tokens(30, 12, cached=8, reasoning=3),
    ),
    Reply(Reasoning("Compare."), Text("Oslo is colder."), usage=Tokens(60, 7, reasoning=2)),
]
DONE = Reply("Done.", usage=Tokens(5, 1))
ENDLESS = Reply("Hello there.", never_ends=True)
CONFIG: Any = {"configurable": {"thread_id": "1"}}


def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"{city}: {-3 if city == 'Oslo' else 21} degrees"


@tool
def pay(sum: int) -> str:
    """Pays."""
    return f"paid {interrupt({'sum': sum})}"


def model_of(server: ModelServer, api: str) -> Any:
    if api == "anthropic":
        return ChatAnthropic(model="scripted", base_url=server.root_url, api_key="x", max_retries=0)
    options: Any = {"use_responses_api": True} if api == "responses" else {"stream_usage": True}
    return ChatOpenAI(model="scripted", base_url=server.url, api_key="x", max_retries=0, **options)  # type: ignore[arg-type]


def clients_of(model: Any) -> tuple[Any, Any]:
    if isinstance(model, ChatAnthropic):
        return model._client, model._async_client
    return model.root_client, model.root_async_client


@contextlib.contextmanager
def model_on(*replies: Reply, api: str = "responses") -> Iterator[tuple[Any, ModelServer]]:
    with ModelServer([*replies]) as server:
        model = model_of(server, api)
        try:
            yield model, server
        finally:
            clients_of(model)[0].close()


@contextlib.contextmanager
def agent_on(*replies: Reply, api: str = "responses", **options: Any) -> Iterator[tuple[Any, Any, ModelServer]]:
    with model_on(*replies, api=api) as (model, server):
        yield create_agent(model, **{"tools": [get_weather], **options}), model, server


def in_loop(model: Any, test: Callable[[], Any]) -> Any:
    """Run a test in an event loop, in which the model's client is closed."""

    async def run() -> Any:
        try:
            return await asyncio.wait_for(test(), LIMIT)
        finally:
            await clients_of(model)[1].close()

    return asyncio.run(run())


def read(model: Any, face: str, source: Callable[[str], Any], *handlers: Any, **options: Any) -> Any:
    """The stream that has read a source on a face. `source` gets what the names of methods begin with."""
    if face == "sync":
        stream = sk.stream(source(""), *handlers, **options)
        stream.until_done()
        return stream

    async def read_async() -> Any:
        stream = sk.astream(source("a"), *handlers, **options)
        await stream.until_done()
        return stream

    return in_loop(model, read_async)


def shown(stream: Any) -> list[Any]:
    fields = [(m.type, m.content, m.name, m.call_id, m.step_id, m.status) for m in stream.messages]
    outputs = sorted(one for one in fields if one[0] == "tool_output")  # tools run beside each other
    return [*(one for one in fields if one[0] != "tool_output"), *outputs]


def steps_of(stream: Any) -> list[Any]:
    steps = stream.get_final_run_steps()
    return steps if isinstance(steps, list) else asyncio.run(steps)


def tour_of(api: str) -> list[Any]:
    calls = [("call_1_0", "Oslo", "-3"), ("call_1_1", "Rome", "21")]
    reasoning = api != "chat"  # which LangChain drops
    return [
        *([("reasoning", "Two cities.", None, None, "step-1", "completed")] if reasoning else []),
        ("message", "Let me look.", None, None, "step-1", "completed"),
        *(("tool_call", f'{{"city": "{city}"}}', "get_weather", id, "step-1", "completed") for id, city, _ in calls),
        *([("reasoning", "Compare.", None, None, "step-2", "completed")] if reasoning else []),
        ("message", "Oslo is colder.", None, None, "step-2", "completed"),
        *(
            ("tool_output", f"{city}: {degrees} degrees", "get_weather", id, "step-1", "completed")
            for id, city, degrees in calls
        ),
    ]


# -- a model


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("api", APIS)
def test_a_models_chunks_are_a_response(api: str, face: str) -> None:
    """Its calls wait for outputs: nobody runs them."""
    with model_on(*TOUR, api=api) as (model, _):
        bound = model.bind_tools([get_weather])
        stream = read(model, face, lambda a: getattr(bound, f"{a}stream")("Oslo or Rome?"), strict=True)
    assert shown(stream) == [one for one in tour_of(api) if one[4] == "step-1" and one[0] != "tool_output"]
    assert (stream.status, stream.current_run.model) == ("requires_action", "scripted")
    assert (stream.usage.input_tokens, stream.usage.output_tokens) == (30, 12)


def test_a_models_calls_can_be_answered_with_the_next_request() -> None:
    with model_on(Reply(ToolCall("get_weather", {"city": "Oslo"})), DONE, api="chat") as (model, _):
        told = SyncTold(on_tool_call_done=lambda _, call: call.respond("cold"))
        stream = sk.stream(model.stream("Oslo?"), told, then=lambda _: model.stream("And now?"))
        assert stream.get_final_text() == "Done."
    assert [message.type for message in stream.messages] == ["tool_call", "tool_output", "message"]


# -- a graph, in all forms of a call


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("api", APIS)
def test_an_agent_is_shown_as_streamkits_own_would_be(api: str, face: str) -> None:
    """The same hooks and messages, but for what LangChain drops. Nothing is repaired."""
    theirs: Any = SyncTold() if face == "sync" else AsyncTold()
    ours = SyncTold()
    with agent_on(*TOUR, api=api) as (agent, model, _):
        stream = read(
            model, face, lambda a: getattr(agent, f"{a}stream")(QUESTION, stream_mode="messages"), theirs, strict=True
        )
    theirs.check_brackets()
    assert shown(stream) == tour_of(api)
    assert [(step.usage.input_tokens, step.status) for step in steps_of(stream)] == [
        (30, "completed"),
        (60, "completed"),
    ]
    assert (stream.usage.input_tokens, stream.usage.output_tokens) == (90, 19)
    with ModelServer([*TOUR]) as server:
        protocol = "anthropic" if api == "anthropic" else f"openai_{api}"
        client: Any = (
            anthropic.Anthropic(base_url=server.root_url, api_key="x")
            if api == "anthropic"
            else openai.OpenAI(base_url=server.url, api_key="x")
        )
        with client:
            own = sk.Agent(client, model="scripted", tools=[get_weather], protocol=protocol)
            own.stream("Oslo or Rome?", ours).until_done()
    hooks = hooks_of(theirs), hooks_of(ours)
    if api == "chat":  # where a text ends with what comes next, and not with the response
        hooks = sorted(hooks[0]), sorted(name for name in hooks[1] if "reasoning" not in name)
    assert hooks[0] == hooks[1]


def hooks_of(told: Any) -> list[str]:
    """The hooks in order, those of messages and runs that follow each other counted once."""
    families = ("on_text", "on_reasoning", "on_tool_call", "on_tool_output", "on_run")
    called = [name for name in told.hooks if name.startswith(families)]
    return [name for before, name in zip(["", *called], called, strict=False) if name != before]


CALLS: list[dict[str, Any]] = [
    {},
    {"stream_mode": "values"},
    {"stream_mode": "updates", "subgraphs": True},
    {"stream_mode": "values", "version": "v2", "subgraphs": True},
    {"stream_mode": "messages", "subgraphs": True},
    {"stream_mode": "messages", "version": "v2"},
    {"stream_mode": ["updates", "values"]},
    {"stream_mode": ["values", "messages", "updates", "custom", "tasks", "checkpoints", "debug"]},
    {"stream_mode": ["messages", "values"], "version": "v2", "subgraphs": True},
]


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_every_form_of_a_call_gives_the_same_messages_once(call: dict[str, Any]) -> None:
    with agent_on(*TOUR) as (agent, model, _):
        stream = read(model, "sync", lambda _: agent.stream(QUESTION, **call), strict=True)
    assert shown(stream) == [
        (kind, text.replace('": "', '":"'), *rest) for kind, text, *rest in tour_of("responses")
    ] or (shown(stream) == tour_of("responses"))
    assert stream.status == "completed"
    assert stream.usage.total_tokens == 109


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_the_events_of_a_graph_give_the_same_messages(version: Any) -> None:
    with agent_on(*TOUR) as (agent, model, _):
        stream = read(model, "async", lambda _: agent.astream_events(QUESTION, version=version), strict=True)
    assert shown(stream) == tour_of("responses")
    assert (stream.status, stream.usage.total_tokens) == ("completed", 109)


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_the_events_of_a_model_give_its_response(version: Any) -> None:
    with model_on(*TOUR) as (model, _):
        stream = read(model, "async", lambda _: model.astream_events("Hi", version=version), strict=True)
    assert [m.content for m in stream.messages][:2] == ["Two cities.", "Let me look."]
    assert (len(stream.messages), stream.usage.total_tokens) == (4, 42)


def test_a_generator_of_ones_own_around_the_messages_is_a_source() -> None:
    """With the metadata left out, too."""
    with agent_on(*TOUR) as (agent, model, _):

        def chunks() -> Iterator[Any]:
            for message, _ in agent.stream(QUESTION, stream_mode="messages"):
                yield message

        stream = read(model, "sync", lambda _: chunks(), strict=True)
    assert shown(stream) == tour_of("responses")


def test_messages_that_no_model_streams_and_what_a_node_writes_are_shown() -> None:
    def greet(state: MessagesState) -> Any:
        get_stream_writer()({"progress": 1})
        return {"messages": [AIMessage("Hello.")]}

    graph: Any = StateGraph(MessagesState).add_node("greet", greet).add_edge(START, "greet").compile()
    for mode in (["messages", "custom"], ["custom", "updates"], ["messages", "updates", "values", "custom"]):
        told = SyncTold()
        stream = sk.stream(graph.stream(QUESTION, stream_mode=mode), told, strict=True)
        assert [m.content for m in stream.get_final_messages()] == ["Hello."]
        raw = [event for event in told.of("on_event") if isinstance(event, sk.RawEvent)]
        assert [(event.name, event.data) for event in raw] == [("custom", {"progress": 1})]
    named = sk.stream(graph.stream(QUESTION, stream_mode="custom"), protocol="langgraph", strict=True)
    assert [event.data for event in named if isinstance(event, sk.RawEvent)] == [{"progress": 1}]


def test_a_conversation_that_the_state_has_already_is_not_shown_again() -> None:
    with agent_on(DONE, Reply("Again."), api="chat", checkpointer=InMemorySaver()) as (agent, model, _):
        read(model, "sync", lambda _: agent.stream(QUESTION, CONFIG, stream_mode="values"))
        stream = read(model, "sync", lambda _: agent.stream(QUESTION, CONFIG, stream_mode="values"), strict=True)
    assert [m.content for m in stream.messages] == ["Again."]


# -- sub-agents


def asking(model: Any) -> Any:
    expert = create_agent(model, tools=[get_weather], name="expert")

    @tool
    def ask_expert(question: str) -> str:
        """Asks the expert."""
        return str(expert.invoke({"messages": [{"role": "user", "content": question}]})["messages"][-1].text)

    return create_agent(model, tools=[ask_expert])


def of_inner(stream: Any) -> list[tuple[str, str | None]]:
    return sorted((m.content, m.parent_id) for m in stream.messages if m.parent_id is not None)


def test_what_a_sub_agent_does_belongs_to_its_call() -> None:
    replies = [
        Reply(ToolCall("ask_expert", {"question": "Oslo?"})),
        Reply(ToolCall("get_weather", {"city": "Oslo"})),
        *(Reply("Cold."), Reply("It is cold.")),
    ]
    with model_on(*replies, api="chat") as (model, _):
        source = asking(model).stream(QUESTION, stream_mode="messages", subgraphs=True)
        stream = read(model, "sync", lambda _: source, strict=True)
    assert [(m.type, m.content, m.parent_id) for m in stream.messages] == [
        ("tool_call", '{"question": "Oslo?"}', None),
        ("tool_call", '{"city": "Oslo"}', "call_1_0"),
        ("tool_output", "Oslo: -3 degrees", "call_1_0"),
        ("message", "Cold.", "call_1_0"),
        ("tool_output", "Cold.", None),
        ("message", "It is cold.", None),
    ]
    assert stream.status == "completed"


@pytest.mark.parametrize("call", ["tasks", "events"])
def test_parallel_sub_agents_are_told_apart_where_the_stream_says_which_call_a_task_runs(call: str) -> None:
    asked = [ToolCall("ask_expert", {"question": city}) for city in ("Oslo?", "Rome?")]
    with model_on(Reply(*asked), Reply("One."), Reply("Two."), Reply("Both."), api="chat") as (model, _):
        agent = asking(model)
        if call == "events":
            stream = read(model, "async", lambda _: agent.astream_events(QUESTION, version="v2"), strict=True)
        else:
            source = agent.stream(QUESTION, stream_mode=["messages", "tasks"], subgraphs=True)
            stream = read(model, "sync", lambda _: source, strict=True)
    outputs = sorted((m.content, m.call_id) for m in stream.messages if m.type == "tool_output")
    assert of_inner(stream) == outputs
    assert {id for _, id in outputs} == {"call_1_0", "call_1_1"}


def test_parallel_sub_agents_are_no_texts_of_the_agent_where_it_does_not() -> None:
    asked = [ToolCall("ask_expert", {"question": city}) for city in ("Oslo?", "Rome?")]
    with model_on(Reply(*asked), Reply("One."), Reply("Two."), Reply("Both."), api="chat") as (model, _):
        source = asking(model).stream(QUESTION, stream_mode="messages", subgraphs=True)
        stream = read(model, "sync", lambda _: source, strict=True)
    inner = of_inner(stream)
    assert [text for text, _ in inner] == ["One.", "Two."]
    assert len({parent for _, parent in inner}) == 2
    assert [m.content for m in stream.messages if m.type == "message" and m.parent_id is None] == ["Both."]


# -- questions


@pytest.mark.parametrize("mode", ["messages", "values", ["messages", "updates"]], ids=str)
def test_a_graph_that_asks_requires_action_and_goes_on(mode: Any) -> None:
    replies = [Reply(ToolCall("pay", {"sum": 5})), DONE]
    with agent_on(*replies, api="chat", tools=[pay], checkpointer=InMemorySaver()) as (agent, model, _):
        asks = read(model, "sync", lambda _: agent.stream(QUESTION, CONFIG, stream_mode=mode), strict=True)
        goes_on: Any = Command(resume="well")
        rest = read(model, "sync", lambda _: agent.stream(goes_on, CONFIG, stream_mode=mode), strict=True)
    assert [(m.type, m.name) for m in asks.messages] == [("tool_call", "pay")]
    assert asks.status == "requires_action"
    assert [m.content for m in rest.messages] == ["paid well", "Done."]
    assert rest.status == "completed"


@pytest.mark.parametrize("yes", [True, False], ids=["approved", "declined"])
def test_a_call_that_needs_an_approval_is_a_question_whose_answer_goes_with_the_next_source(yes: bool) -> None:
    options: Any = {"stream_mode": ["messages", "updates"]}
    middleware = [HumanInTheLoopMiddleware(interrupt_on={"get_weather": True})]
    script = [Reply(ToolCall("get_weather", {"city": "Oslo"})), DONE]
    with agent_on(*script, api="chat", checkpointer=InMemorySaver(), middleware=middleware) as (agent, _, _):

        def go_on(stream: sk.StreamState) -> Any:
            decisions = [
                {"type": "approve"} if one.status == "approved" else {"type": "reject", "message": "no"}
                for one in stream.confirmations
            ]
            return agent.stream(Command(resume={"decisions": decisions}), CONFIG, **options)

        told = SyncTold(on_confirmation=lambda _, one: one.approve() if yes else one.decline("no"))
        stream = sk.stream(agent.stream(QUESTION, CONFIG, **options), told, then=go_on, strict=True)
        assert stream.get_final_text() == "Done."
    [asked] = stream.confirmations
    assert (asked.subject.call_id, asked.subject.arguments) == ("call_1_0", {"city": "Oslo"})
    assert [m.type for m in stream.messages] == ["tool_call", "tool_output", "message"]
    assert stream.status == "completed"


def test_a_call_beside_one_that_needs_an_approval_waits_for_nobody() -> None:
    """It runs when the graph goes on, as the middleware interrupts before all of them."""

    @tool
    def pay(amount: int) -> str:
        """Pays."""
        return f"paid {amount}"

    options: Any = {"stream_mode": ["messages", "updates"]}
    middleware = [HumanInTheLoopMiddleware(interrupt_on={"pay": True})]
    script = [Reply(ToolCall("pay", {"amount": 3}), ToolCall("get_weather", {"city": "Oslo"})), DONE]
    more: Any = {"checkpointer": InMemorySaver(), "middleware": middleware, "tools": [pay, get_weather]}
    with agent_on(*script, api="chat", **more) as (agent, _, _):

        def go_on(stream: sk.StreamState) -> Any:
            return agent.stream(Command(resume={"decisions": [{"type": "approve"}]}), CONFIG, **options)

        told = SyncTold(on_confirmation=lambda _, one: one.approve())
        stream = sk.stream(agent.stream(QUESTION, CONFIG, **options), told, then=go_on, strict=True)
        assert stream.get_final_text() == "Done."
    assert sorted(m.content for m in stream.messages if m.type == "tool_output")[1] == "paid 3"
    assert stream.status == "completed"


# -- errors, and the end


@pytest.mark.parametrize("face", FACES)
def test_a_tool_that_raises_ends_the_stream_with_its_exception(face: str) -> None:
    @tool
    def failing(city: str) -> str:
        """Fails."""
        raise ValueError("no such city")

    calls = Reply(ToolCall("failing", {"city": "X"}))
    with agent_on(calls, tools=[failing]) as (agent, model, _), pytest.raises(sk.SourceError) as raised:
        read(model, face, lambda a: getattr(agent, f"{a}stream")(QUESTION, stream_mode="messages"))
    assert "no such city" in str(raised.value)
    assert type(raised.value.__cause__) is ValueError
    assert [m.content for m in raised.value.messages] == ['{"city": "X"}']


def test_a_call_that_the_tool_refuses_has_a_failed_output() -> None:
    with agent_on(Reply(ToolCall("get_weather", {"town": "X"})), DONE) as (agent, model, _):
        stream = read(model, "sync", lambda _: agent.stream(QUESTION, stream_mode="messages"), strict=True)
    _, output, _ = stream.messages
    assert (output.status, output.metadata) == ("failed", {"error": True})


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("api", APIS)
def test_an_error_after_some_deltas_keeps_what_came(api: str, face: str) -> None:
    failing = Reply(Text("Hello there."), error_after=2)
    with model_on(failing, api=api) as (model, _), pytest.raises(sk.SourceError) as raised:
        read(model, face, lambda a: getattr(model, f"{a}stream")("Hi"))
    assert isinstance(raised.value.__cause__, Exception)
    assert [(m.content, m.status) for m in raised.value.messages] == [("Hello", "failed")]


@pytest.mark.parametrize("api", APIS)
def test_a_request_that_is_refused_says_so(api: str) -> None:
    with agent_on(Reply(status=429), api=api) as (agent, model, _), pytest.raises(sk.SourceError) as raised:
        read(model, "sync", lambda _: agent.stream(QUESTION, stream_mode="messages"))
    assert raised.value.status_code == 429


def endless(agent: Any, model: Any, kind: str) -> Any:
    return model.stream("Hi") if kind == "model" else agent.stream(QUESTION, stream_mode="messages")


@pytest.mark.parametrize("way", ["close", "cancel"])
@pytest.mark.parametrize("kind", ["model", "graph"])
def test_stopping_a_sync_stream_stops_the_nodes_thread_and_its_request(kind: str, way: str) -> None:
    """LangGraph itself waits for its node, which may be for ever."""
    with agent_on(ENDLESS) as (agent, model, server):
        stream = sk.stream(endless(agent, model, kind))
        if way == "close":
            with stream:
                next(stream.text_deltas)
        else:
            stopper = threading.Timer(0.3, stream.cancel)
            stopper.start()
            stream.until_done()
        assert server.wait_for_disconnect(10)
    assert stream.status == "cancelled"
    assert "Hello there.".startswith(stream.messages[0].content)


@pytest.mark.parametrize("way", ["close", "cancel"])
@pytest.mark.parametrize("kind", ["model", "graph", "events", "sync graph"])
def test_stopping_an_async_stream_stops_the_run_and_its_request(kind: str, way: str) -> None:
    with agent_on(ENDLESS) as (agent, model, server):
        sources: dict[str, Callable[[], Any]] = {
            "model": lambda: model.astream("Hi"),
            "graph": lambda: agent.astream(QUESTION, stream_mode="messages"),
            "events": lambda: agent.astream_events(QUESTION, version="v2"),
            "sync graph": lambda: agent.stream(QUESTION, stream_mode="messages"),
        }

        async def stop() -> Any:
            stream = sk.astream(sources[kind]())
            async for _ in stream.text_deltas:
                if way == "cancel":
                    stream.cancel()
                else:
                    break
            await stream.close()
            assert await asyncio.to_thread(server.wait_for_disconnect, 10)
            return stream

        stream = in_loop(model, stop)
    assert stream.status == "cancelled"


# -- recordings


@pytest.mark.parametrize("mode", ["messages", "values", ["messages", "updates", "values", "tasks"]], ids=str)
def test_a_recording_replays_as_the_run(mode: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with agent_on(*TOUR) as (agent, model, _):
        source = agent.stream(QUESTION, stream_mode=mode)
        stream = read(model, "sync", lambda _: source, sk.Recorder(path), strict=True)
    replayed = sk.stream(path, strict=True)
    assert [m.to_dict() for m in replayed.get_final_messages()] == [m.to_dict() for m in stream.messages]
    assert replayed.usage == stream.usage


def test_the_chunks_in_an_async_generator_of_ones_own_are_read_too() -> None:
    with agent_on(*TOUR) as (agent, model, _):

        async def parts() -> AsyncIterator[Any]:
            async for part in agent.astream(QUESTION, stream_mode=["messages", "updates"], version="v2"):
                yield part

        stream = read(model, "async", lambda _: parts(), strict=True)
    assert shown(stream) == tour_of("responses")
