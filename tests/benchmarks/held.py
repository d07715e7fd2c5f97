"""How many streams one core holds, each at the pace of a fast model."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

from .clients import (
    ASYNC_BYTES,
    ASYNC_RAW,
    async_bytes_alone,
    async_raw_loop,
    make_openai,
    with_async_hook,
    with_async_text_deltas,
)
from .measuring import Contestant, Profile, Row, Workers, check, contest, process
from .paced_server import A_SECOND, URL, ProcessTime, begun
from .wires import answer

TITLE = "Streams held on one core"
ABOUT = """\
Chat streams of 100 deltas a second each, at the same time in one asyncio process with the real client: what a server has to
know. *Held* are as many as one core can read while its event loop is at most 50 ms late (a sleep of 10 ms takes 60, in the
median); the number is searched for by trying, up to 400. Near it several deltas of a stream arrive at each wake-up, so more are
held than the CPU time of a few streams lets expect, which is the other case. Requests are in neither. *The bytes alone* is the
same client's response read to its end, and nothing done with it: what no library on top of the client can save. Time in which
the process waits for a core that others use does not count. For streams held, higher is better."""

LATE = 0.05  # seconds
MOST = 400  # streams, of those that are tried
_SLEEP = 0.01  # seconds
_PATIENCE = 60.0  # seconds until a request fails; hundreds of them begin at the same moment
_NEAR = 1.03  # the search ends when the numbers of streams that are held, and that are not, differ by no more than this

Read = Callable[[Any, str], Awaitable[str]]


class _Load(NamedTuple):
    """What reading so many streams means.

    Attributes:
        late: the seconds that the event loop is late.
        cost: microseconds of CPU time a delta.
    """

    late: float
    cost: float


async def _load(read: Read, port: int, n: int, streams: int) -> _Load:
    url = URL.format(port=port, pid=os.getpid(), streams=streams, n=n)
    clock, late = ProcessTime(os.getpid()), list[float]()
    async with make_openai(url, is_async=True, timeout=_PATIENCE) as client:
        reading = asyncio.gather(*(read(client, "chat") for _ in range(streams)))
        beginning = asyncio.ensure_future(begun(url))
        await asyncio.wait((reading, beginning), return_when=asyncio.FIRST_COMPLETED)
        if not beginning.done():  # a request has failed, so they would wait for it for ever
            beginning.cancel()
            await reading
        began, used = clock.now(), time.process_time()
        while (seconds := clock.now() - began) < n / A_SECOND:
            await asyncio.sleep(_SLEEP)
            late.append(clock.now() - began - seconds - _SLEEP)
        used = time.process_time() - used
        for text in await reading:
            check(text, answer(n))
    return _Load(statistics.median(late), used / streams / seconds / A_SECOND * 1e6)


async def _held(read: Read, port: int, n: int, streams: int, most: int) -> float:
    """The most streams with which the event loop is not too late, of those from this number on."""
    held, too_many = 0.0, float("inf")
    while held < most and too_many > held * _NEAR:
        if (await _load(read, port, n, streams)).late <= LATE:
            held = streams
        else:
            too_many = streams
        if not held:
            streams = max(1, streams // 2)
        elif too_many > most:
            streams = min(most, streams * 2)
        else:
            streams = round((held * too_many) ** 0.5)
    return held


def measured(read: Read) -> Callable[..., float]:
    """Microseconds of CPU time a delta of so many streams; with `most`, how many streams are held."""

    async def main(port: int, n: int, streams: int, most: int = 0) -> float:
        if most:
            return await _held(read, port, n, streams, most)
        return (await _load(read, port, n, streams)).cost

    return lambda **parameters: asyncio.run(main(**parameters))


CONTESTANTS = {
    "streamkit, a hook": Contestant(measured(with_async_hook)),
    "streamkit, text_deltas": Contestant(measured(with_async_text_deltas)),
    ASYNC_RAW: Contestant(measured(async_raw_loop)),
    ASYNC_BYTES: Contestant(measured(async_bytes_alone)),
}


def rows(profile: Profile) -> Iterator[Row]:
    streams = profile.pick(2, 30, 30)
    n = profile.pick(10, 60, 200)
    cost = {"n": n, "streams": streams}
    held = {"n": n, "streams": 2 * streams, "most": profile.pick(4, MOST, MOST)}
    with process("-m", "tests.benchmarks.paced_server") as port, Workers(__name__, profile) as workers:
        for case, unit, parameters, rounds in (
            (f"{A_SECOND} deltas a second each", "streams", held, profile.pick(1, 1, 3)),
            (f"{streams} streams of {A_SECOND} deltas a second", "µs of CPU time a delta", cost, profile.pick(1, 2, 5)),
        ):
            yield from contest(
                workers,
                CONTESTANTS,
                rounds,
                case=case,
                unit=unit,
                baseline=ASYNC_RAW,
                parameters={"port": int(port), **parameters},
            )
