"""The Responses protocol: what a stream decodes to, whatever servers do, and encoding and input."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

import httpx2
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

import streamkit as sk
from streamkit import protocols
from streamkit.answers import Confirmation
from streamkit.errors import UsageError
from streamkit.events import ConfirmationCreated, Event, RawEvent
from streamkit.messages import (
    AudioMessage,
    CodeMessage,
    ConsoleMessage,
    FileMessage,
    ImageMessage,
    Message,
    ReasoningMessage,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
)
from streamkit.protocols import openai_chat
from streamkit.protocols.codec import event_to_dict
from streamkit.protocols.framing import NdjsonFramer, SseFramer, sse_frame
from streamkit.protocols.openai_responses import Decoder, Encoder, to_input

from .. import values as q
from ..recorded import each_recording, in_a_loop, recording_cases
from ..telling import Story, tell_bytes, tell_items

NAMES = sorted(
    get_args(member.model_fields["type"].annotation)[0] for member in get_args(get_args(ResponseStreamEvent)[0])
)

# Recordings where the expected file is not what a user needs: none so far.
SDK_IS_WRONG: dict[str, str] = {}


class Slow(Decoder):
    """The decoder without its plain case."""

    plain_item = None


def stem(path: Path) -> str:
    return path.name.removesuffix(".sse").removesuffix(".jsonl")


def frames_of(path: Path) -> list[tuple[bytes, bytes, bytes]]:
    framer = SseFramer() if path.suffix == ".sse" else NdjsonFramer()
    return framer.feed(path.read_bytes()) + framer.finish()


def items_of(path: Path) -> list[Any]:
    return [json.loads(data) for _, _, data in frames_of(path) if data.startswith(b"{")]


def texts(story: Story) -> list[str]:
    return story.contents("message")


def calls(story: Story) -> list[tuple[str | None, str]]:
    return [(m.name, m.content) for m in story.engine.messages.all if isinstance(m, ToolCallMessage)]


def raw_names(story: Story) -> list[str]:
    return [event.name for event in story.events if isinstance(event, RawEvent)]


# -- short ways to write events


def e(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **fields}


def delta(text: str, id: str = "msg_1", place: int = 0, part: int = 0, **more: Any) -> dict[str, Any]:
    at = {"item_id": id, "output_index": place, "content_index": part}
    return e("output_text.delta", **at, delta=text, **more)


def part(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], **more}


def message(*contents: str, id: str = "msg_1", **more: Any) -> dict[str, Any]:
    item = {"id": id, "type": "message", "role": "assistant", "status": "completed"}
    return {**item, "content": [part(text) for text in contents], **more}


def call(arguments: str, id: str = "fc_1", name: str = "f", **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "function_call", "call_id": f"call_{id}", "name": name, "arguments": arguments, **more}


def added(item: Any, place: int = 0) -> dict[str, Any]:
    return e("output_item.added", output_index=place, item=item)


def done(item: Any, place: int = 0) -> dict[str, Any]:
    return e("output_item.done", output_index=place, item=item)


def response(*output: Any, status: str = "completed", **more: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "model": "m", "status": status, "output": list(output), **more}


CREATED = e("created", response=response(status="in_progress"))


def completed(*output: Any, **more: Any) -> dict[str, Any]:
    return e("completed", response=response(*output, **more))


def decode(*items: Any, strict: bool = False) -> Story:
    """The story of these events between a created and nothing."""
    return tell_items(Decoder, [CREATED, *items], strict=strict)


def only(story: Story) -> Message:
    (found,) = story.engine.messages.all
    return found


# -- recordings


def same_arguments(actual: str, expected: str | None) -> bool:
    if expected is None or actual == expected:
        return True
    try:
        decoded, wanted = json.loads(actual), json.loads(expected)
    except ValueError:
        return False
    return bool(decoded == wanted or decoded == {"queries": wanted})


def call_group(story: Story, item: dict[str, Any]) -> tuple[list[Message], str]:
    """The messages of an expected call, and its arguments as they have them."""
    kinds = ("tool_call", "code", "image")
    found = [
        m for m in story.engine.messages.all if m.group == item["id"] and m.type in kinds and m.role == "assistant"
    ]
    if item["type"] == "shell_call":
        wanted = json.loads(item["arguments"])
        return found, json.dumps({**wanted, "commands": [m.content for m in found]})
    return found, found[0].content if found else ""


@each_recording("openai-responses", own=False)
def test_a_recording_ends_with_the_texts_that_the_sdk_gives(path: Path) -> None:
    """Texts, refusals, ids and the number of citations."""
    if stem(path) in SDK_IS_WRONG:
        pytest.skip(SDK_IS_WRONG[stem(path)])
    expected = json.loads(path.with_name(f"{stem(path)}.expected.json").read_text())
    story = tell_bytes(Decoder, [path.read_bytes()])
    found = [m for m in story.engine.messages.all if isinstance(m, TextMessage)]
    wanted = [m for m in expected["messages"] if m["text"] is not None]
    assert [m.content for m in found] == [m["text"] for m in wanted]
    assert [len(m.annotations) for m in found] == [m["annotations"] for m in wanted]
    assert [m.id for m in found] == [m["id"] for m in wanted]
    assert story.contents("message", "refusal") == [m["refusal"] for m in expected["messages"] if m["refusal"]]
    if expected["reasoning_own_reading"]:
        reasoning = [m.content for m in story.engine.messages.all if m.type == "reasoning" and m.content]
        assert "".join("".join(reasoning).split()) == "".join(expected["reasoning_own_reading"].split())
    assert story.decoder.complete
    assert set(story.codes) <= {"content-differs"}


@each_recording("openai-responses", own=False)
def test_a_recording_ends_with_the_calls_that_the_sdk_gives(path: Path) -> None:
    """Each call of the expected file, with its name, its call id and its arguments; and no other."""
    expected = json.loads(path.with_name(f"{stem(path)}.expected.json").read_text())
    story = tell_bytes(Decoder, [path.read_bytes()])
    for item in expected["tool_calls"]:
        found, arguments = call_group(story, item)
        assert found, item
        if item["type"] != "image_generation_call":
            assert same_arguments(arguments, item["arguments"]), (arguments, item)
            assert found[0].call_id == (item["call_id"] or item["id"])
        if item["name"]:
            assert found[0].name == item["name"]
    ids = {item["id"] for item in expected["tool_calls"]}
    assert {m.group for m in story.engine.messages.all if m.type in ("tool_call", "code")} <= ids


def plain(events: Iterable[Event]) -> list[tuple[dict[str, Any], Any]]:
    return [(event_to_dict(event), event.raw_item) for event in events]


@each_recording("openai-responses")
def test_the_fast_path_emits_the_same_events(path: Path) -> None:
    """Frame by frame, both decoders give the same events, source and cursor too."""
    fast, slow = Decoder(), Slow()
    for frame in frames_of(path):
        assert plain(fast.feed_frames([frame])) == plain(slow.feed_frames([frame]))
    assert fast.index == slow.index
    fast_lines, slow_lines = (tell_bytes(kind, [path.read_bytes()]).lines for kind in (Decoder, Slow))
    assert fast_lines == slow_lines


@each_recording("openai-responses", complete=True)
def test_every_event_has_the_sequence_number_as_its_cursor(path: Path) -> None:
    """So a stream can be resumed with `starting_after`."""
    for item in items_of(path):
        number = item.get("sequence_number")
        assert all(event.position == number for event in Decoder().feed(item))


# -- every event name


FILLED: dict[str, Any] = {
    "item_id": "i",
    "output_index": 0,
    "content_index": 0,
    "summary_index": 0,
    "command_index": 0,
    "sequence_number": 7,
    "delta": "x",
    "text": "x",
    "code": "x",
    "arguments": "{}",
    "input": "x",
    "command": "x",
    "refusal": "x",
    "message": "x",
    "part": part("x"),
    "annotation": {"type": "url_citation", "url": "https://example.org"},
    "item": message("x", id="i"),
    "output": [{"stdout": "x", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
    "partial_image_b64": "AAAA",
    "response": response(),
}


def test_there_are_as_many_names_as_the_sdk_types() -> None:
    """The names below come from the SDK's own union."""
    assert len(NAMES) == 59


@pytest.mark.parametrize("fields", [{}, FILLED, dict.fromkeys(FILLED)], ids=["bare", "filled", "null"])
@in_a_loop("name", NAMES)
def test_every_event_of_the_api_becomes_an_event(name: str, fields: dict[str, Any]) -> None:
    """Whether its fields are there, absent or null."""
    events = Decoder().feed_items([{**fields, "type": name}])
    assert events
    assert "decoder-error" not in [getattr(event, "code", "") for event in events]


@in_a_loop("name", NAMES)
def test_every_event_of_the_api_but_error_is_recognised(name: str) -> None:
    """An error has no shape of its own."""
    assert Decoder.recognises({"type": name}) is (name != "error")


@pytest.mark.parametrize(
    ("item", "is_recognised"),
    [
        ({"object": "response", "output": []}, True),
        ({"object": "response"}, False),
        ({"object": "chat.completion.chunk", "choices": []}, False),
        ({"type": "response.not.listed"}, True),
        ({"type": 5}, False),
        ({}, False),
    ],
)
def test_what_is_recognised(item: dict[str, Any], is_recognised: bool) -> None:
    """A response that was not streamed, and any event of one."""
    assert Decoder.recognises(item) is is_recognised


# -- traps


Trap = tuple[str, list[Any], list[str], list[tuple[str | None, str]], str]
TRAPS: list[Trap] = [
    (
        "ids that are other ones on every event",
        [
            CREATED,
            added(message(id="a")),
            e("content_part.added", item_id="b", output_index=0, content_index=0, part=part("")),
            delta("Hel", "c"),
            delta("lo", "d"),
            e("content_part.done", item_id="e", output_index=0, content_index=0, part=part("Hello")),
            done(message("Hello", id="f")),
            completed(message("Hello", id="g")),
        ],
        ["Hello"],
        [],
        "completed",
    ),
    (
        "ids on none",
        [
            CREATED,
            e("output_text.delta", output_index=0, delta="a"),
            e("function_call_arguments.delta", output_index=1, delta="{}"),
            e("output_text.delta", output_index=0, delta="b"),
            done({"type": "function_call", "name": "f", "call_id": "c", "arguments": "{}"}, 1),
            completed({"type": "message", "content": [part("ab")]}),
        ],
        ["ab"],
        [("f", "{}")],
        "requires_action",
    ),
    (
        "neither ids nor indexes",
        [e("output_text.delta", delta=t) for t in "abc"] + [completed()],
        ["abc"],
        [],
        "completed",
    ),
    ("item null", [CREATED, added(None), delta("a"), done(None), completed(message("a"))], ["a"], [], "completed"),
    (
        "output null",
        [CREATED, delta("a"), e("completed", response={**response(), "output": None})],
        ["a"],
        [],
        "completed",
    ),
    ("response null", [CREATED, delta("a"), e("completed", response=None)], ["a"], [], "completed"),
    ("no created", [e("queued", response=response(status="queued")), delta("a"), completed()], ["a"], [], "completed"),
    ("no deltas", [CREATED, completed(message("a"), call("{}"))], ["a"], [("f", "{}")], "requires_action"),
    ("only a part's end", [CREATED, e("output_text.done", item_id="m", text="a"), completed()], ["a"], [], "completed"),
    (
        "interleaved items",
        [delta("a", "m1", 0), delta("x", "m2", 1), delta("b", "m1", 0), delta("y", "m2", 1), completed()],
        ["ab", "xy"],
        [],
        "completed",
    ),
    (
        "interleaved items of the same id",
        [
            added(message(id="m"), 0),
            added(message(id="m"), 1),
            delta("a", "m", 0),
            delta("x", "m", 1),
            delta("b", "m", 0),
            delta("y", "m", 1),
            completed(),
        ],
        ["ab", "xy"],
        [],
        "completed",
    ),
    (
        "the same output_index for all",
        [
            *(added(message(id="m1")), delta("a", "m1"), done(message("a", id="m1"))),
            *(added(message(id="m2")), delta("b", "m2"), done(message("b", id="m2"))),
            completed(message("a", id="m1"), message("b", id="m2")),
        ],
        ["a", "b"],
        [],
        "completed",
    ),
    (
        "parallel function calls",
        [
            added(call("", "f1", "one"), 0),
            added(call("", "f2", "two"), 1),
            e("function_call_arguments.delta", item_id="f1", output_index=0, delta='{"a"'),
            e("function_call_arguments.delta", item_id="f2", output_index=1, delta='{"b"'),
            e("function_call_arguments.delta", item_id="f1", output_index=0, delta=":1}"),
            e("function_call_arguments.delta", item_id="f2", output_index=1, delta=":2}"),
            done(call('{"b":2}', "f2", "two"), 1),
            done(call('{"a":1}', "f1", "one"), 0),
            completed(),
        ],
        [],
        [("one", '{"a":1}'), ("two", '{"b":2}')],
        "requires_action",
    ),
    (
        "several content parts",
        [delta("a", part=0), delta("x", part=1), delta("b", part=0), done(message("ab", "x")), completed()],
        ["ab", "x"],
        [],
        "completed",
    ),
    (
        "parts counted from one",
        [delta("a", part=1), done(message("a")), completed(message("a"))],
        ["a"],
        [],
        "completed",
    ),
    (
        "an empty final text beside what was streamed",
        [delta("a"), done(message("")), completed(message(""))],
        ["a"],
        [],
        "completed",
    ),
    (
        "a delta after its item",
        [delta("a"), done(message("a")), delta("b"), completed(message("a"))],
        ["a", "b"],
        [],
        "completed",
    ),
    (
        "events after the end",
        [delta("a"), completed(), completed(message("c", id="z")), e("failed")],
        ["a"],
        [],
        "completed",
    ),
    (
        "a bare end of another server's",
        [delta("a"), e("done", response=response(status="incomplete"))],
        ["a"],
        [],
        "incomplete",
    ),
    ("cancelled", [delta("a"), e("cancelled", response=response(status="cancelled"))], ["a"], [], "cancelled"),
    ("completed with another status", [delta("a"), completed(status="incomplete")], ["a"], [], "incomplete"),
    ("failed", [delta("a"), e("failed", response=response(status="failed"))], ["a"], [], "failed"),
    ("a response that was not streamed", [response(message("a"), call("{}"))], ["a"], [("f", "{}")], "requires_action"),
    ("cut off", [delta("a")], ["a"], [], "incomplete"),
]


@pytest.mark.parametrize(("items", "wanted", "called", "status"), [t[1:] for t in TRAPS], ids=[t[0] for t in TRAPS])
@pytest.mark.parametrize("fast", [False, True], ids=["items", "frames"])
def test_what_servers_do(
    items: list[Any], wanted: list[str], called: list[tuple[str | None, str]], status: str, fast: bool
) -> None:
    """Each is survived, by the items and by the bytes."""
    body = b"".join(sse_frame(json.dumps(item).encode()) for item in items)
    story = tell_bytes(Decoder, [body]) if fast else tell_items(Decoder, items)
    assert texts(story) == wanted
    assert calls(story) == called
    assert story.engine.runs.run is not None
    assert story.engine.runs.run.status == status
    assert "decoder-error" not in story.codes


@pytest.mark.parametrize(
    "error",
    [
        {"type": "error", "code": "c", "message": "broken", "param": None, "sequence_number": 3},
        {"type": "error", "error": {"type": "t", "code": "c", "message": "broken"}},
        {"error": {"code": "c", "message": "broken"}},
        e("failed", response=response(status="failed", error={"code": "c", "message": "broken"})),
    ],
)
def test_an_error_fails_the_run_and_ends_the_stream(error: dict[str, Any]) -> None:
    """In each form that servers give it."""
    story = decode(delta("a"), error)
    assert story.decoder.complete
    assert story.engine.runs.run is not None
    assert story.engine.runs.run.status == "failed"
    assert dict(story.engine.runs.run.error or {}).items() >= {"code": "c", "message": "broken"}.items()


def test_an_error_by_its_event_name_alone_fails_the_run() -> None:
    """Azure names it on the SSE event only."""
    story = tell_bytes(Decoder, [b'event: error\ndata: {"code": "c", "message": "broken"}\n\n'])
    assert story.engine.runs.run is not None
    assert (story.engine.runs.run.status, story.decoder.complete) == ("failed", True)


def test_done_alone_ends_no_response() -> None:
    """`[DONE]` without `response.completed` is a stream cut off."""
    body = b"".join(sse_frame(json.dumps(item).encode()) for item in (CREATED, delta("a"))) + b"data: [DONE]\n\n"
    story = tell_bytes(Decoder, [body])
    assert not story.decoder.complete
    assert only(story).status == "incomplete"


def test_the_run_is_the_response() -> None:
    """Id, model, time, usage, and why it is incomplete."""
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7, "output_tokens_details": {"reasoning_tokens": 1}}
    final = response(status="incomplete", usage=usage, incomplete_details={"reason": "max_output_tokens"}, created_at=5)
    run = decode(delta("a"), e("incomplete", response=final)).engine.runs.run
    assert run is not None
    assert (run.id, run.model, run.created_at, run.finish_reason) == ("resp_1", "m", 5, "max_output_tokens")
    assert run.usage is not None
    assert (run.usage.input_tokens, run.usage.output_tokens, run.usage.total_tokens) == (3, 4, 7)
    assert run.usage.details == {"output_tokens_details": {"reasoning_tokens": 1}}


def test_a_cut_text_is_incomplete() -> None:
    """The item's status is its text's."""
    ended = e("content_part.done", item_id="msg_1", output_index=0, content_index=0, part=part("a"))
    story = decode(delta("a"), ended, done(message("a", status="incomplete")), completed())
    assert only(story).status == "incomplete"


def test_a_second_response_in_the_stream_is_decoded_too() -> None:
    """Its terminal rule holds anew."""
    story = decode(delta("a"), completed(), e("created", response=response()), delta("b", "msg_2"))
    assert texts(story) == ["a", "b"]
    assert not story.decoder.complete


# -- items


def test_citations_and_log_probabilities_are_decoded() -> None:
    """Citations once, however often they come; log probabilities as metadata."""
    cited = {"type": "url_citation", "url": "u", "title": "t", "start_index": 1, "end_index": 4}
    filed = {"type": "file_citation", "file_id": "f", "filename": "n", "index": 9}
    final = message(phase="commentary")
    final["content"] = [part("a", annotations=[cited, filed], logprobs=[{"token": "a"}])]
    annotation = e("output_text.annotation.added", item_id="msg_1", output_index=0, content_index=0, annotation=cited)
    story = decode(delta("a", logprobs=[{"token": "a"}]), annotation, done(final), completed(final))
    text = only(story)
    assert isinstance(text, TextMessage)
    assert [(a.type, a.url, a.file_id, a.title, a.start, a.end) for a in text.annotations] == [
        ("url_citation", "u", None, "t", 1, 4),
        ("file_citation", None, "f", "n", None, 9),
    ]
    assert own_metadata(text) == {"phase": "commentary", "logprobs": [{"token": "a"}]}
    assert [line["metadata"] for line in story.lines if line["type"] == "text_delta"] == [
        {"logprobs": [{"token": "a"}]}
    ]


BAD_CONTENTS: dict[str, tuple[Any, list[str]]] = {
    "text in place of a list": ("a", ["a"]),
    "a part in place of a list": (part("a"), ["a"]),
    "texts in place of parts": (["a", part("b")], ["a", "b"]),
    "a type that is a number": ([{"type": 5, "text": "a"}, part("b")], ["a", "b"]),
    "a part that is a number": ([5, part("b")], ["b"]),
}


@pytest.mark.parametrize(("content", "wanted"), BAD_CONTENTS.values(), ids=BAD_CONTENTS.keys())
def test_one_bad_value_never_loses_the_rest_of_a_message(content: Any, wanted: list[str]) -> None:
    """What of its content is text is read, with a warning."""
    story = decode(done(message(content=content)))
    assert texts(story) == wanted
    assert story.codes == ["bad-content"]


def test_empty_text_in_place_of_content_is_no_content() -> None:
    """It makes no empty message, and no warning."""
    story = decode(done(message(content="")))
    assert (story.engine.messages.all, story.codes) == ([], [])


def test_a_part_without_a_type_is_read() -> None:
    """A text as a text, a refusal as a refusal; a message does not need the type."""
    story = decode(done(message(content=[{"text": "a"}, {"refusal": "no"}])))
    assert (texts(story), story.contents("message", "refusal")) == (["a"], ["no"])
    assert story.codes == []


def test_a_summary_that_is_text_is_read() -> None:
    """The text of the reasoning beside it is, too."""
    story = decode(done({"id": "rs", "type": "reasoning", "summary": "s", "content": [{"text": "r"}]}))
    assert [(m.format, m.content) for m in story.engine.messages.all] == [("summary", "s"), (None, "r")]
    assert story.codes == ["bad-summary"]


def test_usage_that_is_no_object_is_skipped_with_a_warning() -> None:
    """The response ends all the same."""
    story = decode(delta("a"), completed(message("a"), usage=5))
    assert (texts(story), story.codes, story.decoder.complete) == (["a"], ["bad-usage"], True)


def test_a_refusal_is_no_text() -> None:
    """It is a message of its own."""
    item = message()
    item["content"] = [{"type": "refusal", "refusal": "no."}]
    story = decode(e("refusal.delta", item_id="msg_1", output_index=0, content_index=0, delta="no"), done(item))
    assert story.contents("message", "refusal") == ["no."]
    assert texts(story) == []


def test_texts_and_refusals_of_an_item_are_parts_of_it_when_encoded_again() -> None:
    parts = [
        {"type": "output_text", "text": "a"},
        {"type": "refusal", "refusal": "no"},
        {"type": "output_text", "text": "b"},
    ]
    stream = sk.stream([completed(message(content=parts))], protocol="openai_responses")
    encoded = [*stream.chunks("openai_responses")]
    again = sk.stream(encoded, protocol="openai_responses").get_final_messages()
    assert [(m.id, m.group, m.content) for m in again] == [(m.id, m.group, m.content) for m in stream.messages]


def test_reasoning_has_a_message_for_each_part() -> None:
    """Summaries and text; what is encrypted is on the last."""
    item: dict[str, Any] = {"id": "rs", "type": "reasoning", "encrypted_content": "sealed"}
    item |= {"summary": [{"text": "s0"}, {"text": "s1"}], "content": [{"text": "r0"}]}
    messages = decode(
        e("reasoning_summary_text.delta", item_id="rs", summary_index=0, delta="s0"), done(item)
    ).engine.messages.all
    assert [(m.id, m.format, m.content, m.group) for m in messages] == [
        ("rs", "summary", "s0", "rs"),
        ("rs.1", "summary", "s1", "rs"),
        ("rs.reasoning.0", None, "r0", "rs"),
    ]
    assert [m.metadata.get("encrypted_content") for m in messages] == [None, None, "sealed"]


def test_reasoning_that_is_only_encrypted_is_redacted() -> None:
    """One message without text. So is reasoning that the provider does not show at all, which has no format."""
    story = decode(done({"id": "rs", "type": "reasoning", "summary": [], "encrypted_content": "sealed"}))
    assert only(story).format == "redacted"
    assert own_metadata(only(story)) == {"encrypted_content": "sealed"}
    story = decode(done({"id": "rs", "type": "reasoning", "summary": []}))
    assert (only(story).type, only(story).format, only(story).content) == ("reasoning", None, "")


CALLS: list[tuple[dict[str, Any], str, str, bool]] = [
    ({"type": "function_call", "name": "f", "call_id": "c", "arguments": '{"a":1}'}, "f", '{"a":1}', False),
    ({"type": "custom_tool_call", "name": "sql", "call_id": "c", "input": "select 1"}, "sql", "select 1", False),
    ({"type": "computer_call", "call_id": "c", "action": {"type": "wait"}}, "computer", '{"type":"wait"}', False),
    ({"type": "computer_call", "call_id": "c", "actions": [{}]}, "computer", '{"actions":[{}]}', False),
    (
        {"type": "local_shell_call", "call_id": "c", "action": {"command": ["ls"]}},
        "local_shell",
        '{"command":["ls"]}',
        False,
    ),
    ({"type": "apply_patch_call", "call_id": "c", "operation": {"path": "p"}}, "apply_patch", '{"path":"p"}', False),
    (
        {"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": {"g": 1}},
        "tool_search",
        '{"g":1}',
        False,
    ),
    ({"type": "tool_search_call", "execution": "server", "arguments": {"g": 1}}, "tool_search", '{"g":1}', True),
    ({"type": "mcp_call", "name": "m", "server_label": "s", "arguments": "{}"}, "m", "{}", True),
    ({"type": "web_search_call", "action": {"query": "q"}}, "web_search", '{"query":"q"}', True),
    ({"type": "web_search_call", "name": "x", "arguments": "{}"}, "x", "{}", True),
    ({"type": "file_search_call", "queries": ["q"]}, "file_search", '{"queries":["q"]}', True),
]


@pytest.mark.parametrize(("item", "name", "content", "executed"), CALLS)
def test_a_call_states_who_executes_it(item: dict[str, Any], name: str, content: str, executed: bool) -> None:
    """Its arguments are JSON text, its name is its type's where it has none; ours wait for an answer."""
    item = {"id": "x", **item}
    story = decode(added(item), done(item), completed(item))
    found = only(story)
    assert isinstance(found, ToolCallMessage)
    assert (found.name, found.content, found.provider_executed) == (name, content, executed)
    assert found.call_id == item.get("call_id", "x")
    assert (story.engine.runs.run.status == "requires_action") is not executed  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("fields", "content", "metadata"),
    [
        ({"output": "out"}, "out", {}),
        ({"error": "bad", "status": "failed"}, "bad", {"error": True}),
        ({"error": {"type": "e", "message": "bad"}}, "bad", {"error": True}),
    ],
)
def test_an_mcp_call_gives_its_output(fields: dict[str, Any], content: str, metadata: dict[str, Any]) -> None:
    """Or its error."""
    item = {"id": "mcp_1", "type": "mcp_call", "name": "m", "arguments": "{}", "server_label": "s", **fields}
    requested, output = decode(
        added({**item, "output": None, "error": None}), done(item), completed(item)
    ).engine.messages.all
    assert requested.metadata["server_label"] == "s"
    assert (output.id, output.type, output.content, output.call_id) == ("mcp_1.output", "tool_output", content, "mcp_1")
    assert output.metadata == {"item_type": "mcp_call", **metadata}


def test_results_of_a_search_are_its_output() -> None:
    """As JSON text."""
    item = {"id": "fs", "type": "file_search_call", "queries": ["q"], "results": [{"file_id": "f"}]}
    assert decode(done(item)).contents("tool_output") == ['[{"file_id":"f"}]']


def test_an_mcp_approval_is_requested_once() -> None:
    """The call, then the question about it."""
    item = {"id": "mcpr", "type": "mcp_approval_request", "name": "m", "arguments": "{}", "server_label": "s"}
    story = decode(added(item), done(item), completed(item))
    confirmations = [event.confirmation for event in story.events if isinstance(event, ConfirmationCreated)]
    assert [(c.id, c.subject.id, c.subject.name) for c in confirmations] == [("mcpr", "mcpr", "m")]
    assert story.types.index("confirmation_created") > story.types.index("tool_call_done")


def test_code_runs_and_prints() -> None:
    """The code is done when its text is; what it gave may come only with the whole response."""
    item = {"id": "ci", "type": "code_interpreter_call", "code": "1+1", "container_id": "k", "outputs": None}
    final = {
        **item,
        "outputs": [{"type": "logs", "logs": "2\n"}, {"type": "logs", "logs": "3"}, {"type": "image", "url": "u"}],
    }
    story = decode(
        added({**item, "code": ""}),
        e("code_interpreter_call_code.delta", item_id="ci", output_index=0, delta="1+"),
        e("code_interpreter_call_code.done", item_id="ci", output_index=0, code="1+1"),
        e("code_interpreter_call.interpreting", item_id="ci", output_index=0),
        done(item),
        completed(final),
    )
    code, console, image = story.engine.messages.all
    assert story.types.index("code_done") < story.types.index("raw_event", story.types.index("code_created"))
    assert (code.id, code.format, code.content, code.call_id, own_metadata(code)) == (
        "ci",
        "python",
        "1+1",
        "ci",
        {"container_id": "k"},
    )
    assert (console.id, console.content, console.call_id) == ("ci.console", "2\n3", "ci")
    assert (image.id, image.format, image.content, image.role) == ("ci.image.0", "url", "u", "computer")
    assert [line["value"] for line in story.lines if line["type"] == "console_delta"] == ["2\n", "3"]


def test_each_shell_command_is_code_and_has_a_console() -> None:
    """Commands have no item id; the deltas distinguish stdout and stderr."""
    at = {"output_index": 0, "command_index": 1}
    action = {"commands": ["ls", "pwd"], "timeout_ms": 5}
    item = {"id": "sh", "type": "shell_call", "call_id": "c", "action": action, "environment": {"type": "local"}}
    outcome = {"type": "exit", "exit_code": 0}
    outputs = [{"stdout": "a", "stderr": "b", "outcome": outcome}, {"stdout": "c", "stderr": "", "outcome": outcome}]
    printed = {"id": "sho", "type": "shell_call_output", "call_id": "c", "output": outputs}
    story = decode(
        added({**item, "action": {"commands": []}}),
        e("shell_call_command.added", **{**at, "command_index": 0}, command=""),
        e("shell_call_command.delta", **{**at, "command_index": 0}, delta="ls"),
        e("shell_call_command.done", **{**at, "command_index": 0}, command="ls"),
        e("shell_call_command.delta", **at, delta="pw"),
        e("shell_call_command.done", **at, command="pwd"),
        done(item),
        added({**printed, "output": []}, 1),
        e("shell_call_output_content.delta", item_id="sho", output_index=1, command_index=0, delta={"stderr": "b"}),
        e("shell_call_output_content.delta", item_id="sho", output_index=1, command_index=0, delta={"stdout": "a"}),
        e("shell_call_output_content.done", item_id="sho", output_index=1, command_index=0, output=outputs[:1]),
        e("shell_call_output_content.done", item_id="sho", output_index=1, command_index=1, output=outputs[1:]),
        done(printed, 1),
        completed(item, printed),
    )
    assert [(m.id, m.type, m.content, m.call_id) for m in story.engine.messages.all] == [
        ("sh", "code", "ls", "c"),
        ("sh.1", "code", "pwd", "c"),
        ("sho", "console", "ba", "c"),
        ("sho.1", "console", "c", "c"),
    ]
    assert story.engine.messages.all[1].metadata["wants_output"] is True
    streams = [line["metadata"]["stream"] for line in story.lines if line["type"] == "console_delta"]
    assert streams == ["stderr", "stdout", "stdout"]
    assert own_metadata(story.engine.messages.all[2]) == {"outcome": outcome}


def test_commands_of_several_items_are_distinguished_by_their_places() -> None:
    """Also where an item of another type is extended under the id of one, and another item begins at the same place."""

    def piece(text: str, place: int, **more: Any) -> dict[str, Any]:
        return e("shell_call_command.delta", output_index=place, command_index=0, delta=text, **more)

    def shell(id: str) -> dict[str, Any]:
        return {"id": id, "type": "shell_call", "call_id": f"call_{id}"}

    items = [
        *(added(shell("a"), 0), piece("1", 0), piece("2", 0), added(shell("b"), 1), piece("3", 1), piece("4", 0)),
        *(piece("5", 1), piece("6", 1), e("function_call_arguments.delta", item_id="f", output_index=2, delta="{")),
        *(piece("7", 2, item_id="f"), piece("8", 2), done(shell("a"), 0), added(shell("c"), 0), piece("9", 0)),
    ]
    fast, slow = (tell_items(kind, items) for kind in (Decoder, Slow))
    assert fast.lines == slow.lines
    contents = {m.id: m.content for m in fast.engine.messages.all}
    assert [contents[id] for id in ("a", "b", "c")] == ["124", "356", "9"]


def test_a_local_shell_command_wants_output() -> None:
    """One in a container does not."""
    item = {"id": "sh", "type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}}
    assert only(decode(done(item))).metadata["wants_output"] is True
    item["environment"] = {"type": "container_reference", "container_id": "k"}
    assert "wants_output" not in only(decode(done(item))).metadata


def test_previews_of_an_image_replace_each_other() -> None:
    """And the image them, without a warning."""
    item = {
        "id": "ig",
        "type": "image_generation_call",
        "status": "generating",
        "result": "CCCC",
        "output_format": "jpeg",
    }
    at = {"item_id": "ig", "output_index": 0, "output_format": "jpeg"}
    story = decode(
        added({"id": "ig", "type": "image_generation_call"}),
        e("image_generation_call.partial_image", **at, partial_image_index=0, partial_image_b64="AAAA"),
        e("image_generation_call.partial_image", **at, partial_image_index=1, partial_image_b64="BBBB"),
        done({**item, "revised_prompt": "p"}),
    )
    image = only(story)
    assert (image.content, image.format, image.status) == ("CCCC", "base64.jpeg", "completed")
    assert image.metadata["revised_prompt"] == "p"
    assert [(line["value"], line["replace"]) for line in story.lines if line["type"] == "message_delta"] == [
        ("AAAA", True),
        ("BBBB", True),
        ("CCCC", True),
    ]
    assert story.codes == []


def test_speech_is_audio_and_its_transcript_is_text() -> None:
    """Neither belongs to an item."""
    story = decode(
        e("audio.delta", delta="AAAA"),
        e("audio.transcript.delta", delta="hi"),
        e("audio.delta", delta="BBBB"),
        e("audio.done"),
        e("audio.transcript.done"),
        completed(),
    )
    assert [(m.type, m.content, m.status) for m in story.engine.messages.all] == [
        ("audio", "AAAABBBB", "completed"),
        ("message", "hi", "completed"),
    ]


@pytest.mark.parametrize(
    "type", ["compaction", "additional_tools", "mcp_list_tools", "mcp_approval_response", "new_thing"]
)
def test_an_item_without_content_for_a_reader_is_a_message_of_its_type(type: str) -> None:
    """It has the item for the way back. An error in the item is its status."""
    item = {"id": "x", "type": type, "encrypted_content": "sealed", "tools": [{"name": "f"}]}
    message = only(decode(done(item), completed(item)))
    assert (message.type, message.content, message.status) == (type, "", "completed")
    assert message.metadata["openai_responses"]["item"] == item
    assert only(decode(done({**item, "error": "no"}))).status == "failed"


def test_a_program_is_code_and_its_result_an_output() -> None:
    """The fingerprint, which has to be sent back, is in the metadata."""
    program = {"id": "p", "type": "program", "call_id": "c", "code": "f()", "fingerprint": "seal"}
    output = {"id": "o", "type": "program_output", "call_id": "c", "result": "1", "status": "completed"}
    code, result = decode(done(program), done(output, 1), completed(program, output)).engine.messages.all
    assert (code.type, code.format, code.content, code.call_id) == ("code", "javascript", "f()", "c")
    assert code.metadata["fingerprint"] == "seal"
    assert (result.type, result.content, result.call_id) == ("tool_output", "1", "c")


def test_the_output_of_a_computer_call_is_an_output() -> None:
    """As JSON text."""
    item = {"id": "x", "type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot"}}
    (output,) = decode(done(item), completed(item)).engine.messages.all
    assert (output.type, output.content, output.call_id) == ("tool_output", '{"type":"computer_screenshot"}', "c")


def test_reasoning_begins_with_its_item() -> None:
    """So that a person sees that the model thinks, also where there will be nothing to read."""
    item = {"id": "rs", "type": "reasoning", "summary": []}
    story = decode(added(item))
    assert "reasoning_created" in story.types
    final = {**item, "encrypted_content": "sealed"}
    assert only(decode(added(item), done(final), completed(final))).format == "redacted"
    summary = {**item, "summary": [{"type": "summary_text", "text": "ab"}]}
    piece = e("reasoning_summary_text.delta", item_id="rs", output_index=0, summary_index=0, delta="ab")
    told = only(decode(added(item), piece, done(summary), completed(summary)))
    assert (told.id, told.format, told.content) == ("rs", "summary", "ab")


def test_reasoning_that_was_to_be_a_summary_is_what_came() -> None:
    """A server that was asked for summaries may send its reasoning itself. It gets that back, too."""
    response = {
        "id": "r",
        "object": "response",
        "status": "in_progress",
        "output": [],
        "reasoning": {"summary": "auto"},
    }
    item = {"id": "rs", "type": "reasoning", "summary": []}
    full = {**item, "content": [{"type": "reasoning_text", "text": "ab"}]}
    content = [{"type": "output_text", "text": "x", "annotations": []}]
    text = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": content}
    piece = e("reasoning_text.delta", item_id="rs", output_index=0, content_index=0, delta="ab")
    begin = {"type": "response.created", "response": response}
    for end in ([done(full), completed(full, text)], [completed(full, text)]):
        told = decode(begin, added(item), piece, *end).engine.messages.all
        assert [(message.format, message.content) for message in told[:1]] == [(None, "ab")]
        assert sk.to_input(told, "openai_responses")[:1] == [full]
        again = sk.stream(sk.stream([begin, added(item), piece, *end])).get_final_messages()
        assert again[0].format is None


@pytest.mark.parametrize("type", ["function_call_output", "custom_tool_call_output"])
def test_an_output_in_the_stream_is_a_tool_output(type: str) -> None:
    """Of its call."""
    output = only(decode(done({"id": "x", "type": type, "call_id": "c", "output": "out"})))
    assert (output.type, output.call_id, output.content) == ("tool_output", "c", "out")


# -- no input makes it fail


JSON = q.recursive(
    q.none() | q.booleans() | q.integers() | q.floats() | q.text(max_size=5),
    lambda inner: q.lists(inner, max_size=3) | q.dictionaries(q.text(max_size=5), inner, max_size=3),
    depth=2,
)
ITEM_TYPES = [
    *sorted({item["type"] for item, *_ in CALLS}),
    "code_interpreter_call",
    "function_call_output",
    "image_generation_call",
    "mcp_approval_request",
    "message",
    "reasoning",
    "shell_call",
    "shell_call_output",
    "tool_search_output",
]
IDS = q.sampled_from(["a", "b", "", "a.1"])
SMALL = q.integers(-1, 2)
PART = q.fixed_dictionaries(
    {},
    optional={
        "type": q.sampled_from(["output_text", "refusal", "reasoning_text", "summary_text"]) | JSON,
        "text": q.text(max_size=3) | JSON,
        "refusal": JSON,
        "annotations": JSON,
        "logprobs": JSON,
    },
)
ITEM = q.fixed_dictionaries(
    {"type": q.sampled_from(ITEM_TYPES)},
    optional={
        "id": IDS | JSON,
        "call_id": IDS | JSON,
        "name": JSON,
        "status": JSON,
        "content": q.lists(PART | JSON, max_size=3) | JSON,
        "summary": q.lists(PART | JSON, max_size=3) | JSON,
        "action": q.fixed_dictionaries({"commands": JSON}) | JSON,
        "outputs": q.lists(q.fixed_dictionaries({"logs": JSON, "url": JSON})) | JSON,
        "output": q.lists(q.fixed_dictionaries({"stdout": JSON, "outcome": JSON})) | JSON,
        **dict.fromkeys(("arguments", "input", "queries", "results", "result", "error"), JSON),
        **dict.fromkeys(("encrypted_content", "environment", "code"), JSON),
    },
)
EVENT = q.fixed_dictionaries(
    {"type": q.sampled_from([*NAMES, "response.reasoning_part.added", "response.done", ""])},
    optional={
        "item_id": IDS | JSON,
        "output_index": SMALL | JSON,
        "content_index": SMALL | JSON,
        "summary_index": SMALL | JSON,
        "command_index": SMALL | JSON,
        "sequence_number": q.integers(0, 9) | JSON,
        "delta": q.text(max_size=3) | q.fixed_dictionaries({"stdout": JSON}) | JSON,
        "part": PART | JSON,
        "item": ITEM | JSON,
        "annotation": JSON,
        "logprobs": JSON,
        "response": q.fixed_dictionaries({"output": q.lists(ITEM | JSON, max_size=3) | JSON, "usage": JSON}) | JSON,
        **dict.fromkeys(("text", "code", "arguments", "input", "command", "refusal"), JSON),
        **dict.fromkeys(("output", "error", "message", "object"), JSON),
    },
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(q.drawn(q.lists(EVENT, max_size=8)))
def test_no_values_make_the_decoder_fail(items: list[Any]) -> None:
    """And the fast path emits the same as the tolerant one."""
    assert "decoder-error" not in tell_items(Decoder, items).codes
    body = b"".join(sse_frame(json.dumps(item).encode()) for item in items)
    fast, slow = (tell_bytes(kind, [body]) for kind in (Decoder, Slow))
    assert fast.lines == slow.lines
    assert "decoder-error" not in fast.codes


def mutate(draw: Callable[..., Any], items: list[Any]) -> list[Any]:
    """A recording with a few values replaced, and a few events dropped, repeated or moved."""
    items = copy.deepcopy(items)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(items) - 1))
        node, key = items, at
        while isinstance(node[key], (dict, list)) and node[key] and draw(st.integers(0, 3)):
            node = node[key]
            keys = list(node) if isinstance(node, dict) else range(len(node))
            key = draw(st.sampled_from(keys))
        if node is items:
            items.insert(draw(st.integers(0, len(items))), items[at] if draw(st.booleans()) else items.pop(at))
        else:
            node[key] = draw(q.drawn(JSON))
    return items


@pytest.mark.parametrize("path", recording_cases("openai-responses", complete=True))
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_no_damage_to_a_recording_makes_the_decoder_fail(path: Path, data: st.DataObject) -> None:
    """Values replaced, events dropped, repeated and moved."""
    items = mutate(data.draw, items_of(path)[-60:])
    assert "decoder-error" not in tell_items(Decoder, items).codes


def grown(name: str, key: str, index: Any, **more: Any) -> dict[str, Any]:
    return {"type": f"response.{name}.delta", "item_id": "i", "output_index": 0, key: index, "delta": "x", **more}


@in_a_loop(
    "odd",
    [
        {},
        {"delta": ""},
        {"delta": None},
        {"delta": 5},
        {"logprobs": None},
        {"logprobs": [{"token": "x"}]},
        {"logprobs": {}},
        {"content_index": 1, "summary_index": 1},
        {"content_index": None, "summary_index": None},
        {"output_index": 1},
        {"output_index": None},
        {"item_id": "other"},
        {"item_id": None},
        {"sequence_number": 3},
        {"sequence_number": -3},
        {"sequence_number": "3"},
        {"sequence_number": 2**60},
        {"obfuscation": "abc"},
    ],
)
@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("output_text", "content_index"),
        ("refusal", "content_index"),
        ("reasoning_text", "content_index"),
        ("reasoning_summary_text", "summary_index"),
        ("function_call_arguments", ""),
        ("custom_tool_call_input", ""),
        ("mcp_call_arguments", ""),
        ("code_interpreter_call_code", ""),
    ],
)
def test_an_odd_delta_gives_the_same_events_on_both_paths(name: str, key: str, odd: dict[str, Any]) -> None:
    """Between common ones, with an SSE id and without."""
    kinds = {"function_call_arguments": "function_call", "custom_tool_call_input": "custom_tool_call"}
    item = {"id": "i", "type": kinds.get(name, "mcp_call"), "name": "f"}
    items = [added(item)] if "call" in name and "code" not in name else []
    items += [grown(name, key, 0), {**grown(name, key, 0), **odd}, grown(name, key, 0)]
    for id in ("", "9"):
        body = b"".join(sse_frame(json.dumps(item).encode(), id=id) for item in items)
        assert tell_bytes(Decoder, [body]).lines == tell_bytes(Slow, [body]).lines


@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_nothing_is_read_after_done(size: int) -> None:
    """Not by the fast path either, in whichever chunk the frames come."""
    frames = [*(json.dumps(delta("a")).encode() for _ in range(3)), b"[DONE]", json.dumps(delta("b")).encode()]
    for kind in (Decoder, Slow):
        decoder, events = kind(), list[Event]()
        for start in range(0, len(frames), size):
            events += decoder.feed_frames(frames[start : start + size])
        assert [event.value for event in events if isinstance(event, sk.TextDelta)] == ["a"] * 3
        assert (decoder.exhausted, decoder.index) == (True, 4)


@pytest.mark.parametrize("value", ["x", True, -1, 1.5, 2**53 + 1, math.nan, [], {}, ["x"]])
def test_a_field_of_another_type_reads_as_if_it_were_absent(value: Any) -> None:
    """In an event, an item and a response, which may be mappings that are no dicts: the other fields are read as without it."""
    item = {"type": "message", "id": "m", "role": "assistant"}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": "r", "model": "x"}},
        {"type": "response.output_item.added", "item": item},
        {"type": "response.output_text.delta", "delta": "a", "logprobs": [1]},
        {"type": "response.completed", "response": {"id": "r", "output": [item]}},
    ]
    fields = {"output_index": value, "content_index": value, "sequence_number": value}
    if not isinstance(value, str):
        fields |= dict.fromkeys(("item_id", "name", "call_id", "status"), value)

    def odd(wire: dict[str, Any]) -> Any:
        inner = {key: odd(part) if isinstance(part, dict) else part for key, part in wire.items()}
        return MappingProxyType({**fields, **inner})

    def told(items: Iterable[Any]) -> list[Any]:
        found = Decoder().feed_items([*items])
        return [(event.__class__, event.position, f"{getattr(event, 'message', None)!r}") for event in found]

    assert told(map(odd, events)) == told(events)


@pytest.mark.parametrize("feed", ["feed_frames", "feed_items"])
def test_a_fault_of_the_decoder_itself_is_a_warning_about_its_item(feed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> list[Event]:
        raise KeyError("x")

    monkeypatch.setattr("streamkit.protocols.openai_responses.decoder._READERS", {"response.queued": fail})
    decoder = Decoder()
    items: list[Any] = [{"type": "response.other"}, {"type": "response.queued"}]
    if feed == "feed_frames":
        items = [json.dumps(item).encode() for item in items]
    _, warning = getattr(decoder, feed)(items)
    assert isinstance(warning, sk.StreamWarning)
    assert (warning.code, warning.index, warning.item_index, decoder.index) == ("decoder-error", 1, 1, 2)
    assert (warning.kind, warning.raw, warning.cursor) == ("response.queued", {"type": "response.queued"}, None)


def test_code_of_an_item_that_has_another_type_is_read() -> None:
    """The type of the item and those of its events differ."""
    code = {"item_id": "i", "output_index": 0, "code": "x = 1"}
    events = Decoder().feed_items(
        [added({"id": "i", "type": "other", "code": ""}), {"type": "response.code_interpreter_call_code.done", **code}]
    )
    assert [event.message.content for event in events if isinstance(event, sk.MessageDone)] == ["x = 1"]


@pytest.mark.parametrize(
    ("item", "code", "kind"),
    [
        ({"type": "response.output_text.delta", "delta": 7}, "bad-delta", "response.output_text.delta"),
        ({"type": "response.output_item.done", "item": {"type": "message", "content": 7}}, "bad-content", "message"),
        ({"type": "response.completed", "response": {"usage": 7}}, "bad-usage", None),
        ({"other": 7}, "no-type", None),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_warning_says_which_item_it_is_about(item: dict[str, Any], code: str, kind: str | None) -> None:
    """What makes it knows nothing of the decoder, which adds the item's index, for bytes and for parsed items."""
    begin = {"type": "response.created", "response": {"id": "r"}}
    for feed, items in (
        ("feed_frames", [json.dumps(one).encode() for one in (begin, item)]),
        ("feed_items", [begin, item]),
    ):
        events = getattr(Decoder(), feed)(items)
        (warning,) = [event for event in events if isinstance(event, sk.StreamWarning)]
        assert (warning.code, warning.index, warning.item_index, warning.kind) == (code, 1, 1, kind)


# -- encoding


def encode(events: Iterable[Event]) -> list[dict[str, Any]]:
    """The wire items of a story, as a client would parse them."""
    encoder = Encoder()
    items: list[dict[str, Any]] = json.loads(json.dumps([item for event in events for item in encoder.feed(event)]))
    return items


def view(story: Story, *without: str) -> list[dict[str, Any]]:
    """The messages, without what numbers this stream's runs and steps, and without the received form of their items,
    which messages from elsewhere get when they are encoded."""
    left_out = {"run_id", "step_id", "metadata", *without}
    return [
        {k: v for k, v in m.to_dict().items() if k not in left_out} | {"metadata": own_metadata(m)}
        for m in story.engine.messages.all
    ]


def own_metadata(message: Message) -> dict[str, Any]:
    """The metadata without the received form of the item, which `test_going_back` is about."""
    return {key: value for key, value in message.metadata.items() if key != "openai_responses"}


@each_recording("openai-responses")
def test_a_recording_survives_encoding(path: Path) -> None:
    """Encoded and decoded again: the same messages, the same run."""
    story = tell_bytes(Decoder, [path.read_bytes()])
    again = tell_items(Decoder, encode(story.events))
    assert view(again, "index") == view(story, "index")
    assert again.codes == []
    first, second = story.engine.runs.run, again.engine.runs.run
    assert first is not None
    assert second is not None
    assert (first.id, first.model, first.status, first.finish_reason) == (
        second.id,
        second.model,
        second.status,
        second.finish_reason,
    )
    assert (first.usage is None) == (second.usage is None)


TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
WORD = st.text("abcdef", min_size=1, max_size=6)
OBJECT = st.dictionaries(WORD, st.integers() | WORD, max_size=2).map(lambda v: json.dumps(v, separators=(",", ":")))


def made(kind: type[Message], **fields: Any) -> st.SearchStrategy[Message]:
    return st.builds(kind, **{key: v if isinstance(v, st.SearchStrategy) else st.just(v) for key, v in fields.items()})


STATUS = st.sampled_from(["completed", "incomplete"])
MESSAGES = st.one_of(
    made(TextMessage, content=TEXT, status=STATUS, metadata=st.sampled_from([{}, {"phase": "commentary"}])),
    made(ReasoningMessage, content=TEXT.filter(bool), format=st.sampled_from([None, "summary"])),
    made(ReasoningMessage, format="redacted", content="", metadata={"encrypted_content": "sealed"}),
    made(ToolCallMessage, name=WORD, content=OBJECT, call_id=WORD, status=STATUS),
    made(ToolCallMessage, name=WORD, content=TEXT, call_id=WORD, metadata={"custom": True}),
    made(
        ToolCallMessage,
        name=WORD,
        content=OBJECT,
        provider_executed=True,
        metadata={"item_type": "mcp_call", "server_label": "s"},
    ),
    made(
        ToolCallMessage,
        name="local_shell",
        content=OBJECT,
        call_id=WORD,
        metadata={"item_type": "local_shell_call"},
    ),
    made(CodeMessage, content=TEXT, format="python", status=STATUS, metadata={"container_id": "k"}),
    made(
        CodeMessage,
        content=TEXT,
        format="shell",
        call_id=WORD,
        metadata={"item_type": "shell_call", "wants_output": True},
    ),
    made(ConsoleMessage, content=TEXT.filter(bool)),
    made(ImageMessage, content=st.sampled_from(["AAAA", "BBBB"]), format="base64.png"),
    made(ToolOutputMessage, content=TEXT.filter(bool), call_id=WORD),
)


def streamed(message: Message) -> list[dict[str, Any]]:
    """A message as canonical items: created, in two pieces, done."""
    header = {k: v for k, v in message.to_dict().items() if k not in ("content", "status")}
    half = len(message.content) // 2
    pieces = [message.content] if message.type == "image" else [message.content[:half], message.content[half:]]
    kind = {"message": "text", "image": "message"}.get(message.type, message.type)
    deltas = [{"type": f"{kind}_delta", "message_id": message.id, "value": piece} for piece in pieces if piece]
    return [
        {"type": "message_created", "message": header},
        *deltas,
        {"type": "message_done", "message": message.to_dict()},
    ]


@pytest.mark.slow
@settings(max_examples=48, deadline=None)
@given(st.lists(MESSAGES, max_size=5))
def test_what_the_protocol_can_express_survives_encoding(messages: list[Message]) -> None:
    """Generated messages, encoded and decoded, keep id, role, type, format, content, name, call and status."""
    from streamkit.protocols import streamkit as canonical

    items: list[Any] = [{"type": "run_created", "run": {"id": "resp_1", "model": "m"}}]
    code = False
    for number, message in enumerate(messages):
        message.id = f"m{number}"
        if isinstance(message, ConsoleMessage) and not code:
            continue
        if isinstance(message, ConsoleMessage):  # as this protocol names them
            message.id, message.call_id = f"m{number - 1}.console", f"m{number - 1}"
            message.status = messages[number - 1].status  # the item has one
        if isinstance(message, CodeMessage) and message.format == "python":
            message.call_id = message.id
        if isinstance(message, ToolCallMessage) and message.provider_executed:
            message.call_id = message.id
        code = isinstance(message, CodeMessage) and message.format == "python"
        items += streamed(message)
    story = tell_items(canonical.Decoder, items)
    again = tell_items(Decoder, encode(story.events))
    assert view(again, "group", "index") == view(story, "group", "index")
    assert set(again.codes) <= {"bad-arguments"}


def test_a_replaced_text_ends_as_it_should() -> None:
    """A `replace` delta has no event: the final text is right."""
    from streamkit.protocols import streamkit as canonical

    items = [
        {"type": "text_delta", "message_id": "m", "value": "wrong"},
        {"type": "text_delta", "message_id": "m", "value": "right", "replace": True},
    ]
    story = tell_items(canonical.Decoder, items)
    assert texts(tell_items(Decoder, encode(story.events))) == ["right"]


def test_a_question_about_code_is_an_approval_request() -> None:
    """Any client of the API can show it."""
    from streamkit.protocols import streamkit as canonical

    code = {"id": "c", "role": "assistant", "type": "code", "format": "python", "content": "1"}
    items = [
        {"type": "message_done", "message": code},
        {"type": "confirmation_created", "confirmation": {"id": "q", "subject": code}},
    ]
    encoded = encode(tell_items(canonical.Decoder, items).events)
    (request,) = [
        item["item"] for item in encoded if item["type"] == "response.output_item.done" and item["item"]["id"] == "q"
    ]
    assert (request["type"], json.loads(request["arguments"])) == (
        "mcp_approval_request",
        {"code": "1", "language": "python"},
    )


def client(body: bytes) -> openai.OpenAI:
    """The real client, on a transport that answers with these bytes."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body)

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    return openai.OpenAI(api_key="k", base_url="http://test.invalid", http_client=http, max_retries=0)


@each_recording("openai-responses", complete=True, one_of=2)
def test_the_sdk_reads_what_is_encoded(path: Path) -> None:
    """Raw and by its accumulating helper: the same final texts and calls, right nesting, numbers that only grow."""
    story = tell_bytes(Decoder, [path.read_bytes()])
    encoder = Encoder()
    items = [item for event in story.events for item in encoder.feed(event)]
    body = b"".join(sse_frame(json.dumps(item).encode(), encoder.event_name(item)) for item in items)
    with client(body) as sdk:
        events = list(sdk.responses.create(model="m", input="x", stream=True))
        with sdk.responses.stream(model="m", input="x") as stream:
            final = stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    assert final.output_text == "".join(texts(story))
    functions = [
        m for m in story.engine.messages.all if m.type == "tool_call" and {"custom", "item_type"}.isdisjoint(m.metadata)
    ]
    expected = [(m.name, m.call_id, m.content) for m in functions]
    assert [(o.name, o.call_id, o.arguments) for o in final.output if o.type == "function_call"] == expected
    check_nesting(items)


def check_nesting(items: list[dict[str, Any]]) -> None:
    """Every item is added before anything of it, done after, once each; its output_index is its own."""
    places: dict[int, str] = {}
    for item in items:
        kind, place = item["type"], item.get("output_index")
        if kind == "response.output_item.added":
            assert place == len(places)
            places[place] = "open"
        elif place is not None:
            assert places[place] == "open", item
            if kind == "response.output_item.done":
                places[place] = "done"
    assert set(places.values()) <= {"done"}


@pytest.mark.parametrize(
    ("end", "kind", "status"),
    [
        (
            e("incomplete", response=response(status="incomplete", incomplete_details={"reason": "content_filter"})),
            "incomplete",
            "incomplete",
        ),
        (e("failed", response=response(status="failed", error={"code": "c", "message": "m"})), "failed", "failed"),
        (e("cancelled", response=response(status="cancelled")), "incomplete", "cancelled"),
    ],
)
def test_an_end_is_encoded_as_it_was(end: dict[str, Any], kind: str, status: str) -> None:
    """With its reason or its error."""
    story = decode(delta("a"), end)
    items = encode(story.events)
    assert items[-1]["type"] == f"response.{kind}"
    run, again = story.engine.runs.run, tell_items(Decoder, items).engine.runs.run
    assert run is not None
    assert again is not None
    assert (again.status, again.finish_reason, again.error) == (status, run.finish_reason, run.error)


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter", "insufficient_system_resource"])
def test_the_sdk_accepts_the_end_of_a_chat_stream(reason: str) -> None:
    """With all the details of usage that it insists on."""
    used = {"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
    items = [
        {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "a"}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": used},
    ]
    (*_, last) = encode(tell_items(openai_chat.Decoder, items).events)
    TypeAdapter(ResponseStreamEvent).validate_python(last)
    assert last["type"] == ("response.completed" if reason == "stop" else "response.incomplete")
    assert last["response"]["usage"] == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 8,
    }


def test_nothing_is_read_beyond_the_sentinel() -> None:
    """In the same frames as in later ones."""
    frames = [(b"", b"", json.dumps(delta("a")).encode()), (b"", b"", b"[DONE]")]
    once, apart = Decoder(), Decoder()
    events = once.feed_frames([*frames, *frames])
    assert len(events) == sum(len(apart.feed_frames([frame])) for frame in [*frames, *frames])
    assert once.index == apart.index == 2


def test_a_final_output_under_other_ids_ends_the_items_in_their_order() -> None:
    """A call goes by its call_id, any other item by its type."""
    begun = [added(call("", id=f"fc_{n}"), n) for n in range(3)]
    final = [call(str(n), id=f"other_{n}", call_id=f"call_fc_{n}") for n in (2, 0, 1)]
    story = decode(*begun, completed(*final))
    assert calls(story) == [("f", "0"), ("f", "1"), ("f", "2")]


def arguments(text: str, id: str = "i1", place: int = 0) -> dict[str, Any]:
    return e("function_call_arguments.delta", item_id=id, output_index=place, delta=text)


def called(id: str, call_id: str, text: str, name: str = "f") -> dict[str, Any]:
    """A call with these ids."""
    return call(text, id, name, call_id=call_id)


ONE, TWO = '{"a":1}', '{"a":2}'
# What a server sends about calls -> the calls as (call_id, arguments), and the codes of the warnings.
SAME_CALLS: list[tuple[str, list[Any], list[tuple[str, str]], list[str]]] = [
    (
        "other ids at the end",
        [done(called("i1", "c1", ONE)), completed(called("i9", "c9", ONE))],
        [("c1", ONE)],
        ["other-call-id"],
    ),
    (
        "other ids at the end, where the arguments are written in another way",
        [done(called("i1", "c1", ONE)), completed(called("i9", "c9", '{"a": 1}'))],
        [("c1", ONE)],
        ["other-call-id"],
    ),
    (
        "other ids at the end, and another order",
        [
            *(done(called("i1", "c1", ONE), 0), done(called("i2", "c2", TWO), 1)),
            completed(called("i8", "c8", TWO), called("i9", "c9", ONE)),
        ],
        [("c1", ONE), ("c2", TWO)],
        ["other-call-id", "other-call-id"],
    ),
    (
        "other ids and arguments at the end",
        [done(called("i1", "c1", ONE)), completed(called("i9", "c9", TWO))],
        [("c1", ONE)],
        ["other-call-id", "content-differs"],
    ),
    (
        "other item ids at the end, with the same call_ids in another order",
        [
            *(added(called("i1", "c1", ""), 0), added(called("i2", "c2", ""), 1)),
            completed(called("i8", "c2", TWO), called("i9", "c1", ONE)),
        ],
        [("c1", ONE), ("c2", TWO)],
        [],
    ),
    (
        "no ids at the end",
        [done(called("i1", "c1", ONE)), completed({"type": "function_call", "name": "f", "arguments": ONE})],
        [("c1", ONE)],
        [],
    ),
    (
        "one more at the end",
        [done(called("i1", "c1", "{}")), completed(called("i8", "c8", "{}"), called("i9", "c9", "{}"))],
        [("c1", "{}"), ("c9", "{}")],
        ["other-call-id"],
    ),
    (
        "another function at the end",
        [done(called("i1", "c1", "{}")), completed(called("i9", "c9", "{}", "g"))],
        [("c1", "{}"), ("c9", "{}")],
        [],
    ),
    (
        "all ids are other ones when the call is done, and again at the end",
        [
            *(added(called("i1", "c1", "")), arguments("{}"), done(called("i2", "c2", "{}"))),
            completed(called("i3", "c3", "{}")),
        ],
        [("c2", "{}")],
        ["other-call-id"],
    ),
    (
        "another item id and no output index when the call is done",
        [added(called("i1", "c1", "")), e("output_item.done", item=called("i2", "c1", "{}")), completed()],
        [("c1", "{}")],
        [],
    ),
    (
        "another item id and another output index when the call is done",
        [added(called("i1", "c1", "")), done(called("i2", "c1", "{}"), 7), completed()],
        [("c1", "{}")],
        [],
    ),
    (
        "the same output index for two open calls, and other item ids when they are done",
        [
            *(added(called("i1", "c1", "")), added(called("i2", "c2", ""))),
            *(done(called("i3", "c1", ONE)), done(called("i4", "c2", TWO)), completed()),
        ],
        [("c1", ONE), ("c2", TWO)],
        [],
    ),
    (
        "done twice",
        [done(called("i1", "c1", "{}")), done(called("i1", "c1", "{}")), completed(called("i1", "c1", "{}"))],
        [("c1", "{}")],
        [],
    ),
    (
        "streamed twice",
        [
            *(added(called("i1", "c1", "")), arguments("{}"), done(called("i1", "c1", "{}"))),
            *(added(called("i1", "c1", "")), arguments("{}")),
            e("function_call_arguments.done", item_id="i1", output_index=0, arguments="{}"),
            *(done(called("i1", "c1", "{}")), completed(called("i1", "c1", "{}"))),
        ],
        [("c1", "{}")],
        ["repeated-item"],
    ),
    (
        "done twice at one output index, with one call_id and two item ids",
        [done(called("i1", "c1", "{}")), done(called("i2", "c1", "{}")), completed()],
        [("c1", "{}")],
        ["repeated-item"],
    ),
    (
        "two calls with the same ids, one after the other",
        [
            *(added(called("i1", "c1", ""), 0), arguments(ONE), done(called("i1", "c1", ONE), 0)),
            *(added(called("i1", "c1", ""), 1), arguments(TWO, place=1), done(called("i1", "c1", TWO), 1)),
            completed(called("i1", "c1", ONE), called("i1", "c1", TWO)),
        ],
        [("c1", ONE), ("c1", TWO)],
        [],
    ),
    (
        "two calls with the same ids, which are not streamed",
        [completed(called("i1", "c1", ONE), called("i1", "c1", TWO))],
        [("c1", ONE), ("c1", TWO)],
        [],
    ),
    (
        "two equal calls with the same call_id",
        [done(called("i1", "c1", "{}"), 0), done(called("i2", "c1", "{}"), 1), completed()],
        [("c1", "{}"), ("c1", "{}")],
        [],
    ),
]


@pytest.mark.parametrize(("items", "wanted", "codes"), [t[1:] for t in SAME_CALLS], ids=[t[0] for t in SAME_CALLS])
def test_each_call_counts_once(items: list[Any], wanted: list[tuple[str, str]], codes: list[str]) -> None:
    """Whatever ids its events have."""
    story = decode(CREATED, *items)
    made = [m for m in story.engine.messages.all if isinstance(m, ToolCallMessage)]
    assert [(m.call_id, m.content) for m in made] == wanted
    assert story.codes == codes
    assert len({m.id for m in made}) == len(made)


# What a server sends about texts -> the texts, and the codes of the warnings.
SAME_TEXTS: list[tuple[str, list[Any], list[str], list[str]]] = [
    ("another id at the end", [delta("a"), done(message("a")), completed(message("a", id="z"))], ["a"], []),
    (
        "another id and text at the end of a text that is open",
        [delta("a"), completed(message("b", id="z"))],
        ["b"],
        ["content-differs"],
    ),
    (
        "another id and text at the end of a text that is done",
        [delta("a"), done(message("a")), completed(message("b", id="z"))],
        ["a"],
        ["content-differs"],
    ),
    (
        "another text at the end of a text that is done",
        [delta("a"), done(message("a")), completed(message("b"))],
        ["a"],
        ["content-differs"],
    ),
    (
        "two texts in another order, with other ids",
        [
            *(done(message("a", id="m1"), 0), done(message("b", id="m2"), 1)),
            completed(message("b", id="x"), message("a", id="y")),
        ],
        ["a", "b"],
        [],
    ),
    (
        "two texts with the same id",
        [done(message("a"), 0), done(message("b"), 1), completed(message("a"), message("b"))],
        ["a", "b"],
        [],
    ),
    (
        "reasoning at the output index of an open message, with another id for each delta",
        [
            added(message(id="m1")),
            *(
                e("reasoning_summary_text.delta", item_id=f"r{n}", output_index=0, delta=text)
                for n, text in enumerate("hm")
            ),
            *(delta("a", "m2"), done(message("a", id="m3")), completed(message("a", id="m4"))),
        ],
        ["a"],
        [],
    ),
]


@pytest.mark.parametrize(("items", "wanted", "codes"), [t[1:] for t in SAME_TEXTS], ids=[t[0] for t in SAME_TEXTS])
def test_each_text_counts_once(items: list[Any], wanted: list[str], codes: list[str]) -> None:
    """Whatever ids its events have. A text that is done stays as it is."""
    story = decode(CREATED, *items)
    assert texts(story) == wanted
    assert story.codes == codes


def reasoned(key: str, *texts: str, type: str = "") -> dict[str, Any]:
    """A reasoning item with its texts at this key."""
    type = type or ("summary_text" if key == "summary" else "reasoning_text")
    return {"type": "reasoning", "id": "rs", key: [{"type": type, "text": text} for text in texts]}


SUMMARY = e("reasoning_summary_text.delta", item_id="rs", output_index=0, summary_index=0, delta="hm")
THOUGHT = e("reasoning_text.delta", item_id="rs", output_index=0, content_index=0, delta="hm")
NO_PART = {"type": "reasoning_text"}
# What a server sends about reasoning -> its messages as (format, text).
SAME_REASONING: list[tuple[str, list[Any], list[tuple[str | None, str]]]] = [
    ("a summary, listed as a text", [SUMMARY, completed(reasoned("content", "hm"))], [("summary", "hm")]),
    (
        "a summary, listed as a text of a message",
        [SUMMARY, completed(reasoned("content", "hm", type="output_text"))],
        [("summary", "hm")],
    ),
    (
        "a summary that is done, listed as a text",
        [SUMMARY, done(reasoned("summary", "hm")), completed(reasoned("content", "hm"))],
        [("summary", "hm")],
    ),
    ("a text, listed as a summary", [THOUGHT, completed(reasoned("summary", "hm"))], [(None, "hm")]),
    (
        "a summary, listed with the text",
        [SUMMARY, completed({**reasoned("content", "hm"), **reasoned("summary", "hm")})],
        [("summary", "hm"), (None, "hm")],
    ),
    (
        "a summary, and another text in its place",
        [SUMMARY, completed(reasoned("content", "hm, so"))],
        [("summary", "hm"), (None, "hm, so")],
    ),
    (
        "the end of a part of which nothing came",
        [SUMMARY, e("content_part.done", item_id="x", output_index=0, content_index=0, part=NO_PART), completed()],
        [("summary", "hm")],
    ),
]


@pytest.mark.parametrize(("items", "wanted"), [t[1:] for t in SAME_REASONING], ids=[t[0] for t in SAME_REASONING])
def test_reasoning_counts_once(items: list[Any], wanted: list[tuple[str | None, str]]) -> None:
    """Also where a server lists it as something else than it streamed."""
    story = decode(CREATED, *items)
    assert [(m.format, m.content) for m in story.engine.messages.all] == wanted


@pytest.mark.parametrize(
    ("item", "sent"),
    [
        (reasoned("content", "hm", type="output_text"), {**reasoned("content", "hm"), "summary": []}),
        (reasoned("content", "hm"), reasoned("content", "hm")),
        (reasoned("summary", "hm"), reasoned("summary", "hm")),
    ],
)
def test_reasoning_goes_back_with_the_types_that_the_api_defines(item: dict[str, Any], sent: dict[str, Any]) -> None:
    """A server that lists it as a message's text gets it as reasoning."""
    messages = decode(CREATED, done(item), done(message("a"), 1), completed()).engine.messages.all
    assert to_input(messages)[0] == sent


# -- messages as input


ASKED = ToolCallMessage("fc", name="f", call_id="c", content="{}")
CUSTOM = ToolCallMessage("ct", name="sql", call_id="c", content="select", metadata={"custom": True})
SHELL = ToolCallMessage(
    "ls", name="local_shell", call_id="c", content='{"command":["ls"]}', metadata={"item_type": "local_shell_call"}
)
OUTPUT = ToolOutputMessage("o", call_id="c", content="out")
SUBJECT = ToolCallMessage("q", name="m", provider_executed=True)
INPUTS: list[tuple[list[Any], list[dict[str, Any]]]] = [
    ([TextMessage("a", content="hi", role="user")], [{"type": "message", "role": "user", "content": "hi"}]),
    (
        [TextMessage("a", content="hi", metadata={"phase": "commentary"})],
        [{"type": "message", "role": "assistant", "content": "hi", "phase": "commentary"}],
    ),
    ([TextMessage("a", content="hi", role="system")], [{"type": "message", "role": "system", "content": "hi"}]),
    (
        [ASKED, OUTPUT],
        [
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "out"},
        ],
    ),
    (
        [CUSTOM, OUTPUT],
        [
            {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "select"},
            {"type": "custom_tool_call_output", "call_id": "c", "output": "out"},
        ],
    ),
    (
        [SHELL, OUTPUT],
        [
            {
                "type": "local_shell_call",
                "id": "ls",
                "call_id": "c",
                "action": {"command": ["ls"]},
                "status": "completed",
            },
            {"type": "local_shell_call_output", "id": "c", "output": "out"},
        ],
    ),
    (
        [ToolOutputMessage("o", call_id="c", content="out", metadata={"custom": True})],
        [{"type": "custom_tool_call_output", "call_id": "c", "output": "out"}],
    ),
    ([OUTPUT], [{"type": "function_call_output", "call_id": "c", "output": "out"}]),
    (
        [ImageMessage("i", role="user", format="base64.png", content="AAAA")],
        [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AAAA"}],
            }
        ],
    ),
    (
        [ImageMessage("i", role="user", format="url", content="https://example.org/a.png")],
        [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_image", "detail": "auto", "image_url": "https://example.org/a.png"}],
            }
        ],
    ),
    (
        [
            ReasoningMessage("r", format="summary", content="s", group="r"),
            ReasoningMessage("r.1", format="summary", content="t", group="r", metadata={"encrypted_content": "x"}),
        ],
        [
            {
                "type": "reasoning",
                "id": "r",
                "summary": [{"type": "summary_text", "text": "s"}, {"type": "summary_text", "text": "t"}],
                "encrypted_content": "x",
            }
        ],
    ),
    ([ReasoningMessage("r", content="not sealed")], []),
    (
        [
            ToolCallMessage("f", name="execute", call_id="c", content="{}"),
            CodeMessage("f#code", format="python", call_id="c", content="x"),
            ConsoleMessage("o", call_id="c", content="a\n"),
            ConsoleMessage("o.2", call_id="c", content="b\n"),
        ],
        [
            {"type": "function_call", "call_id": "c", "name": "execute", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "a\nb\n"},
        ],
    ),
    (
        [
            ToolCallMessage("f", name="execute", call_id="c", content="{}"),
            ConsoleMessage("o", call_id="c", content="printed"),
            ToolOutputMessage("f.output", call_id="c", content="answered"),
        ],
        [
            {"type": "function_call", "call_id": "c", "name": "execute", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "answered"},
        ],
    ),
    ([SUBJECT, ToolOutputMessage("q.output", call_id="q", content="out")], []),
    (
        [Confirmation("q", SUBJECT, status="approved")],
        [{"type": "mcp_approval_response", "approval_request_id": "q", "approve": True}],
    ),
    (
        [Confirmation("q", SUBJECT, status="declined", reason="no")],
        [{"type": "mcp_approval_response", "approval_request_id": "q", "approve": False, "reason": "no"}],
    ),
]


@pytest.mark.parametrize(("messages", "items"), INPUTS)
def test_messages_are_input_items(messages: list[Any], items: list[dict[str, Any]]) -> None:
    """In order, each as the API takes it."""
    assert to_input(messages) == items


@pytest.mark.parametrize(
    "message",
    [
        ImageMessage("i", role="user", format="path", content="/a.png"),
        FileMessage("f", role="user", format="path", content="/a.txt"),
        AudioMessage("a", role="user", format="wav", content="AA=="),
        Message("n", role="user", type="novelty", content="a"),
        Confirmation("q", SUBJECT),
    ],
)
def test_what_the_api_cannot_take_is_the_callers_fault(message: Any) -> None:
    """It is never left out silently."""
    with pytest.raises(UsageError, match=repr(message.id)):
        to_input([message])


def test_a_patch_is_streamed_as_the_arguments_of_its_call() -> None:
    """The arguments are the operation, with the patch last."""
    item = {"id": "ap", "type": "apply_patch_call", "call_id": "c", "status": "in_progress"}
    begun = {**item, "operation": {"type": "update_file", "diff": "", "path": "a.py"}}
    final = {**begun, "status": "completed", "operation": {"type": "update_file", "diff": '-"a"\n+b', "path": "a.py"}}
    stem = "apply_patch_call_operation_diff"
    pieces = [e(f"{stem}.delta", item_id="ap", output_index=0, delta=piece) for piece in ('-"a', '"\n', "+b")]
    for end in ([], [e(f"{stem}.done", item_id="ap", output_index=0, diff='-"a"\n+b')]):
        story = decode(added(begun), *pieces, *end, done(final), completed(final))
        call = only(story)
        assert isinstance(call, ToolCallMessage)
        assert call.arguments == final["operation"]
        assert story.types.count("tool_call_delta") == 4
        assert story.codes == []
        assert to_input([call]) == [final]


LETTA_APPROVAL: list[dict[str, Any]] = [
    {
        "message_type": "approval_request_message",
        "id": "message-1",
        "date": "2025-01-01T00:00:00Z",
        "tool_call": {"name": "f", "arguments": '{"a":1}', "tool_call_id": "c1"},
    },
    {"message_type": "stop_reason", "stop_reason": "requires_approval"},
]


def output_items(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event["item"] for event in events if event["type"] == "response.output_item.done"]


def test_a_call_that_wants_an_approval_is_one_request_for_it() -> None:
    """Read again it is one call, with one question, in a run that requires action: no call that nobody ran."""
    story = tell_items(protocols.find("letta").Decoder, LETTA_APPROVAL)
    encoded = encode(story.events)
    (item,) = output_items(encoded)
    assert (item["type"], item["id"], item["name"], item["arguments"]) == ("mcp_approval_request", "c1", "f", '{"a":1}')
    again = tell_items(Decoder, encoded)
    assert [m.id for m in again.engine.messages.all] == ["c1"]
    assert [c.id for c in again.engine.pending.confirmations] == ["c1"]
    run = again.engine.runs.run
    assert run is not None
    assert run.status == "requires_action"


def test_a_call_that_was_approved_and_ran_is_a_call_with_its_output() -> None:
    """After the request, as the API has it."""
    call = ToolCallMessage("c1", name="f", content="{}", provider_executed=True, metadata={"requires_approval": True})
    output = ToolOutputMessage("o", call_id="c1", content="out")
    items = [{"type": "message_done", "message": message.to_dict()} for message in (call, output)]
    request, ran = output_items(encode(tell_items(protocols.find("streamkit").Decoder, items).events))
    assert (request["type"], request["id"]) == ("mcp_approval_request", "c1")
    assert (ran["type"], ran["approval_request_id"], ran["name"], ran["output"]) == ("mcp_call", "c1", "f", "out")


def test_a_call_that_was_questioned_after_it_was_sent_is_not_completed() -> None:
    """Nobody ran it."""
    call = ToolCallMessage("c1", name="f", content="{}", provider_executed=True).to_dict()
    items = [
        {"type": "message_done", "message": call},
        {"type": "confirmation_created", "confirmation": {"id": "q", "subject": call}},
    ]
    found = output_items(encode(tell_items(protocols.find("streamkit").Decoder, items).events))
    assert [(item["type"], item["status"]) for item in found] == [
        ("mcp_approval_request", "completed"),
        ("mcp_call", "incomplete"),
    ]


def test_after_a_delta_without_a_number_the_cursor_is_that_of_the_event_before_it() -> None:
    """An annotation came between it and the delta before it, and each item comes alone."""
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    delta = {"type": "response.output_text.delta", **place, "delta": "a"}
    annotation = {"type": "file_citation", "file_id": "file-1", "filename": "a.txt", "index": 1}
    items = [
        {"type": "response.created", "sequence_number": 0, "response": {"id": "resp_1"}},
        {**delta, "sequence_number": 1},
        {**delta, "sequence_number": 2},
        {"type": "response.output_text.annotation.added", **place, "annotation": annotation, "sequence_number": 3},
        delta,
        {"type": "response.completed", "sequence_number": 5, "response": {"id": "resp_1", "output": []}},
    ]
    cursors: list[str | None] = []

    class Reader(sk.EventHandler):
        def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
            cursors.append(self.stream.cursor)

    sk.stream(iter(items), Reader()).until_done()
    assert cursors == ["1", "2", "3"]
