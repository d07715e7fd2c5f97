"""Plain text as a source: pieces of `str`, recognised, and bodies of bytes, with `protocol="text"`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamkit as sk
from streamkit.testing import ModelServer, Reply

from ..faces import Face, Source, body, both_shells, chat, every_face

TEXTS = st.text(min_size=1, max_size=30)


def text_of(source: Any, **options: Any) -> str:
    """The text of the one message that a source becomes; the stream is strict, so nothing is repaired."""
    stream = sk.stream(source, strict=True, **options)
    messages = stream.get_final_messages()
    assert [(message.type, message.role, message.status) for message in messages] == [
        ("message", "assistant", "completed")
    ]
    assert stream.status == "completed"
    return messages[0].content


def cut(text: Any, places: Iterable[int]) -> list[Any]:
    """The text, or bytes, in pieces, of which some may be empty."""
    ends = [*sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


# -- str


@pytest.mark.parametrize(
    "pieces",
    [
        ["Hello ", "world"],
        ["H", "ello"],
        ["", "34/24 is", "", " 1.417."],
        ["id", "eas"],
        ["data"],
        ["\n\n", "  Hello"],
        ["<!doctype html>"],
        ["note: this is text"],
        [" " * 2000, "x"],
    ],
    ids=repr,
)
def test_pieces_of_str_are_plain_text_where_they_begin_as_no_protocol_does(pieces: list[str]) -> None:
    assert text_of(pieces) == "".join(pieces)
    assert text_of(iter(pieces)) == "".join(pieces)


@pytest.mark.parametrize("start", ["data: x", "event", ": x", "{", "[", "id: 1\n"])
def test_what_begins_as_a_protocol_does_is_plain_text_by_name_alone(start: str) -> None:
    for source in ([start, "\n\ny"], iter([start, "\n\ny"])):
        with pytest.raises(sk.StreamkitError, match="plain text"):
            sk.stream(source).until_done()
    assert text_of([start, "\n\ny"], protocol="text") == start + "\n\ny"


@pytest.mark.parametrize("lines", [True, False])
def test_str_of_another_protocol_is_that_protocols(lines: bool) -> None:
    with ModelServer(Reply("Hello there.")) as server, httpx.Client() as client:
        request = {"model": "m", "input": "Hi", "stream": True}
        with client.stream("POST", f"{server.url}/responses", json=request) as response:
            items = response.iter_lines() if lines else response.iter_text(3)
            assert sk.stream(items).get_final_text() == "Hello there."


@given(TEXTS, st.lists(st.integers(0, 100), max_size=5))
def test_no_character_is_lost_however_text_is_cut(text: str, places: list[int]) -> None:
    """Of bytes, also in the middle of a character. A byte order mark at their beginning is none."""
    assert text_of(cut(text, places), protocol="text") == text
    without_mark = text.removeprefix("\ufeff")
    if without_mark:
        pieces = cut(text.encode(), places)
        assert text_of(pieces, protocol="text") == without_mark
        assert text_of(iter(pieces), protocol="text") == without_mark


@given(st.binary(min_size=1, max_size=30), st.lists(st.integers(0, 100), max_size=5))
def test_bytes_that_are_no_characters_are_replaced_alike_however_they_are_cut(data: bytes, places: list[int]) -> None:
    expected = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    if expected:
        assert text_of(cut(data, places), protocol="text") == expected


def test_halves_of_a_character_in_two_pieces_are_one_and_a_half_alone_is_replaced() -> None:
    assert text_of(["\ud83d", "\ude00 there"]) == "😀 there"
    stream = sk.stream(["Hello \ud83d", "there"])
    assert stream.get_final_text() == "Hello \ufffdthere"
    assert [warning.code for warning in stream.warnings] == ["lone-surrogate"]


def test_a_source_without_any_text_is_complete_where_it_is_named() -> None:
    for source in ([], [""], [b""], b""):
        stream = sk.stream(source, protocol="text")
        assert stream.get_final_messages() == []
        assert stream.status == "completed"


def test_items_that_are_no_text_are_passed_over() -> None:
    stream = sk.stream([{"text": "Hello"}, {"text": 1}, {}, 17, None], protocol="text")
    assert stream.get_final_text() == "Hello"
    assert [warning.code for warning in stream.warnings] == ["bad-text", "bad-text", "not-an-object", "not-an-object"]


# -- as any stream


@both_shells
@body
async def test_every_face_reads_it_in_the_same_way(face: Face) -> None:
    """Also a list, and a source that is opened lazily."""
    for source in (face.generator_of(["id", "eas ", "last"]), ["id", "eas ", "last"], lambda: iter(["ideas ", "last"])):
        told = face.told()
        stream = face.stream(source, told, strict=True)
        assert await stream.get_final_text() == "ideas last"
        told.check_brackets()
        assert told.hooks.count("on_text_created") == told.hooks.count("on_run_step_created") == 1
        assert "".join(delta.value for delta in told.of("on_text_delta")) == "ideas last"


@both_shells
@body
async def test_a_context_manager_may_give_it(face: Face) -> None:
    if face.is_async:

        @asynccontextmanager
        async def opened() -> AsyncIterator[Any]:
            yield face.generator_of(["Hello ", "there."])
    else:

        @contextmanager  # type: ignore[arg-type]
        def opened() -> Iterator[Any]:  # type: ignore[misc]
            yield iter(["Hello ", "there."])

    assert await face.stream(opened()).get_final_text() == "Hello there."


@both_shells
@body
async def test_a_source_that_fails_keeps_what_came(face: Face) -> None:
    stream = face.stream(face.generator_of(["Hello ", "the"], error=OSError("gone")))
    with pytest.raises(sk.SourceError, match="gone") as raised:
        await stream.until_done()
    assert [(message.content, message.status) for message in raised.value.messages] == [("Hello the", "failed")]


@every_face
@body
async def test_closing_it_closes_the_source(face: Face) -> None:
    source = Source(["Hello "] * 100)
    stream = face.stream(face.generator(source))
    async for _ in stream.text_deltas:
        break
    await stream.close()
    assert source.closed
    assert stream.status == "cancelled"


@pytest.mark.parametrize(
    "pieces", [["Hello ", "", "\ud83d", "\ude00"], [b"Hello \xf0\x9f", b"\x98\x80"]], ids=["str", "bytes"]
)
def test_a_recording_replays_it(pieces: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    sk.stream(pieces, sk.Recorder(path), protocol="text").until_done()
    assert text_of(path) == "Hello 😀"


def test_it_may_follow_another_source_and_have_a_tag_for_reasoning() -> None:
    stream = sk.stream(["<thi", "nk>Hm.</think>", "Yes."], reasoning_tag="think")
    assert [(message.type, message.content) for message in stream.get_final_messages()] == [
        ("reasoning", "Hm."),
        ("message", "Yes."),
    ]
    stream = sk.stream(iter(chat("Chat.")), strict=True)
    assert stream.get_final_text() == "Chat."


def test_it_goes_out_as_another_protocol() -> None:
    chunks = [*sk.stream(["Hello ", "there."]).chunks("open_interpreter")]
    assert "".join(chunk.get("content", "") for chunk in chunks) == "Hello there."


# -- a response of `text/plain`


class _Plain(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/plain; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in cut("data: is what a day is: 😀".encode(), [3, 24, 27]):
            if piece:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def plain_url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Plain) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@both_shells
@body
async def test_a_response_of_plain_text_is_read_by_name(face: Face, plain_url: str) -> None:
    if face.is_async:
        async with httpx.AsyncClient() as client, client.stream("GET", plain_url) as response:
            text = await face.stream(response, protocol="text", strict=True).get_final_text()
    else:
        with httpx.Client() as sync_client, sync_client.stream("GET", plain_url) as sync_response:  # noqa: ASYNC212  # without an event loop
            text = await face.stream(sync_response, protocol="text", strict=True).get_final_text()
    assert text == "data: is what a day is: 😀"


def test_a_file_of_plain_text_is_read_by_name(tmp_path: Path) -> None:
    path = tmp_path / "answer.txt"
    path.write_text("[1] Hello\nthere.\n", "utf-8")
    assert text_of(path, protocol="text") == "[1] Hello\nthere.\n"
    with path.open("rb") as file:
        assert text_of(file, protocol="text") == "[1] Hello\nthere.\n"
    with path.open(encoding="utf-8") as text_file:
        assert text_of(text_file, protocol="text") == "[1] Hello\nthere.\n"
