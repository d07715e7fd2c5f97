"""An agent as a tool of another one, over real clients and every API."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest

import streamkit as sk
from streamkit.agent import ToolContext, tool
from streamkit.relay import MemoryRelay
from streamkit.testing import ModelServer, Refusal, Reply, Request, Text, ToolCall

from ..faces import FACES, Face, async_faces, body, both_shells, every_face, every_pair
from .parts import Approving, Talker, ToyComputer, agent_on, code, every_provider, outputs_of

clients = contextlib.ExitStack()


@pytest.fixture(autouse=True)
def _clients_are_closed() -> Iterator[None]:
    with clients:
        yield


def client_of(server: ModelServer) -> openai.OpenAI:
    """A real client, which is closed after the test."""
    return clients.enter_context(openai.OpenAI(base_url=server.url, api_key="any", max_retries=0))


ANSWER = "It is a star."


def search(q: str) -> str:
    """Search."""
    return f"{q}: a star"


def ask_inner(*inputs: str) -> Reply:
    """The outer model asks the inner agent."""
    return Reply(Text("Let me ask."), *(ToolCall("research", {"input": input}) for input in inputs))


SEARCHES = Reply(Text("Look."), ToolCall("search", {"q": "sun"}))
SCRIPT = [ask_inner("sun?"), SEARCHES, Reply(ANSWER), Reply("A star!")]


class Team:
    """An outer agent, and the inner one that is its tool."""

    def __init__(self, outer: Talker, inner: Talker) -> None:
        self.outer, self.inner = outer, inner


@asynccontextmanager
async def team(
    face: Face, server: ModelServer, provider: str = "openai_chat", *, as_tool: Any = None,
    outer: dict[str, Any] | None = None, **inner: Any,
) -> AsyncIterator[Team]:  # fmt: skip
    async with agent_on(face, server, provider, **{"name": "research", "tools": [search], **inner}) as one:
        options = {"tools": [one.agent.as_tool(description="Looks it up.", **(as_tool or {}))]}
        if outer:
            options = {**outer, "tools": [*options["tools"], *outer.get("tools", ())]}
        async with agent_on(face, server, provider, **options) as other:
            yield Team(other, one)


def shown(messages: Any) -> list[tuple[str, str, str | None]]:
    return [(message.type, message.content, message.parent_id) for message in messages]


def without_run(messages: Any) -> list[Any]:
    return [{key: value for key, value in m.to_dict().items() if key != "run_id"} for m in messages]


# -- 1: the tool


@both_shells
@every_provider
@body
async def test_the_output_of_the_call_is_the_inner_answer(face: Face, provider: str) -> None:
    with ModelServer(SCRIPT) as server:
        async with team(face, server, provider) as both:
            stream = await both.outer.say("What is the sun?")
            assert await stream.get_final_text() == "A star!"
        assert list(outputs_of(server.requests[3]).values()) == [ANSWER]
        assert "sun?" in str(server.requests[1].body)
        assert "What is the sun?" not in str(server.requests[1].body)
    assert both.inner.messages == []


@dataclass
class Fact:
    subject: str
    score: float


@both_shells
@body
async def test_a_typed_output_is_json(face: Face) -> None:
    """What is no such output is the call's failure, as any inner error."""
    script = [ask_inner("x"), Reply('{"subject": "sun",\n "score": 1}'), Reply("A star!")]
    with ModelServer(script) as server:
        async with team(face, server, output_type=Fact) as both:
            await both.outer.say("Go.")
        assert [*outputs_of(server.requests[2]).values()] == ['{"subject":"sun","score":1.0}']
    with ModelServer([ask_inner("x"), Reply("No."), Reply("A star!")]) as server:
        async with team(face, server, output_type=Fact, output_retries=0) as both:
            await both.outer.say("Go.")
        assert next(iter(outputs_of(server.requests[2]).values())).startswith("Error: OutputError: ")


@both_shells
@body
async def test_each_call_begins_with_an_empty_conversation(face: Face) -> None:
    script = [ask_inner("sun?"), Reply("One."), ask_inner("moon?"), Reply("Two."), Reply("Done.")]
    with ModelServer(script) as server:
        async with team(face, server, messages=[{"role": "user", "content": "before"}]) as both:
            await both.outer.say("Go.")
        assert [m["content"] for m in server.requests[3].body["messages"]] == ["moon?"]


@both_shells
@body
async def test_no_group_of_an_inner_agent_is_one_of_the_outer_one(face: Face) -> None:
    """Its provider may number the messages of each conversation anew."""
    with ModelServer(SCRIPT) as server:
        async with team(face, server, "openai_responses") as both:
            stream = await both.outer.say("Go.")
    groups = {message.group for message in stream.messages if message.parent_id and message.group}
    assert groups and all("/" in group for group in groups)


def test_a_tool_of_an_agent_has_its_name_and_schema() -> None:
    client = openai.OpenAI(api_key="any")
    named = sk.Agent(client, model="m", name="research").as_tool(description="Looks it up.")
    assert (named.name, named.description) == ("research", "Looks it up.")
    assert named.parameters["properties"].keys() == {"input"}
    assert named.parameters["required"] == ["input"]
    assert sk.Agent(client, model="m", name="research").as_tool("other").name == "other"
    with pytest.raises(sk.UsageError, match="needs a name"):
        sk.Agent(client, model="m").as_tool()


@both_shells
@body
async def test_the_inner_agent_has_its_own_handlers_and_the_outer_deps(face: Face) -> None:
    seen: list[Any] = []

    class Noting(sk.EventHandler):
        def on_text_done(self, message: sk.TextMessage) -> None:
            seen.append((message.id, message.content))

    def search(q: str, context: ToolContext[str]) -> str:
        """Search."""
        return context.deps

    with ModelServer(SCRIPT) as server:
        async with team(face, server, tools=[search], handlers=[Noting()]) as both:
            stream = await both.outer.say("Go.", deps="the library")
    assert [content for _, content in seen] == ["Look.", ANSWER]
    assert not any("/" in id for id, _ in seen)
    assert "the library" in [message.content for message in stream.messages]


@both_shells
@body
async def test_an_inner_limit_is_the_inner_agents_own(face: Face) -> None:
    """`max_steps` of the outer run does not count inner steps; what the inner one had is its output, with how it ended."""
    with ModelServer([ask_inner("sun?"), SEARCHES, Reply("A star!")]) as server:
        async with team(face, server, max_steps=1, outer={"max_steps": 2}) as both:
            stream = await both.outer.say("Go.")
        assert list(outputs_of(server.requests[2]).values()) == ["Look.\n(it was cut short: max_steps)"]
    assert stream.status == "completed"


@every_provider
def test_an_inner_refusal_is_in_the_output(provider: str) -> None:
    """The outer model reads that there is no answer, and why."""
    face = FACES["sync"]
    refuses = Reply(Refusal("I will not."))

    async def ask() -> None:
        with ModelServer([ask_inner("sun?"), refuses, Reply("A star!")]) as server:
            async with team(face, server, provider) as both:
                await both.outer.say("Go.")
            [output] = outputs_of(server.requests[2]).values()
        assert "(it refused to answer" in output
        assert "I will not." in output

    face.run(ask)


def test_an_agent_itself_is_no_tool() -> None:
    with ModelServer(Reply("any")) as server:
        agent = sk.Agent(client_of(server), model="m")
        with pytest.raises(sk.UsageError, match=r"an agent becomes one with `as_tool\(\)`"):
            sk.Agent(client_of(server), model="m", tools=[agent])  # type: ignore[list-item]


def test_agents_nest_eight_deep() -> None:
    """An agent that asks itself comes to an end."""

    def reply(request: Request) -> Reply:
        if outputs_of(request):
            return Reply(f"<{next(iter(outputs_of(request).values()))}>")
        return Reply(ToolCall("again", {"input": "x"}))

    with ModelServer(reply) as server:
        agent = sk.Agent(client_of(server), model="m", name="again")
        agent.add_tool(agent.as_tool())
        stream = agent.stream("Go.")
        text = stream.get_final_text()
    assert text == f"{'<' * 9}Error: agents are nested at most 8 deep{'>' * 9}"
    assert max((m.parent_id or "").count("/") + 1 for m in stream.messages) == 8


# -- 2 and 3: the outer stream


@both_shells
@every_provider
@body
async def test_inner_messages_stand_between_the_call_and_its_output(face: Face, provider: str) -> None:
    with ModelServer(SCRIPT) as server:
        async with team(face, server, provider) as both:
            handler = face.told()
            stream = both.outer.stream("Go.", handler)
            events = [event async for event in stream]
    call = next(message for message in stream.messages if message.name == "research")
    parent = call.call_id
    assert shown(stream.messages) == [
        ("message", "Let me ask.", None),
        ("tool_call", call.content, None),
        ("message", "Look.", parent),
        ("tool_call", stream.messages[3].content, parent),
        ("tool_output", "sun: a star", parent),
        ("message", ANSWER, parent),
        ("tool_output", ANSWER, None),
        ("message", "A star!", None),
    ]
    inner = [message for message in stream.messages if message.parent_id]
    assert all(message.id.startswith(f"{parent}/") for message in inner)
    assert all(message.call_id is None or message.call_id.startswith(f"{parent}/") for message in inner)
    done = [event.message.id for event in events if isinstance(event, sk.events.Done)]
    assert done.index(call.id) < done.index(inner[0].id) < done.index(inner[-1].id) < done.index(stream.messages[6].id)
    handler.check_brackets()
    assert [event.type for event in events].count("run_created") == 1
    assert [event.type for event in events].count("run_step_created") == 2
    assert {message.step_id for message in inner} == {call.step_id}


@both_shells
@body
async def test_the_outer_answer_alone_is_text_and_request(face: Face) -> None:
    with ModelServer(SCRIPT) as server:
        async with team(face, server) as both:
            stream = both.outer.stream("Go.")
            assert "".join([piece async for piece in stream.text_deltas]) == "Let me ask.\n\nA star!"
            assert stream.tool_outputs == ()
        outer = server.requests[3].body["messages"]
        assert [message["role"] for message in outer] == ["user", "assistant", "tool"]
        assert len(outer[1]["tool_calls"]) == 1


@both_shells
@body
async def test_an_inner_warning_is_on_the_outer_stream(face: Face) -> None:
    """A failing inner tool is the inner model's to read, and the outer handlers are warned."""

    def search(q: str) -> str:
        """Search."""
        raise LookupError("no library")

    with ModelServer(SCRIPT) as server:
        async with team(face, server, tools=[search]) as both:
            stream = await both.outer.say("Go.")
    assert [warning.fault for warning in stream.warnings] == ["tool search: LookupError: no library"]


@pytest.mark.parametrize("way", ["recorded", "relayed", "another stream", "chunks"])
def test_the_same_events_come_again(way: str, tmp_path: Path) -> None:
    """Law 6: recordings, relays, chained streams and canonical chunks have all of it."""
    first, second = FACES["sync"].told(), FACES["sync"].told()
    path = tmp_path / "run.jsonl"
    with ModelServer(SCRIPT) as server:
        client = client_of(server)
        inner = sk.Agent(client, model="m", name="research", tools=[search])
        outer = sk.Agent(client, model="m", tools=[inner.as_tool()])
        stream = outer.stream("Go.", first, sk.Recorder(path))
        match way:
            case "recorded":
                stream.until_done()
                again = sk.stream(path, second)
            case "another stream":
                again = sk.stream(stream, second)
            case "chunks":
                again = sk.stream([*stream.chunks("streamkit")], second, protocol="streamkit")
            case _:
                relay = MemoryRelay()
                with sk.Emitter(relay, "run-1") as emitter:
                    for event in stream:
                        if event.type not in ("run_created", "run_done", "stream_end"):
                            emitter.emit(event)
                again = sk.stream(relay.reader("run-1"), second)
        again.until_done()
    assert without_run(again.get_final_messages()) == without_run(stream.messages)
    assert again.usage.total_tokens == stream.usage.total_tokens
    assert again.get_final_text() == "A star!"
    if way != "relayed":
        assert second.hooks == first.hooks


@async_faces
@body
async def test_inner_runs_beside_each_other_are_kept_apart(face: Face) -> None:
    """Their messages and calls have the same ids, and they are on the stream at once."""
    together = threading.Barrier(2, timeout=20)

    def wait(q: str) -> str:
        """Search."""
        together.wait()
        return f"{q}: found"

    def reply(request: Request) -> Reply:
        messages = request.body["messages"]
        if messages[0]["content"] == "Go.":
            return Reply("Both.") if outputs_of(request) else ask_inner("sun", "moon")
        outputs = outputs_of(request)
        return (
            Reply(*outputs.values())
            if outputs
            else Reply(ToolCall("search", {"q": messages[0]["content"]}, call_id="same"))
        )

    with ModelServer(reply) as server:
        tools = [tool(name="search")(wait)]
        async with team(face, server, tools=tools) as both:
            stream = await both.outer.say("Go.")
        outputs = outputs_of(server.requests[-1])
    assert sorted(outputs.values()) == ["moon: found", "sun: found"]
    for call_id, output in outputs.items():
        inside = [message for message in stream.messages if message.parent_id == call_id]
        assert [message.type for message in inside] == ["tool_call", "tool_output", "message"]
        assert inside[1].content == inside[2].content == output
        assert inside[0].call_id == inside[1].call_id == f"{call_id}/same"
        kept = [message for message in both.outer.messages if message.parent_id == call_id]
        assert shown(kept) == shown(inside)


@pytest.mark.parametrize("runs", [1, 2])
def test_servers_that_give_each_call_the_same_id_get_a_new_inner_run_each(runs: int) -> None:
    """Its messages stand between the call and its output."""
    asks = [Reply(ToolCall("research", {"input": input}, call_id="call_0")) for input in ("one", "two")]
    between = [] if runs == 1 else [Reply("Done.")]
    script = [asks[0], Reply("first"), *between, asks[1], Reply("second"), Reply("Done.")]
    with ModelServer(script) as server:
        client = client_of(server)
        agent = sk.Agent(client, model="m", tools=[sk.Agent(client, model="m", name="research").as_tool()])
        for _ in range(runs):
            agent.stream("Go.").until_done()
        assert [message["content"] for message in server.requests[3 + len(between)].body["messages"]] == ["two"]
    inside = [(message.type, message.content) for message in agent.messages if message.type != "tool_call"]
    texts = ["first", "second"]
    expected = [pair for text in texts for pair in (("message", text), ("tool_output", text))]
    assert [one for one in inside if one[1] in texts] == expected


@both_shells
@body
async def test_three_levels_nest(face: Face) -> None:
    script = [
        Reply(ToolCall("middle", {"input": "a"}, call_id="x")),
        Reply(ToolCall("research", {"input": "b"}, call_id="x")),
        Reply(ToolCall("search", {"q": "sun"}, call_id="x")),
        *map(Reply, ("inner", "mid", "outer")),
    ]
    with ModelServer(script) as server:
        async with (
            agent_on(face, server, name="research", tools=[search]) as inner,
            agent_on(face, server, name="middle", tools=[inner.agent.as_tool()]) as middle,
            agent_on(face, server, tools=[middle.agent.as_tool()]) as outer,
        ):
            stream = await outer.say("Go.")
    assert [(m.type, m.call_id, m.parent_id) for m in stream.messages] == [
        ("tool_call", "x", None),
        ("tool_call", "x/x", "x"),
        ("tool_call", "x/x/x", "x/x"),
        ("tool_output", "x/x/x", "x/x"),
        ("message", None, "x/x"),
        ("tool_output", "x/x", "x"),
        ("message", None, "x"),
        ("tool_output", "x", None),
        ("message", None, None),
    ]
    assert [m.content for m in stream.messages][-5:] == ["inner", "inner", "mid", "mid", "outer"]
    assert shown(outer.messages[1:]) == shown(stream.messages)
    assert len({message.id for message in stream.messages}) == 9


@both_shells
@body
async def test_an_inner_tool_may_have_the_name_of_an_outer_one(face: Face) -> None:
    ran: list[str] = []

    def outside(q: str) -> str:
        """Search."""
        ran.append(f"outside {q}")
        return "out"

    with ModelServer(SCRIPT) as server:
        async with team(face, server, outer={"tools": [tool(name="search")(outside)]}) as both:
            stream = await both.outer.say("Go.")
    assert ran == []
    assert stream.status == "completed"
    assert not stream.pending


# -- 4: questions

ASKS = [ask_inner("sun?"), Reply(code("say hot")), Reply(ANSWER), Reply("A star!")]


@every_pair
@both_shells
@every_provider
@pytest.mark.parametrize("deferred", [False, True], ids=["in the hook", "deferred"])
@body
async def test_an_inner_question_is_answered_on_the_outer_stream(face: Face, provider: str, deferred: bool) -> None:
    asked: list[sk.Confirmation] = []

    class Answering(sk.EventHandler):
        def on_confirmation(self, confirmation: sk.Confirmation) -> None:
            asked.append(confirmation)
            if deferred:
                confirmation.defer(20)
                threading.Thread(target=lambda: self.stream.pending[confirmation.id].approve("say warm")).start()
            else:
                confirmation.approve("say warm")

    computer = ToyComputer()
    with ModelServer(ASKS) as server:
        async with team(face, server, provider, computer=computer) as both:
            stream = await both.outer.say("Go.", Answering())
    assert computer.ran == ["say warm"]
    (question,) = asked
    assert question.status == "approved"
    parent = question.subject.parent_id
    assert parent is not None
    assert question.id.startswith(f"{parent}/")
    assert [m.content for m in stream.messages if m.type == "console"] == ["warm\n"]
    assert stream.status == "completed"


@both_shells
@body
async def test_an_inner_handler_answers_before_the_outer_ones(face: Face) -> None:
    """Theirs count for nothing, and are no errors."""
    outcomes: list[str] = []

    class Late(sk.EventHandler):
        def on_confirmation(self, confirmation: sk.Confirmation) -> None:
            assert not confirmation.waiting
            confirmation.decline("too late")

        def on_confirmation_done(self, confirmation: sk.Confirmation) -> None:
            outcomes.append(confirmation.status)

    computer = ToyComputer()
    with ModelServer(ASKS) as server:
        async with team(face, server, computer=computer, handlers=[Approving()]) as both:
            stream = await both.outer.say("Go.", Late())
    assert (computer.ran, outcomes, stream.status) == (["say hot"], ["approved"], "completed")


@both_shells
@body
async def test_the_inner_model_reads_why_it_was_declined(face: Face) -> None:
    class Declining(sk.EventHandler):
        def on_confirmation(self, confirmation: sk.Confirmation) -> None:
            confirmation.decline("too hot")

    computer = ToyComputer()
    with ModelServer(ASKS) as server:
        async with team(face, server, computer=computer) as both:
            stream = await both.outer.say("Go.", Declining())
        assert ["too hot" in str(request.body) for request in server.requests] == [False, False, True, False]
    assert (computer.ran, stream.status) == ([], "completed")


@both_shells
@body
async def test_declined_without_a_reason_ends_the_inner_run_alone(face: Face) -> None:
    class Declining(sk.EventHandler):
        def on_confirmation(self, confirmation: sk.Confirmation) -> None:
            confirmation.decline()

    computer = ToyComputer()
    with ModelServer([ASKS[0], Reply(Text("Hm."), *ASKS[1].parts), ASKS[3]]) as server:
        async with team(face, server, computer=computer) as both:
            stream = await both.outer.say("Go.", Declining())
        output = next(iter(outputs_of(server.requests[2]).values()))
    assert output == "Hm.\n(the user declined what it wanted to do, so it stopped)"
    assert (computer.ran, stream.status, stream.current_run.finish_reason) == ([], "completed", "stop")


@every_pair
@both_shells
@every_provider
@pytest.mark.parametrize("process", ["this one", "another one"])
@body
async def test_an_unanswered_inner_question_is_asked_again(
    face: Face, provider: str, process: str, tmp_path: Path
) -> None:
    """The call stays open; the next stream takes the inner conversation up, and runs nothing twice."""
    ran: list[str] = []

    def search(q: str) -> str:
        """Search."""
        ran.append(q)
        return "found"

    script = [
        ask_inner("sun?"),
        Reply(Text("Look."), ToolCall("search", {"q": "sun"})),
        Reply(code("say hot")),
        Reply(ANSWER),
        Reply("A star!"),
    ]
    computer, path, questions = ToyComputer(), tmp_path / "conversation.json", []

    class Noting(sk.EventHandler):
        def on_confirmation(self, confirmation: sk.Confirmation) -> None:
            questions.append(confirmation.id)

        def on_run_requires_action(self, run: sk.Run) -> None:
            both.outer.agent.save(path)

    with ModelServer(script) as server:
        async with team(face, server, provider, tools=[search], computer=computer, as_tool={"confirm": True}) as both:
            first = await both.outer.say("Go.", Asked(Noting()), Noting())
            assert (first.status, first.current_run.status) == ("requires_action", "requires_action")
            inner = [question for question in questions if "/" in question]
            assert [*both.outer.agent.pending] == inner
            assert both.outer.agent.pending[inner[0]].subject.content == "say hot"
            if process == "another one":
                both.outer.agent.load(path)
            again = await both.outer.say(Approving(), Noting())
        assert again.status == "completed"
        assert await again.get_final_text() == "A star!"
        assert list(outputs_of(server.requests[4]).values()) == [ANSWER]
        request = server.requests[3]
        assert [*outputs_of(request).values()] == ["found", "hot\n"]
        assert len(server.requests) == 5
    assert [question for question in questions if "/" in question] == inner * 2
    assert (ran, computer.ran) == (["sun"], ["say hot"])
    calls = [message for message in both.outer.messages if message.type == "tool_call" and message.parent_id is None]
    assert [message.metadata.get("action") for message in calls] == [None]
    inside = [(message.type, message.content) for message in both.outer.messages if message.parent_id]
    code_call = inside[3][1]
    assert inside == [
        ("message", "Look."),
        ("tool_call", inside[1][1]),
        ("tool_output", "found"),
        ("tool_call", code_call),
        ("code", "say hot"),
        ("console", "hot\n"),
        ("message", ANSWER),
    ]


@both_shells
@pytest.mark.parametrize("answer", ["deferred", "declined", "declined with a reason", "left again"])
@body
async def test_a_question_that_is_taken_up_takes_any_answer(face: Face, answer: str, tmp_path: Path) -> None:
    """In an agent that has the conversation from a file alone, as another process has it."""

    class Deciding(sk.EventHandler):
        def on_confirmation(self, confirmation: sk.Confirmation) -> None:
            match answer:
                case "deferred":
                    confirmation.defer(20)
                    threading.Thread(target=self.stream.pending[confirmation.id].approve).start()
                case "declined":
                    confirmation.decline()
                case "declined with a reason":
                    confirmation.decline("too hot")
                case _:
                    pass

    computer, path = ToyComputer(), tmp_path / "conversation.json"
    with ModelServer(ASKS[:2]) as server:
        async with team(face, server, computer=computer) as both:
            await both.outer.say("Go.")
            both.outer.agent.save(path)
    script = [ASKS[3]] if answer == "declined" else ASKS[2:]
    with ModelServer(script) as server:
        async with team(face, server, computer=computer) as both:
            both.outer.agent.load(path)
            stream = await both.outer.say(Deciding())
            bodies = [str(request.body) for request in server.requests]
            outputs = [m.content for m in stream.messages if m.type == "tool_output" and m.parent_id is None]
    assert computer.ran == (["say hot"] if answer == "deferred" else [])
    if answer == "left again":
        assert (stream.status, bodies) == ("requires_action", [])
        return
    assert stream.status == "completed"
    assert ("too hot" in bodies[0]) is (answer == "declined with a reason")
    declined = "(the user declined what it wanted to do, so it stopped)"
    assert outputs == [declined if answer == "declined" else ANSWER]


@both_shells
@pytest.mark.parametrize("way", ["in the hook", "deferred", "left", "by the middle agent"])
@body
async def test_a_question_is_forwarded_through_every_level(face: Face, way: str, tmp_path: Path) -> None:
    """It waits until the handlers of all streams around it were called. Left alone, it is asked again in another process."""
    asked: list[str] = []

    class Answering(sk.EventHandler):
        def on_confirmation(self, confirmation: sk.Confirmation) -> None:
            asked.append(confirmation.id)
            if way == "deferred":
                confirmation.defer(20)
                threading.Thread(target=self.stream.pending[confirmation.id].approve).start()
            elif way == "in the hook":
                confirmation.approve()

    class Deferring(sk.EventHandler):
        def on_confirmation(self, confirmation: sk.Confirmation) -> None:
            confirmation.defer(20)
            threading.Thread(target=confirmation.approve).start()

    script = [
        Reply(ToolCall("middle", {"input": "a"}, call_id="x")),
        Reply(ToolCall("research", {"input": "b"}, call_id="x")),
        Reply(code("say hot", call_id="x")),
        *map(Reply, ("inner", "mid", "outer")),
    ]
    computer, path = ToyComputer(), tmp_path / "conversation.json"
    handlers = [Deferring()] if way == "by the middle agent" else []
    with ModelServer(script) as server:
        async with (
            agent_on(face, server, name="research", computer=computer) as inner,
            agent_on(face, server, name="middle", tools=[inner.agent.as_tool()], handlers=handlers) as middle,
            agent_on(face, server, tools=[middle.agent.as_tool()]) as outer,
        ):
            stream = await outer.say("Go.", Answering())
            if way == "left":
                assert (stream.status, asked) == ("requires_action", ["x/x/confirmation-x"])
                outer.agent.save(path)
                outer.agent.load(path)
                stream = await outer.say(Approving())
            assert stream.status == "completed"
            assert await stream.get_final_text() == "outer"
    assert computer.ran == ["say hot"]
    assert asked == ["x/x/confirmation-x"]


class Asked(sk.EventHandler):
    """Approves the outer call, and leaves inner questions alone."""

    def __init__(self, _: object = None) -> None:
        pass

    def on_confirmation(self, confirmation: sk.Confirmation) -> None:
        if confirmation.subject.parent_id is None:
            confirmation.approve()


@every_face
@body
async def test_a_conversation_that_goes_on_without_it_says_that_it_was_interrupted(face: Face) -> None:
    with ModelServer([ASKS[0], ASKS[1], Reply("Fine.")]) as server:
        async with team(face, server, computer=ToyComputer()) as both:
            await both.outer.say("Go.")
            await both.outer.say("Never mind.")
        (output,) = outputs_of(server.requests[2]).values()
    assert output.startswith("It was interrupted before it finished, and may have had effects.")


@both_shells
@body
async def test_an_inner_application_tool_is_answered_on_the_outer_stream(face: Face) -> None:
    schema = {"name": "ask_user", "parameters": {"type": "object", "properties": {}}}

    class Answering(sk.EventHandler):
        def on_tool_call_done(self, call: sk.ToolCallMessage) -> None:
            if call.waiting:
                call.respond("blue")

    with ModelServer([ask_inner("x"), Reply(ToolCall("ask_user")), Reply(ANSWER), Reply("Ok.")]) as server:
        async with team(face, server, tools=[schema]) as both:
            stream = await both.outer.say("Go.", Answering())
        assert [*outputs_of(server.requests[2]).values()] == ["blue"]
    assert stream.status == "completed"
    assert not stream.pending


# -- 5: stopping and failing


@every_face
@pytest.mark.parametrize("how", ["cancel", "close"])
@body
async def test_a_stopped_stream_stops_the_inner_run(face: Face, how: str) -> None:
    """Its request is closed; the messages that were open are cancelled."""
    slow = Reply(Text("A long story. " * 200), delay=0.05)
    with ModelServer([ask_inner("x"), slow]) as server:
        async with team(face, server) as both:
            stream = both.outer.stream("Go.")
            async for event in stream:
                if isinstance(event, sk.events.TextDelta) and event.snapshot.parent_id:
                    if how == "cancel":
                        stream.cancel()
                        continue
                    break
            await stream.close()
        assert await face.in_thread(lambda: server.wait_for_disconnect(10))
    assert stream.status == "cancelled"
    assert all(message.status != "in_progress" for message in stream.messages)
    outputs = [message for message in both.outer.messages if message.type == "tool_output"]
    assert [output.content.split(",")[0] for output in outputs] == ["It was interrupted before it finished"]


@every_face
@body
async def test_inner_code_has_ended_when_close_returns(face: Face) -> None:
    computer = ToyComputer()
    with ModelServer([ask_inner("x"), Reply(code("hang"))]) as server:
        async with team(face, server, computer=computer, auto_run=True) as both:
            stream = both.outer.stream("Go.")
            async for _ in stream:
                if computer.runs:
                    break
            await face.in_thread(lambda: computer.hanging.wait(10))
            await stream.close()
            assert computer.runs[0].ended.is_set()
    assert stream.status == "cancelled"


@pytest.mark.parametrize(
    ("face", "how", "first", "step"),
    [
        ("sync", "cancel", 1, 3),
        ("asyncio", "cancel", 2, 3),
        ("trio", "cancel", 3, 3),
        ("asyncio", "close", 1, 3),
        ("trio", "close", 2, 3),
        ("sync", "close", 3, 3),
    ],
)
def test_stopping_at_any_event_leaves_a_sound_stream(face: str, how: str, first: int, step: int) -> None:
    """At each event by `cancel` and by `close`: the faces take turns."""
    FACES[face].run(lambda: stop_at_each(FACES[face], how, first, step))


async def stop_at_each(face: Face, how: str, number: int, step: int) -> None:
    number, over = number - step, False
    while not over:
        number += step
        with ModelServer(ASKS) as server:
            async with team(face, server, computer=ToyComputer()) as both:
                handler = face.told()
                stream = both.outer.stream("Go.", handler, Approving())
                count = 0
                async for _ in stream:
                    count += 1
                    if count == number and how == "cancel":
                        stream.cancel()
                    elif count == number:
                        await stream.close()
                        break
                over = count < number
                handler.check_brackets()
                assert stream.status == ("completed" if over else "cancelled") or count == number
                assert all(message.status != "in_progress" for message in stream.messages)
                sk.to_input(both.outer.messages, "openai_chat")


@every_face
@body
async def test_a_timeout_stops_the_inner_run_and_is_the_output(face: Face) -> None:
    slow = Reply("Never.", first_delay=30)
    with ModelServer([ask_inner("x"), slow, Reply("Too slow.")]) as server:
        async with team(face, server, as_tool={"timeout": 0.3}) as both:
            stream = await both.outer.say("Go.")
        assert await face.in_thread(lambda: server.wait_for_disconnect(10))
        (output,) = outputs_of(server.requests[2]).values()
    assert output == "Error: the tool took longer than 0.3 seconds and was stopped"
    assert stream.status == "completed"


@both_shells
@body
async def test_an_inner_failure_is_the_output(face: Face) -> None:
    with ModelServer([ask_inner("x"), Reply(status=500), Reply("Sorry.")]) as server:
        async with team(face, server) as both:
            stream = await both.outer.say("Go.")
        (output,) = outputs_of(server.requests[2]).values()
    assert output.startswith("Error: SourceError")
    assert (stream.status, [warning.code for warning in stream.warnings]) == ("completed", ["tool-failed"])


# -- 6: tokens


@both_shells
@every_provider
@body
async def test_the_usage_is_the_sum_with_the_inner_ones(face: Face, provider: str) -> None:
    alone = [Reply(*entry.parts) for entry in SCRIPT]
    with ModelServer(alone) as server:
        async with team(face, server, provider) as both:
            stream = await both.outer.say("Go.")
            steps = await stream.get_final_run_steps()
    with ModelServer([SCRIPT[1], SCRIPT[2]]) as server:
        async with agent_on(face, server, provider, tools=[search]) as talker:
            inner = await talker.say("sun?")
    with ModelServer([SCRIPT[0], SCRIPT[3]]) as server:
        async with agent_on(face, server, provider, tools=[tool(name="research")(lambda input: ANSWER)]) as talker:
            outer = await talker.say("Go.")
            own = await outer.get_final_run_steps()
    assert stream.usage.total_tokens == inner.usage.total_tokens + outer.usage.total_tokens
    assert steps[0].usage.total_tokens == own[0].usage.total_tokens + inner.usage.total_tokens
    assert steps[1].usage.total_tokens == own[1].usage.total_tokens
    assert stream.current_run.usage.input_tokens == inner.usage.input_tokens + outer.usage.input_tokens


@both_shells
@body
async def test_the_limit_of_tokens_counts_the_inner_ones(face: Face) -> None:
    with ModelServer(SCRIPT) as server:
        async with team(face, server, outer={"max_total_tokens": 30}) as both:
            stream = await both.outer.say("Go.")
        assert len(server.requests) == 3
    assert (stream.status, stream.current_run.finish_reason) == ("incomplete", "max_total_tokens")


# -- 7: the conversation


@both_shells
@body
async def test_the_conversation_keeps_inner_messages(face: Face, tmp_path: Path) -> None:
    path = tmp_path / "conversation.json"
    with ModelServer([*SCRIPT, Reply("Yes.")]) as server:
        async with team(face, server) as both:
            stream = await both.outer.say("Go.")
            assert shown(both.outer.messages[1:]) == shown(stream.messages)
            both.outer.agent.save(path)
            both.outer.agent.load(path)
            assert shown(both.outer.messages[1:]) == shown(stream.messages)
            await both.outer.say("Sure?")
        roles = [message["role"] for message in server.requests[4].body["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


# -- 8: kinds of agents


def test_an_agent_takes_no_async_agent() -> None:
    inner = sk.AsyncAgent(openai.AsyncOpenAI(api_key="any"), model="m", name="research")
    with pytest.raises(sk.UsageError, match="research is an AsyncAgent: use `AsyncAgent`"):
        sk.Agent(openai.OpenAI(api_key="any"), model="m", tools=[inner.as_tool()])


@async_faces
@pytest.mark.parametrize("answer", [True, False], ids=["approved", "cancelled"])
@body
async def test_a_sync_agent_runs_in_a_thread_of_an_async_one(face: Face, answer: bool) -> None:
    computer = ToyComputer()
    with ModelServer(ASKS) as server:
        client = client_of(server)
        inner = sk.Agent(client, model="m", name="research", computer=computer)
        async with agent_on(face, server, tools=[inner.as_tool()]) as outer:
            stream = outer.stream("Go.")
            async for event in stream:
                if isinstance(event, sk.events.ConfirmationCreated):
                    if answer:
                        event.confirmation.approve()
                    else:
                        stream.cancel()
    assert stream.status == ("completed" if answer else "cancelled")
    assert computer.ran == (["say hot"] if answer else [])


@async_faces
@body
async def test_the_time_of_a_sync_agent_in_an_async_one_is_bounded(face: Face) -> None:
    with ModelServer([ask_inner("x"), Reply("Never.", first_delay=30), Reply("Too slow.")]) as server:
        client = client_of(server)
        inner = sk.Agent(client, model="m", name="research")
        async with agent_on(face, server, tools=[inner.as_tool(timeout=0.3)]) as outer:
            await outer.say("Go.")
        assert await face.in_thread(lambda: server.wait_for_disconnect(10))
        (output,) = outputs_of(server.requests[2]).values()
    assert output.endswith("was stopped")


def test_called_in_python_it_is_the_inner_answer() -> None:
    with ModelServer(Reply(ANSWER)) as server:
        client = client_of(server)
        assert sk.Agent(client, model="m").as_tool("research")("sun?") == ANSWER
