"""Chat Completions as single servers stream them: each case through the real client, as bytes, and as dicts one by one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import streamkit as sk
from streamkit.protocols.openai_chat import to_input
from streamkit.testing import ModelServer, Reply

from ..faces import Face, ask, body, both_shells, every_pair
from ..telling import Story, tell_items
from .test_openai_chat import CITATION, Decoder, calls, chunk, decode, sse, tool, tools

PACKAGE = Path(sk.__file__).parent
Call = tuple[str | None, str | None, str]


def usage(prompt: int = 10, completion: int = 14) -> dict[str, Any]:
    """A chunk of nothing but usage."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {**chunk(), "choices": [], "usage": counts}


def said(story: Story | Any) -> list[tuple[str, str, str]]:
    messages = story.engine.messages.all if isinstance(story, Story) else story.messages
    return [(message.type, message.content, message.status) for message in messages]


async def through_the_client(face: Face, items: Sequence[Any], **options: Any) -> Any:
    """The stream of these chunks, at its end, as the client gets them from a server that sends each alone."""
    pieces = [sse([item], done=False) for item in items]
    with ModelServer(Reply(raw=[*pieces, b"data: [DONE]\n\n"])) as server:
        async with face.client(server) as client:
            stream = face.stream(ask(client), **options)
            await stream.until_done()
            return stream


# -- tool calls

END = chunk(finish="tool_calls")
CALLS: dict[str, tuple[list[Any], list[Call], list[str]]] = {
    "a name in pieces": (
        [tools(tool(0, "a", "edit_ex")), tools(tool(0, None, "isting_file")), tools(tool(0, arguments='{"x":1}'))],
        [("a", "edit_existing_file", '{"x":1}')],
        [],
    ),
    "a name in pieces, and no arguments": (
        [tools(tool(0, "a", "edit_ex")), tools(tool(0, None, "isting_file"))],
        [("a", "edit_existing_file", "")],
        [],
    ),
    "names in pieces, one call after the other": (
        [
            *(tools(tool(0, id, name)) for id, name in (("a", "read_"), (None, "file"))),
            *(tools(tool(1, id, name)) for id, name in (("b", "edit_"), (None, "file"))),
            tools(tool(1, arguments="{}")),
        ],
        [("a", "read_file", ""), ("b", "edit_file", "{}")],
        [],
    ),
    "the whole name in each fragment": (
        [tools(tool(0, "a", "f", "")), tools(tool(0, "a", "f", '{"x"')), tools(tool(0, "a", "f", ":1}"))],
        [("a", "f", '{"x":1}')],
        [],
    ),
    "a name in pieces, then the whole of it in each fragment": (
        [
            tools(tool(0, "a", "edit_")),
            tools(tool(0, None, "file")),
            tools(tool(0, None, "edit_file", "{")),
            tools(tool(0, None, "edit_file", "}")),
        ],
        [("a", "edit_file", "{}")],
        [],
    ),
    "a custom tool's name in pieces": (
        [
            tools({"index": 0, "id": "a", "type": "custom", "custom": {"name": "sh"}}),
            tools({"index": 0, "custom": {"name": "ell"}}),
            tools({"index": 0, "custom": {"input": "ls"}}),
        ],
        [("a", "shell", "ls")],
        [],
    ),
    "a function_call's name in pieces": (
        [chunk({"function_call": {"name": "edit_"}}), chunk({"function_call": {"name": "file", "arguments": "{}"}})],
        [(None, "edit_file", "{}")],
        [],
    ),
    "another name after the arguments": (
        [tools(tool(0, "a", "f", "{}")), tools(tool(0, None, "g"))],
        [("a", "f", "{}")],
        ["late-tool-name"],
    ),
    "arguments at another index than id and name": (
        [tools(tool(1, "a", "f")), tools(tool(0, arguments='{"x"')), tools(tool(0, arguments=":1}"))],
        [("a", "f", '{"x":1}')],
        ["unknown-index"],
    ),
    "arguments at an index beside two calls": (
        [tools(tool(1, "a", "f", "{}")), tools(tool(2, "b", "g")), tools(tool(0, arguments="{}"))],
        [("a", "f", "{}"), ("b", "g", "{}")],
        ["unknown-index"],
    ),
}


@pytest.mark.parametrize("items, expected, codes", CALLS.values(), ids=CALLS.keys())
def test_each_call_has_its_name_and_its_arguments(items: list[Any], expected: list[Call], codes: list[str]) -> None:
    """However a server cuts and numbers them."""
    for story in (decode(*items, END), tell_items(Decoder, [*items, END])):
        assert calls(story) == expected
        assert story.codes == codes
        created = [line["message"]["name"] for line in story.lines if line["type"] == "tool_call_created"]
        assert created == [name for _, name, _ in expected], "a call is reported once its name is sure"


@both_shells
@pytest.mark.parametrize("name", ["a name in pieces", "arguments at another index than id and name"])
@body
async def test_the_tool_that_was_called_runs_with_its_arguments(face: Face, name: str) -> None:
    items, [(_, tool_name, arguments)], codes = CALLS[name]
    stream = await through_the_client(face, [*items, END])
    (call,) = stream.messages
    assert (call.name, call.content, call.status) == (tool_name, arguments, "completed")
    assert [warning.code for warning in stream.warnings] == codes


def test_a_name_in_pieces_is_no_fault() -> None:
    stream = sk.stream([*CALLS["a name in pieces"][0], END], strict=True)
    stream.until_done()
    assert [call.name for call in stream.messages] == ["edit_existing_file"]


# -- the end of an answer


@both_shells
@body
async def test_an_answer_with_a_finish_reason_in_every_chunk_is_one_message(face: Face) -> None:
    """As LiteLLM and one-api send it."""
    stream = await through_the_client(face, [chunk({"content": piece}, "stop") for piece in ("It ", "rai", "ns.")])
    assert said(stream) == [("message", "It rains.", "completed")]
    assert stream.current_run.finish_reason == "stop"


PARTS: dict[str, tuple[list[Any], list[tuple[str, str, str]]]] = {
    "a text": ([{"content": "a"}, {"content": "b"}], [("message", "ab", "completed")]),
    "reasoning, and a text": (
        [{"reasoning_content": "r"}, {"reasoning_content": "s"}, {"content": "a"}, {"content": "b"}],
        [("reasoning", "rs", "completed"), ("message", "ab", "completed")],
    ),
    "a text, and a call": (
        [
            {"content": "a"},
            {"content": "b"},
            {"tool_calls": [tool(0, "c", "f")]},
            {"tool_calls": [tool(0, arguments="{")]},
            {"tool_calls": [tool(0, arguments="}")]},
        ],
        [("message", "ab", "completed"), ("tool_call", "{}", "completed")],
    ),
    "a refusal": ([{"refusal": "n"}, {"refusal": "o"}], [("message", "no", "completed")]),
}


@pytest.mark.parametrize("last", [[], [chunk({}, "stop")], [usage()]], ids=["nothing", "a finish_reason", "usage"])
@pytest.mark.parametrize("deltas, expected", PARTS.values(), ids=PARTS.keys())
def test_a_finish_reason_in_every_chunk_ends_no_message(
    deltas: list[Any], expected: list[Any], last: list[Any]
) -> None:
    """Whatever comes after it. The messages end with the answer."""
    items = [*(chunk(delta, "stop") for delta in deltas), *last]
    for story in (decode(*items), decode(*items, done=False), tell_items(Decoder, items)):
        assert said(story) == expected
        assert story.decoder.complete
        assert story.codes == []


def test_useChat_gets_one_part_of_an_answer_with_a_finish_reason_in_every_chunk() -> None:
    stream = sk.stream([chunk({"content": piece}, "stop") for piece in "abc"])
    kinds = [item["type"] for item in stream.chunks("vercel_ui")]
    assert kinds.count("text-start") == kinds.count("text-end") == 1


@every_pair
@both_shells
@pytest.mark.parametrize("fields", [{}, {"provider": "p"}], ids=["", "OpenRouter"])
@pytest.mark.parametrize("between", [[], [usage()]], ids=["", "usage"])
@body
async def test_citations_after_the_finish_reason_are_the_texts(face: Face, fields: Any, between: list[Any]) -> None:
    """OpenRouter sends them there; a proxy in front of it may leave out who the provider is."""
    cited = chunk({"content": "", "annotations": [CITATION]}, **fields)
    items = [chunk({"content": "a"}, **fields), chunk({}, "stop", **fields), *between, cited]
    stream = await through_the_client(face, items)
    (text,) = stream.messages
    assert (text.content, text.status, [one.url for one in text.annotations]) == ("a", "completed", ["u"])
    assert not stream.warnings


# -- usage


LLAMA_CPP = [  # one slot: a choice after the other, and the usage of each in a chunk of its own
    *(chunk({"content": piece}) for piece in "ab"),
    chunk({}, "stop"),
    usage(),
    *(chunk({"content": piece}, index=1) for piece in "xy"),
    chunk({}, "stop", index=1),
    usage(),
]
TWO_SLOTS = [*LLAMA_CPP[:1], LLAMA_CPP[4], *LLAMA_CPP[1:4], *LLAMA_CPP[5:]]
ANSWER = [chunk({"content": "a"}), chunk({}, "stop"), usage()]
OTHER_ANSWER = [{**item, "id": "c2"} for item in ANSWER]
USAGES: dict[str, tuple[list[Any], tuple[int, int, int]]] = {
    "a chunk for each choice, one after the other": (LLAMA_CPP, (20, 28, 48)),
    "a chunk for each choice, both at once": (TWO_SLOTS, (20, 28, 48)),
    "one chunk for both choices": ([*LLAMA_CPP[:3], *LLAMA_CPP[4:]], (10, 14, 24)),
    "the same chunk twice": ([*ANSWER, usage()], (10, 14, 24)),
    "more in each chunk, and the sum at the end": (
        [
            *({**chunk({"content": "a"}), "usage": usage(10, count)["usage"]} for count in (1, 2)),
            {**chunk({}, "stop"), "usage": usage(10, 3)["usage"]},
            usage(),
        ],
        (10, 14, 24),
    ),
    "two answers in one source": ([*ANSWER, *OTHER_ANSWER], (20, 28, 48)),
    "two answers with one id": ([*ANSWER, *ANSWER], (20, 28, 48)),
}


@pytest.mark.parametrize("items, expected", USAGES.values(), ids=USAGES.keys())
def test_the_usage_is_that_of_all_choices_and_answers(items: list[Any], expected: tuple[int, int, int]) -> None:
    for source in (items, iter(items), [sse(items)]):
        stream = sk.stream(source)
        stream.until_done()
        assert stream.usage is not None
        assert (stream.usage.input_tokens, stream.usage.output_tokens, stream.usage.total_tokens) == expected
        assert stream.get_final_run().usage == stream.usage


@both_shells
@body
async def test_the_usage_of_each_choice_counts_through_the_client(face: Face) -> None:
    stream = await through_the_client(face, LLAMA_CPP)
    assert (stream.usage.output_tokens, stream.usage.total_tokens) == (28, 48)


def test_a_second_answer_in_one_source_has_messages_and_a_step_of_its_own() -> None:
    stream = sk.stream([*ANSWER, *OTHER_ANSWER])
    stream.until_done()
    assert [(message.content, message.step_id) for message in stream.messages] == [("a", "step-1"), ("a", "step-2")]
    assert [step.usage.total_tokens for step in stream.get_final_run_steps() if step.usage] == [24, 24]


# -- what goes back


def gemini(index: int | None, id: str, signature: str) -> dict[str, Any]:
    return tool(index, id, "f", "{}", extra_content={"google": {"thought_signature": signature}})


@pytest.mark.parametrize(
    "items",
    [
        [tools(gemini(0, "a", "s1"), gemini(1, "b", "s2"), gemini(2, "c", "s3"))],
        [tools(gemini(place, id, f"s{place + 1}")) for place, id in enumerate("abc")],
        [tools(gemini(0, id, f"s{place + 1}")) for place, id in enumerate("abc")],
        [tools(gemini(None, id, f"s{place + 1}")) for place, id in enumerate("abc")],
        [tools(gemini(0, "a", "s1"), gemini(0, "b", "s2"), gemini(0, "c", "s3"))],
    ],
    ids=["one chunk", "one after the other", "all at index 0", "without an index", "one chunk, all at index 0"],
)
def test_each_of_parallel_calls_goes_back_with_its_own_signature(items: list[Any]) -> None:
    """Gemini refuses a request without that of the first, and another model's with any of them missing."""
    stream = sk.stream([*items, END])
    stream.until_done()
    (message,) = to_input(stream.messages)
    signatures = [call["extra_content"]["google"]["thought_signature"] for call in message["tool_calls"]]
    assert signatures == ["s1", "s2", "s3"]


# -- a provider's key

TAUGHT = """
import streamkit as sk
from streamkit.protocols.openai_chat import to_input

def chunk(delta, finish=None):
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}

import json
deltas = [{"role": "assistant", "content": ""}, *({"musings": piece} for piece in "abcdef"), {"content": "Hi"}]
deltas += [{"content": " you"}, {"musings": "g"}, {"content": "!"}]
items = [*map(chunk, deltas), chunk({}, "stop")]
body = b"".join(b"data: " + json.dumps(item).encode() + b"\\n\\n" for item in items)
for source in (items, iter(items), [body], [body[at : at + 7] for at in range(0, len(body), 7)]):
    stream = sk.stream(source)
    stream.until_done()
    reasoning = [message.content for message in stream.messages if message.type == "reasoning"]
    assert reasoning == ["abcdef", "g"], reasoning
    assert stream.get_final_text() == "Hi you!"
    assert not stream.warnings
    assert to_input(stream.messages)[0]["musings"] == "abcdefg"
again = [item["choices"][0]["delta"] for item in sk.stream(items).chunks("openai_chat")]
assert "".join(delta.get("musings", "") for delta in again) == "abcdefg"
"""


def test_a_reasoning_key_is_taught_in_one_place(tmp_path: Path) -> None:
    """One more name in `REASONING_KEYS`: it is read in every form, goes back, and is encoded."""
    shutil.copytree(PACKAGE, tmp_path / "streamkit", ignore=shutil.ignore_patterns("__pycache__"))
    wire = tmp_path / "streamkit" / "protocols" / "openai_chat" / "wire.py"
    source, taught = wire.read_text("utf-8"), 'REASONING_KEYS = ("musings", '
    assert source.count("REASONING_KEYS = (") == 1
    wire.write_text(source.replace("REASONING_KEYS = (", taught), "utf-8")
    done = subprocess.run([sys.executable, "-c", TAUGHT], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
