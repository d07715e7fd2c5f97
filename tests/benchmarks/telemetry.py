"""`Telemetry`: what spans cost a stream, and a turn of an agent, beside the same without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import streamkit as sk

from .measuring import Clock, Contestant, Profile, Row, Workers, check, contest, process
from .parsing import chunks
from .turns import QUESTION, get_weather
from .wires import answer

TITLE = "Telemetry"
ABOUT = """\
CPU time with `Telemetry` among the handlers: of a stream of one delta, which is what a request costs, and of one of 2,000, where
that is shared by its deltas, both read from bytes in memory (2 KB a chunk); and of a turn of an agent over loopback, with a tool
call and two requests. *no-op* is OpenTelemetry's API without an SDK; *SDK* is its SDK, whose spans an exporter collects in memory.
The baseline is the same without `Telemetry`."""

WITHOUT = "without Telemetry"
Make = Callable[[], tuple[Sequence[sk.Handler], Callable[[], int]]]
"""Returns the handlers, and what takes the spans that they have made since the last call, and returns how many."""


def without() -> tuple[Sequence[sk.Handler], Callable[[], int]]:
    return [], lambda: 0


def with_no_op() -> tuple[Sequence[sk.Handler], Callable[[], int]]:
    from opentelemetry.metrics import NoOpMeterProvider
    from opentelemetry.trace import NoOpTracerProvider

    from streamkit.telemetry import Telemetry

    return [Telemetry(tracer_provider=NoOpTracerProvider(), meter_provider=NoOpMeterProvider())], lambda: 0


def with_sdk() -> tuple[Sequence[sk.Handler], Callable[[], int]]:
    from opentelemetry.metrics import NoOpMeterProvider
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from streamkit.telemetry import Telemetry

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    def taken() -> int:
        count = len(exporter.get_finished_spans())
        exporter.clear()
        return count

    return [Telemetry(tracer_provider=provider, meter_provider=NoOpMeterProvider())], taken


def stream(make: Make, n: int, times: int) -> float:
    """Microseconds a stream of `n` deltas."""
    handlers, taken = make()
    clock, body = Clock(), chunks("chat", "2 KB", n)
    for _ in range(times):
        with clock:
            made = sk.stream(body, *handlers)
            made.until_done()
        check(made.get_final_text(), answer(n))
        assert taken() == (make not in (without, with_no_op)), "a stream has one span"
    return clock.seconds / times * 1e6


def turn(make: Make, url: str, n: int, length: int) -> float:
    """Milliseconds a turn whose answer has `length` deltas."""
    import openai

    handlers, taken = make()
    clock = Clock()
    with openai.OpenAI(base_url=url, api_key="none") as client:
        for number in range(n + 1):
            agent = sk.Agent(client, model=str(length), tools=[get_weather], handlers=handlers)
            with clock if number else Clock():  # the first is on a new connection
                made = agent.stream(QUESTION)
                made.until_done()
            check(made.get_final_text(), answer(length))
            assert taken() == 4 * (make not in (without, with_no_op)), "the run, two model calls and a tool"
    return clock.seconds / n * 1000


MAKERS: dict[str, Make] = {
    WITHOUT: without,
    "Telemetry, no-op": with_no_op,
    "Telemetry, SDK": with_sdk,
}
_SDK = ("opentelemetry", "opentelemetry-sdk")


def measured(make: Make, of: str, **parameters: Any) -> float:
    return stream(make, **parameters) if of == "stream" else turn(make, **parameters)


CONTESTANTS = {
    name: Contestant(partial(measured, make), None if make is without else _SDK) for name, make in MAKERS.items()
}


def rows(profile: Profile) -> Iterator[Row]:
    with process("-m", "tests.benchmarks.turns") as url, Workers(__name__, profile) as workers:
        cases: Sequence[tuple[str, str, dict[str, Any]]] = (
            (
                "Chat, a stream of 1 delta",
                "µs a stream",
                {"of": "stream", "n": 1, "times": profile.pick(1, 300, 2_000)},
            ),
            (
                "Chat, a stream of 2,000 deltas",
                "µs a stream",
                {"of": "stream", "n": profile.pick(50, 2_000, 2_000), "times": profile.pick(1, 5, 20)},
            ),
            (
                "Chat, a turn with a call and 20 deltas",
                "ms a turn",
                {"of": "turn", "url": url, "n": profile.pick(1, 10, 50), "length": 20},
            ),
        )
        for case, unit, parameters in cases:
            yield from contest(
                workers,
                CONTESTANTS,
                profile.rounds,
                case=case,
                unit=unit,
                baseline=WITHOUT,
                parameters=parameters,
            )
