"""`Telemetry` makes OpenTelemetry's spans and metrics of streams, and is felt in nothing else.

The spans go to an exporter in memory, as the SDK has it.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

import anthropic
import anyio
import openai
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import streamkit as sk
from streamkit.agent import ToolContext
from streamkit.telemetry import Telemetry
from streamkit.testing import ModelServer, Reply, Text, Tokens, ToolCall

from .agent.parts import ToyComputer, agent_on, code, every_provider
from .faces import Face, ask, async_faces, body, both_shells, chat, every_face

SECRET = "the number is 4711"


class Traced(NamedTuple):
    """What a test traces with."""

    exporter: InMemorySpanExporter
    provider: TracerProvider
    telemetry: Callable[..., Telemetry]
    reader: InMemoryMetricReader

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """The spans that have ended, by name, those of one name numbered from the second on."""
        named: dict[str, ReadableSpan] = {}
        for span in sorted(self.exporter.get_finished_spans(), key=lambda one: one.start_time or 0):
            count = sum(name.partition(" #")[0] == span.name for name in named)
            named[f"{span.name} #{count + 1}" if count else span.name] = span
        return named

    @property
    def tree(self) -> dict[str, str | None]:
        """The parent of each span."""
        spans = self.spans
        names = {span.context.span_id: name for name, span in spans.items() if span.context is not None}
        return {name: names.get(span.parent.span_id) if span.parent else None for name, span in spans.items()}

    @property
    def metrics(self) -> dict[str, list[Any]]:
        """The points of each metric."""
        data = self.reader.get_metrics_data()
        assert data is not None
        return {one.name: [*one.data.data_points] for one in data.resource_metrics[0].scope_metrics[0].metrics}


@pytest.fixture
def traced() -> Iterator[Traced]:
    exporter, provider, reader = InMemorySpanExporter(), TracerProvider(), InMemoryMetricReader()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    meters = MeterProvider([reader])

    def telemetry(**options: Any) -> Telemetry:
        return Telemetry(tracer_provider=provider, meter_provider=meters, **options)

    yield Traced(exporter, provider, telemetry, reader)
    provider.shutdown()
    meters.shutdown()


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@both_shells
@every_provider
@body
async def test_the_tree_of_an_agents_run(face: Face, provider: str, traced: Traced) -> None:
    """Model calls and tools are below the agent, and what a tool does is below its call. Two calls of one answer have a span
    each, also where they run side by side."""
    tracer = traced.provider.get_tracer("the application's")

    def look(number: int) -> str:
        """Look at something."""
        with tracer.start_as_current_span(f"inside {number}"):
            return f"seen {number}"

    two = Reply(ToolCall("look", {"number": 1}), ToolCall("look", {"number": 2}))
    with ModelServer([two, Reply("Done.")]) as server:
        handlers = [traced.telemetry()]
        async with agent_on(face, server, provider, tools=[look], handlers=handlers, name="scout") as talker:
            with tracer.start_as_current_span("outside"):
                await talker.say("Go.")
    tree = traced.tree
    calls = [tree["inside 1"], tree["inside 2"]]
    assert sorted(map(str, calls)) == ["execute_tool look", "execute_tool look #2"]
    assert {name: parent for name, parent in tree.items() if not name.startswith("inside")} == {
        "outside": None,
        "invoke_agent scout": "outside",
        "chat m": "invoke_agent scout",
        "execute_tool look": "invoke_agent scout",
        "execute_tool look #2": "invoke_agent scout",
        "chat m #2": "invoke_agent scout",
    }
    kinds = {name: span.kind.name for name, span in traced.spans.items()}
    assert (kinds["invoke_agent scout"], kinds["chat m"], kinds["execute_tool look"]) == (
        "INTERNAL",
        "CLIENT",
        "INTERNAL",
    )


@every_provider
def test_the_attributes_of_a_model_call(provider: str, traced: Traced) -> None:
    with ModelServer([Reply(ToolCall("look", {})), Reply("Done.")]) as server:
        agent = agent_of(server, provider, tools=[look], handlers=[traced.telemetry()], name="scout")
        agent.stream("Go.").until_done()
    first, last = (attributes_of(traced.spans[name]) for name in ("chat m", "chat m #2"))
    waited = first.pop("gen_ai.response.time_to_first_chunk")
    assert 0 < waited < 60
    cached = {name: count for name, count in first.items() if "cache" in name or "reasoning" in name}
    assert set(cached.values()) == {0}
    reasons = {"openai_responses": None, "openai_chat": ("tool_calls",), "anthropic": ("tool_use",)}
    assert first.get("gen_ai.response.finish_reasons") == reasons[provider]
    assert (last.get("gen_ai.response.finish_reasons") is None) == (provider == "openai_responses")
    assert {name: first[name] for name in first.keys() - cached.keys() - {"gen_ai.response.finish_reasons"}} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider.partition("_")[0],
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": True,
        "gen_ai.response.id": first["gen_ai.response.id"],
        "gen_ai.response.model": "m",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 1,
    }
    assert first["gen_ai.response.id"] != last["gen_ai.response.id"]
    whole = attributes_of(traced.spans["invoke_agent scout"])
    assert (whole["gen_ai.usage.input_tokens"], whole["gen_ai.agent.name"]) == (20, "scout")


def look() -> str:
    """Look at something."""
    return SECRET


clients = contextlib.ExitStack()


@pytest.fixture(autouse=True)
def _clients_are_closed() -> Iterator[None]:
    with clients:
        yield


def agent_of(server: ModelServer, provider: str = "openai_chat", **options: Any) -> sk.Agent:
    """An agent with a real client, which is closed after the test."""
    client: Any = (
        anthropic.Anthropic(base_url=server.root_url, api_key="k", max_retries=0)
        if provider == "anthropic"
        else openai.OpenAI(base_url=server.url, api_key="k", max_retries=0)
    )
    return sk.Agent(clients.enter_context(client), model="m", protocol=provider, **options)


@pytest.mark.parametrize("content", [False, True])
def test_the_attributes_of_a_tools_call(content: bool, traced: Traced) -> None:
    with ModelServer([Reply(ToolCall("look", {}, call_id="call-1")), Reply("Done.")]) as server:
        agent_of(server, tools=[look], handlers=[traced.telemetry(content=content)]).stream("Go.").until_done()
    said = {"gen_ai.tool.call.arguments": "{}", "gen_ai.tool.call.result": SECRET}
    assert attributes_of(traced.spans["execute_tool look"]) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "call-1",
        **(said if content else {}),
    }


def test_the_applications_own_object_is_in_no_span(traced: Traced) -> None:
    def use(context: ToolContext[str]) -> str:
        """Use it."""
        return str(len(context.deps))

    with ModelServer([Reply(ToolCall("use", {})), Reply("Done.")]) as server:
        agent = agent_of(server, tools=[use], handlers=[traced.telemetry(content=True)])
        agent.stream("Go.", deps=SECRET).until_done()
    assert [name for name, span in traced.spans.items() if SECRET in str(attributes_of(span))] == []


@both_shells
@body
async def test_no_span_is_current_where_the_application_has_control(face: Face, traced: Traced) -> None:
    """Neither in its loop, nor in its hooks: what it does there has the span around the stream as parent."""
    tracer = traced.provider.get_tracer("the application's")
    seen: set[Any] = set()
    told = face.told(on_event=lambda *_: seen.add(trace.get_current_span()))
    with ModelServer([Reply(ToolCall("look", {})), Reply("Done.")]) as server:
        async with agent_on(face, server, tools=[look], handlers=[traced.telemetry()]) as talker:
            with tracer.start_as_current_span("outside") as outside:
                async for _ in talker.stream("Go.", told):
                    seen.add(trace.get_current_span())
    assert seen == {outside}


ASKED_FOR: dict[str, tuple[dict[str, Any], str | None]] = {
    "nothing": ({}, None),
    "a type": ({"output_type": dict[str, int]}, "json"),
    "a type, in the instructions": ({"output_type": dict[str, int], "output_mode": "prompt"}, "json"),
    "an option": ({"response_format": {"type": "json_object"}}, "json"),
    "text": ({"response_format": {"type": "text"}}, "text"),
}


@pytest.mark.parametrize(("options", "kind"), list(ASKED_FOR.values()), ids=list(ASKED_FOR))
def test_the_kind_of_output_is_what_was_asked_for(options: dict[str, Any], kind: str | None, traced: Traced) -> None:
    with ModelServer(Reply('{"a": 1}')) as server:
        agent_of(server, handlers=[traced.telemetry()], **options).stream("Go.").until_done()
    assert attributes_of(traced.spans["chat m"]).get("gen_ai.output.type") == kind


def test_the_output_of_a_stream_with_a_type_is_json(traced: Traced) -> None:
    sk.stream(chat('{"a": 1}'), traced.telemetry(), output_type=dict[str, int]).until_done()
    assert attributes_of(traced.spans["chat m"])["gen_ai.output.type"] == "json"


@both_shells
@body
async def test_a_stream_that_is_no_agents_has_one_span(face: Face, traced: Traced) -> None:
    """Its model is known when the answer has begun."""
    await face.stream(chat("hel", "lo"), traced.telemetry()).until_done()
    ((name, span),) = traced.spans.items()
    assert name == "chat m"
    assert span.parent is None
    attributes = attributes_of(span)
    assert attributes["gen_ai.provider.name"] == "openai"
    assert "gen_ai.request.model" not in attributes


@both_shells
@body
async def test_one_object_serves_many_streams_at_once(face: Face, traced: Traced) -> None:
    telemetry = traced.telemetry()
    streams = [face.stream(chat(str(number)), telemetry) for number in range(100)]
    if face.is_async:
        async with anyio.create_task_group() as tasks:
            for stream in streams:
                tasks.start_soon(stream.until_done)
    else:
        for stream in streams:
            await stream.until_done()
    spans = traced.exporter.get_finished_spans()
    assert len(spans) == len({span.context.span_id for span in spans if span.context}) == 100


@pytest.mark.parametrize("content", [False, True])
def test_what_was_said_is_in_spans_only_if_that_is_wanted(content: bool, traced: Traced) -> None:
    """Instructions, input, arguments, results, output, and the texts of errors."""

    def fail(number: str) -> str:
        """Fail."""
        raise ValueError(f"no: {number}")

    script = [Reply(ToolCall("look", {}), ToolCall("fail", {"number": SECRET})), Reply(Text(SECRET))]
    with ModelServer(script) as server:
        handlers = [traced.telemetry(content=content)]
        agent = agent_of(server, tools=[look, fail], handlers=handlers, instructions=SECRET)
        agent.stream(SECRET).until_done()
    texts = {name: f"{attributes_of(span)} {span.status.description}" for name, span in traced.spans.items()}
    said = {name for name, text in texts.items() if SECRET in text}
    assert said == ({*texts} - {"invoke_agent"} if content else set())
    chat_span = attributes_of(traced.spans["chat m"])
    named = {"gen_ai.input.messages", "gen_ai.system_instructions", "gen_ai.output.messages"}
    assert named & chat_span.keys() == (named if content else set())


@both_shells
@pytest.mark.parametrize("fault", ["status", "cut", "unreachable"])
@body
async def test_a_failed_call_has_the_status_of_an_error(face: Face, fault: str, traced: Traced) -> None:
    """The type is the HTTP status where there is one."""
    reply = Reply(status=401) if fault == "status" else Reply(Text(pieces=["hel", "lo"]), cut_after=1)
    with ModelServer(reply) as server:
        url = "http://127.0.0.1:9/v1" if fault == "unreachable" else server.url
        kind: Any = openai.AsyncOpenAI if face.is_async else openai.OpenAI
        async with shut(kind(base_url=url, api_key="k", max_retries=0), is_async=face.is_async) as client:
            stream = face.stream(ask(client), traced.telemetry())
            with pytest.raises(sk.StreamkitError) as caught:
                await stream.until_done()
    (span,) = traced.exporter.get_finished_spans()
    assert span.status.status_code is trace.StatusCode.ERROR
    types = {"status": "401", "cut": "SourceError", "unreachable": type(caught.value).__name__}
    assert attributes_of(span)["error.type"] == types[fault]
    (point,) = traced.metrics["gen_ai.client.operation.duration"]
    assert point.attributes["error.type"] == types[fault]


class shut:
    """Closes a client of either face."""

    def __init__(self, client: Any, *, is_async: bool) -> None:
        self.client, self.is_async = client, is_async

    async def __aenter__(self) -> Any:
        return self.client

    async def __aexit__(self, *_: object) -> None:
        if self.is_async:
            await self.client.close()
        else:
            self.client.close()


@every_face
@body
async def test_a_cancelled_stream_ends_its_spans_without_an_error(face: Face, traced: Traced) -> None:
    told = face.told(on_text_delta=lambda told, *_: told.stream.cancel())
    await face.stream(chat("a", "b", "c"), told, traced.telemetry()).until_done()
    (span,) = traced.exporter.get_finished_spans()
    assert span.status.status_code is trace.StatusCode.UNSET
    assert "error.type" not in attributes_of(span)


def test_waiting_for_people_is_in_no_tools_time(traced: Traced) -> None:
    """The answer is an event of the run, with its outcome."""

    class Deciding(sk.EventHandler):
        def on_confirmation(self, confirmation: sk.Confirmation) -> None:
            confirmation.defer()
            threading.Timer(0.3, confirmation.approve).start()

    with ModelServer([Reply(ToolCall("look", {})), Reply("Done.")]) as server:
        agent = agent_of(server, tools=[sk.tool(look, confirm=True)], handlers=[traced.telemetry()], name="scout")
        agent.stream("Go.", Deciding()).until_done()
    spans = traced.spans
    (event,) = spans["invoke_agent scout"].events
    assert event.name == "streamkit.confirmation"
    assert event.attributes is not None
    assert event.attributes["status"] == "approved"
    for name in ("chat m", "execute_tool look"):
        assert _seconds(spans[name]) < 0.25, name


def _seconds(span: ReadableSpan) -> float:
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e9


@both_shells
@body
async def test_each_attempt_with_a_step_has_a_span(face: Face, traced: Traced) -> None:
    """The one that failed has the error, and says that it was tried again; one without a step goes on in the next one's span."""
    script = [Reply(status=503, retry_after=0), Reply(Text(pieces=["a", "b"]), cut_after=1), Reply("Done.")]
    with ModelServer(script) as server:
        retry = sk.Retry(attempts=3, restart=True)
        async with agent_on(face, server, handlers=[traced.telemetry()], retry=retry) as talker:
            await talker.say("Go.")
    first, second = (traced.spans[name] for name in ("chat m", "chat m #2"))
    assert len(traced.spans) == 3
    assert [event.name for event in first.events] == ["streamkit.retry", "streamkit.retry"]
    assert attributes_of(first)["error.type"] == "SourceError"
    assert (second.events, second.status.status_code) == ((), trace.StatusCode.UNSET)


@both_shells
@body
async def test_code_that_runs_has_a_span(face: Face, traced: Traced) -> None:
    with ModelServer([Reply(code("say hi")), Reply("Done.")]) as server:
        options: dict[str, Any] = {"computer": ToyComputer(), "auto_run": True, "handlers": [traced.telemetry()]}
        async with agent_on(face, server, **options) as talker:
            await talker.say("Go.")
    assert traced.tree == {
        "invoke_agent": None,
        "chat m": "invoke_agent",
        "execute_tool execute": "invoke_agent",
        "chat m #2": "invoke_agent",
    }


def test_a_tool_that_fails_has_the_status_of_an_error(traced: Traced) -> None:
    def fail() -> str:
        """Fail."""
        raise ValueError("no")

    with ModelServer([Reply(ToolCall("fail", {})), Reply("Done.")]) as server:
        agent_of(server, tools=[fail], handlers=[traced.telemetry()]).stream("Go.").until_done()
    assert traced.spans["execute_tool fail"].status.status_code is trace.StatusCode.ERROR
    assert traced.spans["execute_tool fail"].attributes["error.type"] == "ValueError"
    assert traced.spans["invoke_agent"].status.status_code is trace.StatusCode.UNSET


def test_the_tokens_of_inner_agents_are_their_own_models(traced: Traced) -> None:
    """They are in the step's usage too, but in no span or metric of the outer model."""
    script = [
        Reply(ToolCall("inner", {"input": "x"}), usage=Tokens(10, 1)),
        Reply("In.", usage=Tokens(1000, 100)),
        Reply("Done.", usage=Tokens(10, 1)),
    ]
    with ModelServer(script) as server:
        inner = agent_of(server, name="inner", handlers=[traced.telemetry()])
        inner.model = "small"
        outer = agent_of(server, tools=[inner.as_tool()], handlers=[traced.telemetry()])
        stream = outer.stream("Go.")
        stream.until_done()
    assert stream.usage is not None
    assert stream.usage.input_tokens == 1020
    tokens = {
        (point.attributes["gen_ai.request.model"], point.attributes["gen_ai.token.type"]): point.sum
        for point in traced.metrics["gen_ai.client.token.usage"]
    }
    assert tokens == {("small", "input"): 1000, ("small", "output"): 100, ("m", "input"): 20, ("m", "output"): 2}


def test_the_metrics_of_a_run(traced: Traced) -> None:
    with ModelServer([Reply(ToolCall("look", {})), Reply("Done.")]) as server:
        agent_of(server, tools=[look], handlers=[traced.telemetry()]).stream("Go.").until_done()
    metrics = traced.metrics
    assert metrics.keys() == {
        "gen_ai.client.operation.duration",
        "gen_ai.client.operation.time_to_first_chunk",
        "gen_ai.client.token.usage",
    }
    tokens = {point.attributes["gen_ai.token.type"]: point.sum for point in metrics["gen_ai.client.token.usage"]}
    assert tokens == {"input": 20, "output": 3}
    (duration,) = metrics["gen_ai.client.operation.duration"]
    assert duration.count == 2
    bounds = {name: points[0].explicit_bounds for name, points in metrics.items()}
    assert bounds == {  # as the conventions recommend
        "gen_ai.client.operation.duration": tuple(0.01 * 2**power for power in range(14)),
        "gen_ai.client.operation.time_to_first_chunk": (
            *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
        ),
        "gen_ai.client.token.usage": tuple(4**power for power in range(14)),
    }


class Broken(SpanProcessor):
    """A span processor that fails."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise RuntimeError("the exporter is on fire")

    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("the exporter is on fire")


@both_shells
@body
async def test_an_exporter_that_raises_ends_no_stream(
    face: Face, traced: Traced, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged."""
    traced.provider.add_span_processor(Broken())
    script = [Reply(ToolCall("look", {})), Reply("Done.")]
    with ModelServer(script) as server, caplog.at_level(logging.ERROR, "streamkit.telemetry"):
        async with agent_on(face, server, tools=[look], handlers=[traced.telemetry()]) as talker:
            stream = await talker.say("Go.")
    assert stream.status == "completed"
    assert "the exporter is on fire" in caplog.text


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(sk.UsageError, match=r"streamkit-sdk\[otel\]"):
        Telemetry()


# -- `around_tool`, which any handler may have


class Around(sk.EventHandler):
    """Notes in which thread and around what its contexts are entered."""

    def __init__(self, name: str, notes: list[tuple[str, str, int]]) -> None:
        self.name, self.notes = name, notes

    @contextlib.contextmanager
    def _context(self, call: sk.ToolCallMessage) -> Generator[None]:
        self.notes.append((f"{self.name} enters", str(call.name), threading.get_ident()))
        try:
            yield
        finally:
            self.notes.append((f"{self.name} leaves", str(call.name), threading.get_ident()))

    def around_tool(self, call: sk.ToolCallMessage, /) -> Any:
        return self._context(call)


@both_shells
@pytest.mark.parametrize("kind", ["function", "coroutine", "throttled"])
@body
async def test_a_tool_runs_inside_the_contexts_of_the_handlers(face: Face, kind: str) -> None:
    """That of the first handler is the outer one; they are entered where the tool runs."""
    notes: list[tuple[str, str, int]] = []

    def see() -> str:
        """See."""
        notes.append(("the tool runs", "see", threading.get_ident()))
        return "seen"

    async def see_async() -> str:
        """See."""
        await anyio.lowlevel.checkpoint()
        return see()

    tool: Any = see_async if kind == "coroutine" and face.is_async else see
    named = sk.tool(tool, name="see")
    handlers: list[sk.Handler] = [Around("first", notes), Around("second", notes)]
    if kind == "throttled":
        handlers = [sk.Throttled(handler, 0.1) for handler in handlers]
    with ModelServer([Reply(ToolCall("see", {})), Reply("Done.")]) as server:
        async with agent_on(face, server, tools=[named]) as talker:
            await talker.say("Go.", *handlers)
    assert [what for what, _, _ in notes] == [
        "first enters",
        "second enters",
        "the tool runs",
        "second leaves",
        "first leaves",
    ]
    assert len({thread for _, _, thread in notes}) == 1


@both_shells
@body
async def test_a_context_makes_no_error_go_away(face: Face) -> None:
    class Suppressing(sk.EventHandler):
        def around_tool(self, call: sk.ToolCallMessage, /) -> Any:
            return contextlib.suppress(ValueError)

    def act() -> None:
        """Act."""
        raise ValueError("broken")

    with ModelServer([Reply(ToolCall("act", {})), Reply("Done.")]) as server:
        async with agent_on(face, server, tools=[act]) as talker:
            stream = await talker.say("Go.", Suppressing())
    assert [one.content for one in stream.messages if one.type == "tool_output"] == ["Error: ValueError: broken"]
    assert stream.status == "completed"


@async_faces
@body
async def test_a_context_that_raises_is_the_calls_failure(face: Face) -> None:
    class Refusing(sk.EventHandler):
        def around_tool(self, call: sk.ToolCallMessage, /) -> Any:
            raise ValueError("not today")

    ran: list[str] = []

    def act() -> None:
        """Act."""
        ran.append("act")

    with ModelServer([Reply(ToolCall("act", {})), Reply("Done.")]) as server:
        async with agent_on(face, server, tools=[act]) as talker:
            stream = await talker.say("Go.", Refusing())
    assert ran == []
    assert [output.content for output in stream.messages if output.type == "tool_output"] == [
        "Error: ValueError: not today"
    ]
    assert stream.status == "completed"
