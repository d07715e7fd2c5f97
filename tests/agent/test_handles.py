"""What an agent gives each of its streams."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import openai
import pytest

import streamkit as sk
from streamkit.agent import ToolContext, tool
from streamkit.testing import ModelServer, Reply, ToolCall

from ..faces import FACES, Face, async_faces, body, both_shells
from .parts import Approving, agent_on, every_provider, outputs_of


class Noting(sk.EventHandler):
    """Notes its name where a text is done."""

    def __init__(self, name: str, order: list[str]) -> None:
        self.name, self.order = name, order

    def on_text_done(self, message: sk.TextMessage) -> None:
        self.order.append(self.name)


@both_shells
@every_provider
@body
async def test_an_agents_handlers_get_every_stream_before_its_own(face: Face, provider: str) -> None:
    order: list[str] = []
    handlers = [Noting("first", order), Noting("second", order)]
    with ModelServer([Reply("One."), Reply("Two.")]) as server:
        async with agent_on(face, server, provider, handlers=handlers) as talker:
            await talker.say("Go.", Noting("own", order))
            await talker.say("Go on.")
    assert order == ["first", "second", "own", "first", "second"]


@async_faces
@body
async def test_an_async_agents_handlers_may_be_async(face: Face) -> None:
    order: list[str] = []

    class Async(sk.AsyncEventHandler):
        async def on_text_done(self, message: sk.TextMessage) -> None:
            order.append(message.content)

    with ModelServer(Reply("One.")) as server:
        async with agent_on(face, server, handlers=(Async(),)) as talker:
            await talker.say("Go.")
    assert order == ["One."]


@pytest.mark.parametrize("wrong", [sk.EventHandler(), [sk.EventHandler], ["x"], "x", None])
def test_handlers_are_a_list_of_handlers(wrong: Any) -> None:
    with pytest.raises(sk.UsageError, match="handler"):
        sk.Agent(openai.OpenAI(api_key="any"), model="m", handlers=wrong)


def test_an_agents_name_is_a_text() -> None:
    assert sk.Agent(openai.OpenAI(api_key="any"), model="m", name="weather").name == "weather"
    with pytest.raises(sk.UsageError, match="`name` is a `str`"):
        sk.Agent(openai.OpenAI(api_key="any"), model="m", name=5)  # type: ignore[arg-type]


FIRST = sk.Timeouts(first=1.5)
WAITS = [
    ("sync", "openai_responses", 1.5),
    ("asyncio", "openai_chat", 1.5),
    ("trio", "anthropic", 1.5),
    ("sync", "openai_chat", FIRST),
    ("asyncio", "anthropic", FIRST),
]


@pytest.mark.parametrize(("face", "provider", "timeouts"), [(FACES[face], *rest) for face, *rest in WAITS])
@body
async def test_an_agent_waits_so_long_for_its_model(face: Face, provider: str, timeouts: Any) -> None:
    """In each model call; a number is the total. Nothing of the failed answer is in the conversation."""
    silent = Reply("Never.", first_delay=30)
    with ModelServer([Reply(ToolCall("quick")), silent]) as server:
        async with agent_on(face, server, provider, tools=[quick], timeouts=timeouts) as talker:
            with pytest.raises(sk.SourceTimeoutError, match=r"1\.5 seconds"):
                await talker.say("Go.")
            assert len(server.requests) == 2
            assert talker.messages[-1].content == "done"


def quick() -> str:
    return "done"


@tool(confirm=True)
def slow() -> str:
    time.sleep(1.2)
    return "done"


@both_shells
@body
async def test_a_tool_takes_none_of_the_models_time(face: Face) -> None:
    """It has a time of its own: `tool(timeout=)`."""
    with ModelServer([Reply(ToolCall("slow")), Reply("Done.")]) as server:
        async with agent_on(face, server, tools=[slow], timeouts=sk.Timeouts(first=1, idle=1, total=1)) as talker:
            stream = await talker.say("Go.", Approving())
    assert (stream.status, talker.contents[-1]) == ("completed", ("message", "Done."))


class Shop:
    """What an application passes to its tools."""

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self.bought: list[Any] = []

    def __repr__(self) -> str:
        return self.secret


def buy(what: str, context: ToolContext[Shop], number: int = 1) -> str:
    """Buy something."""
    context.deps.bought.append((what, number, context.arguments))
    return "bought"


@both_shells
@every_provider
@body
async def test_tools_get_the_applications_own_object(face: Face, provider: str, tmp_path: Path) -> None:
    """That of this stream; it is in no request, no message and no recording."""
    one, other, path = Shop("s3cret"), Shop("s3cret"), tmp_path / "run.jsonl"
    replies = [
        Reply(ToolCall("buy", {"what": "tea", "number": "2"})),
        Reply("Done."),
        Reply(ToolCall("buy", {"what": "milk"})),
    ]
    with ModelServer([*replies, Reply("Done.")]) as server:
        async with agent_on(face, server, provider, tools=[buy]) as talker:
            await talker.say("Go.", sk.Recorder(path), deps=one)
            await talker.say(sk.EventHandler(), deps=other)
            messages = str([message.to_dict() for message in talker.messages])
        requests = str([request.content for request in server.requests])
    assert one.bought == [("tea", 2, {"what": "tea", "number": 2})]
    assert other.bought == [("milk", 1, {"what": "milk"})]
    for text in (messages, requests, path.read_text(), repr(ToolContext(None, None, one))):  # type: ignore[arg-type]
        assert "s3cret" not in text
    assert "context" not in requests


@both_shells
@body
async def test_without_an_object_there_is_none(face: Face) -> None:
    seen: list[object] = []

    def look(context: ToolContext) -> None:
        seen.append(context.deps)

    with ModelServer([Reply(ToolCall("look")), Reply("Done.")]) as server:
        async with agent_on(face, server, tools=[look]) as talker:
            await talker.say("Go.")
    assert seen == [None]


def pay(amount: int) -> str:
    return f"paid {amount}"


@both_shells
@every_provider
@body
async def test_a_function_decides_which_calls_are_confirmed(face: Face, provider: str) -> None:
    """By the arguments, which are checked already, and by the application's own object."""
    seen: list[Any] = []

    def is_much(context: ToolContext[int]) -> bool:
        seen.append(context.arguments["amount"])
        return bool(context.arguments["amount"] > context.deps)

    calls = [ToolCall("pay", {"amount": amount}) for amount in (5, "50", "much")]
    handler = Approving()
    with ModelServer([Reply(*calls), Reply("Done.")]) as server:
        async with agent_on(face, server, provider, tools=[tool(confirm=is_much)(pay)]) as talker:
            await talker.say("Go.", handler, deps=10)
        outputs = [*outputs_of(server.requests[1]).values()]
    assert (seen, len(handler.confirmations)) == ([5, 50], 1)
    assert outputs[:2] == ["paid 5", "paid 50"]
    assert outputs[2].startswith("Error: invalid arguments for pay")


@both_shells
@body
async def test_a_confirmed_call_is_checked_again_where_it_was_edited(face: Face) -> None:
    """The function is not asked again."""
    seen: list[Any] = []

    def always(context: ToolContext) -> bool:
        seen.append(context.arguments)
        return True

    with ModelServer([Reply(ToolCall("pay", {"amount": 5})), Reply("Done.")]) as server:
        async with agent_on(face, server, tools=[tool(confirm=always)(pay)]) as talker:
            await talker.say("Go.", Approving(edited='{"amount": "x"}'))
        (output,) = outputs_of(server.requests[1]).values()
    assert output.startswith("Error: invalid arguments for pay")
    assert seen == [{"amount": 5}]


def raises(context: ToolContext) -> bool:
    raise ValueError("no")


def exits(context: ToolContext) -> bool:
    raise SystemExit(3)


def says_nothing(context: ToolContext) -> Any:
    return None


@both_shells
@pytest.mark.parametrize(
    ("confirm", "fault"),
    [
        (raises, "ValueError: no"),
        (exits, "SystemExit: 3"),
        (says_nothing, "`confirm` of tool pay returned None, which is not a bool"),
    ],
)
@body
async def test_a_function_that_cannot_decide_fails_the_call(face: Face, confirm: Any, fault: str) -> None:
    """Nothing runs, and nobody is asked; the model reads it."""
    paid: list[int] = []

    def pay(amount: int) -> None:
        paid.append(amount)

    handler, warned = Approving(), face.told()
    with ModelServer([Reply(ToolCall("pay", {"amount": 5})), Reply("Done.")]) as server:
        async with agent_on(face, server, tools=[tool(confirm=confirm)(pay)]) as talker:
            stream = await talker.say("Go.", handler, warned)
        assert outputs_of(server.requests[1]) == {"call_1_0": f"Error: {fault}"}
    assert (paid, handler.confirmations, stream.status) == ([], [], "completed")
    assert [warning.fault for warning in warned.of("on_warning")] == [f"tool pay: {fault}"]


async def is_async(context: ToolContext) -> bool:
    return True


@pytest.mark.parametrize("wrong", [None, "yes", 1, is_async])
def test_whether_a_call_is_confirmed_is_a_bool_or_a_plain_function(wrong: Any) -> None:
    with pytest.raises(sk.UsageError, match="`confirm` is a bool or a plain function"):
        tool(confirm=wrong)(pay)
