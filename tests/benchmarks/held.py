"""How many streams one core holds, each at the pace of a fast model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from .clients import ASYNC_RAW, async_raw_loop, make_client, with_async_hook, with_async_text_deltas
from .measuring import Clock, Contestant, Profile, Row, Workers, check, contest, process
from .model_server import URL
from .wires import answer

TITLE = "Streams held on one core"
ABOUT = """\
How many Chat streams of 100 deltas a second one core carries, in one asyncio process with the real client: what a server has
to know. Measured is the CPU time of streams at the same time, requests included, first of a few, and then of as many as
should fill the core by that: near that number several events arrive at each wake-up. The number is how many of those make a
second of CPU time a second. Higher is better."""

A_SECOND = 100  # deltas
MOST = 200  # streams at the same time

Read = Callable[[Any, str], Awaitable[str]]


def measured(read: Read) -> Callable[..., float]:
    """The seconds of CPU time that a stream takes in a second."""

    async def share(port: int, n: int, streams: int) -> float:
        url = URL.format(port=port, wire="chat", n=n, milliseconds=1000 // A_SECOND)
        async with make_client("chat", url, is_async=True) as client:
            clock = Clock()
            with clock:
                texts = await asyncio.gather(*(read(client, "chat") for _ in range(streams)))
        for text in texts:
            check(text, answer(n))
        return clock.seconds / streams / n * A_SECOND

    async def main(port: int, n: int, streams: int, most: int) -> float:
        few = await share(port, n, streams)
        return await share(port, n, min(max(1, round(1 / few)), most))

    return lambda **parameters: asyncio.run(main(**parameters))


CONTESTANTS = {
    "streamkit, a hook": Contestant(measured(with_async_hook)),
    "streamkit, text_deltas": Contestant(measured(with_async_text_deltas)),
    ASYNC_RAW: Contestant(measured(async_raw_loop)),
}


def rows(profile: Profile) -> Iterator[Row]:
    with process("-m", "tests.benchmarks.model_server") as port, Workers(__name__) as workers:
        yield from contest(
            workers,
            CONTESTANTS,
            profile.pick(1, 2, 5),
            case=f"{A_SECOND} deltas a second each",
            unit="streams",
            baseline=ASYNC_RAW,
            parameters={
                "port": int(port),
                "n": profile.pick(10, 100, 300),
                "streams": profile.pick(2, 20, 20),
                "most": profile.pick(2, MOST, MOST),
            },
            of=lambda share: 1 / share,
        )
