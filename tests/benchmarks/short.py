"""Short answers, of which each is a request of its own: what an answer costs beside its deltas."""

from __future__ import annotations

from collections.abc import Iterator

from .clients import HELPER, RAW, helper, measured, raw_loop, with_hook
from .measuring import Contestant, Profile, Row, Workers, contest, process

TITLE = "Short answers"
ABOUT = """\
CPU time of a whole request with a short answer, through the real client over loopback, on a connection that is open: the
request, the stream and its end. What dominates is the request; the difference between the rows is what each makes of the
answer."""

CONTESTANTS = {
    "streamkit, a hook": Contestant(measured(with_hook)),
    RAW: Contestant(measured(raw_loop)),
    HELPER: Contestant(measured(helper)),
}


def rows(profile: Profile) -> Iterator[Row]:
    with process("-m", "tests.benchmarks.model_server") as port, Workers(__name__, profile) as workers:
        for wire, title in (("chat", "Chat"), ("anthropic", "Anthropic"))[: profile.pick(1, 1, 2)]:
            for n in profile.pick((10,), (10, 50), (1, 10, 20, 50)):
                yield from contest(
                    workers,
                    CONTESTANTS,
                    profile.pick(1, 2, 5),
                    case=f"{title}, {n} delta{'s' * (n > 1)}",
                    unit="ms an answer",
                    baseline=RAW,
                    parameters={
                        "port": int(port),
                        "wire": wire,
                        "n": n,
                        "milliseconds": 0,
                        "times": profile.pick(2, 10, 40),
                    },
                    of=lambda microseconds, n=n: microseconds * n / 1000,
                )
