"""What agents have, used together: retries, agents as tools, typed output and telemetry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import streamkit as sk
from streamkit.protocols import codec
from streamkit.relay import MemoryRelay
from streamkit.telemetry import Telemetry
from streamkit.testing import ModelServer, Reply, Request, ServiceError, Text, ToolCall

from ..faces import Face, body, both_shells, every_face
from ..retrying import Shown
from .parts import agent_on, every_provider, outputs_of

RESTART = sk.Retry(max_wait=0.01, restart=True)
BUSY = ServiceError("Busy.", "server_error", "server_error")
ASK = Reply(Text("Let me ask."), ToolCall("research", {"input": "sun?"}, call_id="x"))
SEARCH = Reply(ToolCall("search", {"q": "sun"}, call_id="y"))


class Counted:
    """A tool that counts its runs."""

    def __init__(self) -> None:
        self.runs: list[str] = []

    @property
    def search(self) -> Any:
        def search(q: str) -> str:
            """Search."""
            self.runs.append(q)
            return f"{q}: a star"

        return search


def shown(messages: Any) -> list[tuple[str, str, str | None]]:
    return [(message.type, message.content, message.parent_id) for message in messages]


WHOLE = [
    ("message", "Let me ask.", None),
    ("tool_call", '{"input": "sun?"}', None),
    ("tool_call", '{"q": "sun"}', "x"),
    ("tool_output", "sun: a star", "x"),
    ("message", "It is a star.", "x"),
    ("tool_output", "It is a star.", None),
    ("message", "A star!", None),
]


# -- retries of the outer run, and of the inner one


@both_shells
@every_provider
@body
async def test_an_outer_retry_repeats_the_outer_model_call_alone(face: Face, provider: str) -> None:
    """The inner runs are tools that ran: they, and their tools, do not run again, and their messages stay."""
    counted, told = Counted(), face.told()
    script = [
        Reply("Let me", error_after=1, error=BUSY),
        ASK,
        SEARCH,
        Reply("It is a star."),
        Reply(status=503),
        Reply("A", error_after=1, error=BUSY),
        Reply("A star!"),
    ]
    with ModelServer(script) as server:
        async with (
            agent_on(face, server, provider, name="research", tools=[counted.search]) as inner,
            agent_on(
                face, server, provider, tools=[inner.agent.as_tool()], retry=sk.Retry(3, restart=True, max_wait=0)
            ) as outer,
        ):
            stream = await outer.say("Go.", told)
        requests = server.requests
    assert (len(requests), counted.runs) == (7, ["sun"])
    assert [*outputs_of(requests[4]).values()] == [*outputs_of(requests[6]).values()] == ["It is a star."]
    assert shown(stream.messages) == WHOLE
    assert shown(outer.messages[1:]) == WHOLE
    assert [retry.attempt for retry in told.of("on_retry")] == [2, 2, 3]
    assert not any(id.startswith("x/") for retry in told.of("on_retry") for id in retry.withdrawn)
    told.check_brackets()


@both_shells
@every_provider
@body
async def test_what_an_inner_retry_withdraws_is_withdrawn_outside(face: Face, provider: str, tmp_path: Path) -> None:
    """Its event is on the outer stream, with the ids that the messages have there. They are in no `messages`, no saved conversation
    and no later request, a recording replays the same, and a relay's readers take back the same."""
    counted, told, again, path = Counted(), face.told(), face.told(), tmp_path / "run.jsonl"
    script = [
        ASK,
        Reply(status=503),
        Reply("Let me see", ToolCall("search", {"q": "moon"}), cut_after=3),
        SEARCH,
        Reply("It is not", error_after=1, error=BUSY),
        Reply("It is a star."),
        Reply("A star!"),
    ]
    with ModelServer(script) as server:
        inner_shown = Shown()
        options: Any = {"name": "research", "tools": [counted.search], "retry": RESTART, "handlers": [inner_shown]}
        async with (
            agent_on(face, server, provider, **options) as inner,
            agent_on(face, server, provider, tools=[inner.agent.as_tool()]) as outer,
        ):
            outer_shown, lines = Shown(), list[bytes]()
            stream = outer.stream("Go.", told, outer_shown, sk.Recorder(path))
            async for event in stream:
                if not isinstance(event, (sk.events.RunEvent, sk.events.StreamEnd)):
                    lines.append(codec.encode_event(event))
            outer.agent.save(tmp_path / "talk.json")
        requests = server.requests
    assert counted.runs == ["sun"]
    assert shown(stream.messages) == WHOLE
    assert shown(outer.messages[1:]) == WHOLE
    assert "moon" not in (tmp_path / "talk.json").read_text()
    assert not any(word in str(request.body) for request in requests for word in ("moon", "It is not"))
    inside, outside = inner_shown.retries, told.of("on_retry")
    assert [retry.attempt for retry in outside] == [retry.attempt for retry in inside] == [2, 3, 2]
    assert [retry.withdrawn for retry in outside] == [[f"x/{id}" for id in retry.withdrawn] for retry in inside]
    assert [text.split()[0] for text in outer_shown.taken_back] == ["Let", "It"]
    told.check_brackets()
    replay = face.stream(path, again)
    await replay.until_done()
    assert events_of(again) == events_of(told)
    assert shown(replay.messages) == WHOLE
    relay = MemoryRelay()
    with sk.Emitter(relay, "run") as emitter:
        for line in lines:
            emitter.emit(codec.decode_event(line))
    read = face.stream(relay.reader("run"), taken_back := Shown())
    await read.until_done()
    assert shown(read.messages) == WHOLE
    assert taken_back.taken_back == outer_shown.taken_back


def events_of(told: Any) -> list[dict[str, Any]]:
    return [codec.event_to_dict(event) for event in told.of("on_event")]


@both_shells
@body
async def test_an_inner_failure_for_good_is_no_failure_of_the_outer_call(face: Face) -> None:
    """The outer `retry` does not ask the inner agent again: it is the call's output."""
    with ModelServer([ASK, Reply(status=503), Reply(status=503), Reply("Sorry.")]) as server:
        async with (
            agent_on(face, server, name="research", retry=sk.Retry(2, max_wait=0)) as inner,
            agent_on(face, server, tools=[inner.agent.as_tool()], retry=sk.Retry(5, max_wait=0)) as outer,
        ):
            stream = await outer.say("Go.")
        assert len(server.requests) == 4
        (output,) = outputs_of(server.requests[3]).values()
    assert output.startswith("Error: SourceError")
    assert stream.status == "completed"


@dataclass
class Fact:
    subject: str


@both_shells
@body
async def test_retries_of_the_source_and_of_the_output_are_counted_apart(face: Face) -> None:
    """Of an inner agent: an answer that is no output is asked for again, and so is a failed one; the call's output is the JSON."""
    script = [
        ASK,
        Reply(status=503),
        Reply("No JSON."),
        Reply(status=503),
        Reply('{"subject": "sun"}'),
        Reply("A star!"),
    ]
    with ModelServer(script) as server:
        options: Any = {"name": "research", "output_type": Fact, "retry": sk.Retry(2, max_wait=0)}
        async with (
            agent_on(face, server, **options) as inner,
            agent_on(face, server, tools=[inner.agent.as_tool()]) as outer,
        ):
            stream = await outer.say("Go.")
        assert [*outputs_of(server.requests[5]).values()] == ['{"subject":"sun"}']
    assert [warning.code for warning in stream.warnings] == ["output-invalid"]
    assert "No JSON." in [message.content for message in stream.messages]


@every_face
@pytest.mark.parametrize("ending", ["cancel", "close"])
@body
async def test_stopping_in_an_inner_wait_ends_everything(face: Face, ending: str) -> None:
    """No `on_retry` follows, what was open is cancelled, and the next stream goes on."""
    told = face.told(on_retry=lambda told, _: told.stream.cancel() if ending == "cancel" else None)
    script = [ASK, Reply("Almost there", cut_after=1), Reply("Fine.")]
    with ModelServer(script) as server:
        inner_retry = sk.Retry(restart=True)
        async with (
            agent_on(face, server, name="research", retry=inner_retry) as inner,
            agent_on(face, server, tools=[inner.agent.as_tool()]) as outer,
        ):
            stream = outer.stream("Go.", told)
            async for event in stream:
                if ending == "close" and isinstance(event, sk.StreamRetry):
                    await stream.close()
                    break
            assert len(server.requests) == 2
            assert (stream.status, told.hooks[-1]) == ("cancelled", "on_end")
            assert len(told.of("on_retry")) == 1
            told.check_brackets()
            await outer.say("Go on.")
            assert outer.contents[-1] == ("message", "Fine.")


# -- what of an inner run is on the outer stream, and when


def responses(*items: dict[str, Any]) -> Reply:
    """An answer of the Responses API with an event that streamkit does not know, and these items' deltas."""
    body = [
        {"type": "response.created", "response": {"id": "r", "object": "response", "status": "in_progress"}},
        {"type": "response.odd.thing", "note": "inner"},
        *items,
        {
            "type": "response.completed",
            "response": {"id": "r", "object": "response", "status": "completed", "output": []},
        },
    ]
    return Reply(raw="".join(f"data: {json.dumps(item)}\n\n" for item in body).encode())


@both_shells
@body
async def test_the_bracket_of_an_inner_run_is_the_call_alone(face: Face) -> None:
    """Neither its run and steps nor what the provider sent raw: these are the inner handlers'. Of its tokens the outer step has the
    sum."""
    inside, outside = face.told(), face.told()
    delta = {"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0, "delta": "Hi"}
    with ModelServer([ASK, responses(delta), Reply("A star!")]) as server:
        async with (
            agent_on(face, server, "openai_responses", name="research", handlers=[inside]) as inner,
            agent_on(face, server, "openai_responses", tools=[inner.agent.as_tool()]) as outer,
        ):
            await outer.say("Go.", outside)
    raw = [
        [event.name for event in told.of("on_event") if isinstance(event, sk.RawEvent)] for told in (inside, outside)
    ]
    assert ("response.odd.thing" in raw[0], "response.odd.thing" in raw[1]) == (True, False)
    assert [len(outside.of(hook)) for hook in ("on_run_created", "on_run_done", "on_run_step_created")] == [1, 1, 2]
    assert "Hi" in [message.content for message in outside.of("on_text_done")]


@every_face
@body
async def test_inner_runs_of_an_agent_follow_each_other_and_of_an_async_one_do_not(face: Face) -> None:
    with ModelServer(reply) as server:
        async with (
            agent_on(face, server, name="research", tools=[Counted().search]) as inner,
            agent_on(face, server, tools=[inner.agent.as_tool(), Counted().search]) as outer,
        ):
            stream = await outer.say("Go.")
        firsts = [request.body["messages"][0]["content"] for request in server.requests]
    assert sorted(firsts) == ["Go.", "Go.", "moon", "moon", "sun", "sun"]
    if not face.is_async:
        assert firsts == ["Go.", "sun", "sun", "moon", "moon", "Go."]
    assert stream.status == "completed"


# -- with telemetry


class Traced:
    """Spans in memory."""

    def __init__(self) -> None:
        self.exporter, self.provider = InMemorySpanExporter(), TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def telemetry(self) -> Telemetry:
        return Telemetry(tracer_provider=self.provider)

    @property
    def spans(self) -> list[ReadableSpan]:
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def below(self, parent: ReadableSpan | None) -> list[ReadableSpan]:
        """The spans directly below one, in the order in which they began."""
        id = None if parent is None or parent.context is None else parent.context.span_id
        return [span for span in self.spans if (span.parent.span_id if span.parent else None) == id]

    def tree(self, parent: ReadableSpan | None = None) -> list[Any]:
        """The names of all spans, each with the list of what is below it."""
        return [(span.name, self.tree(span)) for span in self.below(parent)]


@pytest.fixture
def traced() -> Iterator[Traced]:
    made = Traced()
    yield made
    made.provider.shutdown()


def reply(request: Request) -> Reply:
    """The outer model calls two agents and a tool at once, the inner ones search."""
    first = request.body["messages"][0]["content"]
    if first == "Go.":
        calls = [ToolCall("research", {"input": place}, call_id=place) for place in ("sun", "moon")]
        return Reply("Done.") if outputs_of(request) else Reply(*calls, ToolCall("search", {"q": "x"}, call_id="own"))
    return Reply(f"{first}!") if outputs_of(request) else Reply(ToolCall("search", {"q": first}, call_id="same"))


INSIDE = ("invoke_agent research", [("chat m", []), ("execute_tool search", []), ("chat m", [])])


@both_shells
@body
async def test_the_spans_of_an_inner_run_are_below_its_call(face: Face, traced: Traced) -> None:
    """Each inner agent's own telemetry. Its messages on the outer stream make no span there."""
    counted = Counted()
    with ModelServer(reply) as server:
        inner_options: Any = {"name": "research", "tools": [counted.search], "handlers": [traced.telemetry()]}
        async with agent_on(face, server, **inner_options) as inner:
            tools = [inner.agent.as_tool(), counted.search]
            async with agent_on(face, server, name="boss", tools=tools, handlers=[traced.telemetry()]) as outer:
                await outer.say("Go.")
    ((name, inside),) = traced.tree()
    assert name == "invoke_agent boss"
    assert sorted(inside, key=str) == sorted(
        [
            ("chat m", []),
            ("execute_tool research", [INSIDE]),
            ("execute_tool research", [INSIDE]),
            ("execute_tool search", []),
            ("chat m", []),
        ],
        key=str,
    )


@both_shells
@body
async def test_an_inner_run_without_telemetry_makes_no_span(face: Face, traced: Traced) -> None:
    """Though its messages, calls and questions are on the outer stream."""
    with ModelServer(reply) as server:
        async with agent_on(face, server, name="research", tools=[Counted().search]) as inner:
            tools = [inner.agent.as_tool(), Counted().search]
            async with agent_on(face, server, name="boss", tools=tools, handlers=[traced.telemetry()]) as outer:
                await outer.say("Go.")
    names = sorted(span.name for span in traced.spans)
    assert names == [
        *["chat m"] * 2,
        *["execute_tool research"] * 2,
        "execute_tool search",
        "invoke_agent boss",
    ]


@both_shells
@body
async def test_retries_of_both_runs_are_in_the_spans_of_their_own_calls(face: Face, traced: Traced) -> None:
    """Each attempt with a step is a `chat` span, beside the tools, whose spans are there once."""
    script = [
        Reply("Let", error_after=1, error=BUSY),
        ASK,
        Reply("It", error_after=1, error=BUSY),
        SEARCH,
        Reply(status=503),
        Reply("It is a star."),
        Reply("A star!"),
    ]
    with ModelServer(script) as server:
        inner_options: Any = {"name": "research", "tools": [Counted().search], "retry": RESTART}
        outer_options: Any = {"name": "boss", "retry": RESTART, "handlers": [traced.telemetry()]}
        async with (
            agent_on(face, server, handlers=[traced.telemetry()], **inner_options) as inner,
            agent_on(face, server, tools=[inner.agent.as_tool()], **outer_options) as outer,
        ):
            await outer.say("Go.")
    chats = [("chat m", []), ("chat m", [])]
    inside = [("invoke_agent research", [*chats, ("execute_tool search", []), ("chat m", [])])]
    assert traced.tree() == [("invoke_agent boss", [*chats, ("execute_tool research", inside), ("chat m", [])])]
    (boss,) = traced.below(None)
    research = traced.below(traced.below(boss)[2])[0]
    for whole, retried in ((boss, [1, 0, 0]), (research, [1, 0, 1])):
        calls = [span for span in traced.below(whole) if span.name == "chat m"]
        assert [[event.name for event in span.events].count("streamkit.retry") for span in calls] == retried
        codes = [span.status.status_code for span in calls]
        assert codes == [trace.StatusCode.ERROR, trace.StatusCode.UNSET, trace.StatusCode.UNSET]
    assert all(span.end_time is not None for span in traced.spans)


@every_face
@body
async def test_a_stopped_run_ends_the_spans_of_both(face: Face, traced: Traced) -> None:
    """None of them is an error."""
    slow = Reply(Text("A long story. " * 200), delay=0.05)
    with ModelServer([ASK, slow]) as server:
        async with (
            agent_on(face, server, name="research", handlers=[traced.telemetry()]) as inner,
            agent_on(face, server, tools=[inner.agent.as_tool()], handlers=[traced.telemetry()]) as outer,
        ):
            stream = outer.stream("Go.")
            async for event in stream:
                if isinstance(event, sk.TextDelta) and event.snapshot.parent_id:
                    stream.cancel()
    assert [span.name for span in traced.spans] == [
        "invoke_agent",
        "chat m",
        "execute_tool research",
        "invoke_agent research",
        "chat m",
    ]
    assert {span.status.status_code for span in traced.spans} == {trace.StatusCode.UNSET}
