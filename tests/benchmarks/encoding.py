"""A stream passed on: what it costs a server to send the browser what it receives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import msgspec

import streamkit as sk
from streamkit.protocols.codec import encode_event

from .clients import make_openai
from .measuring import Clock, Contestant, Profile, Row, Workers, contest
from .parsing import chunks
from .wires import answer

TITLE = "Encoding a stream again"
ABOUT = """\
CPU time for each text delta of a Chat stream that is read from bytes in memory (2 KB a chunk), and encoded again as
Server-Sent Events for a browser; *read and dropped* is without the encoding. The baseline is a proxy that iterates over the
openai client's objects and sends their `model_dump_json`. Each result is read again, and its text compared."""


def sse(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def own_protocol(body: list[bytes]) -> Iterator[bytes]:
    """streamkit's events, as another `sk.stream` reads them."""
    for event in sk.stream(body):
        yield sse(encode_event(event))


def as_protocol(protocol: str, body: list[bytes]) -> Iterator[bytes]:
    """Another protocol's items, for clients that know only that."""
    encode = msgspec.json.Encoder().encode
    for item in sk.stream(body).chunks(protocol):
        yield sse(encode(item))


def event_stream(protocol: str, body: list[bytes]) -> Iterator[bytes]:
    """As a response has it: a thread reads the stream, and what is ready is sent at once."""
    yield from sk.stream(body).sse(protocol)


def texts_alone(body: list[bytes]) -> Iterator[bytes]:
    """The text in a stream of one's own."""
    encode = msgspec.json.Encoder().encode
    for text in sk.stream(body).text_deltas:
        yield sse(encode({"text": text}))


def openai_proxy(body: list[bytes]) -> Iterator[bytes]:
    import httpx2

    class Body(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            return iter(body)

    response = httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Body())
    transport = httpx2.MockTransport(lambda request: response)
    with make_openai(http_client=httpx2.Client(transport=transport)) as client:
        for chunk in client.chat.completions.create(model="m", messages=[], stream=True):
            yield sse(chunk.model_dump_json().encode())


def text_of_stream(out: list[bytes]) -> str:
    return sk.stream(out).get_final_text()


def text_of_texts(out: list[bytes]) -> str:
    return "".join(msgspec.json.decode(line[6:])["text"] for line in out)


def measured(
    encode: Callable[[list[bytes]], Iterator[bytes]], text: Callable[[list[bytes]], str], n: int, times: int
) -> float:
    clock, body = Clock(), chunks("chat", "2 KB", n)
    for _ in range(times):
        with clock:
            out = list(encode(body))
        assert text(out) == answer(n), "what was encoded has another text"
    return clock.seconds / n / times * 1e6


def dropped(n: int, times: int) -> float:
    clock, body = Clock(), chunks("chat", "2 KB", n)
    for _ in range(times):
        with clock:
            stream = sk.stream(body)
            for _ in stream:
                pass
        assert stream.get_final_text() == answer(n), "the stream has another text"
    return clock.seconds / n / times * 1e6


RAW = "openai, model_dump_json"
CONTESTANTS = {
    "streamkit, read and dropped": Contestant(dropped),
    "streamkit, text_deltas as JSON": Contestant(partial(measured, texts_alone, text_of_texts)),
    "streamkit, its own protocol": Contestant(partial(measured, own_protocol, text_of_stream)),
    "streamkit, sse()": Contestant(partial(measured, partial(event_stream, "streamkit"), text_of_stream)),
    "streamkit, sse() for useChat": Contestant(partial(measured, partial(event_stream, "vercel_ui"), text_of_stream)),
    "streamkit, chunks as Chat": Contestant(partial(measured, partial(as_protocol, "openai_chat"), text_of_stream)),
    "streamkit, chunks as Responses": Contestant(
        partial(measured, partial(as_protocol, "openai_responses"), text_of_stream)
    ),
    "streamkit, chunks as Anthropic": Contestant(partial(measured, partial(as_protocol, "anthropic"), text_of_stream)),
    RAW: Contestant(partial(measured, openai_proxy, text_of_stream)),
}


def rows(profile: Profile) -> Iterator[Row]:
    with Workers(__name__, profile) as workers:
        yield from contest(
            workers,
            CONTESTANTS,
            profile.rounds,
            case="Chat in, 2 KB a chunk",
            unit="µs a delta",
            baseline=RAW,
            parameters={"n": profile.pick(50, 500, 5_000), "times": profile.pick(1, 3, 3)},
        )
