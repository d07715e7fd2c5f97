"""What users see of the types, misuse included. Checked by both type checkers, never run.

Each line that must be refused carries an ignore for both; an ignore that is not needed is an error itself, so a
checker that stops refusing one fails here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, assert_type

from openai import AsyncOpenAI, OpenAI
from openai.types import beta as beta_events
from openai.types.beta import threads as beta
from openai.types.beta.threads.runs import RunStep, ToolCall, ToolCallDelta
from typing_extensions import override

import streamkit as sk
from streamkit.agent import Tool, mcp_tools, progress
from streamkit.compat.open_interpreter import interpreter
from streamkit.compat.openai import AssistantEventHandler, AsyncAssistantEventHandler
from streamkit.computer import Computer

client = OpenAI(api_key="none")
aclient = AsyncOpenAI(api_key="none")


class Right(sk.EventHandler):
    """Plain overrides, parameters named freely."""

    @override
    def on_event(self, event: sk.Event) -> None: ...

    @override
    def on_text_created(self, text: sk.TextMessage) -> None:
        assert_type(text.value, str)

    @override
    def on_text_delta(self, piece: sk.TextDelta, so_far: sk.TextMessage) -> None:
        assert_type(piece.value, str)
        assert_type(so_far.content, str)
        assert_type(so_far.annotations, list[sk.Annotation])

    @override
    def on_message_delta(self, delta: sk.Delta, snapshot: sk.Message) -> None: ...

    @override
    def on_code_delta(self, delta: sk.CodeDelta, snapshot: sk.CodeMessage) -> None:
        assert_type(snapshot.language, str | None)

    @override
    def on_console_output(self, delta: sk.ConsoleDelta, snapshot: sk.ConsoleMessage) -> None: ...

    @override
    def on_active_line(self, line: int | None, snapshot: sk.ConsoleMessage | None) -> None: ...

    @override
    def on_annotation(self, annotation: sk.Annotation, snapshot: sk.TextMessage) -> None: ...

    @override
    def on_tool_call_done(self, message: sk.ToolCallMessage) -> None:
        assert_type(message.arguments, dict[str, Any])
        if message.waiting:
            message.respond({"answer": 42})

    @override
    def on_confirmation(self, confirmation: sk.Confirmation) -> None:
        confirmation.approve(edited="print(1)")
        confirmation.decline("no")
        confirmation.defer(timeout=1.5)

    @override
    def on_run_done(self, run: sk.Run) -> None:
        assert_type(run.model, str | None)

    @override
    def on_usage(self, usage: sk.Usage) -> None:
        assert_type(usage.input_tokens, int)

    @override
    def on_end(self) -> None:
        assert_type(self.stream.messages, Sequence[sk.Message])


class AsyncRight(sk.AsyncEventHandler):
    """Coroutine overrides."""

    @override
    async def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        await super().on_text_delta(delta, snapshot)

    @override
    async def on_end(self) -> None: ...


class Wrong(sk.EventHandler):
    """What must be refused."""

    @override
    def on_text_delta(self, delta: sk.CodeDelta, snapshot: sk.TextMessage) -> None: ...  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]

    @override
    def on_end(self, reason: str) -> None: ...  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]

    @override
    async def on_message_done(self, message: sk.Message) -> None: ...  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]

    @override
    def on_text_detla(self, delta: sk.TextDelta) -> None: ...  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]


class AsyncWrong(sk.AsyncEventHandler):
    """A plain method where a coroutine is wanted."""

    @override
    def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None: ...  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]


def a_script() -> None:
    with sk.stream(lambda: client.responses.create(model="m", input="x", stream=True), Right()) as stream:
        assert_type(stream, sk.StreamManager)
        assert_type(stream.text_deltas, Iterator[str])
        for event in stream:
            assert_type(event, sk.Event)
        assert_type(stream.get_final_messages(), list[sk.Message])
        assert_type(stream.get_final_text(), str)
        assert_type(stream.get_final_run(), sk.Run)
        assert_type(stream.get_final_run_steps(), list[sk.RunStep])
        assert_type(stream.timing, sk.Timing)
        assert_type(stream.usage, sk.Usage | None)
        assert_type(stream.chunks("open_interpreter"), Iterator[dict[str, Any]])
    body = sk.stream([]).sse("vercel_ui", keepalive=5, on_disconnect="continue", retry=None, expose_errors=True)
    assert_type(body.headers, Mapping[str, str])
    assert_type(next(body), bytes)
    body.close()
    sk.stream(Path("recording.jsonl"), Right(), sk.Recorder(Path("b.jsonl")), sk.Throttled(Right(), interval=0.5))
    sk.stream([{"role": "assistant", "type": "message", "content": "x"}], strict=True, protocol="open_interpreter")


async def a_server() -> None:
    source = aclient.responses.create(model="m", input="x", stream=True)
    async with sk.astream(source, AsyncRight(), Right()) as stream:
        assert_type(stream, sk.AsyncStreamManager)
        assert_type(stream.text_deltas, AsyncIterator[str])
        async for event in stream:
            assert_type(event, sk.Event)
        assert_type(await stream.get_final_messages(), list[sk.Message])
        async with aclosing(stream.sse()) as body:
            assert_type(await anext(body), bytes)
        stream.cancel()


def around_stream(source: sk.SyncSource, other: sk.AnySource) -> None:
    """Functions of applications have types for what they pass on."""
    for event in sk.stream(source):
        if isinstance(event, sk.TextDelta):
            assert_type(event.snapshot, sk.TextMessage)
        elif isinstance(event, sk.ToolCallDelta):
            assert_type(event.snapshot, sk.ToolCallMessage)
    assert_type(sk.astream(other), sk.AsyncStreamManager)


def misuse() -> None:
    sk.stream([]).sse(on_disconnect="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    sk.stream([], print)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    sk.stream([], protocol=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    sk.stream(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    sk.stream([], handler=Right())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    for event in sk.stream([]):
        if event.type == "text_delta":  # applications declare further events, so this says nothing of the class
            str(event.value)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]
        match event:
            case sk.TextDelta(value=value):
                assert_type(value, str)
            case _:
                pass


def errors() -> str:
    try:
        return sk.stream([]).get_final_text()
    except sk.SourceTimeoutError as error:
        timeout: TimeoutError = error
        return str(timeout)
    except sk.StreamkitError as error:
        return "".join(message.content for message in error.messages)


def tool_outputs(state: sk.StreamState) -> Any:
    assert_type(sk.to_input(state.messages, "openai_chat"), list[Any])
    return None


def following(stream: sk.StreamState | None = None) -> Any:
    """One function for the first request and each one after it: both `source` and `then=`."""
    said = sk.to_input(stream.messages, "openai_responses") if stream is not None else []
    return client.responses.create(model="m", input=said, stream=True)


assert_type(sk.stream(following, then=following), sk.StreamManager)
assert_type(sk.astream(following, then=following), sk.AsyncStreamManager)


# -- openai's handlers: a subclass as it was written, with another import


class Stranded(AssistantEventHandler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    @override
    def on_event(self, event: beta_events.AssistantStreamEvent) -> None:
        if event.event == "thread.run.requires_action" and event.data.required_action is not None:
            for called in event.data.required_action.submit_tool_outputs.tool_calls:
                assert_type(called.function.arguments, str)

    @override
    def submit_tool_outputs(self, tool_outputs: list[dict[str, str]], run_id: str) -> None:
        """As in OpenAI's guide."""

    @override
    def on_text_created(self, text: beta.Text) -> None: ...

    @override
    def on_text_delta(self, delta: beta.TextDelta, snapshot: beta.Text) -> None:
        self.texts.append(delta.value or "")

    @override
    def on_message_done(self, message: beta.Message) -> None: ...

    @override
    def on_tool_call_delta(self, delta: ToolCallDelta, snapshot: ToolCall) -> None:
        if delta.type == "code_interpreter" and delta.code_interpreter:
            for output in delta.code_interpreter.outputs or []:
                if output.type == "logs":
                    assert_type(output.logs, str | None)

    @override
    def on_run_step_done(self, run_step: RunStep) -> None:
        assert_type(self.current_run, beta.Run | None)
        assert_type(self.stream, sk.StreamState)

    @override
    def on_confirmation(self, confirmation: sk.Confirmation) -> None:
        confirmation.decline()

    @override
    def on_exception(self, exception: Exception) -> None: ...

    @override
    def on_text_detla(self, delta: beta.TextDelta) -> None: ...  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]


class AsyncStranded(AsyncAssistantEventHandler):
    @override
    async def submit_tool_outputs(self, tool_outputs: list[dict[str, str]], run_id: str) -> None:
        """As in OpenAI's guide."""

    @override
    async def on_text_delta(self, delta: beta.TextDelta, snapshot: beta.Text) -> None: ...

    @override
    async def on_end(self) -> None: ...

    @override
    def on_timeout(self) -> None: ...  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]


def the_client_takes_it() -> None:
    with client.beta.threads.runs.stream(  # pyright: ignore[reportDeprecated]
        thread_id="t", assistant_id="a", event_handler=Stranded()
    ) as stream:
        assert_type(stream, Stranded)
        for text in stream.text_deltas:
            assert_type(text, str)
        for event in stream:
            assert_type(event.event == "error", bool)
        stream.until_done()
        assert_type(stream.get_final_run(), beta.Run)
        assert_type(stream.get_final_run_steps(), list[RunStep])
        assert_type(stream.get_final_messages(), list[beta.Message])
        stream.close()
    sk.stream(lambda: client.responses.create(model="m", input="x", stream=True), Stranded()).until_done()


async def the_async_client_takes_it() -> None:
    async with aclient.beta.threads.runs.stream(  # pyright: ignore[reportDeprecated]
        thread_id="t", assistant_id="a", event_handler=AsyncStranded()
    ) as stream:
        assert_type(stream, AsyncStranded)
        async for text in stream.text_deltas:
            assert_type(text, str)
        async for event in stream:
            assert_type(event.event == "error", bool)
        await stream.until_done()
        assert_type(await stream.get_final_messages(), list[beta.Message])
    await sk.astream(aclient.responses.create(model="m", input="x", stream=True), AsyncStranded()).until_done()


# -- agents


def get_weather(city: str) -> str:
    progress("asking")
    return city


async def get_news(topic: str, count: int = 3) -> list[str]:
    return [topic] * count


@sk.tool(name="send", confirm=True)
def send_mail(to: str) -> bool:
    return bool(to)


def an_agent(computer: Computer) -> None:
    agent = sk.Agent(
        client, model="m", tools=[get_weather, send_mail, {"name": "ask"}], computer=computer, temperature=0
    )
    assert_type(send_mail("a"), bool)
    assert_type(sk.tool(get_weather)(city="Oslo"), str)
    assert_type(agent.model, str)
    assert_type(agent.stream("x", Right(), sk.Recorder(Path("a.jsonl"))), sk.StreamManager)
    assert_type(agent.stream([{"role": "user", "type": "message", "content": "x"}]), sk.StreamManager)
    assert_type(agent.stream(Right()).get_final_messages(), list[sk.Message])
    assert_type(agent.messages, list[sk.Message])
    sk.Agent(client, model="m", auto_run=lambda code: code.language == "python").save(Path("talk.json"))
    for chunk in interpreter.chat("x", stream=True, display=False):
        assert_type(chunk, dict[str, Any])
    assert_type(interpreter.chat("x"), list[dict[str, Any]])


class Session:
    """As an MCP `ClientSession`, which the type checkers here do not have."""

    async def list_tools(self, *, params: object = None) -> object: ...
    async def call_tool(self, name: str, arguments: dict[str, Any] | None = None) -> object: ...


async def an_async_agent() -> None:
    assert_type(await mcp_tools(Session(), prefix="a_", only=["x"], confirm=bool), list[Tool[..., Any]])
    agent = sk.AsyncAgent(aclient, model="m", tools=[get_weather, get_news, Session()])
    async with agent.stream("x", AsyncRight(), max_tokens=5) as stream:
        assert_type(stream, sk.AsyncStreamManager)


def misused_agents() -> None:
    sk.Agent(client)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    sk.Agent(client, model="m", tools=["x"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    sk.Agent(client, model="m", computer=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    sk.Agent(client, model="m").stream(5)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    send_mail(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# -- typed output


@dataclass
class Weather:
    city: str


@dataclass
class News:
    title: str


def an_output() -> None:
    with sk.stream([], output_type=Weather) as stream:
        assert_type(stream, sk.StreamManager[Weather])
        assert_type(stream.partial_outputs, Iterator[sk.JsonValue])
        assert_type(stream.partial_output, sk.JsonValue | None)
        assert_type(stream.get_final_output(), Weather)
        stream.output_items()  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert_type(sk.stream([], output_type=dict[str, Weather]).get_final_output(), dict[str, Weather])
    listed = sk.stream([], output_type=list[Weather])
    assert_type(listed.get_final_output(), list[Weather])
    assert_type(listed.output_items(), Iterator[Weather])
    either: Weather | News = sk.stream([], output_type=Weather | News).get_final_output()
    assert_type(sk.stream([]).get_final_output(), Any)
    sk.stream([], output_type=Weather(""))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    try:
        print(either)
    except sk.OutputError as error:
        assert_type(error.reason, Literal["invalid", "missing", "refused", "incomplete", "requires_action"])
        assert_type(error.text, str)


async def an_async_output() -> None:
    stream = sk.astream([], output_type=list[Weather])
    assert_type(stream, sk.AsyncStreamManager[list[Weather]])
    async for item in stream.output_items():
        assert_type(item, Weather)
    assert_type(await stream.get_final_output(), list[Weather])


def an_agent_with_an_output() -> None:
    agent = sk.Agent(client, model="m", output_type=Weather, output_mode="prompt", output_retries=2)
    assert_type(agent, sk.Agent[Weather])
    assert_type(agent.stream("x").get_final_output(), Weather)
    assert_type(agent.stream("x", Right(), output_type=list[News]).output_items(), Iterator[News])
    assert_type(sk.Agent(client, model="m").stream("x"), sk.StreamManager[Any])
    sk.Agent(client, model="m", output_mode="tool")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def an_async_agent_with_an_output() -> None:
    agent = sk.AsyncAgent(aclient, model="m", output_type=Weather)
    assert_type(await agent.stream("x").get_final_output(), Weather)
    assert_type(await agent.stream(AsyncRight(), output_type=News).get_final_output(), News)
