"""`stream.sse()` in each web framework, through its real server and a real connection."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import openai
import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reply

from .faces import AsyncTold, SyncTold, ask, calls, chat
from .web_frameworks import FRAMEWORKS, SERVED, Client, serve

SECRET = "hunter2"
KEEPALIVE = b": hb\n\n"


class Framework(NamedTuple):
    """A framework's server."""

    port: int
    path: str
    is_async: bool

    def get(self, make: Callable[[bool], Any]) -> Client:
        """Request a stream from it."""
        SERVED["stream"] = make
        return Client(self.port, f"{self.path}stream")

    def told(self, **does: Callable[..., Any]) -> Any:
        return (AsyncTold if self.is_async else SyncTold)(**does)


QUICK = ("starlette", "flask")  # the others take longer to import


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in FRAMEWORKS],
)
def framework(request: pytest.FixtureRequest) -> Iterator[Framework]:
    package = FRAMEWORKS[request.param]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    with serve(request.param) as (port, path, is_async):
        yield Framework(port, path, is_async)


@pytest.fixture(scope="module")
def client() -> Iterator[tuple[ModelServer, openai.OpenAI]]:
    """A model whose answer never ends, and a client of it."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ModelServer([Reply("One two", never_ends=True)] * 100))
        yield server, stack.enter_context(openai.OpenAI(base_url=server.url, api_key="x", max_retries=0))


def stream_of(is_async: bool, source: Any, *handlers: sk.Handler, **options: Any) -> Any:
    return (sk.astream if is_async else sk.stream)(source, *handlers, **options)


def until(condition: Callable[[], object]) -> None:
    """Wait for what a server's thread does."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class Held:
    """A producer that gives what is put into it, as it comes."""

    def __init__(self) -> None:
        self.items: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def put(self, *items: Any) -> None:
        for item in items:
            self.items.put(item)

    def __call__(self) -> Iterator[Any]:
        while (item := self.items.get(timeout=20)) is not None:
            yield item


def test_bytes_arrive_before_the_end(framework: Framework) -> None:
    """The headers with the first bytes, before the source gives anything; each event when it comes; a proper end."""
    source = Held()
    bodies: list[Any] = []

    def make(is_async: bool) -> Any:
        bodies.append(stream_of(is_async, source))
        return bodies[0], {"protocol": "vercel_ui"}

    page = framework.get(make)
    assert page.response.status == 200
    headers = {name.lower(): value for name, value in page.response.getheaders()}
    assert headers["content-type"] == "text/event-stream"
    assert headers["cache-control"] == "no-cache, no-transform"
    assert headers["x-accel-buffering"] == "no"
    assert headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert headers.get("connection", "close") == "close"  # a server that cannot keep it open says so
    assert "content-length" not in headers
    assert "content-encoding" not in headers
    assert page.read_until(b"\n\n") == b"retry: 1000\n\n"
    chunks = chat("Hé", "llo")
    source.put(*chunks[:2])
    page.read_until("Hé".encode())
    source.put(*chunks[2:], None)
    written = page.read_all()
    assert written.endswith(b"data: [DONE]\n\n")
    assert sk.stream([written]).get_final_text() == "Héllo"
    with pytest.raises(sk.UsageError, match="has ended"):  # it is served once
        bodies[0].sse()


def test_a_disconnect_cancels(framework: Framework, client: tuple[ModelServer, openai.OpenAI]) -> None:
    """The model's connection is closed, and the handlers get the end."""
    server, made = client
    streams: list[Any] = []
    handler = framework.told()
    before = len(server.disconnects)

    def make(is_async: bool) -> Any:
        streams.append(stream_of(is_async, ask(made), handler))
        return streams[0], {"keepalive": 0.02}

    page = framework.get(make)
    page.read_until(b"two")
    page.leave()
    until(lambda: "on_end" in handler.hooks)
    assert streams[0].status == "cancelled"
    until(lambda: len(server.disconnects) > before)


def test_a_disconnect_lets_it_continue(framework: Framework) -> None:
    """The stream is read to its end, and the handlers get all of it."""
    source = Held()
    handler = framework.told()
    page = framework.get(
        lambda is_async: (stream_of(is_async, source, handler), {"keepalive": 0.02, "on_disconnect": "continue"})
    )
    source.put(*chat("one", finish=None))
    page.read_until(b"one")
    page.leave()
    source.put(*chat(*"x" * 50)[1:], None)
    until(lambda: "on_end" in handler.hooks)
    assert handler.of("on_text_done")[0].content == "one" + "x" * 50


def test_it_is_kept_alive_while_a_tool_sleeps(framework: Framework) -> None:
    """In threads and in tasks: a tool that takes long holds nothing up."""
    awake = threading.Event()

    def sleep() -> str:
        assert awake.wait(20)
        return "slept"

    def respond(_: Any, call: sk.ToolCallMessage) -> None:
        call.respond(anyio.to_thread.run_sync(sleep) if framework.is_async else sleep())

    def make(is_async: bool) -> Any:
        handler = framework.told(on_tool_call_done=respond)
        stream = stream_of(is_async, calls("sleep"), handler, then=lambda stream: chat("Good morning"))
        return stream, {"keepalive": 0.01}

    page = framework.get(make)
    page.read_until(b"tool_call_created")
    page.read_until(KEEPALIVE * 3)
    awake.set()
    assert b"Good morning" in page.read_all()


def test_a_hook_that_raises_is_an_error_frame(framework: Framework, caplog: pytest.LogCaptureFixture) -> None:
    """In a response that ends as usual. What it said is in the log alone."""

    def fails(*_: Any) -> None:
        raise KeyError(SECRET)

    with caplog.at_level(logging.ERROR, "streamkit"):
        written = framework.get(
            lambda is_async: (stream_of(is_async, chat("x"), framework.told(on_text_delta=fails)), {})
        ).read_all()
    assert b'"type":"stream_exception","error":"StreamkitError"' in written
    assert SECRET.encode() not in written
    assert SECRET in caplog.text


TICKING = """\
import time
with open({ticks!r}, "a") as file:
    print("began", flush=True)
    while True:
        file.write("x")
        file.flush()
        time.sleep(0.01)
"""


@pytest.mark.slow
def test_a_disconnect_stops_code(framework: Framework, computer: Any, tmp_path: Path) -> None:
    """The computer's code has ended, soon, and another run begins at once."""
    ticks = tmp_path / "ticks"
    code = TICKING.format(ticks=str(ticks))
    streams: list[Any] = []

    def make(is_async: bool) -> Any:
        streams.append(stream_of(is_async, computer.run("python", code)))
        return streams[0], {"keepalive": 0.02}

    page = framework.get(make)
    page.read_until(b"began")
    page.leave()
    until(lambda: streams[0].ended)
    size = ticks.stat().st_size
    with sk.stream(computer.run("python", "print('free')")) as stream:
        stream.until_done()
    assert ticks.stat().st_size == size
    assert [one.content for one in stream.messages if one.type == "console"] == ["free\n"]


@pytest.fixture(scope="module")
def computer() -> Iterator[Any]:
    module = pytest.importorskip("streamkit.computer", reason="the extra `computer` is not installed")
    with module.Computer() as made:
        yield made


# -- the response of Starlette, without a server


def test_a_response_is_refused_before_its_status_leaves() -> None:
    """Where the arguments are wrong."""
    response = importlib.import_module("streamkit.server").EventStreamResponse
    with pytest.raises(sk.UsageError, match="no protocol 'nope'"):
        response(sk.astream(chat("x")), "nope")
    made = response(sk.astream(chat("x")), "vercel_ui", status_code=202, headers={"X-Mine": "1"})
    assert made.status_code == 202
    assert made.headers["x-mine"] == "1"
    assert made.headers["content-type"] == "text/event-stream"


def test_what_is_no_stream_is_refused() -> None:
    """A request of a client, which somebody forgot to wrap in `sk.astream`."""
    response = importlib.import_module("streamkit.server").EventStreamResponse
    with pytest.raises(sk.UsageError, match=r"takes what sk\.astream\(…\) or sk\.stream\(…\) returns, not a list"):
        response(["a request"])


def test_without_starlette_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """When one of its names is used, and not when the package is imported."""
    monkeypatch.setattr(sk, "server", importlib.import_module("streamkit.server"), raising=False)  # it is put back
    for module in [name for name in sys.modules if name.startswith("streamkit.server")]:
        monkeypatch.delitem(sys.modules, module)
    for module in ("starlette", "starlette.requests", "starlette.responses"):
        monkeypatch.setitem(sys.modules, module, None)
    server = importlib.import_module("streamkit.server")
    for name in ("EventStreamResponse", "create_app"):
        with pytest.raises(
            ImportError, match=rf"server\.{name} needs .*starlette.*: pip install 'streamkit-sdk\[server\]'"
        ):
            getattr(server, name)


def test_a_view_for_threads_frees_its_task_at_once() -> None:
    """A task that is cancelled does not wait for the thread that waits for the next frame, and the stream ends."""
    response = importlib.import_module("streamkit.server").EventStreamResponse

    def endless() -> Iterator[Any]:
        yield from chat("x", finish=None)
        while True:
            time.sleep(0.001)
            yield chat("x")[1]

    stream = sk.stream(endless)

    async def main() -> None:
        received, leaves = anyio.Event(), anyio.Event()

        async def receive() -> dict[str, Any]:
            await leaves.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if b"text_delta" in message.get("body", b""):
                received.set()

        async with anyio.create_task_group() as tasks:
            made = response(stream, keepalive=None)
            tasks.start_soon(made, {"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)
            await received.wait()
            leaves.set()

    anyio.run(main)
    assert stream.ended
    assert stream.status == "cancelled"
