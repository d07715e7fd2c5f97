"""What nobody answered can be answered later, also in a new process: the conversation asks again, and goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import streamkit as sk
from streamkit.agent import tool
from streamkit.testing import McpApproval, ModelServer, Reply, Text, ToolCall

from ..faces import Face, body, both_shells, every_face, every_pair
from .parts import Approving, ToyComputer, agent_on, code, every_provider, outputs_of


async def leave_at_the_question(talker: Any) -> sk.Confirmation:
    """Start a stream and leave it at its confirmation, as a process that ends there."""
    async with talker.stream("Go.") as stream:
        async for event in stream:
            if isinstance(event, sk.ConfirmationCreated):
                break
    confirmation: sk.Confirmation = event.confirmation
    return confirmation


UNANSWERED = ("left", "not answered", "the time is over", "failed")


@every_pair
@both_shells
@every_provider
@pytest.mark.parametrize("how", UNANSWERED)
@body
async def test_an_unanswered_question_is_asked_again_after_loading(
    face: Face, provider: str, how: str, tmp_path: Path
) -> None:
    """With the same id and the same code; the hooks show the code again. Approved, it runs and the run goes on."""
    asked: list[sk.Confirmation] = []

    def ask(handler: Any, confirmation: sk.Confirmation) -> None:
        asked.append(confirmation)
        if how == "the time is over":
            confirmation.defer(timeout=0.01)
        if how == "failed":
            raise LookupError("no")

    with ModelServer([Reply(Text("I will. "), code("say hello")), Reply("Done.")]) as server:
        computer = ToyComputer()
        async with agent_on(face, server, provider, computer=computer) as talker:
            if how == "left":
                asked.append(await leave_at_the_question(talker))
            elif how == "failed":
                with pytest.raises(LookupError):
                    await talker.say("Go.", face.told(on_confirmation=ask))
            else:
                await talker.say("Go.", face.told(on_confirmation=ask))
            talker.agent.save(tmp_path / "talk.json")
            before = talker.contents
        async with agent_on(face, server, provider, computer=computer) as another:
            another.agent.load(tmp_path / "talk.json")
            handler, approving = face.told(), Approving()
            stream = await another.say(approving, handler)
        assert len(server.requests) == 2
        assert [*outputs_of(server.requests[1]).values()] == ["hello\n"]
    (again,) = approving.confirmations
    assert (again.id, again.subject.content, again.subject.call_id) == (
        asked[0].id,
        "say hello",
        asked[0].subject.call_id,
    )
    assert again.subject is next(message for message in stream.messages if message.type == "code")
    assert "".join(delta.value for delta in handler.of("on_code_delta")) == "say hello"
    assert another.contents == [*before, ("console", "hello\n"), ("message", "Done.")]
    assert computer.ran == ["say hello"]
    handler.check_brackets()


@both_shells
@body
async def test_it_can_be_declined_later_too(face: Face, tmp_path: Path) -> None:
    """With a reason the run goes on; and without any answer it can be asked once more."""
    with ModelServer([Reply(code("say hello")), Reply("Then not.")]) as server:
        computer = ToyComputer()
        async with agent_on(face, server, computer=computer) as talker:
            first = await leave_at_the_question(talker)
            for _ in range(2):
                stream = await talker.say()
                assert [confirmation.id for confirmation in stream.confirmations] == [first.id]
                assert [confirmation.status for confirmation in stream.confirmations] == ["unanswered"]
                assert (stream.status, stream.current_run.status) == ("requires_action", "requires_action")
            assert len(server.requests) == 1
            await talker.say(face.told(on_confirmation=lambda self, confirmation: confirmation.decline("no")))
        assert outputs_of(server.requests[1]) == {
            "call_1_0": "Not run: the user declined this code. Reason: no",
        }
    assert computer.ran == []


@both_shells
@body
async def test_the_conversation_may_go_on_without_an_answer(face: Face) -> None:
    """A new input gives the question up: the model reads that the code never ran, and it is not asked again."""
    with ModelServer([Reply(code("say hello")), Reply("I see."), Reply("I see.")]) as server:
        computer, approving = ToyComputer(), Approving()
        async with agent_on(face, server, computer=computer) as talker:
            await leave_at_the_question(talker)
            await talker.say("No, tell me a joke.", approving)
            await talker.say(approving)
        assert outputs_of(server.requests[2]) == {"call_1_0": "Not run: the conversation went on without it."}
    assert (computer.ran, approving.confirmations) == ([], [])
    assert [message.metadata for message in talker.messages if message.type == "tool_call"] == [{}]


@every_face
@body
async def test_the_calls_beside_it_wait_with_it(face: Face, tmp_path: Path) -> None:
    """They run once it is answered; what had run before it was asked does not run again."""
    ran: list[str] = []

    def plain() -> str:
        ran.append("plain")
        return "plain"

    @tool(confirm=True)
    def careful(n: int) -> str:
        ran.append(f"careful {n}")
        return "careful"

    calls = Reply(ToolCall("plain"), ToolCall("careful", {"n": 1}), code("say a"), code("say b"))
    with ModelServer([calls, Reply("Done.")]) as server:
        computer = ToyComputer()
        options: dict[str, Any] = {"tools": [plain, careful], "computer": computer}
        async with agent_on(face, server, **options) as talker:
            await leave_at_the_question(talker)
            assert ran == []
            await talker.say(face.told(on_confirmation=lambda self, c: c.approve() if c.subject.name else None))
            assert ran == ["plain", "careful 1"] or face.is_async
            assert sorted(ran) == ["careful 1", "plain"]
            talker.agent.save(tmp_path / "talk.json")
        async with agent_on(face, server, **options) as another:
            another.agent.load(tmp_path / "talk.json")
            approving = Approving()
            await another.say(approving)
        outputs = outputs_of(server.requests[1])
    assert len(ran) == 2
    assert outputs == {"call_1_0": "plain", "call_1_1": "careful", "call_1_2": "a\n", "call_1_3": "b\n"}
    assert [c.subject.content for c in approving.confirmations] == ["say a", "say b"]


@every_face
@every_provider
@body
async def test_a_call_of_the_application_waits_again(face: Face, provider: str, tmp_path: Path) -> None:
    """A tool that is only a schema: its call comes again with the same id, as often as nobody answers it."""
    schema = {"name": "ask", "description": "Ask.", "parameters": {"type": "object", "properties": {}}}
    seen: list[tuple[str | None, bool]] = []

    def note(handler: Any, call: sk.ToolCallMessage) -> None:
        seen.append((call.call_id, call.waiting))

    def answer(handler: Any, call: sk.ToolCallMessage) -> None:
        call.respond("late")

    with ModelServer([Reply(ToolCall("ask")), Reply("Fine.")]) as server:
        async with agent_on(face, server, provider, tools=[schema]) as talker:
            await talker.say("Go.", face.told(on_tool_call_done=note))
            talker.agent.save(tmp_path / "talk.json")
        async with agent_on(face, server, provider, tools=[schema]) as another:
            another.agent.load(tmp_path / "talk.json")
            stream = await another.say(face.told(on_tool_call_done=note))
            assert (stream.status, len(server.requests)) == ("requires_action", 1)
            assert [*stream.pending] == ["call_1_0"]
            stream = await another.say(face.told(on_tool_call_done=answer))
            assert await stream.get_final_text() == "Fine."
        assert outputs_of(server.requests[1]) == {"call_1_0": "late"}
    assert seen == [("call_1_0", True)] * 2
    assert [message.type for message in another.messages] == ["message", "tool_call", "tool_output", "message"]


@every_pair
@both_shells
@every_provider
@pytest.mark.parametrize("before", ["nobody answered", "the time was over", "it was left"])
@body
async def test_a_call_of_the_application_can_be_answered_by_the_next_stream(
    face: Face, provider: str, before: str
) -> None:
    """In the same process too: the call that the hook gets is a new one, which takes an answer."""
    schema = {"name": "ask", "description": "Ask.", "parameters": {"type": "object", "properties": {}}}

    def first(handler: Any, call: sk.ToolCallMessage) -> None:
        if before == "the time was over":
            call.defer(timeout=0.01)

    def second(handler: Any, call: sk.ToolCallMessage) -> None:
        assert call.waiting
        call.respond("late")

    with ModelServer([Reply(ToolCall("ask")), Reply("Fine.")]) as server:
        async with agent_on(face, server, provider, tools=[schema]) as talker:
            stream = talker.stream("Go.", face.told(on_tool_call_done=first))
            if before == "it was left":
                async with stream:
                    async for event in stream:
                        if isinstance(event, sk.RunRequiresAction):
                            break
            else:
                await stream.until_done()
            stream = await talker.say(face.told(on_tool_call_done=second))
            assert await stream.get_final_text() == "Fine."
            assert [message.type for message in talker.messages] == ["message", "tool_call", "tool_output", "message"]
        assert outputs_of(server.requests[1]) == {"call_1_0": "late"}


@every_face
@every_provider
@body
async def test_the_calls_beside_one_that_waits_are_saved_as_waiting(face: Face, provider: str, tmp_path: Path) -> None:
    """The stream waits for the application before it comes to them. Where the program ends then, the next one makes them."""
    schema = {"name": "ask", "parameters": {"type": "object", "properties": {}}}
    saved = tmp_path / "talk.json"
    looked: list[str] = []

    def look() -> str:
        looked.append("sun")
        return "sun"

    def wait(handler: Any, call: sk.ToolCallMessage) -> None:
        if call.name == "ask":
            call.defer(timeout=10)

    def save(handler: Any, run: sk.Run) -> None:
        if not saved.exists():
            talker.agent.save(saved)
            handler.stream.pending["call_1_2"].respond("now")

    script = [Reply(ToolCall("look"), code("say hello"), ToolCall("ask")), Reply("Fine."), Reply("Fine too.")]
    options: dict[str, Any] = {"tools": [schema, look], "computer": ToyComputer(), "auto_run": True}
    with ModelServer(script) as server:
        async with agent_on(face, server, provider, **options) as talker:
            await talker.say("Go.", face.told(on_tool_call_done=wait, on_run_requires_action=save))
            assert all("action" not in message.metadata for message in talker.messages)
            talker.agent.load(saved)
            assert [*talker.agent.pending] == ["call_1_2"]
            late = face.told(on_tool_call_done=lambda self, call: call.respond("late") if call.name == "ask" else None)
            await talker.say(late)
        outputs = [outputs_of(request) for request in server.requests[1:]]
    assert outputs == [{"call_1_0": "sun", "call_1_1": "hello\n", "call_1_2": word} for word in ("now", "late")]
    assert looked == ["sun", "sun"]


@every_pair
@both_shells
@every_provider
@pytest.mark.parametrize("as_dict", [False, True], ids=["message", "dict"])
@body
async def test_an_output_may_have_the_role_that_chat_has_for_it(face: Face, provider: str, as_dict: bool) -> None:
    """`tool` is the computer's role, so the output answers its call."""
    schema = {"name": "ask", "parameters": {"type": "object", "properties": {}}}
    output: Any = sk.ToolOutputMessage(role="tool", call_id="call_1_0", content="42")
    if as_dict:
        output = {"role": "tool", "type": "tool_output", "call_id": "call_1_0", "content": "42"}
    with ModelServer([Reply(ToolCall("ask")), Reply("Fine.")]) as server:
        async with agent_on(face, server, provider, tools=[schema]) as talker:
            await talker.say("Go.")
            talker.messages.append(output)
            stream = await talker.say()
            assert await stream.get_final_text() == "Fine."
        assert outputs_of(server.requests[1]) == {"call_1_0": "42"}
    assert {message.role for message in talker.messages} == {"user", "assistant", "computer"}


@every_face
@every_provider
@body
async def test_an_agent_says_what_it_waits_for(face: Face, provider: str, tmp_path: Path) -> None:
    """By the ids that the stream has: also between two streams, and in a conversation that was loaded. Reading it asks nothing."""
    schema = {"name": "ask", "description": "Ask.", "parameters": {"type": "object", "properties": {}}}

    @tool(confirm=True)
    def careful() -> str:
        return "careful"

    script = [Reply(ToolCall("ask"), ToolCall("careful"), code("say hello")), Reply("Done.")]
    options: dict[str, Any] = {"tools": [schema, careful], "computer": ToyComputer()}
    with ModelServer(script) as server:
        async with agent_on(face, server, provider, **options) as talker:
            assert talker.agent.pending == {}
            during: list[list[str]] = []
            note = face.told(on_confirmation=lambda self, _: during.append([*talker.agent.pending]))
            await talker.say("Go.", note)
            assert during == [["call_1_0", "confirmation-call_1_1"]]
            talker.agent.save(tmp_path / "talk.json")
            before = talker.contents
            for agent in (talker.agent, _loaded(talker.agent, tmp_path / "talk.json")):
                call, confirmation = agent.pending.values()
                assert [*agent.pending] == ["call_1_0", "confirmation-call_1_1"]
                assert (call.name, call.waiting) == ("ask", False)
                assert (confirmation.status, confirmation.subject.name) == ("unanswered", "careful")
            assert talker.contents == before
            answers = face.told(on_tool_call_done=lambda self, call: call.respond("42") if call.waiting else None)
            await talker.say(answers, Approving())
            assert talker.agent.pending == {}
        assert outputs_of(server.requests[1]) == {"call_1_0": "42", "call_1_1": "careful", "call_1_2": "hello\n"}


def _loaded(agent: Any, path: Path) -> Any:
    """Another agent like this one, with the conversation of a file."""
    other = type(agent)(agent.provider.client, model="m", tools=[*agent.tools.values()], computer=agent.computer)
    other.add_tool({"name": "ask", "parameters": {"type": "object", "properties": {}}})
    other.load(path)
    return other


@both_shells
@body
async def test_the_input_may_bring_the_output(face: Face) -> None:
    """As a message: it is the answer, and the call does not come again."""
    schema = {"name": "ask", "parameters": {"type": "object", "properties": {}}}
    with ModelServer([Reply(ToolCall("ask")), Reply("Fine.")]) as server:
        async with agent_on(face, server, tools=[schema]) as talker:
            await talker.say("Go.")
            handler = face.told()
            await talker.say(sk.ToolOutputMessage(call_id="call_1_0", content="42"), handler)
        assert outputs_of(server.requests[1]) == {"call_1_0": "42"}
    assert handler.of("on_tool_call_done") == []


@both_shells
@body
async def test_the_providers_own_question_is_asked_again(face: Face, tmp_path: Path) -> None:
    """OpenAI's approval of an MCP call. The approval is sent once, however often the conversation goes on."""
    with ModelServer([Reply(McpApproval("drop", {"table": 1})), Reply("Done."), Reply("More.")]) as server:
        async with agent_on(face, server, "openai_responses") as talker:
            first = await talker.say("Go.")
            talker.agent.save(tmp_path / "talk.json")
        async with agent_on(face, server, "openai_responses") as another:
            another.agent.load(tmp_path / "talk.json")
            approving = Approving()
            await another.say(approving)
            another.agent.save(tmp_path / "talk.json")
            another.agent.load(tmp_path / "talk.json")
            await another.say("More.", approving)
        items = [[i for i in r.body["input"] if i["type"].startswith("mcp")] for r in server.requests]
    assert [c.id for c in approving.confirmations] == [c.id for c in first.confirmations]
    assert [item["type"] for item in items[1]] == ["mcp_approval_request", "mcp_approval_response"]
    assert (items[1][1]["approve"], items[2]) == (True, [])


def test_a_saved_question_is_plain_json(tmp_path: Path) -> None:
    """The call says that it waits, and for which question, so that a server can show it without a stream."""
    import openai

    with ModelServer(Reply(code("say hello"))) as server, openai.OpenAI(base_url=server.url, api_key="any") as client:
        agent = sk.Agent(client, model="m", computer=ToyComputer(), protocol="openai_chat")
        agent.stream("Go.").until_done()
        agent.save(tmp_path / "talk.json")
    (call,) = [m for m in json.loads((tmp_path / "talk.json").read_text()) if m["type"] == "tool_call"]
    assert call["metadata"] == {"action": "waiting", "confirmation": "confirmation-call_1_0"}
