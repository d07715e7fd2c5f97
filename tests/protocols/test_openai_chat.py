"""Chat Completions: recorded streams of many servers, the forms that trip other readers, and the way back."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionChunk

from streamkit import events as e
from streamkit import messages as m
from streamkit.core.engine import Engine
from streamkit.errors import UsageError
from streamkit.protocols import openai_responses
from streamkit.protocols.framing import SseFramer, framer_for, sse_frame
from streamkit.protocols.openai_chat import Decoder, Encoder, to_input

from .. import values as q
from ..recorded import each_recording
from ..telling import Story, tell_bytes, tell_items


class Careful(Decoder):
    """The same decoder without its plain case."""

    plain_item = None


def chunk(delta: Any = None, finish: Any = None, index: Any = 0, **more: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": {} if delta is None else delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": [choice], **more}


def tool(index: Any = None, id: Any = None, name: Any = None, arguments: Any = "", **more: Any) -> dict[str, Any]:
    fields = {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}
    return {**{key: value for key, value in fields.items() if value is not None}, **more}


def tools(*pieces: Any, finish: Any = None) -> dict[str, Any]:
    return chunk({"tool_calls": [*pieces]}, finish)


def sse(items: Sequence[Any], *, done: bool = True) -> bytes:
    return b"".join(sse_frame(json.dumps(item).encode()) for item in items) + (b"data: [DONE]\n\n" if done else b"")


def decode(*items: Any, done: bool = True) -> Story:
    return tell_bytes(Decoder, [sse(items, done=done)])


def calls(story: Story) -> list[tuple[str | None, str | None, str]]:
    return [(c.call_id, c.name, c.content) for c in story.engine.messages.all if isinstance(c, m.ToolCallMessage)]


# -- the recordings


# Where the official helper gives a wrong answer, or none, and the right one.
DIFFERS: dict[str, tuple[str, dict[str, Any] | None]] = {
    "llm-tools-streaming-variant-a.0": ("it concatenates an id and a name that the server repeats", None),
    "php-create-v1": ("no arguments are no text, not null", None),
    "rubyllm-stream-perplexity-sonar": ("it loses a finish_reason, which a later null does not erase", None),
    "dotnet-chatwithbasicaudiooutputasync": (
        "it fails on chunks without `choices`; the transcript of the audio is a text",
        {"messages": [{"choice": 0, "text": "Hello", "refusal": None, "finish_reason": None}], "tool_calls": []},
    ),
}


def reading(story: Story) -> dict[str, Any]:
    """The story in the form of the expected files."""
    messages = story.engine.messages.all
    run = story.engine.runs.run
    assert run is not None
    choices = sorted({message.choice for message in messages} | {0})
    reasons = run.metadata.get("finish_reasons", {"0": run.finish_reason})

    def content(choice: int, kind: type[m.Message]) -> str:
        return "".join(x.content for x in messages if x.choice == choice and isinstance(x, kind))

    return {
        "messages": [
            {
                "choice": choice,
                "text": content(choice, m.TextMessage),
                "refusal": content(choice, m.RefusalMessage),
                "finish_reason": reasons[str(choice)],
            }
            for choice in choices
        ],
        "tool_calls": [
            {"choice": x.choice, "id": x.call_id, "name": x.name, "arguments": x.content}
            for x in messages
            if isinstance(x, m.ToolCallMessage)
        ],
    }


def normal(expected: dict[str, Any]) -> dict[str, Any]:
    """The expected reading, where null and empty are the same: an empty text is no message."""
    messages = [{**x, "text": x["text"] or "", "refusal": x["refusal"] or ""} for x in expected["messages"]]
    return {"messages": messages, "tool_calls": expected["tool_calls"]}


@each_recording("openai-chat", own=False)
def test_a_recorded_stream_is_read_as_the_server_meant_it(path: Path) -> None:
    """As the official helper reads it, or as `DIFFERS` states; reasoning as a careful reading has it."""
    expected = json.loads(path.with_name(f"{path.stem}.expected.json").read_text())
    story = tell_bytes(Decoder, [path.read_bytes()])
    _, right = DIFFERS.get(path.stem, ("", expected))
    assert reading(story) == normal(right or expected["own_reading"])
    assert "".join(story.contents("reasoning")) == (expected["reasoning_own_reading"] or reasoning_details(path))
    assert set(story.codes) <= {"bad-arguments"}


def reasoning_details(path: Path) -> str:
    """The careful reading beside the recordings leaves this one form out."""
    return "15 * 27 = 405" if path.stem == "pydai-snowflake-thinking-streaming" else ""


@each_recording("openai-chat", own=False)
def test_every_other_answer_of_the_official_helper_holds(path: Path) -> None:
    """`DIFFERS` names just those recordings that a careful reading reads otherwise."""
    expected = json.loads(path.with_name(f"{path.stem}.expected.json").read_text())
    if expected["own_reading_agrees"] is False:
        assert path.stem in DIFFERS


@each_recording("openai-chat")
@pytest.mark.parametrize("size", [97, 10**9])
def test_the_plain_case_gives_what_the_tables_give(path: Path, size: int) -> None:
    body = path.read_bytes()
    chunks = [body[start : start + size] for start in range(0, len(body), size)]
    fast, careful = tell_bytes(Decoder, chunks), tell_bytes(Careful, chunks)
    assert fast.lines == careful.lines
    assert fast.decoder.index == careful.decoder.index
    assert [event.raw for event in fast.events] == [event.raw for event in careful.events]


@each_recording("openai-chat")
def test_a_recorded_stream_is_recognised(path: Path) -> None:
    """Its first item that is no keepalive has a shape of its own."""
    body = path.read_bytes()
    framer = framer_for(body) or SseFramer()
    first = json.loads(framer.feed(body)[0][2])
    assert Decoder.recognises(first)


@each_recording("openai-chat")
def test_a_recorded_stream_survives_encoding(path: Path) -> None:
    story = tell_bytes(Decoder, [path.read_bytes()])
    assert shape(encoded_again(story)) == shape(story)


# -- the traps


DONE = chunk(finish="tool_calls")
TRAPS: dict[str, tuple[list[Any], list[tuple[str | None, str | None, str]], list[str]]] = {
    "interleaved": (
        [
            tools(tool(0, "a", "f"), tool(1, "b", "g")),
            tools(tool(0, arguments='{"x"')),
            tools(tool(1, arguments='{"y"')),
            tools(tool(0, arguments=":1}")),
            tools(tool(1, arguments=":2}")),
        ],
        [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')],
        [],
    ),
    "first index is 1": (
        [tools(tool(1, "a", "f")), tools(tool(1, arguments="{}"))],
        [("a", "f", "{}")],
        [],
    ),
    "no index, distinguished by id": (
        [
            tools(tool(None, "a", "f", "{")),
            tools(tool(None, "b", "g", "{")),
            tools(tool(None, "a", None, "}")),
            tools(tool(None, "b", None, "}")),
        ],
        [("a", "f", "{}"), ("b", "g", "{}")],
        [],
    ),
    "neither index nor id goes on with the last": (
        [tools(tool(None, "a", "f", "{")), tools(tool(None, None, None, "}"))],
        [("a", "f", "{}")],
        [],
    ),
    "neither index nor id, the last one changed by index": (
        [
            tools(tool(0, "a", "f", "{"), tool(1, "b", "g", "{")),
            tools(tool(0, arguments='"x"')),
            tools(tool(None, None, None, ":1}")),
            tools(tool(1, arguments="}")),
        ],
        [("a", "f", '{"x":1}'), ("b", "g", "{}")],
        [],
    ),
    "complete calls without index or id": (
        [tools(tool(None, None, "f", '{"x":1}')), tools(tool(None, None, "f", '{"x":2}'))],
        [(None, "f", '{"x":1}'), (None, "f", '{"x":2}')],
        [],
    ),
    "complete calls side by side": (
        [tools(tool(None, None, "f", "{}"), tool(None, None, "f", "{}"))],
        [(None, "f", "{}"), (None, "f", "{}")],
        [],
    ),
    "every call has index 0": (
        [
            tools(tool(0, "a", "f", "{")),
            tools(tool(0, "b", "f", "{")),
            tools(tool(0, "a", None, "}")),
            tools(tool(0, "b", None, "}")),
        ],
        [("a", "f", "{}"), ("b", "f", "{}")],
        [],
    ),
    "another id on each piece": (
        [tools(tool(0, "a", "f", "{")), tools(tool(0, "b", None, "}"))],
        [("a", "f", "{}")],
        [],
    ),
    "repeated id and name": (
        [tools(tool(0, "a", "f", "{")), tools(tool(0, "a", "f", "}"))],
        [("a", "f", "{}")],
        [],
    ),
    "empty id and name, null type": (
        [tools(tool(0, "a", "f", "{", type=None)), tools(tool(0, "", "", "}", type=None))],
        [("a", "f", "{}")],
        [],
    ),
    "a name in pieces": (
        [tools(tool(0, "a", "get_")), tools(tool(0, None, "weather")), tools(tool(0, arguments="{}"))],
        [("a", "get_weather", "{}")],
        [],
    ),
    "arguments before the name": (
        [tools(tool(0, "a", None, "{")), tools(tool(0, None, None, "}")), tools(tool(0, None, "f"))],
        [("a", "f", "{}")],
        [],
    ),
    "the id comes last": ([tools(tool(0, None, "f", "{}")), tools(tool(0, "a"))], [("a", "f", "{}")], []),
    "no name": ([tools(tool(0, "a", None, "{}"))], [("a", None, "{}")], ["no-tool-name"]),
    "null arguments": (
        [tools({"index": 0, "id": "a", "function": {"name": "f", "arguments": None}})],
        [("a", "f", "")],
        [],
    ),
    "arguments as an object": ([tools(tool(0, "a", "f", {"x": [1]}))], [("a", "f", '{"x":[1]}')], []),
    "an index that is a string": (
        [tools(tool("0", "a", "f", "{")), tools(tool("0", arguments="}"))],
        [("a", "f", "{}")],
        ["bad-index", "bad-index"],
    ),
    "one call in place of a list": (
        [chunk({"tool_calls": tool(0, "a", "f", "{}")})],
        [("a", "f", "{}")],
        ["bad-tool-calls"],
    ),
    "calls that are no objects": ([tools(5, tool(0, "a", "f", "{}"))], [("a", "f", "{}")], ["bad-tool-calls"]),
    "name and arguments without `function`": (
        [tools({"id": "a", "name": "f", "arguments": "{}"})],
        [("a", "f", "{}")],
        [],
    ),
    "a custom tool": (
        [tools({"index": 0, "id": "a", "type": "custom", "custom": {"name": "f", "input": "any text"}})],
        [("a", "f", "any text")],
        [],
    ),
    "legacy function_call": (
        [chunk({"function_call": {"name": "f", "arguments": "{"}}), chunk({"function_call": {"arguments": "}"}})],
        [(None, "f", "{}")],
        [],
    ),
    "a call after finish_reason": ([DONE, tools(tool(0, "a", "f", "{}"))], [("a", "f", "{}")], []),
}


@pytest.mark.parametrize("items, expected, codes", TRAPS.values(), ids=TRAPS.keys())
def test_tool_calls_are_distinguished_and_complete(items: list[Any], expected: list[Any], codes: list[str]) -> None:
    """However a server numbers, names or cuts them."""
    story = decode(*items, DONE)
    assert calls(story) == expected
    assert story.codes == codes
    assert story.decoder.complete
    assert story.types.count("tool_call_created") == story.types.count("tool_call_done") == len(expected)
    assert tell_bytes(Careful, [sse([*items, DONE])]).lines == story.lines


def test_interleaved_calls_stay_open_until_the_finish_reason() -> None:
    """No call is done with a part of its arguments."""
    story = decode(*TRAPS["interleaved"][0], DONE)
    assert story.types.index("tool_call_done") > max(i for i, t in enumerate(story.types) if t == "tool_call_delta")


def lifecycles(story: Story) -> list[str]:
    """`name created`, `name done` of each call."""
    found = [event for event in story.events if isinstance(event, (e.ToolCallCreated, e.ToolCallDone))]
    return [f"{event.message.name} {event.type.rpartition('_')[2]}" for event in found]


@pytest.mark.parametrize("fast", [True, False], ids=["fast path", "tolerant path"])
@pytest.mark.parametrize("numbered", ["by index", "by id", "all 0"])
def test_a_call_is_done_where_the_next_one_begins(fast: bool, numbered: str) -> None:
    """As OpenAI streams parallel calls: one after the other. So each is shown, and can be run, while the next one streams."""
    items = []
    for place, name in enumerate("fgh"):
        index = {"by index": place, "by id": None, "all 0": 0}[numbered]
        items.append(tools(tool(index, f"call_{name}", name)))
        later = {"id": f"call_{name}"} if numbered == "by id" else {}
        items += [tools(tool(index, arguments=piece, **later)) for piece in ('{"n"', f": {place}}}")]
    story = tell_bytes(Decoder if fast else Careful, [sse([*items, DONE])])
    assert lifecycles(story) == ["f created", "f done", "g created", "g done", "h created", "h done"]
    assert calls(story) == [(f"call_{name}", name, f'{{"n": {place}}}') for place, name in enumerate("fgh")]
    assert {call.status for call in story.engine.messages.all} == {"completed"}
    assert story.codes == []


def test_only_the_last_call_is_incomplete_where_the_answer_was_cut_short() -> None:
    """The first one has all its arguments."""
    story = decode(tools(tool(0, "a", "f", "{}")), tools(tool(1, "b", "g", '{"x')), chunk(finish="length"))
    assert [call.status for call in story.engine.messages.all] == ["completed", "incomplete"]


def test_a_custom_tools_call_is_open_until_the_finish_reason() -> None:
    """Its input is any text, which may look complete before it is."""
    custom = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "f", "input": "{}"}}
    more = {"index": 0, "custom": {"input": " and more"}}
    story = decode(tools(custom), tools(tool(1, "b", "g", "{}")), tools(more), DONE)
    assert calls(story) == [("a", "f", "{} and more"), ("b", "g", "{}")]
    assert story.codes == []


TEXTS: dict[str, tuple[list[Any], list[str], list[str]]] = {
    "rotating chunk ids": ([chunk({"content": "a"}), chunk({"content": "b"}) | {"id": "c2"}], ["ab"], []),
    "role on every chunk": ([chunk({"role": "assistant", "content": x}) for x in ("", "a", "b")], ["ab"], []),
    "null everywhere": (
        [chunk({"content": "a", "refusal": None, "tool_calls": None, "function_call": None, "role": None}, usage=None)],
        ["a"],
        [],
    ),
    "choices null, missing, empty": (
        [
            {"id": "c1", "object": "chat.completion.chunk", "choices": None},
            {"id": "c1", "object": "chat.completion.chunk"},
            {**chunk(), "choices": []},
            chunk({"content": "a"}),
        ],
        ["a"],
        [],
    ),
    "no index": ([{"choices": [{"delta": {"content": "a"}}]}, chunk({"content": "b"})], ["ab"], []),
    "a list, then a string": (
        [chunk({"content": [{"type": "text", "text": "a"}]}), chunk({"content": "b"})],
        ["ab"],
        [],
    ),
    "delta beside message": (
        [{"choices": [{"index": 0, "delta": {"content": x}, "message": {"content": x}}]} for x in "ab"],
        ["ab"],
        [],
    ),
    "content is a number": ([chunk({"content": 5})], ["5"], ["non-string-content"]),
    "content is true": ([chunk({"content": True}), chunk({"content": "a"})], ["a"], ["non-string-content"]),
    "delta is no object": ([chunk("a"), chunk({"content": "b"})], ["b"], ["bad-delta"]),
    "choices is an object": (
        [{"choices": {"delta": {"content": "a"}}}],
        ["a"],
        ["bad-choices"],
    ),
    "choices is a string": ([chunk({"content": "a"}), {"choices": "x"}], ["a"], ["bad-choices", "bad-choice"]),
    "a choice is no object": ([{"choices": [None, {"delta": {"content": "a"}}]}], ["a"], ["bad-choice"]),
    "content after finish_reason": ([chunk({"content": "a"}, "stop"), chunk({"content": "b"})], ["a", "b"], []),
    "finish_reason with content, twice": ([chunk({"content": "a"}, "stop"), chunk({}, "stop")], ["a"], []),
    "finish_reason is a number": ([chunk({"content": "a"}, 5)], ["a"], ["bad-finish-reason"]),
}


@pytest.mark.parametrize("items, expected, codes", TEXTS.values(), ids=TEXTS.keys())
def test_text_survives_odd_chunks(items: list[Any], expected: list[str], codes: list[str]) -> None:
    story = decode(*items)
    assert story.contents("message") == expected
    assert story.codes == codes
    assert tell_bytes(Careful, [sse(items)]).lines == story.lines


IMAGE = {"image_url": {"url": "https://host/x.png"}}
CITED = {"type": "url_citation", "url_citation": {"url": "u"}}
BAD_VALUES: dict[str, tuple[dict[str, Any], list[tuple[str, str]], list[str]]] = {
    "one image in place of a list": (
        chunk({"content": "a", "images": IMAGE}),
        [("message", "a"), ("image", "https://host/x.png")],
        ["bad-images"],
    ),
    "images is text": (chunk({"content": "a", "images": "x"}), [("message", "a")], ["bad-images"]),
    "one annotation in place of a list": (
        chunk({"content": "a", "annotations": CITED}),
        [("message", "a")],
        ["bad-annotations"],
    ),
    "one reasoning detail in place of a list": (
        chunk({"content": "a", "reasoning_details": {"text": "r"}}),
        [("reasoning", "r"), ("message", "a")],
        ["bad-reasoning-details"],
    ),
    "one thinking part in place of a list": (
        chunk({"content": [{"type": "thinking", "thinking": {"type": "text", "text": "r"}}, "a"]}),
        [("reasoning", "r"), ("message", "a")],
        [],
    ),
    "message is text": (
        {"choices": [{"index": 0, "delta": {"content": "a"}, "message": "x"}]},
        [("message", "a")],
        ["bad-message"],
    ),
    "audio data is a number": (
        chunk({"content": "a", "audio": {"transcript": "t", "data": 5}}),
        [("message", "a"), ("message", "t")],
        ["bad-audio"],
    ),
}


@pytest.mark.parametrize("item, expected, codes", BAD_VALUES.values(), ids=BAD_VALUES.keys())
def test_one_bad_value_never_loses_the_rest_of_its_chunk(
    item: dict[str, Any], expected: list[tuple[str, str]], codes: list[str]
) -> None:
    """What the value can only mean is read; else it is skipped, with a warning."""
    story = decode(item, chunk({}, "stop"))
    assert [(x.type, x.content) for x in story.engine.messages.all] == expected
    assert story.codes == codes
    assert tell_bytes(Careful, [sse([item, chunk({}, "stop")])]).lines == story.lines


def test_one_annotation_in_place_of_a_list_is_an_annotation() -> None:
    """It belongs to the open text, like those in a list."""
    (text,) = decode(chunk({"content": "a", "annotations": CITED}), chunk({}, "stop")).engine.messages.all
    assert isinstance(text, m.TextMessage)
    assert [annotation.url for annotation in text.annotations] == ["u"]


def test_choices_do_not_mix() -> None:
    """Each has its text and its finish_reason; the run's is that of the lowest."""
    pieces = [(0, "a"), (1, "x"), (0, "b"), (1, "y")]
    story = decode(
        *(chunk({"content": c}, index=i) for i, c in pieces), chunk(finish="length"), chunk(finish="stop", index=1)
    )
    assert [(x.choice, x.content, x.status) for x in story.engine.messages.all] == [
        (0, "ab", "incomplete"),
        (1, "xy", "completed"),
    ]
    run = story.engine.runs.run
    assert run is not None
    assert (run.status, run.finish_reason) == ("incomplete", "length")
    assert run.metadata["finish_reasons"] == {"0": "length", "1": "stop"}


ENDINGS: dict[str, tuple[list[Any], bool, bool, str, str | None]] = {
    "finish without [DONE]": ([chunk({"content": "a"}, "stop")], False, True, "completed", "stop"),
    "[DONE] without finish": ([chunk({"content": "a"})], True, True, "completed", None),
    "neither": ([chunk({"content": "a"})], False, False, "incomplete", None),
    "one choice of two": (
        [chunk({"content": "a"}, "stop"), chunk({"content": "b"}, index=1)],
        False,
        False,
        "incomplete",
        None,
    ),
    "filtered": ([chunk({"content": "a"}, "content_filter")], True, True, "incomplete", "content_filter"),
    "unknown reason": ([chunk({"content": "a"}, "eos")], True, True, "completed", "eos"),
    "a later null": ([chunk({"content": "a"}, "stop"), chunk()], True, True, "completed", "stop"),
    "the reason is `error`": ([chunk({"content": "a"}, "error")], True, True, "failed", "error"),
}


@pytest.mark.parametrize("items, done, complete, status, reason", ENDINGS.values(), ids=ENDINGS.keys())
def test_the_terminal_rule(items: list[Any], done: bool, complete: bool, status: str, reason: str | None) -> None:
    story = decode(*items, done=done)
    assert story.decoder.complete is complete
    assert story.engine.runs.run is not None
    assert (story.engine.runs.run.status, story.engine.runs.run.finish_reason) == (status, reason)
    message = story.engine.messages.all[0]
    assert message.status == ("failed" if reason == "error" else "completed" if reason == "stop" else message.status)
    assert story.types[-1] == "run_done"
    assert story.types.count("run_done") == 1


def test_nothing_at_all_is_cut_off() -> None:
    story = decode(done=False)
    assert not story.decoder.complete
    assert story.events == []


ERRORS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "an object": (b'data: {"error":{"message":"no","code":7}}\n\n', {"message": "no", "code": 7}),
    "a string": (b'data: {"error":"no"}\n\n', {"message": "no"}),
    "beside a finish_reason": (sse([chunk(finish="error", error={"message": "no"})], done=False), {"message": "no"}),
    "in a choice": (
        sse([{"choices": [{"delta": {}, "error": {"message": "no"}}]}], done=False),
        {"message": "no"},
    ),
    "event: error": (b'event: error\ndata: {"error":{"message":"no"}}\n\n', {"message": "no"}),
    "event: error, flat": (b'event: error\ndata: {"message":"no","type":"x"}\n\n', {"message": "no", "type": "x"}),
    "event: error, text": (b"event: error\ndata: no\n\n", {"message": "no"}),
    "a bare field": (b'error: {"message":"no"}\n\n', {"message": "no"}),
    "type error": (b'data: {"type":"error","message":"no"}\n\n', {"type": "error", "message": "no"}),
    "object error": (b'data: {"object":"error","message":"no"}\n\n', {"object": "error", "message": "no"}),
    "code and message": (b'data: {"code":"x","message":"no"}\n\n', {"code": "x", "message": "no"}),
    "no message": (b'data: {"error":{"code":1}}\n\n', {"code": 1, "message": '{"code":1}'}),
    "empty": (b'data: {"error":{}}\n\n', {"message": "an error without details"}),
}


@pytest.mark.parametrize("body, expected", ERRORS.values(), ids=ERRORS.keys())
@pytest.mark.parametrize("finish", [None, "stop"])
def test_an_error_fails_the_run(body: bytes, expected: dict[str, Any], finish: str | None) -> None:
    """Wherever it stands, also after finish_reason; what arrived before it stays."""
    story = tell_bytes(Decoder, [sse([chunk({"content": "a"}, finish)], done=False) + body + b"data: [DONE]\n\n"])
    assert story.decoder.complete
    assert story.engine.runs.run is not None
    assert (story.engine.runs.run.status, story.engine.runs.run.error) == ("failed", expected)
    assert story.contents("message") == ["a"]
    assert story.engine.messages.all[0].status == ("completed" if finish else "failed")
    assert story.types.count("run_done") == 1
    assert "raw_event" not in story.types


# -- what else an answer holds


@pytest.mark.parametrize(
    "deltas",
    [
        [{"reasoning_content": "a"}, {"reasoning_content": "b"}],
        [{"reasoning": "a"}, {"reasoning": "b"}],
        [{"reasoning": "a", "reasoning_content": "a"}, {"reasoning": "b", "reasoning_content": "b"}],
        [{"reasoning": x, "reasoning_details": [{"type": "reasoning.text", "text": x}]} for x in "ab"],
        [{"reasoning_details": [{"type": "reasoning.summary", "summary": x}]} for x in "ab"],
        [{"content": [{"type": "thinking", "thinking": [{"type": "text", "text": x}]}]} for x in "ab"],
    ],
)
def test_reasoning_ends_where_the_answer_begins(deltas: list[Any]) -> None:
    """In every form that servers have for it; empty content does not end it."""
    story = decode(*(chunk({"content": "", **delta}) for delta in deltas), chunk({"content": "c"}), chunk(deltas[0]))
    assert story.contents("reasoning") == ["ab", "a"]
    assert story.contents("message") == ["c"]
    assert story.types.index("reasoning_done") < story.types.index("text_created")
    assert story.types.index("text_done") > story.types.index("text_delta")


def test_signatures_stay_with_their_reasoning() -> None:
    details = [{"type": "reasoning.text", "signature": "s", "index": 0}]
    story = decode(
        chunk({"reasoning": "a"}), chunk({"reasoning": None, "reasoning_details": details}), chunk({}, "stop")
    )
    assert story.engine.messages.all[0].metadata == {
        "reasoning_details": details,
        "openai_chat": {"reasoning": None, "reasoning_details": details},
    }


def test_encrypted_reasoning_is_one_redacted_message() -> None:
    """The provider's own objects are in its metadata; other content ends it."""
    details = [{"type": "reasoning.encrypted", "data": x} for x in "ab"]
    story = decode(*(chunk({"reasoning_details": [x]}) for x in details), chunk({"content": "c"}, "stop"))
    redacted, text = story.engine.messages.all
    assert (redacted.type, redacted.format, redacted.content) == ("reasoning", "redacted", "")
    assert redacted.metadata == {"reasoning_details": details, "openai_chat": {"reasoning_details": details}}
    assert text.content == "c"


def test_audio_and_its_transcript_are_two_messages() -> None:
    parts = [{"id": "au", "transcript": "Hel"}, {"transcript": "lo"}, {"data": "AAE="}, {"data": "Ag=="}]
    story = decode(
        *(chunk({"content": None, "audio": part}) for part in [*parts, {"expires_at": 9}]), chunk({}, "stop")
    )
    text, audio = story.engine.messages.all
    assert (text.type, text.content) == ("message", "Hello")
    assert text.metadata["audio_transcript"] is True
    assert isinstance(audio, m.AudioMessage)
    assert (audio.data, audio.metadata) == (b"\0\1\2", {"audio_id": "au", "expires_at": 9})


def test_logprobs_are_on_the_deltas_and_on_the_text() -> None:
    tokens = [{"token": x, "logprob": -1} for x in "ab"]
    items = [chunk({"content": t["token"]}) for t in tokens]
    for item, token in zip(items, tokens, strict=True):
        item["choices"][0]["logprobs"] = {"content": [token], "refusal": None}
    story = decode(*items, chunk({}, "stop"))
    assert [x.metadata for x in story.events if isinstance(x, e.TextDelta)] == [{"logprobs": [t]} for t in tokens]
    assert story.engine.messages.all[0].metadata == {"logprobs": tokens}


def test_usage_is_emitted_when_it_changes() -> None:
    """Null is none; in a choice (Moonshot) or under `x_groq` it counts too."""
    used = {
        "prompt_tokens": 1,
        "completion_tokens": 2,
        "total_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 1},
    }
    story = decode(
        chunk(usage=None), chunk(usage=used), chunk(usage=used), chunk(x_groq={"usage": {"prompt_tokens": 5}})
    )
    usages = [x for x in story.events if isinstance(x, e.Usage)]
    assert [(x.input_tokens, x.output_tokens, x.total_tokens) for x in usages] == [(1, 2, 3), (5, 0, 5)]
    assert usages[0].details == {"prompt_tokens_details": {"cached_tokens": 1}}


def test_azures_first_chunk_waits_for_the_answer() -> None:
    """It has no id, model or choices; its results are in the run's metadata, and in a raw event."""
    first = {"id": "", "object": "", "model": "", "created": 0, "choices": [], "prompt_filter_results": [{"x": 1}]}
    filtered = chunk({"content": "a"}, "stop")
    filtered["choices"][0]["content_filter_results"] = {"hate": {"filtered": False}}
    story = decode(first, filtered)
    assert Decoder.recognises(first)
    run = story.engine.runs.run
    assert run is not None
    assert (run.id, run.model, run.created_at) == ("c1", "m", 7)
    assert run.metadata["prompt_filter_results"] == [{"x": 1}]
    assert run.metadata["choices"] == {"0": {"content_filter_results": {"hate": {"filtered": False}}}}
    raw = story.events[0]
    assert isinstance(raw, e.RawEvent)
    assert (raw.name, raw.data) == ("prompt_filter_results", first)


def test_citations_are_annotations_or_metadata() -> None:
    cited = {"type": "url_citation", "url_citation": {"url": "u", "title": "t", "start_index": 0, "end_index": 1}}
    story = decode(chunk({"content": "a"}, citations=["u"]), chunk({"annotations": [cited]}), chunk({}, "stop"))
    (text,) = story.engine.messages.all
    assert isinstance(text, m.TextMessage)
    assert text.annotations == [m.Annotation(type="url_citation", url="u", title="t", start=0, end=1, raw=cited)]
    assert story.engine.runs.run is not None
    assert story.engine.runs.run.metadata["citations"] == ["u"]


@pytest.mark.parametrize(
    "item, name",
    [
        ({"type": "ping"}, "ping"),
        ({"type": "keepalive"}, "keepalive"),
        ({**chunk(), "choices": [], "moderation": {"input": {}}}, "moderation"),
        ({**chunk(), "choices": [], "novelty": 1}, "chat.completion.chunk"),
        (chunk({"novelty": 1}), "chat.completion.chunk"),
        (chunk({"content": [{"type": "novelty"}]}), "content"),
        (chunk({"annotations": ["novelty"]}), "annotations"),
    ],
)
def test_what_no_event_expresses_is_a_raw_event(item: dict[str, Any], name: str) -> None:
    story = decode(chunk(), item, chunk({"content": "a"}, "stop"))
    (raw,) = [x for x in story.events if isinstance(x, e.RawEvent)]
    assert (raw.name, raw.data) == (name, item)
    assert story.contents("message") == ["a"]


def test_generated_images_are_images() -> None:
    urls = ["data:image/png;base64,AA==", "https://host/x.png"]
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    story = decode(chunk({"content": "", "images": images}, "stop"))
    assert [(x.format, x.content) for x in story.engine.messages.all] == [("base64.png", "AA=="), ("url", urls[1])]


COMPLETION = {
    "id": "c1",
    "object": "chat.completion",
    "created": 7,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "a",
                "refusal": None,
                "reasoning_content": "r",
                "tool_calls": [
                    {"id": x, "type": "function", "function": {"name": "f", "arguments": "{}"}} for x in "xy"
                ],
            },
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
}


def test_a_completion_that_was_not_streamed_is_a_stream_of_one_item() -> None:
    story = tell_items(Decoder, [COMPLETION])
    assert story.decoder.complete
    assert (story.contents("reasoning"), story.contents("message")) == (["r"], ["a"])
    assert calls(story) == [("x", "f", "{}"), ("y", "f", "{}")]
    assert story.engine.runs.usage is not None
    assert story.codes == []


@pytest.mark.parametrize("object", ["chat.completion.done", "chat.completion.chunk"])
@pytest.mark.parametrize("final, codes", [("ab", []), ("abc", ["content-differs"])])
def test_a_final_message_is_compared_and_completes(object: str, final: str, codes: list[str]) -> None:
    """What had not arrived is emitted; what differs is repaired."""
    message = {
        "content": final,
        "refusal": None,
        "tool_calls": [tool(None, "x", "f", "{}"), tool(None, "y", "f", "{}")],
    }
    last = {"object": object, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    story = decode(chunk({"content": "a"}), chunk({"content": "b"}), tools(tool(0, "x", "f", "{}")), last)
    assert story.contents("message") == [final]
    assert calls(story) == [("x", "f", "{}"), ("y", "f", "{}")]
    assert story.codes == codes


def test_a_final_message_after_the_end_adds_nothing() -> None:
    last = {"object": "chat.completion.done", "choices": [COMPLETION["choices"][0]]}  # type: ignore[index]
    story = decode(chunk({"content": "a"}), tools(tool(0, "x", "f", "{}")), chunk({}, "stop"), last)
    assert (story.contents("message"), calls(story), story.codes) == (["a"], [("x", "f", "{}")], [])


@pytest.mark.parametrize(
    "item",
    [
        {},
        {"choices": []},
        {"choices": [1]},
        {"choices": [{"text": "a"}], "object": "text_completion"},
        {"type": "response.created"},
        {"type": "message_start", "message": {}},
        {"role": "assistant", "type": "message", "content": "a"},
        {"event": "thread.created", "data": {}},
        {"message_type": "assistant_message", "content": "a"},
        {"error": {"message": "no"}},
        {"type": "ping"},
    ],
)
def test_other_protocols_are_not_recognised(item: dict[str, Any]) -> None:
    assert not Decoder.recognises(item)


# -- any input


json_values = q.recursive(
    q.none() | q.booleans() | q.integers(-3, 3) | q.floats() | q.sampled_from(["", "a", "0", "{}"]),
    lambda inner: q.lists(inner, max_size=3) | q.dictionaries(q.sampled_from(["type", "text", "id", "url"]), inner),
    depth=2,
)
FIELDS = (
    *("id", "object", "created", "model", "choices", "usage", "error", "citations", "x_groq", "moderation", "type"),
    *("index", "delta", "message", "finish_reason", "logprobs", "content", "refusal", "role", "tool_calls", "function"),
    *("name", "arguments", "custom", "function_call", "reasoning", "reasoning_content", "reasoning_details", "audio"),
    *("data", "transcript", "annotations", "images", "image_url", "url", "text", "signature", "url_citation", "code"),
)
anything = q.recursive(
    q.none() | q.booleans() | q.integers() | q.floats() | q.text(max_size=5),
    lambda inner: q.lists(inner, max_size=3) | q.dictionaries(q.sampled_from(FIELDS), inner, max_size=5),
    depth=3,
)
RICH = [
    chunk({"role": "assistant", "content": "", "reasoning_content": "r"}),
    chunk({"content": "a", "refusal": "no", "audio": {"id": "x", "data": "AA==", "transcript": "t"}}),
    chunk({"reasoning_details": [{"type": "reasoning.text", "text": "a", "signature": "s"}]}),
    chunk(
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}, {"type": "text", "text": "x"}]}
    ),
    chunk({"content": "b", "annotations": [{"type": "url_citation", "url_citation": {"url": "u", "start_index": 0}}]}),
    tools(tool(0, "a", "f", "{"), tool(1, "b", "g", "{}")),
    tools(tool(0, arguments="}")),
    chunk({"function_call": {"name": "f", "arguments": "{}"}}, usage={"prompt_tokens": 1}),
    chunk({"images": [{"type": "image_url", "image_url": {"url": "u"}}]}, index=1),
    chunk({"content": "x"}, "stop", x_groq={"id": "x"}, service_tier="default"),
    COMPLETION,
]


def well_formed(story: Story) -> None:
    """The decoder raised nothing, and every message is done."""
    assert "decoder-error" not in story.codes
    assert all(message.status != "in_progress" for message in story.engine.messages.all)


@pytest.mark.slow
@given(q.drawn(q.lists(q.dictionaries(q.sampled_from(FIELDS), anything, max_size=6), max_size=4)))
@settings(max_examples=50, deadline=None)
def test_no_object_makes_the_decoder_fail(items: list[dict[str, Any]]) -> None:
    well_formed(tell_items(Decoder, items))
    assert decode(*items).lines == tell_bytes(Careful, [sse(items)]).lines


@pytest.mark.slow
@given(q.drawn(q.some(RICH, json_values, max_size=8)), st.booleans())
@settings(max_examples=60, deadline=None)
def test_no_mutation_makes_the_decoder_fail_or_the_paths_differ(items: list[Any], done: bool) -> None:
    body = sse(items, done=done)
    story = tell_bytes(Decoder, [body])
    well_formed(story)
    assert story.lines == tell_bytes(Careful, [body]).lines


plain_deltas = q.fixed_dictionaries(
    {},
    optional={
        "role": q.sampled_from(["assistant", "user", None]),
        "content": q.sampled_from(["", "a", "é", None]),
        "reasoning_content": q.sampled_from(["", "a", None]),
        "reasoning": q.sampled_from(["", "b", None]),
        "refusal": q.sampled_from(["", None, "no"]),
        "tool_calls": q.none()
        | q.lists(
            q.builds(
                tool,
                q.sampled_from([None, 0, 1]),
                q.sampled_from([None, "", "a", "b"]),
                q.sampled_from([None, "f", "g"]),
                q.sampled_from(["", "{", "{}"]),
            ),
            max_size=2,
        ),
        "novelty": q.sampled_from([None, 1]),
    },
)
plain_chunks = q.builds(
    chunk,
    plain_deltas,
    q.sampled_from([None, None, None, "stop", ""]),
    q.sampled_from([0, 0, 0, 1]),
    id=q.sampled_from(["", "c1", "c2"]),
    service_tier=q.sampled_from([None, "default", "flex"]),
    provider=q.sampled_from([None, "p"]),
    usage=q.sampled_from([None, {"prompt_tokens": 1}]),
)


@pytest.mark.slow
@given(q.drawn(q.lists(plain_chunks, max_size=10)), st.booleans())
@settings(max_examples=60, deadline=None)
def test_both_paths_emit_the_same_events_for_chunks_that_are_nearly_plain(items: list[Any], done: bool) -> None:
    """Whatever the fast path takes, the tolerant one would have emitted the same."""
    body = sse(items, done=done)
    assert tell_bytes(Decoder, [body]).lines == tell_bytes(Careful, [body]).lines


def answer(*deltas: Any, finish: str = "stop", **more: Any) -> list[dict[str, Any]]:
    """An answer as OpenAI sends it: the role, these deltas, the finish_reason, the usage."""
    fields: dict[str, Any] = {"service_tier": "default", "system_fingerprint": "fp", "usage": None, "obfuscation": "x"}
    fields |= more
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 3,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 1},
    }
    chunks = [chunk(delta, **fields) for delta in [{"role": "assistant", "content": "", "refusal": None}, *deltas]]
    return [*chunks, chunk({}, finish, **fields), {**chunk(**fields), "choices": [], "usage": usage}]


CALL = [tool(0, "a", "f", type="function"), tool(0, arguments='{"x":'), tool(0, arguments=" 1}")]
ANSWERS = {
    "a text": answer({"content": "a"}, {"content": "b"}),
    "a call": answer(*({"tool_calls": [piece]} for piece in CALL), finish="tool_calls"),
    "a call in the first chunk": answer({"tool_calls": [tool(0, arguments="{}")]}, finish="tool_calls"),
    "a text and two calls": answer(
        {"content": "a"},
        *(
            {"tool_calls": [piece]}
            for piece in (*CALL, tool(1, "b", "g", "{", type="function"), tool(1, arguments="}"))
        ),
        finish="tool_calls",
    ),
    "reasoning": answer({"reasoning_content": "r"}, {"reasoning_content": "s"}, {"content": "a"}),
    "a refusal": answer({"refusal": "n"}, {"refusal": "o"}),
    "one chunk": [chunk({"role": "assistant", "content": "a"}, "stop", usage={"prompt_tokens": 1}, service_tier="x")],
}
SAFE = {"hate": {"filtered": False, "severity": "safe"}}
REPEATED: dict[str, Any] = {
    "citations": ["https://a.example"],
    "search_results": [{"title": "a"}],
    "x_groq": {"id": "req"},
    "service_tier": "flex",
    "system_fingerprint": "fp_2",
}
ANSWERS["fields that come with the text"] = [
    *answer()[:1],
    *({**one, **REPEATED} for one in answer({"content": "a"}, {"content": "b"})[1:]),
]
ANSWERS["fields of the first chunk"] = answer({"content": "a"}, **REPEATED)
ANSWERS["findings of a filter"] = answer({"content": "a"}, {"content": "b"})
for place in (1, 2, 3):
    ANSWERS["findings of a filter"][place]["choices"][0]["content_filter_results"] = SAFE
ANSWERS["a call in the first chunk"][0]["choices"][0]["delta"] = {"role": "assistant", "tool_calls": [CALL[0]]}


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_read_in_the_same_way_however_many_chunks_come_at_once(name: str, size: int) -> None:
    """The frame of each event is found, and nothing is read after `[DONE]`."""
    frames = [json.dumps(item).encode() for item in ANSWERS[name]]
    frames += [b"[DONE]", json.dumps(chunk({"content": "late"})).encode()]
    decoder, careful = Decoder(), Careful()
    found: list[Any] = []
    for start in range(0, len(frames), size):
        events = decoder.feed_frames(frames[start : start + size])
        found += [(repr(event), event.raw_item, event.item_index) for event in events]
    expected = careful.feed_frames(frames)
    assert found == [(repr(event), event.raw_item, event.item_index) for event in expected]
    assert (decoder.index, decoder.complete, decoder.exhausted) == (len(frames) - 1, True, True)


def test_what_is_in_the_metadata_of_both_paths_is_the_same() -> None:
    """Fields that begin, change or end in the middle of an answer."""
    values: list[dict[str, Any]] = [{}, REPEATED, {"citations": []}, {**REPEATED, "citations": ["b"], "provider": "p"}]
    for first in values:
        for second in values:
            items = [
                chunk({"role": "assistant"}, **first),
                chunk({"content": "a"}, **second),
                chunk({}, "stop", **first),
            ]
            body = sse(items)
            assert tell_bytes(Decoder, [body]).lines == tell_bytes(Careful, [body]).lines


def test_usage_under_an_escaped_key_is_found() -> None:
    """Groq sends it in `x_groq`, whose bytes are compared with those of the chunk before."""
    last = sse([chunk({}, "stop", x_groq={"usage": {"prompt_tokens": 9}})], done=False).replace(
        b"usage", b"us\\u0061ge"
    )
    story = tell_bytes(Decoder, [sse([chunk({"content": "a"})], done=False), last])
    assert story.engine.runs.usage is not None


def places(value: Any) -> list[tuple[Any, Any]]:
    """Each place in a JSON value: what it stands in, and its key or index there."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, inner in [*pairs] for found in [(value, key), *places(inner)]]


ODD = (None, None, "", "x", "stop", 0, 1, -1, 2**60, 1.5, True, [], {}, [1], {"k": 1}, [{}], [None])


def mutated(items: Sequence[Any], chance: random.Random) -> list[Any]:
    """These items with one to three faults: a field less, more, of another type, or at another place."""
    items = copy.deepcopy([*items])
    for _ in range(chance.randint(1, 3)):
        if not (found := places(items)):
            break
        inside, key = chance.choice(found)
        kind = chance.choice(("drop", "set", "set", "add", "turn"))
        if kind == "drop":
            del inside[key]
        elif kind == "set":
            inside[key] = copy.deepcopy(chance.choice(ODD))
        elif kind == "add" and isinstance(inside, dict):
            inside[chance.choice((*FIELDS, "novelty"))] = copy.deepcopy(chance.choice(ODD))
        elif isinstance(inside, dict):
            inside[key] = inside.pop(key)
    return items


# Its text waits for citations after the finish_reason.
OPENROUTER = answer({"reasoning": "r"}, {"content": "a"}, {"content": "b"}, provider="p")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ANSWERS, "OpenRouter's"])
def test_a_usual_answer_with_a_few_faults_is_read_the_same_on_both_paths(name: str) -> None:
    """Chunks that begin or end a message too."""
    for seed in range(100):
        chance = random.Random(f"{name} {seed}")
        items = mutated(ANSWERS.get(name, OPENROUTER), chance)
        chunks = [sse(items, done=chance.random() < 0.5)] if seed % 2 else [sse([item], done=False) for item in items]
        fast, careful = tell_bytes(Decoder, chunks), tell_bytes(Careful, chunks)
        assert fast.lines == careful.lines, seed
        assert [event.raw for event in fast.events] == [event.raw for event in careful.events], seed
        assert (fast.decoder.complete, fast.decoder.index) == (careful.decoder.complete, careful.decoder.index), seed


def test_an_index_that_is_no_count_is_reported_on_both_paths() -> None:
    """In the chunk that begins the answer too."""
    body = sse([chunk({"content": "a"}, index=2**60), chunk({"content": "b"})])
    fast, careful = tell_bytes(Decoder, [body]), tell_bytes(Careful, [body])
    assert fast.codes == ["bad-index"]
    assert fast.lines == careful.lines


# -- the way out


def encoded_again(story: Story) -> Story:
    """The story of the encoder's items."""
    encoder = Encoder()
    items = [json.loads(json.dumps(item)) for event in story.events for item in encoder.feed(event)]
    return tell_bytes(Decoder, [sse(items)])


def shape(story: Story) -> list[Any]:
    """What a chat stream can express, with the texts and reasonings that it joins."""
    kinds = (m.TextMessage, m.RefusalMessage, m.ReasoningMessage, m.AudioMessage, m.ToolCallMessage)
    out: dict[Any, list[Any]] = {}
    for number, message in enumerate(story.engine.messages.all):
        if not isinstance(message, kinds) or message.role != "assistant":
            continue
        if isinstance(message, m.ToolCallMessage):
            if not message.provider_executed:
                out[number] = [message.choice, message.name, message.call_id or message.id, message.content]
        elif message.content:
            transcript = bool(message.metadata.get("audio_transcript"))
            key = (message.choice, message.type, message.format, transcript)
            if isinstance(message, m.AudioMessage):
                out.setdefault(key, [*key, b""])[-1] += message.data
            else:
                out.setdefault(key, [*key, ""])[-1] += message.content
    run = story.engine.runs.run
    usage = story.engine.runs.usage
    counts = (
        None if usage is None or run is None or run.status == "failed" else (usage.input_tokens, usage.output_tokens)
    )
    return [*out.values(), run and run.id, run and run.model, counts]


@st.composite
def canonical(draw: st.DrawFn) -> list[e.Event]:
    """The events of an answer that chat can express: choices, interleaved messages, one reasoning before each text."""
    events: list[e.Event] = [e.RunCreated(e.Run(id="r", model="m", created_at=5))]
    piece = st.text("ab é{}", min_size=1, max_size=4)
    for choice in range(draw(st.integers(1, 2))):
        if draw(st.booleans()):
            events += _message(draw(st.lists(piece, min_size=1, max_size=3)), m.ReasoningMessage, f"r{choice}", choice)
        parts: list[list[Any]] = []
        for number, kind in enumerate(draw(st.lists(st.sampled_from([m.TextMessage, m.ToolCallMessage]), max_size=3))):
            if kind is m.TextMessage and any(part[0].message.type == "message" for part in parts):
                continue
            parts.append(_message(draw(st.lists(piece, min_size=1, max_size=3)), kind, f"{choice}.{number}", choice))
        while any(parts):
            events.append(draw(st.sampled_from([part for part in parts if part])).pop(0))
    used = e.Usage(1, 2, 3, {"details": {"x": 1}})
    return [*events, used, e.RunDone(e.Run(status="completed", finish_reason="stop"))]


def _message(pieces: list[str], kind: type[m.Message], id: str, choice: int) -> list[Any]:
    fields: dict[str, Any] = (
        {"name": "f", "call_id": f"call-{id}", "metadata": {"custom": True}} if kind is m.ToolCallMessage else {}
    )
    created = e.MessageCreated(kind(id, choice=choice, **fields))
    done = e.MessageDone(kind(id, choice=choice, **fields))
    return [created, *(kind.delta_event(id, piece) for piece in pieces), done]


@pytest.mark.slow
@given(canonical())
@settings(max_examples=36, deadline=None)
def test_what_chat_can_express_survives_encoding(events: list[e.Event]) -> None:
    engine = Engine()
    story = Story(engine, Decoder())
    story.take(engine.complete(events))
    story.take(engine.source_done(complete=True))
    story.take(engine.end())
    again = encoded_again(story)

    def summary(x: Story) -> list[Any]:
        return sorted(
            (y.choice, y.role, y.type, y.format or "", y.name or "", y.call_id or "", y.content)
            for y in x.engine.messages.all
        )

    assert summary(again) == summary(story)
    assert again.engine.runs.usage is not None
    assert again.engine.runs.usage.details == {"details": {"x": 1}}
    assert again.engine.runs.run is not None
    assert again.codes == []
    assert (again.engine.runs.run.id, again.engine.runs.run.model, again.engine.runs.run.created_at) == ("r", "m", 5)


def test_each_call_of_an_answer_is_written_at_an_index_of_its_own() -> None:
    """By which clients join the pieces of its arguments."""
    story = decode(tools(tool(0, "a", "f", "{}"), tool(1, "b", "g", "{}")), DONE)
    encoder = Encoder()
    items = [item for event in story.events for item in encoder.feed(event)]
    deltas = [choice["delta"] for item in items for choice in item["choices"]]
    calls = [call for one in deltas for call in one.get("tool_calls", ())]
    assert [(call["index"], call["id"]) for call in calls if "id" in call] == [(0, "a"), (1, "b")]
    assert {call["index"]: call["function"]["arguments"] for call in calls} == {0: "{}", 1: "{}"}


def test_metadata_that_chat_can_express_survives_encoding() -> None:
    cited = {"type": "url_citation", "url_citation": {"url": "u", "start_index": 0, "end_index": 1}}
    items = [
        chunk({"reasoning": "r"}),
        chunk({"reasoning_details": [{"type": "reasoning.text", "signature": "s"}]}),
        chunk({"content": "a"}),
        chunk({"annotations": [cited]}),
        chunk({"audio": {"id": "au", "data": "AA==", "transcript": "t"}}),
        chunk({}, "stop"),
    ]
    items[2]["choices"][0]["logprobs"] = {"content": [{"token": "a"}], "refusal": None}
    story = decode(*items)
    again = encoded_again(story)
    assert [x.metadata for x in again.engine.messages.all] == [x.metadata for x in story.engine.messages.all]
    text = again.engine.messages.all[1]
    assert isinstance(text, m.TextMessage)
    assert [(x.url, x.start, x.end) for x in text.annotations] == [("u", 0, 1)]


@pytest.mark.parametrize(
    "run, reason",
    [
        (e.Run(status="incomplete"), "length"),
        (e.Run(status="completed"), "stop"),
        (e.Run(status="cancelled"), "stop"),
        (e.Run(status="incomplete", finish_reason="content_filter"), "content_filter"),
        (e.Run(status="incomplete", finish_reason="max_output_tokens"), "length"),
        (e.Run(status="incomplete", finish_reason="steered"), "length"),
        (e.Run(status="completed", finish_reason="eos"), "stop"),
    ],
)
def test_a_run_ends_with_a_finish_reason(run: e.Run, reason: str) -> None:
    (item,) = Encoder().feed(e.RunDone(run))
    assert item["choices"] == [{"index": 0, "delta": {}, "finish_reason": reason}]


@each_recording("openai-chat", "openai-responses")
def test_the_sdk_accepts_every_chunk(path: Path) -> None:
    """Whatever protocol the events came from; an error is no chunk."""
    decoder = Decoder if path.parent.name == "openai-chat" else openai_responses.Decoder
    encoder = Encoder()
    for event in tell_bytes(decoder, [path.read_bytes()]).events:
        for item in encoder.feed(event):
            if "error" not in item:
                ChatCompletionChunk.model_validate(item)


def test_nothing_is_read_beyond_the_sentinel() -> None:
    """In the same frames as in later ones."""
    frames = [(b"", b"", json.dumps(chunk({"content": "a"})).encode()), (b"", b"", b"[DONE]")]
    once, apart = Decoder(), Decoder()
    events = once.feed_frames([*frames, *frames])
    assert len(events) == sum(len(apart.feed_frames([frame])) for frame in [*frames, *frames])
    assert once.index == apart.index == 2


def test_a_failed_run_ends_with_an_error() -> None:
    """Once, though the stream's own failure follows it."""
    encoder = Encoder()
    events = [e.RunDone(e.Run(status="failed", error={"message": "no", "code": "x"})), e.StreamException("E", "no")]
    assert [item for event in events for item in encoder.feed(event)] == [{"error": {"message": "no", "code": "x"}}]


@pytest.mark.parametrize(
    "message",
    [
        m.CodeMessage("x"),
        m.ConsoleMessage("x"),
        m.ToolOutputMessage("x"),
        m.TextMessage("x", role="user"),
        m.ToolCallMessage("x", provider_executed=True),
        m.Message("x", type="novelty"),
    ],
)
def test_what_chat_cannot_express_is_left_out(message: m.Message) -> None:
    encoder = Encoder()
    delta = message.delta_event("x", "a", snapshot=message)
    events: list[e.Event] = [message.created_event(message), delta, message.done_event(message)]
    assert [item for event in events for item in encoder.feed(event)] == []


# -- back into a request


def call(id: str, **more: Any) -> m.ToolCallMessage:
    return m.ToolCallMessage(f"m-{id}", call_id=id, name="f", content="{}", **more)


def wire(id: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}}


INPUTS: dict[str, tuple[list[m.Message], list[Any]]] = {
    "a conversation": (
        [
            m.TextMessage("1", role="system", content="s"),
            m.TextMessage("2", role="user", content="u"),
            m.ReasoningMessage("3", content="r"),
            m.TextMessage("4", content="a"),
            call("x"),
            call("y"),
            m.ToolOutputMessage("5", call_id="x", content="1"),
            m.ToolOutputMessage("6", call_id="y", content="2"),
            m.TextMessage("7", content="b"),
        ],
        [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": "a", "tool_calls": [wire("x"), wire("y")]},
            {"role": "tool", "tool_call_id": "x", "content": "1"},
            {"role": "tool", "tool_call_id": "y", "content": "2"},
            {"role": "assistant", "content": "b"},
        ],
    ),
    "images of the user": (
        [
            m.TextMessage("1", role="user", content="see"),
            m.ImageMessage("2", role="user", format="url", content="u"),
            m.ImageMessage("3", role="user", format="base64.png", content="AA=="),
            m.ImageMessage("5", role="computer", format="url", content="u"),
        ],
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "see"},
                    {"type": "image_url", "image_url": {"url": "u"}},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
                ],
            }
        ],
    ),
    "code and console are fenced": (
        [
            m.TextMessage("1", content="look"),
            m.CodeMessage("2", format="python", content="1+1"),
            m.ConsoleMessage("3", content="2"),
        ],
        [
            {"role": "assistant", "content": "look\n```python\n1+1\n```"},
            {"role": "user", "content": "```output\n2\n```"},
        ],
    ),
    "code of a call is in the call": (
        [
            call("x"),
            m.CodeMessage("2", call_id="x", content="1+1"),
            m.ConsoleMessage("3", call_id="x", content="2"),
            m.ConsoleMessage("4", call_id="x", content="3"),
        ],
        [
            {"role": "assistant", "content": None, "tool_calls": [wire("x")]},
            {"role": "tool", "tool_call_id": "x", "content": "23"},
        ],
    ),
    "left out": (
        [
            call("x", provider_executed=True),
            m.ToolOutputMessage("5", call_id="x", content="1"),
            call("y", status="incomplete"),
            m.TextMessage("1", choice=1, content="other"),
            m.RefusalMessage("2", content="no"),
        ],
        [{"role": "assistant", "content": None, "refusal": "no"}],
    ),
}


@pytest.mark.parametrize("messages, expected", INPUTS.values(), ids=INPUTS.keys())
def test_messages_become_a_request(messages: list[m.Message], expected: list[Any]) -> None:
    assert to_input(messages) == expected


@pytest.mark.parametrize(
    "message",
    [
        m.ImageMessage("m-9", role="user", format="path", content="/a.png"),
        m.FileMessage("m-9", role="user", format="path", content="/a.txt"),
        m.AudioMessage("m-9", role="user", format="flac", content="AA=="),
        m.Message("m-9", role="user", type="novelty", content="a"),
    ],
)
def test_what_the_user_gave_is_never_dropped_in_silence(message: m.Message) -> None:
    with pytest.raises(UsageError, match="m-9"):
        to_input([message])


# -- what single servers send


CITATION = {"type": "url_citation", "url_citation": {"url": "u", "title": "t", "start_index": 0, "end_index": 1}}


@pytest.mark.parametrize("place", [0, 1, 2])
def test_citations_are_annotations_of_the_text_wherever_they_come(place: int) -> None:
    """OpenRouter sends them before any text, or after the finish_reason."""
    chunks = [chunk({"content": "a"}, provider="p"), chunk({"content": ""}, "stop", provider="p")]
    chunks.insert(place, chunk({"content": "", "annotations": [CITATION]}, provider="p"))
    for feed in (decode, lambda *items: tell_bytes(Decoder, [sse(items)])):
        story = feed(*chunks)
        (text,) = story.engine.messages.all
        assert isinstance(text, m.TextMessage)
        assert (text.content, text.status, [x.url for x in text.annotations]) == ("a", "completed", ["u"])
        assert story.types.count("annotation_added") == 1
        assert story.types.index("annotation_added") < story.types.index("text_done")
        assert story.codes == []


def test_a_text_that_waits_for_its_citations_ends_where_another_begins() -> None:
    """And with the source."""
    story = decode(
        chunk({"content": "a"}),
        chunk({}, "length", provider="p"),
        chunk({"content": "b"}, provider="p"),
    )
    assert [(x.content, x.status) for x in story.engine.messages.all] == [("a", "incomplete"), ("b", "completed")]


def test_citations_without_a_text_are_raw_events() -> None:
    story = decode(chunk({"annotations": [CITATION]}), chunk({"tool_calls": [{"id": "c", "function": {"name": "f"}}]}))
    assert [raw.name for raw in story.events if isinstance(raw, e.RawEvent)] == ["annotations"]


def test_tools_that_groq_ran_are_calls_with_outputs() -> None:
    """The call comes first; the output may come later, with its results."""
    call = {"index": 0, "type": "search", "arguments": '{"query": "q"}'}
    results = {"results": [{"url": "u"}]}
    story = decode(
        chunk({"reasoning": "I look."}),
        chunk({"executed_tools": [call]}),
        chunk({"executed_tools": [{**call, "output": "found", "search_results": results}]}),
        chunk({"content": "a"}),
        chunk({}, "stop"),
    )
    _, tool, output, text = story.engine.messages.all
    assert isinstance(tool, m.ToolCallMessage)
    assert (tool.name, tool.arguments, tool.provider_executed) == ("search", {"query": "q"}, True)
    assert (output.type, output.content, output.call_id, output.role) == (
        "tool_output",
        "found",
        tool.call_id,
        "computer",
    )
    assert output.metadata == {"executed_tool": "search", "search_results": results}
    assert text.content == "a"
    assert [message["role"] for message in to_input(story.engine.messages.all)] == ["assistant"]
    assert to_input([output]) == []


def test_what_google_marks_as_thought_is_reasoning() -> None:
    """It comes as content, in a tag."""
    thought = {"extra_content": {"google": {"thought": True}}}
    deltas = [
        {"content": "<thought>I ", **thought},
        {"content": "look.", **thought},
        {"content": "</thought>It "},
        {"content": "rains."},
        {"content": "", "extra_content": {"google": {"thought_signature": "sealed"}}},
    ]
    for feed in (decode, lambda *items: tell_bytes(Decoder, [sse(items)])):
        story = feed(*map(chunk, deltas), chunk({}, "stop"))
        assert [(x.type, x.content) for x in story.engine.messages.all] == [
            ("reasoning", "I look."),
            ("message", "It rains."),
        ]
        (message,) = to_input(story.engine.messages.all)
        assert message["extra_content"] == {"google": {"thought_signature": "sealed"}}


def test_references_of_mistral_are_annotations_where_they_stand() -> None:
    """They have no place of their own; they come after the text that they are about."""
    parts = [{"type": "text", "text": "a"}, {"type": "reference", "reference_ids": [1]}]
    story = decode(chunk({"content": parts}), chunk({"content": "b"}), chunk({}, "stop"))
    (text,) = story.engine.messages.all
    assert isinstance(text, m.TextMessage)
    assert [(x.type, x.raw) for x in text.annotations] == [("reference", parts[1])]
    assert [line["so far"] for line in story.lines if line["type"] == "annotation_added"] == ["a"]
