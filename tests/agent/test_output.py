"""An agent's `output_type`: what the model is asked for, how its answer is read, and when it is asked again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

import streamkit as sk
from streamkit.agent import ModelRequest
from streamkit.testing import ModelServer, Reply, Request, ToolCall

from ..faces import Face, body, both_shells
from .parts import agent_on, every_provider


@dataclass
class Weather:
    city: str
    degrees: float


class Options(TypedDict, total=False):
    wind: Weather


class Storm(pydantic.BaseModel):
    name: str
    strength: int = pydantic.Field(default=1, gt=0)


class Rain(msgspec.Struct, tag=True):
    amount: int


class Snow(msgspec.Struct, tag=True):
    depth: int


OSLO = '{"city": "Oslo", "degrees": -3.5}'
SCHEMA = {
    "title": "Weather",
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "number"}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}


def look(city: str) -> str:
    """Look at the thermometer."""
    return f"It is cold in {city}."


def format_of(request: Request) -> dict[str, Any]:
    """What a request of any provider states of its output: `name`, `schema` and `strict`, as far as it has them; {} for nothing."""
    body: dict[str, Any] = request.body
    stated = (
        body.get("text", {}).get("format")
        or body.get("output_config", {}).get("format")
        or body.get("response_format")
        or {}
    )
    if stated:
        assert stated["type"] == "json_schema"
    inner: dict[str, Any] = stated.get("json_schema", stated)
    return {key: value for key, value in inner.items() if key != "type"}


def instructions_of(request: Request) -> str:
    body = request.body
    if "input" in body:
        return str(body.get("instructions", ""))
    if request.path.endswith("/messages"):
        return str(body.get("system", ""))
    return "\n".join(str(one["content"]) for one in body["messages"] if one["role"] == "system")


def last_user_text(request: Request) -> str:
    """What the newest message of a request says, as any provider has it."""
    message = (request.body.get("input") or request.body["messages"])[-1]
    assert message["role"] == "user"
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


# -- what the model is asked for


@both_shells
@every_provider
@body
async def test_the_request_states_the_schema_and_the_answer_is_read_by_it(face: Face, provider: str) -> None:
    with ModelServer(Reply(OSLO)) as server:
        async with agent_on(face, server, provider, output_type=Weather) as talker:
            stream = talker.stream("How is it in Oslo?")
            assert await stream.get_final_output() == Weather("Oslo", -3.5)
            assert stream.partial_output == json.loads(OSLO)
        (request,) = server.requests
    named = {} if provider == "anthropic" else {"name": "Weather", "strict": True}
    assert format_of(request) == {"schema": SCHEMA, **named}
    assert instructions_of(request) == ""


@both_shells
@every_provider
@body
async def test_in_prompt_mode_the_schema_stands_in_the_instructions(face: Face, provider: str) -> None:
    seen: list[str] = []

    def before(request: ModelRequest) -> None:
        seen.append(request.instructions)

    options: dict[str, Any] = {"output_type": Weather, "output_mode": "prompt", "instructions": "Be brief."}
    with ModelServer(Reply(f"Here it is:\n```json\n{OSLO}\n```")) as server:
        async with agent_on(face, server, provider, before_request=before, **options) as talker:
            assert await talker.stream("Oslo?").get_final_output() == Weather("Oslo", -3.5)
        (request,) = server.requests
    assert format_of(request) == {}
    assert instructions_of(request) == seen[0]
    assert seen[0].startswith("Be brief.\n\n")
    assert json.loads(seen[0].rpartition("\n")[2]) == {
        key: SCHEMA[key] for key in SCHEMA if key != "additionalProperties"
    }


KINDS: dict[str, tuple[Any, str, Any, bool]] = {
    "a list": (list[Weather], f"[{OSLO}]", [Weather("Oslo", -3.5)], True),
    "a number": (int, "5", 5, True),
    "an optional value": (Weather | None, "null", None, True),
    "a union": (Rain | Snow, '{"type": "Snow", "depth": 3}', Snow(3), True),
    "keys that may be missing": (list[Options], "[{}]", [{}], False),
    "a model with a default": (list[Storm], '[{"name": "Ida"}]', [Storm(name="Ida")], False),
    "a tuple": (tuple[int, str], '[1, "a"]', (1, "a"), False),
    "a set": (set[int], "[1, 2]", {1, 2}, False),
    "any keys": (list[dict[str, int]], '[{"a": 1}]', [{"a": 1}], False),
}


@every_provider
@pytest.mark.parametrize("kind", KINDS)
def test_a_root_that_is_no_object_is_asked_for_in_one(kind: str, provider: str) -> None:
    """And unwrapped everywhere; `strict` is true where each key is required. A server that is strict takes the schema."""
    output_type, inner, value, strict = KINDS[kind]

    @body
    async def run(face: Face) -> None:
        with ModelServer(Reply(f'{{"value": {inner}}}')) as server:
            async with agent_on(face, server, provider, output_type=output_type) as talker:
                stream = talker.stream("Go.")
                assert await stream.get_final_output() == value
                assert stream.partial_output == json.loads(inner)
            stated = format_of(server.requests[0])
        assert stated["schema"]["required"] == ["value"]
        assert [*stated["schema"]["properties"]] == ["value"]
        assert stated.get("strict", strict) is strict
        check_objects(stated["schema"])

    run(face=Face())


def check_objects(schema: Any) -> None:
    """Each object with named keys has no others; what strict servers refuse is not there."""
    if isinstance(schema, list):
        for part in schema:
            check_objects(part)
    elif isinstance(schema, dict):
        if "properties" in schema:
            assert schema["additionalProperties"] is False
        assert "oneOf" not in schema and "discriminator" not in schema
        for part in schema.values():
            check_objects(part)


@every_provider
def test_an_object_is_asked_for_as_it_is(provider: str) -> None:
    @body
    async def run(face: Face) -> None:
        with ModelServer(Reply('{"a": 1}')) as server:
            async with agent_on(face, server, provider, output_type=dict[str, int]) as talker:
                assert await talker.stream("Go.").get_final_output() == {"a": 1}
            assert format_of(server.requests[0])["schema"]["additionalProperties"] == {"type": "integer"}

    run(face=Face())


@both_shells
@body
async def test_one_stream_may_have_another_type(face: Face) -> None:
    """The next one has the agent's own again; and one of an agent without a type has one."""
    with ModelServer([Reply('{"name": "Ida"}'), Reply(OSLO)]) as server:
        async with agent_on(face, server, output_type=Weather) as talker:
            assert await talker.stream("Go.", output_type=Storm).get_final_output() == Storm(name="Ida")
            assert await talker.stream("Go on.").get_final_output() == Weather("Oslo", -3.5)
    with ModelServer([Reply(OSLO), Reply("Hello.")]) as server:
        async with agent_on(face, server) as talker:
            assert await talker.stream("Go.", output_type=Weather).get_final_output() == Weather("Oslo", -3.5)
            stream = await talker.say("Go on.")
            with pytest.raises(sk.UsageError, match="output_type"):
                await stream.get_final_output()
        assert format_of(server.requests[1]) == {}


OWN: dict[str, dict[str, Any]] = {
    "openai_responses": {"text": {"verbosity": "low"}},
    "anthropic": {"output_config": {"effort": "low"}},
    "openai_chat": {"temperature": 0},
}


@every_provider
def test_options_of_the_application_stay_beside_it(provider: str) -> None:
    @body
    async def run(face: Face) -> None:
        with ModelServer(Reply(OSLO)) as server:
            async with agent_on(face, server, provider, output_type=Weather, **OWN[provider]) as talker:
                await talker.say("Go.")
            (request,) = server.requests
        assert format_of(request)["schema"] == SCHEMA
        for key, value in OWN[provider].items():
            assert request.body[key] == value or {**request.body[key], **value} == request.body[key]

    run(face=Face())


@both_shells
@body
async def test_a_request_that_goes_to_another_provider_states_the_output_there(face: Face) -> None:
    with ModelServer(Reply(OSLO)) as server:
        async with agent_on(face, server, "anthropic") as other:

            def before(request: ModelRequest) -> None:
                request.client = other.agent.provider.client

            async with agent_on(face, server, "openai_responses", output_type=Weather, before_request=before) as talker:
                assert await talker.stream("Go.").get_final_output() == Weather("Oslo", -3.5)
        assert server.requests[0].body["output_config"]["format"]["schema"] == SCHEMA


@both_shells
@every_provider
@pytest.mark.parametrize("status", [400, 422])
@body
async def test_the_error_of_a_server_that_refuses_names_the_other_mode(face: Face, provider: str, status: int) -> None:
    with ModelServer([Reply(status=status)] * 2) as server:
        async with agent_on(face, server, provider, output_type=Weather) as talker:
            with pytest.raises(sk.SourceError, match='output_mode="prompt"') as raised:
                await talker.say("Go.")
    error = raised.value
    assert (error.status_code, type(error.__cause__).__module__.partition(".")[0]) == (
        status,
        provider.partition("_")[0],
    )


@both_shells
@body
async def test_other_errors_do_not(face: Face) -> None:
    for options, status in (({"output_type": Weather}, 401), ({"output_type": Weather, "output_mode": "prompt"}, 400)):
        with ModelServer([Reply(status=status)] * 2) as server:
            async with agent_on(face, server, **options) as talker:  # type: ignore[arg-type]
                with pytest.raises(sk.SourceError) as raised:
                    await talker.say("Go.")
        assert "output_mode" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"output_type": object}, "output_type"),
        ({"output_type": 5}, "output_type"),
        ({"output_type": Weather, "output_mode": "tool"}, "'native' or 'prompt'"),
        ({"output_retries": -1}, "output_retries"),
        ({"output_retries": "one"}, "output_retries"),
        ({"output_typ": Weather}, "output_type"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_when_the_agent_is_made(options: dict[str, Any], match: str) -> None:
    import openai

    for kind, client in ((sk.Agent, openai.OpenAI), (sk.AsyncAgent, openai.AsyncOpenAI)):
        with pytest.raises(sk.UsageError, match=match):
            kind(client(api_key="none"), model="m", **options)


# -- which answer


@both_shells
@every_provider
@body
async def test_the_output_is_that_of_the_answer_after_the_tools(face: Face, provider: str) -> None:
    """What the model said before it called one is not read; nor is it asked for anything again."""
    replies = [Reply('{"city": "no"}', ToolCall("look", {"city": "Oslo"})), Reply(OSLO)]
    with ModelServer(replies) as server:
        async with agent_on(face, server, provider, tools=[look], output_type=Weather) as talker:
            assert await talker.stream("Go.").get_final_output() == Weather("Oslo", -3.5)
        assert len(server.requests) == 2


# -- asking again


@both_shells
@every_provider
@body
async def test_a_model_whose_answer_is_no_output_is_asked_once_more(face: Face, provider: str) -> None:
    """By a message in the conversation, which is not on the stream, in a new step; the handlers are warned."""
    told = face.told()
    with ModelServer([Reply('{"city": "Oslo"}'), Reply(OSLO)]) as server:
        async with agent_on(face, server, provider, output_type=Weather) as talker:
            stream = talker.stream("Go.", told)
            assert await stream.get_final_output() == Weather("Oslo", -3.5)
            conversation = talker.messages
        first, second = server.requests
    assert "degrees" in last_user_text(second)
    assert format_of(first) == format_of(second)
    assert [message.role for message in conversation] == ["user", "assistant", "user", "assistant"]
    assert conversation[2].metadata == {"output_retry": True}
    assert [message.role for message in stream.messages] == ["assistant", "assistant"]
    assert [warning.code for warning in told.of("on_warning")] == ["output-invalid"]
    assert len(told.of("on_run_step_created")) == 2
    assert len(told.of("on_run_created")) == 1
    assert (stream.status, stream.partial_output) == ("completed", json.loads(OSLO))
    told.check_brackets()


NO_JSON, WRONG = "It is cold.", '{"city": 5}'


@pytest.mark.parametrize(
    ("replies", "retries", "asked", "reason"),
    [
        ([WRONG, WRONG], 1, 2, "invalid"),
        ([NO_JSON, NO_JSON], 1, 2, "missing"),
        ([NO_JSON, WRONG, WRONG], 2, 3, "invalid"),
        ([WRONG, NO_JSON, OSLO], 2, 3, None),
        ([WRONG], 0, 1, "invalid"),
        ([OSLO], 3, 1, None),
    ],
    ids=str,
)
def test_it_is_asked_again_as_often_as_it_may_be(
    replies: list[str], retries: int, asked: int, reason: str | None
) -> None:
    @body
    async def run(face: Face) -> None:
        with ModelServer([*map(Reply, replies)]) as server:
            async with agent_on(face, server, output_type=Weather, output_retries=retries) as talker:
                stream = await talker.say("Go.")
                assert stream.status == "completed"
                if reason is None:
                    assert await stream.get_final_output() == Weather("Oslo", -3.5)
                else:
                    with pytest.raises(sk.OutputError) as raised:
                        await stream.get_final_output()
                    assert raised.value.reason == reason
            assert len(server.requests) == asked

    run(face=Face())


def test_the_count_is_that_of_a_run() -> None:
    @body
    async def run(face: Face) -> None:
        with ModelServer([Reply(one) for one in (WRONG, OSLO, WRONG, OSLO)]) as server:
            async with agent_on(face, server, output_type=Weather) as talker:
                for _ in range(2):
                    assert await talker.stream("Go.").get_final_output() == Weather("Oslo", -3.5)

    run(face=Face())


ENDS: dict[str, tuple[Reply, str]] = {
    "incomplete": (Reply('{"city": "Os', finish_reason="length"), "incomplete"),
    "filtered": (Reply("I", finish_reason="content_filter"), "incomplete"),
    "a call of the application's": (Reply(ToolCall("ask", {})), "requires_action"),
}


@both_shells
@pytest.mark.parametrize("kind", ENDS)
@body
async def test_nothing_is_asked_again_where_the_model_gave_no_whole_answer(face: Face, kind: str) -> None:
    reply, reason = ENDS[kind]
    with ModelServer([reply]) as server:
        async with agent_on(
            face, server, tools=[{"name": "ask", "parameters": {"type": "object"}}], output_type=Weather
        ) as talker:
            stream = await talker.say("Go.")
            with pytest.raises(sk.OutputError) as raised:
                await stream.get_final_output()
        assert (raised.value.reason, len(server.requests)) == (reason, 1)


@both_shells
@body
async def test_a_refusal_is_not_asked_again(face: Face) -> None:
    """As Chat Completions streams one."""
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    deltas = [{"role": "assistant", "refusal": "I cannot"}, {"refusal": " help."}]
    chunks = [{**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    sse = "".join(f"data: {json.dumps(one)}\n\n" for one in chunks) + "data: [DONE]\n\n"
    with ModelServer(Reply(raw=sse.encode())) as server:
        async with agent_on(face, server, output_type=Weather) as talker:
            stream = await talker.say("Go.")
            with pytest.raises(sk.OutputError, match="I cannot help") as raised:
                await stream.get_final_output()
        assert (raised.value.reason, raised.value.text, len(server.requests)) == ("refused", "I cannot help.", 1)


def test_asking_again_counts_for_the_steps_of_the_run() -> None:
    """Where none is left the answer stands, and the run has ended as it did."""

    @body
    async def run(face: Face) -> None:
        with ModelServer([Reply(ToolCall("look", {"city": "Oslo"})), Reply(WRONG)]) as server:
            async with agent_on(face, server, tools=[look], output_type=Weather, max_steps=2) as talker:
                stream = await talker.say("Go.")
                with pytest.raises(sk.OutputError) as raised:
                    await stream.get_final_output()
            assert (stream.status, raised.value.reason, len(server.requests)) == ("completed", "invalid", 2)

    run(face=Face())


def test_undo_takes_an_input_out_with_all_that_was_asked_again() -> None:
    """Also of a conversation that was loaded."""

    @body
    async def run(face: Face) -> None:
        with ModelServer([Reply(WRONG), Reply(OSLO)]) as server:
            async with agent_on(face, server, output_type=Weather) as talker:
                await talker.say("Go.")
                talker.agent.messages = [sk.Message.from_dict(message.to_dict()) for message in talker.messages]
                assert len(talker.agent.undo()) == 4
                assert talker.messages == []

    run(face=Face())


@both_shells
@body
async def test_elements_of_a_list_arrive_one_by_one(face: Face) -> None:
    text = json.dumps({"value": [{"name": name} for name in "abc"]})
    got: list[str] = []
    with ModelServer(Reply(text)) as server:
        async with agent_on(face, server, output_type=list[Storm]) as talker, talker.stream("Go.") as stream:
            async for storm in stream.output_items():
                got.append(storm.name)
    assert got == ["a", "b", "c"]
