"""Letta's server interfaces: what an agent does, queued and streamed, from any thread, on asyncio and trio."""

from __future__ import annotations

import ast
import gc
import itertools
import json
import math
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamkit as sk
from streamkit.compat.letta import (
    FunctionArgumentsStreamHandler,
    MessageStreamStatus,
    QueuingInterface,
    StreamingServerInterface,
)
from streamkit.testing import ModelServer, Reply, ToolCall

from .faces import Face, async_faces, body, is_soon
from .telling import recordings
from .test_compat_letta import SHAPES, as_namespace, chunk

NOW = datetime(2024, 9, 23, 8, 32, 49, 123456, UTC)
ISO = "2024-09-23T08:32:49+00:00"


def message(id: str = "m1", *calls: tuple[str, str, str], **more: Any) -> Any:
    """A message of an agent's."""
    told = [{"id": a, "function": {"name": b, "arguments": c}} for a, b, c in calls]
    return SimpleNamespace(id=id, created_at=NOW, tool_calls=[as_namespace(call) for call in told] or None, **more)


SEND = ("c1", "send_message", '{"message": "Hi"}')


async def read(interface: StreamingServerInterface, **options: Any) -> list[Any]:
    return [item async for item in interface.get_generator(**options)]


def items(interface: StreamingServerInterface, **options: Any) -> list[Any]:
    """All that a stream that has ended told."""
    return anyio.run(lambda: read(interface, **options))


def api(interface: QueuingInterface, style: Any = "api") -> list[Any]:
    async def take() -> list[Any]:
        return [item async for item in interface.message_generator(style)]

    return anyio.run(take)


# -- one argument of a call


def pieces_of(text: str, cuts: Iterable[int]) -> list[str]:
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(places)]


def read_argument(pieces: Iterable[str], key: str = "message") -> str:
    handler = FunctionArgumentsStreamHandler(json_key=key)
    return "".join(filter(None, map(handler.process_json_chunk, pieces)))


@pytest.mark.slow
@given(
    st.dictionaries(
        st.text(max_size=8) | st.just("message"), st.text() | st.integers() | st.lists(st.text(max_size=3))
    ),
    st.text(),
    st.sampled_from([None, 2]),
    st.booleans(),
    st.lists(st.integers(min_value=0), max_size=20),
)
@settings(max_examples=100, deadline=None)
def test_the_argument_is_what_json_says(
    rest: dict[str, Any], said: str, indent: int | None, ascii: bool, cuts: list[int]
) -> None:
    """At any cut, wherever the key stands. The class that this was gave something else for 92 % of such cases."""
    text = json.dumps({**rest, "message": said}, indent=indent, ensure_ascii=ascii)
    assert read_argument(pieces_of(text, cuts)) == said


ARGUMENTS: list[Any] = [
    ("whole at once", ['{"message": "Hi"}'], "Hi"),
    ("quotes, braces and escapes", ['{"message": "a\\', '"}b\\n', 'c"}'], 'a"}b\nc'),
    ("a pair of surrogates, cut", ['{"message": "\\ud83d', '\\ude00"}'], "\U0001f600"),
    ("another key with its name in it", ['{"message_id": "x", "x": "message", "message": "Hi"}'], "Hi"),
    ("further keys", ['{"message": "Hi", "request_heartbeat": true}'], "Hi"),
    ("deeper", ['{"a": {"message": "no"}, "message": "Hi"}'], "Hi"),
    ("no text", ['{"message": 5}'], ""),
    ("twice: what was said stays", ['{"message": "a", "message": "b"}'], "a"),
    ("none", ['{"other": "x"}'], ""),
    ("nothing", ["", ""], ""),
]


@pytest.mark.parametrize(("pieces", "text"), [pytest.param(*case[1:], id=case[0]) for case in ARGUMENTS])
def test_arguments_as_models_write_them(pieces: list[str], text: str) -> None:
    """Cut as said, and at every character."""
    assert read_argument(pieces) == text
    assert read_argument("".join(pieces)) == text


def test_what_tells_nothing_is_none_and_a_reset_begins_anew() -> None:
    """As in the class that this was; a key may have a dot."""
    handler = FunctionArgumentsStreamHandler("a.b")
    assert handler.process_json_chunk('{"a.b": ') is None
    assert handler.process_json_chunk('"x') == "x"
    handler.reset()
    assert handler.process_json_chunk('{"a.b": "y"}') == "y"
    assert handler.error is None
    assert handler.process_json_chunk("}") is None
    assert handler.error


@pytest.mark.parametrize("path", recordings("letta"))
def test_recorded_arguments_give_what_was_said(path: Any) -> None:
    """The calls of Letta's own servers, piece by piece."""
    calls: dict[str, list[str]] = {}
    for item in data_of(path):
        call = (
            item.get("tool_calls") or item.get("tool_call") or item.get("function_call") or {} if is_dict(item) else {}
        )
        for piece in call if isinstance(call, list) else [call]:
            if is_dict(piece) and piece.get("arguments"):
                calls.setdefault(piece.get("tool_call_id") or "", []).append(piece["arguments"])
    for pieces in calls.values():
        try:
            said = json.loads("".join(pieces))
        except ValueError:
            continue
        for key in said:
            if isinstance(said[key], str):
                assert read_argument(pieces, key) == said[key]


def is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def data_of(path: Any) -> list[Any]:
    """The items of a recording; marks such as `[DONE]` are text."""
    told: list[Any] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("data: "):
            text = line.removeprefix("data: ")
            told.append(text if text.startswith("[DONE") else json.loads(text))
    return told


# -- the queue


def queue(**options: Any) -> QueuingInterface:
    return QueuingInterface(**{"debug": False, **options})


PUSHED: list[Any] = [
    ("internal_monologue", ("hm",), {"internal_monologue": "hm"}),
    ("assistant_message", ("Hi",), {"assistant_message": "Hi"}),
    ("function_message", ("Running f({'a': 'is Running '})",), {"function_call": "f({'a': 'is Running '})"}),
    ("function_message", ("Success: a Success: b",), {"function_return": "a Success: b", "status": "success"}),
    ("function_message", ("Error: no Error: x",), {"function_return": "no Error: x", "status": "error"}),
    ("function_message", ("what",), {"function_message": "what"}),
]  # fmt: skip


@pytest.mark.parametrize(("method", "arguments", "told"), PUSHED)
def test_what_is_pushed_is_queued(method: str, arguments: tuple[str], told: dict[str, Any]) -> None:
    """In both styles, with the message's id and date; a word of MemGPT's inside the text stays there."""
    interface = queue()
    given_ = message()
    getattr(interface, method)(*arguments, given_)
    getattr(interface, method)(*arguments, given_)
    assert interface.to_list("obj") == [given_]
    getattr(interface, method)(*arguments, given_)
    item = {**told, "id": "m1", "date": NOW.isoformat()}
    assert interface.to_list(style="api") == [item]
    assert interface.to_list("api") == interface.to_list() == []


def test_ran_is_queued_where_it_is_asked_for() -> None:
    """It says nothing new."""
    interface = queue()
    interface.function_message("Ran f()", message())
    interface.function_message("Ran f()", message(), include_ran_messages=True)
    assert [item["function_call"] for item in interface.to_list("api")] == ["Function call returned: f()"]


def test_a_list_has_each_message_once() -> None:
    """Where it was pushed last, as the copy that was pushed last; what has no id is told apart by itself."""
    interface = queue()
    first, again, other = message("a"), message("a"), {"id": "b", "created_at": 0.5}
    nameless = {"role": "tool"}, {"role": "tool"}
    interface.internal_monologue("1", first)
    interface.internal_monologue("2", other)
    for one in nameless:
        interface.internal_monologue("-", one)
    interface.function_message("Running f()", again)
    interface.step_yield()
    taken = interface.to_list()
    assert [id(one) for one in taken] == [id(one) for one in (other, *nameless, again)]
    interface.internal_monologue("2", other)
    assert interface.to_list("api") == [
        {"internal_monologue": "2", "id": "b", "date": "1970-01-01T00:00:00.500000+00:00"}
    ]


def test_a_list_never_says_stop() -> None:
    """Of one turn or several; a lone one was given as text."""
    interface = queue()
    interface.step_yield()
    assert interface.to_list("api") == []
    for text in ("a", "b"):
        interface.internal_monologue(text, message())
        interface.step_complete()
        interface.step_yield()
    assert [item["internal_monologue"] for item in interface.to_list("api")] == ["a", "b"]


def test_what_was_said_belongs_to_the_message_before() -> None:
    """Taken already or not; it was looked for at the end of the queue, where nothing may be, or a stop."""
    interface = queue()
    with pytest.raises(sk.UsageError, match="message before"):
        interface.assistant_message("Hi")
    given_ = message()
    interface.function_message("Running send_message()", given_)
    assert len(interface.to_list("api")) == 1
    interface.step_yield()
    interface.assistant_message("Hi")
    assert interface.to_list("api") == [{"assistant_message": "Hi", "id": "m1", "date": NOW.isoformat()}]
    interface.assistant_message("Hi")
    assert interface.to_list("obj") == [given_]


DATES: list[Any] = [
    (NOW.replace(tzinfo=None), NOW.isoformat()),
    (NOW.astimezone(timezone(timedelta(hours=2))), NOW.isoformat()),
    (0, "1970-01-01T00:00:00+00:00"),
    ("2024", "2024"),
    (None, None),
    (math.nan, None),
    ([], None),
]


@pytest.mark.parametrize(("given_", "date"), DATES)
def test_dates_are_in_utc(given_: Any, date: str | None) -> None:
    """Others, and those without a zone, were refused."""
    interface = queue()
    interface.internal_monologue("hm", {"id": 5, "created_at": given_})
    assert interface.to_list("api") == [{"internal_monologue": "hm", "id": "5", **({"date": date} if date else {})}]


def test_our_own_messages_are_queued() -> None:
    """They know their time as a number."""
    interface = queue()
    own = sk.ReasoningMessage("r", content="hm", created_at=NOW.timestamp())
    interface.internal_monologue("hm", own)
    assert interface.to_list("api") == [{"internal_monologue": "hm", "id": "r", "date": NOW.isoformat()}]
    interface.internal_monologue("hm", own)
    assert interface.to_list() == [own]


def test_misuse_is_told() -> None:
    """A style that there is not, whatever waits; a message without its object; a full queue."""
    interface = queue(limit=2)
    for take in (interface.to_list, interface.message_generator):
        with pytest.raises(sk.UsageError, match="no style 'json'"):
            take("json")  # type: ignore[operator]
    for method in (interface.user_message, interface.internal_monologue, interface.function_message):
        with pytest.raises(sk.UsageError, match="needs msg_obj"):
            method("x")
    for _ in range(2):
        interface.internal_monologue("x", message())
    with pytest.raises(sk.UsageError, match="its limit"):
        interface.internal_monologue("x", message())
    interface.step_yield()
    assert len(api(interface)) == 2
    with pytest.raises(sk.UsageError, match="at least 1"):
        QueuingInterface(limit=0)


def test_clear_forgets_all() -> None:
    """Of what nobody took."""
    interface = queue()
    interface.internal_monologue("x", message())
    interface.error("bad")
    interface.clear()
    assert interface.to_list() == []


def test_debug_prints_what_is_pushed(capsys: pytest.CaptureFixture[str]) -> None:
    """By default; whatever the message is made of. Nothing of it is obeyed by a terminal."""
    interface = QueuingInterface()
    interface.user_message("hello", {"id": "u"})
    interface.internal_monologue("\x1b[2J", sk.TextMessage("m", content="x", created_at=0))
    assert capsys.readouterr().out.splitlines() == [
        "hello",
        "{'id': 'u'}",
        "␛[2J",
        "{'id': 'm', 'role': 'assistant', 'type': 'message', 'content': 'x'}",
        "1970-01-01T00:00:00+00:00",
    ]
    assert len(interface.to_list()) == 1


def test_a_failed_turn_is_told() -> None:
    """As an item in style `api`; style `obj`, which told it as None or not at all, raises."""
    interface = queue()

    def fail() -> None:
        interface.internal_monologue("x", message())
        interface.error("bad")

    fail()
    assert api(interface)[1:] == [{"internal_error": "bad"}]
    fail()
    with pytest.raises(sk.RunFailedError, match="bad"):
        api(interface, "obj")
    fail()
    assert interface.to_list("api")[1:] == [{"internal_error": "bad"}]
    fail()
    with pytest.raises(sk.RunFailedError, match="bad"):
        interface.to_list()
    assert [one.id for one in interface.to_list()] == ["m1"]
    interface.step_yield()
    assert api(interface) == []


@async_faces
@body
async def test_a_queue_is_read_while_it_is_filled(face: Face) -> None:
    """From a thread; each message as it is pushed, with no polling between."""

    async def delay() -> float:
        interface = queue()
        late: list[float] = []

        def agent() -> None:
            for number in range(3):
                time.sleep(0.05)
                interface.internal_monologue(str(time.monotonic()), message(str(number)))
            interface.step_yield()

        async with face.beside(agent):
            async for item in interface.message_generator("api"):
                late.append(time.monotonic() - float(item["internal_monologue"]))
        assert len(late) == 3
        return max(late)

    await is_soon(delay)


@async_faces
@body
async def test_several_generators_share_a_queue(face: Face) -> None:
    """Each message goes to one; a stop ends one."""
    interface = queue()
    taken: list[str] = []

    async def take() -> None:
        async for one in interface.message_generator():
            taken.append(one.id)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take)
        tasks.start_soon(take)
        await anyio.sleep(0.01)
        for number in range(100):
            interface.internal_monologue("x", message(str(number)))
        interface.step_yield()
        interface.step_yield()
    assert sorted(taken, key=int) == [str(number) for number in range(100)]


@async_faces
@body
async def test_a_silent_agent_is_a_timeout(face: Face) -> None:
    """On both interfaces; it was told as success, or for ever not."""
    interface = StreamingServerInterface(timeout=0.05)
    for generator in (queue(timeout=0.05).message_generator(), interface.get_generator()):
        with pytest.raises(sk.SourceTimeoutError):
            await anext(generator)


@async_faces
@body
async def test_a_cancelled_reader_takes_nothing(face: Face) -> None:
    """What is pushed afterwards is there for the next one."""
    interface = queue()
    with anyio.move_on_after(0.02):
        await anext(interface.message_generator())
    interface.internal_monologue("x", message())
    assert len(interface.to_list()) == 1


# -- the server's stream


def item(kind: str, value: Any, id: str = "m1", **more: Any) -> dict[str, Any]:
    return {"id": id, "date": ISO, "message_type": kind, kind: value, **more}


def step(interface: StreamingServerInterface, number: int = 1) -> None:
    """A step, told whole."""
    given_ = message(f"m{number}", SEND)
    interface.stream_start()
    interface.stream_end()
    interface.internal_monologue("hm", given_)
    interface.function_message("Running send_message({'message': 'Hi'})", given_)
    interface.assistant_message("Hi", given_)
    interface.function_message("Ran send_message({'message': 'Hi'})", given_)
    interface.function_message("Success: None", message(f"r{number}", tool_call_id="c1"))
    interface.step_complete()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_marks_are_members_of_their_enum(backend: str) -> None:
    """Which a route's own filter looks for; they are texts as well."""
    interface = StreamingServerInterface()
    interface.stream_start()
    interface.stream_end()
    interface.step_complete()
    interface.step_yield()

    async def marks() -> list[Any]:
        return [item async for item in interface.get_generator(finish_message=True)]

    found = anyio.run(marks, backend=backend)
    assert found == ["[DONE_GEN]", "[DONE_STEP]", "[DONE]"]
    assert all(isinstance(mark, MessageStreamStatus) for mark in found)


CALLED = {"name": "send_message", "arguments": '{"message": "Hi"}', "function_call_id": "c1"}


def told(number: int = 1) -> list[Any]:
    returned = item("function_return", "None", f"r{number}", status="success", function_call_id="c1")
    thought, call = item("internal_monologue", "hm", f"m{number}"), item("function_call", CALLED, f"m{number}")
    return ["[DONE_GEN]", thought, call, returned, "[DONE_STEP]"]


def test_a_step_is_told_whole() -> None:
    """Where answers are not streamed: what was thought, the call, what it gave; then the marks."""
    interface = StreamingServerInterface()
    step(interface)
    step(interface, 2)
    interface.step_yield()
    assert items(interface) == [*told(), *told(2)]
    assert items(interface, finish_message=True) == [*told(), *told(2), MessageStreamStatus.done]
    assert str(MessageStreamStatus.done) == "[DONE]"


def test_a_single_step_ends_the_stream() -> None:
    """Where `multi_step` is off; the agent's yield after it changes nothing."""
    interface = StreamingServerInterface(multi_step=False)
    step(interface)
    interface.step_yield()
    interface.stream_end()
    assert items(interface) == told()[:-1]
    with pytest.raises(sk.UsageError, match="has ended"):
        interface.internal_monologue("hm", message())
    interface.stream_start()
    step(interface, 2)
    assert items(interface) == told(2)[:-1]


def test_the_legacy_mode_tells_a_call_as_text() -> None:
    """And after it what it says; nothing stands between steps."""
    interface = StreamingServerInterface()
    interface.nonstreaming_legacy_mode = True
    step(interface)
    interface.function_message("Running f(oh)", message("m2", ("c", "f", "oh")))
    interface.function_message("Running send_message({})", message("m3", ("c", "send_message", '{"message": 5}')))
    interface.step_yield()
    text = "send_message({'message': 'Hi'})"
    assert items(interface) == [
        item("internal_monologue", "hm"),
        {"id": "m1", "date": ISO, "function_call": text},
        item("assistant_message", "Hi"),
        item("function_return", "None", "r1", status="success", function_call_id="c1"),
        {"id": "m2", "date": ISO, "function_call": "f(oh)"},
        {"id": "m3", "date": ISO, "function_call": "send_message({'message': 5})"},
    ]


ANSWER = [
    chunk("", role="assistant"),
    chunk("h"),
    chunk("m"),
    chunk(calls=[(0, "c1", "send_message", "")]),
    chunk(calls=[(0, None, None, '{"message":')]),
    chunk(calls=[(0, None, None, ' "Hi"}')]),
    chunk(finish_reason="tool_calls"),
    {"choices": []},
]


def stream_step(interface: StreamingServerInterface, chunks: Iterable[Any] = ANSWER) -> None:
    """A step whose answer is streamed."""
    interface.stream_start()
    for one in chunks:
        interface.process_chunk(one, message_id="m1", message_date=NOW)
    interface.stream_end()
    given_ = message("m1", SEND)
    interface.internal_monologue("hm", given_)
    interface.function_message("Running send_message({'message': 'Hi'})", given_)
    interface.function_message("Error: no Error: x", message("r1", tool_call_id="c1"))
    interface.step_complete()


@pytest.mark.parametrize("shape", SHAPES)
def test_an_answer_is_told_piece_by_piece(shape: Callable[[Any], Any]) -> None:
    """In the streaming mode; what the other methods tell of the answer is left out, what is empty, too."""
    interface = StreamingServerInterface()
    interface.streaming_mode = True
    stream_step(interface, map(shape, ANSWER[:-1]))
    interface.step_yield()
    known = {"function_call_id": "c1"}
    assert items(interface) == [
        item("internal_monologue", "h"),
        item("internal_monologue", "m"),
        item("function_call", {"name": "send_message", **known}),
        item("function_call", {"arguments": '{"message":', **known}),
        item("function_call", {"arguments": ' "Hi"}', **known}),
        "[DONE_GEN]",
        item("function_return", "no Error: x", "r1", status="error", function_call_id="c1"),
        "[DONE_STEP]",
    ]


def test_calls_side_by_side_are_kept_apart() -> None:
    """All but the first were lost. Whole, each is told once, by its name and its turn."""
    interface = StreamingServerInterface()
    interface.streaming_mode = True
    interface.process_chunk(chunk(calls=[(0, "a", "f", "{"), (1, "b", "f", "{")]), "m1", NOW)
    interface.process_chunk(chunk(calls=[(1, None, None, "}"), (0, None, None, "}")]), "m1", NOW)
    interface.streaming_mode = False
    both = message("m2", ("a", "f", "{}"), ("b", "g", "[]"), ("c", "f", '{"n":1}'))
    for text in ("Running g()", "Running f()", "Running f()", "Running other(x)"):
        interface.function_message(text, both)
    interface.function_message("Running h({'a': (1)})", {"id": "m3"})
    interface.step_yield()
    calls = [one["function_call"] for one in items(interface)]
    assert [(one["function_call_id"], one["arguments"]) for one in calls[:4]] == [
        ("a", "{"), ("b", "{"), ("b", "}"), ("a", "}")
    ]  # fmt: skip
    assert [one.get("function_call_id") for one in calls[4:]] == ["b", "a", "c", "a", None]
    assert calls[-1] == {"name": "h", "arguments": "{'a': (1)}"}


def test_function_messages_of_another_kind_are_refused() -> None:
    """And those without a message, whose id and date they need."""
    interface = StreamingServerInterface()
    with pytest.raises(sk.UsageError, match="'Running …'"):
        interface.function_message("what", message())
    for method in (interface.internal_monologue, interface.function_message):
        with pytest.raises(sk.UsageError, match="needs msg_obj"):
            method("Running f()")


@pytest.mark.slow
@async_faces
@body
async def test_the_first_token_comes_at_once(face: Face) -> None:
    """From another thread, to a loop that does nothing else. It came when the run was over."""

    async def delay() -> float:
        interface = StreamingServerInterface()
        interface.streaming_mode = True
        late: list[float] = []
        begun = threading.Event()

        def agent() -> None:
            begun.wait(5)
            time.sleep(0.05)
            with interface:
                for _ in range(3):
                    interface.process_chunk(chunk(str(time.monotonic())), "m1", NOW)
                    time.sleep(0.15)

        async with face.beside(agent):
            begun.set()
            async for one in interface.get_generator():
                late.append(time.monotonic() - float(one["internal_monologue"]))
        assert len(late) == 3
        return max(late)

    await is_soon(delay)


@async_faces
@body
async def test_any_number_of_generators_read_it(face: Face) -> None:
    """Early, late and after the end, each from the beginning; what one does with an item is its own."""
    interface = StreamingServerInterface()
    read_: list[list[Any]] = []

    async def take() -> None:
        own: list[Any] = []
        read_.append(own)
        async for one in interface.get_generator():
            own.append(dict(one) if isinstance(one, dict) else one)
            if isinstance(one, dict):
                one.clear()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take)
        await anyio.sleep(0.01)
        step(interface)
        tasks.start_soon(take)
        await anyio.sleep(0.01)
        interface.step_yield()
    await take()
    assert read_ == [told()] * 3


@pytest.mark.parametrize("chat", [False, True], ids=["letta", "chat"])
@async_faces
@body
async def test_an_agent_that_fails_is_told(face: Face, chat: bool) -> None:
    """After what arrived. It was told as success, when the time was over."""
    interface = StreamingServerInterface()
    interface.streaming_mode, interface.streaming_chat_completion_mode = True, chat

    def agent() -> None:
        with pytest.raises(KeyError), interface:
            for one in ANSWER[:6]:
                interface.process_chunk(one, "m1", NOW)
            raise KeyError("oops")

    arrived: list[Any] = []
    async with face.beside(agent):
        with pytest.raises(sk.SourceError, match="KeyError: 'oops'"):
            async for one in interface.get_generator(finish_message=True):
                arrived.append(one)
    assert len(arrived) == (3 if chat else 5)
    interface.step_yield()
    other = StreamingServerInterface()
    other.error("bad")
    with pytest.raises(sk.SourceError, match="bad"):
        await anext(other.get_generator())


@pytest.mark.slow
@async_faces
@body
async def test_an_agent_that_dies_is_told(face: Face) -> None:
    """Where nobody has its interface any more."""
    interface = StreamingServerInterface(timeout=None)
    interface.internal_monologue("hm", message())
    generator = interface.get_generator()
    assert await anext(generator) == item("internal_monologue", "hm")
    del interface
    gc.collect()
    with pytest.raises(sk.SourceError, match="gone"):
        await anext(generator)


@async_faces
@body
async def test_a_reader_that_leaves_changes_nothing(face: Face) -> None:
    """For the agent, or for others."""
    interface = StreamingServerInterface()
    step(interface)
    generator = interface.get_generator()
    await anext(generator)
    await generator.aclose()
    with anyio.move_on_after(0.02):
        async for _ in interface.get_generator():
            pass
    step(interface, 2)
    interface.clear()
    interface.step_yield()
    assert await read(interface) == [*told(), *told(2)]


@pytest.mark.parametrize("chat", [False, True], ids=["letta", "chat"])
def test_the_log_is_bounded(chat: bool) -> None:
    """Who comes so late that the first of it is gone is told so; the agent never waits."""
    interface = StreamingServerInterface(limit=64)
    interface.streaming_mode, interface.streaming_chat_completion_mode = True, chat
    for number in range(2000):
        interface.heartbeat()
        said = '{"message": "x"}' if chat else "y"
        interface.process_chunk(chunk(calls=[(0, str(number), "send_message", said)]), "m1", NOW)
    interface.step_yield()
    if chat:
        said = "".join(one["choices"][0]["delta"].get("content", "") for one in items(interface))
        assert said == "\n\n".join("x" * 2000)  # one text, whose pieces are joined
        return
    with pytest.raises(sk.SourceError, match="too late") as raised:
        items(interface)
    assert raised.value.status_code == 410


# -- chat completions


def chat_interface(*, streaming: bool = True) -> StreamingServerInterface:
    interface = StreamingServerInterface()
    interface.streaming_mode = streaming
    interface.streaming_chat_completion_mode = True
    return interface


def said_in(chunks: list[Any]) -> str:
    return "".join(one["choices"][0]["delta"].get("content") or "" for one in chunks)


@pytest.mark.parametrize("streaming", [True, False], ids=["pieces", "whole"])
def test_what_is_said_is_plain_chat_content(streaming: bool) -> None:
    """One answer of the assistant's: no thoughts, no calls, one end. `send_message` in any pieces of its name."""
    interface = chat_interface(streaming=streaming)
    if streaming:
        named = [chunk(calls=[(0, "c1", "send_", "")]), chunk(calls=[(0, None, "message", None)])]
        stream_step(interface, [*ANSWER[:3], *named, *ANSWER[4:], chunk(calls=[(1, "c2", "f", '{"message": "no"}')])])
    else:
        step(interface)
    interface.step_yield()
    chunks = items(interface)
    assert said_in(chunks) == "Hi"
    assert {one["object"] for one in chunks} == {"chat.completion.chunk"}
    assert len({one["id"] for one in chunks}) == 1
    assert {one["model"] for one in chunks[1:]} == ({"gpt-4"} if streaming else {""})
    assert [one["choices"][0]["finish_reason"] for one in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert not any("tool_calls" in one["choices"][0]["delta"] for one in chunks)
    text = sk.stream(chunks).get_final_text()
    assert text == "Hi"


def test_what_is_said_in_several_steps_is_one_answer() -> None:
    """With an empty line between; in one step, too."""
    interface = chat_interface()
    stream_step(interface)
    stream_step(interface)
    interface.stream_start()
    interface.process_chunk(
        chunk(calls=[(0, "x", "send_message", '{"message":"a"}'), (1, "y", "send_message", '{"message":"b"}')])
    )
    interface.process_chunk(chunk(calls=[(0, "z", "send_message", '{"message":"c"}')]))
    interface.stream_end()
    interface.step_yield()
    assert said_in(items(interface)) == "Hi\n\nHi\n\na\n\nb\n\nc"


def test_openais_client_reads_it() -> None:
    """As chunks of its own type."""
    from openai.types.chat import ChatCompletionChunk

    interface = chat_interface()
    stream_step(interface)
    interface.step_yield()
    *chunks, done = items(interface, finish_message=True)
    assert done == "[DONE]"
    assert "".join(ChatCompletionChunk.model_validate(one).choices[0].delta.content or "" for one in chunks) == "Hi"


def test_arguments_that_are_no_json_say_what_they_can() -> None:
    """And the stream goes on."""
    interface = chat_interface()
    interface.process_chunk(chunk(calls=[(0, "a", "send_message", '{"message": "Hi \n there"}')]))
    interface.process_chunk(chunk(calls=[(0, "b", "send_message", '{"message": "so"}')]))
    interface.step_yield()
    assert said_in(items(interface)) == "Hi \n\nso"


# -- with the rest of streamkit


@async_faces
@body
async def test_a_generator_is_a_source(face: Face) -> None:
    """Of a stream with hooks."""
    interface = StreamingServerInterface()
    interface.streaming_mode = True
    stream_step(interface)
    interface.streaming_mode = False
    step(interface, 2)
    interface.step_yield()
    stream = sk.astream(interface.get_generator(finish_message=True))
    await stream.until_done()
    assert [(one.type, one.name, one.content) for one in stream.messages] == [
        ("reasoning", None, "hm"),
        ("tool_call", "send_message", '{"message": "Hi"}'),
        ("tool_output", "send_message", "no Error: x"),
        ("reasoning", None, "hm"),
        ("tool_call", "send_message", '{"message": "Hi"}'),
        ("tool_output", "send_message", "None"),
    ]
    assert stream.warnings == ()
    assert len(await stream.get_final_run_steps()) == 2


@async_faces
@body
async def test_an_agent_in_a_thread_serves_a_client(face: Face) -> None:
    """From a real model's answers, over HTTP, to plain chat content: two steps, the second one says it."""
    replies = [Reply(ToolCall("recall", {"message": "no"})), Reply(ToolCall("send_message", {"message": "Hello you"}))]
    interface = chat_interface()

    def agent(url: str) -> None:
        with openai.OpenAI(base_url=url, api_key="none") as client, interface:
            for number in range(2):
                interface.stream_start()
                asked: Any = [{"role": "user", "content": "Hi"}]
                for one in client.chat.completions.create(model="m", messages=asked, stream=True):
                    interface.process_chunk(one, f"m{number}", NOW)
                interface.stream_end()
                interface.step_complete()

    with ModelServer(replies) as server:
        async with face.beside(lambda: agent(server.url)):
            stream = sk.astream(interface.get_generator(finish_message=True))
            assert await stream.get_final_text() == "Hello you"
    assert stream.warnings == ()
    assert stream.status == "completed"


IN_STEPS = [
    given_ for given_ in recordings("letta") if given_.values[0] is None or "[DONE_STEP]" in data_of(given_.values[0])
]


@pytest.mark.parametrize("path", IN_STEPS)
def test_what_letta_recorded_is_what_is_told(path: Any) -> None:
    """Its servers of 2024, item by item, from the calls that their agents made."""
    recorded = data_of(path)
    interface = StreamingServerInterface()
    again: list[Any] = []
    for one in recorded:
        if is_dict(one):
            told_by(interface, one)
        elif one == "[DONE_GEN]":
            interface.stream_start()
            interface.stream_end()
        elif one == "[DONE_STEP]":
            interface.step_complete()
        else:
            interface.step_yield()
            again += items(interface, finish_message=True)
    assert again == recorded


def told_by(interface: StreamingServerInterface, one: dict[str, Any]) -> None:
    known: dict[str, Any] = {"id": one["id"], "created_at": one["date"]}
    if "internal_monologue" in one:
        interface.internal_monologue(one["internal_monologue"], known)
    elif "function_call" in one:
        call = one["function_call"]
        calls = [{"id": call.get("function_call_id"), "function": call}]
        text = f"Running {call['name']}({json.loads(call['arguments'])})"
        interface.function_message(text, {**known, "tool_calls": calls})
    else:
        status = {"success": "Success", "error": "Error"}[one["status"]]
        known["tool_call_id"] = one.get("function_call_id")
        interface.function_message(f"{status}: {one['function_return']}", known)


@pytest.mark.parametrize("path", recordings("openai-chat"))
def test_any_recorded_answer_is_told(path: Any) -> None:
    """By whatever server: what it thinks, and each of its calls, as the stream of it says."""
    chunks = [one for one in data_of(path) if is_dict(one)] if path.suffix == ".sse" else []
    answer = [one for one in chunks if one.get("choices") and one["choices"][0].get("index", 0) == 0]
    interface = StreamingServerInterface()
    interface.streaming_mode = True
    for one in answer:
        interface.process_chunk(one, "m1", NOW)
    interface.step_yield()
    told_ = items(interface)
    contents = [one["choices"][0].get("delta", {}).get("content") for one in answer]
    text = "".join(content for content in contents if isinstance(content, str))
    thought = "".join(one["choices"][0].get("delta", {}).get("reasoning_content") or "" for one in answer)
    shown = "".join(one.get("internal_monologue", "") for one in told_)
    assert sorted(shown) == sorted(text + thought)
    arguments = [
        call["function"].get("arguments") or ""
        for one in answer
        for call in one["choices"][0].get("delta", {}).get("tool_calls") or ()
    ]
    assert "".join(one.get("function_call", {}).get("arguments", "") for one in told_) == "".join(arguments)


def test_legacy_text_is_what_python_reads() -> None:
    """The arguments are a dict's text, as they were."""
    interface = StreamingServerInterface()
    interface.nonstreaming_legacy_mode = True
    interface.function_message("Running f()", message("m", ("c", "f", '{"a": [true, null]}')))
    interface.step_yield()
    (one,) = items(interface)
    assert ast.literal_eval(one["function_call"][2:-1]) == {"a": [True, None]}


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.text() | st.integers() | st.floats(),
        lambda x: st.lists(x) | st.dictionaries(st.text(max_size=4), x),
    )
)
@settings(deadline=None)
def test_no_value_ends_the_program(value: Any) -> None:
    """Whatever is handed over in the place of a chunk or a message."""
    for chat in (False, True):
        interface = StreamingServerInterface()
        interface.streaming_chat_completion_mode = chat
        calls = {"tool_calls": [{"index": value, "id": value, "function": {"name": value, "arguments": value}}]}
        for given_ in (
            value,
            {"choices": value},
            {"choices": [value]},
            {"choices": [{"delta": {**calls, "content": value}}]},
        ):
            interface.process_chunk(given_, "m1", value)
        for known in ({"id": value, "created_at": value, "tool_call_id": value, **calls}, {"tool_calls": value}):
            interface.function_message("Running f({})", known)
            interface.function_message("Success: x", known)
        interface.step_yield()
        json.dumps(items(interface), allow_nan=True)
