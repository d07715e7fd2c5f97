"""`cancel()` from another thread, while the stream's own thread waits for the network: before an answer's head, inside
a producer of the caller's, and in `then=`."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import httpx2
import openai
import pytest

import streamkit as sk
from streamkit.core.steps import END
from streamkit.sources.interrupt import Interruptible, Stopped
from streamkit.sources.open_async import open_async
from streamkit.testing import ModelServer, Reply

from .faces import Face, SyncTold, ask, async_faces, body, calls, chat, every_face, sync_face

ROOT = Path(__file__).resolve().parents[1]
SOON = 10.0  # seconds that a stream may take to end after it was cancelled: without it, it waits for ever


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


@every_face
@body
async def test_cancel_ends_what_a_producer_waits_for_after_a_stream_that_it_read(face: Face) -> None:
    """That stream takes the stop for its own, and the producer goes on, to wait for another answer."""
    with Silent(HEAD) as first, Silent(HEAD) as second, httpx.Client(timeout=None) as client:

        def answer(server: Silent) -> Iterator[Any]:
            with client.stream("POST", server.url) as response:
                yield from map(json.loads, response.iter_lines())

        def items() -> Iterator[Any]:
            yield from chat("Hel", finish=None)
            sk.stream(answer(first)).until_done()
            yield from answer(second)

        stream = face.stream(items())
        async with face.beside(stop_when(first.asked, stream)):
            await stream.until_done()
        assert stream.status == "cancelled"
        assert await face.in_thread(lambda: second.left.wait(5))


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
    cancelled = threading.Event()

    def late(_: Any) -> Reply:
        assert cancelled.wait(10)
        return Reply("Hello")

    with ModelServer(late) as server:

        def fetch(told: Any, *_: Any) -> None:
            with openai_of(server) as client:
                done.append(client.responses.create(model="m", input="Hello").output_text)

        stream = face.stream(iter(chat("Hi")), face.told(on_text_created=fetch))

        def stop() -> None:
            assert server.wait_for_request(10)
            time.sleep(0.05)  # the hook is about to wait, or waits
            stream.cancel()
            cancelled.set()

        async with face.beside(stop):
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
    calls.cancel()
    calls.cancel()
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
            interruptible.cancel()
            thread.join(5)
            assert not thread.is_alive()
            assert ended[-1] is Stopped


class Line:
    """A connection, of which a line is read as http.client reads one. `is_read` says that a thread waits for it."""

    def __init__(self, keep: contextlib.ExitStack) -> None:
        ours, self.theirs = (keep.enter_context(one) for one in socket.socketpair())
        self.file = keep.enter_context(ours.makefile("rb"))
        self.got: list[bytes] = []

    def read(self) -> None:
        self.got.append(self.file.readline())

    def wait_until_read(self, thread: threading.Thread) -> None:
        deadline = time.monotonic() + 10
        while (frame := sys._current_frames().get(thread.ident or 0)) is None or frame.f_code.co_name != "readinto":
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *raised: object) -> None:
        self.read()

    @contextlib.contextmanager
    def read_at_last(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.read()


def in_finally(line: Line) -> Iterator[int]:
    try:
        yield 1
    finally:
        line.read()


def in_finally_after_an_error(line: Line) -> Iterator[int]:
    yield 1
    try:
        raise LookupError
    finally:
        with contextlib.nullcontext():
            for _ in range(1):
                line.read()


def in_finally_of_a_loop_without_end(line: Line) -> Iterator[int]:
    yield 1
    while True:
        try:
            return
        finally:
            try:
                line.read()
            except LookupError:
                yield 2


def leaving_a_with(line: Line) -> Iterator[int]:
    with line:
        yield 1


def leaving_a_context_manager(line: Line) -> Iterator[int]:
    with line.read_at_last():
        yield 1


def in_with(line: Line) -> Iterator[int]:
    with contextlib.nullcontext():
        yield 1
        line.read()


def in_try(line: Line) -> Iterator[int]:
    try:
        yield 1
        line.read()
    finally:
        line.got.append(b"")


def in_except(line: Line) -> Iterator[int]:
    try:
        yield 1
        raise LookupError
    except LookupError:
        line.read()


def in_bare_except(line: Line) -> Iterator[int]:
    try:
        yield 1
        raise LookupError
    except:  # noqa: E722
        try:
            line.read()
        finally:
            line.got.append(b"")


CLEANING = [
    in_finally,
    in_finally_after_an_error,
    in_finally_of_a_loop_without_end,
    leaving_a_with,
    leaving_a_context_manager,
]
READING = [in_with, in_try, in_except, in_bare_except]


@pytest.mark.parametrize("producer", [*CLEANING, *READING])
def test_only_a_wait_that_is_no_clean_up_is_stopped(producer: Callable[[Line], Iterator[int]]) -> None:
    """A `finally` gets what it waits for; so does what leaves a `with`. What they hold and an `except` do not."""
    raised: list[BaseException] = []
    with contextlib.ExitStack() as keep:
        line = Line(keep)
        calls = Interruptible()

        def work() -> None:
            try:
                for _ in calls.each(producer(line)):
                    pass
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        keep.callback(line.theirs.close)  # whatever fails, the thread ends
        line.wait_until_read(thread)
        calls.cancel()
        if producer in CLEANING:
            line.theirs.sendall(b"cleaned\n")
        thread.join(10)
        assert not thread.is_alive()
        assert line.got == ([b"cleaned\n"] if producer in CLEANING else [b""] * len(line.got))
        assert (Stopped in map(type, raised)) == (producer in READING)


def test_a_wait_is_stopped_where_the_stream_itself_is_read_in_a_clean_up() -> None:
    """What cleans up is around the stream, and no part of its source."""
    ended: list[bool] = []
    with contextlib.ExitStack() as keep:
        line = Line(keep)
        calls = Interruptible()

        def work() -> None:
            try:
                raise LookupError
            finally:
                with contextlib.suppress(Stopped):
                    for _ in calls.each(in_with(line)):
                        pass
                ended.append(calls.is_stopped)

        def run() -> None:
            with contextlib.suppress(LookupError):
                work()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        keep.callback(line.theirs.close)  # whatever fails, the thread ends
        line.wait_until_read(thread)
        calls.cancel()
        thread.join(10)
        assert not thread.is_alive()
    assert ended == [True]


def test_a_stop_never_comes_after_the_wait() -> None:
    """The thread goes on while another one finds out what it waits for. It is not stopped in what it does by then."""
    in_finally, may_go, cleaned = threading.Event(), threading.Event(), threading.Event()
    ours, theirs = socket.socketpair()

    class Connection:
        """As a stream of httpcore's. To say what its socket is takes until the thread does something else."""

        def read(self) -> bytes:
            return ours.recv(1)

        def get_extra_info(self, _: str) -> Any:
            theirs.sendall(b"x")
            assert in_finally.wait(10)
            return ours

        def start_tls(self) -> None:
            pass

    def work() -> None:
        try:
            Connection().read()
        finally:
            in_finally.set()
            for _ in range(100):
                may_go.wait(10)
            cleaned.set()

    calls = Interruptible()

    def run() -> None:
        with contextlib.suppress(Stopped):
            calls.call(work)

    with ours, theirs:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        while (frame := sys._current_frames().get(thread.ident or 0)) is None or frame.f_code.co_name != "read":
            time.sleep(0.001)
        calls.cancel()
        may_go.set()
        thread.join(10)
        assert cleaned.is_set()
        ours.setblocking(False)
        theirs.sendall(b"y")
        assert ours.recv(1) == b"y"


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


@async_faces
@body
async def test_a_closed_source_is_not_pulled_by_a_thread_that_is_late(face: Face) -> None:
    """A cancelled task does not wait for the thread that is to pull: it may begin when the source is being closed."""
    closing, may_close, pulled, closed = threading.Event(), threading.Event(), [], []

    def items() -> Iterator[Any]:
        try:
            for item in chat("a", "b"):
                pulled.append(item)
                yield item
        finally:
            closing.set()
            may_close.wait(10)
            closed.append(1)

    source = await open_async(items())
    assert await source.next() is not END
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(source.close)
        assert await face.in_thread(lambda: closing.wait(10))
        assert await source.next() is END
        may_close.set()
    assert await source.next() is END
    assert (len(pulled), closed) == (1, [1])


AFTER_A_STOP = """
import contextlib, sys, threading
import streamkit as sk
from streamkit.sources.interrupt import Interruptible
from tests.test_cancelling import Silent, ask_httpx

not_interrupted = Interruptible()
not_interrupted.call(not_interrupted.cancel)
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
    ran = subprocess.run([sys.executable, "-c", AFTER_A_STOP], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (ran.stdout, ran.returncode) == ("9\n", 0), ran.stderr


@sync_face
@pytest.mark.parametrize("moment", ["open_sync", "_call_to_open", "_source_opened"])
@body
async def test_a_cancel_that_comes_when_the_source_was_just_opened_is_not_lost(face: Face, moment: str) -> None:
    """The request was answered and nothing of the body has come, so nobody waits for anything yet."""
    with ModelServer(Reply(raw=b"data: [DONE]\n\n", first_delay=60)) as server:
        async with face.client(server) as client:
            stream = face.stream(ask(client))

            def cancel(frame: Any, event: str, _: Any) -> None:
                if event == "return" and frame.f_code.co_name == moment:
                    sys.setprofile(None)
                    stream.cancel()

            sys.setprofile(cancel)
            try:
                await stream.until_done()
            finally:
                sys.setprofile(None)
            assert stream.status == "cancelled"


def test_cancel_ends_a_pull_that_sleeps_for_no_time() -> None:
    """It waits for nothing that could be cancelled: each sleep ends in the event loop's next round."""

    async def items() -> AsyncIterator[Any]:
        yield chat("a")[0]
        while True:  # noqa: ASYNC110 - it spins
            await asyncio.sleep(0)

    async def read() -> None:
        stream = sk.astream(items())
        asyncio.get_running_loop().call_later(0.01, stream.cancel)
        async with asyncio.timeout(5):
            await stream.until_done()
        assert stream.status == "cancelled"

    asyncio.run(read())
