"""Open Interpreter's chunks: what each becomes, what malformed ones become, and the way back."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamkit as sk
from streamkit import messages as m
from streamkit.answers import Confirmation
from streamkit.core.engine import Engine
from streamkit.errors import ProtocolError
from streamkit.events import (
    ActiveLine,
    ConfirmationCreated,
    ConfirmationDone,
    Created,
    Delta,
    Done,
    StreamEnd,
    StreamException,
)
from streamkit.protocols.open_interpreter import Decoder, Encoder, WebsocketDecoder, explode, to_input, truncate
from streamkit.protocols.open_interpreter.legacy import Decoder as LegacyDecoder
from streamkit.protocols.open_interpreter.questions import is_question_line

from .. import values as q
from ..recorded import each_recording, in_a_loop
from ..telling import Story, tell_bytes, tell_items

PNG = "iVBORw0KGgo"


class Tolerant(Decoder):
    """The decoder without its plain case."""

    plain_item = None


def chunk(role: str = "assistant", type: str = "message", format: str | None = None, **keys: Any) -> dict[str, Any]:
    return {"role": role, "type": type, **({"format": format} if format else {}), **keys}


def message(content: Any = None, **keys: Any) -> dict[str, Any]:
    return chunk(**({} if content is None else {"content": content}), **keys)


def code(content: Any = None, format: str | None = "python", **keys: Any) -> dict[str, Any]:
    return chunk(type="code", format=format, **({} if content is None else {"content": content}), **keys)


def console(content: Any = None, format: str | None = "output", **keys: Any) -> dict[str, Any]:
    content = {} if content is None and format != "active_line" else {"content": content}
    return chunk("computer", "console", format, **content, **keys)


def image(content: str, format: str = "base64.png", **keys: Any) -> dict[str, Any]:
    return chunk("computer", "image", format, content=content, **keys)


def confirmation(content: Any) -> dict[str, Any]:
    return chunk("computer", "confirmation", "execution", content=content)


CONSOLE_START = {"role": "computer", "type": "console", "start": True}
CONSOLE_END = {"role": "computer", "type": "console", "end": True}
FLAGGED: list[dict[str, Any]] = [{"start": True}, {"content": "ok"}, {"end": True}]
START, END = message(start=True), message(end=True)
COMPLETE = {"role": "server", "type": "status", "content": "complete"}


def static(message: m.Message | Mapping[str, Any]) -> dict[str, Any]:
    """The part of a message that is compared."""
    plain = message.to_dict() if isinstance(message, m.Message) else message
    return {
        key: plain[key] for key in ("role", "type", "format", "recipient", "name", "call_id", "content") if key in plain
    }


def stored(story: Story) -> list[dict[str, Any]]:
    return [static(message) for message in story.engine.messages.all]


def contents(*items: Any) -> list[str]:
    return [message.content for message in tell_items(Decoder, items).engine.messages.all]


def confirmations(story: Story) -> list[Confirmation]:
    return [event.confirmation for event in story.events if isinstance(event, ConfirmationCreated)]


def check_brackets(story: Story) -> None:
    """Law 1, by the lines."""
    state: dict[str, str] = {}
    for event in story.events:
        if isinstance(event, Created):
            assert event.message.id not in state
            state[event.message.id] = "open"
        elif isinstance(event, Delta):
            assert state[event.message_id] == "open"
            assert event.value
        elif isinstance(event, Done):
            assert state[event.message.id] == "open"
            state[event.message.id] = "done"
    assert set(state.values()) <= {"done"}
    assert "decoder-error" not in story.codes


# -- recordings

# What Open Interpreter stored is a conversation; the streams are its last runs. These differ by rules of ours.
DIFFERENT: dict[str, dict[int, Any]] = {
    "rec_recipient": {  # its consoles and images mix what is for the assistant with what is for all: they are split
        2: [
            {"role": "computer", "type": "console", "format": "output", "recipient": "assistant"}
            | {"content": "for the assistant"},
            {"role": "computer", "type": "console", "format": "output", "content": "for all"},
        ],
        4: [
            {"role": "computer", "type": "image", "format": "base64.png", "recipient": "assistant", "content": "AAAA"},
            {"role": "computer", "type": "image", "format": "base64.png", "content": "BBBB"},
        ],
    },
    "rec_two_images_magic": {1: "split"},  # two images became one corrupt text
    "rec_truncated": {1: "complete"},  # it rewrites long output; here the message has all of it
    "oi043-long-output-truncated": {2: "complete"},
    "oi043-python-image-base64": {2: "image"},  # it stores a description of the image that it sent
}


def expected_of(path: Path, items: list[Any]) -> list[dict[str, Any]]:
    """The messages of the stream itself, by what Open Interpreter stored after it."""
    if path.name.startswith("rec_"):
        history: list[dict[str, Any]] = json.loads(path.with_suffix(".messages.json").read_text())
    else:
        history = json.loads(path.with_suffix(".expected.json").read_text())["messages"]
    last_user = max(index for index, stored in enumerate(history) if stored["role"] == "user")
    expected: list[Any] = []
    for index, stored in enumerate(history[last_user + 1 :]):
        pieces = [
            i["content"]
            for i in items
            if i["type"] == stored["type"] and i.get("format") != "active_line" and isinstance(i.get("content"), str)
        ]
        match DIFFERENT.get(path.stem, {}).get(index):
            case None:
                expected.append(stored)
            case "split":
                assert stored["content"] == "".join(pieces)
                expected += [{**stored, "content": piece} for piece in pieces]
            case "complete":
                assert stored["content"].startswith("Output truncated")
                expected.append({**stored, "content": "".join(pieces)})
            case "image":
                [piece] = [i["content"] for i in items if i["type"] == "image" and "content" in i]
                expected.append({**stored, "format": "base64.png", "content": piece})
            case others:
                expected += others
    return [static(message) for message in expected]


@each_recording("open-interpreter", own=False)
def test_a_recorded_stream_gives_the_messages_that_open_interpreter_stored(path: Path) -> None:
    """Exactly, but for the differences listed above; and no recorded stream needs a repair."""
    items = [json.loads(line) for line in path.read_text().splitlines()]
    story = tell_items(Decoder, items, strict=True)
    assert stored(story) == expected_of(path, items)
    assert story.decoder.complete
    check_brackets(story)


@each_recording("open-interpreter", complete=True)
def test_the_fast_paths_give_the_same_events(path: Path) -> None:
    """From bytes and from items, with and without the fast paths."""
    data = path.read_bytes()
    items = [json.loads(line) for line in data.splitlines()]
    lines = tell_bytes(Tolerant, [data]).lines
    assert tell_bytes(Decoder, [data]).lines == lines
    assert tell_bytes(Decoder, [data[i : i + 7] for i in range(0, len(data), 7)]).lines == lines
    assert tell_items(Decoder, items).lines == lines
    assert tell_items(Tolerant, items).lines == lines


@each_recording("open-interpreter", complete=True)
def test_a_recorded_stream_survives_the_way_through_the_encoder(path: Path) -> None:
    """Its messages and lines come back, without a repair."""
    story = tell_bytes(Decoder, [path.read_bytes()])
    again = tell_items(Decoder, encoded(story), strict=True)
    assert stored(again) == stored(story)
    assert again.types == story.types
    assert lines_run(again) == lines_run(story)


def encoded(story: Story) -> list[dict[str, Any]]:
    encoder = Encoder(status=True)
    items = [item for event in story.events for item in encoder.feed(event)]
    return [*items, *encoder.feed(StreamEnd())]


def lines_run(story: Story) -> list[int | None]:
    return [event.line for event in story.events if isinstance(event, ActiveLine)]


# -- building messages

MESSAGES: dict[str, tuple[list[Any], list[dict[str, Any]]]] = {
    "a text": ([START, message("a"), message("b"), END], [message("ab")]),
    "a text of the user": (
        [{"role": "user", "start": True}, message("hi", role="user"), {"role": "user", "end": True}],
        [chunk("user", content="hi")],
    ),
    "all in one chunk": ([message("ab", start=True, end=True)], [message("ab")]),
    "nothing between start and end": ([START, END], [message("")]),
    "false flags": ([message("a", start=True, end=False), message("b", start=False, end=True)], [message("ab")]),
    "null flags": ([message("a", start=True, end=None), message("b", start=None, end=1)], [message("ab")]),
    "an empty piece": ([START, message("a"), message(""), {**message(), "content": None}, END], [message("a")]),
    "reasoning": ([message("hm", format="reasoning", start=True, end=True)], [chunk(type="reasoning", content="hm")]),
    "a refusal": ([message("no", format="refusal", start=True, end=True)], [chunk(format="refusal", content="no")]),
    "code": ([code(start=True), code("x"), code("=1"), code(end=True)], [code("x=1")]),
    "a format that comes with the content": ([code(None, None, start=True), code("x"), code(end=True)], [code("x")]),
    "a format that the content leaves out": ([code(start=True), code("x", None), code(end=True)], [code("x")]),
    "a format that comes with the end": ([code(None, None, start=True), code(end=True)], [code("")]),
    "a recipient that comes with the content": (
        [START, message("a", recipient="user"), END],
        [message("a", recipient="user")],
    ),
    "a recipient that comes with the start": (
        [message(start=True, recipient="user"), message("a"), message("b"), END],
        [message("ab", recipient="user")],
    ),
    "a recipient that changes": (
        [START, message("a"), message("b", recipient="user"), message("c", recipient="user"), message("d"), END],
        [message("a"), message("bc", recipient="user"), message("d")],
    ),
    "a document to display": (
        [chunk("computer", "code", "html", content="<p>", start=True, end=True)],
        [chunk("computer", "code", "html", content="<p>")],
    ),
    "an image in pieces": ([image(PNG + "A", start=True), image("B", end=True)], [image(PNG + "AB")]),
    "two images in one bracket": (
        [image(PNG + "A", start=True), image(PNG + "B", end=True)],
        [image(PNG + "A"), image(PNG + "B")],
    ),
    "two images of a format without a kind": (
        [image("/9j/A", "base64", start=True), image("R0lGODB", "base64", end=True)],
        [image("/9j/A", "base64"), image("R0lGODB", "base64")],
    ),
    "another format's signature": (
        [image(PNG + "A", start=True), image("/9j/B", end=True)],
        [image(PNG + "A/9j/B")],
    ),
    "a file": (
        [chunk("computer", "file", "path", content="/a", start=True, end=True)],
        [chunk("computer", "file", "path", content="/a")],
    ),
    "a replacement": ([START, message("a"), message("b", replace=True), message("c"), END], [message("bc")]),
    "a replaced image": (
        [image(PNG + "A", start=True), image(PNG + "B", replace=True, end=True)],
        [image(PNG + "B")],
    ),
    "side by side": (
        [
            message(start=True, id="a"),
            code(start=True, id="b"),
            message("1", id="a"),
            code("2", id="b"),
            message("3", id="a"),
            message(end=True, id="a"),
            code("4", id="b"),
            code(end=True, id="b"),
        ],
        [message("13"), code("24")],
    ),
    "an id on the start alone": ([message(start=True, id="a"), message("1"), message("2"), END], [message("12")]),
    "a console": (
        [
            CONSOLE_START,
            console(1, "active_line"),
            console("a"),
            console("b"),
            console(None, "active_line"),
            CONSOLE_END,
        ],
        [console("ab")],
    ),
    "code that printed nothing": (
        [
            code("x", start=True, end=True),
            CONSOLE_START,
            console(1, "active_line"),
            console(None, "active_line"),
            CONSOLE_END,
        ],
        [code("x"), console("")],
    ),
    "code that ended without a word": (
        [code("x", start=True, end=True), CONSOLE_START, console(1, "active_line"), CONSOLE_END],
        [code("x")],
    ),
    "a console around an image": (
        [
            code("x", start=True, end=True),
            CONSOLE_START,
            console(1, "active_line"),
            CONSOLE_END,
            image(PNG, start=True, end=True),
            CONSOLE_START,
            console(None, "active_line"),
            CONSOLE_END,
        ],
        [code("x"), image(PNG)],
    ),
    "output after nothing runs": (
        [CONSOLE_START, console(None, "active_line"), console("late"), CONSOLE_END],
        [console("late")],
    ),
    "a review": (
        [chunk(type="review", format="safe", **flag) for flag in FLAGGED],
        [],
    ),
    "a command": ([chunk("user", "command", content="stop", start=True, end=True)], []),
    "a status that is no end": ([{"role": "server", "type": "status", "content": "thinking"}], []),
    "a word of the websocket": ([{"ack": 3}, {"auth": True}], []),
}


@pytest.mark.parametrize(("items", "expected"), MESSAGES.values(), ids=MESSAGES)
def test_well_formed_chunks_give_these_messages(items: list[Any], expected: list[dict[str, Any]]) -> None:
    """Without a warning, on the fast path and off it."""
    story = tell_items(Decoder, items, strict=True)
    assert stored(story) == expected
    assert story.decoder.complete
    assert tell_items(Tolerant, items, strict=True).lines == story.lines
    check_brackets(story)


CLASSES = [
    (message("a"), m.TextMessage),
    (message("a", format="reasoning"), m.ReasoningMessage),
    (message("a", format="refusal"), m.RefusalMessage),
    (code("a"), m.CodeMessage),
    (chunk("computer", "code", "html", content="a"), m.Message),
    (console("a"), m.ConsoleMessage),
    (image("a"), m.ImageMessage),
    (chunk("user", "file", content="a"), m.FileMessage),
    (chunk("user", "audio", "wav", content="AAAA"), m.AudioMessage),
    (chunk(type="hologram", content="a"), m.Message),
]


@pytest.mark.parametrize(("item", "kind"), CLASSES, ids=[f"{i['role']}-{i['type']}" for i, _ in CLASSES])
def test_each_type_has_its_class(item: dict[str, Any], kind: type[m.Message]) -> None:
    """By its type, its format and, for code, its role."""
    [result] = tell_items(Decoder, [{**item, "start": True, "end": True}]).engine.messages.all
    assert type(result) is kind


def test_a_console_without_output_has_only_active_lines() -> None:
    """They have no snapshot, and there is no message."""
    story = tell_items(
        Decoder, [image(PNG, start=True, end=True), CONSOLE_START, console(3, "active_line"), CONSOLE_END]
    )
    lines = [event for event in story.events if isinstance(event, ActiveLine)]
    assert [(event.line, event.snapshot) for event in lines] == [(3, None), (None, None)]


def test_the_snapshot_has_the_active_line_until_the_end() -> None:
    """Then it is None, and an event reports that."""
    story = tell_items(Decoder, [CONSOLE_START, console("a"), console(2, "active_line"), CONSOLE_END])
    [result] = story.engine.messages.all
    assert isinstance(result, m.ConsoleMessage)
    assert result.active_line is None
    assert lines_run(story) == [2, None]
    assert all(event.snapshot is result for event in story.events if isinstance(event, ActiveLine))


def test_nothing_printed_is_one_message_an_execution() -> None:
    """Two runs without output are two messages, between which the assistant spoke."""
    run = [CONSOLE_START, console(None, "active_line"), console(None, "active_line"), CONSOLE_END]
    items = [*run, code("x", start=True, end=True), *run]
    assert contents(*items) == ["", "x", ""]


def test_audio_bytes_are_joined_as_bytes_and_a_path_stays_text() -> None:
    """Pieces of any length; a path in pieces is put together as text."""
    pieces = [chunk("user", "audio", "wav", content=data) for data in (b"a", b"bc", b"defg")]
    start = chunk("user", "audio", "wav", start=True)
    end = chunk("user", "audio", "wav", end=True)
    [result] = tell_items(Decoder, [start, *pieces, end], strict=True).engine.messages.all
    assert isinstance(result, m.AudioMessage)
    assert result.data == b"abcdefg"
    path = [chunk("user", "audio", "wav", content=text) for text in ("/tmp", "/ü", ".wav", "AAAA")]
    assert contents(start, *path, end) == ["/tmp/ü.wavAAAA"]


def test_further_keys_become_metadata() -> None:
    """On whichever chunk they come. Those of streamkit become fields."""
    items = [
        message(start=True, model="x", created_at=5, name="n", call_id="c"),
        message("a", extra={"deep": [1]}),
        message(end=True, late=True, status="incomplete"),
    ]
    [result] = tell_items(Decoder, items, strict=True).engine.messages.all
    assert result.metadata == {"model": "x", "extra": {"deep": [1]}, "late": True}
    assert (result.created_at, result.name, result.call_id, result.status) == (5, "n", "c", "incomplete")


def test_no_chunk_is_changed_or_referenced_later() -> None:
    """A producer may use one dict for all its chunks."""
    items: list[Any] = [*(item for case in MESSAGES.values() for item in case[0])]
    before = copy.deepcopy(items)
    tell_items(Decoder, items)
    assert items == before
    reused: dict[str, Any] = message(start=True, extra=[1])
    engine = Engine()
    decoder = Decoder(engine.messages.new_id)
    events = decoder.feed_items([reused])
    reused |= {"start": None, "content": "a"}
    events += decoder.feed_items([reused])
    reused["extra"].append(2)
    reused |= {"content": None, "end": True}
    events += decoder.feed_items([reused])
    completed = list(engine.complete(events))
    assert [event.message.content for event in completed if isinstance(event, Created)] == ["a"]
    assert [event.value for event in completed if isinstance(event, Delta)] == ["a"]


def test_ids_of_the_wire_are_the_messages_ids_once() -> None:
    """A second message under the same id gets one of its own."""
    items = [message("1", id="a", start=True, end=True), message("2", id="a", start=True, end=True)]
    story = tell_items(Decoder, items, strict=True)
    assert [result.id for result in story.engine.messages.all] == ["a", "a.2"]


def test_an_id_that_looks_like_ours_does_not_collide() -> None:
    """Whether the engine has seen it already or not."""
    items = [message("1", id="message-1", start=True, end=True), message("2", start=True, end=True)]
    data = b"".join(json.dumps(item).encode() + b"\n" for item in items)
    story = tell_items(Decoder, items, strict=True)
    assert [result.content for result in story.engine.messages.all] == ["1", "2"]
    assert tell_bytes(Decoder, [data]).lines == story.lines


def test_websocket_ids_are_deliveries() -> None:
    """Each frame has another id."""
    items = [{**item, "id": str(n)} for n, item in enumerate([START, message("a"), message("b"), END, COMPLETE])]
    story = tell_items(WebsocketDecoder, items, strict=True)
    assert stored(story) == [message("ab")]


# -- confirmations

CODE = {"type": "code", "format": "python", "content": "x"}
CONFIRMATIONS: dict[
    str, tuple[Any, str | None, str | None, bool]
] = {  # content, source, language, the code message itself
    "canonical": (CODE, "x", "python", True),
    "language and code": ({"language": "python", "code": "x"}, "x", "python", True),
    "both, equal": ({**CODE, "language": "python", "code": "x"}, "x", "python", True),
    "both, different": ({**CODE, "code": "rm"}, "x", "python", False),
    "two languages": ({**CODE, "language": "shell"}, "x", "python", False),
    "another source": ({**CODE, "content": "y"}, "y", "python", False),
    "another language": ({**CODE, "format": "shell"}, "x", "shell", False),
    "no object": ("x", "x", None, False),
    "no content": (None, "", None, False),
    "a list": ([CODE], "", None, False),
    "no source": ({"type": "code", "format": "python"}, "", "python", False),
    "a source that is no text": ({**CODE, "content": ["x"]}, "", "python", False),
    "a language that is no text": ({**CODE, "format": 3}, "x", None, False),
    "of another type": ({**CODE, "type": "payment"}, "x", "python", False),
    "of a type that is no text": ({**CODE, "type": {}}, "x", "python", False),
}
MALFORMED = set(CONFIRMATIONS) - {"canonical", "language and code", "both, equal", "another source", "another language"}


@pytest.mark.parametrize("case", CONFIRMATIONS)
def test_a_confirmation_is_about_the_code_before_it_or_about_its_own(case: str) -> None:
    """A malformed one can never be approved."""
    content, source, language, same = CONFIRMATIONS[case]
    story = tell_items(Decoder, [code("x", start=True, end=True), confirmation(content)])
    [question] = confirmations(story)
    assert (question.id, question.subject.content, question.subject.format) == ("confirmation-1", source, language)
    assert (question.subject is story.engine.messages.all[0]) == same
    assert question.malformed == (case in MALFORMED)
    assert story.codes == ["malformed-confirmation"] * (case in MALFORMED)
    assert question.status == "unanswered"
    assert len(story.engine.messages.all) == 1


def test_code_that_runs_after_a_confirmation_was_approved() -> None:
    """The first console chunk shows that; the confirmation ends the message that was open, without a warning."""
    items = [code(start=True), code("x"), confirmation(CODE), CONSOLE_START, console("1"), CONSOLE_END]
    story = tell_items(Decoder, items, strict=True)
    [question] = [event.confirmation for event in story.events if isinstance(event, ConfirmationDone)]
    assert question.status == "approved"
    assert story.types.index("code_done") < story.types.index("confirmation_created")


def test_a_confirmation_never_shows_other_code_than_would_run() -> None:
    """Even where the source sends one id for two messages, or an id like ours."""
    items = [
        code("good", id="c", start=True, end=True),
        code("bad", id="c", start=True, end=True),
        message("good", id="confirmation-1.subject", start=True, end=True),
        confirmation({**CODE, "content": "bad"}),
        confirmation({**CODE, "content": "worse"}),
    ]
    story = tell_items(Decoder, items)
    assert [question.subject.content for question in confirmations(story)] == ["bad", "worse"]


# -- items that may be a confirmation, from a live producer

GATE = confirmation(CODE)
UNTYPED = {key: value for key, value in GATE.items() if key != "type"}
QUESTIONS: dict[str, tuple[Any, str, bool]] = {  # the item, the source that would run, whether it is malformed
    "as it should be": (GATE, "x", False),
    "without a role": ({key: value for key, value in GATE.items() if key != "role"}, "x", False),
    "from the server": ({**GATE, "role": "server"}, "x", False),
    "from the assistant": ({**GATE, "role": "assistant"}, "x", False),
    "from an unknown role": ({**GATE, "role": "dog"}, "x", False),
    "a role that is no text": ({**GATE, "role": 7}, "x", False),
    "with flags and content": ({**GATE, "start": True, "end": True}, "x", False),
    "a start and null": ({**GATE, "start": True, "content": None}, "", True),
    "an end and null": ({**GATE, "end": True, "content": None}, "", True),
    "a start without content": (chunk("computer", "confirmation", start=True), "", True),
    "an end without content": (chunk("computer", "confirmation", end=True), "", True),
    "nothing but its type": ({"type": "confirmation"}, "", True),
    "without a type": (UNTYPED, "x", True),
    "without a type and a role": ({"content": CODE}, "x", True),
    "a null type": ({**UNTYPED, "type": None}, "x", True),
    "a type that is a list": ({**UNTYPED, "type": ["confirmation"]}, "x", True),
    "upper case": ({**GATE, "type": "Confirmation"}, "x", True),
    "a space": ({**GATE, "type": " confirmation "}, "x", True),
    "another word": ({**GATE, "type": "confirm_execution"}, "x", True),
    "an unknown type around code": ({**GATE, "type": "question"}, "x", True),
    "a server's word around code": ({**GATE, "role": "server", "type": "question"}, "x", True),
    "a message with its format": ({**GATE, "type": "message"}, "x", True),
    "the key in upper case": ({**UNTYPED, "Type": "confirmation"}, "x", True),
    "a key alone": ({"confirmation": CODE}, "x", True),
    "in a list": ([GATE], "x", True),
    "in a list of lists": ([1, [GATE]], "x", True),
    "in a tuple": ((GATE,), "x", True),
    "in an envelope": ({"event": "chunk", "data": GATE}, "x", True),
    "in a list in an envelope": ({"data": [GATE]}, "x", True),
    "executing": ({"executing": {"code": "x", "language": "python"}}, "x", True),
    "executing nothing": ({"executing": None}, "", True),
    "executing, with a role": ({"role": "computer", "executing": CODE}, "x", True),
    "executing, in a list": ([{"executing": CODE}], "x", True),
    "executing, besides": ({**GATE, "executing": {"code": "rm"}}, "x", True),
    "executing, beside acknowledging": ({"ack": "1", "executing": CODE}, "x", True),
    "executing, beside an error": ({"error": "x", "executing": CODE}, "x", True),
}
TEXTS = {
    "no JSON": b"{'role': 'computer', 'type': 'confirmation', 'content': {}}\n",
    "cut short": b'{"role": "computer", "type": "confirmation", "content": {"type": "code", "con\n',
    "JSON in JSON": json.dumps(json.dumps(GATE)).encode() + b"\n",
}
KINDS = [Decoder, WebsocketDecoder, LegacyDecoder]
CODE_FIRST = [code(start=True), code("x"), code(end=True)]


class Declining(sk.EventHandler):
    """Collects the questions, and declines them."""

    def __init__(self) -> None:
        self.confirmations: list[Confirmation] = []

    def on_confirmation(self, confirmation: Confirmation, /) -> None:
        self.confirmations.append(confirmation)
        if confirmation.waiting:
            confirmation.decline("no")


class Undecided(Declining):
    """Collects the questions, and answers none."""

    def on_confirmation(self, confirmation: Confirmation, /) -> None:
        self.confirmations.append(confirmation)


class Producer:
    """Notes whether it was pulled past its last item: its code has run then."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self.ran = False

    def sync(self) -> Iterator[Any]:
        yield from self.items
        self.ran = True
        yield {**CONSOLE_START}

    async def asynchronous(self) -> AsyncIterator[Any]:
        for item in self.sync():
            yield item


def drive(items: list[Any], handler: Declining, kind: Any, face: str) -> bool:
    """Whether a producer of these items was pulled past the last."""
    producer = Producer(items)
    if face == "sync":
        sk.stream(producer.sync(), handler, protocol=kind).until_done()
    else:
        source = producer.asynchronous() if face == "asyncio" else producer.sync()

        async def read() -> None:
            await sk.astream(source, handler, protocol=kind).until_done()

        anyio.run(read)
    return producer.ran


@pytest.mark.slow
@pytest.mark.parametrize("face", ["sync", "asyncio", "asyncio, of a sync source"])
@pytest.mark.parametrize("handler", [Declining, Undecided])
@pytest.mark.parametrize("kind", KINDS)
@in_a_loop("case", [*QUESTIONS, *TEXTS])
def test_whatever_may_be_a_confirmation_stops_a_live_producer(
    case: str, kind: Any, handler: type[Declining], face: str
) -> None:
    """Declined, undecided, or not to be approved at all: its code does not run."""
    if case in TEXTS:
        items: list[Any] = [json.dumps(item).encode() + b"\n" for item in CODE_FIRST]
        items.append(TEXTS[case])
    else:
        items = [*CODE_FIRST, QUESTIONS[case][0]]
    answering = handler()
    assert not drive(items, answering, kind, face)
    [question] = answering.confirmations
    declines = handler is Declining and not question.malformed
    assert question.status == ("declined" if declines else "unanswered")


@pytest.mark.parametrize("ends", [0, 1])
@pytest.mark.parametrize(
    ("field", "newline"),
    [(b"", b"\n"), (b"", b"\r\n"), (b"data: ", b"\n"), (b"data: ", b"\r\n"), (b"data: ", b"\r")],
)
def test_a_question_without_its_end_stops_a_live_producer(field: bytes, ends: int, newline: bytes) -> None:
    """Whichever newlines the body has, and whether the line has its own."""
    items: list[Any] = [field + json.dumps(item).encode() + 2 * newline for item in CODE_FIRST]
    items.append(field + json.dumps(GATE).encode() + ends * newline)
    answering = Declining()
    assert not drive(items, answering, None, "sync")
    assert [question.status for question in answering.confirmations] == ["declined"]


@pytest.mark.parametrize("kind", [Decoder, WebsocketDecoder])
@pytest.mark.parametrize("case", QUESTIONS)
def test_only_what_is_read_without_doubt_can_be_approved(kind: Any, case: str) -> None:
    """Its subject is what could be read; bytes and items give the same events."""
    item, source, malformed = QUESTIONS[case]
    story = tell_items(kind, [*CODE_FIRST, item])
    [question] = confirmations(story)
    assert (question.subject.content, question.malformed) == (source, malformed)
    assert ("malformed-confirmation" in story.codes) == malformed
    assert "raw_event" not in story.types
    data = b"".join(json.dumps(item).encode() + b"\n" for item in [*CODE_FIRST, item])
    assert tell_bytes(kind, [data]).lines == story.lines


@pytest.mark.parametrize("case", QUESTIONS)
def test_a_line_of_bytes_asks_what_its_item_asks(case: str) -> None:
    """As JSON and as SSE, if the item has the shape of a chunk; a body is cut after such a line."""
    item, _, _ = QUESTIONS[case]
    line = json.dumps(item).encode()
    expected = isinstance(item, dict) and Decoder.recognises(item)
    assert is_question_line(line) is is_question_line(b"data: " + line + b"\n") is expected


@pytest.mark.parametrize("line", [b"", b"data: [DONE]", b"confirmation", b'{"type": "confirmation"', b'"confirmation"'])
def test_a_line_that_is_not_a_chunk_asks_nothing(line: bytes) -> None:
    """Whatever it has in its text; nor does a chunk whose text mentions a confirmation."""
    assert not is_question_line(line)
    assert not is_question_line(json.dumps(message('{"type": "confirmation"}')).encode())


INNOCENT: dict[str, list[Any]] = {
    "a message about it": [START, message('{"type": "confirmation"}'), message('"executing": 1'), END],
    "a piece that is its name": [START, {"role": "assistant", "content": "confirmation"}, END],
    "a list of other things": [START, ["confirmation", {"type": "message"}], END],
    "another server's word": [{"role": "server", "type": "word", "content": {"a": 1}}],
}


@pytest.mark.parametrize("case", INNOCENT)
def test_nothing_else_is_taken_for_a_confirmation(case: str) -> None:
    """Text may have any words."""
    assert not confirmations(tell_items(Decoder, INNOCENT[case]))


@pytest.mark.parametrize("face", ["sync", "asyncio"])
@pytest.mark.parametrize("item", [COMPLETE, chunk("server", "error", content="broke"), {"error": "broke"}])
def test_nothing_is_pulled_after_the_end(item: dict[str, Any], face: str) -> None:
    """A server may keep its connection open."""
    try:
        ran = drive([START, message("a"), END, item], Declining(), Decoder, face)
    except sk.RunFailedError:
        ran = False
    decoder = Decoder()
    decoder.feed_items([item])
    assert (ran, decoder.exhausted, decoder.complete) == (False, True, True)


# -- malformed chunks

FAULTS: dict[str, tuple[list[Any], list[str], list[str]]] = {  # chunks, contents, warnings
    "a number in place of a chunk": ([3, START, message("a"), END], ["a"], ["not-an-object"]),
    "a list in place of a chunk": ([START, [1], message("a"), END], ["a"], ["not-an-object"]),
    "null in place of a chunk": ([START, None, message("a"), END], ["a"], ["not-an-object"]),
    "neither flags nor content": ([START, message(), message("a"), END], ["a"], ["no-op-chunk"]),
    "false flags and no content": ([START, message(start=False, end=None), message("a"), END], ["a"], ["no-op-chunk"]),
    "no role, in the open message": ([START, {"type": "message", "content": "a"}, END], ["a"], ["no-role"]),
    "no role, in another message": (
        [START, message("a"), END, {"type": "console", "format": "output", "content": "b", "start": 1, "end": 1}],
        ["a", "b"],
        ["no-role"],
    ),
    "a role that is not text": ([START, message("a", role=7), END], ["a"], ["no-role"]),
    "no type, in the open message": (
        [code(start=True), {"role": "assistant", "content": "a"}, code(end=True)],
        ["a"],
        ["no-type"],
    ),
    "no type, in a new message": ([{"role": "assistant", "content": "a", "start": True}, END], ["a"], ["no-type"]),
    "no type and no text": ([{"role": "assistant", "content": 3}, START, message("a"), END], ["a"], ["no-type"]),
    "no type and no text, with a start": (
        [{"role": "assistant", "content": 3, "start": True}, message("a"), END],
        ["a"],
        ["no-type"],
    ),
    "no type and no text, with an end": (
        [code("a", start=True), {"role": "computer", "content": [1], "end": True}],
        ["a"],
        ["no-type", "end-mismatch"],
    ),
    "a type that is not text": ([START, message("a", type=[]), END], ["a"], ["no-type"]),
    "an end without a type": ([START, message("a"), {"role": "assistant", "end": True}], ["a"], ["no-type"]),
    "a message that never gets a type": (
        [{"role": "user", "start": True}, {"role": "user", "end": True}],
        [],
        ["no-type"],
    ),
    "no start": ([message("a"), message("b"), END], ["ab"], ["missing-start"]),
    "no end before other content": ([START, message("a"), code("b"), code(end=True)], ["a", "b"], ["missing-end"]),
    "no end before a start": ([START, message("a"), START, message("b"), END], ["a", "b"], ["missing-end"]),
    "no end before the end of the run": ([START, message("a"), COMPLETE], ["a"], ["missing-end"]),
    "two starts": ([START, START, message("a"), END], ["a"], ["duplicate-start"]),
    "a start before the start of another type": (
        [START, code(start=True), code("a"), code(end=True)],
        ["a"],
        ["duplicate-start"],
    ),
    "an unknown type": ([chunk(type="x", start=True), chunk(type="x", content="a", end=True)], ["a"], ["unknown-type"]),
    "an unknown role": (
        [chunk("dog", start=True), chunk("dog", content="a"), chunk("dog", end=True)],
        ["a"],
        ["unknown-type"],
    ),
    "an unknown format": ([message("a", format="x", start=True, end=True)], ["a"], ["unknown-type"]),
    "an end with nothing open": ([END, START, message("a"), END], ["a"], ["end-without-start"]),
    "the end of another message": (
        [START, message("a"), code(end=True), START, message("b"), END],
        ["a", "b"],
        ["end-mismatch"],
    ),
    "no end at the end of the stream": ([START, message("a")], ["a"], ["incomplete-at-eof"]),
    "content that is an int": ([START, message(1), END], ["1"], ["non-string-content"]),
    "content that is a float": ([START, message(0.5), END], ["0.5"], ["non-string-content"]),
    "content that is bytes": ([START, message(b"a\xff"), END], ["a\ufffd"], ["non-string-content"]),
    "content that is a list": ([START, message([1, "b"]), END], ['[1, "b"]'], ["non-string-content"]),
    "content that is an object": ([START, message({"a": None}), END], ['{"a": null}'], ["non-string-content"]),
    "content that is a bool": ([START, message(True), END], ["true"], ["non-string-content"]),
    "content that is null": ([START, {**message(), "content": None}, message("a"), END], ["a"], []),
    "a line number as text": ([CONSOLE_START, console("3", "active_line"), console("a"), CONSOLE_END], ["a"], []),
    "line 0": ([CONSOLE_START, console(0, "active_line"), console("a"), CONSOLE_END], ["a"], ["bad-active-line"]),
    "a negative line": (
        [CONSOLE_START, console(-1, "active_line"), console("a"), CONSOLE_END],
        ["a"],
        ["bad-active-line"],
    ),
    "a line that is a bool": (
        [CONSOLE_START, console(True, "active_line"), console("a"), CONSOLE_END],
        ["a"],
        ["bad-active-line"],
    ),
    "a line in words": (
        [CONSOLE_START, console("two", "active_line"), console("a"), CONSOLE_END],
        ["a"],
        ["bad-active-line"],
    ),
    "a line of too many digits": (
        [CONSOLE_START, console("9" * 9000, "active_line"), console("a"), CONSOLE_END],
        ["a"],
        ["bad-active-line"],
    ),
    "console content without a format": (
        [CONSOLE_START, console("a", None), console("b"), CONSOLE_END],
        ["ab"],
        ["no-format"],
    ),
    "a console format that is not text": (
        [CONSOLE_START, {**console("a"), "format": 3}, CONSOLE_END],
        ["a"],
        ["no-format"],
    ),
    "code without a language": (
        [code("a", None, start=True), code("b", None), code(None, None, end=True)],
        ["ab"],
        ["no-format"],
    ),
    "messages and code that alternate without ends": (
        [START, message("a"), code("1"), message("b"), code("2"), code(end=True)],
        ["a", "1", "b", "2"],
        ["missing-end"] * 3,
    ),
    "chunks after the end": (
        [START, message("a"), END, COMPLETE, START, message("b"), 3],
        ["a"],
        ["after-end"] * 2 + ["not-an-object"],
    ),
}


@pytest.mark.parametrize(("items", "expected", "codes"), FAULTS.values(), ids=FAULTS)
def test_malformed_chunks_are_repaired_with_a_warning(items: list[Any], expected: list[str], codes: list[str]) -> None:
    """What remains of each, and which warnings it gives; a strict stream raises the first."""
    story = tell_items(Decoder, items)
    assert [result.content for result in story.engine.messages.all] == expected
    assert story.codes == codes
    assert tell_items(Tolerant, items).lines == story.lines
    check_brackets(story)
    if codes:
        with pytest.raises(ProtocolError) as raised:
            tell_items(Decoder, items, strict=True)
        assert raised.value.code == codes[0]


def test_further_keys_of_a_chunk_with_a_bad_line_number_are_read() -> None:
    """One bad value never loses the rest of its item."""
    bad = console("two", "active_line", status="failed", pid=7)
    [printed] = tell_items(Decoder, [CONSOLE_START, console("a"), bad, CONSOLE_END]).engine.messages.all
    assert (printed.status, printed.metadata) == ("failed", {"pid": 7})


@pytest.mark.parametrize(("items", "expected", "codes"), FAULTS.values(), ids=FAULTS)
def test_malformed_chunks_leave_later_ones_unaffected(items: list[Any], expected: list[str], codes: list[str]) -> None:
    """Each case, then a message without a fault."""
    after = [START, message("later"), END]
    story = tell_items(Decoder, [*items, *after])
    if "after-end" not in codes and COMPLETE not in items:
        assert story.engine.messages.all[-1].content == "later"
        assert len(story.engine.messages.all) == len(expected) + 1


def test_a_line_that_is_not_json_is_skipped() -> None:
    """At the very end it is a line that was cut off."""
    lines = [json.dumps(item).encode() for item in (START, message("a"), END)]
    story = tell_bytes(Decoder, [b"\n".join([b"{'role': 'assistant'}", *lines])])
    assert (story.codes, story.decoder.complete) == (["not-json"], True)
    assert [result.content for result in story.engine.messages.all] == ["a"]
    story = tell_bytes(Decoder, [b"\n".join([*lines, b'{"role": "assis'])])
    assert (story.codes, story.decoder.complete) == (["not-json"], False)


def test_active_line_as_text_is_a_number() -> None:
    """Open Interpreter's documentation shows strings, its code sends ints."""
    story = tell_items(Decoder, [CONSOLE_START, console("3", "active_line"), CONSOLE_END])
    assert lines_run(story) == [3, None]


# -- endings


def test_a_stream_that_ends_with_a_message_open_is_incomplete() -> None:
    """The terminal rule is not met."""
    story = tell_items(Decoder, [START, message("a")])
    assert not story.decoder.complete
    assert story.engine.messages.all[0].status == "incomplete"


def test_status_complete_completes_the_run() -> None:
    """The server sends it last."""
    story = tell_items(Decoder, [START, message("a"), END, COMPLETE], strict=True)
    assert story.engine.runs.run is not None
    assert story.engine.runs.run.status == "completed"


def test_done_completes_what_is_open() -> None:
    """An SSE sentinel is an end, if a careless one."""
    body = b"".join(b"data: " + json.dumps(item).encode() + b"\n\n" for item in (START, message("a")))
    story = tell_bytes(Decoder, [b": ping\n\n", body, b"data: [DONE]\n\n", body])
    assert story.decoder.complete
    assert stored(story) == [message("a")]
    assert story.codes == ["missing-end"], "nothing after it is read"


ERRORS = [
    ({"role": "server", "type": "error", "content": "boom"}, "boom"),
    ({"role": "server", "type": "error", "content": {"message": "boom", "code": 3}}, "boom"),
    ({"role": "server", "type": "error"}, ""),
    ({"error": {"message": "boom"}}, "boom"),
    ({"error": "boom"}, "boom"),
]


@pytest.mark.parametrize(("item", "text"), ERRORS)
def test_an_error_fails_the_run_and_what_is_open(item: dict[str, Any], text: str) -> None:
    """The server's `complete` after it gives no warning."""
    story = tell_items(Decoder, [START, message("a"), item, COMPLETE], strict=True)
    assert story.decoder.complete
    assert story.engine.messages.all[0].status == "failed"
    assert story.engine.runs.run is not None
    assert (story.engine.runs.run.status, (story.engine.runs.run.error or {})["message"]) == ("failed", text)


def test_a_tool_call_has_its_arguments() -> None:
    """Streamed as chunks, and as a message of a saved conversation."""
    head = {"role": "assistant", "type": "tool_call", "name": "f"}
    chunks = [
        {**head, "start": True},
        *({**head, "content": piece} for piece in ('{"a":', "1}")),
        {**head, "end": True},
    ]
    [streamed] = tell_items(Decoder, chunks, strict=True).engine.messages.all
    saved = sk.Message.from_dict({**head, "content": '{"a":1}'})
    for call in (streamed, saved):
        assert isinstance(call, sk.ToolCallMessage)
        assert (call.name, call.arguments) == ("f", {"a": 1})


# -- fuzz

WORDS: dict[str, list[Any]] = {
    "role": ["assistant", "computer", "user", "server", "system", "dog"],
    "type": [
        "message", "code", "console", "image", "file", "audio", "confirmation", "review", "command", "status", "error",
        "tool_call", "x",
    ],
    "format": ["python", "output", "active_line", "reasoning", "base64.png", "path", "x"],
    "recipient": ["user", "assistant"],
    "id": ["a", "b", "message-1"],
    "name": ["f"],
    "call_id": ["c"],
    "created_at": [1.5],
    "provider_executed": [True],
    "status": ["failed", "in_progress"],
}  # fmt: skip
JSON = q.recursive(
    q.none() | q.booleans() | q.integers(-(2**62), 2**62) | q.floats(allow_infinity=False) | q.text(),
    lambda inner: q.lists(inner, max_size=3) | q.dictionaries(q.text(max_size=5), inner, max_size=3),
    depth=2,
)
VALUES = {key: q.sampled_from(words) | JSON for key, words in WORDS.items()}
FLAGS = {key: q.sampled_from([True, False]) | JSON for key in ("start", "end", "replace")}
CONTENT = q.sampled_from(["a", PNG, "AAAA", "complete", "", None, CODE]) | JSON
LIKELY = {key: q.sampled_from(words) for key, words in WORDS.items()}
CHUNKS = (
    JSON
    | q.fixed_dictionaries({}, optional={**VALUES, **FLAGS, "content": CONTENT, "extra": JSON})
    | q.fixed_dictionaries(
        {"role": LIKELY["role"], "type": LIKELY["type"]},
        optional={**{k: LIKELY[k] for k in ("format", "recipient", "id")}, **FLAGS, "content": CONTENT},
    )
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(q.drawn(q.lists(CHUNKS, max_size=25)))
def test_no_chunks_make_the_decoder_fail(items: list[Any]) -> None:
    """Law 7, and law 1: every created has one done; with and without the fast paths the events are the same."""
    story = tell_items(Decoder, items)
    check_brackets(story)
    assert tell_items(Tolerant, items).lines == story.lines
    data = b"".join(json.dumps(item).encode() + b"\n" for item in items)
    assert (
        tell_bytes(Decoder, [data]).lines
        == tell_bytes(Tolerant, [data[i : i + 50] for i in range(0, len(data), 50)]).lines
    )


@pytest.mark.slow
@settings(max_examples=36, deadline=None)
@given(q.drawn(q.lists(CHUNKS, max_size=25)))
def test_whatever_was_decoded_can_be_encoded_and_decoded_again(items: list[Any]) -> None:
    """The encoder takes every event."""
    check_brackets(tell_items(Decoder, encoded(tell_items(Decoder, items))))


@settings(max_examples=36, deadline=None)
@given(
    st.lists(
        st.sampled_from([b"a", b"\xff", bytearray(b"x"), {1: 2}, {(1,): 2}, object(), 10**5000, float("nan")]),
        max_size=4,
    )
)
def test_objects_of_a_producer_in_this_process_are_content_too(values: list[Any]) -> None:
    """What JSON cannot hold."""
    items = [START, *(message(value, extra=value) for value in values), END, confirmation(values), *values]
    assert "decoder-error" not in tell_items(Decoder, items).codes


# -- the way back

TEXT = st.text(min_size=1, max_size=12)
LANGUAGE = st.sampled_from(["python", "shell"])
RECIPIENT = st.sampled_from([None, "user", "assistant"])


def made(kind: type[m.Message], **fields: Any) -> st.SearchStrategy[m.Message]:
    defaults: dict[str, Any] = {"content": st.just("") | TEXT, "recipient": RECIPIENT}
    for key, value in fields.items():
        defaults[key] = value if hasattr(value, "map") else st.just(value)
    return st.builds(kind, **defaults)


BASE64 = st.binary(max_size=9).map(lambda data: base64.b64encode(data).decode())
MADE = st.one_of(
    made(m.TextMessage, role=st.sampled_from(["assistant", "user"]), metadata=st.sampled_from([{}, {"model": "x"}])),
    made(m.ReasoningMessage, format=st.sampled_from([None, "summary"])),
    made(m.RefusalMessage),
    made(m.CodeMessage, format=LANGUAGE),
    made(m.Message, type="code", role="computer", format="html"),
    made(m.ConsoleMessage, content=TEXT),
    made(m.ImageMessage, role="computer", format=st.sampled_from(["base64.png", "path", "url"])),
    made(m.FileMessage, role="computer", format="path"),
    made(m.AudioMessage, role="user", format="wav", content=BASE64),
    made(m.ToolCallMessage, name="f", call_id=TEXT, content=st.just('{"a": 1}'), provider_executed=st.booleans()),
    made(m.ToolOutputMessage, name="f", call_id=TEXT),
    made(m.Message, type="hologram", format="x"),
)


def numbered(messages: list[m.Message]) -> list[m.Message]:
    for number, result in enumerate(messages):
        result.id = f"m{number}"
    return messages


def compared(messages: list[m.Message]) -> list[dict[str, Any]]:
    skipped = ("id", "run_id", "step_id")
    return [{k: v for k, v in result.to_dict().items() if k not in skipped} for result in messages]


@given(st.lists(MADE, max_size=6))
def test_exploded_messages_are_the_same_again(messages: list[m.Message]) -> None:
    """With every field that chunks can express."""
    chunks = list(explode(messages))
    story = tell_items(Decoder, chunks)
    assert compared(story.engine.messages.all) == compared(messages)
    assert set(story.codes) <= {"unknown-type"}
    check_brackets(story)


def test_a_console_without_output_survives_where_it_can() -> None:
    """It is stored after a message that is not the computer's."""
    messages: list[m.Message] = [m.CodeMessage("a", format="python", content="x"), m.ConsoleMessage("b", content="")]
    assert compared(tell_items(Decoder, list(explode(messages)), strict=True).engine.messages.all) == compared(messages)


@st.composite
def side_by_side(draw: st.DrawFn) -> list[Any]:
    """Canonical events of messages whose pieces are shuffled among each other."""
    messages = numbered(draw(st.lists(MADE, min_size=1, max_size=4)))
    tracks: list[list[Any]] = []
    for result in messages:
        pieces = [result.content] if result.type in ("audio", "image", "tool_call") else list(result.content)
        deltas = [result.delta_event(result.id, piece) for piece in pieces if piece]
        tracks.append([result.created_event(result), *deltas, result.done_event(result)])
    events: list[Any] = []
    while tracks := [track for track in tracks if track]:
        events.append(draw(st.sampled_from(tracks)).pop(0))
    return events


@pytest.mark.slow
@given(side_by_side())
def test_messages_that_are_open_side_by_side_come_one_after_the_other(events: list[Any]) -> None:
    """Law 8: with all that chunks can express. A text that another message interrupts is two messages; a call has no place
    beside its own code."""
    engine = Engine()
    encoder = Encoder()
    items = [item for event in engine.complete(events) for item in encoder.feed(event)]
    story = tell_items(Decoder, items)
    assert [bool(one.get("start")) for one in items if one.get("start") or one.get("end")] == [
        True,
        False,
    ] * len(story.engine.messages.all)
    code_calls = {one.call_id for one in engine.messages.all if one.type == "code" and one.call_id}

    def others(messages: list[m.Message]) -> list[str]:
        kept = [one for one in messages if one.type != "message" and one.call_id not in code_calls]
        return sorted(json.dumps(result, sort_keys=True) for result in compared(kept))

    def texts(messages: list[m.Message]) -> dict[str | None, list[str]]:
        formats = {one.format for one in messages if one.type == "message"}
        return {
            format: sorted("".join(one.content for one in messages if (one.type, one.format) == ("message", format)))
            for format in formats
        }

    assert others(story.engine.messages.all) == others(engine.messages.all)
    assert texts(story.engine.messages.all) == texts(engine.messages.all)
    assert set(story.codes) <= {"unknown-type"}
    assert story.decoder.complete


def test_a_single_message_is_sent_as_open_interpreter_sends_it() -> None:
    """Start, content, end, and no ids."""
    result = m.CodeMessage("a", format="python", content="x")
    assert list(explode([result])) == [code(start=True), code("x"), code(end=True)]
    assert list(explode([m.ConsoleMessage("a", content="x")])) == [CONSOLE_START, console("x"), CONSOLE_END]
    assert list(explode([m.ReasoningMessage("a", content="x")])) == [
        message(format="reasoning", start=True),
        message("x", format="reasoning"),
        message(format="reasoning", end=True),
    ]


ENDINGS = [("completed", None), ("failed", "boom")]


@pytest.mark.parametrize(("status", "text"), ENDINGS)
def test_how_a_run_ended_comes_back(status: str, text: str | None) -> None:
    """Completed and failed are all that the protocol has."""
    last = COMPLETE if text is None else {"role": "server", "type": "error", "content": text}
    story = tell_items(Decoder, [START, message("a"), END, last])
    again = encoded(story)
    assert again[-1] == last
    assert tell_items(Decoder, again).lines == story.lines


def test_a_broken_stream_becomes_an_error_chunk() -> None:
    """Once, and nothing after it."""
    encoder = Encoder()
    items = [i for event in (StreamException("SourceError", "gone"), StreamEnd("failed")) for i in encoder.feed(event)]
    assert items == [{"role": "server", "type": "error", "content": "gone"}]


@pytest.mark.parametrize("case", CONFIRMATIONS)
def test_confirmations_come_back(case: str) -> None:
    """With the same subject, and as malformed as they were."""
    story = tell_items(Decoder, [code("x", start=True, end=True), confirmation(CONFIRMATIONS[case][0])])
    again = tell_items(Decoder, encoded(story))
    [first], [second] = confirmations(story), confirmations(again)
    assert second.malformed == first.malformed
    assert second.subject.content == first.subject.content


def test_reviews_and_commands_come_back() -> None:
    """Unchanged."""
    items = [chunk(type="review", format="safe", content="ok", start=True, end=True), COMPLETE]
    assert encoded(tell_items(Decoder, items)) == items


# -- the functions


def test_to_input_gives_what_open_interpreter_takes() -> None:
    """Flat dicts without ids; what it would raise on is left out."""
    messages = [
        m.TextMessage("1", role="user", content="hi", metadata={"x": 1}),
        m.ReasoningMessage("2", content="hm"),
        m.CodeMessage("3", format="python", content="x", recipient="user"),
        m.ConsoleMessage("4", content="1"),
        m.ToolCallMessage("5", name="f", content="{}"),
        m.ToolOutputMessage("6", content="1"),
        m.ImageMessage("7", role="computer", format="base64.png", content="AAAA"),
        m.ImageMessage("8", role="computer", format="url", content="https://x"),
        m.RefusalMessage("9", content="no"),
        m.Message("10", type="hologram", content="no"),
    ]
    assert to_input(messages) == [
        {"role": "user", "type": "message", "content": "hi"},
        {"role": "assistant", "type": "code", "format": "python", "recipient": "user", "content": "x"},
        {"role": "computer", "type": "console", "format": "output", "content": "1"},
        {"role": "computer", "type": "image", "format": "base64.png", "content": "AAAA"},
        {"role": "assistant", "type": "message", "content": "no"},
    ]


@given(st.text(max_size=300), st.integers(-5, 300))
def test_truncate_keeps_head_and_tail(text: str, limit: int) -> None:
    """Never longer than the limit, if the count fits; it counts what is missing."""
    shown = truncate(text, limit)
    if len(text) <= limit:
        assert shown == text
        return
    head, _, rest = shown.rpartition(" characters left out]\n")[0].rpartition("\n[")
    tail = shown.rpartition(" characters left out]\n")[2]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert int(rest) == len(text) - len(head) - len(tail)
    assert len(shown) <= max(limit, 40)


RECOGNISED: list[dict[str, Any]] = [
    START,
    message("a"),
    code("x"),
    CONSOLE_START,
    COMPLETE,
    GATE,
    chunk("system", content="x"),
    UNTYPED,
    {"type": "message", "content": "a"},
    {"type": "code", "format": "python", "start": True},
    {"role": None, "type": "console", "end": True},
    {"type": "Confirmation ", "content": CODE},
    {"role": "computer", "type": "confirmation", "content": [CODE]},
    {"role": "computer", "type": "confirmation"},
    {"executing": {"code": "x", "language": "python"}},
]
FOREIGN: list[dict[str, Any]] = [
    {"role": "assistant", "content": "a"},
    {"id": "1", "object": "chat.completion.chunk", "choices": [{"delta": {"role": "assistant", "content": ""}}]},
    {"type": "response.created", "response": {"id": "r"}},
    {"type": "message", "role": "assistant", "id": "msg", "status": "in_progress", "content": []},
    {"type": "message_start", "message": {"role": "assistant", "content": []}},
    {
        "type": "message",
        "role": "assistant",
        "id": "msg",
        "model": "claude",
        "content": [{"type": "text", "text": "a"}],
    },
    {"message_type": "assistant_message", "content": "a"},
    {"type": "text_delta", "message_id": "m", "value": "a"},
    {"type": "text_created", "message": {"role": "assistant", "type": "message"}},
    {"type": "TEXT_MESSAGE_START", "messageId": "1", "role": "assistant"},
    {"role": ["assistant"], "type": "message", "content": "a"},
    {"role": "assistant", "type": 3, "content": "a"},
    {"type": "confirmation_created", "confirmation": {"id": "c", "subject": {"type": "code", "content": "x"}}},
    {"type": "message", "content": "a", "message_type": "assistant_message"},
    {"type": "message", "content": [{"type": "output_text", "text": "a"}], "id": "msg"},
    {"type": "message", "message": {}, "content": "a"},
    {"type": "code", "delta": "a", "item_id": "i", "format": "x"},
    {"type": "image", "source": {"type": "base64", "data": ""}},
    {"type": "file", "file": {"file_id": "f"}},
    {"type": "text", "content": "a"},
    {"executing": True, "message_type": "x"},
]


def test_chunks_are_recognised_and_nothing_else_is() -> None:
    """By a role and a type side by side, or a type that is its own."""
    assert [item for item in RECOGNISED if not Decoder.recognises(item)] == []
    assert [item for item in FOREIGN if Decoder.recognises(item)] == []
    items = [code(start=True), code("x"), GATE, CONSOLE_START, console(1, "active_line"), console("1"), CONSOLE_END]
    lines = tell_items(Decoder, [*items, chunk(type="image", format="path", content="a"), COMPLETE]).lines
    assert [line for line in lines if Decoder.recognises(line)] == []


# -- Open Interpreter 0.1

LEGACY: list[Any] = [
    {"start_of_message": True},
    {"message": "Let me"},
    {"message": " run it."},
    {"end_of_message": True},
    {"start_of_code": True},
    {"language": "python"},
    {"code": "print("},
    {"code": "1)"},
    {"end_of_code": True},
    {"executing": {"code": "print(1)", "language": "python"}},
    {"active_line": 1},
    {"output": "1"},
    {"active_line": None},
    {"end_of_execution": True},
    {"start_of_message": True},
    {"message": "Done."},
    {"end_of_message": True},
]
LEGACY_MESSAGES = [message("Let me run it."), code("print(1)"), console("1"), message("Done.")]


def test_chunks_of_open_interpreter_0_1_are_read_by_their_own_decoder() -> None:
    """With the same messages as today's chunks."""
    story = tell_items(LegacyDecoder, LEGACY, strict=True)
    assert stored(story) == LEGACY_MESSAGES
    assert lines_run(story) == [1, None]
    assert story.types.count("confirmation_created") == 1
    assert story.decoder.complete
    data = b"".join(json.dumps(item).encode() + b"\n" for item in LEGACY)
    assert tell_bytes(LegacyDecoder, [data]).lines == story.lines


def test_older_chunks_without_starts_and_ends_are_read_too() -> None:
    """Each kind ends the one before; language and code may come together."""
    items = [
        {"message": "Let me run it."},
        {"language": "python", "code": "print(1)"},
        {"output": "1"},
        {"message": "Done."},
    ]
    assert stored(tell_items(LegacyDecoder, items, strict=True)) == LEGACY_MESSAGES


LEGACY_KEYS = ["message", "language", "code", "executing", "output", "active_line", "start_of_code", "end_of_message",
               "end_of_execution", "x"]  # fmt: skip


@pytest.mark.slow
@settings(max_examples=36, deadline=None)
@given(q.drawn(q.lists(JSON | q.dictionaries(q.sampled_from(LEGACY_KEYS), JSON, max_size=3), max_size=15)))
def test_no_legacy_chunks_make_the_decoder_fail(items: list[Any]) -> None:
    """Law 7 for the older form."""
    check_brackets(tell_items(LegacyDecoder, items))
