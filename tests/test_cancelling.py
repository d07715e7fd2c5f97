"""`cancel()` from another thread, while the stream's own thread waits for the network: before an answer's head, inside
a producer of the caller's, and in `then=`."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import httpx2
import openai
import pytest

import streamkit as sk
from streamkit.sources.interrupt import Interruptible, Stopped
from streamkit.testing import ModelServer, Reply

from .faces import Face, SyncTold, async_faces, body, calls, chat, every_face, sync_face

ROOT = Path(__file__).resolve().parents[1]
SOON = 2.0  # seconds that a stream may take to end after it was cancelled


class Silent:
    """A server that takes requests and says nothing, or `says` something first. `requests` counts them."""

    def __init__(self, says: bytes = b"") -> None:
        self.says = says
        self.requests = 0
        self.asked, self.left = threading.Event(), threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *raised: object) -> None:
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := connection.recv(65536):
                self.requests += data.count(b" HTTP/1.1\r\n")
                connection.sendall(self.says)
                self.asked.set()
            self.left.set()


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def openai_of(server: Any, **options: Any) -> openai.OpenAI:
    """The real client, which tries again where a request fails."""
    return openai.OpenAI(base_url=server.url, api_key="any", **options)


def ask_openai(server: Any, keep: contextlib.ExitStack) -> Any:
    client = keep.enter_context(openai_of(server))
    return lambda: client.responses.create(model="m", input="Hello", stream=True)


def ask_openai_chat(server: Any, keep: contextlib.ExitStack) -> Any:
    client = keep.enter_context(openai_of(server))
    return client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "Hello"}])


def ask_anthropic(server: Any, keep: contextlib.ExitStack) -> Any:
    anthropic = pytest.importorskip("anthropic")
    client = keep.enter_context(anthropic.Anthropic(base_url=server.url, api_key="any"))
    messages = [{"role": "user", "content": "Hello"}]
    return lambda: client.messages.create(model="m", max_tokens=9, messages=messages, stream=True)


def ask_httpx(server: Any, keep: contextlib.ExitStack) -> Any:
    client = keep.enter_context(httpx.Client(timeout=None))
    return client.stream("POST", server.url, json={})


def ask_httpx2(server: Any, keep: contextlib.ExitStack) -> Any:
    client = keep.enter_context(httpx2.Client(timeout=None))
    return client.stream("POST", server.url, json={})


def ask_http_client(server: Any, keep: contextlib.ExitStack) -> Any:
    """The standard library's, as urllib and requests use it."""

    def lines() -> Iterator[bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        with contextlib.closing(connection):
            connection.request("POST", "/v1", b"{}")
            yield from connection.getresponse()

    return lines


ASKING = [ask_openai, ask_openai_chat, ask_anthropic, ask_httpx, ask_httpx2, ask_http_client]


def stop_when(event: threading.Event, stream: Any) -> Callable[[], None]:
    """Cancels from another thread, and notes the time that this took and when it was."""

    def stop() -> None:
        assert event.wait(5)
        time.sleep(0.05)  # the client is now about to wait, or waits
        began = time.monotonic()
        stream.cancel()
        stop.at = time.monotonic()  # type: ignore[attr-defined]
        stop.took = stop.at - began  # type: ignore[attr-defined]

    return stop


@sync_face
@pytest.mark.parametrize("asking", ASKING)
@pytest.mark.parametrize("way", ["with", "until_done", "iterate"])
@body
async def test_cancel_ends_a_wait_for_the_answers_head_on_the_sync_face(
    face: Face, asking: Callable[..., Any], way: str
) -> None:
    """At once, and without another try of the client's; the server sees it leave."""
    with Silent() as server, contextlib.ExitStack() as keep:
        told = face.told()
        stream = face.stream(asking(server, keep), told)
        stop = stop_when(server.asked, stream)
        async with face.beside(stop):
            if way == "with":
                async with stream:
                    assert await stream.get_final_messages() == []
            elif way == "until_done":
                await stream.until_done()
            else:
                assert [event.type async for event in stream] == []
        assert time.monotonic() - stop.at < SOON  # type: ignore[attr-defined]
        assert stop.took < SOON / 2  # type: ignore[attr-defined]
        assert server.left.wait(5)
        assert server.requests == 1
        assert told.hooks == ["on_end"]
        assert stream.status == "cancelled"


@sync_face
@body
async def test_a_client_works_on_after_a_request_was_cancelled(face: Face) -> None:
    """Its pool of connections has lost one, and nothing else."""
    with Silent() as silent, ModelServer(Reply("Hello")) as server, openai_of(silent) as client:
        for _ in range(5):
            silent.asked.clear()
            stream = face.stream(lambda: client.responses.create(model="m", input="Hello", stream=True))
            async with face.beside(stop_when(silent.asked, stream)):
                await stream.until_done()
        assert silent.requests == 5
        client.base_url = server.url
        again = face.stream(lambda: client.responses.create(model="m", input="Hello", stream=True))
        assert await again.get_final_text() == "Hello"


@every_face
@body
async def test_cancel_ends_a_producer_that_waits_for_the_network(face: Face) -> None:
    """A generator of the caller's, over a client: its `finally` has run when the stream has ended."""
    closed = threading.Event()
    with Silent(HEAD) as server, httpx.Client(timeout=None) as client:

        def items() -> Iterator[Any]:
            try:
                yield from chat("Hel", finish=None)
                with client.stream("POST", server.url) as response:
                    yield from map(json.loads, response.iter_lines())
            finally:
                closed.set()

        told = face.told()
        stream = face.stream(items(), told)
        stop = stop_when(server.asked, stream)
        async with face.beside(stop):
            assert await stream.get_final_text() == "Hel"
        assert time.monotonic() - stop.at < SOON  # type: ignore[attr-defined]
        assert await face.in_thread(lambda: server.left.wait(5) and closed.wait(5))
        told.check_brackets()
        assert stream.status == "cancelled"


@sync_face
@body
async def test_cancel_ends_a_wait_in_then(face: Face) -> None:
    """The next source's request is one as any other."""
    with Silent() as server, contextlib.ExitStack() as keep:
        told = face.told(on_tool_call_done=lambda _, call: call.respond("ok"))
        stream = face.stream(calls("one"), told, then=lambda _: ask_openai(server, keep)())
        async with face.beside(stop_when(server.asked, stream)):
            await stream.until_done()
        assert server.left.wait(5)
        assert [m.type for m in stream.messages] == ["tool_call", "tool_output"]
        told.check_brackets()


@sync_face
@body
async def test_a_cancel_that_comes_before_the_wait_is_not_lost(face: Face) -> None:
    """The callable is still busy with something else; what it waits for afterwards is ended."""
    busy = threading.Event()
    with Silent() as server, httpx.Client(timeout=None) as client:

        def ask() -> Any:
            busy.set()
            deadline = time.monotonic() + 0.3
            while time.monotonic() < deadline:
                sum(range(1000))
            return client.post(server.url)

        stream = face.stream(ask)
        async with face.beside(stop_when(busy, stream)):
            await stream.until_done()
        assert stream.status == "cancelled"


@sync_face
@body
async def test_other_waits_end_when_they_end(face: Face) -> None:
    """What is no wait for the network is not broken; its result is closed, and not told."""
    busy, free, closed = threading.Event(), threading.Event(), []

    class Items:
        def __iter__(self) -> Iterator[Any]:
            return iter(chat("Hello"))

        def close(self) -> None:
            closed.append(1)

    def ask() -> Any:
        busy.set()
        assert free.wait(5)
        return Items()

    told = SyncTold()
    stream = face.stream(ask, told)
    stop = stop_when(busy, stream)

    def stop_and_free() -> None:
        stop()
        free.set()

    async with face.beside(stop_and_free):
        await stream.until_done()
    assert told.hooks == ["on_end"]
    assert closed == [1]


@sync_face
@body
async def test_a_hook_that_waits_for_the_network_is_not_broken(face: Face) -> None:
    """`cancel` ends the stream, not what a handler does."""
    done: list[str] = []
    with ModelServer(Reply("Hello", first_delay=0.3)) as server:

        def fetch(told: Any, *_: Any) -> None:
            threading.Timer(0.1, told.stream.cancel).start()
            with openai_of(server) as client:
                done.append(client.responses.create(model="m", input="Hello").output_text)

        stream = face.stream(iter(chat("Hi")), face.told(on_text_created=fetch))
        await stream.until_done()
    assert done == ["Hello"]
    assert stream.status == "cancelled"


def test_a_signal_handler_may_cancel() -> None:
    """In the very thread that waits."""
    with Silent() as server, httpx.Client(timeout=None) as client:
        stream = sk.stream(client.stream("POST", server.url))
        before = signal.signal(signal.SIGUSR1, lambda *_: stream.cancel())
        try:
            main = threading.main_thread().ident
            assert main is not None
            threading.Thread(target=lambda: server.asked.wait(5) and signal.pthread_kill(main, signal.SIGUSR1)).start()
            stream.until_done()
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert stream.status == "cancelled"


def test_a_stopped_call_stops_the_next_ones() -> None:
    """And nothing of it is left in the thread."""
    calls = Interruptible()
    assert calls.call(divmod, 7, 2) == (3, 1)
    calls.stop()
    calls.stop()
    for _ in range(3):
        with pytest.raises(Stopped):
            calls.call(divmod, 7, 2)


@pytest.mark.slow
def test_calls_that_are_stopped_at_any_moment_end() -> None:
    """A thread reads from a connection and does other things, in turn; it is stopped in a read, each time."""
    for number in range(40):
        ours, theirs = socket.socketpair()
        with ours, theirs, ours.makefile("rb") as file:
            interruptible, ended = Interruptible(), []

            def work(file: Any = file, theirs: socket.socket = theirs, ended: list[Any] = ended) -> None:
                while True:
                    theirs.sendall(b"x\n")
                    ended.append(file.readline())

            def run(interruptible: Interruptible = interruptible, ended: list[Any] = ended) -> None:
                try:
                    interruptible.call(work)
                except (Stopped, OSError) as error:
                    ended.append(type(error))
                for _ in range(100):
                    time.sleep(0)  # nothing is raised here any more

            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            time.sleep(number / 20_000)
            interruptible.stop()
            thread.join(5)
            assert not thread.is_alive()
            assert ended[-1] is Stopped


@async_faces
@body
async def test_cancel_ends_a_wait_for_the_sync_clients_head(face: Face) -> None:
    """On an async stream; the event loop is free meanwhile: it runs another task between the request and `cancel`."""
    with Silent() as server, contextlib.ExitStack() as keep:
        for asking in ASKING:
            server.asked.clear()
            server.left.clear()
            stream = face.stream(asking(server, keep))
            ticks: list[int] = []
            async with anyio.create_task_group() as tasks:

                async def stop(stream: Any = stream, ticks: list[int] = ticks) -> None:
                    while not server.asked.is_set():  # noqa: ASYNC110 - a thread sets it
                        await anyio.sleep(0.005)
                    for _ in range(3):  # the server is silent, so the stream still waits
                        assert not stream.ended
                        ticks.append(1)
                        await anyio.sleep(0.005)
                    stream.cancel()

                tasks.start_soon(stop)
                with anyio.fail_after(SOON):
                    await stream.until_done()
            assert len(ticks) == 3
            assert stream.status == "cancelled"
            assert await face.in_thread(lambda: server.left.wait(5))


AFTER_A_STOP = """
import contextlib, sys, threading
import streamkit as sk
from streamkit.sources.interrupt import Interruptible
from tests.test_cancelling import Silent, ask_httpx

not_interrupted = Interruptible()
not_interrupted.call(not_interrupted.stop)
with Silent() as server, contextlib.ExitStack() as keep:
    stream = sk.stream(ask_httpx(server, keep))
    threading.Thread(target=lambda: (server.asked.wait(), stream.cancel())).start()
    stream.until_done()
assert stream.status == "cancelled"
sys.settrace(lambda frame, event, argument: None)
print(sum(map(abs, range(-3, 3))))
"""


@pytest.mark.slow
def test_code_may_be_traced_after_a_stop() -> None:
    """Debuggers and coverage trace. A stop leaves no request behind that the interpreter looks for ever after."""
    ran = subprocess.run([sys.executable, "-c", AFTER_A_STOP], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.returncode) == ("9\n", 0), ran.stderr
