"""A run of many model calls is one stream: the same on every face and with every provider."""

from __future__ import annotations

import inspect
import json
import re
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

import streamkit as sk
from streamkit.testing import CodeInterpreter, ModelServer, Reply, Text, ToolCall

from ..faces import Face, async_faces, body, both_shells, every_face
from .parts import PROVIDERS, Approving, ToyComputer, agent_on, code, every_provider, outputs_of


def weather(city: str) -> str:
    """The weather of a city."""
    return f"{city}: sun"


SCRIPT = (
    Reply(
        Text("Let me see. "),
        ToolCall("weather", {"city": "Oslo"}),
        ToolCall("weather", {"city": "Rome"}),
        code("say 1\nsay 2"),
    ),
    Reply(code("shrug", "shell")),
    Reply("Sun everywhere."),
)


@both_shells
@every_provider
@body
async def test_tools_and_code_are_one_stream(face: Face, provider: str) -> None:
    """One run with a step for each model call, and every output is in the next request."""
    computer = ToyComputer()
    with ModelServer(SCRIPT) as server:
        async with agent_on(face, server, provider, tools=[weather], computer=computer) as talker:
            handler = face.told()
            stream = await talker.say("Go.", handler, Approving())
        requests = server.requests
    assert await stream.get_final_text() == "Sun everywhere."
    assert (stream.status, stream.current_run.status) == ("completed", "completed")
    steps = await stream.get_final_run_steps()
    assert [step.status for step in steps] == ["completed"] * 3
    handler.check_brackets()
    assert [handler.hooks.count(name) for name in ("on_run_created", "on_run_done", "on_run_step_done")] == [1, 1, 3]
    assert "on_run_requires_action" not in handler.hooks
    assert talker.contents == [
        ("message", "Go."),
        ("message", "Let me see. "),
        ("tool_call", '{"city": "Oslo"}'),
        ("tool_call", '{"city": "Rome"}'),
        ("tool_call", '{"language": "python", "code": "say 1\\nsay 2"}'),
        ("code", "say 1\nsay 2"),
        *(talker.contents[6:8] if face.is_async else [("tool_output", "Oslo: sun"), ("tool_output", "Rome: sun")]),
        ("console", "1\n2\n"),
        ("tool_call", '{"language": "shell", "code": "shrug"}'),
        ("code", "shrug"),
        ("console", ""),
        ("message", "Sun everywhere."),
    ]
    assert sorted(talker.contents[6:8]) == [("tool_output", "Oslo: sun"), ("tool_output", "Rome: sun")]
    assert sorted(outputs_of(requests[1]).values()) == ["1\n2\n", "Oslo: sun", "Rome: sun"]
    assert sorted(outputs_of(requests[2]).values()) == ["(no output)", "1\n2\n", "Oslo: sun", "Rome: sun"]


@both_shells
@every_provider
@body
async def test_the_final_text_is_the_last_answer(face: Face, provider: str) -> None:
    """Without what the model said before it called tools. `text_deltas` have all of it, with an empty line between."""
    script = [Reply(Text("I will look."), ToolCall("weather", {"city": "Oslo"})), Reply(Text("It is 2."))]
    with ModelServer(script * 2) as server:
        async with agent_on(face, server, provider, tools=[weather]) as talker:
            assert await talker.stream("Go.").get_final_text() == "It is 2."
            stream = talker.stream("Again.")
            pieces = [piece async for piece in stream.text_deltas]
            assert "".join(pieces) == "I will look.\n\nIt is 2."
            assert await stream.get_final_text() == "It is 2."
    assert "" not in pieces


@both_shells
@body
async def test_a_last_step_without_text_leaves_the_answer_before_it(face: Face) -> None:
    """As where its code was declined, or the steps were used up."""
    with ModelServer([Reply(Text("I will. "), code("say hello")), Reply(code("say more"))]) as server:
        async with agent_on(face, server, computer=ToyComputer(), auto_run=True, max_steps=2) as talker:
            stream = await talker.say("Go.")
            assert await stream.get_final_text() == "I will. "


@both_shells
@body
async def test_a_plain_stream_with_then_is_the_same(face: Face) -> None:
    """One run of two responses: the final text is that of the last."""
    with ModelServer([Reply(Text("I will look."), ToolCall("ask")), Reply(Text("It is 2."))] * 2) as server:
        async with face.client(server) as client:

            def request(stream: Any = None) -> Any:
                messages = [] if stream is None else sk.to_input(stream.messages, "openai_chat")
                return client.chat.completions.create(model="m", messages=messages, stream=True)

            answering = face.told(on_tool_call_done=lambda self, call: call.respond("2"))
            stream = face.stream(request, answering, then=request)
            assert await stream.get_final_text() == "It is 2."
            answering = face.told(on_tool_call_done=lambda self, call: call.respond("2"))
            stream = face.stream(request, answering, then=request)
            assert "".join([piece async for piece in stream.text_deltas]) == "I will look.\n\nIt is 2."


@both_shells
@body
async def test_every_provider_calls_the_same_hooks(face: Face) -> None:
    """The same for each message, and the same around them. (On Chat a message is done only when the answer is.) Not all
    providers count tokens."""
    stories: list[Any] = []
    for provider in PROVIDERS:
        with ModelServer(SCRIPT) as server:
            async with agent_on(face, server, provider, tools=[weather], computer=ToyComputer()) as talker:
                handler = face.told()
                await talker.say("Go.", handler, Approving())
        stories.append(_by_message(handler))
    assert stories[0] == stories[1] == stories[2]
    assert [len(hooks) > 3 for hooks in stories[0]] == [True] * 13


def _by_message(handler: Any) -> list[list[str]]:
    """The hooks of the run, then those of each message: outputs of parallel calls in the calls' order."""
    hooks: dict[str, list[str]] = {"": []}
    order: dict[str, tuple[str, str]] = {"": ("", "")}
    for name, arguments in handler.told:
        message = arguments[-1] if arguments and isinstance(arguments[-1], sk.Message) else None
        if name not in ("on_event", "on_usage", "on_active_line"):
            hooks.setdefault(message.id if message else "", []).append(name)
        if message is not None:
            order[message.id] = (message.type if message.type == "tool_output" else "", message.call_id or "")
    keys = sorted(hooks, key=lambda key: order[key] if order[key][0] else ("", ""))
    return [hooks[key] for key in keys]


@both_shells
@every_provider
@body
async def test_code_is_emitted_while_the_model_writes_it(face: Face, provider: str) -> None:
    """Piece by piece, as a message beside its call. The computer prepares the language meanwhile; nothing runs yet."""
    computer = ToyComputer()
    pieces = ['{"language": "python", "code": "say', " one", '"}']
    seen: list[tuple[str, list[str], list[str]]] = []

    class Watching(sk.EventHandler):
        def on_code_delta(self, delta: sk.CodeDelta, snapshot: sk.CodeMessage) -> None:
            seen.append((delta.value, [*computer.started], computer.ran))

    with ModelServer([Reply(ToolCall("execute", pieces=pieces)), Reply("Done.")]) as server:
        async with agent_on(face, server, provider, computer=computer) as talker:
            await talker.say("Go.", Watching(), Approving())
    ready = ["python", "python"]  # when the model was asked, and when it began to write
    assert seen == [("say", ready, []), (" one", ready, [])]
    assert computer.ran == ["say one"]
    call, shown, console = talker.messages[1:4]
    assert call.call_id == shown.call_id == console.call_id is not None
    assert call.step_id == shown.step_id == console.step_id is not None


@both_shells
@every_provider
@body
async def test_a_saved_conversation_can_continue(face: Face, provider: str, tmp_path: Path) -> None:
    """After loading, the next request is the same as without saving, with every provider."""
    computer = ToyComputer()
    with ModelServer([*SCRIPT[1:], Reply("Yes.")]) as server:
        async with agent_on(face, server, provider, computer=computer, auto_run=True) as talker:
            await talker.say("Go.")
            talker.agent.save(tmp_path / "talk.json")
            await talker.say("Sure?")
            async with agent_on(face, server, provider, computer=computer) as another:
                another.agent.load(tmp_path / "talk.json")
                assert another.messages == talker.messages[:-2]
                await another.say("Sure?")
        first, second = server.requests[-2:]
    assert first.body == second.body
    assert [message["type"] for message in json.loads((tmp_path / "talk.json").read_text())][:3] == [
        *("message", "tool_call", "code")
    ]


@both_shells
@body
async def test_a_conversation_can_continue_with_another_provider(face: Face) -> None:
    """The messages are flat and the same for all providers."""
    messages: list[sk.Message] = []
    for provider in PROVIDERS:
        with ModelServer(SCRIPT) as server:
            options: dict[str, Any] = {"tools": [weather], "computer": ToyComputer(), "messages": messages}
            async with agent_on(face, server, provider, auto_run=True, **options) as talker:
                await talker.say("Again.")
                messages = talker.messages
            outputs = outputs_of(server.requests[-1])
    assert len(outputs) == 12  # each with a distinct id
    assert sorted(outputs.values()) == sorted(["1\n2\n", "(no output)", "Oslo: sun", "Rome: sun"] * 3)


@both_shells
@pytest.mark.parametrize("provider", ["openai_responses", "anthropic"])
@body
async def test_code_that_the_provider_runs_is_not_run_here(face: Face, provider: str) -> None:
    """It is emitted, but neither confirmed nor run. The next request returns it in the form that the provider requires."""
    computer, approving = ToyComputer(), Approving()
    script = [Reply(CodeInterpreter("print(1)", logs="1\n"), ToolCall("weather", {"city": "Oslo"})), Reply("Done.")]
    with ModelServer(script) as server:
        async with agent_on(face, server, provider, tools=[weather], computer=computer) as talker:
            stream = await talker.say("Go.", approving)
        request = server.requests[1]
    assert (computer.runs, approving.confirmations, stream.status) == ([], [], "completed")
    assert outputs_of(request) == {"call_1_0": "Oslo: sun"}
    if provider == "anthropic":
        kinds = [block["type"] for message in request.body["messages"] for block in message["content"]]
        assert kinds == ["text", "server_tool_use", "code_execution_tool_result", "tool_use", "tool_result"]
    else:
        assert [item["name"] for item in request.body["input"] if item["type"] == "function_call"] == ["weather"]


@both_shells
@body
async def test_a_conversation_with_calls_can_continue_without_tools(face: Face) -> None:
    """Anthropic rejects calls where no tools are declared: those of the conversation are declared, and cannot be called."""
    with ModelServer([SCRIPT[1], Reply("Done."), Reply("Yes.")]) as server:
        async with agent_on(face, server, "anthropic", computer=ToyComputer(), auto_run=True) as talker:
            await talker.say("Go.")
            async with agent_on(face, server, "anthropic", messages=talker.messages) as another:
                await another.say("Sure?")
        request = server.requests[-1].body
    assert [tool["name"] for tool in request["tools"]] == ["execute"]
    assert request["tool_choice"] == {"type": "none"}


@every_face
@body
async def test_a_stream_that_was_left_open_can_be_closed_by_its_agent(face: Face) -> None:
    """Even if the application holds no reference to it."""
    with ModelServer(Reply(Text("One. Two. Three."))) as server:
        async with agent_on(face, server) as talker:
            async for event in talker.stream("Go."):
                if isinstance(event, sk.TextDelta):
                    break
            with pytest.raises(sk.UsageError, match="`close` the agent"):
                talker.stream("Again.")
            if face.is_async:
                await talker.agent.close()
            else:
                talker.agent.close()
            assert (await talker.say("Again.")).status == "completed"


@both_shells
@body
async def test_the_application_may_be_the_computer(face: Face) -> None:
    """It leaves at the confirmation, appends what its own computer printed, and continues without a new input."""
    computer = ToyComputer()
    with ModelServer([Reply(code("say hello")), Reply("It said hello.")]) as server:
        async with agent_on(face, server, computer=computer) as talker:
            async with talker.stream("Go.") as stream:
                async for event in stream:
                    if isinstance(event, sk.ConfirmationCreated):
                        break
            assert stream.status == "cancelled"
            console = {"role": "computer", "type": "console", "format": "output", "content": "hello from elsewhere"}
            talker.messages.append(sk.Message.from_dict(console))
            stream = await talker.say()
        request = server.requests[1]
    assert computer.ran == []
    assert outputs_of(request) == {"call_1_0": "hello from elsewhere"}
    assert await stream.get_final_text() == "It said hello."


@every_face
@every_provider
@body
async def test_calls_of_tools_without_a_function_wait_for_the_application(face: Face, provider: str) -> None:
    """A tool that is only a schema is answered in a hook. Unanswered, the stream ends with `requires_action`."""
    schema = {"name": "ask", "description": "Ask.", "parameters": {"type": "object", "properties": {}}}

    def answer(handler: Any, call: sk.ToolCallMessage) -> None:
        assert call.waiting == (call.name == "ask")
        if call.waiting:
            call.respond({"answer": 42})

    replies = [Reply(ToolCall("ask"), ToolCall("weather", {"city": "Oslo"})), Reply("Fine.")]
    with ModelServer(replies) as server:
        async with agent_on(face, server, provider, tools=[schema, weather]) as talker:
            stream = await talker.say("Go.", face.told(on_tool_call_done=answer))
        assert stream.status == "completed"
        assert outputs_of(server.requests[1]) == {"call_1_0": '{"answer":42}', "call_1_1": "Oslo: sun"}
    with ModelServer(replies) as server:
        async with agent_on(face, server, provider, tools=[schema, weather]) as talker:
            handler = face.told()
            stream = await talker.say("Go.", handler)
            assert (stream.status, len(server.requests)) == ("requires_action", 1)
            assert "on_run_requires_action" in handler.hooks
            talker.messages.append(sk.ToolOutputMessage(call_id="call_1_0", content="late"))
            stream = await talker.say()
        assert stream.status == "completed"
        assert outputs_of(server.requests[1]) == {"call_1_0": "late", "call_1_1": "Oslo: sun"}


@async_faces
@body
async def test_a_sync_client_serves_an_async_agent(face: Face) -> None:
    """Its requests are sent and read in a thread."""
    import openai

    with ModelServer(SCRIPT) as server, openai.OpenAI(base_url=server.url, api_key="any") as client:
        agent = sk.AsyncAgent(client, model="m", tools=[weather], computer=ToyComputer(), auto_run=True)
        text = await agent.stream("Go.").get_final_text()
    assert text == "Sun everywhere."


@both_shells
@body
async def test_the_input_may_be_a_list_of_messages(face: Face) -> None:
    """Flat messages, as objects and as dicts. Leading system messages become instructions."""
    flat = [
        {"role": "system", "type": "message", "content": "Be brief."},
        sk.TextMessage(role="user", content="Hello."),
    ]
    with ModelServer(Reply("Hi.")) as server:
        async with agent_on(face, server, instructions="Be kind.", temperature=0.5) as talker:
            await talker.say(flat, top_p=0.1)
        request = server.requests[0].body
    assert request["messages"] == [
        {"role": "system", "content": "Be kind.\n\nBe brief."},
        {"role": "user", "content": "Hello."},
    ]
    assert (request["temperature"], request["top_p"]) == (0.5, 0.1)


@both_shells
@body
async def test_max_steps_bounds_the_model_calls(face: Face) -> None:
    """The run then ends incomplete, with the reason. Continuing starts a new run."""
    with ModelServer(Reply(code("say again"))) as server:
        async with agent_on(face, server, computer=ToyComputer(), auto_run=True, max_steps=3) as talker:
            stream = await talker.say("Go.")
            assert (stream.status, stream.current_run.finish_reason) == ("incomplete", "max_steps")
            assert len(server.requests) == 3
            await talker.say()
            assert len(server.requests) == 6
    assert [message.content for message in talker.messages if message.type == "console"] == ["again\n"] * 6


@async_faces
@body
async def test_parallel_calls_run_at_the_same_time(face: Face) -> None:
    """Each waits until all have begun, functions in threads among them."""
    begun = anyio.Event()
    names: list[str] = []
    together = threading.Event()

    async def slow(name: str) -> str:
        names.append(name)
        if len(names) == 2:
            begun.set()
        await begun.wait()
        await anyio.to_thread.run_sync(together.wait)
        return name

    def blocking(name: str) -> str:
        together.set()
        return name

    calls = [ToolCall("slow", {"name": "a"}), ToolCall("slow", {"name": "b"}), ToolCall("blocking", {"name": "c"})]
    with ModelServer([Reply(*calls), Reply("Done.")]) as server:
        async with agent_on(face, server, tools=[slow, blocking]) as talker, talker.stream("Go.") as stream:
            async for _ in stream:
                pass
        assert outputs_of(server.requests[1]) == {"call_1_0": "a", "call_1_1": "b", "call_1_2": "c"}


@pytest.mark.parametrize("wrong", ["an async client", "an async tool", "two of one name", "execute", "no steps"])
def test_wrong_arguments_are_refused_when_the_agent_is_created(wrong: str) -> None:
    """Before any request."""
    import openai

    async def tool() -> None: ...

    def execute() -> None: ...

    client = openai.OpenAI(api_key="any")
    made: dict[str, Any] = {
        "an async client": lambda: sk.Agent(openai.AsyncOpenAI(api_key="any"), model="m"),
        "an async tool": lambda: sk.Agent(client, model="m", tools=[tool]),
        "two of one name": lambda: sk.Agent(client, model="m", tools=[execute, execute]),
        "execute": lambda: sk.Agent(client, model="m", tools=[execute], computer=ToyComputer()),
        "no steps": lambda: sk.Agent(client, model="m", max_steps=0),
    }
    with pytest.raises(sk.UsageError):
        made[wrong]()


def described_arguments(kind: type) -> list[str]:
    arguments = (inspect.getdoc(kind) or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
    return re.findall(r"^    (\w+): ", arguments, re.MULTILINE)


def test_the_docstring_describes_every_argument() -> None:
    """And nothing else, so that `help` is a reference. `AsyncAgent` describes those that differ from `Agent`'s."""
    assert described_arguments(sk.Agent) == [*inspect.signature(sk.Agent).parameters]
    different = described_arguments(sk.AsyncAgent)
    assert different == [name for name in inspect.signature(sk.AsyncAgent).parameters if name in different] != []


@both_shells
@body
async def test_a_computer_may_be_set_between_two_streams(face: Face) -> None:
    """From then on the model is offered the tool that runs code, and its code is shown and runs."""
    computer = ToyComputer()
    with ModelServer([Reply("I cannot."), Reply(code("say hi")), Reply("Done.")]) as server:
        async with agent_on(face, server) as talker:
            await talker.say("Go.", Approving())
            talker.agent.computer = computer
            await talker.say("Now?", Approving())
        assert [len(request.body.get("tools", [])) for request in server.requests] == [0, 1, 1]
    assert computer.ran == ["say hi"]


@both_shells
@every_provider
@body
async def test_what_is_for_the_user_alone_does_not_reach_the_model(face: Face, provider: str) -> None:
    """Its call has an output all the same. The conversation keeps it."""
    call: dict[str, Any] = {"role": "assistant", "call_id": "c", "run_id": "r", "step_id": "s"}
    conversation: list[dict[str, Any]] = [
        {"id": "1", "role": "user", "type": "message", "content": "Go."},
        {"id": "2", "type": "tool_call", "name": "execute", "content": '{"language": "python", "code": "x"}', **call},
        {"id": "3", "type": "code", "format": "python", "content": "x", **call},
        {"id": "4", "type": "console", "content": "only the user", "recipient": "user", **call, "role": "computer"},
        {"id": "5", "role": "assistant", "type": "message", "content": "also hidden", "recipient": "user"},
    ]
    with ModelServer([Reply("I see.")]) as server:
        async with agent_on(face, server, provider, computer=ToyComputer()) as talker:
            talker.agent.messages = conversation
            await talker.say("And?")
            assert [content for _, content in talker.contents][3:5] == ["only the user", "also hidden"]
        sent = server.requests[0].content.decode()
        assert len(outputs_of(server.requests[0])) == 1
    assert ("only the user" in sent, "also hidden" in sent, "And?" in sent) == (False, False, True)
