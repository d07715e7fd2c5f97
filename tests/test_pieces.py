"""Text and bytes that come in pieces or in lines: the same body either way."""

from __future__ import annotations

import json
from typing import Any

import httpx
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamkit as sk
from streamkit.sources.body import BodyJoiner
from streamkit.testing import ModelServer, Reply

from .costs import assert_costs, seconds_of
from .faces import FACES, Face, body, chat, every_pair
from .recorded import each_recording, in_a_loop

SAID = 'A {brace}, a "quote", a back\\slash, data: and event: é \U0001f600'
CHUNKS = chat(*SAID.split(" "))
JSON = [json.dumps(chunk, ensure_ascii=False) for chunk in CHUNKS]

BODIES = {
    "sse": "".join(f"data: {line}\n\n" for line in JSON) + "data: [DONE]\n\n",
    "sse with names": "".join(f"event: chunk\ndata: {line}\n\n" for line in JSON),
    "sse with ids": "".join(f"id: {n}\nevent: chunk\ndata: {line}\n\n" for n, line in enumerate(JSON)),
    "sse, names last": "".join(f"data: {line}\nevent: chunk\n\n" for line in JSON),
    "sse after comments": ": ping\n\n: ping\n\nretry: 5\n\n" + "".join(f"data:{line}\n\n" for line in JSON),
    "sse with keepalives": "data:\n\n" + "".join(f"data: {line}\n\n: ping\n\n" for line in JSON),
    "sse, CRLF": "".join(f"data: {line}\r\n\r\n" for line in JSON),
    "sse, CR": "".join(f"data: {line}\r\r" for line in JSON),
    "sse with a byte order mark": "\ufeff" + "".join(f"data: {line}\n\n" for line in JSON),
    "sse in two lines": "".join("data: " + line.replace(', "model"', ',\ndata: "model"') + "\n\n" for line in JSON),
    "ndjson": "".join(f"{line}\n" for line in JSON),
    "ndjson, CRLF": "".join(f"{line}\r\n" for line in JSON),
    "ndjson with blank lines": "\n" + "".join(f"{line}\n\n" for line in JSON),
    "ndjson with spaces": "".join(f"  {line}  \n" for line in JSON),
    "ndjson without its last newline": "\n".join(JSON),
    "ndjson of one line": json.dumps({**CHUNKS[1], "choices": [{**CHUNKS[1]["choices"][0], "finish_reason": "stop"}]}),
}


def story(source: Any) -> tuple[Any, ...]:
    """All that a stream told: its messages, and what it warned of."""
    stream = sk.stream(source, protocol="openai_chat")
    try:
        stream.until_done()
    except sk.IncompleteStreamError as error:
        return ("incomplete", str(error))
    return [m.to_dict() for m in stream.messages], [w.code for w in stream.warnings], stream.status


def cut(text: Any, places: list[int]) -> list[Any]:
    ends = sorted(place % (len(text) + 1) for place in places)
    return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True) if a < b]


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
def test_text_cut_once_anywhere_tells_what_its_bytes_tell(name: str) -> None:
    """At each of the first places, and at one of seven later on. `test_recorded_streams` cuts bytes."""
    text = BODIES[name]
    data = text.encode()
    told = story(data)
    assert told[-1] == "completed"
    for place in (*range(1, min(len(text), 120)), *range(120, min(len(text), 600), 7)):
        assert story(iter([text[:place], text[place:]])) == told, place


@pytest.mark.parametrize("name", BODIES)
def test_text_in_single_characters_tells_what_its_bytes_tell(name: str) -> None:
    """The finest cut."""
    text = BODIES[name]
    assert story(iter(text)) == story([*text]) == story(text.encode())


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
@given(places=st.lists(st.integers(0, 1 << 20), max_size=40))
@settings(max_examples=30)
def test_text_cut_anywhere_tells_what_its_bytes_tell(name: str, places: list[int]) -> None:
    """In any number of pieces."""
    text = BODIES[name]
    assert story(iter(cut(text, places))) == story(text.encode())


@pytest.mark.parametrize("name", [name for name in BODIES if name != "sse in two lines"])
@pytest.mark.parametrize("kind", [str, bytes])
def test_lines_without_their_ends_tell_what_their_body_tells(name: str, kind: type) -> None:
    """As `iter_lines` gives them, and websockets."""
    text = BODIES[name]
    lines: list[Any] = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    given = lines if kind is str else [line.encode() for line in lines]
    assert story(iter(given)) == story(given) == story(text.encode())


@pytest.mark.parametrize("name", BODIES)
def test_lines_with_their_ends_tell_what_their_body_tells(name: str) -> None:
    """As a file gives them."""
    lines = BODIES[name].splitlines(keepends=True)
    assert story(iter(lines)) == story(BODIES[name].encode())


def test_each_line_is_told_before_the_next_is_pulled() -> None:
    """An object is told when it is all there; an SSE event when its blank line is."""
    for lines in (JSON, [line for data in JSON for line in (f"data: {data}", "")]):
        given: list[str] = []

        def items(lines: list[str] = lines, given: list[str] = given) -> Any:
            for line in lines:
                given.append(line)
                yield line

        for event in sk.stream(items(), protocol="openai_chat"):
            if event.type == "text_delta":
                assert event.value in json.loads(next(line for line in reversed(given) if line).removeprefix("data: "))[
                    "choices"
                ][0]["delta"].get("content", "")


@each_recording("openai-chat", "openai-responses", one_of=3)
def test_recorded_text_tells_what_its_bytes_tell(path: Any) -> None:
    """As pieces of 7 and as lines."""
    data = path.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return  # it is no text

    def told(source: Any) -> Any:
        stream = sk.stream(source)
        try:
            stream.until_done()
        except sk.StreamkitError as error:
            return [m.to_dict() for m in stream.messages], type(error), str(error)[:40]
        return [m.to_dict() for m in stream.messages], [w.code for w in stream.warnings]

    whole = told(data)
    assert told(text[place : place + 7] for place in range(0, len(text), 7)) == whole
    lines = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    if len(data) == len(text) or "\u2028" not in text:
        assert told(iter(lines))[0] == whole[0]


@every_pair
@pytest.mark.parametrize("face", [FACES["sync"], FACES["asyncio"]], ids=["sync", "asyncio"])
@pytest.mark.parametrize("library", [httpx, httpx2])
@pytest.mark.parametrize("way", ["iter_lines", "iter_text", "iter_bytes"])
@body
async def test_a_clients_lines_and_pieces_are_sources(face: Face, library: Any, way: str) -> None:
    """Over HTTP, of httpx and httpx2. (They leave their inner generators to the garbage collector; trio warns of it.)"""
    with ModelServer(Reply("Hello {there}")) as server:
        options: Any = {"json": {"model": "m", "messages": [], "stream": True}}
        url = server.url + "/chat/completions"
        if face.is_async:
            async with library.AsyncClient() as client, client.stream("POST", url, **options) as response:
                assert await face.stream(getattr(response, "a" + way)()).get_final_text() == "Hello {there}"
        else:
            with library.Client() as client, client.stream("POST", url, **options) as response:
                assert await face.stream(getattr(response, way)()).get_final_text() == "Hello {there}"


def test_data_that_is_no_json_may_be_cut_before_a_colon() -> None:
    """What follows is no comment on a line of its own."""
    pieces = BodyJoiner()
    cut = [b'data:({"a": "', b'b"', b": 1}", b"}\n\n"]
    assert b"".join(map(pieces.feed, cut)) == b"".join(cut)


def test_a_long_first_line_is_joined_in_linear_time() -> None:
    """Each piece is looked at once."""

    def cost(size: int) -> float:
        pieces = BodyJoiner()

        def feed_all() -> None:
            for _ in range(size):
                pieces.feed(b'{"}"}')

        return seconds_of(feed_all)

    cost(1000)
    assert_costs(lambda: cost(40_000), 25, lambda: cost(4_000))


@in_a_loop("place", range(1, 40))
@pytest.mark.parametrize("name", sorted(BODIES))
def test_empty_pieces_mean_nothing(name: str, place: int) -> None:
    """They are blank lines only among lines."""
    data = BODIES[name].encode()
    assert story(iter([data[:place], b"", b"", data[place:]])) == story(data)


@pytest.mark.parametrize("name", sorted(BODIES))
def test_an_empty_piece_at_the_end_of_an_object_means_nothing(name: str) -> None:
    """Among lines it would be a blank line, which ends an event. Whatever the next piece has."""
    data = BODIES[name].encode()
    told = story(data)
    end = data.index(b"}]}") + 3
    for place in (end - 1, end, end + 1):
        for size in range(1, 9):
            assert story(iter([data[:place], b"", data[place : place + size], data[place + size :]])) == told, size


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize(
    "first",
    [
        ": ping - 2026-11-22 09:20:21\n\n",
        ":\n\n",
        ": a: b: c\n\n",
        "id: 2026-11-22T09:20:21\n",
        "event: a:b\n",
        "retry: 5\n",
    ],
)
def test_a_first_line_with_colons_is_the_same_however_it_is_cut(first: str, size: int) -> None:
    """A piece that begins with a colon begins no line."""
    text = first + BODIES["sse"]
    pieces = [text[n : n + size] for n in range(0, len(text), size)]
    assert story(iter(pieces)) == story([text.encode()])


@pytest.mark.parametrize("size", [5, 20, 24])
def test_a_damaged_first_line_is_the_same_however_it_is_cut(size: int) -> None:
    """An object that closes before the line ends is no complete line, so the piece after it begins none."""
    text = 'data: {"message_type": "pi"}, "steps": 4, "run_id": "run-1"}\n'
    pieces = [text[n : n + size] for n in range(0, len(text), size)]
    assert story(iter(pieces)) == story([text.encode()])


def test_lines_that_begin_with_comments_are_joined() -> None:
    """Without their ends: the first field after them shows that they are lines."""
    lines = [": ping - 2026-11-22 09:20:21", "", ":", ": ping", *BODIES["sse"].splitlines()]
    assert story(iter(lines)) == story([BODIES["sse"].encode()])


# -- ids: those of the wire, and those that a decoder makes for what has none, of which it reads a whole chunk at once


def _response(*items: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(item["type"], item) for item in items]


_THREAD_MESSAGE = {"id": "message-1", "role": "assistant", "content": [{"type": "text", "text": {"value": "a"}}]}
_THREAD_DELTA = {"delta": {"content": [{"index": 0, "type": "text", "text": {"value": "b"}}]}}
WITHOUT_AN_ID = {
    "ag_ui": _response(
        {"type": "TEXT_MESSAGE_START", "messageId": "message-1", "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "message-1", "delta": "a"},
        {"type": "TEXT_MESSAGE_CONTENT", "delta": "b"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "message-1", "delta": "c"},
    ),
    "vercel_ui": _response(
        {"type": "text-start", "id": "message-1"},
        {"type": "text-delta", "id": "message-1", "delta": "a"},
        {"type": "text-delta", "delta": "b"},
        {"type": "text-delta", "id": "message-1", "delta": "c"},
    ),
    "openai_responses": _response(
        {"type": "response.output_item.added", "output_index": 0, "item": {"id": "message-1", "type": "message"}},
        {"type": "response.output_text.delta", "item_id": "message-1", "output_index": 0, "delta": "a"},
        {"type": "response.output_item.added", "output_index": 1, "item": {"type": "function_call", "name": "f"}},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "b"},
        {"type": "response.output_text.delta", "item_id": "message-1", "output_index": 0, "delta": "c"},
    ),
    "openai_assistants": [
        ("thread.message.created", {**_THREAD_MESSAGE, "content": []}),
        ("thread.message.completed", _THREAD_MESSAGE),
        ("thread.message.delta", _THREAD_DELTA),
        ("thread.message.completed", _THREAD_MESSAGE),
    ],
    "letta": [
        ("", {"message_type": "assistant_message", "id": "message-1", "content": "a"}),
        ("", {"message_type": "reasoning_message", "reasoning": "b"}),
        ("", {"message_type": "assistant_message", "id": "message-1", "content": "c"}),
    ],
}


@pytest.mark.parametrize("protocol", WITHOUT_AN_ID)
def test_an_id_that_is_made_is_none_of_the_same_chunk(protocol: str) -> None:
    """What has no id gets one of its own: its text is never added to the message whose id looks like ours."""
    frames = [f"event: {name}\ndata: {json.dumps(item)}\n\n".encode() for name, item in WITHOUT_AN_ID[protocol]]
    stories: list[Any] = []
    for source in (frames, [b"".join(frames)]):
        stream = sk.stream(source, protocol=protocol)
        with pytest.raises(sk.IncompleteStreamError):
            stream.until_done()
        stories.append([(message.id, message.content) for message in stream.messages])
    assert stories[0] == stories[1]
    assert stories[0][1] == ("message-1.2", "b")
