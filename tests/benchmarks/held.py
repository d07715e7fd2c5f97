"""How many streams one core holds, each at the pace of a fast model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from .clients import ASYNC_RAW, async_raw_loop, make_client, with_async_hook, with_async_text_deltas
from .measuring import Clock, Contestant, Profile, Row, Workers, check, contest, process
from .server import URL
from .wires import answer

TITLE = "Streams held on one core"
ABOUT = """\
How many Chat streams of 100 deltas a second one core carries, in one asyncio process with the real client: what a server has
to know. Measured is the CPU time of some streams at the same time, requests included; the number is how many of them make a
second of CPU time a second. Higher is better. Near that number several events arrive at each wake-up, so that more streams
may fit than it says."""

A_SECOND = 100  # deltas

Read = Callable[[Any, str], Awaitable[str]]


def measured(read: Read) -> Callable[..., float]:
    """The seconds of CPU time that a stream takes in a second."""

    async def main(port: int, n: int, streams: int) -> float:
        url = URL.format(port=port, wire="chat", n=n, milliseconds=1000 // A_SECOND)
        async with make_client("chat", url, is_async=True) as client:
            clock = Clock()
            with clock:
                texts = await asyncio.gather(*(read(client, "chat") for _ in range(streams)))
        for text in texts:
            check(text, answer(n))
        return clock.seconds / streams / n * A_SECOND

    return lambda port, n, streams: asyncio.run(main(port, n, streams))


CONTESTANTS = {
    "streamkit, a hook": Contestant(measured(with_async_hook)),
    "streamkit, text_deltas": Contestant(measured(with_async_text_deltas)),
    ASYNC_RAW: Contestant(measured(async_raw_loop)),
}


def rows(profile: Profile) -> Iterator[Row]:
    with process("-m", "tests.benchmarks.server") as port, Workers(__name__) as workers:
        yield from contest(
            workers,
            CONTESTANTS,
            profile.pick(1, 2, 5),
            case=f"{A_SECOND} deltas a second each",
            unit="streams",
            baseline=ASYNC_RAW,
            parameters={"port": int(port), "n": profile.pick(10, 100, 300), "streams": profile.pick(2, 10, 20)},
            of=lambda share: 1 / share,
        )
