"""A server with a thousand clients: memory, CPU time and latency, beside an app that is written by hand.

    python -m tests.benchmarks --only server
    python -m tests.benchmarks.server --clients 1000 --runs 100 --events 100 --interval 0.1      # one scenario alone

Each scenario has a server in a process of its own and its clients in another. First the clients connect; then each run gets an
event every `interval` seconds; then the same again, while each client leaves once and resumes by its `Last-Event-ID`. Every
client checks that it has every event exactly once.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from .measuring import Profile, Row, numbered
from .sse_clients import follow
from .sse_server import ByHand, Streamkit, serve

TITLE = "A server with a thousand clients"
ABOUT = """\
`create_app` under uvicorn on loopback, and 1,000 clients in another process that read one run, or 100 runs of ten clients each;
each run gets an event every 200 ms. The baseline is written by hand with Starlette: a queue for each client and a frame that is
made once, without a log, so that whoever leaves has lost the run. Latency is by the clock on the wall, from writing the event to
the client that has received it, and so is the time until the last of them has the last event. *Resume*: within
one second each client leaves and comes back with its `Last-Event-ID`; the CPU time is what that costs beside the events. *In each
protocol*: all clients read one run, which is encoded once for all of them. Every client checks that it has every event exactly
once."""

_PROCESSES = multiprocessing.get_context("spawn")  # no memory of what others have imported


class Scenario(NamedTuple):
    """What is served to whom."""

    app: type[Any]
    clients: int
    runs: int
    resumes: bool = True
    protocol: str = "streamkit"


class Size(NamedTuple):
    """How much is measured: events of each run, the seconds between two, and those within which all clients resume."""

    events: int
    interval: float
    resume_within: float


@contextmanager
def _process(target: Callable[..., None], *arguments: Any) -> Iterator[Any]:
    """A process, which ends when its pipe is closed: the pipe, and what it sent first."""
    pipe, theirs = _PROCESSES.Pipe()
    process = _PROCESSES.Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        yield pipe
    finally:
        pipe.close()
        process.join()


def _received(pipe: Any) -> Any:
    answer = pipe.recv()
    if isinstance(answer, str):
        raise RuntimeError(answer)
    return answer


def _asked(pipe: Any, command: Any) -> Any:
    pipe.send(command)
    return _received(pipe)


def measure(scenario: Scenario, size: Size) -> Mapping[str, float]:
    """The figures of one scenario, by case."""
    with _process(serve, scenario.app, scenario.runs) as server:
        port = _received(server)
        before = _asked(server, "memory")
        with _process(follow, port, scenario.clients, scenario.runs, scenario.protocol) as readers:
            _received(readers)
            figures = {"Memory": (_asked(server, "memory") - before) / scenario.clients / 1024}
            return {**figures, **_timed(server, readers, scenario, size)}


def _timed(server: Any, readers: Any, scenario: Scenario, size: Size) -> Mapping[str, float]:
    """The figures of events, after a first one, and of the time in which all resume."""
    newest = 0

    def write(events: int, resume_within: float | None = None) -> tuple[float, Mapping[str, float]]:
        """Write so many events, and wait until all clients have them: the CPU time of the server, and the latencies."""
        nonlocal newest
        newest += events
        began = _asked(server, "cpu")
        readers.send((newest, resume_within))
        _asked(server, (events, size.interval))
        seconds = _received(readers)
        return _asked(server, "cpu") - began, seconds

    write(1)
    cpu, seconds = write(size.events)
    per_event = cpu / size.events
    figures = {"CPU time": per_event / scenario.clients * 1e6}
    figures |= {f"Latency, {name}": value * 1e3 for name, value in seconds.items()}
    if scenario.resumes:
        events = int(size.resume_within / size.interval) + 1
        cpu, seconds = write(events, size.resume_within)
        figures["Resume"] = (cpu - per_event * events) / scenario.clients * 1e3
        figures["Latency, p99, while all resume"] = seconds["p99"] * 1e3
    return figures


OURS, BY_HAND = "streamkit", "by hand"
NATIVE = "streamkit's own protocol"
UI_PROTOCOLS = ("vercel_ui", "ag_ui")
UNITS = {
    "Memory": "KB a client",
    "CPU time": "µs an event and client",
    "Latency, p50": "ms",
    "Latency, p99": "ms",
    "Latency, last": "ms until all have it",
    "Resume": "ms of CPU a client",
    "Latency, p99, while all resume": "ms",
}


def rows(profile: Profile) -> Iterator[Row]:
    clients = profile.pick(10, 1_000, 1_000)
    size = profile.pick(Size(3, 0.02, 0.05), Size(10, 0.2, 1.0), Size(20, 0.2, 1.0))
    for runs in profile.pick((2,), (1, 100), (1, 100)):
        scenarios = {
            OURS: Scenario(Streamkit, clients, runs),
            BY_HAND: Scenario(ByHand, clients, runs, resumes=False),
        }
        found: dict[str, list[Mapping[str, float]]] = {name: [] for name in scenarios}
        for _ in range(profile.pick(1, 1, 3)):
            for name, scenario in scenarios.items():
                found[name].append(measure(scenario, size))
        for figure, unit in UNITS.items():
            values: dict[str, float | None] = {
                name: statistics.median(figures[figure] for figures in rounds)
                for name, rounds in found.items()
                if figure in rounds[0]
            }
            yield from numbered(values, f"{'One run' if runs == 1 else f'{runs} runs'}: {figure}", unit, BY_HAND)

    for number in profile.pick((clients,), (clients,), (100, clients)):
        yield from _rows_of_protocols(number, size)


def _rows_of_protocols(clients: int, size: Size) -> Iterator[Row]:
    """One run in each protocol of browsers, beside streamkit's own."""
    names = {"streamkit": NATIVE, **{protocol: protocol for protocol in UI_PROTOCOLS}}
    found = {
        name: measure(Scenario(Streamkit, clients, 1, resumes=False, protocol=protocol), size)
        for protocol, name in names.items()
    }
    for figure in ("CPU time", "Memory"):
        values: dict[str, float | None] = {name: figures[figure] for name, figures in found.items()}
        yield from numbered(values, f"One run in each protocol, {clients} clients: {figure}", UNITS[figure], NATIVE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--events", type=int, default=50, help="of each run")
    parser.add_argument("--interval", type=float, default=0.2, help="seconds between two events of a run")
    parser.add_argument("--protocol", default="streamkit", choices=("streamkit", *UI_PROTOCOLS))
    parser.add_argument("--by-hand", action="store_true", help="the app without streamkit")
    options = parser.parse_args()
    kind = ByHand if options.by_hand else Streamkit
    resumes = not options.by_hand and options.protocol == "streamkit"  # the others have no cursors
    scenario = Scenario(kind, options.clients, options.runs, resumes, options.protocol)
    print(f"load {os.getloadavg()[0]:.1f}")
    for case, value in measure(scenario, Size(options.events, options.interval, 1.0)).items():
        print(f"{case:32} {value:10.3f} {UNITS[case]}")


if __name__ == "__main__":
    main()
