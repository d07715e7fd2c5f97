"""`reasoning_tag=`: what a model writes between `<think>` and `</think>` at the beginning of a text is reasoning."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import openai
import pytest

import streamkit as sk
from streamkit.events import MessageDone, StreamEnd
from streamkit.protocols import to_input
from streamkit.testing import ModelServer, Reply, Text, ToolCall

from .agent.parts import agent_on, every_provider
from .faces import Face, body, both_shells, chat

# A text, and the reasoning and the text that it has; None where there is no such message.
TEXTS: dict[str, tuple[str | None, str | None]] = {
    "<think>Hm. 2 < 3</think>\n\nFour.": ("Hm. 2 < 3", "Four."),
    " \n<think>a</think>b": ("a", "b"),
    "<think></think>b": (None, "b"),
    "<think>a</think>": ("a", None),
    "<think>a</think> \n ": ("a", None),
    "<think>no end": ("no end", None),
    "<think>nearly </thin": ("nearly </thin", None),
    "<think>a</thi</think>b": ("a</thi", "b"),
    "<think>a<think>b</think>c</think>d": ("a<think>b", "c</think>d"),
    "<think>a</think>b<think>c</think>": ("a", "b<think>c</think>"),
    "b <think>a</think>": (None, "b <think>a</think>"),
    "<thinking>a</thinking>": (None, "<thinking>a</thinking>"),
    "<thin": (None, "<thin"),
    " \n plain": (None, " \n plain"),
    "</think>": (None, "</think>"),
}


def read(pieces: tuple[str, ...], source: Any = None) -> tuple[str | None, str | None]:
    """The reasoning and the text of an answer in these pieces."""
    stream = sk.stream(chat(*pieces) if source is None else source, reasoning_tag="think")
    stream.until_done()
    found = {message.type: message.content for message in stream.messages}
    assert len(found) == len(stream.messages)
    assert all(message.status == "completed" for message in stream.messages)
    return found.get("reasoning"), found.get("message")


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_divided_however_it_is_cut(text: str) -> None:
    """In one piece, at each place, and in single characters."""
    cuts = [(text,), tuple(text), *((text[:at], text[at:]) for at in range(1, len(text)))]
    assert {cut: read(cut) for cut in cuts} == dict.fromkeys(cuts, TEXTS[text])


def test_texts_of_any_kind_are_divided_the_same_at_random_cuts() -> None:
    dice = random.Random(7)
    parts = ["<think>", "</think>", "<", "think", ">", "/", " ", "\n", "é", "🙂", "a"]
    for _ in range(300):
        text = "".join(dice.choices(parts, k=dice.randint(1, 9)))
        places = sorted(dice.sample(range(len(text) + 1), min(3, len(text))))
        cut = tuple(text[a:b] for a, b in itertools.pairwise([0, *places, len(text)]))
        assert read(cut) == read((text,)), (text, cut)


@both_shells
@body
async def test_the_hooks_nest_as_those_of_any_messages(face: Face) -> None:
    """The text begins when its first character comes; the reasoning has ended then."""
    told = face.told()
    await face.stream(
        chat("<thi", "nk>Hm", ".</th", "ink>", "\n", "Four", "."), told, reasoning_tag="think"
    ).until_done()
    told.check_brackets()
    names = [name for name in told.hooks if name.startswith(("on_reasoning", "on_text"))]
    assert names == [
        "on_reasoning_created",
        "on_reasoning_delta",
        "on_reasoning_delta",
        "on_reasoning_done",
        "on_text_created",
        "on_text_delta",
        "on_text_delta",
        "on_text_done",
    ]


@both_shells
@every_provider
@body
async def test_the_text_of_each_provider_is_divided(face: Face, provider: str) -> None:
    """And the reasoning is not sent back, while the text is."""
    said = Text(pieces=["<think>I look", " it up.</think>", "Let me see."])

    def look() -> str:
        """Look."""
        return "seen"

    with ModelServer([Reply(said, ToolCall("look", {})), Reply("<think>b</think>Done.")]) as server:
        async with agent_on(face, server, provider, tools=[look], reasoning_tag="think") as talker:
            await talker.say("Go.")
            contents = talker.contents
        sent = json.dumps(server.requests[1].body)
    assert contents == [
        ("message", "Go."),
        ("reasoning", "I look it up."),
        ("message", "Let me see."),
        ("tool_call", "{}"),
        ("tool_output", "seen"),
        ("reasoning", "b"),
        ("message", "Done."),
    ]
    assert "Let me see." in sent
    assert "look it up" not in sent


def test_a_message_that_comes_whole_is_divided() -> None:
    message = sk.TextMessage("m", content="<think>a</think>b", status="completed")
    whole = [MessageDone(message), StreamEnd(status="completed")]
    assert read((), whole) == ("a", "b")


def test_the_reasoning_of_a_stream_that_is_cut_off_is_kept() -> None:
    stream = sk.stream(chat("<think>so far </thi", finish=None), reasoning_tag="think")
    with pytest.raises(sk.IncompleteStreamError):
        stream.until_done()
    ((kind, content),) = [(message.type, message.content) for message in stream.messages]
    assert (kind, content) == ("reasoning", "so far </thi")


def test_without_the_option_a_tag_is_text() -> None:
    assert sk.stream(chat("<think>a</think>b")).get_final_text() == "<think>a</think>b"


def test_white_space_is_held_back_in_linear_time() -> None:
    """However much of it comes before the first character, and none of it is lost."""
    text = sk.stream(chat(*" " * 5000, "x"), reasoning_tag="think").get_final_text()
    assert text == " " * 5000 + "x"


def test_a_recording_has_the_tag(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    sk.stream(chat("<think>a</think>b"), sk.Recorder(path), reasoning_tag="think").until_done()
    assert sk.stream(path).get_final_text() == "b"


def test_to_input_leaves_out_such_reasoning() -> None:
    stream = sk.stream(chat("<think>a</think>b"), reasoning_tag="think")
    stream.until_done()
    assert "a" not in json.dumps(to_input(stream.messages, "openai_chat")[0]["content"])


@pytest.mark.parametrize("tag", ["", "<think>", "a b", 5])
def test_what_is_no_name_of_a_tag_is_refused(tag: Any) -> None:
    """By a stream, and by an agent where it is made."""
    with pytest.raises(sk.UsageError, match="name of a tag"):
        sk.stream(chat("a"), reasoning_tag=tag)
    with pytest.raises(sk.UsageError, match="name of a tag"):
        sk.Agent(openai.OpenAI(api_key="k"), model="m", reasoning_tag=tag)
