"""Nothing that a stream can have n of costs more than n times a constant: messages, calls, questions, warnings, sources."""

from __future__ import annotations

import functools
import itertools
import json
import threading
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

import streamkit as sk
from streamkit import events as e
from streamkit import messages as m
from streamkit import protocols
from streamkit.core.engine import Engine
from streamkit.events import Event

from .opcodes import steep
from .ui_streams import whole

Make = Callable[[int], list[Event]]  # the events of the nth thing


def _text(n: int) -> list[Event]:
    annotation = e.AnnotationAdded("all", m.Annotation(type="url_citation", url=f"https://example.com/{n}"))
    return [*whole(m.TextMessage(f"text-{n}"), "a", "b"), e.TextDelta("all", "c"), annotation]


def _reasoning(n: int) -> list[Event]:
    return whole(m.ReasoningMessage(f"reasoning-{n}"), "a", "b")


def _call(n: int, *arguments: str) -> list[Event]:
    return whole(m.ToolCallMessage(f"call-{n}", name="f", call_id=f"call-{n}"), *arguments)


def _answered_call(n: int) -> list[Event]:
    output = m.ToolOutputMessage(f"output-{n}", name="g", call_id=f"answered-{n}")
    call = m.ToolCallMessage(f"answered-{n}", name="g", call_id=f"answered-{n}")
    return [*whole(call, '{"a":', "1}"), *whole(output, "22")]


def _refused_call(n: int) -> list[Event]:
    return [*_call(-n - 1, "not JSON"), e.StreamWarning("repaired", f"something {n}")]


def _code(n: int) -> list[Event]:
    code = m.CodeMessage(f"code-{n}", format="python", call_id=f"code-{n}")
    return [*whole(code, "1+1"), *whole(m.ConsoleMessage(f"console-{n}", call_id=f"code-{n}"), "2")]


def _question(n: int) -> list[Event]:
    code = m.CodeMessage(f"asked-{n}", format="python", content="1+1")
    call = m.ToolCallMessage(f"asked-call-{n}", name="h", call_id=f"asked-call-{n}", content="{}")
    questions = [e.ConfirmationCreated(sk.Confirmation(f"ask-{one.id}", one)) for one in (code, call)]
    return [*whole(code), *whole(call), *questions]


def _decided_question(n: int) -> list[Event]:
    code = m.CodeMessage(f"decided-{n}", format="python", content="1+1")
    outcome = sk.Confirmation(f"ask-decided-{n}", code, status="approved")
    return [*whole(code), e.ConfirmationCreated(sk.Confirmation(f"ask-decided-{n}", code)), e.ConfirmationDone(outcome)]


def _image(n: int) -> list[Event]:
    return [*whole(m.ImageMessage(f"image-{n}", format="url", content="https://example.com")), e.Usage(n, n, 2 * n)]


def _step(n: int) -> list[Event]:
    begun, done = e.RunStep(id=f"step-{n}"), e.RunStep(id=f"step-{n}", status="completed")
    return [e.RunStepCreated(begun), *whole(m.TextMessage(f"step-text-{n}"), "a"), e.RunStepDone(done)]


THINGS: dict[str, Make] = {
    "text": _text,
    "reasoning": _reasoning,
    "call": lambda n: _call(n, '{"a":', "1}"),
    "call without arguments": _call,
    "call with empty arguments": lambda n: _call(n, "{}"),
    "answered call": _answered_call,
    "refused call": _refused_call,
    "code": _code,
    "question": _question,
    "decided question": _decided_question,
    "image": _image,
    "step": _step,
}


def one_by_one(make: Make, count: int) -> list[Event]:
    return [event for n in range(count) for event in make(n)]


def side_by_side(make: Make, count: int) -> list[Event]:
    """All begin before any ends."""
    rows = itertools.zip_longest(*(make(n) for n in range(count)))
    return [event for row in rows for event in row if event is not None]


def completed(events: Sequence[Event]) -> list[Event]:
    """Events as a stream delivers them."""
    engine = Engine()
    return [
        *engine.complete(events),
        *engine.source_done(complete=True),
        *engine.end(),
        e.StreamEnd(status="completed"),
    ]


class Answers(sk.EventHandler):
    def on_tool_call_done(self, call: sk.ToolCallMessage) -> None:
        if call.waiting:
            call.respond("22")

    def on_confirmation(self, confirmation: sk.Confirmation) -> None:
        if confirmation.editable or confirmation.answer_slot is not None:
            confirmation.approve()


class Defers(sk.EventHandler):
    """Answers everything in another thread, the last first, as the stream is about to wait."""

    def __init__(self) -> None:
        self.deferred: list[Any] = []

    def on_tool_call_done(self, call: sk.ToolCallMessage) -> None:
        if call.waiting:
            call.defer(600)
            self.deferred.append(call)

    def on_confirmation(self, confirmation: sk.Confirmation) -> None:
        if confirmation.answer_slot is not None:
            confirmation.defer(600)
            self.deferred.append(confirmation)

    def answer(self) -> None:
        while self.deferred and not self.deferred[-1].answer_slot.open:
            self.deferred.pop()
        if self.deferred:
            one = self.deferred.pop()
            give = one.approve if isinstance(one, sk.Confirmation) else functools.partial(one.respond, "22")
            thread = threading.Thread(target=give)
            thread.start()
            thread.join()  # whether the stream has begun to wait by then would change what it executes


def read(items: Sequence[Any], protocol: str, way: str) -> None:
    """Read items, each in a chunk of its own."""
    handler = {"answered": Answers, "deferred": Defers}.get(way)
    handlers = [] if handler is None else [handler()]
    then = None if way == "passive" else lambda stream: None
    stream = sk.stream(iter(items), *handlers, protocol=protocol, then=then)
    if handlers and isinstance(handlers[0], Defers):
        stream.on_wait = handlers[0].answer
    stream.until_done()


def stream_of(count: int, arranged: Callable[[Make, int], list[Event]]) -> list[Event]:
    """So many of each thing, as a stream delivers them."""
    return completed([event for make in THINGS.values() for event in arranged(make, count)])


def in_chunks(protocol: str, events: Iterable[Event]) -> list[bytes]:
    """Events in a protocol, each item in a chunk of its own."""
    encoder = protocols.find(protocol).Encoder()
    return [b"data: " + json.dumps(item).encode() + b"\n\n" for event in events for item in encoder.items(event)]


events_to_read = functools.cache(stream_of)  # what is written of them in each protocol is what is read

PROTOCOLS = list(protocols.registry.BUILT_IN)
ARRANGEMENTS = [side_by_side, one_by_one]


WAYS = ["answered", "passive", "unanswered", "deferred"]
READ = [
    pytest.param(protocol, arranged, WAYS[(2 * number + side + number // 2) % 4], id=f"{protocol}-{arranged.__name__}")
    for number, protocol in enumerate(PROTOCOLS)
    for side, arranged in enumerate(ARRANGEMENTS)
]


@pytest.mark.parametrize(("protocol", "arranged", "way"), READ)
def test_each_thing_that_is_read_costs_the_same(protocol: str, arranged: Any, way: str) -> None:
    """Whether calls and questions are answered at once, later, or not at all: two of the ways with each protocol, which none
    of them depends on, and each way with several."""

    def reading(count: int) -> Callable[[], object]:
        chunks = in_chunks(protocol, events_to_read(count, arranged))
        return lambda: read(chunks, protocol, way)

    assert not steep(reading, 3)


@pytest.mark.parametrize("arranged", ARRANGEMENTS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_thing_that_is_written_costs_the_same(protocol: str, arranged: Any) -> None:
    def writing(count: int) -> Callable[[], object]:
        events, encoder = stream_of(count, arranged), protocols.find(protocol).Encoder()
        return lambda: [item for event in events for item in encoder.items(event)]

    assert not steep(writing, 2)


# -- what else a stream can have many of


def _sse(*items: dict[str, Any]) -> list[bytes]:
    return [b"data: " + json.dumps(item).encode() + b"\n\n" for item in items]


def _chat_item(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def _chat_call(n: int) -> list[bytes]:
    call = {"index": 0, "id": f"call-{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return _sse(
        _chat_item({"role": "assistant", "content": "a"}),
        _chat_item({"tool_calls": [call]}),
        _chat_item({}, "tool_calls"),
    )


def _sources(count: int) -> Callable[[], object]:
    """A run of so many sources, each of which answers the call of the one before."""
    rest = iter([iter(_chat_call(n)) for n in range(1, count)])

    def then(stream: sk.StreamState) -> Any:
        assert [output.content for output in stream.tool_outputs] == ["22"]
        return next(rest, None)

    stream = sk.stream(iter(_chat_call(0)), Answers(), then=then, max_steps=1000)
    return stream.until_done


def _anthropic(*blocks: dict[str, Any]) -> list[bytes]:
    start = {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": []}}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    return _sse(start, *blocks, end, {"type": "message_stop"})


def _unknown_blocks(count: int) -> list[bytes]:
    return _anthropic(
        *({"type": "content_block_start", "index": n, "content_block": {"type": "new_kind"}} for n in range(count)),
        *({"type": "content_block_stop", "index": n} for n in range(count)),
    )


def _citations(count: int) -> list[bytes]:
    delta = {"type": "content_block_delta", "index": 0}
    cited = ({"type": "char_location", "cited_text": f"{n}"} for n in range(count))
    return _anthropic(
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(
            {**delta, "delta": one}
            for citation in cited
            for one in ({"type": "text_delta", "text": "a"}, {"type": "citations_delta", "citation": citation})
        ),
    )


def _response(*output: dict[str, Any]) -> list[bytes]:
    response = {"id": "r", "object": "response", "status": "in_progress", "output": []}
    done = {**response, "status": "completed", "output": output}
    return _sse({"type": "response.created", "response": response}, {"type": "response.completed", "response": done})


def _unstreamed_items(count: int) -> list[bytes]:
    """Items that come with the end of the response alone."""
    text = {"type": "output_text", "text": "a", "annotations": []}
    call = {"type": "function_call", "name": "f", "arguments": "{}", "status": "completed"}
    texts = (
        {"id": f"m{n}", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
        for n in range(count)
    )
    return _response(*texts, *({"id": f"f{n}", "call_id": f"c{n}", **call} for n in range(count)))


def _parts_of_an_item(count: int) -> list[bytes]:
    texts = [{"type": "output_text", "text": f"{n}", "annotations": []} for n in range(count)]
    summary = [{"type": "summary_text", "text": f"{n}"} for n in range(count)]
    return _response(
        {"id": "rs", "type": "reasoning", "summary": summary},
        {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": texts},
    )


def _repaired_items(count: int) -> list[bytes]:
    """Each has a warning."""
    return [*_sse(_chat_item({"content": "a"})), *[b"data: not JSON\n\n"] * count, *_sse(_chat_item({}, "stop"))]


def _choices(count: int) -> list[bytes]:
    """Of one answer: a chunk for each piece, the choices in turn."""

    def of(n: int, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        (choice,) = _chat_item(delta, reason)["choices"]
        return {**_chat_item({}), "choices": [{**choice, "index": n}]}

    pieces = [of(n, {"content": piece}) for piece in "ab" for n in range(count)]
    return [*_sse(*pieces, *(of(n, {}, "stop") for n in range(count))), b"data: [DONE]\n\n"]


def _calls_of_an_answer(count: int) -> list[bytes]:
    function = {"name": "f", "arguments": "{}"}
    calls = ({"index": n, "id": f"call-{n}", "type": "function", "function": function} for n in range(count))
    chunks = [_chat_item({"tool_calls": [call]}) for call in calls]
    return [*_sse(*chunks, _chat_item({}, "tool_calls")), b"data: [DONE]\n\n"]


def _answers(count: int) -> list[bytes]:
    """One after the other, each with its usage."""
    usage = {"usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}, "choices": []}
    answer = [_chat_item({"content": "a"}), _chat_item({}, "stop"), {**_chat_item({}), **usage}]
    return _sse(*answer * count)


def _completions(count: int) -> list[bytes]:
    """The choices of one legacy completion, in turn, and then as many answers."""
    head = {"id": "c", "object": "text_completion", "created": 1, "model": "m"}

    def of(n: int, text: str, reason: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": n, "text": text, "finish_reason": reason}]}

    choices = [*(of(n, piece) for piece in "ab" for n in range(count)), *(of(n, "", "stop") for n in range(count))]
    return [*_sse(*choices, *[of(0, "a"), of(0, "", "stop")] * count), b"data: [DONE]\n\n"]


def _pings(count: int) -> list[bytes]:
    return [*_anthropic()[:1], *_sse(*[{"type": "ping"}] * count), *_anthropic()[1:]]


@pytest.mark.parametrize(
    "make",
    [
        _unknown_blocks,
        _citations,
        _unstreamed_items,
        _parts_of_an_item,
        _repaired_items,
        _choices,
        _calls_of_an_answer,
        _answers,
        _completions,
        _pings,
    ],
)
def test_a_provider_s_own_things_cost_the_same_for_each(make: Callable[[int], list[bytes]]) -> None:
    def reading(count: int) -> Callable[[], object]:
        stream = sk.stream(iter(make(count)), then=lambda stream: None)
        return stream.until_done

    assert not steep(reading, 20)


def test_each_source_of_a_run_costs_the_same() -> None:
    """The calls of each are answered in the next one."""
    assert not steep(_sources, 20)


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"], ids=["plain", "after a byte order mark"])
def test_white_space_before_the_first_item_is_not_held(start: bytes) -> None:
    """What is held is joined again at each chunk."""

    def peak(chunks: int) -> int:
        source = itertools.chain([start], itertools.repeat(b" " * 1000, chunks), [b"data: [DONE]\n\n"])
        tracemalloc.start()
        sk.stream(source, protocol="openai_chat").until_done()
        try:
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1)  # so that what is made only once is made
    assert peak(400) < peak(100) + 100_000  # other threads of the process are in it, of the tests too
