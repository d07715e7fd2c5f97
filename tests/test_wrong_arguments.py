"""Wrong arguments: the error names the argument and what belongs in its place, before anything is opened or served."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import openai
import pytest

import streamkit as sk
from streamkit.computer import Computer
from streamkit.relay import RedisRelay, Relay
from streamkit.server import create_app
from streamkit.stores import MemoryStore, Store
from streamkit.testing import ModelServer, Reply, ToolCall

CLIENT = openai.OpenAI(api_key="none", base_url="http://127.0.0.1:1/v1")


class Silent(sk.EventHandler):
    """Overrides nothing."""


def forgets_to_return() -> None:
    """A function that makes a request, and has no `return`."""


def agent(**options: Any) -> sk.Agent:
    return sk.Agent(CLIENT, model="any", **options)


def computer(**options: Any) -> Computer:
    return Computer(**options)


def app(factory: Any = agent, **options: Any) -> Any:
    return create_app(factory, **{"token": "secret", **options})


def call(function: Callable[..., Any], **options: Any) -> Any:
    return function([], **options)


def read(**options: Any) -> Any:
    relay = sk.MemoryRelay()
    with sk.Emitter(relay, "run"):
        return relay.read("run", **options)


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "the class of a handler": (lambda: sk.stream([], Silent), "Silent is not a handler but the class of one; pass an object of it: Silent()"),
    "a list of handlers": (lambda: sk.stream([], [Silent()]), "handlers are passed one by one"),
    "a named handler": (lambda: call(sk.stream, event_handler=Silent()), "`stream` has no argument `event_handler`: handlers are passed after"),
    "named handlers": (lambda: call(sk.astream, handlers=[]), "`astream` has no argument `handlers`: handlers are passed after"),
    "a misspelt argument": (lambda: call(sk.stream, timeout=5), "`stream` has no argument `timeout`: did you mean `timeouts`?"),
    "an argument of something else": (lambda: call(sk.astream, model="m"), "`astream` has no argument `model`: there are `protocol`, `strict`, "),
    "a throttled class": (lambda: sk.Throttled(Silent, 1), "Silent is not a handler but the class of one; pass an object of it: Silent()"),
    "a function that returns nothing": (lambda: sk.stream(forgets_to_return).until_done(), "has `return`"),
    "tools that are one function": (lambda: agent(tools=forgets_to_return), "`tools` is a list of functions and schemas, not "),
    "tools that are a dict": (lambda: agent(tools={"name": "x"}), "`tools` is a list of functions and schemas, not "),
    "an input of bytes": (lambda: agent().stream(b"Hello"), "the input of a stream is a text or flat messages, not b'Hello'"),
    "an input of texts": (lambda: agent().stream(["Hello"]), "a message is a `Message` or a dict, not 'Hello'"),
    "OpenAI's parts": (
        lambda: agent().stream([{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]),
        "a message's 'content' is a str, not a list; a message is flat, so each part is a message of its own: [{",
    ),
    "messages that are texts": (lambda: sk.to_input(["Hello"], "openai_chat"), "a message is a `Message` or a dict, not 'Hello'"),
    "a relay that is a URL": (lambda: sk.Emitter("redis://localhost"), "`relay` is a `Relay`, not 'redis://localhost'"),
    "a run's id that is a number": (lambda: sk.Emitter(sk.MemoryRelay(), 5), "`run_id` is a `str`, not 5"),
    "a model that is no name": (lambda: sk.Emitter(model=5), "`model` is a `str`, not 5"),
    "a silence below 0": (lambda: sk.Emitter(timeout=-1), "`timeout` is a number of seconds from 0 on, or None, not -1"),
    "a reader's silence in words": (lambda: sk.Emitter().reader(timeout="1m"), "`timeout` is a number of seconds from 0 on, or None, not '1m'"),
    "a gap that is none": (lambda: read(gap="skip"), "`gap` is one of snapshot, error, not 'skip'"),
    "a limit in words": (lambda: sk.MemoryRelay(limit="5"), "`limit` is a whole number from 1 on, not '5'"),
    "half an event": (lambda: sk.MemoryRelay(limit=2.5), "`limit` is a whole number from 1 on, not 2.5"),
    "a relay's silence in words": (lambda: sk.MemoryRelay(timeout="1m"), "`timeout` is a number of seconds from 0 on, or None, not '1m'"),
    "a run's time to live in words": (lambda: sk.MemoryRelay(ttl_ended="1h"), "`ttl_ended` is a number of seconds from 0 on, not '1h'"),
    "an open run's time to live below 0": (lambda: sk.MemoryRelay(ttl_running=-1), "`ttl_running` is a number of seconds from 0 on, not -1"),
    "a paused run without a time to live": (lambda: sk.MemoryRelay(ttl_paused=None), "`ttl_paused` is a number of seconds from 0 on, not None"),
    "an emitted delta of a number": (lambda: sk.Emitter().emit(sk.TextDelta("m", 5)), "`value` of a TextDelta is a `str`, not 5"),
    "an emitted delta of message 5": (lambda: sk.Emitter().emit(sk.TextDelta(5, "a")), "`message_id` of a TextDelta is a `str`, not 5"),
    "an emitted message that is text": (lambda: sk.Emitter().emit(sk.TextDone("a")), "`message` is a `Message`, not 'a'"),
    "a language that is a number": (lambda: sk.Emitter().code("1", 5), "`language` is a `str`, not 5"),
    "a format that is a number": (lambda: sk.Emitter().reasoning("1", 5), "`format` is a `str`, not 5"),
    "a console's stream that is a number": (lambda: sk.Emitter().console("1", 1), "`stream` is a `str`, not 1"),
    "an emitted tool that is a function": (lambda: sk.Emitter().tool_call(computer, {}), "`name` is a `str`, not <function"),
    "a call's time limit in words": (lambda: sk.Emitter().tool_call("f", {}, timeout="1m"), "`timeout` is a number of seconds from 0 on, or None, not '1m'"),
    "a call's id that is a number": (lambda: sk.Emitter().tool_call("f", {}, call_id=5), "`call_id` is a `str`, not 5"),
    "a confirmation of an id": (lambda: sk.Emitter().confirm("message-1"), "`subject` is a `Message`, not 'message-1'"),
    "a confirmation's id that is a number": (lambda: sk.Emitter().confirm(id=5), "`id` is a `str`, not 5"),
    "a confirmation's time limit below 0": (lambda: sk.Emitter().confirm(timeout=-1), "`timeout` is a number of seconds from 0 on, or None, not -1"),
    "an agent in place of its factory": (lambda: app(agent()), "`factory` is a function that makes an agent, not <"),
    "an app's relay that is a URL": (lambda: app(relay="redis://localhost"), "`relay` is a `Relay`, not 'redis://localhost'"),
    "a store that is a path": (lambda: app(store="runs.db"), "`store` is a `Store`, not 'runs.db'"),
    "a token that is no str": (lambda: app(token=b"secret"), "`token` is a `str`, not b'secret'"),
    "an `authorize` that is a name": (lambda: app(authorize="ann"), "`authorize` is a function, not 'ann'"),
    "a number of runs in words": (lambda: app(max_runs="many"), "`max_runs` is a whole number from 0 on, not 'many'"),
    "a number of readers below 0": (lambda: app(max_readers=-1), "`max_readers` is a whole number from 0 on, not -1"),
    "a size with a unit": (lambda: app(max_body="4M"), "`max_body` is a whole number from 0 on, not '4M'"),
    "a pause in words": (lambda: app(pause_after="soon"), "`pause_after` is a number of seconds from 0 on, or None, not 'soon'"),
    "no steps": (lambda: agent(max_steps=0), "`max_steps` is a whole number from 1 on, not 0"),
    "an output limit below 0": (lambda: agent(output_limit=-1), "`output_limit` is a whole number from 0 on, not -1"),
    "a list of instructions": (lambda: agent(instructions=["Be brief."]), "`instructions` is a `str`, not ['Be brief.']"),
    "the class of a computer": (lambda: agent(computer=Computer), "`computer` is an object, not a class; pass Computer()"),
    "no computer": (lambda: agent(computer="python"), "`computer` is a `Computer`, or has its `languages`, `start` and `run`, not 'python'"),
    "a tool's name that is no str": (lambda: sk.tool(name=5)(agent), "`name` is a `str`, not 5"),
    "a time limit in words": (lambda: computer(timeout="1m"), "`timeout` is a number of seconds from 0 on, or None, not '1m'"),
    "a memory limit with a unit": (lambda: computer(memory_limit="1G"), "`memory_limit` is a whole number from 1 on, or None, not '1G'"),
    "an output limit with a unit": (lambda: computer(output_limit="1k"), "`output_limit` is a whole number from 0 on, or None, not '1k'"),
    "no processes": (lambda: computer(process_limit=0), "`process_limit` is a whole number from 1 on, or None, not 0"),
    "an input that is text": (lambda: computer(input="yes"), "`input` is a function, not 'yes'"),
    "an environment that is a list": (lambda: computer(env=["PATH"]), "`env` is a `Mapping`, not ['PATH']"),
    "code that is bytes": (lambda: computer().run("python", b"1"), "`code` is a `str`, not b'1'"),
    "a language that is None": (lambda: computer().run(None, "1"), "`language` is a `str`, not None"),
    "a run's time limit below 0": (lambda: computer().run("python", "1", timeout=-1), "`timeout` is a number of seconds from 0 on, or None, not -1"),
    "a run's input that is text": (lambda: computer().run("python", "1", input="yes"), "`input` is a function, not 'yes'"),
    "a runner that is text": (lambda: computer().register("ruby", "irb"), "`make_runner` is a function, not 'irb'"),
    "a log's limit of 0": (lambda: sk.MemoryRelay(limit=0), "`limit` is a whole number from 1 on, not 0"),
    "a log's limit that is text": (lambda: sk.MemoryRelay(limit="100"), "`limit` is a whole number from 1 on, not '100'"),
    "a relay's time limit in words": (lambda: sk.MemoryRelay(timeout="1m"), "`timeout` is a number of seconds from 0 on, or None, not '1m'"),
    "a time to live below 0": (lambda: sk.MemoryRelay(ttl_running=-1), "`ttl_running` is a number of seconds from 0 on, not -1"),
    "a log's limit of 0 on Redis": (lambda: RedisRelay("redis://127.0.0.1", limit=0), "`limit` is a whole number from 1 on, not 0"),
    "a lease below 0": (lambda: RedisRelay("redis://127.0.0.1", lease=-1), "`lease` is a number of seconds from 0 on, not -1"),
    "a time to live in words": (lambda: RedisRelay("redis://127.0.0.1", ttl_ended="1h"), "`ttl_ended` is a number of seconds from 0 on, not '1h'"),
    "a part of a reply": (lambda: Reply(5), "a part of a reply is a str or a `Part`, not 5"),
    "a body that is a str": (lambda: Reply(raw="data: 1"), "`raw` is bytes, or a sequence of bytes, not 'data: 1'"),
    "a list of parts": (lambda: Reply([ToolCall("f", {})]), "a part of a reply is a str or a `Part`, not [ToolCall("),
    "a script of text": (lambda: ModelServer("Hello"), "an entry of a script is a `Reply`, or a function that returns one, not 'Hello'"),
    "a script of texts": (lambda: ModelServer(["Hello"]), "an entry of a script is a `Reply`, or a function that returns one, not 'Hello'"),
    "a delay that is a str": (lambda: Reply("a", delay="1"), "`delay` is a number of seconds from 0 on, not '1'"),
    "a delay below 0": (lambda: Reply("a", first_delay=-1), "`first_delay` is a number of seconds from 0 on, not -1"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_named(case: str) -> None:
    call, text = WRONG[case]
    with pytest.raises(sk.UsageError, match=re.escape(text)):
        call()


def test_a_script_whose_function_returns_no_reply_says_so_to_the_client() -> None:
    with (
        ModelServer(lambda request: "Hello") as server,
        openai.OpenAI(base_url=server.url, api_key="none") as client,
        pytest.raises(openai.BadRequestError, match="returns a `Reply`, not 'Hello'"),
    ):
        client.responses.create(model="any", input="Hello!")


def test_one_host_may_be_a_str() -> None:
    """A str is a sequence of its letters: none of them is a host."""
    from starlette.testclient import TestClient

    with TestClient(app(allowed_hosts="example.org"), base_url="http://example.org") as http:
        assert http.get("/runs", headers={"Authorization": "Bearer secret"}).json()["runs"] == []


def test_a_message_with_a_wrong_content_can_be_shown() -> None:
    """As a debugger or a failing test does, which looks for the fault."""
    content: Any = 5
    assert repr(sk.TextMessage("m", content=content)) == "<TextMessage m assistant completed '5'>"


PLAIN = [
    (argument, made, name)
    for argument, kind, made in (("relay", Relay, sk.MemoryRelay), ("store", Store, MemoryStore))
    for name, function in inspect.getmembers(kind, inspect.isfunction)
    if not name.startswith("_") and not inspect.iscoroutinefunction(function)
]


@pytest.mark.parametrize(("argument", "kind", "method"), PLAIN, ids=[f"{one[0]}.{one[2]}" for one in PLAIN])
def test_a_relay_or_a_store_with_an_async_method_in_place_of_a_plain_one_is_refused(
    argument: str, kind: type, method: str
) -> None:
    """Nobody would await it: what was saved would be lost. Those for tasks may be replaced."""

    async def replaced(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("it was called")

    with pytest.raises(sk.UsageError, match=f"`{argument}`: Own.{method} is `async def`"):
        app(**{argument: type("Own", (kind,), {method: replaced})()})
    app(**{argument: type("Own", (kind,), {"aget": replaced})()})
