"""Sources: whatever holds a stream can be given, is opened when the stream begins, and is closed with it."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import httpx
import httpx2
import openai
import pytest
import trio

import streamkit as sk
from streamkit.events import StreamEnd, TextCreated, TextDone
from streamkit.protocols import codec
from streamkit.testing import ModelServer, Reply

from .faces import (
    FACES,
    Face,
    Source,
    SyncTold,
    ask,
    ask_responses,
    async_faces,
    body,
    chat,
    every_face,
    every_pair,
    sync_face,
)


async def raised_by(awaitable: Any) -> BaseException:
    with pytest.raises(BaseException) as caught:
        await awaitable
    return caught.value


def sse(chunks: list[dict[str, Any]]) -> bytes:
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


def ndjson(chunks: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(chunk).encode() + b"\n" for chunk in chunks)


def canonical() -> list[sk.Event]:
    """The events of a stream that says Hello."""
    message = sk.TextMessage("m")
    return [
        TextCreated(message=message),
        sk.TextDelta(message_id="m", value="Hel"),
        sk.TextDelta(message_id="m", value="lo"),
        TextDone(message=sk.TextMessage("m", content="Hello")),
        StreamEnd(),
    ]


HELLO = chat("Hel", "lo")
BODY = sse(HELLO)


# -- iterables


@every_face
@pytest.mark.parametrize(
    "source",
    [
        pytest.param(lambda: HELLO, id="list of dicts"),
        pytest.param(lambda: tuple(HELLO), id="tuple"),
        pytest.param(lambda: iter(HELLO), id="iterator"),
        pytest.param(lambda: (chunk for chunk in HELLO), id="generator"),
        pytest.param(lambda: BODY, id="bytes"),
        pytest.param(lambda: bytearray(BODY), id="bytearray"),
        pytest.param(lambda: [BODY], id="list of bytes"),
        pytest.param(lambda: (BODY[i : i + 7] for i in range(0, len(BODY), 7)), id="pieces of bytes"),
        pytest.param(lambda: (memoryview(BODY)[i : i + 7] for i in range(0, len(BODY), 7)), id="memoryviews"),
        pytest.param(lambda: BODY.splitlines(keepends=True), id="lines of bytes"),
        pytest.param(lambda: BODY.decode().splitlines(keepends=True), id="lines of str"),
        pytest.param(lambda: BODY.decode().splitlines(), id="lines of str without their ends"),
        pytest.param(lambda: iter(BODY.decode().splitlines()), id="iterator of lines without their ends"),
        pytest.param(lambda: [BODY.decode()[i : i + 300] for i in range(0, len(BODY), 300)], id="pieces of str"),
        pytest.param(lambda: ndjson(HELLO), id="NDJSON bytes"),
        pytest.param(lambda: ndjson(HELLO).decode().splitlines(), id="NDJSON lines without their ends"),
        pytest.param(canonical, id="canonical events"),
        pytest.param(lambda: [codec.event_to_dict(event) for event in canonical()], id="canonical events as dicts"),
        pytest.param(lambda: [codec.encode_event(event) + b"\n" for event in canonical()], id="… as NDJSON"),
        pytest.param(lambda: lambda: HELLO, id="callable"),
        pytest.param(lambda: lambda: lambda: iter(HELLO), id="callable that gives a callable"),
        pytest.param(lambda: sk.stream(HELLO), id="another stream"),
        pytest.param(lambda: sk.stream(sk.stream(iter(HELLO))), id="a stream over a stream"),
    ],
)
@body
async def test_what_is_in_memory_is_a_source(face: Face, source: Any) -> None:
    """Each tells the same text, on each face."""
    told = face.told()
    assert await face.stream(source(), told).get_final_text() == "Hello"
    told.check_brackets()


@every_face
@pytest.mark.parametrize("as_generator", [True, False])
@body
async def test_typed_objects_of_an_sdk_are_a_source(face: Face, as_generator: bool) -> None:
    """The SDK's own chunk objects, in a list or a generator."""
    from openai.types.chat import ChatCompletionChunk

    objects = [ChatCompletionChunk.model_validate(chunk) for chunk in HELLO]
    source = (o for o in objects) if as_generator else objects
    assert await face.stream(source).get_final_text() == "Hello"


@async_faces
@body
async def test_async_sources_in_memory(face: Face) -> None:
    """Generators, iterables, awaitables, async callables, and other streams."""

    async def items() -> AsyncIterator[Any]:
        for chunk in HELLO:
            yield chunk

    async def later() -> Any:
        return items()

    class Iterable:
        def __aiter__(self) -> AsyncIterator[Any]:
            return items()

    for source in (items(), Iterable(), later(), later, lambda: later(), sk.astream(items()), sk.astream(HELLO)):
        assert await face.stream(source).get_final_text() == "Hello"


@every_face
@body
async def test_none_among_the_items_is_an_item_and_not_the_end(face: Face) -> None:
    """As in a list of the same items."""
    stream = face.stream(face.generator(Source([*HELLO[:-1], None, HELLO[-1]])))
    assert await stream.get_final_text() == "Hello"
    assert [warning.code for warning in stream.warnings] == ["not-an-object"]


@every_face
@body
async def test_an_iterable_that_makes_a_generator_has_it_closed(face: Face) -> None:
    """Its `finally` has run when `close` returns."""
    source = Source(HELLO)

    class Iterable:
        def __iter__(self) -> Iterator[Any]:
            return source.generate()

    class AsyncIterable:
        def __aiter__(self) -> AsyncIterator[Any]:
            return source.generate_async()

    async with face.stream(AsyncIterable() if face.is_async else Iterable()) as stream:
        async for _ in stream.text_deltas:
            break
    assert source.closed


@every_face
@body
async def test_a_file_is_a_source(face: Face, tmp_path: Path) -> None:
    """Opened by the caller, in binary or as text."""
    path = tmp_path / "body"
    path.write_bytes(BODY)
    with path.open("rb") as file:
        assert await face.stream(file).get_final_text() == "Hello"
    with path.open() as file:
        assert await face.stream(file).get_final_text() == "Hello"


@every_face
@pytest.mark.parametrize("content", [BODY, ndjson(HELLO)], ids=["sse", "ndjson"])
@body
async def test_a_path_is_a_source(face: Face, tmp_path: Path, content: bytes) -> None:
    """To a body as it was on the wire."""
    path = tmp_path / "body"
    path.write_bytes(content)
    assert await face.stream(path).get_final_text() == "Hello"


@every_face
@body
async def test_a_path_to_nothing_is_a_source_error(face: Face, tmp_path: Path) -> None:
    """It names the file."""
    error = await raised_by(face.stream(tmp_path / "missing").until_done())
    assert type(error) is sk.SourceError
    assert "missing" in str(error)


@every_face
@pytest.mark.parametrize("nothing", [[], b"", iter(()), [b""], [b": ping\n\n"]])
@body
async def test_an_empty_source_is_incomplete(face: Face, nothing: Any) -> None:
    """Nothing is no answer."""
    told = face.told()
    error = await raised_by(face.stream(list(nothing) if hasattr(nothing, "__next__") else nothing, told).until_done())
    assert isinstance(error, sk.IncompleteStreamError)
    assert told.hooks == ["on_exception", "on_end"]


@every_face
@pytest.mark.parametrize("value", ["data: {}", None, 5, 1.5, {"a": 1}, object(), sk.EventHandler, list, dict, open])
@body
async def test_what_is_no_source_is_a_usage_error_that_lists_the_known(face: Face, value: Any) -> None:
    """It is told as any failure is."""
    told = face.told()
    error = await raised_by(face.stream(value, told).until_done())
    if value is open:  # a callable that fails is a request that fails
        assert type(error) is sk.SourceError
        return
    assert isinstance(error, sk.UsageError)
    assert "accepted are: a stream of openai, anthropic or another SDK" in str(error)
    assert told.hooks == ["on_exception", "on_end"]


@sync_face
@body
async def test_an_async_source_on_a_sync_stream_names_astream(face: Face) -> None:
    """And a coroutine is closed, so that nobody is warned of it."""

    async def items() -> AsyncIterator[Any]:
        yield HELLO[0]

    async def later() -> Any:
        return HELLO

    class Context:
        async def __aenter__(self) -> Any:
            return items()

        async def __aexit__(self, *raised: Any) -> None:
            pass

    for source in (items(), later(), later, Context(), sk.astream(HELLO)):
        error = await raised_by(face.stream(source).until_done())
        assert isinstance(error, sk.UsageError)
        assert "astream" in str(error)


# -- sync sources on an async stream


@async_faces
@body
async def test_a_sync_producer_is_pulled_in_a_worker_thread(face: Face) -> None:
    """The event loop goes on while the producer blocks."""
    free, threads = threading.Event(), set()

    def items() -> Iterator[Any]:
        threads.add(threading.get_ident())
        assert free.wait(10)
        yield from HELLO

    async with anyio.create_task_group() as tasks:

        async def go_on() -> None:
            free.set()

        tasks.start_soon(go_on)
        assert await face.stream(items()).get_final_text() == "Hello"
    assert threading.get_ident() not in threads


@async_faces
@body
async def test_a_plain_callable_is_called_in_a_worker_thread(face: Face) -> None:
    """It may send a request of a sync client's, or make a coroutine of an async one's. It sees the task's context."""
    free, seen = threading.Event(), []
    context: ContextVar[str] = ContextVar("context", default="none")
    context.set("the task's")

    def blocks() -> Any:
        seen.append((threading.get_ident(), context.get()))
        assert free.wait(10)
        return HELLO

    class Blocks:
        def __call__(self) -> Any:
            return blocks()

    async def later() -> Any:
        return HELLO

    for source in (blocks, Blocks(), partial(blocks), lambda: blocks, lambda: later(), lambda: lambda: later()):
        free.clear()
        async with anyio.create_task_group() as tasks:

            async def go_on() -> None:
                free.set()

            tasks.start_soon(go_on)
            assert await face.stream(source).get_final_text() == "Hello"
    assert {context for _, context in seen} == {"the task's"}
    assert threading.get_ident() not in {thread for thread, _ in seen}


@async_faces
@body
async def test_what_needs_the_event_loop_is_called_there(face: Face) -> None:
    """An `async def`, however it is wrapped, and what makes a generator; a plain callable is told how to."""
    threads: set[int] = set()

    async def later() -> Any:
        threads.add(threading.get_ident())
        return HELLO

    class Later:
        async def __call__(self) -> Any:
            return await later()

    async def items() -> AsyncIterator[Any]:
        threads.add(threading.get_ident())
        for chunk in HELLO:
            yield chunk

    for source in (later, partial(later), Later(), Later().__call__, items, partial(items), lambda: items()):
        assert await face.stream(source).get_final_text() == "Hello"
    assert threads == {threading.get_ident()}

    def needs() -> Any:
        return asyncio.get_running_loop() if face.name == "asyncio" else trio.lowlevel.current_task()

    def needs_the_older_way() -> Any:
        return asyncio.get_event_loop() if face.name == "asyncio" else needs()

    for source in (needs, needs_the_older_way):
        error = await raised_by(face.stream(source).until_done())
        assert str(error) == f"the source needs {face.name}, which does not run here"
        assert type(error) is sk.UsageError
        assert "async def" in error.__notes__[0]


@async_faces
@body
async def test_what_a_callable_gives_after_the_stream_was_cancelled_is_closed(face: Face) -> None:
    """By its own thread, which nobody waits for."""
    began, free, closed = threading.Event(), threading.Event(), threading.Event()

    class Items:
        def __iter__(self) -> Iterator[Any]:
            return iter(HELLO)

        def close(self) -> None:
            closed.set()

    def ask() -> Any:
        began.set()
        free.wait(10)
        return Items()

    told = face.told()
    stream = face.stream(ask, told)
    async with anyio.create_task_group() as tasks:

        async def stop() -> None:
            assert await face.in_thread(lambda: began.wait(5))
            stream.cancel()

        tasks.start_soon(stop)
        with anyio.fail_after(5):
            await stream.until_done()
    assert told.hooks == ["on_end"]
    assert not closed.is_set()
    free.set()
    assert await face.in_thread(lambda: closed.wait(5))


@async_faces
@body
async def test_a_producer_that_blocks_is_left_when_the_task_is_cancelled(face: Face) -> None:
    """Its thread closes it when it comes back; nothing that it still gives is told."""
    began, free, closed = threading.Event(), threading.Event(), threading.Event()

    def items() -> Iterator[Any]:
        try:
            yield HELLO[0]
            yield HELLO[1]
            began.set()
            free.wait(10)
            yield HELLO[2]
        finally:
            closed.set()

    told = face.told()
    stream = face.stream(items(), told)
    async with anyio.create_task_group() as tasks:

        async def stop() -> None:
            assert await face.in_thread(lambda: began.wait(5))
            stream.cancel()

        tasks.start_soon(stop)
        assert await stream.get_final_text() == "Hel"
    told.check_brackets()
    before = list(told.told)
    free.set()
    assert await face.in_thread(lambda: closed.wait(5))
    assert told.told == before


@async_faces
@body
async def test_a_sync_producer_is_closed_when_close_returns(face: Face) -> None:
    """Where it is not at work."""
    source = Source(HELLO)
    async with face.stream(source.generate()) as stream:
        async for _ in stream.text_deltas:
            break
    assert source.closed


@async_faces
@body
async def test_the_sync_client_works_on_an_async_stream(face: Face) -> None:
    """A request that is sent already, and one that is not."""
    import openai

    script = [Reply("Hello"), Reply("Hello"), Reply("Hello", never_ends=True)]
    with ModelServer(script) as server, openai.OpenAI(base_url=server.url, api_key="any", max_retries=0) as client:
        sent = await face.in_thread(ask(client))
        assert await face.stream(sent).get_final_text() == "Hello"
        assert await face.stream(ask(client)).get_final_text() == "Hello"
        async with face.stream(ask(client)) as stream:
            async for _ in stream.text_deltas:
                break
        assert await face.in_thread(server.wait_for_disconnect)


@async_faces
@body
async def test_cancel_ends_a_wait_of_the_sync_client(face: Face) -> None:
    """Its connection is shut, so its thread is not left behind."""
    import openai

    reply = Reply("Hello", never_ends=True)
    with ModelServer(reply) as server, openai.OpenAI(base_url=server.url, api_key="any", max_retries=0) as client:
        told = face.told()
        told.does["on_text_delta"] = lambda told, delta, snapshot: anyio_soon(told, snapshot)

        def anyio_soon(told: Any, snapshot: Any) -> None:
            if snapshot.content == "Hello":
                threading.Timer(0.05, told.stream.cancel).start()

        stream = face.stream(ask(client), told)
        assert await stream.get_final_text() == "Hello"
        told.check_brackets()
        assert await face.in_thread(server.wait_for_disconnect)


# -- requests of the real client


@every_face
@pytest.mark.parametrize("request_of", [ask, ask_responses])
@body
async def test_a_request_is_sent_on_entering_with(face: Face, request_of: Any) -> None:
    """Not before."""
    with ModelServer(Reply("Hello")) as server:
        async with face.client(server) as client:
            stream = face.stream(request_of(client))
            assert server.requests == []
            async with stream:
                assert len(server.requests) == 1
                assert await stream.get_final_text() == "Hello"


@every_face
@body
async def test_without_with_a_request_is_sent_at_the_first_use(face: Face) -> None:
    """And once."""
    with ModelServer(Reply("Hello")) as server:
        async with face.client(server) as client:
            stream = face.stream(ask(client))
            assert server.requests == []
            async for _ in stream:
                break
            assert len(server.requests) == 1
            assert await stream.get_final_text() == "Hello"
            assert len(server.requests) == 1


async def _opened(face: Face, client: Any, kind: str) -> Any:
    """A source of the real client, of each kind that it has."""
    messages = [{"role": "user", "content": "Hello"}]
    chat_options = {"model": "m", "messages": messages}
    match kind:
        case "callable":
            return ask(client)
        case "stream":
            sent = ask(client)()
            return await sent if face.is_async else sent
        case "coroutine":
            return ask(client)()
        case "chat helper":
            return client.chat.completions.stream(**chat_options)
        case "chat helper, lazily":
            return lambda: client.chat.completions.stream(**chat_options)
        case "responses":
            return ask_responses(client)
        case "responses helper":
            return client.responses.stream(model="m", input="Hello")
        case "streaming response":
            return client.chat.completions.with_streaming_response.create(**chat_options, stream=True)
        case "raw response":
            raw = client.chat.completions.with_raw_response.create(**chat_options, stream=True)
            return await raw if face.is_async else raw
        case _:
            raise AssertionError(kind)


KINDS = [
    "callable",
    "stream",
    "chat helper",
    "chat helper, lazily",
    "responses",
    "responses helper",
    "streaming response",
    "raw response",
]


@every_face
@pytest.mark.parametrize("kind", KINDS)
@body
async def test_every_kind_of_stream_that_the_client_gives_is_a_source(face: Face, kind: str) -> None:
    """It is read to its end, closed, and tells the same."""
    with ModelServer(Reply("Hello there")) as server:
        async with face.client(server) as client:
            told = face.told()
            stream = face.stream(await _opened(face, client, kind), told)
            assert await stream.get_final_text() == "Hello there"
            told.check_brackets()
            assert len(server.requests) == 1


@every_face
@pytest.mark.parametrize("kind", KINDS)
@body
async def test_every_kind_of_stream_of_the_client_is_closed_when_with_is_left(face: Face, kind: str) -> None:
    """The server sees the client leave."""
    with ModelServer(Reply("Hello", never_ends=True)) as server:
        async with face.client(server) as client:
            async with face.stream(await _opened(face, client, kind)) as stream:
                async for _ in stream.text_deltas:
                    break
            assert await face.in_thread(server.wait_for_disconnect)


@async_faces
@body
async def test_a_coroutine_of_the_client_is_a_source(face: Face) -> None:
    """It is awaited when the stream begins."""
    with ModelServer(Reply("Hello")) as server:
        async with face.client(server) as client:
            assert await face.stream(ask(client)()).get_final_text() == "Hello"


@pytest.mark.parametrize("face", [FACES["sync"], FACES["asyncio"]], ids=["sync", "asyncio"])
@body
async def test_a_stream_that_was_read_in_part_goes_on_where_it_is(face: Face) -> None:
    """Through the client's own objects. (It leaves its generators to the garbage collector, of which trio warns.)"""
    with ModelServer(Reply("Hello there")) as server:
        async with face.client(server) as client:
            given = await _opened(face, client, "stream")
            if face.is_async:
                await anext(given)
                await anext(given)
            else:
                next(given)
                next(given)
            assert await face.stream(given).get_final_text() == "o there"


@every_face
@pytest.mark.parametrize("library", [httpx, httpx2])
@pytest.mark.parametrize("entered", [True, False])
@body
async def test_an_http_response_is_a_source(face: Face, library: Any, entered: bool) -> None:
    """Of httpx and httpx2: entered, or as the context manager that `client.stream` gives."""
    with ModelServer(Reply("Hello")) as server:
        request = ("POST", server.url + "/chat/completions")
        options: Any = {"json": {"model": "m", "messages": [], "stream": True}}
        if face.is_async:
            async with library.AsyncClient() as client:
                if entered:
                    async with client.stream(*request, **options) as response:
                        assert await face.stream(response).get_final_text() == "Hello"
                else:
                    assert await face.stream(client.stream(*request, **options)).get_final_text() == "Hello"
        else:
            with library.Client() as client:
                if entered:
                    with client.stream(*request, **options) as response:
                        assert await face.stream(response).get_final_text() == "Hello"
                else:
                    assert await face.stream(client.stream(*request, **options)).get_final_text() == "Hello"


@async_faces
@pytest.mark.parametrize("library", [httpx, httpx2])
@body
async def test_a_sync_http_response_works_on_an_async_stream(face: Face, library: Any) -> None:
    """Pulled in a worker thread."""
    with ModelServer(Reply("Hello")) as server, library.Client() as client:
        options: Any = {"json": {"model": "m", "messages": [], "stream": True}}
        source = client.stream("POST", server.url + "/chat/completions", **options)
        assert await face.stream(source).get_final_text() == "Hello"


@every_face
@pytest.mark.parametrize("library", [httpx, httpx2])
@body
async def test_an_http_response_that_refuses_is_a_source_error(face: Face, library: Any) -> None:
    """Its text is in the message, its status in `status_code`."""
    with ModelServer(Reply(status=429)) as server:
        request = ("POST", server.url + "/chat/completions")
        options: Any = {"json": {"model": "m", "messages": [], "stream": True}}
        told = face.told()
        if face.is_async:
            async with library.AsyncClient() as client:
                error = await raised_by(face.stream(client.stream(*request, **options), told).until_done())
        else:
            with library.Client() as client:
                error = await raised_by(face.stream(client.stream(*request, **options), told).until_done())
        assert type(error) is sk.SourceError
        assert error.status_code == 429
        assert "Rate limit" in str(error)
        assert told.hooks == ["on_exception", "on_end"]


@every_face
@body
async def test_a_compressed_response_is_read(face: Face) -> None:
    """By its content encoding."""
    packed = gzip.compress(BODY)
    pieces = [packed[i : i + 20] for i in range(0, len(packed), 20)]
    with ModelServer(Reply(raw=pieces, headers={"content-encoding": "gzip"})) as server:
        async with face.client(server) as client:
            assert await face.stream(ask(client)).get_final_text() == "Hello"


@every_face
@body
async def test_a_context_manager_that_fails_on_entry_is_a_source_error(face: Face) -> None:
    """The client's helpers send their request there."""
    with ModelServer(Reply(status=401)) as server:
        async with face.client(server) as client:
            error = await raised_by(face.stream(await _opened(face, client, "chat helper")).until_done())
            assert type(error) is sk.SourceError
            assert error.status_code == 401


# -- another stream


@every_face
@body
async def test_a_stream_over_another_tells_the_same_and_closes_it(face: Face) -> None:
    """Both have handlers; both end once."""
    inner_told, outer_told = face.told(), face.told()
    source = Source(HELLO)
    inner = face.stream(face.generator(source), inner_told)
    async with face.stream(getattr(inner, "manager", inner), outer_told) as stream:
        async for _ in stream.text_deltas:
            break
    inner_told.check_brackets()
    outer_told.check_brackets()
    assert source.closed
    assert inner.ended


@every_face
@body
async def test_the_error_of_another_stream_is_the_same_error(face: Face) -> None:
    """It is not wrapped."""
    inner = face.stream(chat("Hel", finish=None))
    outer = face.stream(getattr(inner, "manager", inner))
    error = await raised_by(outer.until_done())
    assert isinstance(error, sk.IncompleteStreamError)
    assert [m.content for m in outer.messages] == ["Hel"]
    assert inner.error is error


@async_faces
@body
async def test_a_sync_stream_in_an_async_one(face: Face) -> None:
    """With its own sync handlers, told in the worker thread."""
    told = SyncTold()
    assert await face.stream(sk.stream(iter(HELLO), told)).get_final_text() == "Hello"
    told.check_brackets()


# -- what was read already, and what is no stream


async def _drained(face: Face, stream: Any) -> Any:
    if face.is_async:
        async for _ in stream:
            pass
    else:
        for _ in stream:
            pass
    return stream


async def _closed(face: Face, stream: Any) -> Any:
    if face.is_async:
        await stream.close()
    else:
        stream.close()
    return stream


async def _passed(face: Face, stream: Any) -> Any:
    assert await face.stream(stream).get_final_text() == "Hello"
    return stream


# On trio the client leaves its own generators to the garbage collector.
client_leaves_generators = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@every_pair
@client_leaves_generators
@every_face
@pytest.mark.parametrize("use", [_drained, _closed, _passed], ids=["drained", "closed", "passed before"])
@pytest.mark.parametrize("request_of", [ask, ask_responses], ids=["chat", "responses"])
@body
async def test_a_clients_stream_that_was_read_is_refused(face: Face, use: Any, request_of: Any) -> None:
    """It is the caller's mistake, and not the network's."""
    with ModelServer(Reply("Hello")) as server:
        async with face.client(server) as client:
            stream = request_of(client)()
            stream = await use(face, await stream if face.is_async else stream)
            told = face.told()
            with pytest.raises(sk.UsageError, match="was read already"):
                await face.stream(stream, told).until_done()
    assert told.hooks == ["on_exception", "on_end"]


@client_leaves_generators
@every_face
@body
async def test_a_clients_stream_that_was_read_in_part_goes_on(face: Face) -> None:
    """The rest is still there."""
    with ModelServer(Reply("Hel", "lo")) as server:
        async with face.client(server) as client:
            stream = ask(client)()
            if face.is_async:
                stream = await stream
                await anext(stream)
            else:
                next(stream)
            assert await face.stream(stream).get_final_text() == "Hello"


@every_face
@body
async def test_a_generator_that_has_ended_is_refused(face: Face) -> None:
    """As it is passed a second time."""
    items = Source(chat("Hello"))
    generator = face.generator(items)
    assert await face.stream(generator).get_final_text() == "Hello"
    with pytest.raises(sk.UsageError, match="generator was read already"):
        await face.stream(generator).until_done()


@every_face
@body
async def test_an_iterator_without_items_says_that_it_may_have_been_read(face: Face) -> None:
    """Nothing shows whether it ever had any."""
    iterator = iter(chat("Hello"))
    assert await face.stream(iterator).get_final_text() == "Hello"
    with pytest.raises(sk.IncompleteStreamError, match="read before"):
        await face.stream(iterator).until_done()


PLAIN: dict[str, Any] = {
    "bytes": [b"Hello world"],
    "pieces of one word": [b"H", b"ello"],
    "a page": [b"<!doctype html><title>Sign in</title>"],
    "words with a colon": [b"note: this is text"],
}


@every_pair
@every_face
@pytest.mark.parametrize("as_iterator", [False, True], ids=["list", "iterator"])
@pytest.mark.parametrize("pieces", PLAIN.values(), ids=PLAIN)
@body
async def test_bytes_of_plain_text_are_no_stream_and_the_error_says_what_is(
    face: Face, pieces: Any, as_iterator: bool
) -> None:
    """It was not cut off."""
    with pytest.raises(sk.ProtocolError, match=r'Server-Sent Events and lines of JSON.*protocol="text"') as caught:
        await face.stream(iter(pieces) if as_iterator else pieces).until_done()
    assert caught.value.code == "unknown-protocol"


class ForeignEvent:
    """What another framework's stream has as its items."""


@every_face
@body
async def test_the_error_for_another_frameworks_objects_names_them_and_the_way_in(face: Face) -> None:
    """No `protocol=` can fit them."""
    with pytest.raises(sk.ProtocolError, match=rf"{__name__}\.ForeignEvent .*Emitter") as caught:
        await face.stream([ForeignEvent()]).until_done()
    assert caught.value.code == "unknown-protocol"
    assert "protocol=" not in str(caught.value)


@pytest.mark.parametrize(
    "body", [b"da", b"data: {", b"event: x\n", b": ping", b"id: 1\n", b"\xef\xbb\xbfdata", b"", b"\n"]
)
def test_the_beginning_of_a_framing_is_a_stream_that_was_cut_off(body: bytes) -> None:
    with pytest.raises(sk.IncompleteStreamError):
        sk.stream([body]).until_done()


@pytest.mark.parametrize("error", [httpx2.ReadTimeout(""), TimeoutError()], ids=["httpx", "Python"])
def test_a_timeout_without_words_of_its_own_says_what_happened(error: Exception) -> None:
    """As async clients raise it."""

    def items() -> Iterator[Any]:
        yield from chat("Hel", finish=None)
        raise error

    with pytest.raises(
        sk.SourceTimeoutError, match="timed out: nothing came from the source within its client's timeout"
    ):
        sk.stream(items()).until_done()


def test_what_a_clients_error_hides_is_in_the_text() -> None:
    """openai's and anthropic's own say "Connection error." whatever happened; the reason is in the cause."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with (
            openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client,
            pytest.raises(sk.SourceError, match=r"^APIConnectionError: Connection error\. .*refused"),
        ):
            sk.stream(lambda: client.responses.create(model="any", input="Hello!", stream=True)).until_done()


def _chunk_with_some_ids(number: int) -> bytes:
    """A delta; every third has an id."""
    chunk = {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "a"}}]}
    return (f"id: {number}\n" if number % 3 == 0 else "").encode() + b"data: " + json.dumps(chunk).encode() + b"\n\n"


@pytest.mark.parametrize("size", [1, 300, 10_000])
def test_the_cursor_never_falls_back_where_only_some_items_have_an_id(size: int) -> None:
    """It is that of the newest item that has one, also between the items of one piece of the body."""
    body = b"".join(map(_chunk_with_some_ids, range(9))) + b"data: [DONE]\n\n"
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    stream = sk.stream(iter(pieces))
    cursors = [(event.cursor, stream.cursor) for event in stream if event.type == "text_delta"]
    assert [own for own, _ in cursors] == ["0", None, None, "3", None, None, "6", None, None]
    assert [newest for _, newest in cursors] == ["0", "0", "0", "3", "3", "3", "6", "6", "6"]
    assert stream.cursor == "6"
    resumed = sk.stream(iter(pieces), after="6")
    assert resumed.get_final_text() == "a" * 9


def test_the_cursor_is_the_newest_while_the_source_is_awaited() -> None:
    """Of a piece whose last items have no id."""

    def pieces() -> Iterator[bytes]:
        for start in (0, 4, 8):
            yield b"".join(map(_chunk_with_some_ids, range(start, start + 4)))
            cursors.append(stream.cursor)
        yield b"data: [DONE]\n\n"

    cursors: list[str | None] = []
    stream = sk.stream(pieces())
    stream.until_done()
    assert cursors == ["3", "6", "9"]


def test_the_cursor_is_the_newest_where_a_stream_fails_in_the_middle_of_a_piece() -> None:
    """Though the item at which a hook fails has no id."""

    class Failing(sk.EventHandler):
        def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
            if snapshot.content == "a" * 5:
                raise ValueError("the fifth")

        def on_end(self) -> None:
            cursors.append(self.stream.cursor)

    cursors: list[str | None] = []
    stream = sk.stream([b"".join(map(_chunk_with_some_ids, range(9)))], Failing())
    with pytest.raises(ValueError, match="the fifth"):
        stream.until_done()
    assert [*cursors, stream.cursor] == ["3", "3"]


@pytest.mark.parametrize("content_type", [None, "text/event-stream", "application/json", "application/vnd.x+json"])
def test_a_response_is_read_with_any_content_type_of_text_and_without_one(content_type: str | None) -> None:
    """Some servers send none."""
    body = b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in chat("Hel", "lo"))
    headers = {} if content_type is None else {"content-type": content_type}
    response = httpx.Response(200, headers=headers, stream=httpx.ByteStream(body))
    assert sk.stream(response).get_final_text() == "Hello"


def test_a_response_of_binary_content_is_refused() -> None:
    """Whose client alone can read it."""
    response = httpx.Response(200, headers={"content-type": "image/png"}, stream=httpx.ByteStream(b"data: {}\n\n"))
    with pytest.raises(sk.UsageError, match="image/png"):
        sk.stream(response).until_done()


class Noting:
    """An iterable in both forms, which notes its end. `response` is that of an SDK's stream around which this stands."""

    def __init__(self, *, response: Any = None, error: Exception | None = None) -> None:
        self.ended: list[str] = []
        self.response = response
        self.error = error

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from chat("Hel", "lo")[1:]
        finally:
            self.ended.append("iterator")

    async def __aiter__(self) -> AsyncIterator[Any]:
        try:
            for item in chat("Hel", "lo")[1:]:
                yield item
        finally:
            self.ended.append("iterator")

    def close(self) -> None:
        self.ended.append("iterable")
        if self.error is not None:
            raise self.error


class Context:
    """A context manager in both forms, which gives this."""

    def __init__(self, inner: Noting) -> None:
        self.inner = inner

    def __enter__(self) -> Noting:
        return self.inner

    def __exit__(self, *_: object) -> None:
        self.inner.ended.append("context")

    async def __aenter__(self) -> Noting:
        return self.inner

    async def __aexit__(self, *_: object) -> None:
        self.inner.ended.append("context")


@every_face
@body
async def test_a_context_is_left_when_what_it_gave_is_closed(face: Face) -> None:
    """At the stream's end, and where it is closed before."""
    for ending in ("until_done", "close"):
        inner = Noting()
        stream = face.stream(Context(inner))
        async for _ in stream:
            break
        await getattr(stream, ending)()
        assert inner.ended == ["iterator", "iterable", "context"]


@every_face
@body
async def test_an_error_of_closing_is_the_sources(face: Face) -> None:
    error = OSError("cannot be closed")
    with pytest.raises(sk.SourceError, match="cannot be closed") as caught:
        await face.stream(Noting(error=error)).until_done()
    assert caught.value.__cause__ is error


@every_face
@body
async def test_what_stands_around_a_stream_that_was_read_has_items_of_its_own(face: Face) -> None:
    """All of them come, also the one that shows whether there are any."""
    response = httpx.Response(200, stream=httpx.ByteStream(b""))
    response.close()
    assert await face.stream(Noting(response=response)).get_final_text() == "Hello"
