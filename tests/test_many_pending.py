"""Thousands of tool calls may wait for an answer at once: each costs the same, however many there are."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import pytest

import streamkit as sk
from streamkit.events import (
    ActiveLine,
    ConsoleCreated,
    ConsoleDone,
    StreamEnd,
    ToolCallCreated,
    ToolCallDone,
    ToolOutputDone,
)
from streamkit.messages import ConsoleMessage, ToolCallMessage, ToolOutputMessage
from streamkit.protocols.openai_chat.returned_fields import Blocks

from .opcodes import growth, steep

FEW = 15  # the things in the smallest stream; the largest has four times as many
LINEAR = 2.5  # twice the size is at most so many times the work; quadratic work comes close to 4


def sse(item: object) -> bytes:
    return b"data: " + json.dumps(item).encode() + b"\n\n"


def responses(count: int, arguments: str = "{}") -> list[bytes]:
    """The chunks of a response with so many function calls."""
    items = [
        {"id": f"fc_{n}", "type": "function_call", "arguments": arguments, "call_id": f"call_{n}", "name": "f"}
        for n in range(count)
    ]
    body = [{"type": "response.created", "response": {"id": "r", "object": "response", "output": []}}]
    for n, item in enumerate(items):
        added = {**item, "arguments": "", "status": "in_progress"}
        body.append({"type": "response.output_item.added", "output_index": n, "item": added})
        body.append({"type": "response.output_item.done", "output_index": n, "item": {**item, "status": "completed"}})
    response = {"id": "r", "object": "response", "status": "completed", "output": []}
    return [sse(item) for item in (*body, {"type": "response.completed", "response": response})]


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return sse({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})


def chat(count: int) -> list[bytes]:
    """The chunks of a completion with so many tool calls."""
    calls = (
        {"index": n, "id": f"call_{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for n in range(count)
    )
    begin = chunk({"role": "assistant", "content": None})
    return [begin, *(chunk({"tool_calls": [call]}) for call in calls), chunk({}, "tool_calls"), b"data: [DONE]\n\n"]


def anthropic(count: int) -> list[bytes]:
    """The events of a message with so many tool uses."""
    start = {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": []}}
    body: list[dict[str, Any]] = [start]
    for n in range(count):
        block = {"type": "tool_use", "id": f"toolu_{n}", "name": "f", "input": {}}
        body.append({"type": "content_block_start", "index": n, "content_block": block})
        body.append({"type": "content_block_stop", "index": n})
    body.append({"type": "message_delta", "delta": {"stop_reason": "tool_use"}})
    return [sse(item) for item in (*body, {"type": "message_stop"})]


def calls(count: int) -> list[Any]:
    return [ToolCallDone(ToolCallMessage(f"m{n}", name="f", call_id=f"c{n}", content="{}")) for n in range(count)]


def outputs(count: int) -> list[Any]:
    """Calls, and then their outputs, as canonical events."""
    made = (ToolOutputDone(ToolOutputMessage(f"o{n}", call_id=f"c{n}", content="x")) for n in range(count))
    return [*calls(count), *made, StreamEnd(status="completed")]


def active_lines(count: int) -> list[Any]:
    """Calls that wait, while code runs line by line."""
    console = ConsoleMessage("console")
    lines = (ActiveLine("console", n) for n in range(count))
    return [*calls(count), ConsoleCreated(console), *lines, ConsoleDone(console), StreamEnd(status="completed")]


def broken_calls(count: int) -> list[Any]:
    """As `responses`, with arguments that are not JSON, so that there is a warning for each."""
    return responses(count, "{")


class Responds(sk.EventHandler):
    def on_tool_call_done(self, call: Any) -> None:
        if call.waiting:
            call.respond("22")


class Looks(sk.EventHandler):
    """Answers what it finds in `stream.pending`."""

    def on_tool_call_done(self, call: Any) -> None:
        if call.waiting:
            self.stream.pending[call.call_id].respond("22")  # type: ignore[union-attr]


class Awaits(sk.AsyncEventHandler):
    async def on_tool_call_done(self, call: Any) -> None:
        async def answer() -> str:
            return "22"

        if call.waiting:
            call.respond(answer())


class Defers(sk.EventHandler):
    """Each call is answered by another thread, once the stream waits for it."""

    def on_run_requires_action(self, run: sk.Run) -> None:
        self.left = [*self.stream.pending.values()]
        for call in self.left:
            call.defer(600)
        self.answer()

    def on_tool_output_done(self, output: Any) -> None:
        self.answer()

    def answer(self) -> None:
        if self.left:
            threading.Thread(target=self.left.pop().respond, args=["22"]).start()


def then() -> Any:
    """A function that gives the run's second source, once."""
    sources = iter([[chunk({"role": "assistant", "content": "ok"}, "stop"), b"data: [DONE]\n\n"]])
    return lambda stream: next(sources, None)


WAYS: dict[str, tuple[bool, Any]] = {
    "passive": (False, None),
    "unanswered": (True, None),
    "answered": (True, Responds),
    "answered in pending": (True, Looks),
}
WAYS_OF: dict[Any, list[str]] = {
    responses: [*WAYS],
    anthropic: ["passive", "answered"],
    chat: ["unanswered", "answered in pending"],
    outputs: ["passive", "answered"],
    active_lines: ["unanswered", "answered"],
    broken_calls: ["passive", "answered in pending"],
}


@pytest.mark.parametrize(
    ("make", "way"),
    [
        pytest.param(make, way, id=f"{make.__name__}-{way}", marks=() if make is responses else pytest.mark.slow)
        for make, ways in WAYS_OF.items()
        for way in ways
    ],
)
def test_the_work_is_linear(make: Any, way: str) -> None:
    """Each item in a chunk of its own, so that what waits is looked at after each. How calls are answered depends on no
    protocol: each way is tried with several, and all with one."""
    goes_on, handler = WAYS[way]

    def run(count: int) -> None:
        items: Iterator[Any] = iter(make(count))
        handlers = [] if handler is None else [handler()]
        sk.stream(items, *handlers, then=then() if goes_on else None).until_done()

    assert growth(run, FEW) < LINEAR


@pytest.mark.parametrize("handler", [Responds, Awaits])
def test_the_work_of_a_task_is_linear(handler: Any) -> None:
    """Awaitables run beside the stream, and each is started once."""

    def run(count: int) -> None:
        async def ask() -> AsyncIterator[bytes]:
            for item in responses(count):
                yield item

        async def main() -> None:
            await sk.astream(ask(), handler(), then=then()).until_done()

        anyio.run(main)

    assert growth(run, FEW) < LINEAR


def test_the_work_is_linear_where_calls_are_answered_one_by_one() -> None:
    """The stream waits for each answer of another thread, and looks at that one alone."""

    def run(count: int) -> None:
        sk.stream(iter(responses(count)), Defers(), then=then()).until_done()

    assert growth(run, FEW) < LINEAR


def test_the_source_s_own_output_closes_the_call() -> None:
    """`waiting` is false from then on, and an answer is refused."""
    call = ToolCallDone(ToolCallMessage("m", name="f", call_id="c", content="{}"))
    output = ToolOutputDone(ToolOutputMessage("o", call_id="c", content="its own"))
    with sk.stream(iter([call, output, StreamEnd(status="completed")]), then=lambda stream: None) as stream:
        for event in stream:
            if isinstance(event, ToolCallDone):
                waiting = event.message
                assert waiting.waiting
    assert not waiting.waiting
    assert not stream.pending
    with pytest.raises(sk.UsageError, match="takes no answer any more"):
        waiting.respond("ours")


def test_what_is_pending_is_live() -> None:
    """`stream.pending` costs the same with any number of calls; a loop over it is over what waits when it begins."""
    with sk.stream(iter(chat(3)), then=lambda stream: None) as stream:
        pending = stream.pending
        assert not pending
        for event in stream:
            if isinstance(event, sk.events.RunRequiresAction):
                assert list(pending) == ["call_0", "call_1", "call_2"]
                for key, call in pending.items():
                    assert pending[key] is call
                    call.defer(0)
    assert repr(pending) == repr(dict(stream.pending))


def test_two_calls_of_one_id_each_get_their_own_output() -> None:
    """Whichever is answered first."""
    both = [ToolCallDone(ToolCallMessage(id, name=id, call_id="c", content="{}")) for id in ("one", "two")]
    with sk.stream(iter([*both, StreamEnd(status="completed")]), then=lambda stream: None) as stream:
        told: list[tuple[str | None, str, list[str]]] = []
        for event in stream:
            if isinstance(event, ToolCallDone) and event.message.id == "two":
                event.message.respond("second")
            elif isinstance(event, ToolOutputDone):
                told.append((event.message.name, event.message.content, [*stream.pending]))
    assert told == [("two", "second", ["c"])]


def test_two_calls_of_one_id_are_two_questions_to_the_readers_of_an_emitter() -> None:
    """Each has an answer of its own, whichever comes first."""
    relay = sk.MemoryRelay()
    with sk.Emitter(relay, "run") as emitter:
        first, second = (emitter.tool_call(name, {}, call_id="c") for name in ("one", "two"))
        assert [*emitter.pending] == ["c", "c.2"]
        relay.answer("run", "c.2", {"output": "second"})
        relay.answer("run", "c", {"output": "first"})
        assert (first.wait(), second.wait()) == ("first", "second")
    questions = relay.get("run").questions
    assert [questions[id]["subject"]["name"] for id in ("c", "c.2")] == ["one", "two"]
    answered = {message.name: message.content for message in emitter.messages if message.type == "tool_output"}
    assert answered == {"one": "first", "two": "second"}


@pytest.mark.parametrize("named", [True, False], ids=["with their call ids", "of the newest call"])
def test_an_emitter_finds_the_calls_of_thousands_of_outputs(named: bool) -> None:
    """All calls come first, as a model sends them; readers may answer them, so they are pending meanwhile."""

    def emit(count: int) -> None:
        emitter = sk.Emitter()
        for n in range(count):
            emitter.tool_call(f"f{n}", {}, call_id=f"c{n}")
        for n in range(count):
            emitter.tool_output(n, call_id=f"c{n}" if named else None)
        found = [message for message in emitter.messages if isinstance(message, ToolOutputMessage)]
        assert [message.name for message in found] == [f"f{n if named else count - 1}" for n in range(count)]
        assert len(emitter.pending) == (0 if named else count - 1)

    assert growth(emit, FEW) < LINEAR
    assert not any("run_writer" in name for name in steep(lambda count: lambda: emit(count), 20))


def test_an_emitter_asks_as_often_as_it_likes_about_the_newest_code() -> None:
    """However much was emitted since."""

    def ask(count: int) -> None:
        emitter = sk.Emitter()
        emitter.code("1")
        for n in range(count):
            emitter.text(str(n))
            approval = emitter.confirm(timeout=0)
            assert approval.confirmation.subject is emitter.messages[0]

    assert growth(ask, FEW) < LINEAR


def test_an_output_finds_a_call_that_was_fed_and_has_its_id_late() -> None:
    """Its name and call id may come after it has begun; and a limited log forgets the oldest calls."""
    emitter = sk.Emitter(sk.MemoryRelay(limit=1000))
    emitter.emit(ToolCallCreated(ToolCallMessage("m")))
    emitter.tool_output("early")
    emitter.emit(ToolCallDone(ToolCallMessage("m", name="f", call_id="c", content="{}")))
    emitter.tool_output("late", call_id="c")
    assert [message.name for message in emitter.messages[1:]] == [None, "f"]
    for n in range(3000):
        emitter.tool_call(f"f{n}", {}, provider_executed=True)
        emitter.tool_output(n)
        assert emitter.messages[-1].name == f"f{n}"


def merged(pieces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks that these pieces make."""
    blocks = Blocks(("text",))
    for piece in pieces:
        blocks.add(piece)
    return blocks.joined()


@pytest.mark.parametrize("kind", ["encrypted", "texts", "repeated"])
def test_the_reasoning_that_goes_back_costs_linear_time(kind: str) -> None:
    """However many blocks it comes in."""

    def blocks(count: int) -> list[dict[str, Any]]:
        if kind == "texts":
            return [{"type": "reasoning.text", "text": "t", "index": number} for number in range(count)]
        encrypted = [{"type": "reasoning.encrypted", "data": f"d{number}", "index": 0} for number in range(count)]
        return encrypted if kind == "encrypted" else [*encrypted, *encrypted]

    def run(count: int) -> None:
        assert len(merged(blocks(count))) == count

    assert growth(run, 100) < LINEAR


def test_a_piece_of_reasoning_finds_the_block_that_it_goes_on_with() -> None:
    pieces = [
        {"type": "text", "text": "a", "index": 0},
        {"type": "text", "text": "", "index": 1},
        {"type": "data", "data": "d", "format": "f"},
        {"type": "text", "text": "b", "index": 0},
        {"type": "text", "text": "", "index": 1},
        {"type": "data", "data": "d"},
        {"type": "text", "signature": "s", "index": 0},
        {"type": "text", "text": "c"},
        {"type": "text", "text": "d", "signature": "s"},
        {"type": "text", "text": "e"},
    ]
    assert merged(pieces) == [
        {"type": "text", "text": "ab", "index": 0, "signature": "s"},
        {"type": "text", "text": "", "index": 1},
        {"type": "data", "data": "d", "format": "f"},
        {"type": "text", "text": "cd", "signature": "s"},
        {"type": "text", "text": "e"},
    ]
