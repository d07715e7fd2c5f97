"""`timeouts=`: they are about content, so that no ping extends them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anyio
import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reply

from .faces import Face, ask, body, chat, every_face


def event(item: Any) -> bytes:
    return b"data: " + json.dumps(item).encode() + b"\n\n"


FIRST, HELLO, *_ = map(event, chat("Hello"))
PINGS = {
    "comments": b": ping\n\n",
    "empty data": b"data:\n\n",
    "events": b'event: ping\ndata: {"type": "ping"}\n\n',
    "chunks without content": event({**chat()[0], "choices": []}),
    "half a line": b":",
    "silence": b"",
}


@contextmanager
def serving(*sent: bytes, ping: bytes, before_headers: bool = False) -> Iterator[str]:
    """A server that sends these, and then pings until the client leaves. Gives its URL."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            if before_headers:
                over.wait(10)
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            try:
                for piece in sent:
                    self.wfile.write(piece)
                while not over.wait(0.02):
                    self.wfile.write(ping)
            except OSError:
                pass  # the client left

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            over.set()
            server.shutdown()
            thread.join()


async def raised_by(stream: Any) -> Any:
    with pytest.raises(sk.SourceTimeoutError) as caught:
        await stream.until_done()
    return caught.value


@every_face
@pytest.mark.parametrize("kind", PINGS)
@body
async def test_a_server_that_only_pings_does_not_extend_them(face: Face, kind: str) -> None:
    """By the real client, whose own timeout never fires. What came before stays, and every handler is told."""
    with serving(FIRST + HELLO, ping=PINGS[kind]) as url:
        async with face.client(url, timeout=60) as client:
            told = face.told()
            stream = face.stream(ask(client), told, timeouts=sk.Timeouts(first=30, idle=0.15), protocol="openai_chat")
            error = await raised_by(stream)
    assert str(error) == "no content came within 0.15 seconds (`Timeouts.idle`)"
    assert [message.content for message in error.messages] == ["Hello"]
    assert told.hooks[-3:] == ["on_timeout", "on_exception", "on_end"]
    told.check_brackets()


@every_face
@pytest.mark.parametrize("before_headers", [False, True], ids=["pings", "no response"])
@body
async def test_the_first_content_has_its_own_time(face: Face, before_headers: bool) -> None:
    """From sending the request on, before there is a response."""
    with serving(ping=PINGS["comments"], before_headers=before_headers) as url:
        async with face.client(url, timeout=60) as client:
            error = await raised_by(face.stream(ask(client), timeouts=sk.Timeouts(first=0.15, idle=30)))
    assert "within 0.15 seconds (`Timeouts.first`)" in str(error)


@every_face
@body
async def test_content_does_not_extend_the_total(face: Face) -> None:
    with serving(FIRST, ping=HELLO) as url:
        async with face.client(url, timeout=60) as client:
            error = await raised_by(face.stream(ask(client), timeouts=sk.Timeouts(total=1.5, idle=30)))
    assert str(error) == "the source did not end within 1.5 seconds (`Timeouts.total`)"
    assert error.messages[0].content.startswith("Hello")


@every_face
@body
async def test_hooks_and_answers_take_none_of_the_time(face: Face) -> None:
    """Nor does the loop over the events."""
    told = face.told(on_text_created=lambda *_: time.sleep(1.2))
    with ModelServer([Reply("a", "b", "c")]) as server:
        async with face.client(server) as client:
            stream = face.stream(ask(client), told, timeouts=sk.Timeouts(first=20, idle=1, total=20))
            await stream.until_done()
    assert [message.content for message in stream.messages] == ["abc"]


@every_face
@body
async def test_each_source_of_a_run_has_its_own_times(face: Face) -> None:
    """The second one waits for its first content again."""

    class Responds(sk.EventHandler):
        def on_tool_call_done(self, call: Any) -> None:
            call.respond("22")

    from streamkit.testing import ToolCall

    with ModelServer([Reply(ToolCall("f", {})), Reply("It is 22.", first_delay=1.2)]) as server:
        async with face.client(server) as client:
            asks = iter([ask(client)])
            stream = face.stream(
                ask(client),
                Responds(),
                then=lambda stream: next(asks),
                timeouts=sk.Timeouts(first=20, idle=1, total=20),
            )
            assert (await stream.get_final_text()) == "It is 22."


def test_a_stream_that_ended_leaves_no_thread() -> None:
    with (
        ModelServer([Reply("Hello")]) as server,
        __import__("openai").OpenAI(base_url=server.url, api_key="any") as client,
    ):
        sk.stream(ask(client), timeouts=sk.Timeouts(idle=1000)).until_done()
    for thread in threading.enumerate():
        if thread.name == "streamkit-timeouts":
            thread.join(10)
            assert not thread.is_alive()


def test_a_wait_that_nothing_can_stop_is_noticed_when_it_ends() -> None:
    """What it gives is delivered; the next wait does not begin."""

    def slow() -> Iterator[Any]:
        yield from chat("a", finish=None)
        time.sleep(0.2)
        yield {**chat()[0], "choices": []}
        yield from chat("b")

    stream = sk.stream(slow(), timeouts=sk.Timeouts(idle=0.1))
    with pytest.raises(sk.SourceTimeoutError):
        stream.until_done()
    assert [message.content for message in stream.messages] == ["a"]


@pytest.mark.anyio
async def test_an_async_producer_that_is_silent_is_stopped() -> None:
    ended = []

    async def silent() -> AsyncIterator[Any]:
        try:
            for chunk in chat("a", finish=None):
                yield chunk
            await anyio.sleep(60)
        finally:
            ended.append(True)

    with pytest.raises(sk.SourceTimeoutError, match="idle"):
        await sk.astream(silent(), timeouts=sk.Timeouts(idle=0.1)).until_done()
    assert ended == [True]


@pytest.mark.anyio
async def test_a_sync_source_of_an_async_stream_is_stopped() -> None:
    with serving(FIRST + HELLO, ping=PINGS["comments"]) as url:
        import openai

        with openai.OpenAI(base_url=url, api_key="any", timeout=60, max_retries=0) as client:
            stream = sk.astream(ask(client), timeouts=sk.Timeouts(idle=0.15))
            with pytest.raises(sk.SourceTimeoutError, match="idle"):
                await stream.until_done()
    assert [message.content for message in stream.messages] == ["Hello"]


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), "1", True])
@pytest.mark.parametrize("name", ["first", "idle", "total"])
def test_a_timeout_is_a_number_of_seconds(name: str, value: Any) -> None:
    with pytest.raises(sk.UsageError, match=rf"Timeouts\.{name} is a number of seconds above 0"):
        sk.Timeouts(**{name: value})
    with pytest.raises(sk.UsageError, match="`timeouts` is a `Timeouts`"):
        sk.stream([], timeouts=5)  # type: ignore[arg-type]


@every_face
@body
async def test_what_comes_before_the_cursor_is_no_content(face: Face) -> None:
    """The source gives again what the stream had before it was resumed, and then nothing."""
    with serving(b"id: 1\n" + FIRST, b"id: 2\n" + HELLO, ping=PINGS["comments"]) as url:
        async with face.client(url, timeout=60) as client:
            error = await raised_by(face.stream(ask(client), after="2", timeouts=sk.Timeouts(first=0.3, idle=3)))
    assert "within 0.3 seconds (`Timeouts.first`)" in str(error)
