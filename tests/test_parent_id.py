"""`Message.parent_id`: the messages of a sub-agent stand on the stream of the agent that called it.

They are in `messages`, hooks, iteration, recordings, relays and canonical chunks. The answer of the stream's own agent is alone in its
texts and outputs, in requests, and in the wire formats of providers: these have the sub-agent's answer as its call's output.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import streamkit as sk
from streamkit import relay
from streamkit.protocols import registry
from streamkit.protocols.codec import decode_event, encode_event

from .faces import Face, body, both_shells


def told(kind: type[Any], id: str, content: str, **fields: Any) -> list[sk.Event]:
    """The events of a message that comes in one piece."""
    message = kind(id, **fields)
    done = kind(id, content=content, **fields)
    return [message.created_event(message), message.delta_event(id, content), message.done_event(done)]


INNER: list[sk.Event] = [
    *told(sk.ReasoningMessage, "call-1/r", "Which sources?", parent_id="call-1"),
    *told(sk.TextMessage, "call-1/t", "I look it up.", parent_id="call-1"),
    *told(sk.ToolCallMessage, "call-1/c", '{"q": "sun"}', name="search", call_id="call-1/1", parent_id="call-1"),
    *told(sk.ToolOutputMessage, "call-1/o", "a star", name="search", call_id="call-1/1", parent_id="call-1"),
]
OUTER: list[sk.Event] = [
    *told(sk.TextMessage, "t1", "Let me ask."),
    *told(sk.ToolCallMessage, "c1", '{"input": "sun?"}', name="research", call_id="call-1"),
]
AFTER: list[sk.Event] = [
    *told(sk.ToolOutputMessage, "o1", "It is a star.", name="research", call_id="call-1"),
    *told(sk.TextMessage, "t2", "A star."),
]
EVENTS = [
    sk.RunCreated(sk.Run(id="run-1")),
    *OUTER,
    *INNER,
    *AFTER,
    sk.RunDone(sk.Run(id="run-1", status="completed")),
    sk.StreamEnd(),
]
WITHOUT = [event for event in EVENTS if event not in INNER]
IDS = ["t1", "c1", "call-1/r", "call-1/t", "call-1/c", "call-1/o", "o1", "t2"]
PARENTS = [None, None, "call-1", "call-1", "call-1", "call-1", None, None]
WIRES = [name for name in registry.BUILT_IN if name != "streamkit"]


def parents(messages: Any) -> list[tuple[str, str | None]]:
    return [(message.id, message.parent_id) for message in messages]


def test_a_message_keeps_its_parent_in_its_static_form() -> None:
    message = sk.TextMessage("call-1/t", content="Hi", parent_id="call-1")
    assert message.to_dict()["parent_id"] == "call-1"
    assert sk.Message.from_dict(message.to_dict()) == message
    assert message.copy().parent_id == message.header().parent_id == "call-1"
    assert "parent_id" not in sk.TextMessage("t", content="Hi").to_dict()


def test_a_parent_is_a_text() -> None:
    with pytest.raises(sk.UsageError, match="'parent_id' is a str"):
        sk.Message.from_dict({"role": "assistant", "parent_id": 1})


@pytest.mark.parametrize("event", INNER, ids=lambda event: event.type)
def test_the_wire_form_of_an_event_has_the_parent(event: sk.Event) -> None:
    assert decode_event(encode_event(event)) == event


@both_shells
@body
async def test_everything_is_in_the_messages_and_hooks(face: Face) -> None:
    handler = face.told()
    async with face.stream(EVENTS, handler) as stream:
        seen = [event.snapshot.id async for event in stream if isinstance(event, sk.events.Created)]
    assert seen == IDS
    assert parents(stream.messages) == [*zip(IDS, PARENTS, strict=True)]
    assert [message.id for message in handler.of("on_message_created")] == IDS
    handler.check_brackets()


@both_shells
@body
async def test_the_outer_answer_alone_is_the_text(face: Face) -> None:
    pieces = [piece async for piece in face.stream(EVENTS).text_deltas]
    assert "".join(pieces) == "Let me ask.A star."
    stream = face.stream(EVENTS)
    assert await stream.get_final_text() == "Let me ask.A star."
    assert [output.id for output in stream.tool_outputs] == ["o1"]


def test_the_last_text_may_be_of_a_sub_agent() -> None:
    """The call's output is missing: the run was cut off there."""
    stream = sk.stream([*EVENTS[:1], *OUTER, *INNER, *EVENTS[-2:]])
    assert stream.get_final_text() == "Let me ask."


def test_a_parent_that_comes_with_the_end_counts() -> None:
    """A source may find out late whose message it was."""
    late = [sk.TextDelta("t", "Inner."), sk.TextDone(sk.TextMessage("t", content="Inner.", parent_id="call-1"))]
    assert parents(sk.stream([*late, sk.StreamEnd()]).get_final_messages()) == [("t", "call-1")]


@pytest.mark.parametrize("protocol", WIRES)
def test_a_wire_format_has_the_outer_answer_alone(protocol: str) -> None:
    call = sk.ToolCallMessage("call-1/d", name="pay", call_id="call-1/2", content="{}", parent_id="call-1")
    asked = sk.Confirmation("call-1/q", call)
    decided = sk.Confirmation("call-1/q", call, status="approved")
    output = told(sk.ToolOutputMessage, "call-1/p", "paid", call_id="call-1/2", parent_id="call-1")
    asks = [call.done_event(call), sk.ConfirmationCreated(asked), sk.ConfirmationDone(decided), *output]
    events = [*EVENTS[:-3], *asks, *EVENTS[-3:]]
    if not registry.find(protocol).Encoder.questions:
        assert [*sk.stream(events).chunks(protocol)] == [*sk.stream(EVENTS).chunks(protocol)]
    assert [*sk.stream(EVENTS).chunks(protocol)] == [*sk.stream(WITHOUT).chunks(protocol)]


@pytest.mark.parametrize("protocol", ["vercel_ui", "ag_ui"])
def test_a_client_that_answers_questions_gets_those_of_a_sub_agent(protocol: str) -> None:
    """With the call that each is about, and what it gives; the call that asked for the sub-agent stands in its metadata."""
    paid = sk.ToolCallMessage("call-1/d", name="pay", call_id="call-1/2", content="{}", parent_id="call-1")
    asks = [
        *told(sk.ToolCallMessage, "call-1/d", "{}", name="pay", call_id="call-1/2", parent_id="call-1"),
        sk.ConfirmationCreated(sk.Confirmation("call-1/q", paid)),
        sk.ConfirmationDone(sk.Confirmation("call-1/q", paid, status="approved")),
        *told(sk.ToolOutputMessage, "call-1/p", "paid", name="pay", call_id="call-1/2", parent_id="call-1"),
    ]
    items = [*sk.stream([*EVENTS[:-8], *asks, *EVENTS[-8:]]).chunks(protocol)]
    again = sk.stream(items, protocol=protocol).get_final_messages()
    shown = [(message.type, message.content) for message in again]
    assert shown == [
        ("message", "Let me ask."),
        ("tool_call", '{"input": "sun?"}'),
        ("tool_call", "{}"),
        ("tool_output", "paid"),
        ("tool_output", "It is a star."),
        ("message", "A star."),
    ]
    assert [again[at].call_id for at in (2, 3)] == ["call-1/2", "call-1/2"]
    assert again[2].parent_id == "call-1"


@pytest.mark.parametrize("protocol", WIRES)
def test_what_an_inner_retry_withdraws_was_in_no_wire_format(protocol: str) -> None:
    """So there is nothing to take back, and nobody reads of it."""
    inner = [f"call-1/{name}" for name in "rtco"]
    retry = sk.StreamRetry(2, "SourceError", "Busy.", withdrawn=inner)
    events = [*OUTER, *INNER, retry, *AFTER]
    events = [EVENTS[0], *events, *EVENTS[-2:]]
    assert [*sk.stream(events).chunks(protocol)] == [*sk.stream(WITHOUT).chunks(protocol)]


def test_canonical_chunks_have_everything() -> None:
    again = sk.stream([*sk.stream(EVENTS).chunks("streamkit")], protocol="streamkit")
    assert again.get_final_messages() == sk.stream(EVENTS).get_final_messages()


@pytest.mark.parametrize("protocol", WIRES)
def test_a_request_has_the_outer_answer_alone(protocol: str) -> None:
    question = sk.TextMessage("u", role="user", content="What is the sun?")
    everything = [question, *sk.stream(EVENTS).get_final_messages()]
    outer = [message for message in everything if message.parent_id is None]
    left_out: list[Any] = []
    assert sk.to_input(everything, protocol, report=left_out.append) == sk.to_input(outer, protocol)
    assert {"call-1/r", "call-1/t", "call-1/c", "call-1/o"} <= {one.message.id for one in left_out}


def test_flat_messages_as_input_have_everything() -> None:
    messages = sk.stream(EVENTS).get_final_messages()
    assert [one.get("parent_id") for one in sk.to_input(messages, "streamkit")] == PARENTS


@both_shells
@body
async def test_a_recording_has_everything(face: Face, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    stream = face.stream(EVENTS, sk.Recorder(path))
    await stream.until_done()
    again = face.stream(path)
    assert await again.get_final_messages() == list(stream.messages)
    assert await again.get_final_text() == "Let me ask.A star."


def test_a_relay_has_everything_from_any_cursor() -> None:
    memory = relay.MemoryRelay()
    with sk.Emitter(memory, "run-1") as emitter:
        for event in EVENTS[1:-2]:
            emitter.emit(event)
    whole = sk.stream(memory.reader("run-1"))
    cursors = [event.cursor for event in whole if event.cursor]
    expected = [*zip(IDS, PARENTS, strict=True)]
    assert parents(whole.messages) == expected
    for cursor in cursors:
        assert parents(sk.stream(memory.reader("run-1"), after=cursor).get_final_messages()) == expected


def test_fields_are_read_from_the_outer_calls_alone() -> None:
    fields = {"research.input": "text", "search.q": "text"}
    stream = sk.stream(EVENTS, fields=fields)
    texts = [m.content for m in stream.get_final_messages() if "field" in m.metadata]
    assert texts == ["sun?"]


def test_a_sub_agents_own_fields_stay() -> None:
    """The same tool name outside does not make its messages go."""
    code = told(
        sk.CodeMessage, "call-1/c#code", "1+1", format="python", call_id="call-1/1", parent_id="call-1",
        metadata={"field": "execute.code"},
    )  # fmt: skip
    events = [*EVENTS[:1], *OUTER, *code, *AFTER, *EVENTS[-2:]]
    stream = sk.stream(events, fields={"execute.code": "code"})
    assert "call-1/c#code" in [message.id for message in stream.get_final_messages()]


def test_the_json_of_a_conversation_has_the_parent(tmp_path: Path) -> None:
    text = json.dumps([message.to_dict() for message in sk.stream(EVENTS).get_final_messages()])
    assert [sk.Message.from_dict(value).parent_id for value in json.loads(text)] == PARENTS
