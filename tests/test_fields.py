"""`fields=`: string arguments of tools as messages of their own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamkit as sk
from streamkit import events as e
from streamkit import messages as m
from streamkit import protocols
from streamkit.core.argument_fields import ArgumentFields
from streamkit.protocols import codec
from streamkit.testing import ModelServer, Reply, Text, ToolCall

from . import values as q
from .costs import assert_costs, seconds_of
from .faces import Face, ask, ask_responses, body, every_face
from .test_laws import canonical, chat_calls, check_brackets, sse, tellers

often = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
seldom = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])

FIELDS = {"send_message.message": "text", "send_message.thoughts": "reasoning", "execute.code": "code"}
END = e.StreamEnd()


def call(id: str = "c", name: str | None = "send_message", **more: Any) -> m.ToolCallMessage:
    return m.ToolCallMessage(id, name=name, call_id=more.pop("call_id", f"call_{id}"), **more)


def streamed(text: str, id: str = "c", name: str = "send_message", size: int = 3) -> list[e.Event]:
    """A call whose arguments come in pieces."""
    pieces = [e.ToolCallDelta(id, text[at : at + size]) for at in range(0, len(text), size)]
    return [e.ToolCallCreated(call(id, name)), *pieces, e.ToolCallDone(call(id, name, content=text))]


def ran(*events: e.Event, fields: Any = FIELDS, **options: Any) -> sk.StreamManager:
    """The stream of these events, at its end. They are copied: the engine writes into those that it is given."""
    stream = sk.stream(json.loads(json.dumps([codec.event_to_dict(one) for one in events])), fields=fields, **options)
    stream.until_done()
    return stream


def field_messages(stream: Any) -> dict[str, sk.Message]:
    return {message.id: message for message in stream.messages if "field" in message.metadata}


def contents(stream: Any) -> dict[str, str]:
    return {id: message.content for id, message in field_messages(stream).items()}


def told(stream: Any) -> list[dict[str, Any]]:
    """The lines of a stream; an error that it ends with is the last."""
    lines: list[dict[str, Any]] = []

    def take(event: e.Event) -> None:
        line = codec.event_to_dict(event)
        if (snapshot := getattr(event, "snapshot", None)) is not None:
            line["so far"] = snapshot.content
        lines.append(line)

    try:
        for event in stream:
            take(event)
    except sk.StreamkitError as error:
        lines.append({"type": "error", "error": f"{type(error).__name__}: {error}"})
    return lines


def without_fields(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines of all other messages."""
    told_of = [line["message"] if isinstance(line.get("message"), dict) else {} for line in lines]
    ours = {message["id"] for message in told_of if "field" in message.get("metadata", {})}
    ids = [message.get("id", line.get("message_id")) for message, line in zip(told_of, lines, strict=True)]
    return [line for id, line in zip(ids, lines, strict=True) if id not in ours]


# -- what users write


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"send_message": "text"}, "names no argument of a tool"),
        ({"": "text"}, "names no argument of a tool"),
        ({".message": "text"}, "names no argument of a tool"),
        ({"send_message.": "text"}, "names no argument of a tool"),
        ({"send_message..text": "text"}, "names no argument of a tool"),
        ({"send_message.a\\": "text"}, "invalid path"),
        ({3: "text"}, "invalid path"),
        ({"f.x": "image"}, "can become 'text', 'reasoning', 'code'"),
        ({"f.x": "text:python"}, "can become"),
        ({"f.x": "code:"}, "can become"),
        ({"f.x": ""}, "can become"),
        ({"f.x": None}, "can become"),
        ({"f.x": ["text"]}, "can become"),
        (["f.x"], "is a dict"),
        ("f.x", "is a dict"),
    ],
)
def test_a_malformed_field_is_refused_before_any_request(fields: Any, fault: str) -> None:
    """On both faces, at once."""

    def request() -> Any:
        raise AssertionError("it was sent")

    for stream in (sk.stream, sk.astream):
        with pytest.raises(sk.UsageError, match=re.escape(fault)):
            stream(request, fields=fields)


@every_face
@pytest.mark.parametrize("asks", [ask, ask_responses])
@body
async def test_a_tools_text_streams_as_the_assistants_own(face: Face, asks: Callable[..., Any]) -> None:
    """With the real client: it is in `text_deltas` and the final text, and the call is told as ever."""
    arguments = {
        "thoughts": "The user\u2019s \u201cfriend\u201d",
        "message": 'Good\nmorning, "Chad" \U0001f600!',
        "n": [1],
    }
    script = [Reply("So: ", ToolCall("send_message", json.dumps(arguments)))]
    with ModelServer(script) as server:
        async with face.client(server) as client:
            handler = face.told()
            stream = face.stream(asks(client), handler, fields=FIELDS)
            async with stream:
                pieces = [piece async for piece in stream.text_deltas]
            assert "".join(pieces) == "So: " + arguments["message"] == await stream.get_final_text()
            assert len(pieces) > 5
    handler.check_brackets()
    (called,) = handler.of("on_tool_call_done")
    assert called.arguments == arguments
    (thought,) = handler.of("on_reasoning_done")
    assert (thought.content, thought.status) == (arguments["thoughts"], "completed")
    assert {message.call_id for message in (called, thought, stream.messages[-1])} == {"call_1_0"}
    assert thought.group == called.group
    assert thought.id == f"{called.id}#thoughts"
    assert thought.metadata == {"field": "send_message.thoughts"}
    hooks = handler.hooks
    assert hooks.index("on_tool_call_created") < hooks.index("on_reasoning_created") < hooks.index("on_tool_call_done")
    assert "on_text_done" not in hooks[hooks.index("on_tool_call_done") :], "a field is done before its call"


@every_face
@body
async def test_parallel_calls_and_steps_keep_their_fields_apart(face: Face) -> None:
    """Interleaved calls in the first response, the same in the second: `then=` goes on as ever."""
    code = ToolCall("execute", {"language": "python", "code": "1\n+ 1"})
    said = ToolCall("send_message", {"message": "On it."})
    with ModelServer([Reply(code, said, code, interleave=True), Reply(said, Text(" Two."))]) as server:
        async with face.client(server) as client:
            requests = [ask(client), ask(client)]

            def answer(_: Any, asked: Any) -> None:
                if asked.waiting:
                    asked.respond("2")

            handler = face.told(on_tool_call_done=answer)
            stream = face.stream(
                requests.pop(0), handler, fields=FIELDS, then=lambda _: requests.pop(0)() if requests else None
            )
            async with stream:
                await stream.until_done()
    handler.check_brackets()
    found = sorted(field_messages(stream).values(), key=lambda message: message.call_id or "")
    assert [(message.type, message.format, message.content, message.call_id) for message in found] == [
        ("code", "python", "1\n+ 1", "call_1_0"),
        ("message", None, "On it.", "call_1_1"),
        ("code", "python", "1\n+ 1", "call_1_2"),
        ("message", None, "On it.", "call_2_0"),
    ]
    assert len({message.step_id for message in found}) == 2


def test_the_field_of_a_call_ends_with_it_where_the_next_call_begins() -> None:
    """Chat does not say where a call ends. Its arguments are complete where another call begins."""
    said = ToolCall("send_message", {"message": "On it."})
    order: list[str] = []

    class Order(sk.EventHandler):
        def on_message_created(self, message: sk.Message) -> None:
            order.append(f"{message.type} created")

        def on_message_done(self, message: sk.Message) -> None:
            order.append(f"{message.type} {message.status}")

    with (
        ModelServer(Reply(said, ToolCall("look"))) as server,
        openai.OpenAI(base_url=server.url, api_key="any", max_retries=0) as client,
    ):
        sk.stream(ask(client), Order(), fields=FIELDS).until_done()
    assert order == [
        "tool_call created",
        "message created",
        "message completed",
        "tool_call completed",
        "tool_call created",
        "tool_call completed",
    ]


# Protocols, and what becomes of a call's message id in them, which its fields' ids begin with.
PROTOCOLS = [name for name in protocols.BUILT_IN if name != "openai_completions"]  # which has no calls


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_tells_fields_alike(protocol: str) -> None:
    """Two calls side by side, as this protocol's own encoder writes them; one tool is not asked for."""
    first, second = '{"message": "One \\u00e9\\ud83d\\ude00", "thoughts": ""}', '{"code": "print(1)\\n", "n": 1}'
    other = '{"message": "not me"}'
    events: list[e.Event] = [
        e.RunCreated(e.Run(id="r", model="m")),
        e.TextCreated(m.TextMessage("t")),
        e.TextDelta("t", "Well. "),
        e.TextDone(m.TextMessage("t", content="Well. ")),
        e.ToolCallCreated(call("a")),
        e.ToolCallCreated(call("b", "execute")),
    ]
    for at in range(0, 60, 4):
        for id, text in (("a", first), ("b", second)):
            if text[at : at + 4]:
                events.append(e.ToolCallDelta(id, text[at : at + 4]))
    events += [
        e.ToolCallDone(call("a", content=first)),
        e.ToolCallDone(call("b", "execute", content=second)),
        *streamed(other, "o", "other"),
        e.RunDone(e.Run(status="completed")),
        END,
    ]
    items = list(sk.stream(events).chunks(protocol))
    plain = told(sk.stream(items, protocol=protocol))
    stream = sk.stream(items, protocol=protocol, fields=FIELDS)
    lines = told(stream)
    check_brackets(lines)
    assert without_fields(lines) == plain
    calls = {message.name: message.id for message in stream.messages if message.type == "tool_call"}
    assert contents(stream) == {
        f"{calls['send_message']}#message": "One \u00e9\U0001f600",
        f"{calls['send_message']}#thoughts": "",
        f"{calls['execute']}#code": "print(1)\n",
    }
    assert {message.status for message in stream.messages} == {"completed"}


# -- how the calls may come


def test_a_call_that_is_told_only_whole_has_its_fields_told_whole() -> None:
    """Never opened, or opened and without a piece: after its own text, before its end."""
    text = '{"message": "Hi", "thoughts": "Hm"}'
    for begun in ([], [e.ToolCallCreated(call())]):
        lines = told(sk.stream([*begun, e.MessageDone(call(content=text)), END], fields=FIELDS))
        assert [line["type"] for line in lines][2:-2] == [
            *("tool_call_created", "tool_call_delta"),
            *("text_created", "text_delta", "reasoning_created", "reasoning_delta"),
            *("text_done", "reasoning_done", "tool_call_done"),
            *("run_requires_action", "run_step_done"),
        ]


def chat_body(*deltas: dict[str, Any]) -> list[bytes]:
    """With escapes for all that is not ASCII, so that a text may end in the middle of a character."""
    chunks = [{"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": one}]} for one in deltas]
    chunks.append({**chunks[0], "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks]


@pytest.mark.parametrize(
    "pieces", [("a\ud83d", "\ude00b"), ("a\ud83d", "\ude00\ud83d", "\ude00"), ("a", "\ud83d"), ("\ude00b",)]
)
def test_a_character_that_was_cut_is_the_same_with_fields(pieces: tuple[str, ...]) -> None:
    """In the assistant's own text."""
    read: list[Any] = []
    for fields in (None, FIELDS):
        stream = sk.stream(chat_body(*({"content": piece} for piece in pieces)), fields=fields)
        read.append((stream.get_final_text(), [warning.code for warning in stream.warnings]))
    assert read[0] == read[1]


def test_a_character_that_was_cut_is_joined_in_arguments_and_their_fields() -> None:
    begin = {"index": 0, "id": "c", "type": "function", "function": {"name": "send_message", "arguments": ""}}
    pieces = '{"message": "', "one \ud83d", "\ude00 two", " \ud83d", '\ude00"}'
    calls = [begin, *({"index": 0, "function": {"arguments": piece}} for piece in pieces)]
    stream = sk.stream(chat_body(*({"tool_calls": [call]} for call in calls)), fields=FIELDS)
    assert [*stream.text_deltas] == ["one ", "😀 two", " ", "😀"]
    assert stream.messages[0].content == '{"message": "one 😀 two 😀"}'
    assert not stream.warnings


def test_an_empty_string_is_created_and_done() -> None:
    """With no piece, as it has none."""
    lines = told(sk.stream([*streamed('{"message": ""}'), END], fields=FIELDS))
    assert [line["type"] for line in lines if line["type"].startswith("text")] == ["text_created", "text_done"]


@pytest.mark.parametrize(
    "text", ["", "{}", '{"other": "x"}', '{"message": 5}', '{"message": null}', '"message"', "[]", "7"]
)
def test_a_call_without_the_argument_has_no_message_of_it(text: str) -> None:
    """No arguments at all, none of this name, or one that is no text."""
    for events in (streamed(text), [e.MessageDone(call(content=text))]):
        assert contents(ran(*events, END)) == {}


def test_a_call_whose_name_comes_late_has_its_fields_told_then() -> None:
    """Its pieces came before the name; with and without the whole arguments at its end."""
    text = '{"message": "Hi"}'
    pieces = [one for one in streamed(text) if isinstance(one, e.Delta)]
    for last in (call(content=text), call()):
        stream = ran(*pieces, e.ToolCallDone(last), END)
        assert contents(stream) == {"c#message": "Hi"}
        assert field_messages(stream)["c#message"].call_id == "call_c"


def test_a_call_that_gets_another_name_has_the_fields_of_that_one() -> None:
    """What was told under the first name is incomplete."""
    text = '{"message": "Hi", "code": "1"}'
    events = streamed(text)
    events[-1] = e.ToolCallDone(call(name="execute", content=text))
    stream = ran(*events, END)
    found = {id: (message.content, message.status) for id, message in field_messages(stream).items()}
    assert found == {"c#message": ("Hi", "incomplete"), "c#code": ("1", "completed")}
    events[0] = e.ToolCallCreated(call(name="other"))
    assert contents(ran(*events, END)) == {"c#code": "1"}


def test_arguments_that_are_replaced_replace_their_fields() -> None:
    """By a delta: fields that say something else are replaced, new ones begin, the others stay as they are."""
    stream = sk.stream(
        [
            e.ToolCallCreated(call()),
            e.ToolCallDelta("c", '{"message": "Hi", "thoughts": "Hm", "n": 1'),
            e.ToolCallDelta("c", '{"message": "Ho", "thoughts": "Hm"', replace=True),
            e.ToolCallDelta("c", "}"),
            e.ToolCallDone(call()),
            END,
        ],
        fields=FIELDS,
    )
    lines = told(stream)
    check_brackets(lines)
    assert contents(stream) == {"c#message": "Ho", "c#thoughts": "Hm"}
    replaced = [line["message_id"] for line in lines if line.get("replace")]
    assert replaced == ["c", "c#message"]
    assert {message.status for message in stream.messages} == {"completed"}


def test_arguments_that_are_repaired_at_the_end_repair_their_fields() -> None:
    """Law 2. The warning is the call's alone, and a strict stream names the call."""
    events = streamed('{"message": "Hi the')
    events[-1] = e.ToolCallDone(call(content='{"message": "Ho there", "thoughts": "Hm"}'))
    stream = ran(*events, END)
    assert contents(stream) == {"c#message": "Ho there", "c#thoughts": "Hm"}
    assert [warning.code for warning in stream.warnings] == ["content-differs"]
    assert {message.status for message in stream.messages} == {"completed"}
    errors = [told(sk.stream([*events, END], strict=True, fields=fields))[-1] for fields in (None, FIELDS)]
    assert errors[0] == errors[1]


def test_of_equal_keys_the_last_counts() -> None:
    """As `json.loads` has it: the message is replaced; if the last is no text, by nothing, and it is incomplete."""
    stream = ran(*streamed('{"message": "One", "message": "Two"}'), END)
    assert contents(stream) == {"c#message": "Two"}
    assert stream.messages[-1].status == "completed"
    stream = ran(*streamed('{"message": "One", "message": 2}'), END)
    (field,) = field_messages(stream).values()
    assert (field.content, field.status) == ("", "incomplete")
    stream = ran(*streamed('{"message": "One", "message": ""}'), END)
    (field,) = field_messages(stream).values()
    assert (field.content, field.status) == ("", "completed")


AGAIN = {  # what comes after `"One"`, and what `text_deltas` has in the end
    "another text": (', "message": "Two and more"', "One"),
    "a shorter one": (', "message": "On"', "One"),
    "the same": (', "message": "One"', "One"),
    "more of the same": (', "message": "One and more"', "One and more"),
    "another, then more of that": (', "message": "Two", "message": "Two and more"', "One"),
    "another, then the first": (', "message": "Two and more", "message": "One"', "One"),
    "no text": (', "message": [2]', "One"),
    "no text, then more of the same": (', "message": [2], "message": "One and more"', "One and more"),
    "nothing, then more": (', "message": "", "message": "One and more"', "One"),
}


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("rest, deltas", AGAIN.values(), ids=AGAIN.keys())
def test_a_text_that_is_replaced_is_told_whole(rest: str, deltas: str, size: int) -> None:
    """So that `text_deltas`, in which replacements are not, has one text: the final one, or that which was replaced;
    never pieces of both. What goes on with what was told is told as more of it."""
    text = f'{{"message": "One"{rest}}}'
    final = json.loads(text)["message"]
    events = [*streamed(text, size=size), END]
    stream = ran(*events)
    assert contents(stream) == {"c#message": final if isinstance(final, str) else ""}
    pieces = [line for line in told(sk.stream(events, fields=FIELDS)) if line["type"] == "text_delta"]
    assert "".join(line["value"] for line in pieces if not line.get("replace")) == deltas
    first = next((number for number, line in enumerate(pieces) if line.get("replace")), len(pieces))
    assert all(line.get("replace") for line in pieces[first:])
    assert "".join(sk.stream([*streamed(text, size=size), END], fields=FIELDS).text_deltas) == deltas


def test_arguments_that_are_replaced_tell_their_language_once() -> None:
    """As they are now."""
    first, second = '{"code": "1", "language": "sql"', '{"code": "2", "language": "python"}'
    events = [
        e.ToolCallCreated(call(name="execute")),
        e.ToolCallDelta("c", first),
        e.ToolCallDelta("c", second, replace=True),
        e.ToolCallDone(call(name="execute")),
    ]
    (field,) = field_messages(ran(*events, END)).values()
    assert (field.content, field.format) == ("2", "python")


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ('{"message": "Hi', "Hi"),
        ('{"message": "Hi"', "Hi"),
        ('{"message": "Hi" oops', "Hi"),
        ('{"message": "Hi\nthere"}', "Hi"),
        ('{"message": "Hi \\ud83d', "Hi "),
        ('{"message": "Hi"} {', "Hi"),
    ],
)
def test_what_came_of_malformed_arguments_is_incomplete(text: str, content: str) -> None:
    """In a completed call too, which is told and warned of as ever."""
    stream = ran(*streamed(text), END)
    (field,) = field_messages(stream).values()
    assert (field.content, field.status) == (content, "incomplete")
    assert stream.messages[0].status == "completed"
    assert [warning.code for warning in stream.warnings] == ["bad-arguments"]


@pytest.mark.parametrize("status", ["incomplete", "failed", "cancelled"])
def test_a_field_ends_as_its_call_does(status: Any) -> None:
    """Whoever ends the call: its own end, the run's, or the source's."""
    begun = streamed('{"message": "Hi", "thoughts": "H')[:-1]
    stream = ran(*begun, e.ToolCallDone(call(status=status)), END)
    assert {message.status for message in stream.messages} == {status}
    with_run = sk.stream([*begun, e.RunDone(e.Run(status=status)), END], fields=FIELDS)
    told(with_run)
    assert {message.status for message in with_run.messages} == {status}


def test_a_stream_that_is_cut_off_leaves_its_fields_incomplete() -> None:
    """What arrived of them is kept; a producer that raises fails them, as it fails the call."""
    begun = streamed('{"message": "Hi", "thoughts": "H')[:-1]
    cut = sk.stream(begun, fields=FIELDS)
    with pytest.raises(sk.IncompleteStreamError) as caught:
        cut.until_done()
    assert [message.content for message in caught.value.messages][1:] == ["Hi", "H"]
    assert {message.status for message in cut.messages} == {"incomplete"}

    def producer() -> Any:
        yield from begun
        raise OSError("gone")

    failed = sk.stream(producer(), fields=FIELDS)
    with pytest.raises(sk.SourceError):
        failed.until_done()
    assert {message.status for message in failed.messages} == {"failed"}


def test_an_open_call_of_a_completed_run_completes_its_whole_fields() -> None:
    """A decoder need not end its messages. What is not whole is incomplete."""
    stream = ran(*streamed('{"message": "Hi"}')[:-1], e.RunDone(e.Run(status="completed")), END)
    assert [message.status for message in stream.messages] == ["completed", "completed"]
    stream = ran(*streamed('{"message": "Hi"')[:-1], END)
    assert [message.status for message in stream.messages] == ["completed", "incomplete"]


def test_closing_in_the_middle_of_a_piece_invents_nothing() -> None:
    """What the engine was not told is not told at the end."""
    items = chat_calls([(0, '{"message": "Hi"}'), (1, '{"message": "Ho"}')])
    for item in items:
        for piece in item["choices"][0]["delta"].get("tool_calls", ()):
            if "name" in piece["function"]:
                piece["function"]["name"] = "send_message"
    names = [line["type"] for line in told(sk.stream([sse(items)], fields=FIELDS))]
    for count in range(1, len(names)):
        lines: list[dict[str, Any]] = []

        class Teller(sk.EventHandler):
            def on_event(self, event: e.Event) -> None:
                line = codec.event_to_dict(event)
                if (snapshot := getattr(event, "snapshot", None)) is not None:
                    line["so far"] = snapshot.content
                lines.append(line)  # noqa: B023

        with sk.stream([sse(items)], Teller(), fields=FIELDS) as stream:
            for number, _ in enumerate(stream, 1):
                if number == count:
                    break
        check_brackets(lines)
        began = [line["message"]["id"] for line in lines if line["type"].endswith("_created") and "message" in line]
        assert len(began) == sum(name.endswith("_created") and not name.startswith("run") for name in names[:count])


def test_a_call_id_that_comes_again_has_fields_of_its_own() -> None:
    """A server that counts its calls anew in each response."""
    again = [*streamed('{"message": "One"}'), *streamed('{"message": "Two"}')]
    stream = ran(*again, END)
    assert contents(stream) == {"c#message": "One", "c.2#message": "Two"}
    assert [message.id for message in stream.messages] == ["c", "c#message", "c.2", "c.2#message"]


def test_a_call_that_is_told_done_again_tells_nothing_again() -> None:
    """A response repeats its items."""
    events = streamed('{"message": "One"}')
    assert told(sk.stream([*events, events[-1], END], fields=FIELDS)) == told(sk.stream([*events, END], fields=FIELDS))


# -- which message it becomes


@pytest.mark.parametrize(
    ("kind", "text", "format"),
    [
        ("code:python", '{"code": "x", "language": "r"}', "python"),
        ("code", '{"language": "r", "code": "x"}', "r"),
        ("code", '{"code": "x", "language": "r"}', "r"),
        ("code", '{"code": "x"}', None),
        ("code", '{"language": "", "code": "x"}', None),
        ("code", '{"language": 3, "code": "x"}', None),
        ("code", '{"language": "' + "long" * 100 + '", "code": "x"}', None),
        ("code", '{"language": "r", "code": "x", "language": "c"}', "c"),
    ],
)
def test_the_language_of_code_is_the_fields_or_the_argument_beside_it(kind: str, text: str, format: str | None) -> None:
    """In the end; what comes after the code is known only when the call is done."""
    for events in (streamed(text, name="f"), [e.MessageDone(call(name="f", content=text))]):
        stream = ran(*events, END, fields={"f.code": kind})
        (code,) = field_messages(stream).values()
        assert isinstance(code, sk.CodeMessage)
        assert (code.content, code.language, code.role) == ("x", format, "assistant")


def test_the_language_is_known_when_the_code_begins_if_it_came_first() -> None:
    """Not earlier: while it grows it is none."""
    seen: list[Any] = []

    class Teller(sk.EventHandler):
        def on_code_created(self, message: sk.CodeMessage) -> None:
            seen.append(message.language)

    cells = '{"cells": [{"language": "r", "code": "x"}, {"code": "y", "language": "c"}]}'
    stream = sk.stream([*streamed(cells, name="f"), END], Teller(), fields={"f.cells.*.code": "code"})
    stream.until_done()
    assert seen == ["r", None]
    assert [(id, message.format) for id, message in field_messages(stream).items()] == [
        ("c#cells.0.code", "r"),
        ("c#cells.1.code", "c"),
    ]


def test_nested_paths_any_key_and_any_tool() -> None:
    """The metadata names the field as `fields=` would; the tool's own choices come first, in their order."""
    text = '{"a": {"b.c": "x", "d": ["y", {"e": "z"}]}, "f": "w"}'
    fields = {"*.f": "text", "t.a.b\\.c": "reasoning", "t.a.d.*": "code:r", "t.a.d.1.e": "text", "t.*": "reasoning"}
    stream = ran(*streamed(text, name="t"), *streamed('{"f": "v", "a": {"d": ["u"]}}', "d", "s.s"), END, fields=fields)
    assert [(one.id, one.type, one.content, one.metadata["field"]) for one in field_messages(stream).values()] == [
        ("c#a.b\\.c", "reasoning", "x", "t.a.b\\.c"),
        ("c#a.d.0", "code", "y", "t.a.d.0"),
        ("c#a.d.1.e", "message", "z", "t.a.d.1.e"),
        ("c#f", "reasoning", "w", "t.f"),
        ("d#f", "message", "v", "s\\.s.f"),
    ]


def test_a_choice_of_its_own_stays_out_of_the_text() -> None:
    """Only the first choice's fields are the answer, as its texts are."""
    text = '{"message": "Hi"}'
    events = [e.ToolCallCreated(call(choice=1)), e.ToolCallDelta("c", text), e.ToolCallDone(call(content=text))]
    stream = ran(*events, END)
    assert contents(stream) == {"c#message": "Hi"}
    assert stream.get_final_text() == ""


# -- beside what else there is


def test_a_recording_has_what_came_and_its_fields_are_told_anew(tmp_path: Path) -> None:
    """`Recorder` keeps the source's own items, and which fields were told of them."""
    path = tmp_path / "run.jsonl"
    text = '{"message": "Hi there"}'
    items = json.loads(
        json.dumps(chat_calls([(0, text[:14]), (0, text[14:])])).replace('"name": "f"', '"name": "send_message"')
    )
    first = told(sk.stream([sse(items)], sk.Recorder(path), fields=FIELDS))
    assert any("#message" in line.get("message_id", "") for line in first)
    assert told(sk.stream(path, fields=FIELDS)) == first
    assert told(sk.stream(path)) == first, "the recording says which they were"
    assert told(sk.stream(path, fields={})) == without_fields(first)


FIELDS_TOLD = ("openai_chat", "openai_responses", "anthropic")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_to_input_tells_a_field_once(protocol: str) -> None:
    """With its call where the request has one, else by itself: no call among the messages, or one that was cut off."""
    text = '{"message": "Hi there", "code": "1"}'
    fields = {"*.message": "text", "*.code": "code:python"}
    stream = ran(*streamed(text), END, fields=fields)
    everything = sk.to_input(stream.messages, protocol)
    if protocol in FIELDS_TOLD:
        assert everything == sk.to_input(ran(*streamed(text), END, fields=None).messages, protocol)
    elif protocol == "streamkit":
        assert everything == [message.to_dict() for message in stream.messages]
    elif protocol != "letta":  # where the server knows its calls
        assert json.dumps(everything).count("Hi there") == 1
    alone = sk.to_input([message for message in stream.messages if message.type == "message"], protocol)
    assert json.dumps(alone).count("Hi there") == 1
    cut = sk.stream(streamed(text)[:-2], fields=fields)
    told(cut)
    assert json.dumps(sk.to_input(cut.messages, protocol)).count("Hi there") >= 1
    assert sk.to_input([message.to_dict() for message in stream.messages], protocol) == everything


# -- the laws


keys = q.sampled_from(("message", "thoughts", "code", "language", "n", "message"))
texts = q.text(q.sampled_from('ab é\u2028\U0001f600\n"\\{}[]:,'), max_size=8)
simple = (
    texts | texts | q.none() | q.integers(-9, 99) | q.lists(texts, max_size=2) | q.dictionaries(keys, texts, max_size=2)
)
arguments = q.lists(q.tuples(keys, simple), max_size=5)
tools = q.sampled_from(("send_message", "execute", "other"))
CHOSEN = {**FIELDS, "send_message.n.*": "text", "execute.language": "reasoning", "*.n.message": "code:sql"}


@q.composite
def written(draw: q.Draw) -> str:
    """Arguments as JSON text, with keys that come again; sometimes cut or spoilt."""
    ascii, space = draw(q.booleans()), draw(q.sampled_from(("", " ", "\n")))
    pairs = [json.dumps(key) + ":" + space + json.dumps(value, ensure_ascii=ascii) for key, value in draw(arguments)]
    text = "{" + space + ("," + space).join(pairs) + "}"
    if draw(q.integers(0, 4)) == 0:
        text = text[: draw(q.integers(0, len(text)))] + draw(q.sampled_from(("", "", "\x00", '"', "}", "x")))
    return text


Calls = list[tuple[str, str]]  # the tool, and its arguments
Parts = list[tuple[int, str]]  # which call, and a piece


@q.composite
def interleaved(draw: q.Draw) -> tuple[Calls, Parts]:
    calls = draw(q.lists(q.tuples(tools, written()), min_size=1, max_size=3))
    left = []
    for which, (_, text) in enumerate(calls):
        places = sorted(draw(q.lists(q.integers(0, len(text)), max_size=6)))
        pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True) if a < b]
        left.append((which, pieces))
    parts: Parts = []
    while left := [one for one in left if one[1]]:
        which, pieces = draw(q.sampled_from(left))
        parts.append((which, pieces.pop(0)))
    return calls, parts


def chat_items(calls: Calls, parts: Parts) -> list[Any]:
    items = chat_calls(parts)
    for item in items:
        for piece in item["choices"][0]["delta"].get("tool_calls", ()):
            if "name" in piece["function"]:
                piece["function"]["name"] = calls[piece["index"]][0]
    return items


def responses_items(calls: Calls, parts: Parts) -> list[Any]:
    def item(which: int, text: str) -> dict[str, Any]:
        known = {"call_id": f"call_{which}", "name": calls[which][0], "arguments": text}
        return {"id": f"fc_{which}", "type": "function_call", **known}

    out: list[dict[str, Any]] = [{"type": "response.created", "response": {"id": "r", "status": "in_progress"}}]
    out += [{"type": "response.output_item.added", "output_index": n, "item": item(n, "")} for n in range(len(calls))]
    for which, piece in parts:
        place = {"item_id": f"fc_{which}", "output_index": which, "delta": piece}
        out.append({"type": "response.function_call_arguments.delta", **place})
    whole = [item(n, text) for n, (_, text) in enumerate(calls)]
    out += [{"type": "response.output_item.done", "output_index": n, "item": one} for n, one in enumerate(whole)]
    out.append({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": whole}})
    return [{"sequence_number": number, **one} for number, one in enumerate(out)]


def anthropic_items(calls: Calls, parts: Parts) -> list[Any]:
    """This protocol has no calls side by side: one after the other."""
    out: list[dict[str, Any]] = [
        {
            "type": "message_start",
            "message": {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m"},
        }
    ]
    for n, (tool, _) in enumerate(calls):
        block = {"type": "tool_use", "id": f"call_{n}", "name": tool, "input": {}}
        out.append({"type": "content_block_start", "index": n, "content_block": block})
        for piece in (piece for which, piece in parts if which == n):
            delta = {"type": "input_json_delta", "partial_json": piece}
            out.append({"type": "content_block_delta", "index": n, "delta": delta})
        out.append({"type": "content_block_stop", "index": n})
    out.append({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}})
    return [*out, {"type": "message_stop"}]


def canonical_items(calls: Calls, parts: Parts) -> list[Any]:
    out: list[e.Event] = [e.ToolCallCreated(call(str(n), tool)) for n, (tool, _) in enumerate(calls)]
    out += [e.ToolCallDelta(str(which), piece) for which, piece in parts]
    out += [e.ToolCallDone(call(str(n), tool, content=text)) for n, (tool, text) in enumerate(calls)]
    return [codec.event_to_dict(one) for one in (*out, END)]


SOURCES: dict[str, Callable[[Calls, Parts], list[Any]]] = {
    "openai_chat": chat_items,
    "openai_responses": responses_items,
    "anthropic": anthropic_items,
    "streamkit": canonical_items,
}
every_source = pytest.mark.parametrize("source", SOURCES)


def strings_of(tool: str, text: str) -> dict[str, str] | None:
    """What `json.loads` gives at the chosen paths; None if it gives nothing."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    found = {}
    inner = value.get("n")
    spots = {"message": value.get("message"), "thoughts": value.get("thoughts")} if tool == "send_message" else {}
    if tool == "execute":
        spots = {"code": value.get("code"), "language": value.get("language")}
    if tool == "send_message" and isinstance(inner, (dict, list)):
        spots |= {f"n.{key}": one for key, one in (inner.items() if isinstance(inner, dict) else enumerate(inner))}
    elif isinstance(inner, dict):
        spots["n.message"] = inner.get("message")
    for path, one in spots.items():
        if isinstance(one, str):
            found[path] = one
    return found


@pytest.mark.slow
@every_source
@often
@given(q.drawn(interleaved()), q.drawn(q.booleans()))
def test_laws_1_2_and_5_hold_with_fields(source: str, drawn: tuple[Calls, Parts], as_bytes: bool) -> None:
    """Each field's final content is what `json.loads` gives of its call's arguments at its path; what is no such field is
    no completed message; and all else is told as without fields."""
    items = SOURCES[source](*drawn)
    given: Any = [sse(items)] if as_bytes and source != "streamkit" else items
    stream = sk.stream(given, protocol=source, fields=CHOSEN)
    lines = told(stream)
    check_brackets(lines)
    assert without_fields(lines) == told(sk.stream(given, protocol=source))
    for called in [message for message in stream.messages if message.type == "tool_call"]:
        mine = [one for one in field_messages(stream).values() if one.call_id == called.call_id]
        whole = {one.metadata["field"].partition(".")[2]: one.content for one in mine if one.status == "completed"}
        wanted = strings_of(called.name or "", called.content)
        assert whole == (wanted or {})
        assert {one.status for one in mine} <= {"completed", "incomplete"}
        assert all(one.group == called.group and one.id.startswith(f"{called.id}#") for one in mine)


@pytest.mark.slow
@every_source
@often
@given(q.drawn(interleaved()), st.data())
def test_law_1_holds_with_fields_wherever_the_stream_is_cut_off(
    source: str, drawn: tuple[Calls, Parts], data: st.DataObject
) -> None:
    """And all else is told as without them."""
    items = SOURCES[source](*drawn)
    items = items[: data.draw(st.integers(0, len(items)))]
    lines = told(sk.stream(items, protocol=source, fields=CHOSEN))
    check_brackets([line for line in lines if line["type"] != "error"])
    assert without_fields(lines) == told(sk.stream(items, protocol=source))


@pytest.mark.slow
@pytest.mark.parametrize("source", [name for name in SOURCES if name != "streamkit"])
@often
@given(q.drawn(interleaved()), st.data())
def test_law_3_holds_with_fields(source: str, drawn: tuple[Calls, Parts], data: st.DataObject) -> None:
    """However the bytes are cut."""
    whole = sse(SOURCES[source](*drawn))
    places = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)]
    assert told(sk.stream(pieces, fields=CHOSEN)) == told(sk.stream([whole], fields=CHOSEN))


@pytest.mark.slow
@every_source
@seldom
@given(q.drawn(interleaved()))
def test_law_4_holds_with_fields(source: str, drawn: tuple[Calls, Parts]) -> None:
    """Sync, asyncio and trio tell the same, to every hook."""
    items = SOURCES[source](*drawn)
    stories: list[list[Any]] = []
    for backend in ("sync", "asyncio", "trio"):
        calls: list[Any] = []
        handler, async_handler = tellers(calls)
        if backend == "sync":
            sk.stream(items, handler, protocol=source, fields=CHOSEN).until_done()
        else:
            manager = sk.astream(items, async_handler, protocol=source, fields=CHOSEN)
            anyio.run(manager.until_done, backend=backend)
        stories.append(calls)
    assert stories[0] == stories[1] == stories[2]


@pytest.mark.slow
@every_source
@often
@given(q.drawn(interleaved()))
def test_law_6_holds_with_fields(source: str, drawn: tuple[Calls, Parts]) -> None:
    """The canonical events tell the same story again, fields and all. With the same fields chosen again, none is told
    twice: the messages are the same; so is the story, but for where fields end beside a warning of their call."""
    items = SOURCES[source](*drawn)
    first = sk.stream(items, protocol=source, fields=CHOSEN)
    lines = told(first)
    events = [{key: value for key, value in line.items() if key != "so far"} for line in lines]
    wire = json.loads(json.dumps(events))
    assert told(sk.stream(wire)) == lines
    for inner in (wire, sk.stream(items, protocol=source, fields=CHOSEN)):
        again = sk.stream(inner, fields=CHOSEN)
        relayed = told(again)
        check_brackets(relayed)
        assert again.messages == first.messages
        assert relayed == lines or first.warnings


def test_other_fields_can_be_added_down_the_stream() -> None:
    """Those that were told are kept, those that are chosen again are chosen anew."""
    inner = sk.stream([*streamed('{"message": "Hi", "thoughts": "Hm"}'), END], fields={"send_message.message": "text"})
    stream = sk.stream(inner, fields={"send_message.thoughts": "reasoning"})
    stream.until_done()
    assert contents(stream) == {"c#message": "Hi", "c#thoughts": "Hm"}
    inner = sk.stream([*streamed('{"message": "Hi"}'), END], fields={"send_message.message": "text"})
    stream = sk.stream(inner, fields={"send_message.message": "reasoning"})
    stream.until_done()
    assert [message.type for message in stream.messages] == ["tool_call", "reasoning"]


def shows_fields(protocol: str) -> bool:
    """Whether a text that is a field is still known as one after it went through a protocol: by its id, or its metadata."""
    text = e.TextDone(m.TextMessage("c#message", content="Hi", metadata={"field": "send_message.message"}))
    stream = sk.stream([*sk.stream([text, END]).chunks(protocol)], protocol=protocol)
    stream.until_done()
    (message,) = stream.messages
    return message.id == "c#message" or "field" in message.metadata


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_converted_stream_that_is_read_with_fields_again_tells_each_once(protocol: str) -> None:
    """By its id; where a protocol's texts have none, what was converted to text is the model's own, beside the call."""
    text = '{"message": "Hi there", "thoughts": "Hm"}'
    chunks = [*sk.stream([*streamed(text), *streamed(text, "d"), END], fields=FIELDS).chunks(protocol)]
    stream = sk.stream(chunks, protocol=protocol, fields=FIELDS)
    stream.until_done()
    assert sorted(contents(stream).values()) == ["Hi there", "Hi there", "Hm", "Hm"]
    assert [warning.code for warning in stream.warnings] == []
    own = [message.content for message in stream.messages if message.type == "message" and not message.metadata]
    assert "".join(own) == ("" if shows_fields(protocol) else "Hi there" * 2)


def test_a_text_with_an_id_of_its_own_is_never_taken_for_a_field() -> None:
    """Whatever signs are in it: of a tool that was not called, of an argument that was not chosen, of another kind."""
    ids = ["#message", "a#", "a#other", "a#message.x", "a#code", "#"]
    texts = [e.TextDone(m.TextMessage(id, content=id)) for id in ids]
    other = e.ToolCallDone(call("b#message", content='{"message": "Ho"}'))
    stream = ran(*texts, *streamed('{"message": "Hi"}'), *texts, other, END)
    assert [message.content for message in stream.messages if message.id in ids] == ids
    assert contents(stream) == {"c#message": "Hi", "b#message#message": "Ho"}


@pytest.mark.slow
@often
@given(q.drawn(canonical), q.drawn(q.sampled_from(({"f.n": "text"}, {"*.*": "code"}))))
def test_laws_1_6_and_7_hold_for_any_events_with_fields(events: list[e.Event], fields: dict[str, str]) -> None:
    """However ill-formed."""
    items = [codec.event_to_dict(one) for one in (*events, END)]
    lines = told(sk.stream(items, fields=fields))
    check_brackets([line for line in lines if line["type"] != "error"])
    assert without_fields(lines) == told(sk.stream(items))


@pytest.mark.slow
@often
@given(
    q.drawn(
        q.lists(
            q.one_of(
                q.builds(
                    lambda id, name: e.ToolCallCreated(call(id, name)),
                    q.sampled_from("ab"),
                    q.sampled_from(("f", "g", None)),
                ),
                q.builds(
                    lambda id, text, new: e.ToolCallDelta(id, text, new),
                    q.sampled_from("ab"),
                    q.sampled_from(('{"m": "', "x", '"', "}", '", "m": "', '{"m": "y"}')),
                    q.integers(0, 4).map(lambda n: n == 0),
                ),
                q.builds(
                    lambda id, name, text, status: e.MessageDone(call(id, name, content=text, status=status)),
                    q.sampled_from("ab"),
                    q.sampled_from(("f", "g", None)),
                    q.none() | q.sampled_from(('{"m": "xx"}', '{"m": "z', "")),
                    q.sampled_from(("completed", "failed")),
                ),
                q.builds(lambda status: e.RunDone(e.Run(status=status)), q.sampled_from(("completed", "failed"))),
            ),
            max_size=12,
        )
    )
)
def test_whatever_becomes_of_calls_their_fields_say_what_they_say(events: list[e.Event]) -> None:
    """Calls that are begun twice, replaced, repaired, renamed, ended by the run: law 2 for each field that is completed,
    and all else as without fields."""
    items = [codec.event_to_dict(one) for one in (*events, END)]
    stream = sk.stream(items, fields={"f.m": "text"})
    lines = told(stream)
    check_brackets([line for line in lines if line["type"] != "error"])
    assert without_fields(lines) == told(sk.stream(items))
    replaced: set[str] = set()
    for line in lines:
        if line["type"] == "text_delta":
            assert line.get("replace") or line["message_id"] not in replaced
            replaced |= {line["message_id"]} if line.get("replace") else set()
    calls = {message.id: message for message in stream.messages if message.type == "tool_call"}
    for field in field_messages(stream).values():
        called = calls[field.id.rpartition("#")[0]]
        if field.status == "completed":
            assert called.status == "completed"
            assert json.loads(called.content)["m"] == field.content
    for called in calls.values():
        try:
            value = json.loads(called.content)["m"]
        except (ValueError, KeyError, TypeError):
            continue
        if called.name == "f" and called.status == "completed":
            assert contents(stream)[f"{called.id}#m"] == value


@pytest.mark.slow
def test_a_piece_costs_the_same_in_long_arguments() -> None:
    """CPU time of the stage for a piece of four characters, at 10 KB and at 400 KB: flat, with a margin."""

    def cost(size: int) -> float:
        text = json.dumps({"thoughts": "", "message": "Lorem ipsum " * (size // 12)})
        events, stage, out = streamed(text, size=4), ArgumentFields(FIELDS), []
        taken = seconds_of(lambda: out.extend(stage.feed(events)))
        assert len(out) > len(events) * 1.9
        return taken / len(events)

    assert_costs(lambda: cost(400_000), 3, lambda: cost(10_000))


def test_a_stream_that_goes_on_after_a_cursor_tells_its_fields_from_there() -> None:
    """What was told of an open field is one delta."""
    text = '{"message": "Hello there"}'
    events = [{**codec.event_to_dict(one), "cursor": str(n)} for n, one in enumerate([*streamed(text), END])]
    stream = sk.stream(events, after="6", fields=FIELDS)
    pieces = [event.value for event in stream if isinstance(event, e.TextDelta)]
    assert len(pieces) > 1
    assert "".join(pieces) == "Hello there" == stream.get_final_text()
    assert "".join(pieces[1:]) == "".join(sk.stream(events, fields=FIELDS).text_deltas)[len(pieces[0]) :]


@pytest.mark.parametrize("protocol", ["openai_chat", "openai_responses", "openai_assistants", "anthropic"])
def test_a_call_is_encoded_once_with_its_code_and_its_text_in_other_words(protocol: str) -> None:
    """Its text is plain text there, its code and reasoning stay in the call: nothing looks as if it had run."""
    arguments = json.dumps({"code": "print(1)", "why": "To see.", "say": "Here."})
    script = [Reply(ToolCall("execute", arguments))]
    fields = {"execute.code": "code:python", "execute.why": "reasoning", "execute.say": "text"}
    with ModelServer(script) as server, openai.OpenAI(base_url=server.url, api_key="none") as client:
        first = sk.stream(ask(client), fields=fields)
        again = sk.stream(first.chunks(protocol), protocol=protocol)
        again.until_done()
    assert [m.type for m in first.messages] == ["tool_call", "code", "reasoning", "message"]
    assert sorted((m.type, m.content) for m in again.messages) == [("message", "Here."), ("tool_call", arguments)]
