"""Runs of smolagents' agents as sources, over the model server with the real client, which speaks Chat Completions.

pip install -e '.[test,integrations]'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reasoning, Reply, Text, Tokens, ToolCall

from ..faces import Face, SyncTold, body, every_face

smolagents = pytest.importorskip("smolagents")

TOUR = [
    Reply(
        *(Reasoning("Two cities."), Text("Let me look.")),
        *(ToolCall("get_weather", {"city": city}) for city in ("Oslo", "Rome")),
        usage=Tokens(30, 12, cached=8, reasoning=3),
    ),
    Reply(Text("So. "), ToolCall("final_answer", {"answer": "Oslo is colder."}), usage=Tokens(60, 7)),
]
CODE = [
    Reply("Let me look. <code>\nprint(get_weather('Oslo'))\n</code>", usage=Tokens(30, 12)),
    Reply("Done. <code>\nfinal_answer('cold')\n</code>", usage=Tokens(60, 7)),
]
ANSWERS = Reply(ToolCall("final_answer", {"answer": "Done."}), usage=Tokens(5, 1))

streamed_or_not = pytest.mark.parametrize("streams", [True, False], ids=["deltas", "whole"])


def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: the city
    """
    return f"{city}: {-3 if city == 'Oslo' else 21} degrees"


def failing(city: str) -> str:
    """Fails.

    Args:
        city: the city
    """
    raise ValueError("no such city")


@contextmanager
def agent_on(
    *replies: Reply, kind: str = "ToolCallingAgent", streams: bool = True, **options: Any
) -> Iterator[tuple[Any, ModelServer]]:
    with ModelServer([*replies]) as server, openai.OpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
        yield agent_over(client, kind=kind, stream_outputs=streams, **options), server


def agent_over(client: Any, *, kind: str = "ToolCallingAgent", **options: Any) -> Any:
    model = smolagents.OpenAIModel("scripted", api_key="x", retry=False)
    model.client.close()
    model.client = client
    options = {"tools": [get_weather], **options}
    options["tools"] = [smolagents.tool(function) for function in options["tools"]]
    return getattr(smolagents, kind)(model=model, verbosity_level=0, **options)


def shown(stream: Any) -> list[tuple[str, str, str | None]]:
    return [(message.type, message.content, message.step_id) for message in stream.messages]


# -- what it says


@every_face
@body
async def test_a_tool_calling_agents_deltas_are_text_calls_and_the_answer(face: Face) -> None:
    """The answer arrives in pieces, as text. Nothing is repaired."""
    told = face.told()
    with agent_on(*TOUR) as (agent, _):
        stream = face.stream(agent.run("Oslo or Rome?", stream=True), told, strict=True)
        assert await stream.get_final_text() == "Oslo is colder."
    told.check_brackets()
    assert shown(stream)[:3] == [
        ("message", "Let me look.", "step-1"),
        ("tool_call", '{"city": "Oslo"}', "step-1"),
        ("tool_call", '{"city": "Rome"}', "step-1"),
    ]
    outputs = {message.call_id: message.content for message in stream.messages[3:5]}
    assert outputs == {"call_1_0": "Oslo: -3 degrees", "call_1_1": "Rome: 21 degrees"}
    assert [stream.messages[1].call_id, stream.messages[1].name] == ["call_1_0", "get_weather"]
    assert shown(stream)[5:] == [("message", "So. ", "step-2"), ("message", "Oslo is colder.", "step-3")]
    assert len([delta for delta in told.of("on_text_delta") if delta.value in "Oslo is colder."]) > 2


def test_a_tool_calling_agent_without_deltas_says_the_same_later() -> None:
    """The text of a response comes after its calls."""
    with agent_on(*TOUR, streams=False) as (agent, _):
        stream = sk.stream(agent.run("Oslo or Rome?", stream=True), strict=True)
        assert stream.get_final_text() == "Oslo is colder."
    kinds = [(kind, step) for kind, _, step in shown(stream)]
    assert kinds == [
        *[("tool_call", "step-1")] * 2,
        *[("tool_output", "step-1")] * 2,
        *[("message", "step-1"), ("message", "step-2"), ("message", "step-3")],
    ]
    assert [content for kind, content, _ in shown(stream) if kind == "tool_call"] == [
        '{"city":"Oslo"}',
        '{"city":"Rome"}',
    ]


@streamed_or_not
def test_the_tokens_of_all_responses_are_counted_once(streams: bool) -> None:
    with agent_on(*TOUR, streams=streams) as (agent, _):
        usage = sk.stream(agent.run("Oslo or Rome?", stream=True)).get_final_run().usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (90, 19)


@streamed_or_not
def test_a_code_agents_code_is_code_and_what_it_printed_is_on_the_console(streams: bool) -> None:
    """The code is not in the text, and its tags nowhere. The answer comes once, in a step of its own."""
    with agent_on(*CODE, kind="CodeAgent", streams=streams) as (agent, _):
        stream = sk.stream(agent.run("Oslo?", stream=True), strict=True)
        assert stream.get_final_text() == "cold"
    first = [(kind, content) for kind, content, step in shown(stream) if step == "step-1"]
    console = ("console", "Execution logs:\nOslo: -3 degrees\nLast output from code snippet:\nNone")
    code, text = ("code", "print(get_weather('Oslo'))"), ("message", "Let me look. ")
    assert first == [*([text, code] if streams else [code, text]), console]
    assert shown(stream)[-1] == ("message", "cold", "step-3")
    ran = next(message for message in stream.messages if message.type == "code")
    printed = next(message for message in stream.messages if message.type == "console")
    assert (ran.format, ran.call_id) == ("python", printed.call_id)
    assert stream.usage is not None
    assert stream.usage.total_tokens == 30 + 12 + 60 + 7


def test_code_arrives_in_pieces() -> None:
    told = SyncTold()
    with agent_on(*CODE, kind="CodeAgent") as (agent, _):
        sk.stream(agent.run("Oslo?", stream=True), told).until_done()
    told.check_brackets()
    assert len(told.of("on_code_delta")) > 4


def test_of_a_managed_agent_the_call_and_its_output_are_shown() -> None:
    replies = [Reply(ToolCall("expert", {"task": "Oslo?"})), ANSWERS, ANSWERS]
    with agent_on(*replies) as (one, _):
        expert = agent_over(one.model.client, name="expert", description="Knows.", stream_outputs=True)
        agent = agent_over(one.model.client, managed_agents=[expert], stream_outputs=True)
        stream = sk.stream(agent.run("Ask.", stream=True), strict=True)
        call, output, answer = stream.get_final_messages()
    assert (call.name, call.content, call.call_id) == ("expert", '{"task": "Oslo?"}', output.call_id)
    assert output.content.endswith("'expert':\nDone.")
    assert answer.content == "Done."


@streamed_or_not
def test_a_plan_is_a_step_of_its_own(streams: bool) -> None:
    with agent_on(Reply("1. Look."), ANSWERS, streams=streams, planning_interval=5) as (agent, _):
        stream = sk.stream(agent.run("Oslo?", stream=True), strict=True)
        assert stream.get_final_text() == "Done."
    assert shown(stream) == [("message", "1. Look.", "step-1"), ("message", "Done.", "step-2")]


def test_an_answer_may_be_any_value() -> None:
    with agent_on(Reply(ToolCall("final_answer", {"answer": {"degrees": 3}}))) as (agent, _):
        assert sk.stream(agent.run("Oslo?", stream=True), strict=True).get_final_text() == '{"degrees":3}'


def test_a_models_own_stream_is_a_source() -> None:
    with agent_on(TOUR[0]) as (agent, _):
        asked = [smolagents.ChatMessage(role="user", content=[{"type": "text", "text": "Oslo?"}])]
        source = agent.model.generate_stream(asked, tools_to_call_from=[smolagents.tool(get_weather)])
        stream = sk.stream(source, strict=True)
        stream.until_done()
    assert stream.status == "requires_action"
    assert stream.usage is not None
    assert stream.usage.total_tokens == 42


def test_a_recording_replays_the_run(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with agent_on(*CODE, kind="CodeAgent") as (agent, _):
        stream = sk.stream(agent.run("Oslo?", stream=True), sk.Recorder(path))
        stream.until_done()
    replayed = sk.stream(path)
    assert [m.to_dict() for m in replayed.get_final_messages()] == [m.to_dict() for m in stream.messages]
    assert (replayed.usage, replayed.status) == (stream.usage, "completed")


# -- what fails


@streamed_or_not
def test_a_tool_that_raises_has_a_failed_output_and_the_run_goes_on(streams: bool) -> None:
    replies = [Reply(ToolCall("failing", {"city": "X"})), ANSWERS]
    with agent_on(*replies, tools=[failing], streams=streams) as (agent, _):
        stream = sk.stream(agent.run("Go.", stream=True), strict=True)
        call, output, answer = stream.get_final_messages()
    assert (output.call_id, output.name, output.status) == (call.call_id, "failing", "failed")
    assert output.metadata == {"error": True}
    assert "ValueError: no such city" in output.content
    assert answer.content == "Done."


def test_code_that_raises_has_its_error_on_the_console() -> None:
    with agent_on(Reply("<code>\nprint(1)\n1/0\n</code>"), CODE[1], kind="CodeAgent") as (agent, _):
        stream = sk.stream(agent.run("Go.", stream=True), strict=True)
        console = next(message for message in stream.get_final_messages() if message.type == "console")
    assert (console.status, console.metadata) == ("failed", {"error": True})
    assert console.content.startswith("Execution logs:\n1\n")
    assert console.content.endswith("ZeroDivisionError: division by zero")


def test_an_answer_that_the_agent_cannot_read_fails_its_step_alone() -> None:
    with agent_on(Reply("No code."), CODE[1], kind="CodeAgent") as (agent, _):
        stream = sk.stream(agent.run("Go.", stream=True), strict=True)
        steps = stream.get_final_run_steps()
    assert [step.status for step in steps] == ["failed", "completed", "completed"]
    assert steps[0].error is not None
    assert steps[0].error["type"] == "AgentParsingError"
    assert stream.status == "completed"


@streamed_or_not
def test_a_run_at_its_limit_of_steps_is_incomplete_and_has_the_answer_it_was_made_to_give(streams: bool) -> None:
    replies = [Reply(ToolCall("get_weather", {"city": "Oslo"})), Reply("I do not know.")]
    with agent_on(*replies, streams=streams, max_steps=1) as (agent, _):
        stream = sk.stream(agent.run("Go.", stream=True), strict=True)
        assert stream.get_final_text() == "I do not know."
    assert (stream.status, stream.get_final_run().finish_reason) == ("incomplete", "max_steps")
    assert [kind for kind, _, _ in shown(stream)] == ["tool_call", "tool_output", "message"]


def test_an_error_after_some_deltas_keeps_what_came() -> None:
    failing_reply = Reply("Hello there.", error_after=2)
    with agent_on(Reply(ToolCall("get_weather", {"city": "Oslo"}), usage=Tokens(9, 4)), failing_reply) as (agent, _):
        stream = sk.stream(agent.run("Go.", stream=True))
        with pytest.raises(sk.SourceError) as raised:
            stream.until_done()
    assert type(raised.value.__cause__) is smolagents.AgentGenerationError
    assert [(m.type, m.status) for m in raised.value.messages] == [
        ("tool_call", "completed"),
        ("tool_output", "completed"),
        ("message", "failed"),
    ]
    assert stream.usage is not None
    assert (stream.status, stream.usage.input_tokens) == ("failed", 9)


def test_a_request_that_is_refused_says_so() -> None:
    with agent_on(Reply(status=429)) as (agent, _), pytest.raises(sk.SourceError) as raised:
        sk.stream(agent.run("Go.", stream=True)).until_done()
    assert type(raised.value.__cause__) is smolagents.AgentGenerationError


# -- its end


def by_a_loop(run: Any) -> Iterator[Any]:
    for item in run:  # noqa: UP028
        yield item


def by_delegation(run: Any) -> Iterator[Any]:
    yield from run


@pytest.mark.parametrize("kind", ["ToolCallingAgent", "CodeAgent"])
@pytest.mark.parametrize("wrap", [iter, by_a_loop, by_delegation], ids=["itself", "loop", "delegation"])
def test_closing_the_stream_stops_the_run_and_its_request(wrap: Callable[[Any], Any], kind: str) -> None:
    """Also where a generator is around it. The run yields once more while it is closed, and no garbage collection is waited for."""
    with agent_on(Reply("Hello there.", never_ends=True), kind=kind) as (agent, server):
        with sk.stream(wrap(agent.run("Go.", stream=True))) as stream:
            next(stream.text_deltas)
        assert server.wait_for_disconnect(10)
    assert (stream.status, stream.messages[0].content) == ("cancelled", "Hell")


@every_face
@body
async def test_cancelling_the_stream_stops_a_run_that_waits(face: Face) -> None:
    with agent_on(Reply("Hello there.", never_ends=True)) as (agent, server):
        stream = face.stream(agent.run("Go.", stream=True))
        async for _ in stream.text_deltas:
            stream.cancel()
        assert await face.in_thread(lambda: server.wait_for_disconnect(10))
    assert stream.status == "cancelled"


def test_a_run_without_stream_is_refused_and_the_error_names_what_has_items() -> None:
    with agent_on(ANSWERS) as (agent, _), pytest.raises(sk.UsageError, match="stream=True"):
        sk.stream(agent.run("Go.", return_full_result=True)).until_done()
