"""Connections that break at each event of an answer, between the real clients and a model server.

Whatever happens to the connection, everything that came before is in the messages, and the stream says how it ended.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reasoning, Reply, Text, ToolCall

from .faces import FACES, Face, ask, ask_responses, body, every_face
from .faulty_proxy import FAULT_HEADER, FaultyProxy

REPLY = Reply(
    Reasoning(pieces=["①", "②"]),
    Text(pieces=["③", "④", "⑤"]),
    ToolCall("get_weather", {"city": "⑥⑦⑧"}),
)
PIECE = re.compile("[①-⑧]")  # of one character each, so that no event has a part of one
MESSAGES = [{"role": "user", "content": "Hello"}]
API: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": MESSAGES}),
    "responses": ("/v1/responses", {"input": "Hello"}),
    "messages": ("/v1/messages", {"messages": MESSAGES, "max_tokens": 10}),
}
FINISHED = {"chat": b'"finish_reason":"', "responses": b'"type":"response.completed"', "messages": b'"stop_reason":"'}
"""What the event has with which an answer is complete."""
LAST = {"chat": b"[DONE]", "responses": b'"type":"response.completed"', "messages": b'"type":"message_stop"'}
"""What the event has after which nothing else belongs to the answer."""

Request = Callable[[str, float], Callable[[], Any]]


@asynccontextmanager
async def requests(face: Face, api: str, proxy: FaultyProxy) -> AsyncIterator[Request]:
    """Makes requests of the real client, which are not sent yet, with a fault after so many events."""

    def headers(fault: str, position: float) -> dict[str, dict[str, str]]:
        return {"extra_headers": {FAULT_HEADER: f"{fault}-{position:g}"}}

    if api != "messages":
        asks = ask if api == "chat" else ask_responses
        async with face.client(f"{proxy.url}/v1") as client:
            yield lambda fault, position: asks(client, **headers(fault, position))
        return
    options: dict[str, Any] = {"base_url": proxy.url, "api_key": "any", "max_retries": 0}
    sent: dict[str, Any] = {"model": "m", "max_tokens": 10, "messages": MESSAGES, "stream": True}
    if face.is_async:
        async with anthropic.AsyncAnthropic(**options) as async_client:
            yield lambda *fault: lambda: async_client.messages.create(**sent, **headers(*fault))
    else:
        with anthropic.Anthropic(**options) as sync_client:
            yield lambda *fault: lambda: sync_client.messages.create(**sent, **headers(*fault))


def events_of(api: str, proxy: FaultyProxy) -> list[bytes]:
    """The events of the answer."""
    path, body = API[api]
    content = json.dumps({"model": "m", "stream": True, **body}).encode()
    headers = {"host": "any", "anthropic-version": "2023-06-01", "content-length": len(content), "connection": "close"}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return proxy.ask(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + content).events


def pieces_in(events: list[bytes]) -> list[str]:
    """The pieces of text, reasoning and arguments that these events bring, each once, in their order."""
    return [*dict.fromkeys(PIECE.findall(b"".join(events).decode()))]


def pieces_of(stream: Any) -> list[str]:
    """The pieces that are in a stream's messages."""
    return PIECE.findall("".join(message.content for message in stream.messages))


def until(mark: bytes, events: list[bytes]) -> int:
    """How many events there are up to the one that has this."""
    return next(number for number, event in enumerate(events, 1) if mark in event)


async def outcome(stream: Any) -> sk.StreamkitError | None:
    """Read a stream to its end; return the error that it ends with."""
    try:
        await stream.until_done()
    except sk.StreamkitError as error:
        return error
    return None


def check_kept(stream: Any, told: Any, pieces: list[str]) -> None:
    """These pieces are there, each once, and everything that began is done."""
    told.check_brackets()
    assert pieces_of(stream) == pieces
    assert all(message.status != "in_progress" for message in stream.messages)


def some_positions(face: Face, events: list[bytes], complete: int, turn: int = 0) -> list[float]:
    """Those that this face tries: of all places after an event and in the middle of one, each sixth, and those about the event
    with which the answer is complete. The faces try a half of them together, the other half with another `turn`."""
    first = [*FACES].index(face.name) + len(FACES) * turn
    last = {complete - 1, complete - 0.5, complete}
    return sorted({*(n / 2 for n in range(first, 2 * len(events), 2 * len(FACES))), *last})


@every_face
@pytest.mark.parametrize("api", API)
@pytest.mark.parametrize("fault", ["cut", "reset", "ended"])
@body
async def test_what_came_before_a_connection_broke_is_kept(face: Face, fault: str, api: str) -> None:
    """After an event, and in the middle of one. The stream fails, unless the answer was complete."""
    expected = sk.IncompleteStreamError if fault == "ended" else sk.SourceError
    with ModelServer(REPLY) as server, FaultyProxy(server) as proxy:
        events = events_of(api, proxy)
        complete = until((FINISHED if fault == "ended" else LAST)[api], events)
        async with requests(face, api, proxy) as request:
            for position in some_positions(face, events, complete, int(fault == "reset")):
                told = face.told()
                stream = face.stream(request(fault, position), told)
                error = await outcome(stream)
                arrived = pieces_in(events[: int(position)])
                if fault == "reset":  # discards what the client's system has not handed over yet
                    arrived = arrived[: len(pieces_of(stream))]
                check_kept(stream, told, arrived)
                assert type(error) is (expected if int(position) < complete else type(None)), position
                assert stream.warnings == ()


@every_face
@pytest.mark.parametrize("api", API)
@body
async def test_a_connection_that_stays_open_after_the_answer_is_no_timeout(face: Face, api: str) -> None:
    """The stream has everything by then."""
    with ModelServer(REPLY) as server, FaultyProxy(server) as proxy:
        events = events_of(api, proxy)
        async with requests(face, api, proxy) as request:
            source = request("stall", until(LAST[api], events))
            stream = face.stream(source, timeouts=sk.Timeouts(first=10, idle=0.2))
            assert await outcome(stream) is None
            assert stream.status == "requires_action"
            assert pieces_of(stream) == pieces_in(events)


# On trio openai's client leaves its generators to the garbage collector, where it has read `[DONE]`.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@every_face
@pytest.mark.parametrize("api", API)
@body
async def test_an_application_that_fails_after_the_answer_is_told(face: Face, api: str) -> None:
    """Its function raises between the answer and the end of its items."""
    with ModelServer(REPLY) as server, FaultyProxy(server) as proxy:
        events = events_of(api, proxy)
        async with requests(face, api, proxy) as request:
            ask = request("ended", len(events))

            def read() -> Iterator[Any]:
                yield from ask()
                raise ConnectionError("the application's own")

            async def read_async() -> AsyncIterator[Any]:
                async for item in await ask():
                    yield item
                raise ConnectionError("the application's own")

            stream = face.stream(read_async if face.is_async else read)
            error = await outcome(stream)
            assert isinstance(error, sk.SourceError)
            assert "the application's own" in str(error)
            assert pieces_of(stream) == pieces_in(events)


@every_face
@pytest.mark.parametrize("api", ["responses", "messages"])  # of Chat nothing is read after `[DONE]`
@body
async def test_an_error_of_the_applications_own_transport_is_raised(face: Face, api: str) -> None:
    """What it makes of the response's bytes raises after the answer."""
    with ModelServer(REPLY) as server, FaultyProxy(server) as proxy:
        events = events_of(api, proxy)
        async with requests(face, api, proxy) as request:
            ask = request("ended", len(events))

            def refusing(stream: Any) -> Any:
                body, body_async = stream.response.iter_bytes(), stream.response.aiter_bytes()

                def read() -> Iterator[bytes]:
                    yield from body
                    raise LookupError("the application's own")

                async def read_async() -> AsyncIterator[bytes]:
                    async for chunk in body_async:
                        yield chunk
                    raise LookupError("the application's own")

                stream.response.iter_bytes, stream.response.aiter_bytes = read, read_async
                return stream

            async def ask_async() -> Any:
                return refusing(await ask())

            stream = face.stream(ask_async if face.is_async else lambda: refusing(ask()))
            error = await outcome(stream)
            assert isinstance(error, sk.SourceError)
            assert "the application's own" in str(error)
            assert pieces_of(stream) == pieces_in(events)


@every_face
@pytest.mark.parametrize("api", API)
@body
async def test_a_slow_connection_gives_the_same(face: Face, api: str) -> None:
    """However few bytes come at once, and from whichever event on."""
    with ModelServer(REPLY) as server, FaultyProxy(server) as proxy:
        events = events_of(api, proxy)
        async with requests(face, api, proxy) as request:
            for position in range(0, len(events), 4):
                told = face.told()
                stream = face.stream(request("slow", position), told)
                assert await outcome(stream) is None
                check_kept(stream, told, pieces_in(events))
                assert stream.status == "requires_action"


async def cancel_at(face: Face, proxy: FaultyProxy, source: Any, pieces: list[str]) -> None:
    """Read an answer that stalls, and cancel the stream from another thread once it has these pieces."""
    has_all = threading.Event()
    proxy.stalled.clear()
    if not pieces:
        has_all.set()

    def look(*_: Any) -> None:
        if len(pieces_of(stream)) == len(pieces):
            has_all.set()

    def cancel() -> None:
        has_stalled, has_come = proxy.stalled.wait(20), has_all.wait(20)
        stream.cancel()
        assert has_stalled, "the answer did not stall"
        assert has_come, f"{pieces_of(stream)}, not {pieces}"

    told = face.told(on_message_delta=look)
    stream = face.stream(source, told)
    async with face.beside(cancel):
        assert await outcome(stream) is None
    check_kept(stream, told, pieces)
    assert stream.status == "cancelled"


@every_face
@pytest.mark.parametrize("api", API)
@body
async def test_a_stalled_connection_is_left_by_cancel(face: Face, api: str) -> None:
    """After each event, and in the middle of each: the stream returns what arrived."""
    with ModelServer(REPLY) as server, FaultyProxy(server) as proxy:
        events = events_of(api, proxy)
        complete = until(FINISHED[api], events)
        async with requests(face, api, proxy) as request:
            for position in [n for n in some_positions(face, events, complete) if n < complete]:
                await cancel_at(face, proxy, request("stall", position), pieces_in(events[: int(position)]))


@every_face
@pytest.mark.parametrize("api", API)
@body
async def test_a_stalled_connection_is_a_timeout(face: Face, api: str) -> None:
    """With a limit of the time between two pieces of content."""
    with ModelServer(REPLY) as server, FaultyProxy(server) as proxy:
        events = events_of(api, proxy)
        position = len(events) // 2
        async with requests(face, api, proxy) as request:
            told = face.told()
            stream = face.stream(request("stall", position), told, timeouts=sk.Timeouts(first=10, idle=0.5))
            assert isinstance(await outcome(stream), sk.SourceTimeoutError)
        check_kept(stream, told, pieces_in(events[:position]))
