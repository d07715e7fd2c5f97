"""End to end: a real client, over loopback HTTP, to the application's code for each delta."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import streamkit as sk

from .faces import Texts
from .measuring import Clock, Contestant, Profile, Row, Workers, check, contest, process
from .model_server import URL
from .wires import answer

TITLE = "End to end, through the real client"
ABOUT = """\
CPU time of the client's process for each text delta, from the socket to the application, over loopback HTTP. *Paced*: an
event every 2 ms, as a model writes; the task or thread sleeps in between. *Flooded*: as fast as the client takes them, as
behind a proxy or from a cache. *The bytes alone* is the HTTP client reading the same body and doing nothing with it: what no
library on top of it can save. The baseline is the client's own loop over its own objects."""

MODEL: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
INPUT: dict[str, Any] = {"model": "m", "input": "hi"}
ANTHROPIC: dict[str, Any] = {**MODEL, "max_tokens": 9}
EVENTS_AROUND = {"chat": 3}  # the events of a stream that are no deltas
CLIENTS = {"chat": "openai", "responses": "openai", "anthropic": "anthropic"}


def make_openai(url: str = "http://127.0.0.1", *, is_async: bool = False, **options: Any) -> Any:
    """OpenAI's client."""
    import openai

    kind = openai.AsyncOpenAI if is_async else openai.OpenAI
    return kind(api_key="none", base_url=f"{url}/v1", max_retries=0, **options)


def make_client(wire: str, url: str, *, is_async: bool = False) -> Any:
    """The client of a wire format's provider."""
    if CLIENTS[wire] == "openai":
        return make_openai(url, is_async=is_async)
    import anthropic

    return (anthropic.AsyncAnthropic if is_async else anthropic.Anthropic)(api_key="none", base_url=url, max_retries=0)


def create(client: Any, wire: str) -> Any:
    """The client's own stream: what it returns for a request."""
    if wire == "chat":
        return client.chat.completions.create(**MODEL, stream=True)
    if wire == "responses":
        return client.responses.create(**INPUT, stream=True)
    return client.messages.create(**ANTHROPIC, stream=True)


def piece(wire: str, item: Any) -> str | None:
    """The text in an item of the client's own stream, as its users read it."""
    if wire == "chat":
        return item.choices[0].delta.content if item.choices else None
    if wire == "responses":
        return item.delta if item.type == "response.output_text.delta" else None
    return item.delta.text if item.type == "content_block_delta" and item.delta.type == "text_delta" else None


# -- what the application does: gets each delta, and has the text at the end

Read = Callable[[Any, str], str]


def with_hook(client: Any, wire: str) -> str:
    handler = Texts()
    sk.stream(lambda: create(client, wire), handler).until_done()
    return "".join(handler.parts)


def with_text_deltas(client: Any, wire: str) -> str:
    with sk.stream(lambda: create(client, wire)) as stream:
        return "".join(stream.text_deltas)


def raw_loop(client: Any, wire: str) -> str:
    parts: list[str] = []
    with create(client, wire) as stream:
        for item in stream:
            if text := piece(wire, item):
                parts.append(text)
    return "".join(parts)


def helper(client: Any, wire: str) -> str:
    """The client's own accumulating stream."""
    parts: list[str] = []
    if wire == "anthropic":
        with client.messages.stream(**ANTHROPIC) as stream:
            parts += stream.text_stream
            check(stream.get_final_message().content[0].text, "".join(parts))
        return "".join(parts)
    opened = client.chat.completions.stream(**MODEL) if wire == "chat" else client.responses.stream(**INPUT)
    kind = "content.delta" if wire == "chat" else "response.output_text.delta"
    with opened as stream:
        for event in stream:
            if event.type == kind:
                parts.append(event.delta)
        if wire == "chat":
            check(stream.get_final_completion().choices[0].message.content, "".join(parts))
        else:
            check(stream.get_final_response().output_text, "".join(parts))
    return "".join(parts)


async def with_async_hook(client: Any, wire: str) -> str:
    handler = Texts()
    await sk.astream(lambda: create(client, wire), handler).until_done()
    return "".join(handler.parts)


async def with_async_text_deltas(client: Any, wire: str) -> str:
    async with sk.astream(lambda: create(client, wire)) as stream:
        return "".join([text async for text in stream.text_deltas])


async def async_raw_loop(client: Any, wire: str) -> str:
    parts: list[str] = []
    async with await create(client, wire) as stream:
        async for item in stream:
            if text := piece(wire, item):
                parts.append(text)
    return "".join(parts)


# -- the contestants


def measured(read: Read) -> Callable[..., float]:
    """Microseconds a delta of one request; with `times`, of each of several that a client makes one after the other."""

    def run(port: int, wire: str, n: int, milliseconds: int, times: int = 1) -> float:
        url = URL.format(port=port, wire=wire, n=n, milliseconds=milliseconds)
        clock = Clock()
        with make_client(wire, url) as client:
            for _ in range(times):
                with clock:
                    text = read(client, wire)
                check(text, answer(n))
        return clock.seconds / n / times * 1e6

    return run


def measured_async(read: Callable[[Any, str], Awaitable[str]]) -> Callable[..., float]:
    """The same on asyncio."""

    async def main(port: int, wire: str, n: int, milliseconds: int, times: int) -> float:
        url = URL.format(port=port, wire=wire, n=n, milliseconds=milliseconds)
        clock = Clock()
        async with make_client(wire, url, is_async=True) as client:
            for _ in range(times):
                with clock:
                    text = await read(client, wire)
                check(text, answer(n))
        return clock.seconds / n / times * 1e6

    return lambda port, wire, n, milliseconds, times=1: asyncio.run(main(port, wire, n, milliseconds, times))


def bytes_alone(port: int, wire: str, n: int, milliseconds: int, times: int = 1) -> float:
    """The HTTP client that the SDKs use, and nothing on top."""
    import httpx2

    clock = Clock()
    with httpx2.Client() as client:
        for _ in range(times):
            with clock:
                url = URL.format(port=port, wire=wire, n=n, milliseconds=milliseconds)
                with client.stream("POST", url, content=b"{}") as response:
                    parts = list(response.iter_bytes())
            assert len(b"".join(parts)) > n
    return clock.seconds / n / times * 1e6


async def async_bytes_alone(client: Any, wire: str) -> str:
    """The response of the client's own stream, read to its end, and nothing on top: the text that as many deltas have."""
    events = 0
    async with await create(client, wire) as stream:
        async for data in stream.response.aiter_bytes():
            events += data.count(b"\n\n")
    return answer(events - EVENTS_AROUND[wire])


RAW, HELPER, BYTES = "the client's own loop", "the client's own helper", "the bytes alone"
ASYNC_RAW, ASYNC_BYTES = "the client's own loop, asyncio", "the bytes alone, asyncio"
CONTESTANTS = {
    "streamkit, a hook": Contestant(measured(with_hook)),
    "streamkit, text_deltas": Contestant(measured(with_text_deltas)),
    RAW: Contestant(measured(raw_loop)),
    HELPER: Contestant(measured(helper)),
    BYTES: Contestant(bytes_alone),
    "streamkit, a hook, asyncio": Contestant(measured_async(with_async_hook)),
    "streamkit, text_deltas, asyncio": Contestant(measured_async(with_async_text_deltas)),
    ASYNC_RAW: Contestant(measured_async(async_raw_loop)),
    ASYNC_BYTES: Contestant(measured_async(async_bytes_alone)),
}
PACES = {"paced": 2, "flooded": 0}


CASES = (  # the wire format, how the case is called, the baseline
    ("chat", "Chat", RAW),
    ("chat", "Chat, asyncio", ASYNC_RAW),
    ("responses", "Responses", RAW),
    ("anthropic", "Anthropic", RAW),
)


def rows(profile: Profile) -> Iterator[Row]:
    with process("-m", "tests.benchmarks.model_server") as port, Workers(__name__, profile) as workers:
        for wire, title, baseline in CASES[: profile.pick(2, len(CASES), len(CASES))]:
            faces = {n: c for n, c in CONTESTANTS.items() if n.endswith("asyncio") == baseline.endswith("asyncio")}
            for pace, milliseconds in PACES.items():
                if (profile.name, wire) == ("quick", "responses") or (profile.name, pace) == ("tiny", "paced"):
                    continue
                n = profile.pick(20, 150 if milliseconds else 1000, 500 if milliseconds else 3000)
                yield from contest(
                    workers,
                    faces,
                    profile.pick(1, 2, 5),
                    case=f"{title}, {pace}",
                    unit="µs a delta",
                    baseline=baseline,
                    parameters={"port": int(port), "wire": wire, "n": n, "milliseconds": milliseconds},
                )
