"""What streams hold in memory: open ones, and finished ones whose messages an application keeps."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import streamkit as sk

from .clients import make_openai
from .measuring import Contestant, Profile, Row, Workers, check, contest
from .parsing import chunks
from .wires import answer

TITLE = "Memory"
ABOUT = """\
Kilobytes that `tracemalloc` counts for a Chat answer, the mean of several streams. *Open*: the stream in the middle of its
answer. *Kept*: the answer is over, and the application keeps the stream, or its messages. The baseline is the text alone,
which must be kept anyway. Nobody has read the text yet; that joins its pieces. The openai client's row is its helper's
final completion, without the stream."""

Make = Callable[[list[bytes]], Any]
Text = Callable[[Any], str | None]  # what a stream holds in the end, read when it was measured


def text_alone(body: list[bytes]) -> Any:
    return sk.stream(body).get_final_text()


def open_stream(body: list[bytes]) -> Any:
    """A stream that is half read."""
    stream = sk.stream(iter(body))
    for _ in zip(range(len(body) // 2), stream, strict=False):
        pass
    return stream


def kept_stream(body: list[bytes]) -> Any:
    stream = sk.stream(body)
    stream.until_done()
    return stream


def kept_messages(body: list[bytes]) -> Any:
    return sk.stream(body).get_final_messages()


def openai_completion(body: list[bytes]) -> Any:
    import httpx2

    transport = httpx2.MockTransport(
        lambda request: httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=b"".join(body))
    )
    client = make_openai(http_client=httpx2.Client(transport=transport))
    with client.chat.completions.stream(model="m", messages=[]) as stream:
        completion = stream.get_final_completion()
    client.close()
    return completion


def measured(make: Make, text: Text, n: int, streams: int) -> float:
    """Kilobytes."""
    body = chunks("chat", "event", n)
    make(body)  # so that what is made only once is made
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = [make(body) for _ in range(streams)]
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    for one in kept:
        check(text(one), answer(n))
    return held / streams / 1000


TEXT = "the text alone"
CONTESTANTS = {
    TEXT: Contestant(partial(measured, text_alone, str)),
    "streamkit, an open stream": Contestant(partial(measured, open_stream, lambda stream: stream.get_final_text())),
    "streamkit, a finished stream kept": Contestant(
        partial(measured, kept_stream, lambda stream: stream.get_final_text())
    ),
    "streamkit, its messages kept": Contestant(partial(measured, kept_messages, lambda messages: messages[0].content)),
    "openai, its completion kept": Contestant(
        partial(measured, openai_completion, lambda completion: completion.choices[0].message.content)
    ),
}


def rows(profile: Profile) -> Iterator[Row]:
    with Workers(__name__, profile) as workers:
        for n in profile.pick((50,), (400,), (400, 4_000)):
            yield from contest(
                workers,
                CONTESTANTS,
                1,  # it is the same each time
                case=f"an answer of {n:,} deltas",
                unit="KB",
                baseline=TEXT,
                parameters={"n": n, "streams": profile.pick(2, 5, 20)},
            )
