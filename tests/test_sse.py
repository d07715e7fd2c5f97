"""`stream.sse()` on all faces: what a response gets, and what its client's leaving does."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import json
import logging
import queue
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import anyio.to_thread
import pytest

import streamkit as sk
from streamkit.protocols import base
from streamkit.protocols.event_stream import SSE_HEADERS
from streamkit.protocols.vercel_ui import Encoder as VercelEncoder
from streamkit.testing import ModelServer, Reply

from .faces import FACES, Face, ask, async_faces, body, both_shells, chat, every_face, sync_face

KEEPALIVE = b": hb\n\n"
SECRET = "hunter2"


class Body:
    """An event stream of any face, in the shape of the async one."""

    def __init__(self, face: Face, stream: Any, protocol: Any = "streamkit", **options: Any) -> None:
        self.is_async = face.is_async
        self.stream = stream
        self.sse = stream.sse(protocol, **options)
        self.headers = self.sse.headers

    async def take(self) -> bytes | None:
        """The next item; None after the end."""
        with contextlib.suppress(StopIteration, StopAsyncIteration):
            item: bytes = await anext(self.sse) if self.is_async else next(self.sse)
            assert item.endswith(b"\n\n")
            assert b"\r" not in item
            return item
        return None

    async def rest(self) -> bytes:
        """All that is left."""
        items: list[bytes] = []
        while (item := await self.take()) is not None:
            items.append(item)
        return b"".join(items)

    async def close(self) -> None:
        await (self.sse.aclose() if self.is_async else _at_once(self.sse.close))

    def begin_again(self) -> Any:
        return aiter(self.sse) if self.is_async else iter(self.sse)


async def _at_once(function: Callable[[], object]) -> None:
    function()


class EndlessBody(Body):
    """An event stream, and the model's server."""

    server: ModelServer


class Held:
    """A producer that gives what is put into it, as it comes."""

    def __init__(self) -> None:
        self.items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.went = 0
        self.is_closed = False

    def put(self, *items: Any) -> None:
        for item in items:
            self.items.put(item)

    def __call__(self) -> Iterator[Any]:
        try:
            while (item := self.items.get(timeout=20)) is not None:
                self.went += 1
                yield item
        finally:
            self.is_closed = True


@contextlib.asynccontextmanager
async def never_ending(face: Face, *handlers: sk.Handler, protocol: str = "streamkit") -> AsyncGenerator[EndlessBody]:
    """An event stream of a model whose answer does not end, after its first words."""
    with ModelServer(Reply("One two", never_ends=True)) as server:
        async with face.client(server) as client:
            reply = EndlessBody(face, face.stream(ask(client), *handlers), protocol)
            reply.server = server
            while b"two" not in (await reply.take() or b""):
                pass
            yield reply


async def until(condition: Callable[[], object], face: Face) -> None:
    """Wait for what another thread or task does."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        if face.is_async:
            await anyio.sleep(0.001)
        else:
            time.sleep(0.001)  # noqa: ASYNC251  # no event loop runs


def events_of(written: bytes) -> list[dict[str, Any]]:
    """The items of the native protocol."""
    lines = [line for line in written.split(b"\n") if line.startswith(b"data: ")]
    return [json.loads(line.removeprefix(b"data: ")) for line in lines]


def types_of(written: bytes) -> list[str]:
    return [item["type"] for item in events_of(written)]


# -- what comes


@both_shells
@body
async def test_the_body_is_the_stream_in_a_protocol(face: Face) -> None:
    """`retry:` first, then its events, each in a frame, then the sentinel. It reads back as the same stream."""
    for protocol, sentinel in (("streamkit", b""), ("vercel_ui", b"data: [DONE]\n\n"), ("ag_ui", b"")):
        stream = face.stream(chat("Hé", "llo"))
        reply = Body(face, stream, protocol)
        assert await reply.take() == b"retry: 1000\n\n"
        written = await reply.rest()
        assert KEEPALIVE not in written
        assert written.endswith(sentinel)
        assert sk.stream([written]).get_final_text() == "Héllo"
        assert stream.ended
        assert await reply.take() is None
    assert types_of(await Body(face, face.stream(chat("x"))).rest()) == [event.type for event in sk.stream(chat("x"))]


@both_shells
@body
async def test_the_headers_are_fixed_before_the_first_byte(face: Face) -> None:
    """A mapping that cannot be changed; no `Connection`, which belongs to the server."""
    reply = Body(face, face.stream(chat("x")), "vercel_ui")
    headers = reply.headers
    assert hasattr(reply.sse, "close") != face.is_async  # Django calls one that is there, and does not await it
    assert headers == {**SSE_HEADERS, "x-vercel-ai-ui-message-stream": "v1"}
    with pytest.raises(TypeError):
        headers["Connection"] = "keep-alive"
    assert sk.SSE_HEADERS is SSE_HEADERS


@both_shells
@body
async def test_the_first_bytes_come_before_the_source_is_there(face: Face) -> None:
    """The headers leave with them. While nothing comes there are keepalive comments, and no event is lost by them."""
    source = Held()
    chunks = chat("a", "b")
    reply = Body(face, face.stream(source), keepalive=0.01)
    assert await reply.take() == b"retry: 1000\n\n"
    written = b""
    for some in (
        *([chunk] for chunk in chunks[:-1]),
        [chunks[-1], None],
    ):  # the end of a text comes with that of its answer
        assert await reply.take() == KEEPALIVE
        assert await reply.take() == KEEPALIVE
        source.put(*some)
        while (item := await reply.take()) == KEEPALIVE:
            pass
        written += item or b""
    written += await reply.rest()
    assert types_of(written.replace(KEEPALIVE, b"")) == [event.type for event in sk.stream(chunks)]


@async_faces
@body
async def test_frames_that_are_ready_together_are_one_write(face: Face) -> None:
    """As the events of one batch of the source are."""
    reply = Body(face, face.stream(chat(*"abcdef")))
    await reply.take()
    first = await reply.take()
    assert first is not None
    assert types_of(first).count("text_delta") == 6


@both_shells
@body
async def test_a_slow_client_holds_the_stream_back(face: Face) -> None:
    """At most 256 writes wait for it, and `cancel()` works all the same: the client gets the end."""
    source = Held()
    source.put(*chat(*"x" * 2000), None)
    stream = face.stream(source)
    reply = Body(face, stream)
    await reply.take()
    full = reply.sse._frames
    await until(lambda: full.is_full, face)
    assert source.went < 300
    first = await reply.take()
    assert first is not None
    assert types_of(first).count("text_delta") > 200
    await until(lambda: full.is_full, face)
    stream.cancel()
    assert types_of(await reply.rest())[-3:] == ["run_step_done", "run_done", "stream_end"]
    assert stream.status == "cancelled"
    assert source.went < 2 * 300 + 256


@every_face
@body
async def test_stop_reaches_the_client(face: Face) -> None:
    """The run ends `cancelled`, as the protocol says it, and then the body ends."""
    for protocol, last in (("streamkit", b'"status":"cancelled"'), ("vercel_ui", b'{"type":"abort"}\n\ndata: [DONE]')):
        async with never_ending(face, protocol=protocol) as reply:
            reply.stream.cancel()
            assert last in await reply.rest()
            assert reply.stream.status == "cancelled"


# -- errors


@both_shells
@body
async def test_an_error_is_the_protocols_error_frame(face: Face, caplog: pytest.LogCaptureFixture) -> None:
    """The body ends as usual: the status line has long left. What failed is in the log, by the frame's instance."""

    def failing() -> Iterator[Any]:
        yield from chat("x", finish=None)
        raise ValueError(SECRET)

    def fails(*_: Any) -> None:
        raise KeyError(SECRET)

    for make, name in (
        (lambda: face.stream(failing), "SourceError"),
        (lambda: face.stream(chat("x"), face.told(on_text_delta=fails)), "StreamkitError"),
        (lambda: face.stream(chat("x", finish=None)), "IncompleteStreamError"),
    ):
        caplog.clear()
        stream = make()
        with caplog.at_level(logging.ERROR, "streamkit"):
            written = await Body(face, stream).rest()
        *_, failed, end = events_of(written)
        assert (failed["type"], failed["error"], end["type"]) == ("stream_exception", name, "stream_end")
        assert SECRET.encode() not in written
        [instance] = {failed["details"]["instance"]}
        assert any(instance in record.message and record.exc_info for record in caplog.records)
        assert stream.error is not None
    shown = await Body(face, face.stream(failing), "vercel_ui", expose_errors=True).rest()
    assert SECRET.encode() in shown
    assert shown.endswith(b"data: [DONE]\n\n")


@both_shells
@body
async def test_a_failure_after_the_run_has_ended_is_shown(face: Face) -> None:
    """As of a hook that saves the answer. In each protocol the stream fails for whoever reads it."""

    def fails(*_: Any) -> None:
        raise KeyError(SECRET)

    for protocol, frame in (
        ("streamkit", b'"type":"stream_exception"'),
        ("vercel_ui", b'{"type":"error","errorText":"The run failed. (urn:uuid:'),
        ("ag_ui", b'{"type":"RUN_ERROR","message":"The run failed. (urn:uuid:'),
    ):
        written = await Body(face, face.stream(chat("x"), face.told(on_run_done=fails)), protocol).rest()
        assert written.count(frame) == 1
        stream = sk.stream([written])
        with pytest.raises(sk.StreamkitError, match="The run failed"):
            stream.until_done()
        assert stream.messages[0].content == "x"


@both_shells
@body
async def test_an_error_that_brings_no_event_is_a_frame_too(face: Face, caplog: pytest.LogCaptureFixture) -> None:
    """As a fault of the encoder; one that comes after the end is in the log alone."""

    class Broken(base.Encoder):
        name = "streamkit"
        done = b"over"

        def feed(self, event: sk.Event) -> Iterator[dict[str, Any]]:
            raise RuntimeError(SECRET)

    broken = Broken()
    reply = Body(face, face.stream(chat("x")), broken)
    reply.sse._writer._is_native = False
    with caplog.at_level(logging.ERROR, "streamkit"):
        assert await reply.rest() == b"retry: 1000\n\ndata: over\n\n"
        assert SECRET in caplog.text
        caplog.clear()

        def fails(*_: Any) -> None:
            raise KeyError(SECRET)

        written = await Body(face, face.stream(chat("x"), face.told(on_end=fails))).rest()
        assert types_of(written)[-1] == "stream_end"
        assert SECRET in caplog.text


@both_shells
@body
async def test_misuse_is_refused(face: Face) -> None:
    """Before the status line leaves."""
    source = Held()
    stream = face.stream(source)
    for options, fault in (
        ({"protocol": "nope"}, "there is no protocol 'nope'"),
        ({"on_disconnect": "ignore"}, "on_disconnect= is 'cancel' or 'continue', not 'ignore'"),
        ({"keepalive": 0}, "keepalive= is a number of seconds above 0, or None, not 0"),
        ({"keepalive": True}, "not True"),
        ({"retry": -1}, "retry= is a number of milliseconds, or None, not -1"),
        ({"retry": 1.5}, "not 1.5"),
    ):
        with pytest.raises(sk.UsageError, match=fault):
            stream.sse(**options)
    reply, second = Body(face, stream), Body(face, stream, keepalive=None, retry=None)
    reply.begin_again()
    reply.begin_again()  # as frameworks do, before the first item
    assert await reply.take() == b"retry: 1000\n\n"
    with pytest.raises(sk.UsageError, match="is read by another `sse\\(\\)` already"):
        await second.take()
    source.put(*chat("x"), None)
    assert types_of(await reply.rest())[-1] == "stream_end"
    with pytest.raises(sk.UsageError, match="can be iterated once"):
        reply.begin_again()
    with pytest.raises(sk.UsageError, match="the stream has ended"):
        stream.sse()
    stream = face.stream(chat("x"))
    async with stream:
        async for _ in stream:
            break
        with pytest.raises(sk.UsageError, match="was read in part"):
            stream.sse()


@both_shells
@body
async def test_two_cannot_read_one_body_at_once(face: Face) -> None:
    """Each would get half of it."""
    source = Held()
    stream = face.stream(source)
    reply = Body(face, stream)
    await reply.take()
    if face.is_async:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reply.take)
            await until(lambda: reply.sse._is_read, face)
            with pytest.raises(sk.UsageError, match="another task reads"):
                await reply.take()
            source.put(*chat("x"), None)
    else:
        async with face.beside(lambda: next(reply.sse)):
            await until(lambda: reply.sse._is_read, face)
            with pytest.raises(sk.UsageError, match="another thread reads"):
                await reply.take()
            source.put(*chat("x"), None)
    await reply.rest()


# -- the client leaves


@every_face
@body
async def test_cancel_stops_what_is_upstream(face: Face) -> None:
    """When `close()` returns, the stream has ended, handlers included, and the model's connection is closed."""
    handler = face.told()
    async with never_ending(face, handler) as reply:
        await reply.close()
        assert handler.hooks[-1] == "on_end"
        assert reply.stream.ended
        assert reply.stream.status == "cancelled"
        await until(lambda: reply.server.disconnects, face)
        await reply.close()
        assert await reply.take() is None
        with pytest.raises(sk.UsageError, match="can be iterated once"):
            reply.begin_again()


@both_shells
@body
async def test_continue_reads_to_the_end(face: Face, caplog: pytest.LogCaptureFixture) -> None:
    """Handlers included. An error is logged; nothing is kept for a client that is not there."""

    def fails(*_: Any) -> None:
        raise KeyError(SECRET)

    for does, status in (({}, "completed"), ({"on_text_done": fails}, "failed")):
        source = Held()
        handler = face.told(**does)
        stream = face.stream(source, handler)
        reply = Body(face, stream, on_disconnect="continue")
        await reply.take()
        await reply.close()
        assert not stream.ended
        source.put(*chat(*"x" * 300), None)
        await until(lambda stream=stream: stream.ended, face)
        assert stream.status == status
        await until(lambda handler=handler: "on_end" in handler.hooks, face)
        assert len(handler.of("on_text_delta")) == 300
        assert await reply.take() is None
    await until(lambda: SECRET in caplog.text, face)


@every_face
@body
async def test_a_client_that_left_before_the_first_byte(face: Face) -> None:
    """With `cancel` nothing is requested any more; with `continue` all of it is."""
    source = Held()
    stream = face.stream(source)
    await Body(face, stream).close()
    assert stream.ended
    assert source.went == 0
    source.put(*chat("x"), None)
    stream = face.stream(source)
    reply = Body(face, stream, on_disconnect="continue")
    await reply.close()
    await reply.close()
    await until(lambda: stream.ended, face)
    assert source.went == 3


@every_face
@body
async def test_a_response_that_waits_may_be_closed_from_elsewhere(face: Face) -> None:
    """It ends there."""
    async with never_ending(face) as reply:
        if face.is_async:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(reply.rest)
                await until(lambda: reply.sse._is_read, face)
                await reply.close()
                assert reply.stream.ended
        else:

            def close() -> None:
                while not reply.sse._is_read:
                    time.sleep(0.001)
                reply.sse.close()
                assert reply.stream.ended

            async with face.beside(close):
                await reply.rest()


@async_faces
@body
async def test_a_cancelled_task_has_closed_it(face: Face) -> None:
    """Whoever was cancelled while waiting for the next item need not do anything: the stream has ended."""
    async with never_ending(face) as reply:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(reply.rest)
                await until(lambda: reply.sse._is_read, face)
                scope.cancel()
        assert reply.stream.ended
        assert reply.stream.status == "cancelled"


def test_a_task_that_asyncio_itself_cancels_has_closed_it() -> None:
    """As Django and aiohttp do it."""
    face = FACES["asyncio"]

    async def main() -> None:
        async with never_ending(face) as reply:
            task = asyncio.create_task(reply.rest())
            await until(lambda: reply.sse._is_read, face)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert reply.stream.ended

    asyncio.run(main())


@every_face
@body
async def test_a_response_that_is_dropped_ends_the_stream(face: Face) -> None:
    """Not every server closes what it was given. With `continue` it goes on."""
    for on_disconnect, status in (("cancel", "cancelled"), ("continue", "completed")):
        source = Held()
        source.put(*chat("x", finish=None))
        stream = face.stream(source)
        reply = Body(face, stream, on_disconnect=on_disconnect)
        await reply.take()
        await reply.take()
        del reply
        gc.collect()
        source.put(*chat("y")[1:], None)
        await until(lambda stream=stream: stream.ended, face)
        assert stream.status == status


def test_a_response_that_is_dropped_when_its_event_loop_is_over_leaves_nothing() -> None:
    """Its task was cancelled with the loop, and has closed the stream."""
    kept: list[Any] = []

    async def main() -> None:
        source = Held()
        source.put(*chat("x", finish=None))
        reply = sk.astream(source).sse()
        await anext(reply)
        await anext(reply)
        source.put(None)
        kept.append(reply)

    anyio.run(main)
    anyio.run(main, backend="trio")
    assert [reply._manager.ended for reply in kept] == [True, True]
    kept.clear()
    gc.collect()


@async_faces
@body
async def test_a_generator_around_it_may_be_left_at_any_time(face: Face) -> None:
    """No scope and no task group is open while it has control, in whatever task it is left."""
    source = Held()
    source.put(*chat("x", finish=None))
    stream = sk.astream(source)

    async def answer() -> AsyncIterator[bytes]:
        async with stream:
            async for chunk in stream.sse("vercel_ui", keepalive=0.01):
                yield chunk

    generator: Any = answer()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anext, generator)
    with anyio.CancelScope():
        assert await anext(generator)
    await until(lambda: source.went, face)  # a generator that is closed before it began has no `finally` to run
    source.put(None)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(generator.aclose)
    assert stream.ended
    await until(lambda: source.is_closed, face)  # the thread that pulls it is not waited for


@sync_face
@body
async def test_leaving_with_waits_for_what_runs(face: Face) -> None:
    """The stream's own thread has ended when the block has, a hook included."""
    source = Held()
    source.put(*chat("x", finish=None))
    in_hook, may_go, over = threading.Event(), threading.Event(), threading.Event()

    def slowly(*_: Any) -> None:
        in_hook.set()
        may_go.wait(10)
        over.set()

    stream = sk.stream(source, face.told(on_text_delta=slowly))

    def answer() -> Iterator[bytes]:
        with stream:
            yield from stream.sse()

    generator = answer()
    assert isinstance(generator, Iterator)
    next(generator)
    in_hook.wait(10)
    threading.Timer(0.05, may_go.set).start()
    generator.close()
    assert over.is_set()
    assert stream.ended


@every_face
@body
async def test_a_hook_may_close_its_own_stream(face: Face) -> None:
    """It is not waited for by itself, and the client gets the end."""

    def close(handler: Any, *_: Any) -> Any:
        return handler.stream.close()

    handler = face.told(on_text_delta=close)
    stream = face.stream(chat("x", "y"), handler)
    written = await Body(face, stream).rest()
    assert types_of(written)[-1] == "stream_end"
    assert stream.status == "cancelled"
    assert len(handler.of("on_text_delta")) == 1


# -- around it


@both_shells
@body
async def test_hooks_see_the_context_of_whoever_made_it(face: Face) -> None:
    """And not that of whoever iterates, which in most servers is the server."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")
    seen: list[str] = []
    token = variable.set("of the request")
    reply = Body(face, face.stream(chat("x"), face.told(on_text_done=lambda *_: seen.append(variable.get()))))
    variable.reset(token)
    await reply.rest()
    assert seen == ["of the request"]


@both_shells
@body
async def test_an_encoder_with_its_own_options_may_be_given(face: Face) -> None:
    """In the place of a protocol's name."""
    encoder = VercelEncoder(7, message_id="mine")
    reply = Body(face, face.stream(chat("x")), encoder)
    assert b'{"type":"start","messageId":"mine"' in await reply.rest()
    assert "x-vercel-ai-ui-message-stream" in reply.headers


@both_shells
@body
async def test_cursors_are_the_ids(face: Face) -> None:
    """Those of a relay's run, from which it can be resumed."""
    with sk.Emitter(run_id="r") as emitter:
        emitter.text("Hello")
    written = await Body(face, face.stream(emitter.reader())).rest()
    ids = [line.removeprefix(b"id: ").decode() for line in written.split(b"\n") if line.startswith(b"id: ")]
    assert len(ids) == len(types_of(written))
    assert len({*ids}) == len(ids)
